// Value: what an expression of a chat template evaluates to, with Python's types and meaning.
// Scalars are held in place; everything else is a shared object. Lists, tuples and dicts never
// change after they are made (the sandbox forbids it), so sharing is invisible. Every object is
// charged to the Budget of its rendering, and no object nests deeper than kMaxValueDepth: printing,
// comparing and freeing may recurse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/error.h"

namespace lockstep::jinja {

// Python's integers have no bound; ours end at 2^127 with a clear error. JSON brings at most 64
// bits.
using Int = __int128;

inline constexpr int kMaxValueDepth = 600;  // base/json.h lets 512 levels in

// Bytes of text that work of a kind passes over in the time of one step (about 0.1 us), so that
// max_steps is a bound on time whatever a template does.
enum class Work : uint32_t {
  kCopy = 64,       // copies, comparisons: what memcpy and memcmp do
  kScan = 8,        // looks at every byte: search, escape, count
  kCharacters = 4,  // decodes every character and asks Unicode about it
  kHeavy = 1,       // allocates or formats for single characters
};

// Time and memory of one rendering. Sticky: once exhausted, every later check fails.
class Budget {
 public:
  Budget(uint64_t max_steps, size_t max_bytes) : steps_left_(max_steps), max_bytes_(max_bytes) {}

  // One step: a node of the template, an item. False when the time is used up.
  bool Step() { return Spend(1); }
  // Every operation on text asks before it works; so does every operation on items.
  bool ChargeText(uint64_t bytes, Work work) {
    return Spend(1 + bytes / static_cast<uint32_t>(work));
  }
  bool ChargeItems(uint64_t items) { return Spend(1 + items); }
  // May `bytes` more be allocated? Asked before anything whose size the template chooses.
  bool Fits(size_t bytes) const { return bytes <= max_bytes_ && live_ <= max_bytes_ - bytes; }
  void Allocate(size_t bytes) {
    live_ += bytes;
    if (live_ > max_bytes_) exhausted_ = true;
  }
  void Release(size_t bytes) { live_ -= bytes; }
  bool exhausted() const { return exhausted_; }
  TemplateError Error() const;

 private:
  bool Spend(uint64_t cost) {
    if (cost > steps_left_) exhausted_ = true;
    steps_left_ -= cost > steps_left_ ? steps_left_ : cost;
    return !exhausted_;
  }

  uint64_t steps_left_;
  size_t max_bytes_;
  size_t live_ = 0;
  bool exhausted_ = false;
};

struct Object {
  Object(Budget* budget, size_t bytes, int depth);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  int depth() const { return depth_; }
  virtual std::string Describe() const { return "<object>"; }  // repr() of unprintable kinds

 private:
  Budget* budget_;  // null: a constant of the template, counted nowhere
  size_t bytes_;
  int depth_;
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kBytes,
  kList,
  kTuple,
  kDict,
  kDictView,
  kRange,
  kGenerator,
  kNamespace,
  kFunction,
  kMacro,
  kLoop,
  kCycler,
};

struct StringObject;
struct ListObject;
struct DictObject;

class Value {
 public:
  Value() = default;  // None
  static Value Bool(bool b) {
    Value v(Kind::kBool);
    v.scalar_.i = b;
    return v;
  }
  static Value Integer(Int i) {
    Value v(Kind::kInt);
    v.scalar_.i = i;
    return v;
  }
  static Value Float(double f) {
    Value v(Kind::kFloat);
    v.scalar_.f = f;
    return v;
  }
  static Value Undefined() { return Value(Kind::kUndefined); }
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  bool truth() const { return scalar_.i != 0; }  // kBool
  Int integer() const { return scalar_.i; }      // kInt, kBool
  double real() const {                          // any number
    return kind_ == Kind::kFloat ? scalar_.f : static_cast<double>(scalar_.i);
  }
  const std::string& text() const;          // kString, kBytes
  const std::vector<Value>& items() const;  // kList, kTuple
  const DictObject& dict() const;           // kDict
  bool markup() const { return markup_; }   // kString that autoescape and `safe` treat as HTML
  Value AsMarkup(bool markup = true) const {
    Value v = *this;
    v.markup_ = markup;
    return v;
  }
  const std::shared_ptr<Object>& object() const { return object_; }
  template <typename T>
  T& As() const {
    return static_cast<T&>(*object_);
  }
  int depth() const { return object_ ? object_->depth() : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Kind kind_ = Kind::kNone;
  bool markup_ = false;
  union {
    Int i;
    double f;
  } scalar_ = {0};
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  StringObject(Budget* budget, std::string text);
  std::string text;                  // UTF-8, always valid
  mutable int64_t code_points = -1;  // counted on first use
};

// A missing thing: prints as nothing, is false and empty, and fails on any other use.
struct UndefinedObject : Object {
  UndefinedObject(Budget* budget, std::string message, ErrorKind kind);
  std::string message;
  ErrorKind kind;  // kUndefined, or kSecurity for what the sandbox hides
};

struct ListObject : Object {  // kList, kTuple
  ListObject(Budget* budget, std::vector<Value> items, int depth);
  std::vector<Value> items;
  bool group = false;  // a tuple made by `groupby`: .grouper and .list name its two items
};

struct DictObject : Object {
  DictObject(Budget* budget, std::vector<std::pair<Value, Value>> entries, int depth);
  const Value* Find(const Value& key, Budget* budget) const;  // null: absent. The key is hashable
  const Value* Find(std::string_view key) const;

  std::vector<std::pair<Value, Value>> entries;   // in order of insertion; keys differ
  std::unordered_multimap<size_t, size_t> index;  // hash to place, for more than a few entries
};

enum class ViewKind { kKeys, kValues, kItems };
struct DictViewObject : Object {
  DictViewObject(Budget* budget, Value dict, ViewKind view);
  Value dict;
  ViewKind view;
};

struct RangeObject : Object {
  RangeObject(Budget* budget, Int start, Int step, size_t length, Int stop);
  Int start, step, stop;
  size_t length;  // at most 100 000 (the sandbox's MAX_RANGE)
  Value at(size_t i) const { return Value::Integer(start + static_cast<Int>(i) * step); }
};

// Produces items one by one, once: what map, select, items and others return. False: no more.
using NextFunction = std::function<Expected<bool>(Value* out)>;
struct GeneratorObject : Object {
  GeneratorObject(Budget* budget, NextFunction next, int depth);
  NextFunction next;
  bool done = false;
};

struct NamespaceObject : Object {
  explicit NamespaceObject(Budget* budget);
  std::vector<std::pair<std::string, Value>> attributes;
};

struct CyclerObject : Object {
  CyclerObject(Budget* budget, std::vector<Value> items, int depth);
  std::vector<Value> items;
  size_t position = 0;
};

// The arguments of a call: f(1, 2, key=3).
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};
using NativeFunction = std::function<Expected<Value>(const Arguments&)>;
struct FunctionObject : Object {
  FunctionObject(Budget* budget, std::string name, NativeFunction call, int depth);
  std::string name;
  NativeFunction call;
};

// --- Making values. Containers can fail: too deep, or an unhashable key. ---
Value MakeString(Budget* budget, std::string text);
Value MakeUndefined(Budget* budget, std::string message, ErrorKind kind = ErrorKind::kUndefined);
Expected<Value> MakeList(Budget* budget, std::vector<Value> items, Kind kind = Kind::kList);
Expected<Value> MakeDict(Budget* budget, std::vector<std::pair<Value, Value>> entries);
// `source` and `arguments` are what `next` holds on to: they decide how deep the generator is.
Expected<Value> MakeGenerator(Budget* budget, NextFunction next, const Value& source,
                              const Arguments& arguments = {});
Expected<Value> MakeFunction(Budget* budget, std::string name, NativeFunction call,
                             const Value& self = Value());
TemplateError UndefinedError(
    const Value& undefined);  // for any use that an undefined value refuses

// --- Python's view of a value ---
std::string_view TypeName(const Value& value);  // "str", "int", "NoneType", "list", ...
bool Truth(const Value& value);
bool IsCallable(const Value& value);
bool Equal(const Value& a, const Value& b, Budget* budget);  // ==; false once the budget is gone
Expected<size_t> Hash(const Value& value, Budget* budget);   // TypeError for lists and dicts
Expected<bool> Less(const Value& a, const Value& b, std::string_view op, Budget* budget);
int64_t CodePoints(const Value& string);
Expected<int64_t> Length(const Value& value);  // len(); loop objects are the evaluator's

}  // namespace lockstep::jinja
