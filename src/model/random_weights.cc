#include "model/random_weights.h"

#include <cmath>

namespace lockstep {
namespace {

// splitmix64 (Steele, Lea, Flood 2014).
uint64_t Next(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Uniform with mean 0 and variance 1.
float Draw(uint64_t& state) {
  const double unit = static_cast<double>(Next(state) >> 11) * 0x1p-53;
  return static_cast<float>((unit - 0.5) * std::sqrt(12.0));
}

}  // namespace

std::unique_ptr<OwnedWeights> RandomWeights(const ModelSpec& spec, uint64_t seed) {
  const std::vector<WeightSlot> slots = RequiredWeights(spec);
  auto owned = std::make_unique<OwnedWeights>();
  int64_t total = 0;
  for (const WeightSlot& slot : slots) total += slot.rows * slot.cols;
  owned->values.reserve(static_cast<size_t>(total));
  uint64_t state = seed;
  for (const WeightSlot& slot : slots) {
    const bool norm = InfoOf(slot.id.role).part == LedgerPart::kNorms;
    const bool embedding = InfoOf(slot.id.role).part == LedgerPart::kEmbedding ||
                           InfoOf(slot.id.role).part == LedgerPart::kPositions;
    const double scale =
        slot.rows == 1 || embedding ? 0.3 : 1.3 / std::sqrt(static_cast<double>(slot.cols));
    const float mean = norm && slot.id.part == Part::kWeight ? 1.0f : 0.0f;
    WeightView view{
        .tensor = ToString(slot.id),
        .type = FindTensorType("F32"),
        .data = reinterpret_cast<const std::byte*>(owned->values.data() + owned->values.size()),
        .rows = slot.rows,
        .cols = slot.cols,
        .row_stride = slot.cols};
    for (int64_t i = 0; i < slot.rows * slot.cols; ++i)
      owned->values.push_back(mean + static_cast<float>(scale) * Draw(state));
    owned->weights.Set(slot.id, std::move(view));
  }
  return owned;
}

}  // namespace lockstep
