#include "audit/candidate_weights.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

void BlockInt8Rounder::Input(const WeightView& weight, bool, MatrixView<float> rows) const {
  const auto found = blocks.find(weight.data);
  if (found == blocks.end()) return;
  const auto block = static_cast<size_t>(found->second);
  for (size_t t = 0; t < rows.rows; ++t) {
    const std::span<float> x = rows.row(t);
    for (size_t begin = 0; begin < x.size(); begin += block) {
      const auto part = x.subspan(begin, std::min(block, x.size() - begin));
      float largest = 0;
      for (const float e : part) largest = std::max(largest, std::abs(e));
      if (!(largest > 0)) continue;
      const float scale = largest / 127, inverse = 127 / largest;
      for (float& e : part) e = std::nearbyint(e * inverse) * scale;
    }
  }
}

Result<CandidateWeights> WithWeightsOf(const Model& reference, const OnnxModel& candidate,
                                       const AuditReport& report) {
  CandidateWeights out{.model = reference};
  const Graph graph(candidate);
  const TensorType* f32 = FindTensorType("F32");
  const auto replace = [&](const WeightId& id, const FoundMatrix& found) {
    auto values = std::make_shared<std::vector<float>>(found.matrix.ReadAll(graph));
    WeightView view{.tensor = ToString(id),
                    .type = f32,
                    .data = reinterpret_cast<const std::byte*>(values->data()),
                    .rows = found.matrix.rows,
                    .cols = found.matrix.cols,
                    .row_stride = found.matrix.cols};
    if (found.int8_block) out.rounder.blocks[view.data] = *found.int8_block;
    out.model.weights.Set(id, view);
    out.model.weights.Keep(std::move(values));
    ++out.replaced;
  };
  const WeightId head{Role::kLmHead, Part::kWeight, -1, -1};
  const WeightId table{Role::kEmbedTokens, Part::kWeight, -1, -1};
  const bool tied = reference.spec.lm_head.tied;
  // The table's own codes, read a second time by the head, which rounds what it multiplies.
  const auto shared = report.decoder.matrices.find(head);
  const auto codes = report.weights.find(table);
  if (tied && !report.weights.contains(head) && shared != report.decoder.matrices.end() &&
      shared->second.matrix.codes && codes != report.weights.end() &&
      codes->second.state == WeightState::kQuantized) {
    out.model.spec.lm_head.tied = false;
    replace(head, shared->second);
  }
  // A head of its own beside the reference's table is what the table is, until it is taken over.
  if (tied && report.weights.contains(head)) {
    out.model.spec.lm_head.tied = false;
    out.model.weights.Set(head, *reference.weights.Find(table));
  }
  for (const auto& [id, found] : report.decoder.matrices) {
    const auto at = report.weights.find(id);
    if (at == report.weights.end()) continue;
    const WeightResult& result = at->second;
    const bool sixteen = result.state == WeightState::kRounded && result.bits == 16;
    if (result.state == WeightState::kQuantized || sixteen) replace(id, found);
  }
  return out;
}

}  // namespace lockstep
