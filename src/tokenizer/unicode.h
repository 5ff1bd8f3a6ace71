// Sets of code points and the Unicode data of Hugging Face `tokenizers`: what its regex engine
// calls a letter, what its normal forms decompose, what Rust calls whitespace. Normalizers,
// pre-tokenizers and the regex engine read it. The data is measured, not taken from one version of
// the standard: see tools/tokenizer/make_unicode_tables.py.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

constexpr uint32_t kMaxCodePoint = 0x10FFFF;

// A set of code points as sorted, disjoint, non-adjacent ranges. For building; CodePointSet tests
// fast.
class CodePointRanges {
 public:
  struct Range {
    uint32_t first, last;  // inclusive
  };

  CodePointRanges() = default;
  static CodePointRanges Of(uint32_t first, uint32_t last);
  static CodePointRanges All() { return Of(0, kMaxCodePoint); }

  void Add(uint32_t first, uint32_t last);  // keeps the invariant; cheapest in ascending order
  void Add(const CodePointRanges& other);
  CodePointRanges Negated() const;
  CodePointRanges Intersected(const CodePointRanges& other) const;
  bool Contains(uint32_t c) const;
  bool empty() const { return ranges_.empty(); }
  std::span<const Range> ranges() const { return ranges_; }

 private:
  void Normalize();
  std::vector<Range> ranges_;
};

// The same set for testing: a bitmap for ASCII, shared pages of 256 bits for the rest.
class CodePointSet {
 public:
  CodePointSet() : CodePointSet(CodePointRanges()) {}
  explicit CodePointSet(const CodePointRanges& ranges);

  bool ContainsAscii(uint8_t c) const { return ascii_[c]; }
  bool Contains(uint32_t c) const {
    if (c < 128) return ascii_[c];
    const uint64_t* page = &bits_[size_t{page_of_[c >> 8]} * 4];
    return page[(c >> 6) & 3] >> (c & 63) & 1;
  }

 private:
  std::array<bool, 128> ascii_{};
  std::vector<uint16_t> page_of_;  // [0x1100]
  std::vector<uint64_t> bits_;     // [pages, 4]
};

// A general category ("Lu", "L"), a POSIX bracket ("alpha"), a script or a property ("Han",
// "Emoji"), or one of the sets of Rust that the pipeline parts use ("rust_whitespace"). Case,
// spaces, '-' and '_' do not matter. Absent: no such set.
std::optional<CodePointRanges> FindNamedSet(std::string_view name);
// For names that we write ourselves; stops the program when there is no such set. Built once,
// shared.
const CodePointSet& NamedSet(std::string_view name);

// Adds every code point that (?i) treats as equal to a member.
void AddCaseVariants(CodePointRanges& set);

// The script of a code point as the UnicodeScripts pre-tokenizer groups them; 0 joins with
// everything.
uint32_t PreTokenizerScript(uint32_t c);

// Canonical combining class; full decompositions (empty: the code point stays as it is), in
// canonical order, Hangul excepted; the composition of a pair or 0, Hangul excepted; lower case
// (empty: same).
uint8_t CombiningClass(uint32_t c);
std::span<const uint32_t> CanonicalDecomposition(uint32_t c);
std::span<const uint32_t> CompatibilityDecomposition(uint32_t c);
uint32_t ComposePair(uint32_t first, uint32_t second);
std::span<const uint32_t> LowercaseOf(uint32_t c);

// Reads one code point of valid UTF-8 backwards: moves i from its end to its start.
inline void StepBack(std::string_view text, size_t& i) {
  do {
    --i;
  } while ((static_cast<uint8_t>(text[i]) & 0xC0) == 0x80);
}
inline size_t Utf8Length(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace lockstep
