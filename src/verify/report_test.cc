// The pages and files that others read: well formed, and safe whatever names say.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "verify/caching_subject.h"
#include "verify/markup.h"
#include "verify/report_html.h"
#include "verify/report_junit.h"
#include "verify/report_plot.h"

namespace lockstep {
namespace {

constexpr const char* kHostile = "<script>alert(\"x\")</script>&'\x01\xff]]>";

PromptComparison Prompt(std::string name, Verdict verdict, std::vector<double> deltas) {
  PromptComparison p{.name = std::move(name), .verdict = verdict, .sentence = "why"};
  p.tokens = 7;
  p.noise = 1e-6;
  p.tolerance = Tolerance(p.noise);
  for (size_t k = 0; k < deltas.size(); ++k) {
    StepComparison step{.step = static_cast<int64_t>(k)};
    step.difference.max_abs = deltas[k];
    step.difference.kl = deltas[k] * deltas[k];
    p.steps.push_back(step);
  }
  p.greedy_compared = p.greedy_equal = static_cast<int64_t>(deltas.size());
  return p;
}

Verification Sample(const std::string& name) {
  Verification v{.reference = name, .candidate = name, .verdict = Verdict::kDiffers};
  v.sentence = name;
  v.prompts.push_back(Prompt(name, Verdict::kMatch, {1e-7, 0, 3e-7}));
  v.prompts.push_back(
      Prompt("other", Verdict::kDiffers, {1e-7, 0.5, std::numeric_limits<double>::infinity()}));
  v.prompts[0].sentence = name;
  v.prompts[1].parting = Parting{.step = 2, .reference_token = 4, .candidate_token = 5};
  v.prompts[1].layers_max_abs = {0, 1e-6, 0.1, std::nan("")};
  v.notes = {name};
  return v;
}

// Every tag that opens closes, in order; no attribute is left open.
void ExpectBalanced(std::string_view text) {
  std::vector<std::string> open;
  for (size_t at = 0; (at = text.find('<', at)) != std::string_view::npos;) {
    const size_t end = text.find('>', at);
    ASSERT_NE(end, std::string_view::npos);
    const std::string_view tag = text.substr(at + 1, end - at - 1);
    at = end + 1;
    ASSERT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    if (tag.starts_with("!") || tag.starts_with("?") || tag.ends_with("/") ||
        tag.starts_with("meta"))
      continue;
    if (tag.starts_with("/")) {
      ASSERT_FALSE(open.empty()) << tag;
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else {
      open.emplace_back(tag.substr(0, tag.find(' ')));
    }
  }
  EXPECT_TRUE(open.empty()) << open.back();
}

TEST(EscapeMarkup, LeavesNothingThatMarkupOrXmlForbids) {
  EXPECT_EQ(EscapeMarkup("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c&#39;");
  EXPECT_EQ(EscapeMarkup("\x01"), "\xef\xbf\xbd");
  EXPECT_EQ(EscapeMarkup("\xff|\xc3"), "\xef\xbf\xbd|\xef\xbf\xbd");
  EXPECT_EQ(EscapeMarkup("\xef\xbf\xbf"), "\xef\xbf\xbd");  // U+FFFF
  EXPECT_EQ(EscapeMarkup("سلام |Δ|\n"), "سلام |Δ|\n");
}

TEST(HtmlReport, HostileNamesStayText) {
  const ReportSection section{.title = kHostile,
                              .content = {ReportParagraph{kHostile}, ReportPreformatted{kHostile},
                                          ReportTable{{kHostile, "n"}, {{kHostile, "1"}}}}};
  for (const size_t candidates : {1u, 2u}) {
    const std::vector<Reported> all(candidates, {Sample(kHostile), {section}});
    const std::string page = HtmlReport(all);
    EXPECT_EQ(page.find("<script"), std::string::npos);
    EXPECT_EQ(page.find('\x01'), std::string::npos);
    EXPECT_EQ(page.find('\xff'), std::string::npos);
    EXPECT_NE(page.find("&lt;script&gt;"), std::string::npos);
    ExpectBalanced(page);
  }
}

TEST(HtmlReport, NothingIsFetched) {
  const std::string page = HtmlReport(std::vector<Reported>{{Sample("a"), {}}});
  for (const char* word : {"src=", "href=", "url(", "@import", "<link"})
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  // The only address in it names SVG.
  size_t addresses = 0, named = 0;
  for (size_t at = 0; (at = page.find("://", at)) != std::string::npos; ++at) ++addresses;
  for (size_t at = 0; (at = page.find("\"http://www.w3.org/2000/svg\"", at)) != std::string::npos;
       ++at)
    ++named;
  EXPECT_EQ(addresses, named);
}

TEST(HtmlReport, TheVerdictComesFirstAndEveryPromptHasItsPlot) {
  const std::string page = HtmlReport(std::vector<Reported>{{Sample("the sentence"), {}}});
  const size_t heading = page.find("<h1>");
  EXPECT_NE(page.substr(heading, 200).find("the sentence"), std::string::npos);
  size_t plots = 0;
  for (size_t at = 0; (at = page.find("<svg", at)) != std::string::npos; ++at) ++plots;
  EXPECT_EQ(plots, 3u);  // two by step, one by layer
}

TEST(StepPlot, TakesWhatIsZeroInfiniteOrAlone) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& deltas :
       {std::vector<double>{0}, {inf}, {0, 0, 0}, {1e-300, 1e300}, {std::nan(""), 1}}) {
    PromptComparison p = Prompt("p", Verdict::kDiffers, deltas);
    for (const double noise : {0.0, 1e-6, inf}) {
      p.noise = noise;
      p.tolerance = Tolerance(noise);
      const std::string plot = StepPlot(p);
      ExpectBalanced(plot);
      for (const char* bad : {"\"nan", "\"inf", "\"-nan", "\"-inf", ",nan", ",inf"})
        EXPECT_EQ(plot.find(bad), std::string::npos) << plot;
    }
  }
  EXPECT_EQ(StepPlot(Prompt("p", Verdict::kMatch, {})), "");
  EXPECT_EQ(LayerPlot(Prompt("p", Verdict::kMatch, {1})), "");
}

TEST(JUnitReport, CountsWhatDiffersAndWhatFails) {
  Verification failed{.reference = "a", .candidate = kHostile};
  failed.verdict = Verdict::kSubjectFailed;
  failed.sentence = kHostile;
  const std::string xml = JUnitReport(std::vector{Sample(kHostile), failed});
  EXPECT_NE(
      xml.find("<testsuites name=\"lockstep verify\" tests=\"3\" failures=\"1\" errors=\"1\">"),
      std::string::npos)
      << xml;
  EXPECT_EQ(xml.find("<script"), std::string::npos);
  EXPECT_EQ(xml.find('\x01'), std::string::npos);
  ExpectBalanced(xml);
}

class Counting : public Subject {
 public:
  explicit Counting(int& runs) : runs_(runs) {}
  std::string Name() const override { return "counting"; }
  Abilities Can() const override { return {.any_prompt = true}; }
  int64_t vocab_size() const override { return 1; }
  Result<PromptTrace> Run(const Probe& probe, const Progress&) override {
    ++runs_;
    if (probe.ids.front() == 0) return tl::unexpected(Interrupted());
    PromptTrace run;
    run.ids = probe.ids;
    return run;
  }

 private:
  int& runs_;
};

TEST(CachingSubject, RunsEachProbeOnceAndForgetsInterruptions) {
  int runs = 0;
  CachingSubject subject(std::make_unique<Counting>(runs));
  Probe probe;
  probe.ids = {1, 2};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(subject.Run(probe, {})->ids, probe.ids);
  EXPECT_EQ(runs, 1);
  probe.hidden = true;
  EXPECT_TRUE(subject.Run(probe, {}));
  probe.ids = {12};
  EXPECT_EQ(subject.Run(probe, {})->ids, probe.ids);
  EXPECT_EQ(runs, 3);
  probe.ids = {0};
  EXPECT_FALSE(subject.Run(probe, {}));
  EXPECT_FALSE(subject.Run(probe, {}));
  EXPECT_EQ(runs, 5);
}

}  // namespace
}  // namespace lockstep
