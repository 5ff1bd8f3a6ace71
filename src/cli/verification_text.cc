#include "cli/verification_text.h"

#include <algorithm>

#include "cli/table.h"

namespace lockstep {
namespace {

std::vector<std::string> Row(const PromptComparison& p) {
  if (p.tolerance == 0)
    return {p.name, WithCommas(p.tokens),
            "-",    "-",
            "-",    "-",
            "-",    "-",
            "-",    std::string(VerdictName(p.verdict))};
  const StepComparison* worst = p.WorstStep();
  const std::string end = !p.steps.empty() && p.steps.front().step == 0
                              ? Scientific(p.steps.front().difference.max_abs)
                              : "-";
  std::string greedy = fmt::format("{}/{}", p.greedy_equal, p.greedy_compared);
  if (p.parting && p.parting->near_tie) greedy += " (near tie)";
  return {p.name,
          WithCommas(p.tokens),
          end,
          worst == nullptr
              ? "-"
              : fmt::format("{} @{}", Scientific(worst->difference.max_abs), worst->step),
          Scientific(p.noise),
          Scientific(p.tolerance),
          greedy,
          Scientific(p.max_kl()),
          fmt::format("{}/{}", p.top1_equal(), p.steps.size()),
          std::string(VerdictName(p.verdict))};
}

std::string StepTable(const PromptComparison& p) {
  using enum Table::Align;
  Table table({"step", "max |Δ|", "at id", "top-2 gap", "KL", "top-1"},
              {kRight, kRight, kRight, kRight, kRight, kLeft});
  for (const StepComparison& step : p.steps)
    table.Add({std::to_string(step.step), Scientific(step.difference.max_abs),
               std::to_string(step.difference.worst), Scientific(step.difference.a.gap),
               Scientific(step.difference.kl), step.difference.same_top1 ? "same" : "other"});
  return table.Text(2);
}

// What was asked in other ways than whole: a line of what agrees, one for each that does not.
std::string PassageLines(const Verification& v) {
  std::vector<std::pair<std::string_view, std::vector<std::string>>> same;  // way -> prompts
  double worst = 0, worst_share = 0;
  std::string differ;
  for (const PassageComparison& p : v.passages) {
    if (p.verdict == Verdict::kNotComparable) continue;  // a note
    const std::string_view name = PassageName(p.passage);
    if (p.verdict == Verdict::kDiffers || p.verdict == Verdict::kSubjectFailed) {
      differ += fmt::format("{} ({}): {} {}: {}\n", p.prompt, name,
                            p.verdict == Verdict::kDiffers ? "differs" : "cannot be run", p.how,
                            p.sentence);
      continue;
    }
    auto way = std::ranges::find_if(same, [&](const auto& w) { return w.first == name; });
    if (way == same.end()) way = same.insert(same.end(), {name, {}});
    way->second.push_back(p.prompt);
    worst = std::max(worst, p.max_abs);
    if (p.allowed > 0) worst_share = std::max(worst_share, p.max_abs / p.allowed);
  }
  if (same.empty()) return differ;
  std::vector<std::string> ways;
  for (const auto& [name, prompts] : same)
    ways.push_back(fmt::format("{} ({})", name, fmt::join(prompts, ", ")));
  return fmt::format("the same by other ways: {}; max |Δ| {}, {:.2g} of what is allowed\n{}",
                     fmt::join(ways, ", "), Scientific(worst), worst_share, differ);
}

}  // namespace

std::string VerificationText(const Verification& v, bool verbose) {
  using enum Table::Align;
  std::string out = fmt::format("reference  {}\ncandidate  {}\n", v.reference, v.candidate);
  if (!v.prompts.empty()) {
    Table table({"prompt", "tokens", "prompt end |Δ|", "worst |Δ| @step", "noise", "tolerance",
                 "greedy", "max KL", "top-1", "verdict"},
                {kLeft, kRight, kRight, kRight, kRight, kRight, kRight, kRight, kRight, kLeft});
    bool any = false;
    std::vector<std::string> roundings;
    std::vector<std::string> sources;
    for (const PromptComparison& prompt : v.prompts) {
      table.Add(Row(prompt));
      if (prompt.tolerance == 0) continue;
      any = true;
      if (prompt.rounding)
        roundings.push_back(fmt::format("{} {}", prompt.name, Scientific(*prompt.rounding)));
      std::string source(NoiseSourceName(prompt.noise_source));
      if (std::find(sources.begin(), sources.end(), source) == sources.end())
        sources.push_back(std::move(source));
    }
    out += "\n" + table.Text();
    out += "\n";
    if (any)
      out +=
          fmt::format("noise: max |fp32 - fp64| on the prompt, {}; tolerance: {} x noise + {:g}\n",
                      fmt::join(sources, " or "), kNoiseMultiple, kToleranceFloor);
    if (!roundings.empty())
      out += fmt::format(
          "rounding: what it does to the reference's own logits, measured: {}; allowed: tolerance "
          "+ {:g} x rounding\n",
          fmt::join(roundings, ", "), kRoundingMultiple);
    for (const PromptComparison& prompt : v.prompts) {
      const bool told = prompt.verdict != Verdict::kMatch || prompt.parting;
      if (told) out += fmt::format("{}: {}\n", prompt.name, prompt.sentence);
      if (verbose) out += fmt::format("{}:\n{}", prompt.name, StepTable(prompt));
    }
  }
  out += PassageLines(v);
  for (const std::string& note : v.notes) out += fmt::format("note: {}\n", note);
  out += fmt::format("\n{}: {}\n", VerdictName(v.verdict), v.sentence);
  return out;
}

}  // namespace lockstep
