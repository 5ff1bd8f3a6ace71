#include "jinja/value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "jinja/unicode.h"

namespace lockstep::jinja {

std::string_view ErrorKindName(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kRaiseException:
      return "raise_exception";
    case ErrorKind::kUndefined:
      return "undefined";
    case ErrorKind::kPython:
      return "python";
    case ErrorKind::kSyntax:
      return "syntax";
    case ErrorKind::kSecurity:
      return "security";
    case ErrorKind::kTemplateRuntime:
      return "template_runtime";
    case ErrorKind::kLimit:
      return "limit";
  }
  return "?";
}

Error TemplateError::ToError(std::string_view place) const {
  // What the caller sent is at fault for raise_exception; the template for the rest.
  const ErrorCode code = kind == ErrorKind::kRaiseException ? ErrorCode::kUsage : ErrorCode::kInput;
  // The message may hold any text of the template or the conversation.
  const std::string text =
      line == 0 ? fmt::format("{}: {}", place, message)
                : fmt::format("{}: line {} of the chat template: {}", place, line, message);
  return Fail(code, "{}", text).value();
}

TemplateError Budget::Error() const {
  if (steps_left_ == 0)
    return {ErrorKind::kLimit, 0, "the template takes too many steps (an endless loop?)"};
  return {ErrorKind::kLimit, 0,
          fmt::format("the template needs more than {} bytes of memory", max_bytes_)};
}

Object::Object(Budget* budget, size_t bytes, int depth)
    : budget_(budget), bytes_(bytes), depth_(depth) {
  if (budget_) budget_->Allocate(bytes_);
}
Object::~Object() {
  if (budget_) budget_->Release(bytes_);
}

StringObject::StringObject(Budget* budget, std::string text)
    : Object(budget, sizeof(*this) + text.size(), 1), text(std::move(text)) {}
UndefinedObject::UndefinedObject(Budget* budget, std::string message, ErrorKind kind)
    : Object(budget, sizeof(*this) + message.size(), 1), message(std::move(message)), kind(kind) {}
ListObject::ListObject(Budget* budget, std::vector<Value> items, int depth)
    : Object(budget, sizeof(*this) + items.size() * sizeof(Value), depth),
      items(std::move(items)) {}
DictObject::DictObject(Budget* budget, std::vector<std::pair<Value, Value>> entries, int depth)
    : Object(budget, sizeof(*this) + entries.size() * (sizeof(entries[0]) + 48), depth),
      entries(std::move(entries)) {}
DictViewObject::DictViewObject(Budget* budget, Value dict, ViewKind view)
    : Object(budget, sizeof(*this), dict.depth() + 1), dict(std::move(dict)), view(view) {}
RangeObject::RangeObject(Budget* budget, Int start, Int step, size_t length, Int stop)
    : Object(budget, sizeof(*this), 1), start(start), step(step), stop(stop), length(length) {}
GeneratorObject::GeneratorObject(Budget* budget, NextFunction next, int depth)
    : Object(budget, sizeof(*this) + 256, depth), next(std::move(next)) {}
NamespaceObject::NamespaceObject(Budget* budget) : Object(budget, sizeof(*this) + 128, 1) {}
CyclerObject::CyclerObject(Budget* budget, std::vector<Value> items, int depth)
    : Object(budget, sizeof(*this) + items.size() * sizeof(Value), depth),
      items(std::move(items)) {}
FunctionObject::FunctionObject(Budget* budget, std::string name, NativeFunction call, int depth)
    : Object(budget, sizeof(*this) + 64, depth), name(std::move(name)), call(std::move(call)) {}

const std::string& Value::text() const { return As<StringObject>().text; }
const std::vector<Value>& Value::items() const { return As<ListObject>().items; }
const DictObject& Value::dict() const { return As<DictObject>(); }

// --- making ---

namespace {

tl::unexpected<TemplateError> TooDeep() {
  return Raise(ErrorKind::kLimit, "values are nested deeper than {} levels", kMaxValueDepth);
}

constexpr size_t kIndexFrom = 12;  // below it a scan is as fast as a hash

}  // namespace

Value MakeString(Budget* budget, std::string text) {
  return Value(Kind::kString, std::make_shared<StringObject>(budget, std::move(text)));
}

Value MakeUndefined(Budget* budget, std::string message, ErrorKind kind) {
  return Value(Kind::kUndefined,
               std::make_shared<UndefinedObject>(budget, std::move(message), kind));
}

Expected<Value> MakeList(Budget* budget, std::vector<Value> items, Kind kind) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (depth >= kMaxValueDepth) return TooDeep();
  if (budget && !budget->ChargeItems(items.size())) return tl::unexpected(budget->Error());
  return Value(kind, std::make_shared<ListObject>(budget, std::move(items), depth + 1));
}

Expected<Value> MakeDict(Budget* budget, std::vector<std::pair<Value, Value>> entries) {
  int depth = 0;
  std::vector<size_t> hashes;
  hashes.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    depth = std::max({depth, key.depth(), value.depth()});
    LS_TRY(const size_t hash, Hash(key, budget));
    hashes.push_back(hash);
  }
  if (depth >= kMaxValueDepth) return TooDeep();
  if (budget && !budget->ChargeItems(2 * entries.size())) return tl::unexpected(budget->Error());
  // As in Python: a key that comes again keeps its first place and takes the last value.
  std::vector<std::pair<Value, Value>> unique;
  std::unordered_multimap<size_t, size_t> index;
  unique.reserve(entries.size());
  const bool indexed = entries.size() >= kIndexFrom;
  for (size_t i = 0; i < entries.size(); ++i) {
    size_t place = unique.size();
    if (indexed) {
      const auto [first, last] = index.equal_range(hashes[i]);
      for (auto it = first; it != last; ++it)
        if (Equal(unique[it->second].first, entries[i].first, budget)) place = it->second;
    } else {
      for (size_t j = 0; j < unique.size(); ++j)
        if (Equal(unique[j].first, entries[i].first, budget)) place = j;
    }
    if (place < unique.size()) {
      unique[place].second = std::move(entries[i].second);
    } else {
      if (indexed) index.emplace(hashes[i], place);
      unique.push_back(std::move(entries[i]));
    }
  }
  auto dict = std::make_shared<DictObject>(budget, std::move(unique), depth + 1);
  dict->index = std::move(index);
  return Value(Kind::kDict, std::move(dict));
}

Expected<Value> MakeGenerator(Budget* budget, NextFunction next, const Value& source,
                              const Arguments& arguments) {
  // Each layer of a chain (x | map(...) | select(...)) calls the one below it.
  int depth = source.depth();
  for (const Value& value : arguments.positional) depth = std::max(depth, value.depth());
  for (const auto& [name, value] : arguments.named) depth = std::max(depth, value.depth());
  if (depth >= kMaxValueDepth) return TooDeep();
  return Value(Kind::kGenerator,
               std::make_shared<GeneratorObject>(budget, std::move(next), depth + 1));
}

Expected<Value> MakeFunction(Budget* budget, std::string name, NativeFunction call,
                             const Value& self) {
  if (self.depth() >= kMaxValueDepth) return TooDeep();
  return Value(Kind::kFunction, std::make_shared<FunctionObject>(
                                    budget, std::move(name), std::move(call), self.depth() + 1));
}

TemplateError UndefinedError(const Value& undefined) {
  if (!undefined.object()) return {ErrorKind::kUndefined, 0, "the value is undefined"};
  const auto& object = undefined.As<UndefinedObject>();
  return {object.kind, 0, object.message};
}

const Value* DictObject::Find(const Value& key, Budget* budget) const {
  if (index.empty()) {
    for (const auto& [k, v] : entries)
      if (Equal(k, key, budget)) return &v;
    return nullptr;
  }
  const Expected<size_t> hash = Hash(key, budget);
  if (!hash) return nullptr;
  const auto [first, last] = index.equal_range(*hash);
  for (auto it = first; it != last; ++it)
    if (Equal(entries[it->second].first, key, budget)) return &entries[it->second].second;
  return nullptr;
}

const Value* DictObject::Find(std::string_view key) const {
  if (index.empty()) {
    for (const auto& [k, v] : entries)
      if (k.is_string() && k.text() == key) return &v;
    return nullptr;
  }
  const auto [first, last] = index.equal_range(std::hash<std::string_view>{}(key));
  for (auto it = first; it != last; ++it) {
    const auto& [k, v] = entries[it->second];
    if (k.is_string() && k.text() == key) return &v;
  }
  return nullptr;
}

// --- Python's view ---

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.markup() ? "Markup" : "str";
    case Kind::kBytes:
      return "bytes";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView:
      switch (value.As<DictViewObject>().view) {
        case ViewKind::kKeys:
          return "dict_keys";
        case ViewKind::kValues:
          return "dict_values";
        case ViewKind::kItems:
          return "dict_items";
      }
      return "dict_keys";
    case Kind::kRange:
      return "range";
    case Kind::kGenerator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
  }
  return "object";
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
    case Kind::kBytes:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kDictView:
      return !value.As<DictViewObject>().dict.dict().entries.empty();
    case Kind::kRange:
      return value.As<RangeObject>().length != 0;
    default:
      return true;
  }
}

bool IsCallable(const Value& value) {
  return value.is(Kind::kFunction) || value.is(Kind::kMacro) || value.is(Kind::kLoop) ||
         value.is_undefined();  // Undefined has __call__ (it raises)
}

bool Equal(const Value& a, const Value& b, Budget* budget) {
  if (budget && !budget->Step()) return false;
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
    return a.real() == b.real();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
    case Kind::kBytes:
      if (a.object() == b.object()) return true;
      if (a.text().size() != b.text().size()) return false;
      if (budget && !budget->ChargeText(a.text().size(), Work::kCopy)) return false;
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return a.object() == b.object() ||
             std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                        [&](const Value& x, const Value& y) { return Equal(x, y, budget); });
    case Kind::kDict: {
      if (a.object() == b.object()) return true;
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      for (const auto& [key, value] : a.dict().entries) {
        const Value* other = b.dict().Find(key, budget);
        if (!other || !Equal(value, *other, budget)) return false;
      }
      return true;
    }
    case Kind::kRange: {
      const auto& x = a.As<RangeObject>();
      const auto& y = b.As<RangeObject>();
      return x.length == y.length && (x.length == 0 || x.start == y.start) &&
             (x.length < 2 || x.step == y.step);
    }
    default:
      return a.object() == b.object();
  }
}

Expected<size_t> Hash(const Value& value, Budget* budget) {
  if (budget && !budget->Step()) return tl::unexpected(budget->Error());
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return std::hash<double>{}(value.real());  // 1, 1.0 and True are one key
    case Kind::kString:
      if (budget && !budget->ChargeText(value.text().size(), Work::kScan))
        return tl::unexpected(budget->Error());
      return std::hash<std::string_view>{}(value.text());
    case Kind::kTuple: {
      size_t hash = 0x9e3779b97f4a7c15u;
      for (const Value& item : value.items()) {
        LS_TRY(const size_t h, Hash(item, budget));
        hash = std::rotl(hash, 5) ^ (h * 0x9e3779b97f4a7c15u);
      }
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      return PythonError("unhashable type: '{}'", TypeName(value));
    default:
      return std::hash<const void*>{}(value.object().get()) ^ static_cast<size_t>(value.kind());
  }
}

// a < b (op "<"), or its mirror images: the caller swaps the operands and passes the op for
// messages.
Expected<bool> Less(const Value& a, const Value& b, std::string_view op, Budget* budget) {
  if (budget && !budget->Step()) return tl::unexpected(budget->Error());
  const bool or_equal = op.size() == 2;
  if (a.is_undefined()) return tl::unexpected(UndefinedError(a));
  if (b.is_undefined()) return tl::unexpected(UndefinedError(b));
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral())
      return or_equal ? a.integer() <= b.integer() : a.integer() < b.integer();
    return or_equal ? a.real() <= b.real() : a.real() < b.real();
  }
  if (a.is_string() && b.is_string()) {
    if (budget && !budget->ChargeText(std::min(a.text().size(), b.text().size()), Work::kCopy))
      return tl::unexpected(budget->Error());
    return or_equal ? a.text() <= b.text() : a.text() < b.text();  // UTF-8 sorts as code points do
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const size_t n = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < n; ++i)
      if (!Equal(a.items()[i], b.items()[i], budget))
        return Less(a.items()[i], b.items()[i], op, budget);
    return or_equal ? a.items().size() <= b.items().size() : a.items().size() < b.items().size();
  }
  const bool mirrored = op[0] == '>';
  return PythonError("'{}' not supported between instances of '{}' and '{}'", op,
                     TypeName(mirrored ? b : a), TypeName(mirrored ? a : b));
}

int64_t CodePoints(const Value& string) {
  const auto& object = string.As<StringObject>();
  if (object.code_points < 0)
    object.code_points = static_cast<int64_t>(CountCodePoints(object.text));
  return object.code_points;
}

Expected<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return CodePoints(value);
    case Kind::kBytes:
      return static_cast<int64_t>(value.text().size());
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::kDictView:
      return static_cast<int64_t>(value.As<DictViewObject>().dict.dict().entries.size());
    case Kind::kRange:
      return static_cast<int64_t>(value.As<RangeObject>().length);
    default:
      return PythonError("object of type '{}' has no len()", TypeName(value));
  }
}

}  // namespace lockstep::jinja
