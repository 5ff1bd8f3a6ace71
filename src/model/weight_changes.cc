#include "model/weight_changes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/dtype.h"

namespace lockstep {
namespace {

float RoundedTo(Rounding rounding, float x) {
  switch (rounding) {
    case Rounding::kNone:
      return x;
    case Rounding::kBF16:
      return ToFloat(ToBFloat16(x));
    case Rounding::kFP16:
      return ToFloat(ToFloat16(x));
    case Rounding::kTwoDecimals:
      return static_cast<float>(std::nearbyint(static_cast<double>(x) * 100) / 100);
  }
  return x;
}

// The weight as a list of units that lie along its outputs: rows, or the elements of a vector.
struct Outputs {
  int64_t count, width;
};
Outputs OutputsOf(const Dense& weight) {
  return weight.rows > 1 ? Outputs{weight.rows, weight.cols} : Outputs{weight.cols, 1};
}

// Output `to(i)` is what output i was.
template <typename To>
void MoveOutputs(Dense& weight, const To& to) {
  const auto [count, width] = OutputsOf(weight);
  const std::vector<float> old = weight.values;
  for (int64_t i = 0; i < count; ++i)
    std::copy_n(old.begin() + i * width, width, weight.values.begin() + to(i) * width);
}

// Within each of `heads` heads: the halves of its outputs become pairs, or the inverse.
void Permute(Dense& weight, int64_t heads, int64_t default_heads, bool to_pairs) {
  const int64_t count = OutputsOf(weight).count;
  if (heads == 0) heads = default_heads;
  const int64_t dim = heads > 0 ? count / heads : 0;
  if (dim < 2 || dim % 2 != 0) return;
  MoveOutputs(weight, [&](int64_t i) {
    if (i >= heads * dim) return i;
    const int64_t head = i / dim, in_head = i % dim, half = dim / 2;
    const int64_t moved =
        to_pairs ? 2 * (in_head % half) + in_head / half : (in_head % 2) * half + in_head / 2;
    return head * dim + moved;
  });
}

// Heads of the projection that `role` names, in this layer.
int64_t HeadsOf(const std::optional<Role>& role, const LayerSpec* layer) {
  if (layer == nullptr || !role) return 1;
  if (const auto* a = std::get_if<AttentionSpec>(&layer->mixer)) {
    const bool kv = *role == Role::kKProj || *role == Role::kVProj || *role == Role::kKNorm;
    return kv ? a->num_key_value_heads : a->num_attention_heads;
  }
  if (const auto* a = std::get_if<MlaSpec>(&layer->mixer))
    return *role == Role::kKvAProj ? 1 : a->num_attention_heads;
  return 1;
}

// Query head h moves to where kv head h % kv_heads is read.
void TileHeads(const WeightEdit& edit, const LayerSpec* layer, Dense& weight) {
  const auto* a = layer == nullptr ? nullptr : std::get_if<AttentionSpec>(&layer->mixer);
  if (a == nullptr) return;
  const int64_t heads = a->num_attention_heads, kv_heads = a->num_key_value_heads;
  const int64_t per_kv = heads / kv_heads;
  const auto place = [&](int64_t h) { return h % kv_heads * per_kv + h / kv_heads; };
  const auto move = [&](int64_t dim) {
    return [=](int64_t i) { return i < heads * dim ? place(i / dim) * dim + i % dim : i; };
  };
  if (edit.role == Role::kOProj && edit.part == Part::kWeight) {
    const auto to = move(weight.cols / heads);
    const std::vector<float> old = weight.values;
    for (int64_t r = 0; r < weight.rows; ++r)
      for (int64_t c = 0; c < weight.cols; ++c)
        weight.values[static_cast<size_t>(r * weight.cols + to(c))] =
            old[static_cast<size_t>(r * weight.cols + c)];
  } else if (const int64_t dim = OutputsOf(weight).count / heads; dim > 0) {
    MoveOutputs(weight, move(dim));
  }
}

float Largest(const float* values, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

// act(first element, how many, block's number) for each block of `block` columns of each row.
template <typename Act>
void ForBlocks(Dense& weight, int64_t block, const Act& act) {
  for (int64_t r = 0; r < weight.rows; ++r)
    for (int64_t c = 0; c < weight.cols; c += block)
      act(weight.values.data() + r * weight.cols + c, std::min(block, weight.cols - c), c / block);
}

}  // namespace

void Change(const WeightEdit& edit, const LayerSpec* layer, Dense& weight) {
  std::vector<float>& w = weight.values;
  const int64_t block = std::max<int64_t>(edit.count, 1);
  switch (edit.change) {
    case WeightChange::kScale:
      for (float& x : w) x = static_cast<float>(x * edit.value);
      return;
    case WeightChange::kAdd:
      for (float& x : w) x = static_cast<float>(x + edit.value);
      return;
    case WeightChange::kRound:
      for (float& x : w) x = RoundedTo(edit.rounding, x);
      return;
    case WeightChange::kTranspose: {
      const std::vector<float> old = w;
      for (int64_t r = 0; r < weight.rows; ++r)
        for (int64_t c = 0; c < weight.cols; ++c)
          w[static_cast<size_t>(c * weight.rows + r)] =
              old[static_cast<size_t>(r * weight.cols + c)];
      return;
    }
    case WeightChange::kHalvesToPairs:
      return Permute(weight, edit.count, HeadsOf(edit.role, layer), true);
    case WeightChange::kPairsToHalves:
      return Permute(weight, edit.count, HeadsOf(edit.role, layer), false);
    case WeightChange::kTileHeads:
      return TileHeads(edit, layer, weight);
    case WeightChange::kReverseRows: {
      const int64_t last = OutputsOf(weight).count - 1;
      return MoveOutputs(weight, [&](int64_t i) { return last - i; });
    }
    case WeightChange::kReverseColumns:
      for (int64_t r = 0; r < weight.rows; ++r)
        std::reverse(w.begin() + r * weight.cols, w.begin() + (r + 1) * weight.cols);
      return;
    case WeightChange::kSwapPairs:
      for (int64_t r = 0; r < weight.rows; ++r)
        for (int64_t c = 0; c + 1 < weight.cols; c += 2)
          std::swap(w[static_cast<size_t>(r * weight.cols + c)],
                    w[static_cast<size_t>(r * weight.cols + c + 1)]);
      return;
    case WeightChange::kOneBlockScale: {
      float first = 0;
      ForBlocks(weight, block, [&](float* x, int64_t n, int64_t number) {
        const float largest = Largest(x, n);
        if (number == 0) first = largest;
        if (largest == 0) return;
        for (int64_t i = 0; i < n; ++i) x[i] = x[i] / largest * first;
      });
      return;
    }
    case WeightChange::kShiftBlocks:
      ForBlocks(weight, block, [&](float* x, int64_t n, int64_t) {
        const auto shift = static_cast<float>(edit.value * Largest(x, n));
        for (int64_t i = 0; i < n; ++i) x[i] += shift;
      });
      return;
    case WeightChange::kZeroTail:
      for (int64_t r = 0; r < weight.rows; ++r)
        for (int64_t c = std::max<int64_t>(0, weight.cols - block); c < weight.cols; ++c)
          w[static_cast<size_t>(r * weight.cols + c)] = 0;
      return;
    case WeightChange::kZero:
    case WeightChange::kSwap:
    case WeightChange::kTake:
    case WeightChange::kFit:
    case WeightChange::kInterleave:
    case WeightChange::kDeinterleave:
      break;  // of two weights, or of a shape: apply_edit.cc
  }
  LS_CHECK(false, "change {}", int(edit.change));
}

Dense Fitted(const Dense& weight, int64_t rows, int64_t cols) {
  Dense fitted{rows, cols, std::vector<float>(static_cast<size_t>(rows * cols))};
  for (size_t i = 0; i < fitted.values.size() && !weight.values.empty(); ++i)
    fitted.values[i] = weight.values[i % weight.values.size()];
  return fitted;
}

void Interleave(Dense& a, Dense& b) {
  const auto [count, width] = OutputsOf(a);
  const Dense old_a = a, old_b = b;
  for (int64_t i = 0; i < 2 * count; ++i) {  // row i of the fused matrix
    const Dense& from = i % 2 == 0 ? old_a : old_b;
    Dense& to = i < count ? a : b;
    std::copy_n(from.values.begin() + i / 2 * width, width, to.values.begin() + i % count * width);
  }
}

void Deinterleave(Dense& a, Dense& b) {
  const auto [count, width] = OutputsOf(a);
  const Dense old_a = a, old_b = b;
  for (int64_t i = 0; i < 2 * count; ++i) {
    const Dense& from = i < count ? old_a : old_b;
    Dense& to = i % 2 == 0 ? a : b;
    std::copy_n(from.values.begin() + i % count * width, width, to.values.begin() + i / 2 * width);
  }
}

}  // namespace lockstep
