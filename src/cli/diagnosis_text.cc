#include "cli/diagnosis_text.h"

#include <algorithm>

#include "cli/table.h"

namespace lockstep {
namespace {

// A word of the command line, quoted for a shell where it needs it.
std::string ShellWord(std::string_view word) {
  if (!word.empty() && word.find_first_of(" '\"\\$`*?[](){}<>|&;!~#\n") == std::string_view::npos)
    return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string Named(const Hypothesis& hypothesis) {
  return hypothesis.id.empty() ? hypothesis.sentence
                               : fmt::format("{}: {}", hypothesis.id, hypothesis.sentence);
}

// The distance after each edit, from the unedited reference down.
std::string Steps(const Diagnosis& d, const std::vector<Cause>& causes) {
  using enum Table::Align;
  Table table({"the reference", "max |Δ|", "rms", "times the tolerance"},
              {kLeft, kRight, kRight, kRight});
  const auto add = [&](std::string name, const Distance& distance) {
    table.Add({std::move(name), Scientific(distance.max_abs), Scientific(distance.rms),
               fmt::format("{:.3g}", distance.times_tolerance)});
  };
  add("as it is", d.before);
  for (size_t i = 0; i < causes.size(); ++i)
    add(fmt::format("{} edit {}", i == 0 ? "with" : "and ", i + 1), causes[i].after);
  std::string out = table.Text();
  for (size_t i = 0; i < causes.size(); ++i) {
    out += fmt::format("\nedit {}: {}\n", i + 1, Named(causes[i].hypothesis));
    constexpr size_t kMost = 12;
    for (size_t c = 0; c < std::min(kMost, causes[i].changes.size()); ++c)
      out += fmt::format("  {}\n", ToString(causes[i].changes[c]));
    if (causes[i].changes.size() > kMost)
      out += fmt::format("  and {} more facts\n", causes[i].changes.size() - kMost);
    for (const WeightEdit& weight : causes[i].hypothesis.edit.weights)
      out += fmt::format("  weights: {}\n", ToString(weight));
  }
  return out;
}

}  // namespace

std::string DiagnosisText(const Diagnosis& d, std::string_view reference,
                          std::string_view candidate, std::string_view base) {
  std::string out = fmt::format(
      "compared   {} positions along the candidate's own tokens; noise {}, tolerance {}\n",
      d.positions, Scientific(d.noise), Scientific(d.tolerance));
  if (d.first) {
    const std::string where = d.first->step < 0
                                  ? fmt::format("position {} of the prompt", d.first->position)
                              : d.first->step == 0 ? "the end of the prompt"
                                                   : fmt::format("greedy step {}", d.first->step);
    out += fmt::format("differs    first on {} at {}: max |Δ| {}\n", d.first->prompt, where,
                       Scientific(d.first->max_abs));
    if (d.first->tap)
      out += fmt::format(
          "           first inside the model at {}{}{}\n",
          TapName(d.first->tap->tap, d.first->tap->layer),
          d.first->operation.empty() ? "" : fmt::format(", made by {}", d.first->operation),
          d.first->decoding ? ", in a greedy step: inside the prompt's own call all agrees" : "");
  }
  const std::vector<Cause>& told = d.causes.empty() ? d.nearest : d.causes;
  if (!told.empty()) out += "\n" + Steps(d, told);
  if (!d.indistinguishable.empty()) {
    out += "\nwould give the same numbers on these prompts:\n";
    constexpr size_t kMost = 8;
    for (size_t i = 0; i < std::min(kMost, d.indistinguishable.size()); ++i)
      out += fmt::format("  for edit {}: {} ({})\n", d.indistinguishable[i].replaces + 1,
                         ToString(d.indistinguishable[i].hypothesis.edit),
                         Named(d.indistinguishable[i].hypothesis));
    if (d.indistinguishable.size() > kMost)
      out += fmt::format("  and {} more\n", d.indistinguishable.size() - kMost);
  }
  if (d.alternatives_tried < d.alternatives)
    out +=
        fmt::format("\n{} of {} other edits were tried in place of the causes, in the time given\n",
                    d.alternatives_tried, d.alternatives);
  if (d.runner_up)
    out += fmt::format("\nrunner-up for edit {}: {} leaves max |Δ| {}\n", d.runner_up->replaces + 1,
                       ToString(d.runner_up->hypothesis.edit),
                       Scientific(d.runner_up->distance.max_abs));
  out += fmt::format("\n{}{}{}: {}\n", DiagnosisVerdictName(d.verdict), base.empty() ? "" : " ",
                     base, d.sentence);
  out += fmt::format("tried {} edits in {} comparisons, {}\n", d.hypotheses, d.evaluations,
                     HumanSeconds(d.seconds));
  // Numbers of the candidate's own are no edit.
  if (!d.causes.empty() && std::ranges::none_of(d.causes, [](const Cause& cause) {
        return cause.hypothesis.edit.empty();
      }))
    out += fmt::format("reproduce: lockstep verify {} {} --edit-reference {}\n",
                       ShellWord(reference), ShellWord(candidate), ShellWord(ToString(d.edit)));
  return out;
}

ReportSection DiagnosisSection(const Diagnosis& diagnosis, std::string_view reference,
                               std::string_view candidate, std::string_view base) {
  return {.title = fmt::format("Diagnosis{}{}: {}", base.empty() ? "" : ", ", base,
                               DiagnosisVerdictName(diagnosis.verdict)),
          .content = {ReportParagraph{diagnosis.sentence},
                      ReportPreformatted{DiagnosisText(diagnosis, reference, candidate, base)}}};
}

}  // namespace lockstep
