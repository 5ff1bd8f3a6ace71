// A verification as one page: everything in one file, no script, nothing fetched; for a phone as
// well, light and dark. What else is known of a candidate (a diagnosis and its proof, an audit of
// its weights, the difference of two specs) comes as sections: plain text that is escaped here.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "verify/verify.h"

namespace lockstep {

struct ReportParagraph {
  std::string text;
};
struct ReportPreformatted {
  std::string text;  // lines, in a fixed-width font
};
struct ReportTable {
  std::vector<std::string> columns;  // the first is set left, numbers in the others right
  std::vector<std::vector<std::string>> rows;
};
struct ReportSection {
  std::string title;
  std::vector<std::variant<ReportParagraph, ReportPreformatted, ReportTable>> content;
};

// One candidate, and what is known of it besides.
struct Reported {
  Verification verification;
  std::vector<ReportSection> sections;
};

std::string HtmlReport(std::span<const Reported> candidates);

}  // namespace lockstep
