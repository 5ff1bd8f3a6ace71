#include "audit/candidate_weights.h"

namespace lockstep {

namespace {

// The value that a matrix of an operator multiplies: what the operator reads first, but for the
// second matrix of experts.
std::string InputOf(const Graph& graph, const WeightId& id, const FoundMatrix& found) {
  if (id.role == Role::kExpertDownProj) return {};
  const int value = graph.node(found.node).In(0);
  return value == kNoValue ? std::string() : graph.Name(value);
}

}  // namespace

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
    if (found.int8_block) {
      out.rounder.blocks[view.data] = *found.int8_block;
      if (std::string input = InputOf(graph, id, found); !input.empty())
        out.inputs[view.data] = std::move(input);
      else
        ++out.inside;
    }
    out.model.weights.Set(id, view);
    out.model.weights.Keep(std::move(values));
    ++out.replaced;
  };
  for (const auto& [id, found] : report.decoder.matrices) {
    const auto result = report.weights.find(id);
    if (result == report.weights.end()) continue;
    const WeightState state = result->second.state;
    if (state != WeightState::kQuantized && state != WeightState::kRounded) continue;
    replace(id, found);
  }
  // A head that shares the reference's table of embeddings may be a matrix of its own here.
  const auto head = report.decoder.matrices.find({Role::kLmHead, Part::kWeight, -1, -1});
  const auto table = report.decoder.matrices.find({Role::kEmbedTokens, Part::kWeight, -1, -1});
  if (reference.spec.lm_head.tied && head != report.decoder.matrices.end() &&
      table != report.decoder.matrices.end() && head->second.matrix.codes) {
    out.model.spec.lm_head.tied = false;
    replace({Role::kLmHead, Part::kWeight, -1, -1}, head->second);
  }
  return out;
}

}  // namespace lockstep
