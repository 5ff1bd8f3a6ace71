// Runtime: what filters, tests and methods may ask of the rendering they run in. And the operations
// of Python that need it: arithmetic, iteration, attributes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/time.h"
#include "jinja/value.h"

namespace lockstep::jinja {

class Runtime {
 public:
  Runtime(uint64_t max_steps, size_t max_bytes) : budget_(max_steps, max_bytes) {}
  virtual ~Runtime() = default;

  Budget* budget() { return &budget_; }
  Value String(std::string text) { return MakeString(&budget_, std::move(text)); }
  // May a text of `bytes` be made? Also charges the time to make it.
  Expected<void> Reserve(uint64_t bytes);

  virtual Expected<Value> Call(const Value& callee, const Arguments& arguments) = 0;
  virtual bool autoescape() const = 0;
  // Objects that must outlive every value (namespaces, loops): cleared when the rendering ends, so
  // that a cycle through them is freed.
  virtual void KeepAlive(std::shared_ptr<Object> object) = 0;
  // loop.index and the like, and macro.name: objects that the evaluator owns the meaning of.
  virtual Expected<std::optional<Value>> ObjectAttribute(const Value& object,
                                                         std::string_view name) = 0;
  virtual Expected<int64_t> ObjectLength(const Value& object) = 0;

 private:
  Budget budget_;
};

// Walks anything iterable. Strings give characters, dicts their keys.
class Iterator {
 public:
  static Expected<Iterator> Over(const Value& iterable);  // TypeError when it is not iterable
  Expected<bool> Next(Runtime& runtime, Value* out);
  const Value& source() const { return source_; }

 private:
  explicit Iterator(Value source) : source_(std::move(source)) {}
  Value source_;
  size_t position_ = 0;  // items, or bytes of a string
};

bool IsIterable(const Value& value);
Expected<std::vector<Value>> ToVector(Runtime& runtime, const Value& iterable);

Expected<Value> UnaryOp(Runtime& runtime, char op, const Value& a);
Expected<Value> BinaryOp(Runtime& runtime, char op, const Value& a, const Value& b);
Expected<bool> Contains(Runtime& runtime, const Value& container, const Value& item);
Expected<Value> Slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                      const Value& step);

// a.name (the attribute first, then the item) and a[key] (the item first), under the sandbox's
// rules.
Expected<Value> GetAttribute(Runtime& runtime, const Value& object, const Value& name);
Expected<Value> GetItem(Runtime& runtime, const Value& object, const Value& key);
// The attribute alone: absent when the object has none of that name.
Expected<std::optional<Value>> FindAttribute(Runtime& runtime, const Value& object,
                                             std::string_view name);

// "user.name.0": attributes and items one after the other, as map(attribute=...) takes them.
class AttributePath {
 public:
  AttributePath() = default;
  AttributePath(Runtime& runtime, const Value& path);
  Expected<Value> Get(Runtime& runtime, Value item, const Value* default_value = nullptr) const;

 private:
  std::vector<Value> parts_;
};

}  // namespace lockstep::jinja
