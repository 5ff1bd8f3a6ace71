#include "verify/report.h"

#include <cmath>

namespace lockstep {
namespace {

Json Number(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

Json PromptToJson(const PromptComparison& p) {
  Json out = {{"name", p.name},
              {"verdict", VerdictName(p.verdict)},
              {"sentence", p.sentence},
              {"tokens", p.tokens}};
  if (p.tolerance > 0) {
    out["noise"] = Number(p.noise);
    out["noise_source"] = NoiseSourceName(p.noise_source);
    out["tolerance"] = Number(p.tolerance);
    if (p.rounding) {
      out["rounding"] = Number(*p.rounding);
      out["allowed"] = Number(p.allowed());
    }
    out["max_abs"] = Number(p.max_abs());
    if (p.positions_max_abs) out["positions_max_abs"] = Number(*p.positions_max_abs);
    out["max_kl"] = Number(p.max_kl());
    out["greedy_compared"] = p.greedy_compared;
    out["greedy_equal"] = p.greedy_equal;
    out["top1_equal"] = p.top1_equal();
    if (p.shown_only) out["compared"] = "the log-probabilities that a side shows";
    if (!p.layers_max_abs.empty()) {
      Json layers = Json::array();
      for (const double x : p.layers_max_abs) layers.push_back(Number(x));
      out["layers_max_abs"] = std::move(layers);
    }
  }
  if (p.parting) {
    Json parting = {{"step", p.parting->step},
                    {"reference_token", p.parting->reference_token},
                    {"candidate_token", p.parting->candidate_token},
                    {"near_tie", p.parting->near_tie}};
    if (p.parting->gap) parting["gap"] = Number(*p.parting->gap);
    out["parting"] = std::move(parting);
  }
  Json steps = Json::array();
  for (const StepComparison& step : p.steps)
    steps.push_back({{"step", step.step},
                     {"max_abs", Number(step.difference.max_abs)},
                     {"worst_id", step.difference.worst},
                     {"kl", Number(step.difference.kl)},
                     {"same_top1", step.difference.same_top1},
                     {"reference_top2_gap", Number(step.difference.a.gap)}});
  out["steps"] = std::move(steps);
  return out;
}

Json PassageToJson(const PassageComparison& p) {
  Json out = {{"passage", PassageName(p.passage)},
              {"prompt", p.prompt},
              {"how", p.how},
              {"verdict", VerdictName(p.verdict)},
              {"sentence", p.sentence}};
  if (p.verdict != Verdict::kNotComparable) {
    out["max_abs"] = Number(p.max_abs);
    out["allowed"] = Number(p.allowed);
  }
  if (p.first_position) out["first_position"] = *p.first_position;
  return out;
}

}  // namespace

Json ToJson(const Verification& v) {
  Json out = {{"verdict", VerdictName(v.verdict)},
              {"sentence", v.sentence},
              {"reference", v.reference},
              {"candidate", v.candidate},
              {"tolerance_rule", fmt::format("{} * noise + {:g}", kNoiseMultiple, kToleranceFloor)},
              {"rounding_rule", fmt::format("tolerance + {:g} * rounding", kRoundingMultiple)},
              {"notes", v.notes},
              {"prompts", Json::array()}};
  for (const PromptComparison& prompt : v.prompts) out["prompts"].push_back(PromptToJson(prompt));
  out["passages"] = Json::array();
  for (const PassageComparison& passage : v.passages)
    out["passages"].push_back(PassageToJson(passage));
  return out;
}

}  // namespace lockstep
