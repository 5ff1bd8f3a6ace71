// The two ways of filling fields: the % operator and str.format.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/utf8.h"
#include "jinja/format.h"
#include "jinja/unicode.h"

namespace lockstep::jinja {
namespace {

// [[fill]align][sign][#][0][width][,_][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > = ^
  char sign = '-';
  bool alternate = false;
  char grouping = 0;
  int64_t width = -1;
  int64_t precision = -1;
  char type = 0;
};

Expected<int64_t> ReadNumber(std::string_view text, size_t& i) {
  int64_t n = -1;
  while (i < text.size() && text[i] >= '0' && text[i] <= '9') {
    n = (n < 0 ? 0 : n) * 10 + (text[i++] - '0');
    if (n > (int64_t{1} << 31)) return PythonError("Too many decimal digits in format string");
  }
  return n;
}

std::string Digits(unsigned __int128 magnitude, unsigned base, bool upper) {
  std::string out;
  do {
    out += (upper ? "0123456789ABCDEF" : "0123456789abcdef")[magnitude % base];
    magnitude /= base;
  } while (magnitude != 0);
  std::reverse(out.begin(), out.end());
  return out;
}
unsigned __int128 Magnitude(Int x) {
  return x < 0 ? -static_cast<unsigned __int128>(x) : static_cast<unsigned __int128>(x);
}

std::string PrintfDouble(double x, char type, int64_t precision, bool alternate) {
  // inf and nan are not zero-padded and follow the case of the type.
  if (!std::isfinite(x)) {
    std::string text = std::isnan(x) ? "nan" : "inf";
    if (type >= 'A' && type <= 'Z')
      std::transform(text.begin(), text.end(), text.begin(),
                     [](char c) { return static_cast<char>(c - 32); });
    return text;
  }
  const std::string format = fmt::format("%{}.*{}", alternate ? "#" : "", type);
  const int digits = static_cast<int>(std::min<int64_t>(precision < 0 ? 6 : precision, 100000));
  const int size = std::snprintf(nullptr, 0, format.c_str(), digits, std::fabs(x));
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), format.c_str(), digits, std::fabs(x));
  out.pop_back();
  return out;
}

std::string Group(std::string_view digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

Expected<std::string> Pad(std::string_view sign, std::string_view body, const Spec& spec,
                          char default_align, Budget* budget) {
  const size_t length = CountCodePoints(sign) + CountCodePoints(body);
  const size_t width = spec.width < 0 ? 0 : static_cast<size_t>(spec.width);
  const size_t missing = width > length ? width - length : 0;
  if (!budget->ChargeText(missing + body.size(), Work::kScan) || !budget->Fits(missing * 4))
    return TooBig(budget);
  const char align = spec.align ? spec.align : default_align;
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  const auto fill = [&](size_t n) {
    for (size_t i = 0; i < n; ++i) out += spec.fill;
  };
  if (align == '=') out += sign;
  fill(left);
  if (align != '=') out += sign;
  out += body;
  fill(missing - left);
  return out;
}

Expected<Spec> ParseSpec(std::string_view text) {
  Spec spec;
  size_t i = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  if (!text.empty()) {
    size_t after = 0;
    NextCodePoint(text, after);
    if (after < text.size() && is_align(text[after])) {
      spec.fill = text.substr(0, after);
      spec.align = text[after];
      i = after + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      i = 1;
    }
  }
  if (i < text.size() && (text[i] == '+' || text[i] == '-' || text[i] == ' '))
    spec.sign = text[i++];
  if (i < text.size() && text[i] == '#') {
    spec.alternate = true;
    ++i;
  }
  if (i < text.size() && text[i] == '0') {
    if (!spec.align) {
      spec.fill = "0";
      spec.align = '=';
    }
    ++i;
  }
  LS_TRY(spec.width, ReadNumber(text, i));
  if (i < text.size() && (text[i] == ',' || text[i] == '_')) spec.grouping = text[i++];
  if (i < text.size() && text[i] == '.') {
    ++i;
    LS_TRY(spec.precision, ReadNumber(text, i));
    if (spec.precision < 0) return PythonError("Format specifier missing precision");
  }
  if (i < text.size()) spec.type = text[i++];
  if (i < text.size()) return PythonError("Invalid format specifier '{}'", text);
  return spec;
}

std::string SignOf(bool negative, char sign) {
  if (negative) return "-";
  return sign == '+' ? "+" : sign == ' ' ? " " : "";
}

Expected<std::string> FormatInteger(Int x, const Spec& spec, Budget* budget) {
  std::string body, prefix;
  size_t every = 3;
  if (spec.precision >= 0) return PythonError("Precision not allowed in integer format specifier");
  switch (spec.type) {
    case 0:
    case 'd':
    case 'n':
      body = Digits(Magnitude(x), 10, false);
      break;
    case 'x':
    case 'X':
      body = Digits(Magnitude(x), 16, spec.type == 'X');
      if (spec.alternate) prefix = spec.type == 'x' ? "0x" : "0X";
      every = 4;
      break;
    case 'o':
      body = Digits(Magnitude(x), 8, false);
      if (spec.alternate) prefix = "0o";
      every = 4;
      break;
    case 'b':
      body = Digits(Magnitude(x), 2, false);
      if (spec.alternate) prefix = "0b";
      every = 4;
      break;
    case 'c':
      if (x < 0 || x > 0x10FFFF || (x >= 0xD800 && x < 0xE000))
        return PythonError("%c arg not in range(0x110000)");
      AppendUtf8(static_cast<char32_t>(x), body);
      return Pad("", body, spec, '<', budget);
    default:
      return PythonError("Unknown format code '{}' for object of type 'int'", spec.type);
  }
  if (spec.grouping) body = Group(body, spec.grouping, every);
  return Pad(SignOf(x < 0, spec.sign) + prefix, body, spec, '>', budget);
}

// snprintf's time grows with the digits asked for.
Expected<void> ChargeDigits(int64_t precision, Budget* budget) {
  const int64_t digits = std::min<int64_t>(std::max<int64_t>(precision, 0), 100000);
  if (!budget->ChargeText(static_cast<uint64_t>(digits) + 16, Work::kHeavy)) return TooBig(budget);
  return {};
}

Expected<std::string> FormatDouble(double x, const Spec& spec, Budget* budget) {
  LS_RETURN_IF_ERROR(ChargeDigits(spec.precision, budget));
  std::string body;
  switch (spec.type) {
    case 0:
      if (spec.precision < 0) {
        body = FloatRepr(std::fabs(x));
      } else {  // like g, but with at least one digit past the point
        body = PrintfDouble(x, 'g', std::max<int64_t>(spec.precision, 1), spec.alternate);
        if (std::isfinite(x) && body.find_first_of(".e") == std::string::npos) {
          if (static_cast<int64_t>(body.size()) < std::max<int64_t>(spec.precision, 1)) {
            body += ".0";
          } else {
            body = PrintfDouble(x, 'e', std::max<int64_t>(spec.precision - 1, 0), false);
          }
        }
      }
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      body = PrintfDouble(x, spec.type, spec.precision, spec.alternate);
      break;
    case 'n':
      body = PrintfDouble(x, 'g', spec.precision, spec.alternate);
      break;
    case '%':
      body = PrintfDouble(x * 100, 'f', spec.precision, spec.alternate) + "%";
      break;
    default:
      return PythonError("Unknown format code '{}' for object of type 'float'", spec.type);
  }
  if (spec.grouping) {
    const size_t end = std::min(body.find_first_not_of("0123456789"), body.size());
    body = Group(body.substr(0, end), spec.grouping, 3) + body.substr(end);
  }
  return Pad(SignOf(std::signbit(x) && !std::isnan(x), spec.sign), body, spec, '>', budget);
}

}  // namespace

Expected<std::string> FormatValue(const Value& value, std::string_view text, Budget* budget) {
  if (text.empty()) return Str(value, budget);
  LS_TRY(Spec spec, ParseSpec(text));
  const bool float_type =
      spec.type && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is(Kind::kFloat) || (value.is_integral() && float_type))
    return FormatDouble(value.real(), spec, budget);
  if (value.is(Kind::kInt) || (value.is(Kind::kBool) && spec.type))
    return FormatInteger(value.integer(), spec, budget);
  if (value.is(Kind::kBool)) return FormatInteger(value.integer(), spec, budget);
  if (!value.is_string())
    return PythonError("unsupported format string passed to {}.__format__", TypeName(value));
  if (spec.type && spec.type != 's')
    return PythonError("Unknown format code '{}' for object of type 'str'", spec.type);
  if (spec.align == '=' && text.front() != '0')
    return PythonError("'=' alignment not allowed in string format specifier");
  if (spec.align == '=') spec.align = '<';  // '{:05}' of a string
  std::string_view body = value.text();
  if (!budget->ChargeText(body.size(), Work::kScan)) return TooBig(budget);
  if (spec.precision >= 0)
    body = body.substr(0, ByteOffset(body, static_cast<size_t>(spec.precision)));
  return Pad("", body, spec, '<', budget);
}

Expected<std::string> PercentFormat(std::string_view format, const Value& arguments,
                                    Budget* budget) {
  if (!budget->ChargeText(format.size(), Work::kScan)) return TooBig(budget);
  std::string out;
  size_t used = 0;
  const bool tuple = arguments.is(Kind::kTuple);
  const size_t available = tuple ? arguments.items().size() : 1;
  const auto next = [&]() -> Expected<Value> {
    if (used >= available) return PythonError("not enough arguments for format string");
    ++used;
    return tuple ? arguments.items()[used - 1] : arguments;
  };
  bool by_key = false;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    LS_RETURN_IF_ERROR(Room(out, 1, budget));
    if (++i == format.size()) return PythonError("incomplete format");
    std::optional<Value> value;
    if (format[i] == '(') {
      int nesting = 1;
      const size_t start = ++i;
      while (i < format.size() && nesting > 0) {
        if (format[i] == '(') ++nesting;
        if (format[i] == ')') --nesting;
        ++i;
      }
      if (nesting > 0) return PythonError("incomplete format key");
      if (!arguments.is(Kind::kDict)) return PythonError("format requires a mapping");
      const std::string_view key = format.substr(start, i - 1 - start);
      const Value* found = arguments.dict().Find(key);
      if (!found) return PythonError("{}", StringRepr(key));
      value = *found;
      by_key = true;
      if (i == format.size()) return PythonError("incomplete format");
    }
    Spec spec;
    bool left = false, zero = false;
    spec.sign = '-';
    for (; i < format.size(); ++i) {
      if (format[i] == '-') {
        left = true;
      } else if (format[i] == '+') {
        spec.sign = '+';
      } else if (format[i] == ' ') {
        if (spec.sign != '+') spec.sign = ' ';
      } else if (format[i] == '#') {
        spec.alternate = true;
      } else if (format[i] == '0') {
        zero = true;
      } else {
        break;
      }
    }
    const auto star = [&](int64_t& target) -> Expected<void> {
      LS_TRY(const Value n, next());
      if (!n.is_integral()) return PythonError("* wants int");
      if (n.integer() > (Int{1} << 31) || n.integer() < -(Int{1} << 31))
        return PythonError("Python int too large to convert to C int");
      target = static_cast<int64_t>(n.integer());
      return {};
    };
    if (i < format.size() && format[i] == '*') {
      ++i;
      LS_RETURN_IF_ERROR(star(spec.width));
      if (spec.width < 0) {
        left = true;
        spec.width = -spec.width;
      }
    } else {
      LS_TRY(spec.width, ReadNumber(format, i));
    }
    if (i < format.size() && format[i] == '.') {
      ++i;
      if (i < format.size() && format[i] == '*') {
        ++i;
        LS_RETURN_IF_ERROR(star(spec.precision));
      } else {
        LS_TRY(spec.precision, ReadNumber(format, i));
      }
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    while (i < format.size() && (format[i] == 'l' || format[i] == 'h' || format[i] == 'L')) ++i;
    if (i == format.size()) return PythonError("incomplete format");
    const char type = format[i];
    if (type == '%' && format[i - 1] == '%') {  // with flags or a width it would take an argument
      out += '%';
      continue;
    }
    if (!value) {
      LS_TRY(value, next());
    }
    spec.type = type;
    if (zero && !left && type != 's' && type != 'r' && type != 'a' && type != 'c') {
      spec.fill = "0";
      spec.align = '=';
    } else {
      spec.align = left ? '<' : '>';
    }
    std::string field;
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        std::string text;
        LS_RETURN_IF_ERROR(Append(*value, type == 's' ? Style::kStr : Style::kRepr, budget, text));
        std::string_view body = text;
        if (!budget->ChargeText(body.size(), Work::kScan)) return TooBig(budget);
        if (spec.precision >= 0)
          body = body.substr(0, ByteOffset(body, static_cast<size_t>(spec.precision)));
        LS_TRY(field, Pad("", body, spec, '>', budget));
        break;
      }
      case 'c': {
        if (value->is_integral()) {
          LS_TRY(field, FormatInteger(value->integer(), spec, budget));
        } else if (value->is_string() && CodePoints(*value) == 1) {
          LS_TRY(field, Pad("", value->text(), spec, '>', budget));
        } else {
          return PythonError("%c requires int or char");
        }
        break;
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        if (value->is_undefined()) return tl::unexpected(UndefinedError(*value));
        if (!value->is_number())
          return PythonError("%{} format: a real number is required, not {}", type,
                             TypeName(*value));
        Int n = 0;
        if (value->is(Kind::kFloat)) {
          if (type != 'd' && type != 'i' && type != 'u')
            return PythonError("%{} format: an integer is required, not float", type);
          if (!(std::fabs(value->real()) < 1e38))
            return PythonError("cannot convert float infinity to integer");
          n = static_cast<Int>(value->real());
        } else {
          n = value->integer();
        }
        std::string digits = Digits(Magnitude(n),
                                    type == 'o'                  ? 8
                                    : type == 'x' || type == 'X' ? 16
                                                                 : 10,
                                    type == 'X');
        if (spec.precision > static_cast<int64_t>(digits.size())) {
          const size_t zeros = static_cast<size_t>(spec.precision) - digits.size();
          if (!budget->ChargeText(zeros, Work::kCopy) || !budget->Fits(zeros))
            return TooBig(budget);
          digits.insert(0, zeros, '0');
        }
        std::string sign = SignOf(n < 0, spec.sign);
        if (spec.alternate && type == 'o') sign += "0o";
        if (spec.alternate && (type == 'x' || type == 'X')) sign += type == 'x' ? "0x" : "0X";
        LS_TRY(field, Pad(sign, digits, spec, '>', budget));
        break;
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (value->is_undefined()) return tl::unexpected(UndefinedError(*value));
        if (!value->is_number())
          return PythonError("must be real number, not {}", TypeName(*value));
        const double x = value->real();
        LS_RETURN_IF_ERROR(ChargeDigits(spec.precision, budget));
        LS_TRY(field,
               Pad(SignOf(std::signbit(x) && !std::isnan(x), spec.sign),
                   PrintfDouble(x, type, spec.precision, spec.alternate), spec, '>', budget));
        break;
      }
      default:
        return PythonError("unsupported format character '{}' (0x{:x}) at index {}", type,
                           static_cast<unsigned char>(type), i);
    }
    LS_RETURN_IF_ERROR(Room(out, field.size(), budget));
    out += field;
  }
  if (used < available && !by_key && !arguments.is(Kind::kDict) && !arguments.is(Kind::kList) &&
      !arguments.is(Kind::kRange) && !arguments.is_undefined())
    return PythonError("not all arguments converted during string formatting");
  if (tuple && used < available)
    return PythonError("not all arguments converted during string formatting");
  return out;
}

namespace {

// One field: name, conversion and spec, which may hold fields itself (once).
Expected<std::string> FormatFields(std::string_view format, const Arguments& arguments,
                                   const Lookup& lookup, Budget* budget, int& automatic,
                                   int level) {
  if (level > 3) return PythonError("Max string recursion exceeded");
  if (!budget->ChargeText(format.size(), Work::kScan)) return TooBig(budget);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c == '}') {
      if (i + 1 < format.size() && format[i + 1] == '}') {
        out += '}';
        ++i;
        continue;
      }
      return PythonError("Single '}}' encountered in format string");
    }
    if (c != '{') {
      out += c;
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == '{') {
      out += '{';
      ++i;
      continue;
    }
    const size_t start = ++i;
    int nesting = 1;
    while (i < format.size()) {
      if (format[i] == '{') ++nesting;
      if (format[i] == '}' && --nesting == 0) break;
      ++i;
    }
    if (i >= format.size())
      return start == format.size() ? PythonError("Single '{{' encountered in format string")
                                    : PythonError("expected '}}' before end of string");
    const std::string_view field = format.substr(start, i - start);
    size_t end = 0;  // of the name; brackets may hold ! and :
    for (int brackets = 0; end < field.size(); ++end) {
      if (field[end] == '[') brackets = 1;
      if (field[end] == ']') brackets = 0;
      if (!brackets && (field[end] == '!' || field[end] == ':')) break;
    }
    const std::string_view path = field.substr(0, end);
    char conversion = 0;
    std::string_view spec_text;
    if (end < field.size() && field[end] == '!') {
      if (end + 1 >= field.size())
        return PythonError("end of string while looking for conversion specifier");
      conversion = field[end + 1];
      end += 2;
      if (end < field.size() && field[end] != ':')
        return PythonError("expected ':' after conversion specifier");
    }
    if (end < field.size()) spec_text = field.substr(end + 1);

    size_t p = std::min(path.find_first_of(".["), path.size());
    std::string_view name = path.substr(0, p);
    Value value;
    std::string number;
    if (name.empty()) {
      if (automatic < 0)
        return PythonError(
            "cannot switch from manual field specification to automatic field numbering");
      number = std::to_string(automatic++);
      name = number;
    } else if (name.find_first_not_of("0123456789") == std::string_view::npos) {
      if (automatic > 0)
        return PythonError(
            "cannot switch from automatic field numbering to manual field specification");
      automatic = -1;
    }
    if (name.find_first_not_of("0123456789") == std::string_view::npos) {
      if (name.size() > 9 || std::stoul(std::string(name)) >= arguments.positional.size())
        return PythonError("Replacement index {} out of range for positional args tuple", name);
      value = arguments.positional[std::stoul(std::string(name))];
    } else {
      if (!budget->ChargeItems(arguments.named.size() / 8)) return TooBig(budget);
      const auto it = std::find_if(arguments.named.begin(), arguments.named.end(),
                                   [&](const auto& entry) { return entry.first == name; });
      if (it == arguments.named.end()) return PythonError("{}", StringRepr(name));
      value = it->second;
    }
    while (p < path.size()) {
      if (!budget->Step()) return TooBig(budget);
      if (path[p] == '.') {
        const size_t stop = std::min(path.find_first_of(".[", p + 1), path.size());
        if (stop == p + 1) return PythonError("Empty attribute in format string");
        LS_TRY(
            value,
            lookup(value, MakeString(budget, std::string(path.substr(p + 1, stop - p - 1))), true));
        p = stop;
      } else if (path[p] == '[') {
        const size_t stop = path.find(']', p);
        if (stop == std::string_view::npos) return PythonError("Missing ']' in format string");
        const std::string_view key = path.substr(p + 1, stop - p - 1);
        if (key.empty()) return PythonError("Empty attribute in format string");
        const bool index =
            key.find_first_not_of("0123456789") == std::string_view::npos && key.size() < 18;
        LS_TRY(value, lookup(value,
                             index ? Value::Integer(std::stoll(std::string(key)))
                                   : MakeString(budget, std::string(key)),
                             false));
        p = stop + 1;
      } else {
        return PythonError("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    if (conversion == 'r' || conversion == 'a') {
      LS_TRY(std::string text, Repr(value, budget));
      value = MakeString(budget, std::move(text));
    } else if (conversion == 's') {
      LS_TRY(std::string text, Str(value, budget));
      value = MakeString(budget, std::move(text));
    } else if (conversion) {
      return PythonError("Unknown conversion specifier '{}'", conversion);
    }
    LS_TRY(const std::string spec,
           FormatFields(spec_text, arguments, lookup, budget, automatic, level + 1));
    LS_TRY(const std::string text, FormatValue(value, spec, budget));
    LS_RETURN_IF_ERROR(Room(out, text.size(), budget));
    out += text;
  }
  return out;
}

}  // namespace

Expected<std::string> FormatString(std::string_view format, const Arguments& arguments,
                                   const Lookup& lookup, Budget* budget) {
  int automatic = 0;
  return FormatFields(format, arguments, lookup, budget, automatic, 1);
}

}  // namespace lockstep::jinja
