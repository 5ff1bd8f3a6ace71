#include "jinja/runtime.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "jinja/filters.h"
#include "jinja/format.h"
#include "jinja/needle.h"
#include "jinja/unicode.h"

namespace lockstep::jinja {

Expected<void> Runtime::Reserve(uint64_t bytes) {
  if (!budget_.Fits(bytes) || !budget_.ChargeText(bytes, Work::kCopy)) {
    if (budget_.exhausted()) return tl::unexpected(budget_.Error());
    return Raise(ErrorKind::kLimit, "a value of {} bytes would not fit in the memory allowed",
                 bytes);
  }
  return {};
}

// --- iteration ---

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kBytes:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kGenerator:
      return true;
    default:
      return false;
  }
}

Expected<Iterator> Iterator::Over(const Value& iterable) {
  if (!IsIterable(iterable)) return PythonError("'{}' object is not iterable", TypeName(iterable));
  return Iterator(iterable);
}

Expected<bool> Iterator::Next(Runtime& runtime, Value* out) {
  Budget* budget = runtime.budget();
  if (!budget->Step()) return tl::unexpected(budget->Error());
  switch (source_.kind()) {
    case Kind::kString: {
      const std::string& text = source_.text();
      if (position_ >= text.size()) return false;
      const size_t start = position_;
      NextCodePoint(text, position_);
      *out = runtime.String(text.substr(start, position_ - start));
      return true;
    }
    case Kind::kBytes:
      if (position_ >= source_.text().size()) return false;
      *out = Value::Integer(static_cast<unsigned char>(source_.text()[position_++]));
      return true;
    case Kind::kList:
    case Kind::kTuple:
      if (position_ >= source_.items().size()) return false;
      *out = source_.items()[position_++];
      return true;
    case Kind::kDict:
      if (position_ >= source_.dict().entries.size()) return false;
      *out = source_.dict().entries[position_++].first;
      return true;
    case Kind::kDictView: {
      const auto& view = source_.As<DictViewObject>();
      const auto& entries = view.dict.dict().entries;
      if (position_ >= entries.size()) return false;
      const auto& [key, value] = entries[position_++];
      if (view.view == ViewKind::kKeys) {
        *out = key;
      } else if (view.view == ViewKind::kValues) {
        *out = value;
      } else {
        LS_TRY(*out, MakeList(budget, {key, value}, Kind::kTuple));
      }
      return true;
    }
    case Kind::kRange: {
      const auto& range = source_.As<RangeObject>();
      if (position_ >= range.length) return false;
      *out = range.at(position_++);
      return true;
    }
    case Kind::kGenerator: {
      auto& generator = source_.As<GeneratorObject>();
      if (generator.done) return false;
      LS_TRY(const bool more, generator.next(out));
      if (!more) generator.done = true;
      return more;
    }
    default:
      return false;
  }
}

Expected<std::vector<Value>> ToVector(Runtime& runtime, const Value& iterable) {
  if (iterable.is_sequence()) {
    LS_RETURN_IF_ERROR(runtime.Reserve(iterable.items().size() * sizeof(Value)));
    if (!runtime.budget()->ChargeItems(iterable.items().size()))
      return tl::unexpected(runtime.budget()->Error());
    return iterable.items();
  }
  LS_TRY(Iterator iterator, Iterator::Over(iterable));
  std::vector<Value> items;
  for (Value item;;) {
    LS_TRY(const bool more, iterator.Next(runtime, &item));
    if (!more) return items;
    if (!runtime.budget()->Fits((items.size() + 1) * sizeof(Value)))
      return Raise(ErrorKind::kLimit, "a list would not fit in the memory allowed");
    items.push_back(std::move(item));
  }
}

// --- arithmetic ---

namespace {

tl::unexpected<TemplateError> Overflow() {
  return Raise(ErrorKind::kLimit, "an integer grew beyond 127 bits");
}

Expected<Value> IntegerOp(char op, Int a, Int b) {
  Int out = 0;
  switch (op) {
    case '+':
      if (__builtin_add_overflow(a, b, &out)) return Overflow();
      return Value::Integer(out);
    case '-':
      if (__builtin_sub_overflow(a, b, &out)) return Overflow();
      return Value::Integer(out);
    case '*':
      if (__builtin_mul_overflow(a, b, &out)) return Overflow();
      return Value::Integer(out);
    case '/':
      if (b == 0) return PythonError("division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case 'f':
    case '%': {
      if (b == 0) return PythonError("integer division or modulo by zero");
      if (b == -1) {  // the one quotient that may overflow
        if (op == '%') return Value::Integer(0);
        if (__builtin_sub_overflow(Int{0}, a, &out)) return Overflow();
        return Value::Integer(out);
      }
      Int quotient = a / b;
      Int remainder = a % b;
      if (remainder != 0 && (remainder < 0) != (b < 0)) {
        quotient -= 1;
        remainder += b;
      }
      return Value::Integer(op == 'f' ? quotient : remainder);
    }
    default: {  // power
      if (b < 0) {
        if (a == 0) return PythonError("0.0 cannot be raised to a negative power");
        return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)));
      }
      Int result = 1, base = a;
      for (Int e = b; e > 0; e >>= 1) {
        if ((e & 1) && __builtin_mul_overflow(result, base, &result)) return Overflow();
        if (e > 1 && __builtin_mul_overflow(base, base, &base)) return Overflow();
      }
      return Value::Integer(result);
    }
  }
}

Expected<Value> FloatOp(char op, double a, double b) {
  switch (op) {
    case '+':
      return Value::Float(a + b);
    case '-':
      return Value::Float(a - b);
    case '*':
      return Value::Float(a * b);
    case '/':
      if (b == 0) return PythonError("float division by zero");
      return Value::Float(a / b);
    case 'f':
    case '%': {
      if (b == 0)
        return PythonError("{}", op == 'f' ? "float floor division by zero" : "float modulo");
      double mod = std::fmod(a, b);
      double div = (a - mod) / b;
      if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
          mod += b;
          div -= 1;
        }
      } else {
        mod = std::copysign(0.0, b);
      }
      if (op == '%') return Value::Float(mod);
      if (div == 0) return Value::Float(std::copysign(0.0, a / b));
      double floored = std::floor(div);
      if (div - floored > 0.5) floored += 1;
      return Value::Float(floored);
    }
    default: {
      if (a == 0 && b < 0) return PythonError("0.0 cannot be raised to a negative power");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
        return PythonError("complex numbers are not supported");
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
        return PythonError("(34, 'Numerical result out of range')");
      return Value::Float(result);
    }
  }
}

std::string_view OpText(char op) {
  switch (op) {
    case 'f':
      return "//";
    case 'p':
      return "** or pow()";
    case '+':
      return "+";
    case '-':
      return "-";
    case '*':
      return "*";
    case '/':
      return "/";
    default:
      return "%";
  }
}

Expected<Value> Repeat(Runtime& runtime, const Value& sequence, Int times) {
  if (times < 0) times = 0;
  const size_t size =
      sequence.is_sequence() ? sequence.items().size() * sizeof(Value) : sequence.text().size();
  const Int total = size == 0 ? 0
                              : (times > (Int{1} << 62) / static_cast<Int>(size)
                                     ? (Int{1} << 62)
                                     : times * static_cast<Int>(size));
  LS_RETURN_IF_ERROR(runtime.Reserve(static_cast<uint64_t>(total)));
  if (size == 0) times = 0;
  if (sequence.is_sequence()) {
    std::vector<Value> items;
    items.reserve(static_cast<size_t>(times) * sequence.items().size());
    for (Int i = 0; i < times; ++i)
      items.insert(items.end(), sequence.items().begin(), sequence.items().end());
    return MakeList(runtime.budget(), std::move(items), sequence.kind());
  }
  std::string text;
  text.reserve(static_cast<size_t>(total));
  for (Int i = 0; i < times; ++i) text += sequence.text();
  return runtime.String(std::move(text)).AsMarkup(sequence.markup());
}

// What Markup % x does: every text among the arguments is escaped.
Expected<Value> EscapeArgument(Runtime& runtime, const Value& value) {
  if (value.is_string() && !value.markup())
    return runtime.String(Escape(value.text(), runtime.budget()));
  return value;
}

}  // namespace

Expected<Value> UnaryOp(Runtime&, char op, const Value& a) {
  if (op == '!') return Value::Bool(!Truth(a));
  if (a.is_undefined()) return tl::unexpected(UndefinedError(a));
  if (a.is(Kind::kFloat)) return op == '-' ? Value::Float(-a.real()) : a;
  if (!a.is_integral()) return PythonError("bad operand type for unary {}: '{}'", op, TypeName(a));
  return op == '-' ? IntegerOp('-', 0, a.integer()) : Value::Integer(a.integer());
}

Expected<Value> BinaryOp(Runtime& runtime, char op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return IntegerOp(op, a.integer(), b.integer());
    return FloatOp(op, a.real(), b.real());
  }
  if (a.is_string() && op == '%') {  // str.__mod__ comes first, even for an undefined argument
    Value arguments = b;
    if (a.markup()) {
      if (b.is(Kind::kTuple)) {
        std::vector<Value> items;
        for (const Value& item : b.items()) {
          LS_TRY(Value escaped, EscapeArgument(runtime, item));
          items.push_back(std::move(escaped));
        }
        LS_TRY(arguments, MakeList(runtime.budget(), std::move(items), Kind::kTuple));
      } else {
        LS_TRY(arguments, EscapeArgument(runtime, b));
      }
    }
    LS_TRY(std::string text, PercentFormat(a.text(), arguments, runtime.budget()));
    return runtime.String(std::move(text)).AsMarkup(a.markup());
  }
  if (a.is_undefined()) return tl::unexpected(UndefinedError(a));
  if (b.is_undefined()) return tl::unexpected(UndefinedError(b));
  if (op == '+' && a.is_string() && b.is_string()) {
    LS_RETURN_IF_ERROR(runtime.Reserve(a.text().size() + b.text().size()));
    if (a.markup() == b.markup()) return runtime.String(a.text() + b.text()).AsMarkup(a.markup());
    return runtime
        .String((a.markup() ? a.text() : Escape(a.text(), runtime.budget())) +
                (b.markup() ? b.text() : Escape(b.text(), runtime.budget())))
        .AsMarkup();
  }
  if (op == '+' && a.is_sequence() && a.kind() == b.kind()) {
    LS_RETURN_IF_ERROR(runtime.Reserve((a.items().size() + b.items().size()) * sizeof(Value)));
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return MakeList(runtime.budget(), std::move(items), a.kind());
  }
  if (op == '*') {
    const bool a_repeats = a.is_sequence() || a.is_string();
    const bool b_repeats = b.is_sequence() || b.is_string();
    if (a_repeats && b.is_integral()) return Repeat(runtime, a, b.integer());
    if (b_repeats && a.is_integral()) return Repeat(runtime, b, a.integer());
    if (a_repeats || b_repeats)
      return PythonError("can't multiply sequence by non-int of type '{}'",
                         TypeName(a_repeats ? b : a));
  }
  if (op == '+' && (a.is_string() || a.is_sequence()))
    return PythonError("can only concatenate {} (not \"{}\") to {}", TypeName(a), TypeName(b),
                       TypeName(a));
  return PythonError("unsupported operand type(s) for {}: '{}' and '{}'", OpText(op), TypeName(a),
                     TypeName(b));
}

Expected<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  Budget* budget = runtime.budget();
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string())
        return PythonError("'in <string>' requires string as left operand, not {}", TypeName(item));
      {
        LS_TRY(const Needle needle, Needle::Make(runtime, item.text(), container.text()));
        return needle.Find(container.text()) != std::string::npos;
      }
    case Kind::kDict: {
      LS_TRY([[maybe_unused]] const size_t hashable, Hash(item, budget));
      return container.dict().Find(item, budget) != nullptr;
    }
    default:
      break;
  }
  if (!IsIterable(container))
    return PythonError("argument of type '{}' is not iterable", TypeName(container));
  LS_TRY(Iterator iterator, Iterator::Over(container));
  for (Value value;;) {
    LS_TRY(const bool more, iterator.Next(runtime, &value));
    if (!more) return false;
    if (Equal(value, item, budget)) return true;
  }
}

Expected<Value> Slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                      const Value& step) {
  if (object.is_undefined()) return tl::unexpected(UndefinedError(object));
  for (const Value* bound : {&start, &stop, &step})
    if (!bound->is_none() && !bound->is_integral())
      return PythonError("slice indices must be integers or None or have an __index__ method");
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange) &&
      !object.is(Kind::kBytes)) {
    if (object.is(Kind::kDict)) return PythonError("unhashable type: 'slice'");
    return PythonError("'{}' object is not subscriptable", TypeName(object));
  }
  LS_TRY(const int64_t length, Length(object));
  const Int n = length;
  Int by = step.is_none() ? Int{1} : step.integer();
  if (by == 0) return PythonError("slice step cannot be zero");
  by = std::clamp<Int>(by, -(n + 1), n + 1);  // larger steps change nothing
  const auto place = [&](const Value& bound, Int fallback) -> Int {
    if (bound.is_none()) return fallback;
    Int i = bound.integer();
    if (i < 0) i = i < -n ? Int{-1} : i + n;
    if (i < 0) return by < 0 ? -1 : 0;
    if (i >= n) return by < 0 ? n - 1 : n;
    return i;
  };
  const Int first = place(start, by < 0 ? n - 1 : 0);
  const Int last = place(stop, by < 0 ? -1 : n);
  Int count = by > 0 ? (last - first + by - 1) / by : (first - last - by - 1) / -by;
  if ((by > 0 && last <= first) || (by < 0 && last >= first)) count = 0;
  LS_RETURN_IF_ERROR(
      runtime.Reserve(static_cast<uint64_t>(count) * (object.is_sequence() ? sizeof(Value) : 4)));
  if (object.is(Kind::kRange)) {
    const auto& range = object.As<RangeObject>();
    const Int begin = range.start + first * range.step;
    return Value(Kind::kRange, std::make_shared<RangeObject>(
                                   runtime.budget(), begin, range.step * by,
                                   static_cast<size_t>(count), range.start + last * range.step));
  }
  if (object.is_sequence()) {
    std::vector<Value> items;
    for (Int k = 0; k < count; ++k)
      items.push_back(object.items()[static_cast<size_t>(first + k * by)]);
    return MakeList(runtime.budget(), std::move(items), object.kind());
  }
  const std::string& text = object.text();
  const bool plain = static_cast<size_t>(n) == text.size();
  if (!runtime.budget()->ChargeText(
          plain ? (by == 1 ? 0 : static_cast<uint64_t>(count)) : text.size(), Work::kCharacters))
    return tl::unexpected(runtime.budget()->Error());
  std::string out;
  if (static_cast<size_t>(n) == text.size()) {  // one byte a character
    if (by == 1) {
      out = text.substr(static_cast<size_t>(first), static_cast<size_t>(count));
    } else {
      for (Int k = 0; k < count; ++k) out += text[static_cast<size_t>(first + k * by)];
    }
  } else {
    LS_RETURN_IF_ERROR(runtime.Reserve(text.size() * 4));
    const std::u32string decoded = Decode(text);
    for (Int k = 0; k < count; ++k) AppendUtf8(decoded[static_cast<size_t>(first + k * by)], out);
  }
  if (object.is(Kind::kBytes))
    return Value(Kind::kBytes, std::make_shared<StringObject>(runtime.budget(), std::move(out)));
  return runtime.String(std::move(out)).AsMarkup(object.markup());
}

// --- attributes and items ---

namespace {

// Attributes that every Python object has; the sandbox hides them.
bool IsObjectInternal(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "__class__",   "__delattr__", "__dir__",           "__doc__",         "__eq__",
      "__format__",  "__ge__",      "__getattribute__",  "__getstate__",    "__gt__",
      "__hash__",    "__init__",    "__init_subclass__", "__le__",          "__lt__",
      "__ne__",      "__new__",     "__reduce__",        "__reduce_ex__",   "__repr__",
      "__setattr__", "__sizeof__",  "__str__",           "__subclasshook__"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}
bool IsContainerInternal(const Value& object, std::string_view name) {
  if (name == "__len__" || name == "__iter__" || name == "__contains__" || name == "__getitem__")
    return object.is_string() || object.is_sequence() || object.is(Kind::kDict) ||
           object.is(Kind::kRange);
  if (name == "__add__" || name == "__mul__")
    return object.is_string() || object.is_sequence() || object.is_number();
  return false;
}

// The methods that would change a list or a dict: the immutable sandbox refuses them by name.
bool Mutates(const Value& object, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.is(Kind::kList))
    return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  if (object.is(Kind::kDict))
    return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return false;
}

// `obj[key]` alone: absent for what Python answers with LookupError or TypeError.
Expected<std::optional<Value>> Subscript(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    const Expected<size_t> hash = Hash(key, runtime.budget());
    if (!hash) {
      if (hash.error().kind == ErrorKind::kLimit) return tl::unexpected(hash.error());
      return std::optional<Value>();
    }
    const Value* found = object.dict().Find(key, runtime.budget());
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  if (!key.is_integral()) return std::optional<Value>();
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange) &&
      !object.is(Kind::kBytes))
    return std::optional<Value>();
  LS_TRY(const int64_t length, Length(object));
  Int i = key.integer();
  if (i < 0 && i >= -static_cast<Int>(length)) i += length;
  if (i < 0 || i >= length) return std::optional<Value>();
  const size_t at = static_cast<size_t>(i);
  if (object.is_sequence()) return std::optional<Value>(object.items()[at]);
  if (object.is(Kind::kRange)) return std::optional<Value>(object.As<RangeObject>().at(at));
  const std::string& text = object.text();
  if (object.is(Kind::kBytes))
    return std::optional<Value>(Value::Integer(static_cast<unsigned char>(text[at])));
  if (static_cast<size_t>(length) == text.size())
    return std::optional<Value>(runtime.String(text.substr(at, 1)).AsMarkup(object.markup()));
  if (!runtime.budget()->ChargeText(text.size(), Work::kScan))
    return tl::unexpected(runtime.budget()->Error());
  const size_t begin = ByteOffset(text, at);
  size_t end = begin;
  NextCodePoint(text, end);
  return std::optional<Value>(
      runtime.String(text.substr(begin, end - begin)).AsMarkup(object.markup()));
}

Expected<Value> Missing(Runtime& runtime, const Value& object, const Value& name) {
  const std::string type = object.is_none() ? "None" : fmt::format("{} object", TypeName(object));
  if (name.is_string())
    return MakeUndefined(runtime.budget(), fmt::format("'{}' has no attribute {}", type,
                                                       StringRepr(name.text().substr(0, 200))));
  LS_TRY(const std::string repr, Repr(name, runtime.budget()));
  return MakeUndefined(runtime.budget(), fmt::format("{} has no element {}", type, repr));
}

// An attribute that exists, unless the sandbox hides it.
Value Guard(Runtime& runtime, const Value& object, std::string_view name, Value found) {
  if (!name.starts_with('_') && !Mutates(object, name)) return found;
  return MakeUndefined(runtime.budget(),
                       fmt::format("access to attribute {} of '{}' object is unsafe.",
                                   StringRepr(name), TypeName(object)),
                       ErrorKind::kSecurity);
}

}  // namespace

Expected<std::optional<Value>> FindAttribute(Runtime& runtime, const Value& object,
                                             std::string_view name) {
  if (name.starts_with("__") && (IsObjectInternal(name) || IsContainerInternal(object, name)))
    return std::optional<Value>(Value());
  switch (object.kind()) {
    case Kind::kNamespace:
      if (!runtime.budget()->ChargeItems(object.As<NamespaceObject>().attributes.size() / 8))
        return tl::unexpected(runtime.budget()->Error());
      for (const auto& [key, value] : object.As<NamespaceObject>().attributes)
        if (key == name) return std::optional<Value>(value);
      return std::optional<Value>();
    case Kind::kLoop:
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kCycler:
      return runtime.ObjectAttribute(object, name);
    case Kind::kTuple:
      if (object.As<ListObject>().group && name == "grouper")
        return std::optional(object.items()[0]);
      if (object.As<ListObject>().group && name == "list") return std::optional(object.items()[1]);
      break;
    case Kind::kRange:
      if (name == "start") return std::optional(Value::Integer(object.As<RangeObject>().start));
      if (name == "stop") return std::optional(Value::Integer(object.As<RangeObject>().stop));
      if (name == "step") return std::optional(Value::Integer(object.As<RangeObject>().step));
      break;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      if (name == "real")
        return std::optional(object.is(Kind::kBool) ? Value::Integer(object.integer()) : object);
      if (name == "imag")
        return std::optional(object.is(Kind::kFloat) ? Value::Float(0) : Value::Integer(0));
      if (!object.is(Kind::kFloat) && name == "numerator")
        return std::optional(Value::Integer(object.integer()));
      if (!object.is(Kind::kFloat) && name == "denominator")
        return std::optional(Value::Integer(1));
      break;
    default:
      break;
  }
  if (Mutates(object, name)) return std::optional<Value>(Value());
  return FindMethod(runtime, object, name);
}

Expected<Value> GetAttribute(Runtime& runtime, const Value& object, const Value& name) {
  // Python's own attributes exist even on an undefined value; any other use of it is an error.
  if (object.is_undefined() && !IsObjectInternal(name.text()))
    return tl::unexpected(UndefinedError(object));
  LS_TRY(std::optional<Value> found, FindAttribute(runtime, object, name.text()));
  if (found) return Guard(runtime, object, name.text(), *std::move(found));
  LS_TRY(found, Subscript(runtime, object, name));
  if (found) return *std::move(found);
  return Missing(runtime, object, name);
}

Expected<Value> GetItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) return tl::unexpected(UndefinedError(object));
  LS_TRY(std::optional<Value> found, Subscript(runtime, object, key));
  if (found) return *std::move(found);
  if (key.is_string()) {
    LS_TRY(found, FindAttribute(runtime, object, key.text()));
    if (found) return Guard(runtime, object, key.text(), *std::move(found));
  }
  return Missing(runtime, object, key);
}

AttributePath::AttributePath(Runtime& runtime, const Value& path) {
  if (path.is_none()) return;
  if (!path.is_string()) {
    parts_.push_back(path);
    return;
  }
  std::string_view rest = path.text();
  while (runtime.budget()->Step()) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool digits = !part.empty() && part.size() < 30 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    const std::optional<Int> index = digits ? ParseInt(part, 10) : std::nullopt;
    parts_.push_back(index ? Value::Integer(*index) : runtime.String(std::string(part)));
    if (dot == std::string_view::npos) return;
    rest.remove_prefix(dot + 1);
  }
}

Expected<Value> AttributePath::Get(Runtime& runtime, Value item, const Value* default_value) const {
  for (const Value& part : parts_) {
    if (!runtime.budget()->Step()) return tl::unexpected(runtime.budget()->Error());
    LS_TRY(item, GetItem(runtime, item, part));
    if (item.is_undefined() && default_value && !default_value->is_none()) item = *default_value;
  }
  return item;
}

}  // namespace lockstep::jinja
