// The methods of Python's own types: "text".split(), dict.get(), list.index(), ...
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "jinja/filters.h"
#include "jinja/format.h"
#include "jinja/needle.h"
#include "jinja/unicode.h"

namespace lockstep::jinja {
namespace {

using Method = Expected<Value> (*)(Runtime& r, const Value& self, const Bound& bound,
                                   const Arguments& arguments);
struct MethodRow {
  std::string_view name;
  std::string_view signature;  // as in Bound::Bind; "*": reads Arguments itself
  Method call;
  Work work = Work::kCharacters;  // on a self that is text
};

#define LS_METHOD(...)                                  \
  [](Runtime& r, const Value& self, const Bound& bound, \
     const Arguments& arguments) -> Expected<Value> {   \
    (void)r, (void)self, (void)bound, (void)arguments;  \
    __VA_ARGS__                                         \
  }

Value Text(Runtime& r, const Value& self, std::string text) {
  return r.String(std::move(text)).AsMarkup(self.markup());
}

Expected<Value> StripMethod(Runtime& r, const Value& self, const Bound& bound, Side side) {
  if (!bound.has(0) || bound[0].is_none())
    return Text(r, self, std::string(Strip(self.text(), side)));
  if (!bound[0].is_string()) return PythonError("strip arg must be None or str");
  const std::string_view characters = bound[0].text();
  return Text(r, self, std::string(Strip(self.text(), side, &characters)));
}

// All characters fulfil `is`, and there is at least one.
template <typename Predicate>
Expected<Value> All(const Value& self, Predicate is) {
  const std::string& text = self.text();
  for (size_t i = 0; i < text.size();)
    if (!is(NextCodePoint(text, i))) return Value::Bool(false);
  return Value::Bool(!text.empty());
}

Expected<Value> Case(const Value& self, bool upper) {
  bool cased = false;
  const std::string& text = self.text();
  for (size_t i = 0; i < text.size();) {
    const char32_t c = NextCodePoint(text, i);
    if (upper ? IsLower(c) || IsTitle(c) : IsUpper(c) || IsTitle(c)) return Value::Bool(false);
    cased |= upper ? IsUpper(c) : IsLower(c);
  }
  return Value::Bool(cased);
}

Expected<Value> IsTitleMethod(const Value& self) {
  bool cased = false, in_word = false;
  const std::string& text = self.text();
  for (size_t i = 0; i < text.size();) {
    const char32_t c = NextCodePoint(text, i);
    if (IsUpper(c) || IsTitle(c)) {
      if (in_word) return Value::Bool(false);
      in_word = cased = true;
    } else if (IsLower(c)) {
      if (!in_word) return Value::Bool(false);
      cased = true;
    } else {
      in_word = false;
    }
  }
  return Value::Bool(cased);
}

// The bytes of text[start:end], with the offset of the first in code points.
struct Range {
  std::string_view text;
  int64_t start = 0;
  bool valid = true;  // false: start lies past the end
};
Expected<Range> SubRange(const Value& self, const Bound& bound, size_t first) {
  if (!bound.has(first) && !bound.has(first + 1)) return Range{self.text(), 0, true};
  const int64_t length = CodePoints(self);
  const auto place = [&](size_t i, int64_t fallback) -> Expected<int64_t> {
    if (!bound.has(i) || bound[i].is_none()) return fallback;
    if (!bound[i].is_integral())
      return PythonError("slice indices must be integers or None or have an __index__ method");
    Int n = bound[i].integer();
    if (n < 0) n = std::max<Int>(n + length, 0);
    return static_cast<int64_t>(std::min<Int>(n, Int{length} + 1));
  };
  LS_TRY(const int64_t start, place(first, 0));
  LS_TRY(const int64_t stop, place(first + 1, length));
  if (start > length || start > std::min(stop, length)) return Range{{}, start, false};
  const size_t begin = ByteOffset(self.text(), static_cast<size_t>(start));
  const size_t end = ByteOffset(self.text(), static_cast<size_t>(std::min(stop, length)));
  return Range{std::string_view(self.text()).substr(begin, end - begin), start, true};
}

Expected<Value> Find(Runtime& r, const Value& self, const Bound& bound, bool last, bool must) {
  if (bound[0].is_undefined() || !bound[0].is_string())
    return PythonError("must be str, not {}", TypeName(bound[0]));
  LS_TRY(const Range range, SubRange(self, bound, 1));
  size_t at = std::string_view::npos;
  LS_TRY(const Needle needle, Needle::Make(r, bound[0].text(), range.text));
  if (range.valid) at = last ? needle.FindLast(range.text) : needle.Find(range.text);
  if (at == std::string_view::npos)
    return must ? Expected<Value>(PythonError("substring not found")) : Value::Integer(-1);
  return Value::Integer(range.start +
                        static_cast<int64_t>(CountCodePoints(range.text.substr(0, at))));
}

Expected<Value> Count(Runtime& r, const Value& self, const Bound& bound) {
  if (!bound[0].is_string()) return PythonError("must be str, not {}", TypeName(bound[0]));
  LS_TRY(const Range range, SubRange(self, bound, 1));
  if (!range.valid) return Value::Integer(0);
  const std::string& needle = bound[0].text();
  if (needle.empty()) return Value::Integer(static_cast<Int>(CountCodePoints(range.text)) + 1);
  LS_TRY(const Needle search, Needle::Make(r, needle, range.text));
  Int count = 0;
  for (size_t at = 0; (at = search.Find(range.text, at)) != std::string_view::npos;
       at += needle.size())
    ++count;
  return Value::Integer(count);
}

Expected<Value> Affix(const Value& self, const Bound& bound, bool end) {
  LS_TRY(const Range range, SubRange(self, bound, 1));
  std::vector<Value> affixes = {bound[0]};
  if (bound[0].is(Kind::kTuple)) affixes = bound[0].items();
  for (const Value& affix : affixes) {
    if (!affix.is_string())
      return PythonError("{} first arg must be str or a tuple of str, not {}",
                         end ? "endswith" : "startswith", TypeName(affix));
    if (range.valid &&
        (end ? range.text.ends_with(affix.text()) : range.text.starts_with(affix.text())))
      return Value::Bool(true);
  }
  return Value::Bool(false);
}

Expected<Value> Replace(Runtime& r, const Value& self, const Bound& bound) {
  if (!bound[0].is_string() || !bound[1].is_string())
    return PythonError("replace() argument must be str, not {}",
                       TypeName(bound[0].is_string() ? bound[1] : bound[0]));
  LS_TRY(int64_t limit, bound.Integer(2, -1));
  const std::string& text = self.text();
  const std::string& from = bound[0].text();
  const std::string& to = bound[1].text();
  const uint64_t most = from.empty() ? text.size() + 1 : text.size() / from.size();
  LS_TRY(const Needle needle, Needle::Make(r, from, text));
  uint64_t times = 0;
  if (from.empty()) {
    times = most;
  } else {
    for (size_t at = 0; (at = needle.Find(text, at)) != std::string::npos; at += from.size())
      ++times;
  }
  if (limit >= 0) times = std::min<uint64_t>(times, static_cast<uint64_t>(limit));
  LS_RETURN_IF_ERROR(r.Reserve(text.size() + times * to.size()));
  std::string out;
  if (from.empty()) {
    size_t i = 0;
    for (uint64_t n = 0; n < times; ++n) {
      out += to;
      if (i >= text.size()) break;
      const size_t start = i;
      NextCodePoint(text, i);
      out += text.substr(start, i - start);
    }
    if (i < text.size()) out += text.substr(i);
    return Text(r, self, std::move(out));
  }
  size_t at = 0;
  for (uint64_t n = 0; n < times; ++n) {
    const size_t next = needle.Find(text, at);
    out.append(text, at, next - at);
    out += to;
    at = next + from.size();
  }
  out.append(text, at);
  return Text(r, self, std::move(out));
}

Expected<Value> StringList(Runtime& r, const Value& self,
                           const std::vector<std::string_view>& parts, Kind kind = Kind::kList) {
  LS_RETURN_IF_ERROR(r.Reserve(self.text().size() + parts.size() * 160));
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(Text(r, self, std::string(part)));
  return MakeList(r.budget(), std::move(items), kind);
}

Expected<void> PartsFit(Runtime& r, size_t parts) {
  if (r.budget()->Fits(parts * 160)) return {};
  return Raise(ErrorKind::kLimit, "the parts of a text would not fit in the memory allowed");
}

// split() and rsplit(); without a separator, at runs of white space.
Expected<Value> Split(Runtime& r, const Value& self, const Bound& bound, bool right) {
  LS_TRY(int64_t limit, bound.Integer(1, -1));
  if (limit < 0) limit = INT64_MAX;
  std::string_view text = self.text();
  std::vector<std::string_view> parts;
  if (!bound.has(0) || bound[0].is_none()) {
    if (right) {
      text = Strip(text, Side::kRight);
      while (!text.empty()) {
        LS_RETURN_IF_ERROR(PartsFit(r, parts.size()));
        if (static_cast<int64_t>(parts.size()) == limit) {
          parts.push_back(text);
          break;
        }
        size_t start = text.size();  // of the last word
        while (start > 0) {
          size_t before = start - 1;
          while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
          size_t next = before;
          if (IsSpace(NextCodePoint(text, next))) break;
          start = before;
        }
        parts.push_back(text.substr(start));
        text = Strip(text.substr(0, start), Side::kRight);
      }
      std::reverse(parts.begin(), parts.end());
    } else {
      text = Strip(text, Side::kLeft);
      while (!text.empty()) {
        LS_RETURN_IF_ERROR(PartsFit(r, parts.size()));
        if (static_cast<int64_t>(parts.size()) == limit) {
          // the rest, with the white space at its end (split) as Python leaves it
          parts.push_back(text);
          break;
        }
        size_t end = 0;
        while (end < text.size()) {
          size_t next = end;
          if (IsSpace(NextCodePoint(text, next))) break;
          end = next;
        }
        parts.push_back(text.substr(0, end));
        text = Strip(text.substr(end), Side::kLeft);
      }
    }
    return StringList(r, self, parts);
  }
  if (!bound[0].is_string()) return PythonError("must be str or None, not {}", TypeName(bound[0]));
  const std::string& separator = bound[0].text();
  if (separator.empty()) return PythonError("empty separator");
  LS_TRY(const Needle needle, Needle::Make(r, separator, text));
  for (;;) {
    const size_t at = static_cast<int64_t>(parts.size()) == limit ? std::string_view::npos
                      : right                                     ? needle.FindLast(text)
                                                                  : needle.Find(text);
    if (at == std::string_view::npos) break;
    LS_RETURN_IF_ERROR(PartsFit(r, parts.size()));
    if (right) {
      parts.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      parts.push_back(text.substr(0, at));
      text = text.substr(at + separator.size());
    }
  }
  parts.push_back(text);
  if (right) std::reverse(parts.begin(), parts.end());
  return StringList(r, self, parts);
}

Expected<Value> Partition(Runtime& r, const Value& self, const Bound& bound, bool right) {
  if (!bound[0].is_string()) return PythonError("must be str, not {}", TypeName(bound[0]));
  const std::string_view separator = bound[0].text();
  if (separator.empty()) return PythonError("empty separator");
  const std::string_view text = self.text();
  LS_TRY(const Needle needle, Needle::Make(r, separator, text));
  const size_t at = right ? needle.FindLast(text) : needle.Find(text);
  if (at == std::string_view::npos) {
    if (right) return StringList(r, self, {"", "", text}, Kind::kTuple);
    return StringList(r, self, {text, "", ""}, Kind::kTuple);
  }
  return StringList(r, self, {text.substr(0, at), separator, text.substr(at + separator.size())},
                    Kind::kTuple);
}

// str.join takes only strings, unlike the filter.
Expected<Value> JoinMethod(Runtime& r, const Value& self, const Bound& bound) {
  if (!IsIterable(bound[0])) return PythonError("can only join an iterable");
  LS_TRY(const std::vector<Value> items, ToVector(r, bound[0]));
  uint64_t size = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string())
      return PythonError("sequence item {}: expected str instance, {} found", i,
                         TypeName(items[i]));
    size += items[i].text().size() + self.text().size();
  }
  LS_RETURN_IF_ERROR(r.Reserve(size));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += self.text();
    out +=
        self.markup() && !items[i].markup() ? Escape(items[i].text(), r.budget()) : items[i].text();
  }
  return Text(r, self, std::move(out));
}

// ljust, rjust, center
Expected<Value> Justify(Runtime& r, const Value& self, const Bound& bound, char align) {
  LS_TRY(const int64_t width, bound.Integer(0, 0));
  LS_TRY(const std::string fill, bound.Text(1, " "));
  if (CountCodePoints(fill) != 1)
    return PythonError("The fill character must be exactly one character long");
  const int64_t missing = width - CodePoints(self);
  if (missing <= 0) return self;
  LS_RETURN_IF_ERROR(r.Reserve(static_cast<uint64_t>(missing) * fill.size() + self.text().size()));
  if (!r.budget()->ChargeText(static_cast<uint64_t>(missing) * fill.size(), Work::kScan))
    return tl::unexpected(r.budget()->Error());
  // CPython's center puts the odd space left when the width is odd.
  int64_t left = align == 'r' ? missing : 0;
  if (align == 'c') left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return Text(r, self, std::move(out));
}

Expected<Value> ZFill(Runtime& r, const Value& self, const Bound& bound) {
  LS_TRY(const int64_t width, bound.Integer(0, 0));
  const int64_t missing = width - CodePoints(self);
  if (missing <= 0) return self;
  LS_RETURN_IF_ERROR(r.Reserve(static_cast<uint64_t>(missing) + self.text().size()));
  const std::string& text = self.text();
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  return Text(
      r, self,
      text.substr(0, sign) + std::string(static_cast<size_t>(missing), '0') + text.substr(sign));
}

Expected<Value> ExpandTabs(Runtime& r, const Value& self, const Bound& bound) {
  LS_TRY(const int64_t size, bound.Integer(0, 8));
  const std::string& text = self.text();
  const auto tabs = static_cast<uint64_t>(std::count(text.begin(), text.end(), '\t'));
  if (size > (int64_t{1} << 40)) return PythonError("new string is too long");
  LS_RETURN_IF_ERROR(
      r.Reserve(text.size() + tabs * static_cast<uint64_t>(std::max<int64_t>(size, 0))));
  std::string out;
  int64_t column = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = NextCodePoint(text, i);
    if (c == '\t') {
      const int64_t n = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(n), ' ');
      column += n;
      continue;
    }
    out += text.substr(start, i - start);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return Text(r, self, std::move(out));
}

Expected<Value> FormatMethod(Runtime& r, const Value& self, const Arguments& arguments) {
  const Lookup lookup = [&r](const Value& object, const Value& key, bool attribute) {
    return attribute ? GetAttribute(r, object, key) : GetItem(r, object, key);
  };
  LS_TRY(std::string text, FormatString(self.text(), arguments, lookup, r.budget()));
  return Text(r, self, std::move(text));
}

Expected<Value> FormatMap(Runtime& r, const Value& self, const Bound& bound) {
  if (!bound[0].is(Kind::kDict)) return PythonError("format_map() takes a mapping");
  Arguments arguments;
  if (!r.budget()->ChargeItems(bound[0].dict().entries.size()))
    return tl::unexpected(r.budget()->Error());
  for (const auto& [key, value] : bound[0].dict().entries)
    if (key.is_string()) arguments.named.emplace_back(key.text(), value);
  return FormatMethod(r, self, arguments);
}

Expected<Value> Encode(Runtime& r, const Value& self, const Bound& bound) {
  LS_TRY(const std::string encoding, bound.Text(0, "utf-8"));
  std::string name = ToLower(encoding);
  std::replace(name.begin(), name.end(), '_', '-');
  if (name == "ascii") {
    if (std::any_of(self.text().begin(), self.text().end(), [](char c) { return c < 0; }))
      return PythonError("'ascii' codec can't encode the text");
  } else if (name != "utf-8" && name != "utf8") {
    return PythonError("unknown encoding: {}", encoding);
  }
  return Value(Kind::kBytes, std::make_shared<StringObject>(r.budget(), self.text()));
}

const MethodRow kStringMethods[] = {
    {"capitalize", "!", LS_METHOD(return Text(r, self, Capitalize(self.text()));)},
    {"casefold", "!", LS_METHOD(return Text(r, self, CaseFold(self.text()));)},
    {"center", "!width,fillchar=", LS_METHOD(return Justify(r, self, bound, 'c');)},
    {"count", "!sub,start=,end=", LS_METHOD(return Count(r, self, bound);)},
    {"encode", "encoding=,errors=", LS_METHOD(return Encode(r, self, bound);)},
    {"endswith", "!suffix,start=,end=", LS_METHOD(return Affix(self, bound, true);), Work::kScan},
    {"expandtabs", "tabsize=", LS_METHOD(return ExpandTabs(r, self, bound);)},
    {"find", "!sub,start=,end=", LS_METHOD(return Find(r, self, bound, false, false);)},
    {"format", "*", LS_METHOD(return FormatMethod(r, self, arguments);)},
    {"format_map", "!mapping", LS_METHOD(return FormatMap(r, self, bound);)},
    {"index", "!sub,start=,end=", LS_METHOD(return Find(r, self, bound, false, true);)},
    {"isalnum", "!",
     LS_METHOD(return All(self, [](char32_t c) { return IsAlpha(c) || IsNumeric(c); });)},
    {"isalpha", "!", LS_METHOD(return All(self, IsAlpha);)},
    {"isascii", "!",
     LS_METHOD(return Value::Bool(std::all_of(self.text().begin(), self.text().end(),
                                              [](char c) { return c >= 0; }));)},
    {"isdecimal", "!", LS_METHOD(return All(self, IsDecimal);)},
    {"isdigit", "!",
     LS_METHOD(return All(self,
                          [](char32_t c) {
                            return IsDecimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
                                   (c >= 0x2070 && c <= 0x2089 && IsNumeric(c));
                          });)},
    {"isidentifier", "!",
     LS_METHOD(if (self.text().empty()) return Value::Bool(false); size_t i = 0;
               if (!IsIdentifierStart(NextCodePoint(self.text(), i))) return Value::Bool(false);
               while (i < self.text().size()) if (!IsIdentifierPart(NextCodePoint(
                                                      self.text(), i))) return Value::Bool(false);
               return Value::Bool(true);)},
    {"islower", "!", LS_METHOD(return Case(self, false);)},
    {"isnumeric", "!", LS_METHOD(return All(self, IsNumeric);)},
    {"isprintable", "!",
     LS_METHOD(if (self.text().empty()) return Value::Bool(true); return All(self, IsPrintable);)},
    {"isspace", "!", LS_METHOD(return All(self, IsSpace);)},
    {"istitle", "!", LS_METHOD(return IsTitleMethod(self);)},
    {"isupper", "!", LS_METHOD(return Case(self, true);)},
    {"join", "!iterable", LS_METHOD(return JoinMethod(r, self, bound);)},
    {"ljust", "!width,fillchar=", LS_METHOD(return Justify(r, self, bound, 'l');)},
    {"lower", "!", LS_METHOD(return Text(r, self, ToLower(self.text()));)},
    {"lstrip", "!chars=", LS_METHOD(return StripMethod(r, self, bound, Side::kLeft);), Work::kScan},
    {"maketrans", "*", LS_METHOD(return PythonError("str.maketrans is not supported");)},
    {"partition", "!sep", LS_METHOD(return Partition(r, self, bound, false);)},
    {"removeprefix", "!prefix",
     LS_METHOD(LS_TRY(const std::string prefix, bound.Text(0, ""));
               return Text(r, self,
                           self.text().starts_with(prefix) ? self.text().substr(prefix.size())
                                                           : self.text());)},
    {"removesuffix", "!suffix",
     LS_METHOD(LS_TRY(const std::string suffix, bound.Text(0, ""));
               return Text(r, self,
                           self.text().ends_with(suffix)
                               ? self.text().substr(0, self.text().size() - suffix.size())
                               : self.text());)},
    {"replace", "!old,new,count=", LS_METHOD(return Replace(r, self, bound);)},
    {"rfind", "!sub,start=,end=", LS_METHOD(return Find(r, self, bound, true, false);)},
    {"rindex", "!sub,start=,end=", LS_METHOD(return Find(r, self, bound, true, true);)},
    {"rjust", "!width,fillchar=", LS_METHOD(return Justify(r, self, bound, 'r');)},
    {"rpartition", "!sep", LS_METHOD(return Partition(r, self, bound, true);)},
    {"rsplit", "sep=,maxsplit=", LS_METHOD(return Split(r, self, bound, true);)},
    {"rstrip", "!chars=", LS_METHOD(return StripMethod(r, self, bound, Side::kRight);),
     Work::kScan},
    {"split", "sep=,maxsplit=", LS_METHOD(return Split(r, self, bound, false);)},
    {"splitlines", "keepends=",
     LS_METHOD(LS_TRY(const auto lines, Lines(r, self.text(), bound.Flag(0)));
               return StringList(r, self, lines);)},
    {"startswith", "!prefix,start=,end=", LS_METHOD(return Affix(self, bound, false);),
     Work::kScan},
    {"strip", "!chars=", LS_METHOD(return StripMethod(r, self, bound, Side::kBoth);), Work::kScan},
    {"swapcase", "!", LS_METHOD(return Text(r, self, SwapCase(self.text()));)},
    {"title", "!", LS_METHOD(return Text(r, self, ToTitle(self.text()));)},
    {"translate", "*", LS_METHOD(return PythonError("str.translate is not supported");)},
    {"upper", "!", LS_METHOD(return Text(r, self, ToUpper(self.text()));)},
    {"zfill", "!width", LS_METHOD(return ZFill(r, self, bound);)},
};

// list and tuple
Expected<Value> IndexOf(Runtime& r, const Value& self, const Bound& bound) {
  const int64_t n = static_cast<int64_t>(self.items().size());
  LS_TRY(int64_t start, bound.Integer(1, 0));
  LS_TRY(int64_t stop, bound.Integer(2, n));
  if (start < 0) start = std::max<int64_t>(start + n, 0);
  if (stop < 0) stop = std::max<int64_t>(stop + n, 0);
  for (int64_t i = start; i < std::min(stop, n); ++i)
    if (Equal(self.items()[static_cast<size_t>(i)], bound[0], r.budget())) return Value::Integer(i);
  LS_TRY(const std::string text, Repr(bound[0], r.budget()));
  return PythonError("{} is not in {}", text, TypeName(self));
}
Expected<Value> CountOf(Runtime& r, const Value& self, const Bound& bound) {
  Int count = 0;
  for (const Value& item : self.items()) count += Equal(item, bound[0], r.budget()) ? 1 : 0;
  return Value::Integer(count);
}
const MethodRow kSequenceMethods[] = {
    {"count", "!value", LS_METHOD(return CountOf(r, self, bound);)},
    {"index", "!value,start=,stop=", LS_METHOD(return IndexOf(r, self, bound);)},
};
const MethodRow kListMethods[] = {
    {"copy", "!", LS_METHOD(return MakeList(r.budget(), self.items());)},
};

// range: as a list of its numbers, which are at most 100 000.
Expected<Value> AsList(Runtime& r, const Value& range) {
  LS_TRY(std::vector<Value> items, ToVector(r, range));
  return MakeList(r.budget(), std::move(items));
}
const MethodRow kRangeMethods[] = {
    {"count", "!value",
     LS_METHOD(LS_TRY(const Value list, AsList(r, self)); return CountOf(r, list, bound);)},
    {"index", "!value",
     LS_METHOD(LS_TRY(const Value list, AsList(r, self)); return IndexOf(r, list, bound);)},
};

Value View(Runtime& r, const Value& self, ViewKind kind) {
  return Value(Kind::kDictView, std::make_shared<DictViewObject>(r.budget(), self, kind));
}
const MethodRow kDictMethods[] = {
    {"copy", "!", LS_METHOD(return self;)},
    {"get", "!key,default=",
     LS_METHOD(LS_TRY([[maybe_unused]] const size_t hashable, Hash(bound[0], r.budget()));
               const Value* found = self.dict().Find(bound[0], r.budget());
               return found ? *found : bound.Or(1, Value());)},
    {"items", "!", LS_METHOD(return View(r, self, ViewKind::kItems);)},
    {"keys", "!", LS_METHOD(return View(r, self, ViewKind::kKeys);)},
    {"values", "!", LS_METHOD(return View(r, self, ViewKind::kValues);)},
};

Int BitLength(Int x) {
  unsigned __int128 n =
      x < 0 ? -static_cast<unsigned __int128>(x) : static_cast<unsigned __int128>(x);
  Int bits = 0;
  for (; n != 0; n >>= 1) ++bits;
  return bits;
}
const MethodRow kIntMethods[] = {
    {"bit_length", "!", LS_METHOD(return Value::Integer(BitLength(self.integer()));)},
    {"conjugate", "!", LS_METHOD(return Value::Integer(self.integer());)},
};
const MethodRow kFloatMethods[] = {
    {"conjugate", "!", LS_METHOD(return self;)},
    {"is_integer", "!",
     LS_METHOD(return Value::Bool(std::isfinite(self.real()) &&
                                  std::floor(self.real()) == self.real());)},
};
const MethodRow kBytesMethods[] = {
    {"decode", "encoding=,errors=", LS_METHOD(return r.String(self.text());)},
};
#undef LS_METHOD

std::span<const MethodRow> MethodsOf(const Value& self, int part) {
  switch (self.kind()) {
    case Kind::kString:
      return part == 0 ? std::span(kStringMethods) : std::span<const MethodRow>();
    case Kind::kList:
      return part == 0 ? std::span(kSequenceMethods) : std::span<const MethodRow>(kListMethods);
    case Kind::kTuple:
      return part == 0 ? std::span(kSequenceMethods) : std::span<const MethodRow>();
    case Kind::kRange:
      return part == 0 ? std::span(kRangeMethods) : std::span<const MethodRow>();
    case Kind::kDict:
      return part == 0 ? std::span(kDictMethods) : std::span<const MethodRow>();
    case Kind::kBool:
    case Kind::kInt:
      return part == 0 ? std::span(kIntMethods) : std::span<const MethodRow>();
    case Kind::kFloat:
      return part == 0 ? std::span(kFloatMethods) : std::span<const MethodRow>();
    case Kind::kBytes:
      return part == 0 ? std::span(kBytesMethods) : std::span<const MethodRow>();
    default:
      return {};
  }
}

}  // namespace

std::vector<std::string_view> MethodNames(const Value& self) {
  std::vector<std::string_view> names;
  for (int part = 0; part < 2; ++part)
    for (const MethodRow& row : MethodsOf(self, part)) names.push_back(row.name);
  return names;
}

Expected<std::optional<Value>> FindMethod(Runtime& runtime, const Value& self,
                                          std::string_view name) {
  for (int part = 0; part < 2; ++part) {
    for (const MethodRow& row : MethodsOf(self, part)) {
      if (row.name != name) continue;
      const MethodRow* method = &row;
      LS_TRY(Value bound_method,
             MakeFunction(
                 runtime.budget(), std::string(name),
                 [&runtime, self, method](const Arguments& arguments) -> Expected<Value> {
                   Budget* budget = runtime.budget();
                   if (!ChargeCall(budget, self, method->work, arguments))
                     return tl::unexpected(budget->Error());
                   if (method->signature == "*")
                     return method->call(runtime, self, Bound(), arguments);
                   LS_TRY(const Bound bound,
                          Bound::Bind(method->name, method->signature, arguments));
                   return method->call(runtime, self, bound, arguments);
                 },
                 self));
      return std::optional<Value>(std::move(bound_method));
    }
  }
  return std::optional<Value>();
}

}  // namespace lockstep::jinja
