#include "tokenizer/precompiled.h"

#include <cstring>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace lockstep {
namespace {

Status DecodeBase64(std::string_view text, std::string& bytes) {
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=' || c == '\n' || c == '\r') continue;
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0)
      return InputError("precompiled_charsmap is not base64 (found the byte {})",
                        static_cast<uint8_t>(c));
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((count += 6) >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xFF);
    }
  }
  return {};
}

// Where the grapheme cluster that starts at i ends, as far as it matters here: a base with the
// marks and joiners after it, or CR LF. SentencePiece's maps hold no other clusters.
size_t ClusterEnd(std::string_view text, size_t i) {
  if (text.substr(i).starts_with("\r\n")) return i + 2;
  static const CodePointSet kExtend([] {
    CodePointRanges set = *FindNamedSet("M");
    set.Add(0x200C, 0x200D);
    set.Add(0xFF9E, 0xFF9F);
    set.Add(0x1F3FB, 0x1F3FF);
    return set;
  }());
  const char32_t first = NextCodePoint(text, i);
  if (first < 0x20 || (first >= 0x7F && first < 0xA0)) return i;  // nothing extends a control
  while (i < text.size()) {
    size_t next = i;
    if (!kExtend.Contains(NextCodePoint(text, next))) break;
    i = next;
  }
  return i;
}

}  // namespace

Result<Precompiled> Precompiled::Make(std::string_view base64) {
  std::string bytes;
  LS_RETURN_IF_ERROR(DecodeBase64(base64, bytes));
  uint32_t size = 0;
  if (bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
  if (bytes.size() < 4 || size % 4 != 0 || size > bytes.size() - 4) {
    return InputError(
        "precompiled_charsmap says that its trie has {} bytes, expected a multiple of 4 within the "
        "{} "
        "bytes present",
        size, bytes.size());
  }
  Precompiled result;
  result.units_.resize(size / 4);
  if (size > 0) std::memcpy(result.units_.data(), bytes.data() + 4, size);
  result.replacements_ = bytes.substr(4 + size);
  if (FindUtf8Fault(result.replacements_)) {
    return InputError("precompiled_charsmap has replacements that are not UTF-8");
  }
  return result;
}

// The double array of Darts-clone: a unit holds the label of the edge into it (low 8 bits and bit
// 31), whether a value hangs below (bit 8) and the offset to its children.
std::optional<std::string_view> Precompiled::Replacement(std::string_view chunk) const {
  const auto offset = [](uint32_t unit) { return unit >> 10 << ((unit & (1u << 9)) >> 6); };
  if (units_.empty()) return std::nullopt;
  size_t at = offset(units_[0]);
  std::optional<uint32_t> value;
  for (const char c : chunk) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) break;
    at ^= byte;
    if (at >= units_.size()) break;
    const uint32_t unit = units_[at];
    if ((unit & ((1u << 31) | 0xFF)) != byte) break;
    at ^= offset(unit);
    if (at >= units_.size()) break;
    if (unit >> 8 & 1) {  // the shortest prefix with a value decides, as in spm_precompiled
      value = units_[at] & 0x7FFFFFFF;
      break;
    }
  }
  if (!value || *value >= replacements_.size()) return std::nullopt;
  const std::string_view rest = std::string_view(replacements_).substr(*value);
  const std::string_view found = rest.substr(0, rest.find('\0'));
  if (!found.empty() && (static_cast<uint8_t>(found[0]) & 0xC0) == 0x80) return std::nullopt;
  return found;
}

bool Precompiled::Apply(AlignedText& text) const {
  const std::string_view old = text.text();
  std::vector<RewrittenChar> rewritten;
  bool any = false;
  const auto count = [](std::string_view s) {
    size_t n = 0;
    for (size_t i = 0; i < s.size(); i += Utf8Length(s[i])) ++n;
    return static_cast<int32_t>(n);
  };
  size_t removed_first = 0;
  const auto replace = [&](std::string_view part, std::string_view replacement) {
    any = true;
    const int32_t difference = count(replacement) - count(part);
    const size_t first = rewritten.size();
    for (size_t i = 0; i < replacement.size();)
      rewritten.push_back({NextCodePoint(replacement, i), 0});
    if (difference > 0) {
      for (size_t k = rewritten.size() - static_cast<size_t>(difference); k < rewritten.size();
           ++k) {
        if (k >= first) rewritten[k].change = 1;
      }
    } else if (difference < 0 && !rewritten.empty()) {
      rewritten.back().change += difference;
    } else if (difference < 0) {
      removed_first += static_cast<size_t>(-difference);
    }
  };
  for (size_t i = 0; i < old.size();) {
    const size_t end = ClusterEnd(old, i);
    if (rewritten.size() > text.longest()) return false;
    const std::string_view cluster = old.substr(i, end - i);
    if (cluster.size() < 6) {
      if (const auto replacement = Replacement(cluster)) {
        replace(cluster, *replacement);
        i = end;
        continue;
      }
    }
    while (i < end) {
      const std::string_view part = old.substr(i, Utf8Length(old[i]));
      if (const auto replacement = Replacement(part)) {
        replace(part, *replacement);
        i += part.size();
      } else {
        rewritten.push_back({NextCodePoint(old, i), 0});
      }
    }
  }
  if (any) text.Transform(rewritten, removed_first);
  return true;
}

}  // namespace lockstep
