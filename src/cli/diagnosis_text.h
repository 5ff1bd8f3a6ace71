// A diagnosis as text, for the verbs that print one.
#pragma once

#include <string>
#include <string_view>

#include "verify/diagnose.h"
#include "verify/report_html.h"

namespace lockstep {

// The proof, step by step; ends in a newline. `reference` and `candidate` are as they were typed.
// `base` is what the reference was before it was edited, where that is not the checkpoint alone:
// then no command repeats the proof.
std::string DiagnosisText(const Diagnosis& diagnosis, std::string_view reference,
                          std::string_view candidate, std::string_view base);

// The same for a page.
ReportSection DiagnosisSection(const Diagnosis& diagnosis, std::string_view reference,
                               std::string_view candidate, std::string_view base);

}  // namespace lockstep
