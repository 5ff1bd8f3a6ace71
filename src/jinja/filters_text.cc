// Filters that give text.
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "jinja/filters.h"
#include "jinja/format.h"
#include "jinja/json.h"
#include "jinja/unicode.h"

namespace lockstep::jinja {
namespace {

// markupsafe.soft_str: text stays as it is, anything else becomes str(value).
Expected<Value> SoftStr(Runtime& r, const Value& value) {
  if (value.is_string()) return value;
  LS_TRY(std::string text, Str(value, r.budget()));
  return r.String(std::move(text));
}
Value Same(Runtime& r, const Value& like, std::string text) {
  return r.String(std::move(text)).AsMarkup(like.markup());
}

Expected<Value> Upper(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  LS_TRY(const Value text, SoftStr(r, value));
  return Same(r, text, ToUpper(text.text()));
}
Expected<Value> Lower(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  LS_TRY(const Value text, SoftStr(r, value));
  return Same(r, text, ToLower(text.text()));
}
Expected<Value> CapitalizeFilter(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  LS_TRY(const Value text, SoftStr(r, value));
  return Same(r, text, Capitalize(text.text()));
}

// Words begin after - ( { [ < and white space; item[0].upper() + item[1:].lower().
Expected<Value> Title(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  LS_TRY(const Value text, SoftStr(r, value));
  std::u32string word;
  std::string out;
  const auto flush = [&] {
    if (word.empty()) return;
    out += ToUpper(Encode(word.substr(0, 1))) + ToLower(Encode(word.substr(1)));
    word.clear();
  };
  for (const char32_t c : Decode(text.text())) {
    if (c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsSpace(c)) {
      flush();
      AppendUtf8(c, out);
    } else {
      word += c;
    }
  }
  flush();
  return r.String(std::move(out));
}

Expected<Value> Trim(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  LS_TRY(const Value text, SoftStr(r, value));
  if (!bound.has(0) || bound[0].is_none())
    return Same(r, text, std::string(Strip(text.text(), Side::kBoth)));
  if (!bound[0].is_string())
    return PythonError("strip arg must be None or str, not {}", TypeName(bound[0]));
  const std::string_view characters = bound[0].text();
  return Same(r, text, std::string(Strip(text.text(), Side::kBoth, &characters)));
}

Expected<Value> ReplaceFilter(Runtime& r, const Value& value, const Bound& bound,
                              const Arguments&) {
  LS_TRY(std::string text, Str(value, r.budget()));
  LS_TRY(std::string from, Str(bound[0], r.budget()));
  LS_TRY(std::string to, Str(bound[1], r.budget()));
  int64_t count = -1;
  if (bound.has(2) && !bound[2].is_none()) {
    LS_TRY(count, bound.Integer(2, -1));
  }
  bool markup = false;
  if (r.autoescape()) {
    markup = value.is_string() && value.markup();
    const bool old_markup = bound[0].is_string() && bound[0].markup();
    const bool new_markup = bound[1].is_string() && bound[1].markup();
    if (old_markup || (new_markup && !markup)) {
      if (!markup) text = Escape(text, r.budget());
      markup = true;
    }
    if (markup && !old_markup) from = Escape(from, r.budget());
    if (markup && !new_markup) to = Escape(to, r.budget());
  }
  LS_TRY(const std::optional<Value> method, FindMethod(r, r.String(std::move(text)), "replace"));
  LS_TRY(const Value replaced,
         r.Call(*method, {{r.String(from), r.String(to), Value::Integer(count)}, {}}));
  return replaced.AsMarkup(markup);
}

Expected<Value> StringFilter(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  return SoftStr(r, value);
}
Expected<Value> Safe(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  LS_TRY(const Value text, SoftStr(r, value));
  return text.AsMarkup();
}
Expected<Value> EscapeFilter(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  if (value.is_string() && value.markup()) return value;
  LS_TRY(const std::string text, Str(value, r.budget()));
  LS_RETURN_IF_ERROR(r.Reserve(text.size() * 5));
  return r.String(Escape(text, r.budget())).AsMarkup();
}
Expected<Value> ForceEscape(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  LS_TRY(const std::string text, Str(value, r.budget()));
  LS_RETURN_IF_ERROR(r.Reserve(text.size() * 5));
  return r.String(Escape(text, r.budget())).AsMarkup();
}

Expected<Value> Center(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  LS_TRY(const Value text, SoftStr(r, value));
  LS_TRY(const std::optional<Value> method, FindMethod(r, text, "center"));
  return r.Call(*method, {{bound.Or(0, Value::Integer(80))}, {}});
}

Expected<Value> Indent(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  std::string indention(4, ' ');
  if (bound.has(0) && bound[0].is_string()) {
    indention = bound[0].text();
  } else {
    LS_TRY(const int64_t width, bound.Integer(0, 4));
    LS_RETURN_IF_ERROR(r.Reserve(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
    indention = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (value.is_undefined()) return tl::unexpected(UndefinedError(value));
  if (!value.is_string())
    return PythonError("unsupported operand type(s) for +=: '{}' and 'str'", TypeName(value));
  const std::string text = value.text() + "\n";
  LS_TRY(const std::vector<std::string_view> lines, Lines(r, text));
  LS_RETURN_IF_ERROR(r.Reserve(text.size() + uint64_t{lines.size() + 1} * indention.size()));
  const bool blank = bound.Flag(2);
  std::string out;
  if (bound.Flag(1)) out += indention;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += indention;
    out += lines[i];
  }
  return Same(r, value, std::move(out));
}

Expected<Value> Truncate(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  LS_TRY(const int64_t length, bound.Integer(0, 255));
  LS_TRY(const std::string end, bound.Text(2, "..."));
  int64_t leeway = 5;
  if (bound.has(3) && !bound[3].is_none()) {
    LS_TRY(leeway, bound.Integer(3, 5));
  }
  const int64_t end_length = static_cast<int64_t>(CountCodePoints(end));
  if (length < end_length) return PythonError("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) return PythonError("expected leeway >= 0, got {}", leeway);
  LS_TRY(const int64_t size, Length(value));
  if (size <= length || size - length <= leeway) return value;
  if (!value.is_string())
    return PythonError("'{}' object has no attribute 'rsplit'", TypeName(value));
  std::string_view kept = value.text();
  kept = kept.substr(0, ByteOffset(kept, static_cast<size_t>(length - end_length)));
  if (!bound.Flag(1)) kept = kept.substr(0, kept.rfind(' '));
  return Same(r, value, std::string(kept) + end);
}

Expected<Value> WordCount(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  LS_TRY(const Value text, SoftStr(r, value));
  Int words = 0;
  bool in_word = false;
  for (const char32_t c : Decode(text.text())) {
    const bool word = c == '_' || IsAlpha(c) || IsNumeric(c);
    if (word && !in_word) ++words;
    in_word = word;
  }
  return Value::Integer(words);
}

// textwrap's chunks: runs of white space, and words cut after the hyphens inside them.
std::vector<std::u32string_view> WrapChunks(std::u32string_view line, bool break_on_hyphens) {
  std::vector<std::u32string_view> chunks;
  const auto blank = [](char32_t c) {
    return c == '\t' || c == '\n' || c == '\v' || c == '\f' || c == '\r' || c == ' ';
  };
  const auto letter = [](char32_t c) { return IsAlpha(c) || c == '_'; };
  for (size_t i = 0; i < line.size();) {
    const size_t start = i;
    const bool space = blank(line[i]);
    while (i < line.size() && blank(line[i]) == space) {
      ++i;
      if (!space && break_on_hyphens && line[i - 1] == '-' && i >= start + 2 &&
          letter(line[i - 2]) && i + 1 < line.size() && letter(line[i]) && letter(line[i + 1]))
        break;
    }
    chunks.push_back(line.substr(start, i - start));
  }
  return chunks;
}

std::vector<std::string> WrapLine(std::u32string_view line, size_t width, bool break_long_words,
                                  bool break_on_hyphens) {
  std::vector<std::u32string_view> chunks = WrapChunks(line, break_on_hyphens);
  std::vector<std::string> lines;
  const auto blank = [](std::u32string_view chunk) {
    return std::all_of(chunk.begin(), chunk.end(), [](char32_t c) { return IsSpace(c); });
  };
  size_t next = 0;
  while (next < chunks.size()) {
    std::vector<std::u32string_view> current;
    size_t length = 0;
    if (!lines.empty() && blank(chunks[next])) ++next;
    while (next < chunks.size() && length + chunks[next].size() <= width) {
      length += chunks[next].size();
      current.push_back(chunks[next++]);
    }
    if (next < chunks.size() && chunks[next].size() > width) {
      std::u32string_view& chunk = chunks[next];
      const size_t room = width < 1 ? 1 : width - length;
      if (break_long_words) {
        size_t end = room;
        if (break_on_hyphens && chunk.size() > room) {
          const size_t hyphen = room == 0 ? std::u32string_view::npos : chunk.rfind(U'-', room - 1);
          if (hyphen != std::u32string_view::npos && hyphen > 0 &&
              std::any_of(chunk.begin(), chunk.begin() + static_cast<long>(hyphen),
                          [](char32_t c) { return c != '-'; }))
            end = hyphen + 1;
        }
        current.push_back(
            chunk.substr(0, end));  // may be empty: textwrap then keeps a blank before it
        chunk.remove_prefix(std::min(end, chunk.size()));
      } else if (current.empty()) {
        current.push_back(chunks[next++]);
      }
    }
    if (!current.empty() && blank(current.back())) current.pop_back();
    if (current.empty()) continue;
    std::u32string joined;
    for (const std::u32string_view chunk : current) joined += chunk;
    lines.push_back(Encode(joined));
  }
  return lines;
}

Expected<Value> WordWrap(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  if (value.is_undefined()) return tl::unexpected(UndefinedError(value));
  if (!value.is_string())
    return PythonError("'{}' object has no attribute 'splitlines'", TypeName(value));
  LS_TRY(const int64_t width, bound.Integer(0, 79));
  LS_TRY(const std::string separator, bound.Text(2, "\n"));
  LS_TRY(const std::vector<std::string_view> lines, Lines(r, value.text()));
  if (width <= 0 && !lines.empty()) return PythonError("invalid width {} (must be > 0)", width);
  LS_RETURN_IF_ERROR(r.Reserve(value.text().size() * (64 + separator.size())));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += separator;
    const auto wrapped = WrapLine(Decode(lines[i]), static_cast<size_t>(width), bound.Flag(1, true),
                                  bound.Flag(3, true));
    for (size_t k = 0; k < wrapped.size(); ++k) out += (k > 0 ? separator : "") + wrapped[k];
  }
  return r.String(std::move(out));
}

Expected<Value> FormatFilter(Runtime& r, const Value& value, const Bound&,
                             const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    return Raise(ErrorKind::kTemplateRuntime,
                 "can't handle positional and keyword arguments at the same time");
  LS_TRY(const Value text, SoftStr(r, value));
  if (arguments.named.empty()) {
    LS_TRY(const Value tuple, MakeList(r.budget(), arguments.positional, Kind::kTuple));
    return BinaryOp(r, '%', text, tuple);
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, item] : arguments.named) entries.emplace_back(r.String(key), item);
  LS_TRY(const Value dict, MakeDict(r.budget(), std::move(entries)));
  return BinaryOp(r, '%', text, dict);
}

std::string Quote(std::string_view text, bool for_query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    if (plain) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += "0123456789ABCDEF"[byte >> 4];
      out += "0123456789ABCDEF"[byte & 15];
    }
  }
  return out;
}

Expected<Value> UrlEncode(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  if (value.is_string() || !IsIterable(value)) {
    LS_TRY(const std::string text, Str(value, r.budget()));
    LS_RETURN_IF_ERROR(r.Reserve(text.size() * 3));
    return r.String(Quote(text, false));
  }
  Value pairs = value;
  if (value.is(Kind::kDict))
    pairs = Value(Kind::kDictView,
                  std::make_shared<DictViewObject>(r.budget(), value, ViewKind::kItems));
  LS_TRY(const std::vector<Value> items, ToVector(r, pairs));
  std::string out;
  for (const Value& item : items) {
    LS_TRY(const std::vector<Value> pair, ToVector(r, item));
    if (pair.size() != 2)
      return PythonError("not enough values to unpack (expected 2, got {})", pair.size());
    LS_TRY(const std::string key, Str(pair[0], r.budget()));
    LS_TRY(const std::string text, Str(pair[1], r.budget()));
    LS_RETURN_IF_ERROR(Room(out, 3 * (key.size() + text.size()), r.budget()));
    if (!r.budget()->ChargeText(key.size() + text.size(), Work::kCharacters))
      return tl::unexpected(r.budget()->Error());
    if (!out.empty()) out += '&';
    out += Quote(key, true) + "=" + Quote(text, true);
  }
  return r.String(std::move(out));
}

// markupsafe's striptags: comments and tags out, white space collapsed, the common entities
// decoded.
Expected<Value> StripTags(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  LS_TRY(std::string text, Str(value, r.budget()));
  for (size_t at = 0; (at = text.find("<!--", at)) != std::string::npos;) {
    const size_t end = text.find("-->", at);
    if (end == std::string::npos) break;
    text.erase(at, end + 3 - at);
    if (!r.budget()->ChargeText(text.size(), Work::kCopy))
      return tl::unexpected(r.budget()->Error());
  }
  std::string plain;
  const size_t last = text.rfind('>');  // past it no tag ends, and none is searched for
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<' && last != std::string::npos && i < last) {
      const size_t end = text.find('>', i);
      if (end != std::string::npos) {
        i = end;
        continue;
      }
    }
    plain += text[i];
  }
  std::string collapsed;
  for (size_t i = 0; i < plain.size();) {
    const size_t start = i;
    const char32_t c = NextCodePoint(plain, i);
    if (!IsSpace(c)) {
      collapsed += plain.substr(start, i - start);
    } else if (!collapsed.empty() && collapsed.back() != ' ') {
      collapsed += ' ';
    }
  }
  if (!collapsed.empty() && collapsed.back() == ' ') collapsed.pop_back();
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"},  {"&gt;", ">"},   {"&quot;", "\""},
      {"&#39;", "'"}, {"&#34;", "\""}, {"&amp;", "&"}};
  std::string out;
  for (size_t i = 0; i < collapsed.size();) {
    bool found = false;
    for (const auto& [entity, character] : kEntities) {
      if (collapsed.compare(i, entity.size(), entity) != 0) continue;
      out += character;
      i += entity.size();
      found = true;
      break;
    }
    if (!found) out += collapsed[i++];
  }
  return r.String(std::move(out));
}

Expected<Value> XmlAttr(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  if (value.is_undefined()) return tl::unexpected(UndefinedError(value));
  if (!value.is(Kind::kDict))
    return PythonError("'{}' object has no attribute 'items'", TypeName(value));
  std::string out;
  for (const auto& [key, item] : value.dict().entries) {
    if (item.is_none() || item.is_undefined()) continue;
    LS_TRY(const std::string name, Str(key, r.budget()));
    LS_TRY(const std::string text, Str(item, r.budget()));
    if (!r.budget()->ChargeText(name.size(), Work::kCharacters))
      return tl::unexpected(r.budget()->Error());
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      return PythonError("Invalid character in attribute name: {}", StringRepr(name));
    LS_RETURN_IF_ERROR(Room(out, 5 * (name.size() + text.size()), r.budget()));
    if (!out.empty()) out += ' ';
    out += Escape(name, r.budget()) + "=\"" +
           (item.is_string() && item.markup() ? text : Escape(text, r.budget())) + "\"";
  }
  if (bound.Flag(0, true) && !out.empty()) out = " " + out;
  return r.String(std::move(out)).AsMarkup(r.autoescape());
}

// pprint sorts the keys of dicts; its line breaking past 80 columns is not copied.
Expected<Value> SortKeys(Runtime& r, const Value& value) {
  if (value.is_sequence()) {
    std::vector<Value> items;
    for (const Value& item : value.items()) {
      LS_TRY(Value sorted, SortKeys(r, item));
      items.push_back(std::move(sorted));
    }
    return MakeList(r.budget(), std::move(items), value.kind());
  }
  if (!value.is(Kind::kDict)) return value;
  std::vector<std::pair<Value, Value>> entries = value.dict().entries;
  std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
    const Expected<bool> less = Less(a.first, b.first, "<", r.budget());
    return less && *less;
  });
  for (auto& [key, item] : entries) {
    LS_TRY(item, SortKeys(r, item));
  }
  return MakeDict(r.budget(), std::move(entries));
}
Expected<Value> PPrint(Runtime& r, const Value& value, const Bound&, const Arguments&) {
  if (!r.budget()->Step()) return tl::unexpected(r.budget()->Error());
  LS_TRY(const Value sorted, SortKeys(r, value));
  LS_TRY(std::string text, Repr(sorted, r.budget()));
  return r.String(std::move(text));
}

Expected<Value> ToJson(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  DumpOptions options;
  options.ensure_ascii = bound.Flag(0);
  options.sort_keys = bound.Flag(3);
  if (bound.has(1) && !bound[1].is_none()) {
    options.indented = true;
    options.item_separator = ",";
    if (bound[1].is_string()) {
      options.indent = bound[1].text();
    } else {
      LS_TRY(const int64_t width, bound.Integer(1, 0));
      LS_RETURN_IF_ERROR(r.Reserve(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
      options.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (bound.has(2) && !bound[2].is_none()) {
    LS_TRY(const std::vector<Value> pair, ToVector(r, bound[2]));
    if (pair.size() != 2)
      return PythonError("not enough values to unpack (expected 2, got {})", pair.size());
    if (!pair[0].is_string() || !pair[1].is_string())
      return PythonError("separators must be strings");
    options.item_separator = pair[0].text();
    options.key_separator = pair[1].text();
  }
  LS_TRY(std::string text, DumpJson(value, options, r.budget()));
  return r.String(std::move(text));
}

Expected<Value> Urlize(Runtime&, const Value&, const Bound&, const Arguments&) {
  return PythonError("the filter urlize is not supported in chat templates");
}

constexpr FilterRow kRows[] = {
    {"capitalize", "", CapitalizeFilter},
    {"center", "width=", Center, Work::kScan},
    {"e", "", EscapeFilter, Work::kScan},
    {"escape", "", EscapeFilter, Work::kScan},
    {"forceescape", "", ForceEscape, Work::kScan},
    {"format", "*", FormatFilter},
    {"indent", "width=,first=,blank=", Indent, Work::kCharacters},
    {"lower", "", Lower},
    {"pprint", "", PPrint},
    {"replace", "old,new,count=", ReplaceFilter},
    {"safe", "", Safe, Work::kCopy},
    {"string", "", StringFilter, Work::kCopy},
    {"striptags", "", StripTags, Work::kHeavy},
    {"title", "", Title, Work::kHeavy},
    {"tojson", "ensure_ascii=,indent=,separators=,sort_keys=", ToJson},
    {"trim", "chars=", Trim, Work::kScan},
    {"truncate", "length=,killwords=,end=,leeway=", Truncate, Work::kScan},
    {"upper", "", Upper},
    {"urlencode", "", UrlEncode},
    {"urlize", "trim_url_limit=,nofollow=,target=,rel=,extra_schemes=", Urlize},
    {"wordcount", "", WordCount},
    {"wordwrap", "width=,break_long_words=,wrapstring=,break_on_hyphens=", WordWrap, Work::kHeavy},
    {"xmlattr", "autospace=", XmlAttr},
};

}  // namespace

std::span<const FilterRow> TextFilters() { return kRows; }

}  // namespace lockstep::jinja
