#include "verify/report_junit.h"

#include "verify/markup.h"

namespace lockstep {
namespace {

struct Counts {
  size_t tests = 0, failures = 0, errors = 0;
};

// "failure", "error", or nothing.
std::string_view ElementOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMatch:
    case Verdict::kPrecision:
    case Verdict::kQuantizedActivations:
    case Verdict::kQuantizedWeights:
      return "";
    case Verdict::kDiffers:
    case Verdict::kDifferentTokens:
      return "failure";
    case Verdict::kSubjectFailed:
    case Verdict::kNotComparable:
      return "error";
  }
  return "error";
}

std::string Case(const Verification& v, const PromptComparison& p, Counts& counts) {
  ++counts.tests;
  const std::string_view element = ElementOf(p.verdict);
  counts.failures += element == "failure";
  counts.errors += element == "error";
  std::string out = fmt::format("    <testcase classname=\"{}\" name=\"{}\">\n",
                                EscapeMarkup(v.candidate), EscapeMarkup(p.name));
  if (!element.empty())
    out += fmt::format("      <{0} type=\"{1}\" message=\"{2}\"/>\n", element,
                       VerdictName(p.verdict), EscapeMarkup(p.sentence));
  std::string numbers = fmt::format("{}: {}", VerdictName(p.verdict), p.sentence);
  if (p.tolerance > 0)
    numbers += fmt::format(
        "\nmax |Δ| {:.3g}, noise {:.3g}, tolerance {:.3g}, greedy {}/{}, max KL "
        "{:.3g}, top-1 {}/{}",
        p.max_abs(), p.noise, p.tolerance, p.greedy_equal, p.greedy_compared, p.max_kl(),
        p.top1_equal(), p.steps.size());
  return out +
         fmt::format("      <system-out>{}</system-out>\n    </testcase>\n", EscapeMarkup(numbers));
}

// What the candidate could not take is no test.
std::string PassageCase(const Verification& v, const PassageComparison& p, Counts& counts) {
  if (p.verdict == Verdict::kNotComparable) return "";
  PromptComparison compared{.name = fmt::format("{} ({})", p.prompt, PassageName(p.passage)),
                            .verdict = p.verdict};
  compared.sentence = fmt::format("{}: {}", p.how, p.sentence);
  return Case(v, compared, counts);
}

std::string Suite(const Verification& v, Counts& total) {
  Counts counts;
  std::string cases;
  for (const PromptComparison& prompt : v.prompts) cases += Case(v, prompt, counts);
  for (const PassageComparison& passage : v.passages) cases += PassageCase(v, passage, counts);
  // No prompt was run: the verification itself is what failed, or matched in nothing.
  if (v.prompts.empty())
    cases = Case(v, {.name = "verification", .verdict = v.verdict, .sentence = v.sentence}, counts);
  total.tests += counts.tests;
  total.failures += counts.failures;
  total.errors += counts.errors;
  return fmt::format(
      "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n"
      "    <properties>\n"
      "      <property name=\"reference\" value=\"{}\"/>\n"
      "      <property name=\"verdict\" value=\"{}\"/>\n"
      "    </properties>\n{}  </testsuite>\n",
      EscapeMarkup(v.candidate), counts.tests, counts.failures, counts.errors,
      EscapeMarkup(v.reference), VerdictName(v.verdict), cases);
}

}  // namespace

std::string JUnitReport(std::span<const Verification> verifications) {
  Counts total;
  std::string suites;
  for (const Verification& v : verifications) suites += Suite(v, total);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuites name=\"lockstep verify\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n{}"
      "</testsuites>\n",
      total.tests, total.failures, total.errors, suites);
}

}  // namespace lockstep
