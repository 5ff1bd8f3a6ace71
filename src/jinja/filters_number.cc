// Filters that give numbers, and those about a single value.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "jinja/filters.h"
#include "jinja/format.h"

namespace lockstep::jinja {
namespace {

Expected<Value> Abs(Runtime&, const Value& value, const Bound&, const Arguments&) {
  if (value.is(Kind::kFloat)) return Value::Float(std::fabs(value.real()));
  if (!value.is_integral()) return PythonError("bad operand type for abs(): '{}'", TypeName(value));
  return Value::Integer(value.integer() < 0 ? -value.integer() : value.integer());
}

Expected<Value> IntFilter(Runtime&, const Value& value, const Bound& bound, const Arguments&) {
  if (value.is_undefined()) return tl::unexpected(UndefinedError(value));
  LS_TRY(const int64_t base, bound.Integer(1, 10));
  if (value.is_integral()) return Value::Integer(value.integer());
  std::optional<double> real;
  if (value.is_string()) {
    if (base >= 0 && base <= 36)
      if (const auto integer = ParseInt(value.text(), static_cast<int>(base)))
        return Value::Integer(*integer);
    real = ParseFloat(value.text());
    if (real && std::isinf(*real)) real.reset();
  } else if (value.is(Kind::kFloat)) {
    real = value.real();
    if (std::isinf(*real)) return PythonError("cannot convert float infinity to integer");
  }
  if (!real || std::isnan(*real)) return bound.Or(0, Value::Integer(0));
  if (std::fabs(*real) >= 0x1p126)
    return Raise(ErrorKind::kLimit, "an integer grew beyond 127 bits");
  return Value::Integer(static_cast<Int>(*real));
}

Expected<Value> FloatFilter(Runtime&, const Value& value, const Bound& bound, const Arguments&) {
  if (value.is_undefined()) return tl::unexpected(UndefinedError(value));
  if (value.is_number()) return Value::Float(value.real());
  if (value.is_string())
    if (const auto real = ParseFloat(value.text())) return Value::Float(*real);
  return bound.Or(0, Value::Float(0));
}

// round(x, digits) as CPython: the decimal nearest to the exact value, ties to even.
double RoundTo(double x, int64_t digits) {
  if (!std::isfinite(x) || digits > 323) return x;
  if (digits < -308) return std::copysign(0.0, x);
  if (digits >= 0) {
    char text[800];
    std::snprintf(text, sizeof text, "%.*f", static_cast<int>(digits), x);
    return std::strtod(text, nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  double rounded = std::round(x / scale);
  if (std::fabs(x / scale - rounded) == 0.5) rounded = 2.0 * std::round(x / scale / 2.0);
  return rounded * scale;
}

Expected<Value> Round(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  LS_TRY(const std::string method, bound.Text(1, "common"));
  if (method != "common" && method != "ceil" && method != "floor")
    return Raise(ErrorKind::kTemplateRuntime, "method must be common, ceil or floor");
  LS_TRY(const int64_t digits, bound.Integer(0, 0));
  if (method == "common") {
    if (value.is(Kind::kFloat)) return Value::Float(RoundTo(value.real(), digits));
    if (!value.is_integral())
      return PythonError("type {} doesn't define __round__ method", TypeName(value));
    if (digits >= 0) return Value::Integer(value.integer());
    if (digits < -37) return Value::Integer(0);
    Int scale = 1;
    for (int64_t i = 0; i < -digits; ++i) scale *= 10;
    const Int n = value.integer();
    Int quotient = n / scale, rest = n % scale;
    if (rest < 0) {
      rest += scale;
      quotient -= 1;
    }
    if (rest * 2 > scale || (rest * 2 == scale && quotient % 2 != 0)) quotient += 1;
    return Value::Integer(quotient * scale);
  }
  LS_TRY(const Value scale, BinaryOp(r, 'p', Value::Integer(10), Value::Integer(digits)));
  LS_TRY(const Value scaled, BinaryOp(r, '*', value, scale));
  if (!scaled.is_number()) return PythonError("must be real number, not {}", TypeName(scaled));
  Value whole = scaled;
  if (scaled.is(Kind::kFloat)) {
    if (!std::isfinite(scaled.real()))
      return PythonError("cannot convert float infinity or NaN to integer");
    const double rounded = method == "ceil" ? std::ceil(scaled.real()) : std::floor(scaled.real());
    // math.ceil gives an int; past 2^126 the double itself is the integer.
    whole = std::fabs(rounded) < 0x1p126 ? Value::Integer(static_cast<Int>(rounded))
                                         : Value::Float(rounded);
  }
  return BinaryOp(r, '/', whole, scale);
}

Expected<Value> FileSizeFormat(Runtime& r, const Value& value, const Bound& bound,
                               const Arguments&) {
  std::optional<double> bytes;
  if (value.is_undefined()) return tl::unexpected(UndefinedError(value));
  if (value.is_number()) bytes = value.real();
  if (value.is_string()) bytes = ParseFloat(value.text());
  if (!bytes) return PythonError("could not convert {} to float", TypeName(value));
  const bool binary = bound.Flag(0);
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return r.String("1 Byte");
  if (!std::isfinite(*bytes)) return PythonError("cannot convert float infinity to integer");
  if (*bytes < base) return r.String(fmt::format("{} Bytes", static_cast<int64_t>(*bytes)));
  static constexpr char kPrefixes[] = {'k', 'M', 'G', 'T', 'P', 'E', 'Z', 'Y'};
  double unit = base;
  char prefix = kPrefixes[0];
  for (const char letter : kPrefixes) {
    unit *= base;
    prefix = letter;
    if (*bytes < unit) break;
  }
  if (binary && prefix == 'k') prefix = 'K';
  return r.String(fmt::format("{:.1f} {}{}", base * *bytes / unit, prefix, binary ? "iB" : "B"));
}

Expected<Value> Default(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  if (value.is_undefined() || (bound.Flag(1) && !Truth(value))) return bound.Or(0, r.String(""));
  return value;
}

// The attribute alone, never the item: 'a' | attr('upper').
Expected<Value> Attr(Runtime& r, const Value& value, const Bound& bound, const Arguments&) {
  if (!bound[0].is_string())
    return PythonError("attribute name must be string, not '{}'", TypeName(bound[0]));
  if (value.is_undefined()) return tl::unexpected(UndefinedError(value));
  LS_TRY(const std::optional<Value> found, FindAttribute(r, value, bound[0].text()));
  if (found) return GetAttribute(r, value, bound[0]);
  return MakeUndefined(r.budget(), fmt::format("'{} object' has no attribute {}", TypeName(value),
                                               StringRepr(bound[0].text())));
}

constexpr FilterRow kRows[] = {
    {"abs", "", Abs},
    {"attr", "name", Attr, Work::kCopy},
    {"d", "default_value=,boolean=", Default, Work::kCopy},
    {"default", "default_value=,boolean=", Default, Work::kCopy},
    {"filesizeformat", "binary=", FileSizeFormat, Work::kHeavy},
    {"float", "default=", FloatFilter, Work::kHeavy},
    {"int", "default=,base=", IntFilter, Work::kHeavy},
    {"round", "precision=,method=", Round},
};

}  // namespace

std::span<const FilterRow> NumberFilters() { return kRows; }

}  // namespace lockstep::jinja
