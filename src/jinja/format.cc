#include "jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/utf8.h"
#include "jinja/unicode.h"

namespace lockstep::jinja {

tl::unexpected<TemplateError> TooBig(Budget* budget) {
  return Raise(ErrorKind::kLimit, "the text would not fit in the memory allowed{}",
               budget->exhausted() ? " (or the steps are used up)" : "");
}

Expected<void> Room(const std::string& out, size_t more, Budget* budget) {
  if (!budget->ChargeText(more, Work::kCopy) || !budget->Fits(out.size() + more))
    return TooBig(budget);
  return {};
}

std::string FloatRepr(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  std::string out;
  if (text.front() == '-') {
    out += '-';
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits;
  for (const char c : text.substr(0, e))
    if (c != '.') digits += c;
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  // float.__repr__: fixed notation for 1e-4 <= |x| < 1e16.
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    out += fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out;
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string IntText(Int x) { return fmt::format("{}", x); }

void AppendHex(uint32_t value, int digits, std::string& out) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out += "0123456789abcdef"[(value >> shift) & 15];
}

std::string StringRepr(std::string_view text) {
  const char quote =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"'
                                                                                            : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = NextCodePoint(text, i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7F) {
      out += "\\x";
      AppendHex(static_cast<uint32_t>(c), 2, out);
    } else if (c < 0x7F || IsPrintable(c)) {
      out += text.substr(start, i - start);
    } else if (c <= 0xFF) {
      out += "\\x";
      AppendHex(static_cast<uint32_t>(c), 2, out);
    } else if (c <= 0xFFFF) {
      out += "\\u";
      AppendHex(static_cast<uint32_t>(c), 4, out);
    } else {
      out += "\\U";
      AppendHex(static_cast<uint32_t>(c), 8, out);
    }
  }
  return out + quote;
}

std::string Escape(std::string_view text, Budget* budget) {
  std::string out;
  if (!budget->ChargeText(text.size(), Work::kScan) || !budget->Fits(text.size())) return out;
  for (const char c : text) {
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
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

namespace {

Expected<void> AppendItems(const std::vector<Value>& items, Budget* budget, std::string& out) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out += ", ";
    first = false;
    LS_RETURN_IF_ERROR(Append(item, Style::kRepr, budget, out));
  }
  return {};
}

Expected<void> AppendDictView(const DictViewObject& view, Budget* budget, std::string& out) {
  out += "([";
  bool first = true;
  for (const auto& [key, value] : view.dict.dict().entries) {
    if (!first) out += ", ";
    first = false;
    if (view.view == ViewKind::kItems) out += '(';
    if (view.view != ViewKind::kValues) LS_RETURN_IF_ERROR(Append(key, Style::kRepr, budget, out));
    if (view.view == ViewKind::kItems) out += ", ";
    if (view.view != ViewKind::kKeys) LS_RETURN_IF_ERROR(Append(value, Style::kRepr, budget, out));
    if (view.view == ViewKind::kItems) out += ')';
  }
  out += "])";
  return {};
}

}  // namespace

Expected<void> Append(const Value& value, Style style, Budget* budget, std::string& out) {
  LS_RETURN_IF_ERROR(Room(out, 4, budget));
  switch (value.kind()) {
    case Kind::kUndefined:
      if (style == Style::kRepr) out += "Undefined";
      return {};
    case Kind::kNone:
      out += "None";
      return {};
    case Kind::kBool:
      out += value.truth() ? "True" : "False";
      return {};
    case Kind::kInt:
      out += IntText(value.integer());
      return {};
    case Kind::kFloat:
      out += FloatRepr(value.real());
      return {};
    case Kind::kString:
      LS_RETURN_IF_ERROR(Room(out, value.text().size(), budget));
      if (style == Style::kRepr && !budget->ChargeText(value.text().size(), Work::kCharacters))
        return TooBig(budget);
      if (style == Style::kStr) {
        out += value.text();
      } else if (value.markup()) {
        out += "Markup(" + StringRepr(value.text()) + ")";
      } else {
        out += StringRepr(value.text());
      }
      return {};
    case Kind::kBytes: {
      LS_RETURN_IF_ERROR(Room(out, value.text().size(), budget));
      if (!budget->ChargeText(value.text().size(), Work::kCharacters)) return TooBig(budget);
      const bool has_single = value.text().find('\'') != std::string::npos;
      const char quote = has_single && value.text().find('"') == std::string::npos ? '"' : '\'';
      out += 'b';
      out += quote;
      for (const char c : value.text()) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == quote || c == '\\') {
          out += '\\';
          out += c;
        } else if (c == '\n') {
          out += "\\n";
        } else if (c == '\r') {
          out += "\\r";
        } else if (c == '\t') {
          out += "\\t";
        } else if (byte < 0x20 || byte >= 0x7F) {
          out += "\\x";
          AppendHex(byte, 2, out);
        } else {
          out += c;
        }
      }
      out += quote;
      return {};
    }
    case Kind::kList:
      out += '[';
      LS_RETURN_IF_ERROR(AppendItems(value.items(), budget, out));
      out += ']';
      return {};
    case Kind::kTuple:
      out += '(';
      LS_RETURN_IF_ERROR(AppendItems(value.items(), budget, out));
      out += value.items().size() == 1 ? ",)" : ")";
      return {};
    case Kind::kDict: {
      out += '{';
      bool first = true;
      for (const auto& [key, item] : value.dict().entries) {
        if (!first) out += ", ";
        first = false;
        LS_RETURN_IF_ERROR(Append(key, Style::kRepr, budget, out));
        out += ": ";
        LS_RETURN_IF_ERROR(Append(item, Style::kRepr, budget, out));
      }
      out += '}';
      return {};
    }
    case Kind::kDictView:
      out += TypeName(value);
      return AppendDictView(value.As<DictViewObject>(), budget, out);
    case Kind::kRange: {
      const auto& range = value.As<RangeObject>();
      out += "range(" + IntText(range.start) + ", " + IntText(range.stop);
      if (range.step != 1) out += ", " + IntText(range.step);
      out += ')';
      return {};
    }
    case Kind::kGenerator:
      out += "<generator object>";
      return {};
    case Kind::kNamespace: {
      // Python prints <Namespace {...}>; a namespace may hold itself, so its items are left out.
      out += "<Namespace>";
      return {};
    }
    case Kind::kCycler:
      out += "<Cycler>";
      return {};
    case Kind::kFunction:
      out += "<function " + value.As<FunctionObject>().name + ">";
      return {};
    case Kind::kMacro:
    case Kind::kLoop:
      out += value.object()->Describe();
      return {};
  }
  return {};
}

Expected<std::string> Str(const Value& value, Budget* budget) {
  std::string out;
  LS_RETURN_IF_ERROR(Append(value, Style::kStr, budget, out));
  return out;
}
Expected<std::string> Repr(const Value& value, Budget* budget) {
  std::string out;
  LS_RETURN_IF_ERROR(Append(value, Style::kRepr, budget, out));
  return out;
}

}  // namespace lockstep::jinja
