#include <cmath>

#include "verify/diagnose.h"

namespace lockstep {
namespace {

// JSON has no infinity.
Json Number(double x) { return std::isfinite(x) ? Json(x) : Json("inf"); }

Json ToJson(const Distance& distance) {
  return {{"max_abs", Number(distance.max_abs)},
          {"rms", Number(distance.rms)},
          {"times_tolerance", Number(distance.times_tolerance)}};
}

std::string_view OriginName(Origin origin) {
  switch (origin) {
    case Origin::kAudit:
      return "audit";
    case Origin::kCatalogue:
      return "catalogue";
    case Origin::kSystematic:
      return "systematic";
    case Origin::kSingle:
      return "systematic, one layer";
  }
  return "";
}

Json ToJson(const Hypothesis& hypothesis) {
  Json out = {{"edit", ToString(hypothesis.edit)}, {"origin", OriginName(hypothesis.origin)}};
  if (!hypothesis.id.empty()) out["id"] = hypothesis.id;
  out["sentence"] = hypothesis.sentence;
  return out;
}

Json ToJson(const Cause& cause) {
  Json out = ToJson(cause.hypothesis);
  out["changes"] = Json::array();
  for (const FieldDifference& change : cause.changes)
    out["changes"].push_back({{"path", change.path}, {"from", change.a}, {"to", change.b}});
  out["after"] = ToJson(cause.after);
  return out;
}

Json ToJson(const Alternative& alternative) {
  Json out = ToJson(alternative.hypothesis);
  out["instead_of"] = alternative.replaces;
  out["distance"] = ToJson(alternative.distance);
  return out;
}

}  // namespace

Json ToJson(const Diagnosis& d) {
  Json out = {{"verdict", DiagnosisVerdictName(d.verdict)},
              {"sentence", d.sentence},
              {"before", ToJson(d.before)},
              {"after", ToJson(d.after)},
              {"noise", Number(d.noise)},
              {"tolerance", Number(d.tolerance)}};
  out["causes"] = Json::array();
  for (const Cause& cause : d.causes) out["causes"].push_back(ToJson(cause));
  if (!d.edit.empty()) out["edit"] = ToString(d.edit);
  out["indistinguishable"] = Json::array();
  for (const Alternative& other : d.indistinguishable)
    out["indistinguishable"].push_back(ToJson(other));
  out["alternatives"] = d.alternatives;
  out["alternatives_tried"] = d.alternatives_tried;
  if (d.runner_up) out["runner_up"] = ToJson(*d.runner_up);
  out["nearest"] = Json::array();
  for (const Cause& cause : d.nearest) out["nearest"].push_back(ToJson(cause));
  if (d.first) {
    out["first"] = {{"prompt", d.first->prompt},
                    {"position", d.first->position},
                    {"max_abs", Number(d.first->max_abs)}};
    if (d.first->step >= 0) out["first"]["step"] = d.first->step;
    if (d.first->tap) out["first"]["tap"] = TapName(d.first->tap->tap, d.first->tap->layer);
    if (d.first->decoding) out["first"]["decoding"] = true;
    if (!d.first->operation.empty()) out["first"]["operation"] = d.first->operation;
  }
  out["edits"] = d.hypotheses;
  out["evaluations"] = d.evaluations;
  out["positions"] = d.positions;
  out["out_of_time"] = d.out_of_time;
  out["seconds"] = d.seconds;
  return out;
}

}  // namespace lockstep
