#include "verify/report_html.h"

#include <algorithm>
#include <cmath>

#include "verify/markup.h"
#include "verify/report_plot.h"

namespace lockstep {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Lockstep: verification</title>
<style>
)";
constexpr std::string_view kStyle = R"(*{box-sizing:border-box}
body{margin:0 auto;max-width:62rem;padding:1.2rem clamp(.8rem,3vw,2rem) 4rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:clamp(1.25rem,4vw,1.8rem);line-height:1.3;margin:.5rem 0 1rem;font-weight:650;text-wrap:balance}
h2{font-size:1.2rem;margin:2.2rem 0 .7rem}
h3{font-size:1.02rem;margin:0;display:flex;gap:.6rem;align-items:baseline;flex-wrap:wrap}
.small,figcaption{color:var(--soft);font-size:.86rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:1rem 1.1rem;margin:.9rem 0}
.pill{display:inline-block;font-size:.78rem;font-weight:650;letter-spacing:.02em;border:1px solid currentColor;
border-radius:99px;padding:.05rem .6rem;white-space:nowrap}
.good{color:var(--good)}.fair{color:var(--fair)}.bad{color:var(--bad)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem .9rem;margin:.6rem 0}
dt{color:var(--soft)}dd{margin:0}
.scroll{overflow-x:auto;margin:.6rem 0}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;min-width:100%}
th,td{padding:.3rem .7rem .3rem 0;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child,td.text{text-align:left}
th{color:var(--soft);font-weight:500}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--paper);border:1px solid var(--line);border-radius:8px;padding:.7rem .9rem;font-size:.84rem}
figure{margin:.7rem 0 .3rem}
svg{display:block;width:100%;height:auto}
svg .grid{stroke:var(--line)}svg .tick{fill:var(--soft);font-size:11px}svg .label{fill:var(--ink);font-size:11px}
svg .noise{fill:var(--noise);opacity:.24}svg .allowed{fill:var(--allowed);opacity:.13}svg .rounding{fill:var(--rounding);opacity:.14}
svg .limit{stroke:var(--bad);stroke-dasharray:6 4}svg .edge{stroke:var(--noise)}
svg .parting{stroke:var(--bad);stroke-dasharray:2 3;stroke-width:1.5}
svg .curve{fill:none;stroke:var(--blue);stroke-width:1.6}
@media (max-width:36rem){svg .tick,svg .label{font-size:18px}}
svg circle{stroke:var(--card);stroke-width:1}svg circle.good{fill:var(--good)}svg circle.fair{fill:var(--fair)}
svg circle.bad{fill:var(--bad)}svg circle.plain{fill:var(--blue)}
summary{cursor:pointer;color:var(--soft);font-size:.9rem}
ul{padding-left:1.2rem}ul.overview{list-style:none;padding:0}ul.overview li{margin:.35rem 0}
</style></head><body>
)";

// The page's three colours.
std::string_view Tone(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMatch:
      return "good";
    case Verdict::kPrecision:
    case Verdict::kQuantizedActivations:
    case Verdict::kQuantizedWeights:
    case Verdict::kNotComparable:
      return "fair";
    case Verdict::kDiffers:
    case Verdict::kDifferentTokens:
    case Verdict::kSubjectFailed:
      return "bad";
  }
  return "bad";
}

std::string Pill(Verdict verdict) {
  return fmt::format("<span class=\"pill {}\">{}</span>", Tone(verdict), VerdictName(verdict));
}

std::string Number(double x) { return x == 0 ? "0" : fmt::format("{:.2e}", x); }

// Cells are escaped; those whose column is in `text` are set left.
std::string TableOf(const std::vector<std::string>& columns,
                    const std::vector<std::vector<std::string>>& rows,
                    const std::vector<size_t>& text = {}) {
  std::string out = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& column : columns) out += fmt::format("<th>{}</th>", EscapeMarkup(column));
  out += "</tr></thead><tbody>";
  for (const auto& row : rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const bool left = std::find(text.begin(), text.end(), i) != text.end();
      out += fmt::format("<td{}>{}</td>", left ? " class=\"text\"" : "", EscapeMarkup(row[i]));
    }
    out += "</tr>";
  }
  return out + "</tbody></table></div>\n";
}

std::string PromptTable(const Verification& v) {
  // A column that says nothing is left out.
  const bool positions = std::any_of(v.prompts.begin(), v.prompts.end(),
                                     [](const auto& p) { return p.positions_max_abs.has_value(); });
  std::vector<std::vector<std::string>> rows;
  for (const PromptComparison& p : v.prompts) {
    std::vector<std::string> row = {p.name, std::to_string(p.tokens)};
    if (positions) row.push_back(p.positions_max_abs ? Number(*p.positions_max_abs) : "–");
    if (p.tolerance > 0) {
      const StepComparison* const worst = p.WorstStep();
      row.push_back(worst == nullptr
                        ? "–"
                        : fmt::format("{} @{}", Number(worst->difference.max_abs), worst->step));
      row.insert(row.end(),
                 {Number(p.noise), Number(p.tolerance),
                  fmt::format("{}/{}", p.greedy_equal, p.greedy_compared), Number(p.max_kl()),
                  fmt::format("{}/{}", p.top1_equal(), p.steps.size())});
    } else {
      row.insert(row.end(), 6, "–");
    }
    row.emplace_back(VerdictName(p.verdict));
    rows.push_back(std::move(row));
  }
  std::vector<std::string> columns = {"prompt", "tokens"};
  if (positions) columns.emplace_back("positions |Δ|");
  for (const char* column :
       {"worst |Δ| @step", "noise", "tolerance", "greedy", "max KL", "top-1", "verdict"})
    columns.emplace_back(column);
  return TableOf(columns, rows);
}

// The other ways by which prompts reached the candidate.
std::string PassageCard(const Verification& v) {
  if (v.passages.empty()) return "";
  std::vector<std::vector<std::string>> rows;
  for (const PassageComparison& p : v.passages) {
    const bool compared = p.verdict != Verdict::kNotComparable;
    rows.push_back({std::string(PassageName(p.passage)), p.prompt,
                    compared ? Number(p.max_abs) : "–", compared ? Number(p.allowed) : "–",
                    std::string(VerdictName(p.verdict)), p.how});
  }
  return fmt::format(
      "<section class=\"card\"><h3>However the cache is filled</h3>\n<p>The same prompts by other "
      "ways than whole.</p>\n{}</section>\n",
      TableOf({"way", "prompt", "max |Δ|", "allowed", "verdict", "what was asked"}, rows, {1, 5}));
}

std::string StepTable(const PromptComparison& p) {
  std::vector<std::vector<std::string>> rows;
  for (const StepComparison& step : p.steps)
    rows.push_back({std::to_string(step.step), Number(step.difference.max_abs),
                    std::to_string(step.difference.worst), Number(step.difference.a.gap),
                    Number(step.difference.kl), step.difference.same_top1 ? "same" : "other"});
  return fmt::format("<details><summary>Every step</summary>{}</details>",
                     TableOf({"step", "max |Δ|", "at id", "top-2 gap", "KL", "top-1"}, rows));
}

std::string PromptCard(const PromptComparison& p) {
  std::string out = fmt::format("<section class=\"card\"><h3>{} {}</h3>\n<p>{}</p>\n",
                                EscapeMarkup(p.name), Pill(p.verdict), EscapeMarkup(p.sentence));
  if (const std::string plot = StepPlot(p); !plot.empty())
    out += fmt::format(
        "<figure>{}<figcaption>{}: grey is this prompt's rounding noise ({}, {}), green up to the "
        "tolerance {}{}.</figcaption></figure>\n",
        plot, p.shown_only ? "max |Δ| of the log-probabilities shown" : "max |Δ| of the logits",
        Number(p.noise), NoiseSourceName(p.noise_source), Number(p.tolerance),
        p.rounding ? fmt::format(", yellow what rounding as this program does explains ({})",
                                 Number(p.allowed()))
                   : "");
  if (const std::string plot = LayerPlot(p); !plot.empty())
    out += fmt::format(
        "<figure>{}<figcaption>max |Δ| of the hidden states at the last prompt position, layer by "
        "layer.</figcaption></figure>\n",
        plot);
  if (!p.steps.empty()) out += StepTable(p);
  return out + "</section>\n";
}

std::string SectionOf(const ReportSection& section) {
  std::string out =
      fmt::format("<section class=\"card\"><h3>{}</h3>\n", EscapeMarkup(section.title));
  for (const auto& content : section.content) {
    if (const auto* const paragraph = std::get_if<ReportParagraph>(&content))
      out += fmt::format("<p>{}</p>\n", EscapeMarkup(paragraph->text));
    else if (const auto* const fixed = std::get_if<ReportPreformatted>(&content))
      out += fmt::format("<pre>{}</pre>\n", EscapeMarkup(fixed->text));
    else if (const auto* const table = std::get_if<ReportTable>(&content))
      out += TableOf(table->columns, table->rows);
  }
  return out + "</section>\n";
}

std::string CandidateOf(const Reported& reported, bool alone) {
  const Verification& v = reported.verification;
  std::string out = fmt::format("<article>\n<{0}>{1} {2}</{0}>\n", alone ? "h1" : "h2",
                                Pill(v.verdict), EscapeMarkup(v.sentence));
  out += fmt::format("<dl><dt>reference</dt><dd>{}</dd><dt>candidate</dt><dd>{}</dd></dl>\n",
                     EscapeMarkup(v.reference), EscapeMarkup(v.candidate));
  if (!v.prompts.empty()) out += PromptTable(v);
  for (const ReportSection& section : reported.sections) out += SectionOf(section);
  out += PassageCard(v);
  for (const PromptComparison& prompt : v.prompts) out += PromptCard(prompt);
  if (!v.notes.empty()) {
    out += "<section class=\"card\"><h3>What else to know</h3><ul>";
    for (const std::string& note : v.notes) out += fmt::format("<li>{}</li>", EscapeMarkup(note));
    out += "</ul></section>\n";
  }
  return out + "</article>\n";
}

std::string Overview(std::span<const Reported> candidates) {
  const auto same = static_cast<size_t>(
      std::count_if(candidates.begin(), candidates.end(),
                    [](const Reported& r) { return Tone(r.verification.verdict) == "good"; }));
  std::string out =
      fmt::format("<h1>{} of {} candidates match {}</h1>\n<ul class=\"overview\">", same,
                  candidates.size(), EscapeMarkup(candidates.front().verification.reference));
  for (const Reported& r : candidates)
    out += fmt::format("<li>{} {}</li>", Pill(r.verification.verdict),
                       EscapeMarkup(r.verification.candidate));
  return out + "</ul>\n";
}

}  // namespace

std::string HtmlReport(std::span<const Reported> candidates) {
  std::string out = fmt::format("{}{}{}", kHead, kPageColours, kStyle);
  if (candidates.size() > 1) out += Overview(candidates);
  for (const Reported& reported : candidates) out += CandidateOf(reported, candidates.size() == 1);
  out += fmt::format(
      "<p class=\"small\">Both ran by themselves, greedily and without penalties, and were "
      "compared "
      "while they chose the same tokens. Noise is max |fp32 − fp64| on the prompt; the tolerance "
      "is "
      "{:g} × noise + {:g}. Written by lockstep verify.</p>\n</body></html>\n",
      kNoiseMultiple, kToleranceFloor);
  return out;
}

}  // namespace lockstep
