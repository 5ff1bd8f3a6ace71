// How a BitBudget is shown: a table, JSON, the frontier as a picture and as a page.
#include <algorithm>
#include <cmath>

#include "cli/bit_budget.h"
#include "cli/table.h"
#include "verify/markup.h"

namespace lockstep {
namespace {

std::string ChoiceText(const CodeChoice& choice) {
  return fmt::format("{} in blocks of {}", choice.bits, choice.block);
}

double BitsOf(const BitGroup& group) {
  return 8 * group.options[group.chosen].bytes / static_cast<double>(group.elements);
}

std::string Summary(const BitBudget& budget) {
  const FrontierPoint& point = budget.frontier[budget.point];
  return fmt::format(
      "{:.3f} bits per weight ({} bytes of matrices); KL {} measured together on {} tokens, {} as "
      "the sum of the effects",
      budget.BitsPerWeight(point), WithCommas(static_cast<int64_t>(point.bytes)),
      Scientific(budget.measured), budget.tokens, Scientific(point.effect));
}

constexpr std::string_view kPlot =
    "svg .grid{stroke:var(--line)}svg .tick{fill:var(--soft);font:11px system-ui,sans-serif}"
    "svg .curve{fill:none;stroke:var(--blue);stroke-width:1.6}"
    "svg .chosen{fill:var(--good)}svg .label{fill:var(--ink);font:12px system-ui,sans-serif}";

}  // namespace

std::string BitBudgetText(const BitBudget& budget) {
  using enum Table::Align;
  Table table({"tensor", "bits", "bits per weight", "weight error", "effect (KL)"},
              {kLeft, kLeft, kRight, kRight, kRight});
  for (const BitGroup& group : budget.groups) {
    const GroupOption& option = group.options[group.chosen];
    table.Add({group.name, ChoiceText(option.choice), fmt::format("{:.3f}", BitsOf(group)),
               fmt::format("{:.4f}", option.error),
               Scientific(option.effect) + (option.measured ? "" : " (by error)")});
  }
  return table.Text() + "\n" + Summary(budget) + "\n";
}

Json ToJson(const BitBudget& budget) {
  const FrontierPoint& chosen = budget.frontier[budget.point];
  Json json = {{"bits_per_weight", budget.BitsPerWeight(chosen)},
               {"bytes", chosen.bytes},
               {"kl", budget.measured},
               {"sum_of_effects", chosen.effect},
               {"tokens", budget.tokens}};
  for (const BitGroup& group : budget.groups) {
    const GroupOption& option = group.options[group.chosen];
    json["tensors"].push_back({{"name", group.name},
                               {"bits", option.choice.bits},
                               {"block", option.choice.block},
                               {"weight_error", option.error},
                               {"effect", option.effect},
                               {"measured", option.measured}});
  }
  for (const FrontierPoint& point : budget.frontier)
    json["frontier"].push_back({{"bits_per_weight", budget.BitsPerWeight(point)},
                                {"bytes", point.bytes},
                                {"effect", point.effect}});
  return json;
}

std::string FrontierSvg(const BitBudget& budget, bool alone) {
  constexpr double kWidth = 720, kHeight = 340, kLeft = 64, kRight = 16, kTop = 20, kBottom = 40;
  const auto bits = [&](const FrontierPoint& p) { return budget.BitsPerWeight(p); };
  const double low = bits(budget.frontier.front()), high = bits(budget.frontier.back());
  const double least = std::max(1e-9, budget.frontier.back().effect),
               most = std::max(least * 10, budget.frontier.front().effect);
  const double bottom = std::floor(std::log10(least)), top = std::ceil(std::log10(most));
  const auto x = [&](double b) {
    return kLeft + (kWidth - kLeft - kRight) * (high > low ? (b - low) / (high - low) : 0.5);
  };
  const auto y = [&](double kl) {
    const double at = (std::log10(std::max(kl, 1e-9)) - bottom) / std::max(1.0, top - bottom);
    return kHeight - kBottom - (kHeight - kTop - kBottom) * std::clamp(at, 0.0, 1.0);
  };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"Size against KL\">",
      kWidth, kHeight);
  if (alone) out += fmt::format("<style>{}{}</style>", kPageColours, kPlot);
  for (double power = bottom; power <= top; ++power) {
    const double at = y(std::pow(10.0, power));
    out += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text "
        "class=\"tick\" "
        "x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">1e{:.0f}</text>",
        kLeft, kWidth - kRight, at, at, kLeft - 6, at + 4, power);
  }
  for (double b = std::ceil(low * 2) / 2; b <= high; b += 0.5)
    out += fmt::format(
        "<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.1f}</text>", x(b),
        kHeight - kBottom + 16, b);
  out += "<polyline class=\"curve\" points=\"";
  for (const FrontierPoint& p : budget.frontier)
    out += fmt::format("{:.1f},{:.1f} ", x(bits(p)), y(p.effect));
  const FrontierPoint& chosen = budget.frontier[budget.point];
  out += fmt::format(
      "\"/><circle class=\"chosen\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"/><text class=\"label\" "
      "x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{:.3f} bits, KL {}</text>",
      x(bits(chosen)), y(chosen.effect), x(bits(chosen)), y(chosen.effect) - 10,
      x(bits(chosen)) > kWidth / 2 ? "end" : "start", bits(chosen), Scientific(budget.measured));
  out += fmt::format(
      "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">bits per weight</text>"
      "<text class=\"tick\" x=\"{}\" y=\"14\">KL from fp32, nats (sum of effects)</text></svg>",
      (kLeft + kWidth - kRight) / 2, kHeight - 8, kLeft);
  return out;
}

std::string BitBudgetHtml(const BitBudget& budget, std::string_view model) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\"><title>Lockstep: size against KL</title><style>{}{}"
      "body{{margin:0 auto;max-width:62rem;padding:1.2rem;background:var(--paper);"
      "color:var(--ink);font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}}"
      "svg{{display:block;width:100%;height:auto}}table{{border-collapse:collapse;font-size:.88rem;"
      "font-variant-numeric:tabular-nums;min-width:100%}}th,td{{padding:.3rem .7rem .3rem 0;"
      "text-align:right;border-bottom:1px solid var(--line)}}th:first-child,td:first-child"
      "{{text-align:left}}.scroll{{overflow-x:auto}}</style></head><body><h1>{}: size against "
      "KL</h1><p>{}</p>{}<div class=\"scroll\"><table><tr><th>tensor</th><th>bits</th><th>bits per "
      "weight</th><th>weight error</th><th>effect (KL)</th></tr>",
      kPageColours, kPlot, EscapeMarkup(model), EscapeMarkup(Summary(budget)),
      FrontierSvg(budget, false));
  for (const BitGroup& group : budget.groups) {
    const GroupOption& option = group.options[group.chosen];
    out +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.4f}</td><td>{}{}</td></tr>",
                    EscapeMarkup(group.name), ChoiceText(option.choice), BitsOf(group),
                    option.error, Scientific(option.effect), option.measured ? "" : " (by error)");
  }
  return out + "</table></div></body></html>\n";
}

}  // namespace lockstep
