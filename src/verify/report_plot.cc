#include "verify/report_plot.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "verify/markup.h"

namespace lockstep {
namespace {

// In units of the view box; the page scales it to its column.
// The labels of lines stand in the right margin, that of the parting in the upper one: nothing is
// written over the curve. The lower one holds two lines of a phone's larger letters.
constexpr double kWidth = 640, kHeight = 270;
constexpr double kLeft = 54, kRight = 98, kTop = 28, kBottom = 48;

std::string Superscript(int exponent) {
  static constexpr const char* kDigits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string out = exponent < 0 ? "⁻" : "";
  for (const char c : std::to_string(std::abs(exponent))) out += kDigits[c - '0'];
  return out;
}

// A logarithmic y axis over whole decades, and an x axis over 0 .. count - 1.
class Axes {
 public:
  // Values that are 0 or not finite lie on the lower or upper edge.
  Axes(const std::vector<double>& values, size_t count) : count_(count) {
    double low = 1e300, high = 0;
    for (const double v : values) {
      if (!(v > 0) || !std::isfinite(v)) continue;
      low = std::min(low, v);
      high = std::max(high, v);
    }
    if (high == 0) low = high = 1e-6;
    low_ = static_cast<int>(std::floor(std::log10(low)));
    high_ = std::max(low_ + 1, static_cast<int>(std::ceil(std::log10(high))));
    low_ = std::max(low_, high_ - 24);
  }

  double X(double at) const {
    const double span = kWidth - kLeft - kRight;
    return count_ < 2 ? kLeft + span / 2
                      : kLeft + 12 + at * (span - 24) / static_cast<double>(count_ - 1);
  }
  double Y(double value) const {
    double at = value > 0 ? std::log10(value) : low_;
    at = std::isnan(at) ? high_ : std::clamp<double>(at, low_, high_);
    return kHeight - kBottom - (at - low_) * (kHeight - kTop - kBottom) / (high_ - low_);
  }

  std::string Grid() const {
    std::string out;
    const int every = (high_ - low_ + 7) / 8;
    for (int d = low_; d <= high_; d += every) {
      const double y = Y(std::pow(10.0, d));
      out += fmt::format(
          "<line class=\"grid\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
          "<text class=\"tick\" text-anchor=\"end\" x=\"{:.0f}\" y=\"{:.1f}\">10{}</text>",
          kLeft, kWidth - kRight, y, y, kLeft - 6, y + 4, Superscript(d));
    }
    return out;
  }
  std::string XTicks(std::string_view what) const {
    std::string out;
    const size_t every = std::max<size_t>(1, (count_ + 11) / 12);
    for (size_t i = 0; i < count_; i += every)
      out += fmt::format(
          "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.0f}\">{}</text>",
          X(static_cast<double>(i)), kHeight - kBottom + 19, i);
    return out + fmt::format(
                     "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.0f}\" y=\"{:.0f}\">{}"
                     "</text>",
                     (kLeft + kWidth - kRight) / 2, kHeight - 5, what);
  }
  // From `below` up to `above`.
  std::string Band(std::string_view kind, double below, double above) const {
    const double top = Y(above), bottom = below > 0 ? Y(below) : kHeight - kBottom;
    return fmt::format(
        "<rect class=\"{}\" x=\"{:.0f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.1f}\"/>", kind,
        kLeft, top, kWidth - kLeft - kRight, std::max(0.0, bottom - top));
  }
  std::string Line(std::string_view kind, double at, std::string_view label) const {
    const double y = Y(at);
    return fmt::format(
        "<line class=\"{0}\" x1=\"{1:.0f}\" x2=\"{2:.0f}\" y1=\"{3:.1f}\" y2=\"{3:.1f}\"/>"
        "<text class=\"label\" x=\"{4:.0f}\" y=\"{5:.1f}\">{6}</text>",
        kind, kLeft, kWidth - kRight, y, kWidth - kRight + 5, y + 4, label);
  }

 private:
  size_t count_;
  int low_ = 0, high_ = 1;  // decades
};

std::string Opening(std::string_view about) {
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" "
      "xmlns=\"http://www.w3.org/2000/svg\">",
      kWidth, kHeight, EscapeMarkup(about));
}

struct Point {
  double x = 0, value = 0;
  std::string_view kind;
  std::string about;
};

std::string Curve(const Axes& axes, const std::vector<Point>& points) {
  std::string line, dots;
  for (const Point& p : points) {
    const double x = axes.X(p.x), y = axes.Y(p.value);
    line += fmt::format("{}{:.1f},{:.1f}", line.empty() ? "" : " ", x, y);
    dots += fmt::format(
        "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}</title></circle>",
        p.kind, x, y, EscapeMarkup(p.about));
  }
  return fmt::format("<polyline class=\"curve\" points=\"{}\"/>{}", line, dots);
}

}  // namespace

std::string StepPlot(const PromptComparison& prompt) {
  if (prompt.steps.empty()) return "";
  std::vector<double> values = {prompt.noise, prompt.tolerance, prompt.allowed()};
  for (const StepComparison& step : prompt.steps) values.push_back(step.difference.max_abs);
  int64_t last = prompt.steps.back().step;
  if (prompt.parting) last = std::max(last, prompt.parting->step);
  const Axes axes(values, static_cast<size_t>(last) + 1);

  std::string out =
      Opening(fmt::format("{}: the largest difference of logits at each greedy step", prompt.name));
  out += axes.Band("noise", 0, prompt.noise) + axes.Band("allowed", prompt.noise, prompt.tolerance);
  if (prompt.rounding) out += axes.Band("rounding", prompt.tolerance, prompt.allowed());
  out += axes.Grid() + axes.XTicks("greedy step (0: the end of the prompt)");
  out += axes.Line("limit", prompt.tolerance, "tolerance");
  if (prompt.rounding) out += axes.Line("limit", prompt.allowed(), "rounding");
  if (prompt.noise > 0) out += axes.Line("edge", prompt.noise, "noise");
  if (prompt.parting) {
    const double x = axes.X(static_cast<double>(prompt.parting->step));
    const bool right = x > kWidth / 2;
    out += fmt::format(
        "<line class=\"parting\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/>"
        "<text class=\"label\" text-anchor=\"{3}\" x=\"{4:.1f}\" y=\"{5:.0f}\">{6}</text>",
        x, kTop, kHeight - kBottom, right ? "end" : "start", x + (right ? 4 : -4), kTop - 9,
        prompt.parting->near_tie ? "a near tie: other tokens from here" : "other tokens from here");
  }
  std::vector<Point> points;
  for (const StepComparison& step : prompt.steps) {
    const double value = step.difference.max_abs;
    points.push_back({.x = static_cast<double>(step.step),
                      .value = value,
                      .kind = value <= prompt.tolerance   ? "good"
                              : value <= prompt.allowed() ? "fair"
                                                          : "bad",
                      .about = fmt::format("step {}: max |Δ| {:.2e} at id {}, KL {:.1e}", step.step,
                                           value, step.difference.worst, step.difference.kl)});
  }
  return out + Curve(axes, points) + "</svg>";
}

std::string LayerPlot(const PromptComparison& prompt) {
  const std::vector<double>& layers = prompt.layers_max_abs;
  if (layers.empty()) return "";
  const Axes axes(layers, layers.size());
  std::string out =
      Opening(fmt::format("{}: the largest difference of hidden states, by layer", prompt.name));
  out += axes.Grid() + axes.XTicks("layers done (0: the embedding; last: after the final norm)");
  std::vector<Point> points;
  for (size_t i = 0; i < layers.size(); ++i)
    points.push_back({.x = static_cast<double>(i),
                      .value = layers[i],
                      .kind = "plain",
                      .about = fmt::format("after {} layers: max |Δ| {:.2e}", i, layers[i])});
  return out + Curve(axes, points) + "</svg>";
}

}  // namespace lockstep
