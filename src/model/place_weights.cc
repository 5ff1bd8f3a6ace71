#include "model/place_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "base/quoted.h"
#include "model/slot_place.h"

namespace lockstep {
namespace {

// A vector by its meaning: a matrix that happens to have one row stays a matrix.
bool IsVector(const WeightId& id) {
  return id.part == Part::kBias || InfoOf(id.role).part == LedgerPart::kNorms ||
         id.role == Role::kSinks || id.role == Role::kRouterSelectionBias;
}

// All roles of a fused tensor have the part, or none of them.
bool CanHold(const TensorRule& rule, const WeightId& id, const SlotShapes& shapes) {
  for (const Part part : {Part::kWeight, Part::kBias}) {
    const auto has = [&](Role role) { return shapes.contains({role, part, id.layer, id.expert}); };
    const auto present = std::count_if(rule.fused.begin(), rule.fused.end(), has);
    if (present != 0 && present != static_cast<int64_t>(rule.fused.size())) return false;
  }
  return true;
}

// The stored row that a row of the weight is, when each of its rows is one.
bool RowsAreStoredRows(const PlacedWeight& weight, int64_t row_elements) {
  return weight.col_stride == 1 && weight.cols == row_elements && weight.row_stride != 0;
}

// Copies from the weight's own checkpoint are exact when nothing is done to its elements.
bool SameCodes(const WeightView& view, const PlacedWeight& weight, const TensorType& type) {
  return view.type == &type && view.col_stride == 1 && view.addend == weight.addend;
}

// What FillPlacedRows works on: the block of rows that is asked for.
struct Block {
  int64_t first = 0, count = 0, row_elements = 0;
  float* floats = nullptr;  // [count, row_elements], or null: the row is copied
};

void Subtract(double addend, float* x, int64_t n) {
  if (addend == 0) return;
  const auto a = static_cast<float>(addend);
  for (int64_t i = 0; i < n; ++i) x[i] -= a;
}

// Floats as `type` stores them. Codes of blocks cannot say "not a number", and a half not 1e6.
Status Encode(const PlacedTensor& tensor, const TensorType& type, const float* x, int64_t n,
              std::byte* out) {
  if (!type.plain()) {
    const auto* bad = std::find_if(x, x + n, [](float value) { return !std::isfinite(value); });
    if (bad != x + n)
      return InputError("{}: holds {}, which {} has no code for", Quoted(tensor.name), *bad,
                        type.name);
  } else if (type.name == "F16") {
    constexpr float kLargest = 65520;  // what rounds to infinity
    const auto* bad = std::find_if(
        x, x + n, [](float value) { return std::abs(value) >= kLargest && std::isfinite(value); });
    if (bad != x + n)
      return InputError("{}: holds {}, and F16 ends at 65504 (bf16 and f32 hold it)",
                        Quoted(tensor.name), *bad);
  }
  type.quantize(x, n, out);
  return {};
}

// Rows of the weight are rows of the tensor.
Status FillWholeRows(const PlacedTensor& tensor, const PlacedWeight& weight, const WeightView& view,
                     const TensorType& type, const Block& block, std::vector<float>& row,
                     std::byte* out) {
  const int64_t step = weight.row_stride / block.row_elements;
  const int64_t begin = weight.offset / block.row_elements;
  const int64_t row_bytes = block.row_elements / type.block_elements * type.block_bytes;
  const bool copy = SameCodes(view, weight, type);
  const int64_t from = std::max<int64_t>(0, (block.first - begin + step - 1) / step);
  row.resize(static_cast<size_t>(block.row_elements));
  for (int64_t i = from; i < weight.rows; ++i) {
    const int64_t stored = begin + i * step;
    if (stored >= block.first + block.count) break;
    if (stored < block.first) continue;
    const int64_t r = weight.pair_dim != 0 ? RowStoredAt(i, weight.pair_dim) : i;
    std::byte* to = out + (stored - block.first) * row_bytes;
    if (copy) {
      std::memcpy(to, view.RowBytes(r), static_cast<size_t>(row_bytes));
      continue;
    }
    view.ReadRows(r, 1, row.data(), weight.cols);
    Subtract(weight.addend, row.data(), weight.cols);
    LS_RETURN_IF_ERROR(Encode(tensor, type, row.data(), weight.cols, to));
  }
  return {};
}

// Everything else, element by element into floats: vectors, and matrices stored the other way.
void ScatterRows(const PlacedWeight& weight, const WeightView& view, const Block& block) {
  constexpr int64_t kRows = 64;
  const int64_t begin = block.first * block.row_elements;
  const int64_t end = begin + block.count * block.row_elements;
  // The columns that fall into the block, for transposed matrices: one stored row each.
  const bool transposed = weight.rows > 1 && weight.col_stride == block.row_elements;
  int64_t first_col = 0, last_col = weight.cols;
  if (transposed) {
    const int64_t base = weight.offset / block.row_elements;
    first_col = std::clamp<int64_t>(block.first - base, 0, weight.cols);
    last_col = std::clamp<int64_t>(block.first + block.count - base, 0, weight.cols);
    if (first_col >= last_col) return;
  } else if (weight.offset >= end || weight.offset + weight.rows * weight.row_stride <= begin) {
    return;
  }
  std::vector<float> rows(static_cast<size_t>(std::min(kRows, weight.rows) * weight.cols));
  for (int64_t r = 0; r < weight.rows; r += kRows) {
    const int64_t n = std::min(kRows, weight.rows - r);
    view.ReadRows(r, n, rows.data(), weight.cols);
    Subtract(weight.addend, rows.data(), n * weight.cols);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = first_col; c < last_col; ++c) {
        const int64_t element =
            weight.pair_dim != 0 && weight.rows == 1 ? StoredRow(c, weight.pair_dim) : c;
        const int64_t at =
            weight.offset + (r + i) * weight.row_stride + element * weight.col_stride;
        if (at >= begin && at < end)
          block.floats[at - begin] = rows[static_cast<size_t>(i * weight.cols + c)];
      }
    }
  }
}

// A vector that lies in both files alone and the same way.
bool CopyVector(const PlacedTensor& tensor, const WeightView& view, const TensorType& type,
                const Block& block, std::byte* out) {
  const PlacedWeight& weight = tensor.weights.front();
  if (tensor.weights.size() != 1 || weight.rows != 1 || weight.cols != block.row_elements ||
      block.count != 1 || weight.pair_dim != 0 || view.pair_dim != 0 || weight.col_stride != 1 ||
      !SameCodes(view, weight, type))
    return false;
  std::memcpy(out, view.RowBytes(0),
              static_cast<size_t>(weight.cols / type.block_elements * type.block_bytes));
  return true;
}

}  // namespace

Result<std::vector<PlacedTensor>> PlaceWeights(const ModelSpec& spec,
                                               std::span<const TensorRule> rules,
                                               std::string_view place) {
  const std::vector<WeightSlot> slots = RequiredWeights(spec);
  const SlotShapes shapes = ShapesOf(slots);
  std::vector<PlacedTensor> tensors;
  std::unordered_map<std::string, size_t> known;
  for (const WeightSlot& slot : slots) {
    const auto rule = std::find_if(rules.begin(), rules.end(), [&](const TensorRule& candidate) {
      return candidate.role == slot.id.role && CanHold(candidate, slot.id, shapes);
    });
    if (rule == rules.end())
      return UnsupportedError("{}: the target has no name for {}, which this model has", place,
                              ToString(slot.id));
    SlotPlace at = PlaceSlot(slot, *rule, shapes, spec);
    LS_CHECK(!at.missing, "{}", ToString(slot.id));
    const std::string name = TensorName(*rule, slot.id);
    const auto [entry, is_new] = known.try_emplace(name, tensors.size());
    if (is_new) {
      const bool vector = IsVector(slot.id);
      if (vector && slot.id.part == Part::kWeight) std::erase(at.shape, 1);
      if (at.shape.empty()) at.shape.push_back(1);
      if (rule->unit_axis >= 0 && slot.id.part == Part::kWeight)
        at.shape.insert(at.shape.begin() + rule->unit_axis, 1);
      tensors.push_back({.name = name,
                         .shape = at.shape,
                         .weights = {},
                         .role = slot.id.role,
                         .part = slot.id.part,
                         .matrix = !vector && slot.id.part == Part::kWeight});
    }
    tensors[entry->second].weights.push_back(
        {.id = slot.id,
         .rows = slot.rows,
         .cols = slot.cols,
         .offset = at.offset,
         .row_stride = at.row_stride,
         .col_stride = at.col_stride,
         .pair_dim = at.pair_dim,
         .addend = slot.id.part == Part::kBias ? 0 : rule->addend});
  }
  return tensors;
}

Status FillPlacedRows(const PlacedTensor& tensor, const Weights& weights, const TensorType& type,
                      int64_t first, int64_t count, std::byte* out) {
  Block block{.first = first, .count = count, .row_elements = tensor.row_elements()};
  std::vector<float> row, floats;
  for (const PlacedWeight& weight : tensor.weights) {
    const WeightView& view =
        weights.Get(weight.id.role, weight.id.layer, weight.id.part, weight.id.expert);
    if (weight.rows > 1 && RowsAreStoredRows(weight, block.row_elements)) {
      LS_RETURN_IF_ERROR(FillWholeRows(tensor, weight, view, type, block, row, out));
      continue;
    }
    if (floats.empty()) {
      if (CopyVector(tensor, view, type, block, out)) return {};
      floats.resize(static_cast<size_t>(count * block.row_elements));
      block.floats = floats.data();
    }
    ScatterRows(weight, view, block);
  }
  if (floats.empty()) return {};
  return Encode(tensor, type, floats.data(), count * block.row_elements, out);
}

}  // namespace lockstep
