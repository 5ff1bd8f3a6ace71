#include "audit/candidate_weights.h"

#include "model/float_weights.h"

namespace lockstep {

namespace {

// The value that a matrix of an operator multiplies: what the operator reads first, but for the
// second matrix of experts in one operator with the first.
std::string InputOf(const Graph& graph, const WeightId& id, const FoundMatrix& found) {
  const std::string_view op = graph.node(found.node).op;
  if (id.role == Role::kExpertDownProj && (op == "QMoE" || op == "MoE")) return {};
  const int value = graph.node(found.node).In(0);
  return value == kNoValue ? std::string() : graph.Name(value);
}

void Replace(CandidateWeights& out, const Graph& graph, const WeightId& id,
             const FoundMatrix& found) {
  if (found.int8_block) {
    const RoundedPlace& place = out.rounds[id] = {*found.int8_block, InputOf(graph, id, found)};
    if (place.input.empty()) ++out.inside;
  }
  SetFloats(out.model.weights, id, found.matrix.ReadAll(graph), found.matrix.cols);
  ++out.replaced;
}

bool IsFaulty(const WeightResult& result, bool codes) {
  switch (result.state) {
    case WeightState::kDiffers:
    case WeightState::kZeroPoints:
      return result.not_finite == 0 && result.reference_not_finite == 0;
    case WeightState::kScaled:
    case WeightState::kOffset:
    case WeightState::kOther:
    case WeightState::kTransposed:
    case WeightState::kPairs:
    case WeightState::kHalves:
      return codes;  // of plain numbers an edit says it
    default:
      return false;
  }
}

}  // namespace

Result<CandidateWeights> WithWeightsOf(const Model& reference, const OnnxModel& candidate,
                                       const AuditReport& report) {
  CandidateWeights out{.model = reference};
  const Graph graph(candidate);
  const auto replace = [&](const WeightId& id, const FoundMatrix& found) {
    Replace(out, graph, id, found);
  };
  const WeightId head{Role::kLmHead, Part::kWeight, -1, -1};
  const WeightId table{Role::kEmbedTokens, Part::kWeight, -1, -1};
  const bool tied = reference.spec.lm_head.tied;
  // The table's own codes, read a second time by the head, which rounds what it multiplies.
  const auto shared = report.decoder.matrices.find(head);
  const auto codes = report.weights.find(table);
  if (tied && !report.weights.contains(head) && shared != report.decoder.matrices.end() &&
      shared->second.matrix.codes && codes != report.weights.end() &&
      (codes->second.state == WeightState::kQuantized ||
       codes->second.state == WeightState::kEqual)) {
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
    // Codes that are exactly the checkpoint's numbers still have their input rounded.
    const bool exact = result.state == WeightState::kEqual && found.int8_block;
    if (result.state == WeightState::kQuantized || sixteen || exact) replace(id, found);
  }
  return out;
}

Result<std::vector<WeightId>> TakeFaultyWeights(CandidateWeights& weights,
                                                const OnnxModel& candidate,
                                                const AuditReport& report) {
  std::vector<WeightId> taken;
  const Graph graph(candidate);
  for (const auto& [id, found] : report.decoder.matrices) {
    const auto at = report.weights.find(id);
    const WeightView* ours = weights.model.weights.Find(id);
    if (at == report.weights.end() || ours == nullptr || ours->rows != found.matrix.rows ||
        ours->cols != found.matrix.cols || !IsFaulty(at->second, found.matrix.codes.has_value()))
      continue;
    Replace(weights, graph, id, found);
    taken.push_back(id);
  }
  return taken;
}

}  // namespace lockstep
