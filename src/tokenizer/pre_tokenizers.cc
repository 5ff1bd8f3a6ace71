#include "tokenizer/pre_tokenizers.h"

#include <algorithm>

#include "base/utf8.h"

namespace lockstep {
namespace {

struct Part {
  size_t begin, end;
  bool is_match;
};

// Fills the gaps between matches: the whole text as parts.
void ToParts(const std::vector<Regex::Match>& matches, size_t size, bool invert,
             std::vector<Part>& parts) {
  parts.clear();
  size_t last = 0;
  for (const auto& [begin, end] : matches) {
    if (begin != last) parts.push_back({last, begin, invert});
    parts.push_back({begin, end, !invert});
    last = end;
  }
  if (last != size) parts.push_back({last, size, invert});
}

// Joins parts as the behaviour says, then appends them as pieces.
void AppendParts(const Pieces& pieces, const Piece& piece, std::vector<Part>& parts,
                 SplitBehavior behavior, std::vector<Piece>& out) {
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());
  if (behavior != SplitBehavior::kIsolated && behavior != SplitBehavior::kRemoved) {
    std::vector<Part> joined;
    bool previous_match = false;
    for (const Part& part : parts) {
      const bool join = behavior == SplitBehavior::kContiguous ? part.is_match == previous_match
                                                               : part.is_match && !previous_match;
      previous_match = part.is_match;
      if (join && !joined.empty()) {
        (backwards ? joined.back().begin : joined.back().end) = backwards ? part.begin : part.end;
      } else {
        joined.push_back(part);
      }
    }
    parts = std::move(joined);
  }
  if (backwards) std::reverse(parts.begin(), parts.end());
  for (const Part& part : parts) {
    if (part.begin == part.end || (part.is_match && behavior == SplitBehavior::kRemoved)) continue;
    out.push_back(pieces.Slice(piece, part.begin, part.end));
  }
}

// Replaces every piece that is not a token by what f appends for it.
template <typename F>
Status ForEachPiece(Pieces& pieces, F&& f) {
  std::vector<Piece> result;
  result.reserve(pieces.list.size());
  for (const Piece& piece : pieces.list) {
    if (piece.token >= 0) {
      result.push_back(piece);
    } else {
      LS_RETURN_IF_ERROR(f(piece, result));
    }
  }
  pieces.list = std::move(result);
  return {};
}

Status Apply(const PatternSplit& split, Pieces& pieces) {
  std::vector<Regex::Match> matches;
  std::vector<Part> parts;
  return ForEachPiece(pieces, [&](const Piece& piece, std::vector<Piece>& out) -> Status {
    matches.clear();
    LS_RETURN_IF_ERROR(split.pattern.FindAll(piece.text, matches));
    ToParts(matches, piece.text.size(), split.invert, parts);
    AppendParts(pieces, piece, parts, split.behavior, out);
    return {};
  });
}

void MatchSet(const CodePointSet& set, std::string_view text, std::vector<Regex::Match>& matches) {
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    if (set.Contains(NextCodePoint(text, i))) matches.push_back({begin, i});
  }
}

Status Apply(const SetSplit& split, Pieces& pieces) {
  std::vector<Regex::Match> matches;
  std::vector<Part> parts;
  return ForEachPiece(pieces, [&](const Piece& piece, std::vector<Piece>& out) -> Status {
    matches.clear();
    MatchSet(split.set, piece.text, matches);
    ToParts(matches, piece.text.size(), false, parts);
    AppendParts(pieces, piece, parts, split.behavior, out);
    return {};
  });
}

Status Apply(const ByteLevelSplit& split, Pieces& pieces) {
  if (split.add_prefix_space) {
    for (Piece& piece : pieces.list) {
      if (piece.token >= 0 || piece.text.empty() || piece.text[0] == ' ') continue;
      AlignedText text = pieces.Copy(piece);
      text.Prepend(" ");
      piece = pieces.Keep(std::move(text));
    }
  }
  if (split.use_regex) LS_RETURN_IF_ERROR(Apply(PatternSplit{.pattern = split.pattern}, pieces));
  if (!split.map_bytes) return {};
  for (Piece& piece : pieces.list) {
    if (piece.token >= 0) continue;
    AlignedText text = pieces.Copy(piece);
    MapToByteLevel(text);
    piece = pieces.Keep(std::move(text));
  }
  return {};
}

Status Apply(const MetaspaceSplit& split, Pieces& pieces) {
  const Regex space = Regex::Literal(" "), mark = Regex::Literal(split.replacement);
  std::vector<Regex::Match> matches;
  std::vector<Part> parts;
  return ForEachPiece(pieces, [&](const Piece& piece, std::vector<Piece>& out) -> Status {
    AlignedText text = pieces.Copy(piece);
    matches.clear();
    LS_RETURN_IF_ERROR(space.FindAll(text.text(), matches));
    text.Replace(matches, split.replacement);
    const bool wanted = split.prepend == PrependScheme::kAlways ||
                        (split.prepend == PrependScheme::kFirst && text.origin() == 0);
    if (wanted && !text.text().starts_with(split.replacement)) text.Prepend(split.replacement);
    const Piece whole = pieces.Keep(std::move(text));
    if (!split.split) {
      out.push_back(whole);
      return {};
    }
    matches.clear();
    LS_RETURN_IF_ERROR(mark.FindAll(whole.text, matches));
    ToParts(matches, whole.text.size(), false, parts);
    AppendParts(pieces, whole, parts, SplitBehavior::kMergedWithNext, out);
    return {};
  });
}

Status Apply(const WhitespaceSplit&, Pieces& pieces) {
  // \w+|[^\w\s]+ with the classes of Rust's regex crate.
  const CodePointSet &word = NamedSet("rust_word"), &space = NamedSet("rust_whitespace");
  return ForEachPiece(pieces, [&](const Piece& piece, std::vector<Piece>& out) -> Status {
    enum Class { kSpace, kWord, kOther };
    size_t begin = 0;
    Class current = kSpace;
    for (size_t i = 0; i <= piece.text.size();) {
      const size_t at = i;
      Class next = kSpace;
      if (i < piece.text.size()) {
        const char32_t c = NextCodePoint(piece.text, i);
        next = word.Contains(c) ? kWord : space.Contains(c) ? kSpace : kOther;
      } else {
        ++i;
      }
      if (next == current && at < piece.text.size()) continue;
      if (current != kSpace && at > begin) out.push_back(pieces.Slice(piece, begin, at));
      begin = at;
      current = next;
    }
    return {};
  });
}

Status Apply(const ScriptSplit&, Pieces& pieces) {
  return ForEachPiece(pieces, [&](const Piece& piece, std::vector<Piece>& out) -> Status {
    uint32_t last = 0;
    size_t begin =
        piece.text.size();  // what comes before the first script is dropped, as in `tokenizers`
    for (size_t i = 0; i < piece.text.size();) {
      const size_t at = i;
      const uint32_t script = PreTokenizerScript(NextCodePoint(piece.text, i));
      if (script == 0) continue;
      if (script != last) {
        if (begin < at) out.push_back(pieces.Slice(piece, begin, at));
        begin = at;
      }
      last = script;
    }
    if (begin < piece.text.size()) out.push_back(pieces.Slice(piece, begin, piece.text.size()));
    return {};
  });
}

Status Apply(const FixedLengthSplit& split, Pieces& pieces) {
  return ForEachPiece(pieces, [&](const Piece& piece, std::vector<Piece>& out) -> Status {
    size_t begin = 0;
    uint64_t count = 0;
    for (size_t i = 0; i < piece.text.size();) {
      i += Utf8Length(piece.text[i]);
      if (++count < split.length && i < piece.text.size()) continue;
      out.push_back(pieces.Slice(piece, begin, i));
      begin = i;
      count = 0;
    }
    return {};
  });
}

}  // namespace

Status PreTokenize(const std::vector<PreTokenizer>& steps, Pieces& pieces) {
  for (const PreTokenizer& step : steps) {
    LS_RETURN_IF_ERROR(std::visit([&](const auto& split) { return Apply(split, pieces); }, step));
    // Each step at most triples a text, so looking between them is enough.
    size_t size = 0;
    for (const Piece& piece : pieces.list) size += piece.text.size();
    if (size > LongestRewrite(pieces.original.size())) {
      return UnsupportedError(
          "the tokenizer's pre-tokenizers would make more than {} bytes of this text",
          LongestRewrite(pieces.original.size()));
    }
  }
  return {};
}

}  // namespace lockstep
