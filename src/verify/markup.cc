#include "verify/markup.h"

#include "base/utf8.h"

namespace lockstep {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// XML 1.0, production Char. Surrogates are no UTF-8 to begin with.
bool IsXmlChar(char32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c != 0xFFFE && c != 0xFFFF);
}

void AppendValid(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size();) {
    const char32_t c = NextCodePoint(text, i);
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (IsXmlChar(c))
          AppendUtf8(c, out);
        else
          out += kReplacement;
    }
  }
}

}  // namespace

std::string EscapeMarkup(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    const auto fault = FindUtf8Fault(text);
    const size_t valid = fault ? fault->valid_up_to : text.size();
    AppendValid(text.substr(0, valid), out);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += kReplacement;
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace lockstep
