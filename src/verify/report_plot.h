// The pictures of the HTML report: |Δ| on a logarithmic axis, over greedy steps or over layers,
// with what is noise and what is allowed shaded. SVG whose colours are the page's (report_html.cc).
#pragma once

#include <string>

#include "verify/verify.h"

namespace lockstep {

// Empty where there is nothing to draw.
std::string StepPlot(const PromptComparison& prompt);
std::string LayerPlot(const PromptComparison& prompt);

}  // namespace lockstep
