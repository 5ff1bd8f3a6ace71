#include "subjects/sixteen_bits.h"

#include <algorithm>
#include <bit>
#include <variant>

#include "base/dtype.h"

namespace lockstep {
namespace {

constexpr uint32_t kDraws = 3, kRoutedDraws = 16;

// In (-0.5, 0.5), by a hash of the number, its place and the draw (splitmix64's last steps); 0 for
// draw 0.
float Dither(float x, size_t place, uint32_t draw) {
  if (draw == 0) return 0;
  uint64_t z = (uint64_t{std::bit_cast<uint32_t>(x)} << 32 | draw) + place * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return static_cast<float>(((z ^ (z >> 31)) >> 41) + 0.5) * 0x1p-23f - 0.5f;
}

void Round(std::span<float> x, Rounding rounding, uint32_t draw) {
  if (rounding == Rounding::kFP16)
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = ToFloat(ToFloat16(x[i] * (1 + Dither(x[i], i, draw) * 0x1p-10f)));
  if (rounding == Rounding::kBF16)
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = ToFloat(ToBFloat16(x[i] * (1 + Dither(x[i], i, draw) * 0x1p-7f)));
}

void Round(MatrixView<float> rows, Rounding rounding, uint32_t draw) {
  for (size_t t = 0; t < rows.rows; ++t) Round(rows.row(t), rounding, draw);
}

Rounding RoundingOf(OnnxType type) {
  if (type == OnnxType::kFloat16) return Rounding::kFP16;
  return type == OnnxType::kBFloat16 ? Rounding::kBF16 : Rounding::kNone;
}

std::string_view NameOf(Rounding rounding) { return rounding == Rounding::kFP16 ? "fp16" : "bf16"; }

// Operators whose result has the type of a constant that they read. A Cast, a Gather of a table or
// the scales of codes tell nothing of what is computed.
bool ComputesInTypeOfConstants(const OnnxNode& node) {
  constexpr std::string_view kOps[] = {
      "MatMul",
      "Gemm",
      "Conv",
      "Add",
      "Mul",
      "MatMulNBits",
      "LayerNormalization",
      "SimplifiedLayerNormalization",
      "SkipLayerNormalization",
      "SkipSimplifiedLayerNormalization",
      "RMSNormalization",
      "GroupQueryAttention",
      "RotaryEmbedding",
  };
  return std::ranges::find(kOps, node.op_type) != std::end(kOps);
}

}  // namespace

std::string SixteenBits::Words() const {
  if (numbers != Rounding::kNone) return fmt::format("activations in {}", NameOf(numbers));
  return fmt::format("a cache in {}", NameOf(cache));
}

SixteenBits SixteenBitsOf(const OnnxModel& model, const OnnxContract& contract) {
  SixteenBits out;
  for (const OnnxCache& cache : contract.caches) {
    if (cache.type == OrtType::kFloat16) out.cache = Rounding::kFP16;
    if (cache.type == OrtType::kBFloat16) out.cache = Rounding::kBF16;
  }
  for (const OnnxNode& node : model.nodes()) {
    if (!ComputesInTypeOfConstants(node)) continue;
    for (size_t slot = 0; slot < node.inputs.size(); ++slot)
      if (const OnnxTensor* tensor = model.Tensor(node.Input(slot)))
        if (const Rounding type = RoundingOf(tensor->type); type != Rounding::kNone)
          out.numbers = type;
  }
  return out;
}

void SixteenBitRounder::Keys(size_t, MatrixView<float> rows) const {
  // As numbers they are rounded already.
  if (bits_.numbers == Rounding::kNone) Round(rows, bits_.cache, draw_);
}

void SixteenBitRounder::Values(size_t, MatrixView<float> rows) const {
  // As numbers they are rounded already.
  if (bits_.numbers == Rounding::kNone) Round(rows, bits_.cache, draw_);
}

void SixteenBitRounder::AttentionWeights(std::span<float> weights) const {
  Round(weights, bits_.numbers, draw_);
}

void SixteenBitRounder::Output(MatrixView<float> rows) const { Round(rows, bits_.numbers, draw_); }

void SixteenBitRounder::Turns(std::span<float> entries) const { Round(entries, bits_.numbers, 0); }

Subject::Abilities SixteenBitSubject::Can() const {
  Abilities can = candidate_.Can();
  can.precision = Precision::kRounded;
  return can;
}

Result<double> SixteenBitSubject::MeasureRounding(const PromptTrace& run, double enough,
                                                  const Progress& progress) {
  // One way of rounding says little of the next where a router stands between two experts.
  const bool routes = std::ranges::any_of(
      formulas_.model().spec.layers,
      [](const LayerSpec& layer) { return std::holds_alternative<MoeSpec>(layer.mlp); });
  std::vector<std::unique_ptr<Rounder<float>>> draws;
  for (uint32_t draw = 0; draw < (routes ? kRoutedDraws : kDraws); ++draw)
    draws.push_back(std::make_unique<SixteenBitRounder>(bits_, draw));
  return formulas_.EffectOf(draws, enough, run, progress);
}

}  // namespace lockstep
