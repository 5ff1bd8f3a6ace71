#include "tokenizer/unicode.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace lockstep {
namespace {

struct NamedSetRow {
  std::string_view name;
  std::span<const uint32_t> bounds;  // first, last, first, last, ...
};
using NamedSet = NamedSetRow;
struct CodePointRun {
  uint32_t first, last, value;
};
struct Composition {
  uint32_t first, second, composed;
};
struct Expansion {
  uint32_t code_point;
  uint16_t begin, length;  // in kExpansionPool
};
struct CaseOrbit {
  uint32_t members[4];  // 0: none
};

#include "tokenizer/unicode_tables.inc"

template <size_t n>
uint32_t ValueOfRun(const CodePointRun (&runs)[n], uint32_t c) {
  const auto* run = std::upper_bound(std::begin(runs), std::end(runs), c,
                                     [](uint32_t x, const CodePointRun& r) { return x < r.first; });
  if (run == std::begin(runs)) return 0;
  --run;
  return c <= run->last ? run->value : 0;
}

template <size_t n>
std::span<const uint32_t> FindExpansion(const Expansion (&rows)[n], uint32_t c) {
  const auto* row =
      std::lower_bound(std::begin(rows), std::end(rows), c,
                       [](const Expansion& r, uint32_t x) { return r.code_point < x; });
  if (row == std::end(rows) || row->code_point != c) return {};
  return std::span(kExpansionPool).subspan(row->begin, row->length);
}

// Loose matching of names: lower case, without spaces, '-' and '_'.
std::string LooseName(std::string_view name) {
  std::string loose;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    loose += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return loose;
}

CodePointRanges FromBounds(std::span<const uint32_t> bounds) {
  CodePointRanges set;
  for (size_t i = 0; i + 1 < bounds.size(); i += 2) set.Add(bounds[i], bounds[i + 1]);
  return set;
}

// Long names of the general categories, and aliases.
struct Alias {
  std::string_view alias, name;
};
constexpr Alias kAliases[] = {
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"surrogate", "Cs"},
    {"privateuse", "Co"},
    {"unassigned", "Cn"},
    {"alphabetic", "alpha"},
    {"whitespace", "space"},
    {"lowercase", "lower"},
    {"uppercase", "upper"},
};

}  // namespace

CodePointRanges CodePointRanges::Of(uint32_t first, uint32_t last) {
  CodePointRanges set;
  set.Add(first, last);
  return set;
}

void CodePointRanges::Add(uint32_t first, uint32_t last) {
  if (first > last) return;
  const bool in_order = ranges_.empty() || first > ranges_.back().last + 1;
  ranges_.push_back({first, last});
  if (!in_order) Normalize();
}

void CodePointRanges::Add(const CodePointRanges& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  Normalize();
}

void CodePointRanges::Normalize() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  size_t kept = 0;
  for (size_t i = 1; i < ranges_.size(); ++i) {
    if (ranges_[i].first <= ranges_[kept].last + 1) {
      ranges_[kept].last = std::max(ranges_[kept].last, ranges_[i].last);
    } else {
      ranges_[++kept] = ranges_[i];
    }
  }
  if (!ranges_.empty()) ranges_.resize(kept + 1);
}

CodePointRanges CodePointRanges::Negated() const {
  CodePointRanges result;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) result.ranges_.push_back({next, kMaxCodePoint});
  return result;
}

CodePointRanges CodePointRanges::Intersected(const CodePointRanges& other) const {
  CodePointRanges result;
  size_t i = 0, k = 0;
  while (i < ranges_.size() && k < other.ranges_.size()) {
    const uint32_t first = std::max(ranges_[i].first, other.ranges_[k].first);
    const uint32_t last = std::min(ranges_[i].last, other.ranges_[k].last);
    if (first <= last) result.ranges_.push_back({first, last});
    (ranges_[i].last < other.ranges_[k].last ? i : k)++;
  }
  return result;
}

bool CodePointRanges::Contains(uint32_t c) const {
  const auto range = std::lower_bound(ranges_.begin(), ranges_.end(), c,
                                      [](const Range& r, uint32_t x) { return r.last < x; });
  return range != ranges_.end() && range->first <= c;
}

CodePointSet::CodePointSet(const CodePointRanges& ranges) : page_of_((kMaxCodePoint >> 8) + 1) {
  // Page 0 of `bits_` is all zeros, page 1 all ones; only pages with a boundary inside are stored.
  bits_.assign(8, 0);
  std::fill(bits_.begin() + 4, bits_.end(), ~uint64_t{0});
  std::vector<bool> own(page_of_.size());
  for (const auto& [first, last] : ranges.ranges()) {
    for (uint32_t c = first; c <= last && c < 128; ++c) ascii_[c] = true;
    for (uint32_t page = first >> 8; page <= last >> 8; ++page) {
      const uint32_t begin = std::max(first, page << 8), end = std::min(last, (page << 8) + 255);
      if (end - begin == 255) {
        page_of_[page] = 1;
        continue;
      }
      if (!own[page]) {
        own[page] = true;
        page_of_[page] = static_cast<uint16_t>(bits_.size() / 4);
        bits_.resize(bits_.size() + 4);
      }
      uint64_t* words = &bits_[size_t{page_of_[page]} * 4];
      for (uint32_t c = begin; c <= end; ++c) words[(c >> 6) & 3] |= uint64_t{1} << (c & 63);
    }
  }
}

std::optional<CodePointRanges> FindNamedSet(std::string_view name) {
  std::string loose = LooseName(name);
  for (const Alias& alias : kAliases) {
    if (alias.alias == loose) loose = LooseName(alias.name);
  }
  if (loose == "any") return CodePointRanges::All();
  if (loose == "ascii") return CodePointRanges::Of(0, 127);
  if (loose == "assigned") return FindNamedSet("Cn")->Negated();
  if (loose.size() == 1) {  // a group: the union of its categories
    CodePointRanges group;
    for (const NamedSetRow& row : kNamedSets) {
      if (row.name.size() == 2 && LooseName(row.name)[0] == loose[0])
        group.Add(FromBounds(row.bounds));
    }
    if (group.empty()) return std::nullopt;
    return group;
  }
  for (const NamedSetRow& row : kNamedSets) {
    if (LooseName(row.name) == loose) return FromBounds(row.bounds);
  }
  return std::nullopt;
}

const CodePointSet& NamedSet(std::string_view name) {
  // The sets that the pipeline parts use; immutable once built.
  static const auto sets = [] {
    std::map<std::string_view, CodePointSet> built;
    for (const std::string_view known :
         {"rust_word", "rust_whitespace", "rust_punctuation", "bert_punctuation", "rust_numeric",
          "bert_removed", "bert_space", "bert_accent", "rust_combining_mark", "bert_chinese",
          "nfc_inert"}) {
      built.emplace(known, CodePointSet(*FindNamedSet(known)));
    }
    return built;
  }();
  const auto found = sets.find(name);
  LS_CHECK(found != sets.end(), "no set named {}", name);
  return found->second;
}

void AddCaseVariants(CodePointRanges& set) {
  CodePointRanges extra;
  for (const CaseOrbit& orbit : kCaseOrbits) {
    const auto in_set = [&](uint32_t c) { return c != 0 && set.Contains(c); };
    if (std::none_of(std::begin(orbit.members), std::end(orbit.members), in_set)) continue;
    for (const uint32_t member : orbit.members) {
      if (member != 0) extra.Add(member, member);
    }
  }
  set.Add(extra);
}

uint32_t PreTokenizerScript(uint32_t c) { return ValueOfRun(kPreTokenizerScripts, c); }
uint8_t CombiningClass(uint32_t c) {
  return c < 0x300 ? 0 : static_cast<uint8_t>(ValueOfRun(kCombiningClass, c));
}
std::span<const uint32_t> CanonicalDecomposition(uint32_t c) {
  return FindExpansion(kCanonical, c);
}
std::span<const uint32_t> CompatibilityDecomposition(uint32_t c) {
  const auto own = FindExpansion(kCompatibility, c);
  return own.empty() ? CanonicalDecomposition(c) : own;
}
std::span<const uint32_t> LowercaseOf(uint32_t c) { return FindExpansion(kLowercase, c); }

uint32_t ComposePair(uint32_t first, uint32_t second) {
  const auto* row = std::lower_bound(
      std::begin(kCompositions), std::end(kCompositions), std::pair(first, second),
      [](const Composition& r, const auto& x) { return std::pair(r.first, r.second) < x; });
  const bool found = row != std::end(kCompositions) && row->first == first && row->second == second;
  return found ? row->composed : 0;
}

}  // namespace lockstep
