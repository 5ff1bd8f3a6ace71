#include "jinja/needle.h"

#include <algorithm>

namespace lockstep::jinja {
namespace {

// at(i): byte number i of the pattern, in the direction of the search.
template <typename At>
std::vector<uint32_t> Borders(size_t size, At at) {
  std::vector<uint32_t> borders(size + 1, 0);
  uint32_t border = 0;
  for (size_t i = 1; i < size; ++i) {
    while (border > 0 && at(i) != at(border)) border = borders[border];
    if (at(i) == at(border)) ++border;
    borders[i + 1] = border;
  }
  return borders;
}

}  // namespace

Expected<Needle> Needle::Make(Runtime& runtime, std::string_view pattern, std::string_view text) {
  Budget* budget = runtime.budget();
  if (!budget->ChargeText(text.size(), Work::kScan)) return tl::unexpected(budget->Error());
  Needle needle(pattern);
  if (pattern.size() < 2 || pattern.size() > text.size()) return needle;
  if (!budget->ChargeText(pattern.size(), Work::kCharacters))
    return tl::unexpected(budget->Error());
  LS_RETURN_IF_ERROR(runtime.Reserve(pattern.size() * 2 * sizeof(uint32_t)));
  const size_t n = pattern.size();
  needle.forward_ = Borders(n, [&](size_t i) { return pattern[i]; });
  needle.backward_ = Borders(n, [&](size_t i) { return pattern[n - 1 - i]; });
  return needle;
}

size_t Needle::Find(std::string_view text, size_t from) const {
  if (forward_.empty() || text.size() < pattern_.size()) return text.find(pattern_, from);
  uint32_t matched = 0;
  for (size_t i = from; i < text.size(); ++i) {
    if (matched == 0) {
      i = text.find(pattern_[0], i);
      if (i == std::string_view::npos) return i;
    }
    while (matched > 0 && text[i] != pattern_[matched]) matched = forward_[matched];
    if (text[i] == pattern_[matched]) ++matched;
    if (matched == pattern_.size()) return i + 1 - matched;
  }
  return std::string_view::npos;
}

size_t Needle::FindLast(std::string_view text) const {
  if (backward_.empty() || text.size() < pattern_.size()) return text.rfind(pattern_);
  const size_t n = pattern_.size();
  uint32_t matched = 0;
  for (size_t i = text.size(); i-- > 0;) {
    while (matched > 0 && text[i] != pattern_[n - 1 - matched]) matched = backward_[matched];
    if (text[i] == pattern_[n - 1 - matched]) ++matched;
    if (matched == n) return i;
  }
  return std::string_view::npos;
}

}  // namespace lockstep::jinja
