#include "audit/weight_places.h"

#include <algorithm>
#include <memory>

#include "reference/ops.h"

namespace lockstep {
namespace {

// A matrix that lies transposed is read by blocks of rows: one by one each element of a row would
// be a page of its own.
Rows OfTransposed(const Graph& graph, const StoredMatrix& matrix) {
  struct Block {
    int64_t first = 0, count = 0;
    std::vector<float> rows;
  };
  static constexpr int64_t kBlockRows = 64;
  auto block = std::make_shared<Block>();
  return {matrix.rows, matrix.cols, [&graph, matrix, block](int64_t row, float* out) {
            const ConstantView& view = matrix.values;
            if (row < block->first || row >= block->first + block->count) {
              block->first = row;
              block->count = std::min(kBlockRows, matrix.rows - row);
              block->rows.resize(static_cast<size_t>(block->count * matrix.cols));
              float column[kBlockRows];
              for (int64_t c = 0; c < matrix.cols; ++c) {
                graph.Read(view.tensor, view.offset + row + c * view.strides[1], 1, block->count,
                           column);
                for (int64_t r = 0; r < block->count; ++r)
                  block->rows[static_cast<size_t>(r * matrix.cols + c)] =
                      column[r] * view.factor + view.addend;
              }
            }
            std::copy_n(block->rows.data() + (row - block->first) * matrix.cols, matrix.cols, out);
          }};
}

}  // namespace

Rows OfReference(const WeightView& view, const NormSpec* norm) {
  return {view.rows, view.cols, [&view, norm](int64_t row, float* out) {
            view.ReadRows(row, 1, out, view.cols);
            if (norm == nullptr) return;
            for (int64_t c = 0; c < view.cols; ++c) {
              out[c] += static_cast<float>(norm->weight_offset);
              out[c] = static_cast<float>(Rounded(out[c], norm->weight_rounding));
            }
          }};
}

Rows OfVector(const Graph& graph, const ConstantView& vector) {
  return {1, vector.elements(),
          [&graph, vector](int64_t, float* out) { std::ranges::copy(graph.Read(vector), out); }};
}

Rows OfMatrix(const Graph& graph, const StoredMatrix& matrix) {
  if (!matrix.codes && matrix.values.strides[0] == 1 && matrix.values.strides[1] != 1)
    return OfTransposed(graph, matrix);
  return {matrix.rows, matrix.cols,
          [&graph, matrix](int64_t row, float* out) { matrix.ReadRow(graph, row, out); }};
}

Rows OfCodes(const Graph& graph, StoredMatrix codes, const StoredMatrix& scales) {
  codes.codes->unit_scales = true;
  return {codes.rows, codes.cols, [&graph, codes, scales](int64_t row, float* out) {
            const BlockCodes& kept = *codes.codes;
            codes.ReadRow(graph, row, out);
            const std::vector<float> each = scales.ScalesOf(graph, row);
            for (int64_t c = 0; c < codes.cols; ++c)
              out[c] *= each[static_cast<size_t>(std::min(c / kept.block, kept.blocks - 1))];
          }};
}

bool AlikeKept(const Graph& graph, const StoredMatrix& a, const StoredMatrix& b) {
  if (!a.codes || !b.codes) return false;
  const BlockCodes &x = *a.codes, &y = *b.codes;
  const auto same_type = [&](int one, int other) {
    if (one < 0 || other < 0) return one < 0 && other < 0;
    const auto& tensors = graph.model().tensors();
    return tensors[static_cast<size_t>(one)].type == tensors[static_cast<size_t>(other)].type;
  };
  return a.rows == b.rows && a.cols == b.cols && x.bits == y.bits && x.block == y.block &&
         x.row_bits == y.row_bits && x.row_bits % 8 == 0 && x.blocks == y.blocks &&
         x.zero == y.zero && x.is_signed == y.is_signed && x.zeros_packed == y.zeros_packed &&
         x.column_step == 1 && y.column_step == 1 && x.ScaleRow() == y.ScaleRow() &&
         x.scale_row.has_value() == y.scale_row.has_value() && x.scale_step == y.scale_step &&
         !x.zeros_along_rows && !y.zeros_along_rows && same_type(x.scales, y.scales) &&
         same_type(x.zeros, y.zeros) && same_type(a.values.tensor, b.values.tensor);
}

const WeightView& WeightPlaces::ReferenceOf(const WeightId& id) const {
  const WeightView* view = reference_.weights.Find(id);
  if (view == nullptr && id == kHead) view = reference_.weights.Find(kTable);
  return *view;
}

const NormSpec* WeightPlaces::NormOf(const WeightId& id) const {
  if (id.part == Part::kBias) return nullptr;
  if (id.role == Role::kFinalNorm) return &reference_.spec.final_norm;
  if (id.layer < 0) return nullptr;
  const LayerSpec& layer = reference_.spec.layers[static_cast<size_t>(id.layer)];
  const auto of = [](const std::optional<NormSpec>& norm) { return norm ? &*norm : nullptr; };
  const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
  switch (id.role) {
    case Role::kMixerPreNorm:
      return of(layer.mixer_pre_norm);
    case Role::kMixerPostNorm:
      return of(layer.mixer_post_norm);
    case Role::kMlpPreNorm:
      return of(layer.mlp_pre_norm);
    case Role::kMlpPostNorm:
      return of(layer.mlp_post_norm);
    case Role::kQNorm:
      return attention != nullptr ? of(attention->q_norm) : nullptr;
    case Role::kKNorm:
      return attention != nullptr ? of(attention->k_norm) : nullptr;
    default:
      return nullptr;
  }
}

const BlockCodes* WeightPlaces::CodesOf(const WeightId& id) const {
  const auto matrix = found().matrices.find(id);
  if (matrix == found().matrices.end() || !matrix->second.matrix.codes) return nullptr;
  return &*matrix->second.matrix.codes;
}

std::optional<Rows> WeightPlaces::Found(const WeightId& id, bool& place_known) const {
  const WeightPlace place = PlaceOf(found(), id);
  place_known = place.known;
  if (place.vector != nullptr) return OfVector(graph_, *place.vector);
  return place.matrix != nullptr ? std::optional(OfMatrix(graph_, *place.matrix)) : std::nullopt;
}

bool WeightPlaces::OneTable(const WeightId& id) const {
  return reference_.spec.lm_head.tied && id.part == Part::kWeight &&
         (id.role == Role::kLmHead || id.role == Role::kEmbedTokens);
}

}  // namespace lockstep
