#include <algorithm>
#include <cmath>

#include "verify/verify.h"

namespace lockstep {
namespace {

// How far apart, in words: the number and how many times the tolerance it is.
std::string Times(double value, double tolerance) {
  return fmt::format("{:.2e}, {:.3g} times the tolerance {:.1e}", value, value / tolerance,
                     tolerance);
}

std::string StepName(int64_t step) {
  return step == 0 ? "the end of the prompt" : fmt::format("greedy step {}", step);
}

std::vector<double> FirstLogits(const PromptTrace& run) {
  const auto shown = run.shown.find(0);
  if (shown != run.shown.end()) return shown->second.logprobs;
  std::vector<double> row = run.StepLogits(0);
  if (row.empty() && !run.steps.empty()) row = run.StepLogits(run.steps.begin()->first);
  return row;
}

// The reference says what rounding is, never the candidate about itself: a recording with a large
// noise of its own would match anything. What is no finite number is no tolerance.
void SetNoise(const PromptTrace& reference, const PromptTrace& candidate, Measured measured,
              PromptComparison& out) {
  const auto usable = [](const std::optional<double>& noise) {
    return noise && *noise >= 0 && std::isfinite(Tolerance(*noise));
  };
  if (usable(reference.noise)) {
    out.noise = *reference.noise;
    out.noise_source = measured.reference ? NoiseSource::kMeasured : NoiseSource::kRecorded;
    if (!measured.reference && !PlausibleNoise(reference)) {
      const double own = measured.candidate && usable(candidate.noise) ? *candidate.noise : 0;
      const double limit = kPlausibleNoise * std::max(own, AssumedNoise(FirstLogits(reference)));
      if (out.noise > limit) {
        out.claimed_noise = out.noise;
        out.noise = limit;
        out.noise_source = NoiseSource::kBounded;
      }
    }
  } else if (measured.candidate && usable(candidate.noise)) {
    out.noise = *candidate.noise;
    out.noise_source = NoiseSource::kMeasuredOnCandidate;
  } else {
    out.noise = AssumedNoise(FirstLogits(reference));
    out.noise_source = NoiseSource::kAssumed;
  }
  out.tolerance = Tolerance(out.noise);
}

// By how much the reference's best logit at `step` is above that of the candidate's token. Absent
// where the reference has no logits of that very step: nothing else says how close it was.
std::optional<double> GapAt(const PromptTrace& reference, int64_t step, int32_t token) {
  const std::vector<double> row = reference.StepLogits(step);
  // Log-probabilities lie as far apart as logits.
  if (const auto shown = reference.shown.find(step);
      row.empty() && shown != reference.shown.end()) {
    const auto& [ids, logprobs] = shown->second;
    const auto found = std::find(ids.begin(), ids.end(), token);
    if (found == ids.end()) return std::nullopt;
    return *std::max_element(logprobs.begin(), logprobs.end()) -
           logprobs[static_cast<size_t>(found - ids.begin())];
  }
  if (token < 0 || static_cast<size_t>(token) >= row.size()) return std::nullopt;
  return *std::max_element(row.begin(), row.end()) - row[static_cast<size_t>(token)];
}

// Says which side gave something else than numbers; empty: neither.
std::string NotFinite(const std::vector<double>& a, const std::vector<double>& b,
                      const std::string& where) {
  for (const auto& [side, row] : {std::pair{"reference", &a}, {"candidate", &b}})
    if (const int64_t id = FirstNotFinite(*row); id >= 0)
      return fmt::format("the {}'s logit of id {} at {} is {}, which is no number", side, id, where,
                         (*row)[static_cast<size_t>(id)]);
  return "";
}

// The hidden states of the last prompt position, layer by layer; empty where there are none.
std::vector<std::vector<double>> LastHidden(const PromptTrace& run) {
  std::vector<std::vector<double>> rows;
  if (run.hidden_last) {
    for (int64_t r = 0; r < run.hidden_last->num_rows(); ++r)
      rows.push_back(run.hidden_last->Row(r));
  } else if (run.hidden) {
    const int64_t positions = run.hidden->shape[1];
    for (int64_t layer = 0; layer < run.hidden->shape[0]; ++layer)
      rows.push_back(run.hidden->Row(layer * positions + positions - 1));
  }
  return rows;
}

std::vector<double> CompareHidden(const PromptTrace& a, const PromptTrace& b) {
  const auto rows_a = LastHidden(a), rows_b = LastHidden(b);
  std::vector<double> out;
  if (rows_a.size() != rows_b.size() || rows_a.empty() ||
      rows_a.front().size() != rows_b.front().size())
    return out;
  for (size_t i = 0; i < rows_a.size(); ++i) out.push_back(MaxAbsDifference(rows_a[i], rows_b[i]));
  return out;
}

// What is known of a step on both sides.
struct StepRows {
  std::vector<double> a, b;  // logits; empty where a side has none
  SparseRow shown_a, shown_b;
  bool shown = false;       // the log-probabilities are to be compared
  std::string other_model;  // a sentence where the two cannot be of one model
};

StepRows RowsOf(const PromptTrace& a, const PromptTrace& b, int64_t step) {
  StepRows rows{.a = a.StepLogits(step), .b = b.StepLogits(step)};
  if (!rows.a.empty() && !rows.b.empty()) {
    if (rows.a.size() != rows.b.size())
      rows.other_model = fmt::format(
          "the reference has logits for {} tokens, the candidate for {} (another vocabulary?)",
          rows.a.size(), rows.b.size());
    return rows;
  }
  const auto find = [step](const PromptTrace& run) {
    const auto found = run.shown.find(step);
    return found == run.shown.end() || found->second.ids.empty() ? nullptr : &found->second;
  };
  const SparseRow *const in_a = find(a), *const in_b = find(b);
  if ((rows.a.empty() && in_a == nullptr) || (rows.b.empty() && in_b == nullptr)) return rows;
  const auto shown = [&](const std::vector<double>& logits, const SparseRow* own,
                         const SparseRow* other) {
    if (own != nullptr && logits.empty()) return *own;
    for (const int32_t id : other->ids)
      if (static_cast<size_t>(id) >= logits.size()) {
        rows.other_model = fmt::format(
            "one side shows token id {}, the other has logits for {} tokens (another vocabulary?)",
            id, logits.size());
        return SparseRow{};
      }
    return ShownOf(logits, other->ids);
  };
  rows.shown_a = shown(rows.a, in_a, in_b);
  rows.shown_b = shown(rows.b, in_b, in_a);
  rows.shown = rows.other_model.empty();
  return rows;
}

// Beyond the tolerance is a difference unless the rounding explains it.
Verdict Beyond(const PromptComparison& p, double value, Precision precision) {
  if (!p.rounding || !(value <= p.allowed())) return Verdict::kDiffers;
  return precision == Precision::kQuantizedActivations ? Verdict::kQuantizedActivations
                                                       : Verdict::kPrecision;
}

std::string Explained(const PromptComparison& p, double value) {
  if (!p.rounding) return Times(value, p.tolerance);
  return fmt::format("{:.2e}, {:.2g} times what the rounding does to the reference ({:.2e})", value,
                     value / *p.rounding, *p.rounding);
}

void Conclude(Precision precision, PromptComparison& out) {
  const auto differs = [&](double value, const std::string& where) {
    out.verdict = Beyond(out, value, precision);
    out.sentence = fmt::format("max |Δ| {} is {}", where, Explained(out, value));
  };
  // Of the steps the first that is too far; where rounding explains all that is, the worst.
  const auto first_beyond = [&](double limit) {
    return std::find_if(out.steps.begin(), out.steps.end(), [&](const StepComparison& step) {
      return !(step.difference.max_abs <= limit);
    });
  };
  const double positions = out.positions_max_abs.value_or(0);
  if (!(positions <= out.tolerance)) differs(positions, "over the prompt's positions");
  if (const auto step = first_beyond(out.allowed()); step != out.steps.end())
    differs(step->difference.max_abs, "at " + StepName(step->step));
  else if (const StepComparison* worst = out.WorstStep();
           worst != nullptr && worst->difference.max_abs > std::max(out.tolerance, positions))
    differs(worst->difference.max_abs, "at " + StepName(worst->step));
  if (out.parting) {
    const Parting& parting = *out.parting;
    const std::string gap =
        parting.gap ? fmt::format("{:.1e}", *parting.gap) : "an unknown distance";
    const std::string where =
        fmt::format("token {} instead of {} at {} (their logits are {} apart)",
                    parting.candidate_token, parting.reference_token, StepName(parting.step), gap);
    if (!parting.near_tie) {
      const bool known = out.verdict != Verdict::kMatch;
      out.verdict = Verdict::kDiffers;
      out.sentence = known ? fmt::format("{}; {}", out.sentence, where) : where;
    } else if (out.verdict == Verdict::kMatch) {
      out.sentence = fmt::format("near tie: {}, within rounding", where);
      // A tie only for who rounds more.
      if (*parting.gap > 2 * out.tolerance) out.verdict = Beyond(out, *parting.gap / 2, precision);
    } else if (out.verdict != Verdict::kDiffers) {
      out.sentence += fmt::format("; near tie: {}", where);
    }
  }
  if (out.verdict == Verdict::kMatch && out.sentence.empty()) {
    const StepComparison* worst = out.WorstStep();
    out.sentence = worst == nullptr
                       ? "every prompt position within the tolerance"
                       : fmt::format("max |Δ| {:.1e} at {}", out.max_abs(), StepName(worst->step));
  }
}

}  // namespace

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMatch:
      return "match";
    case Verdict::kPrecision:
      return "precision";
    case Verdict::kQuantizedActivations:
      return "quantized activations";
    case Verdict::kQuantizedWeights:
      return "quantized weights";
    case Verdict::kDiffers:
      return "differs";
    case Verdict::kDifferentTokens:
      return "different tokens";
    case Verdict::kSubjectFailed:
      return "subject failed";
    case Verdict::kNotComparable:
      return "not comparable";
  }
  return "";
}

bool PlausibleNoise(const PromptTrace& recording) {
  return !recording.noise ||
         *recording.noise <= kPlausibleNoise * AssumedNoise(FirstLogits(recording));
}

std::string_view NoiseSourceName(NoiseSource source) {
  switch (source) {
    case NoiseSource::kMeasured:
      return "measured on the reference";
    case NoiseSource::kMeasuredOnCandidate:
      return "measured on the candidate";
    case NoiseSource::kRecorded:
      return "recorded";
    case NoiseSource::kAssumed:
      return "assumed";
    case NoiseSource::kBounded:
      return "recorded, and bounded";
  }
  return "";
}

const StepComparison* PromptComparison::WorstStep() const {
  const auto worst = std::max_element(steps.begin(), steps.end(), [](const auto& a, const auto& b) {
    return a.difference.max_abs < b.difference.max_abs;
  });
  return worst == steps.end() ? nullptr : &*worst;
}

double PromptComparison::max_abs() const {
  const StepComparison* worst = WorstStep();
  return std::max(positions_max_abs.value_or(0), worst != nullptr ? worst->difference.max_abs : 0);
}

double PromptComparison::allowed() const {
  return tolerance + kRoundingMultiple * rounding.value_or(0);
}

double PromptComparison::max_kl() const {
  double kl = 0;
  for (const StepComparison& step : steps) kl = std::max(kl, step.difference.kl);
  return kl;
}

int64_t PromptComparison::top1_equal() const {
  return std::count_if(steps.begin(), steps.end(),
                       [](const StepComparison& step) { return step.difference.same_top1; });
}

PromptComparison CompareRuns(const PromptTrace& a, const PromptTrace& b, int64_t steps,
                             Measured measured, const std::optional<RoundingEffect>& rounding) {
  PromptComparison out;
  out.name = a.name;
  out.tokens = static_cast<int64_t>(a.ids.size());
  std::string not_finite, other_model;
  const auto check = [&](const std::vector<double>& row_a, const std::vector<double>& row_b,
                         const std::string& where) {
    if (not_finite.empty()) not_finite = NotFinite(row_a, row_b, where);
  };
  SetNoise(a, b, measured, out);
  // What is no number allows nothing.
  if (rounding && std::isfinite(rounding->max_abs)) out.rounding = rounding->max_abs;
  if (a.logits && b.logits && a.logits->shape == b.logits->shape) {
    double worst = 0;
    for (int64_t row = 0; row < a.logits->num_rows(); ++row) {
      const std::vector<double> row_a = a.logits->Row(row), row_b = b.logits->Row(row);
      check(row_a, row_b, fmt::format("position {} of the prompt", row));
      worst = std::max(worst, MaxAbsDifference(row_a, row_b));
    }
    out.positions_max_abs = worst;
  }
  out.greedy_compared = std::min(
      {static_cast<int64_t>(a.greedy.size()), static_cast<int64_t>(b.greedy.size()), steps});
  // The end of the prompt counts even when nothing was generated.
  const int64_t last = std::max<int64_t>(out.greedy_compared, 1);
  for (int64_t k = 0; k < last; ++k) {
    StepRows rows = RowsOf(a, b, k);
    check(rows.a, rows.b, StepName(k));
    check(rows.shown_a.logprobs, rows.shown_b.logprobs, StepName(k));
    if (other_model.empty()) other_model = std::move(rows.other_model);
    if (!rows.a.empty() && rows.a.size() == rows.b.size()) {
      out.steps.push_back({k, CompareRows(rows.a, rows.b)});
    } else if (rows.shown) {
      if (auto difference = CompareShown(rows.shown_a, rows.shown_b)) {
        // All that the reference knows, where it knows all.
        if (!rows.a.empty()) difference->a = FindTopTwo(rows.a);
        if (!rows.b.empty()) difference->b = FindTopTwo(rows.b);
        difference->same_top1 = difference->a.first == difference->b.first;
        out.steps.push_back({k, *difference});
        out.shown_only = true;
      }
    }
    if (k >= out.greedy_compared) break;
    const int32_t token_a = a.greedy[static_cast<size_t>(k)];
    const int32_t token_b = b.greedy[static_cast<size_t>(k)];
    if (token_a != token_b) {
      Parting parting{.step = k, .reference_token = token_a, .candidate_token = token_b};
      parting.gap = GapAt(a, k, token_b);
      // A recording may lack that step. Of a side that rounds more its own logits then tell: two
      // tokens that it holds further apart than its rounding reaches were no tie.
      if (!parting.gap && out.rounding) parting.gap = GapAt(b, k, token_a);
      // Each of the two logits may be off by so much.
      parting.near_tie = parting.gap && *parting.gap <= 2 * out.allowed();
      out.parting = parting;
      break;
    }
    ++out.greedy_equal;
  }
  out.layers_max_abs = CompareHidden(a, b);
  Conclude(rounding ? rounding->precision : Precision::kFull, out);
  if (!not_finite.empty()) {
    out.verdict = Verdict::kSubjectFailed;
    out.sentence = std::move(not_finite);
  } else if (!other_model.empty()) {
    out.verdict = Verdict::kDiffers;
    out.sentence = "the two are not the same model: " + other_model;
  } else if (!out.positions_max_abs && out.steps.empty()) {
    out.verdict = Verdict::kNotComparable;
    out.sentence = "the two have no logits of a common position";
  }
  return out;
}

}  // namespace lockstep
