#include "base/quoted.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace lockstep {
namespace {

// The first `limit` bytes, or fewer so as not to end inside a code point.
std::string_view Prefix(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  text = text.substr(0, limit);
  // Only the last three bytes can belong to a code point that goes on.
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    const auto lead = static_cast<unsigned char>(tail.front());
    if (lead < 0xC0) continue;
    const auto fault = FindUtf8Fault(tail);
    if (fault && !fault->error_length) text.remove_suffix(back);
    break;
  }
  return text;
}

std::string Escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto fault = FindUtf8Fault(text);
    const size_t valid = fault ? fault->valid_up_to : text.size();
    for (const char c : text.substr(0, valid)) {
      const auto u = static_cast<unsigned char>(c);
      if (u < 0x20 || u == 0x7f)
        out += fmt::format("\\x{:02x}", u);
      else
        out += c;
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace

std::string Quoted(std::string_view name) {
  constexpr size_t kLimit = 96;
  std::string out = "\"" + Escaped(Prefix(name, kLimit)) + "\"";
  if (name.size() > kLimit) out += fmt::format("... ({} bytes)", name.size());
  return out;
}

std::string QuotedList(std::span<const std::string> names, size_t most) {
  std::string out;
  for (const std::string& name : names.first(std::min(names.size(), most)))
    out += (out.empty() ? "" : ", ") + Quoted(name);
  if (names.size() > most) out += fmt::format(" and {} more", names.size() - most);
  return out;
}

std::string OneLine(std::string_view text, size_t limit) {
  std::string out = Escaped(Prefix(text, limit));
  if (text.size() <= limit && out.size() <= limit) return out;
  out.resize(Prefix(out, limit).size());
  return out + "...";
}

}  // namespace lockstep
