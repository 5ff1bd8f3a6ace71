// What the evaluator calls: macros, recursive loops, the global functions; and the attributes of
// the objects that only it knows (loop, macros, cyclers).
#include <algorithm>

#include "jinja/eval.h"
#include "jinja/filters.h"
#include "jinja/format.h"

namespace lockstep::jinja {
namespace {

constexpr size_t kMaxRange = 100000;  // the sandbox's MAX_RANGE

}  // namespace

MacroObject::MacroObject(Budget* budget, const Stmt* stmt, FramePtr closure)
    : Object(budget, sizeof(*this), 1), stmt(stmt), closure(std::move(closure)) {}

std::string MacroObject::Describe() const {
  return stmt->text.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", stmt->text);
}

Value Evaluator::MakeMacro(const Stmt& stmt, const FramePtr& frame) {
  // The frame will hold the macro and the macro the frame: the destructor cuts the cycle.
  if (kept_frames_.empty() || kept_frames_.back() != frame) {
    kept_frames_.push_back(frame);
    budget()->Allocate(256);
  }
  return Value(Kind::kMacro, std::make_shared<MacroObject>(budget(), &stmt, frame));
}

Expected<Value> Evaluator::Call(const Value& callee, const Arguments& arguments) {
  if (!budget()->Step()) return tl::unexpected(budget()->Error());
  switch (callee.kind()) {
    case Kind::kFunction:
      return callee.As<FunctionObject>().call(arguments);
    case Kind::kMacro:
      return CallMacro(callee.As<MacroObject>(), arguments);
    case Kind::kLoop:
      return CallLoop(callee, arguments);
    case Kind::kUndefined:
      return tl::unexpected(UndefinedError(callee));
    default:
      return PythonError("'{}' object is not callable", TypeName(callee));
  }
}

Expected<Value> Evaluator::CallMacro(const MacroObject& macro, const Arguments& arguments) {
  const Stmt& stmt = *macro.stmt;
  if (call_depth_ >= limits_.max_depth)
    return Raise(ErrorKind::kLimit, "macros call each other more than {} deep", limits_.max_depth);
  // The macro object may be replaced while its body runs; the statement and the frame stay.
  const FramePtr frame = NewFrame(macro.closure);
  if (!budget()->ChargeItems((arguments.named.size() / 8 + 1) * (stmt.params.size() + 1)))
    return tl::unexpected(budget()->Error());
  std::vector<std::pair<std::string, Value>> named = arguments.named;
  const auto take = [&](const std::string& name) -> std::optional<Value> {
    const auto it = std::find_if(named.begin(), named.end(),
                                 [&](const auto& entry) { return entry.first == name; });
    if (it == named.end()) return std::nullopt;
    Value value = std::move(it->second);
    named.erase(it);
    return value;
  };
  std::vector<std::optional<Value>> values(stmt.params.size());
  for (size_t i = 0; i < stmt.params.size(); ++i)
    values[i] = i < arguments.positional.size() ? std::optional<Value>(arguments.positional[i])
                                                : take(stmt.params[i].name);
  if (stmt.uses_caller) {
    std::optional<Value> caller = take("caller");
    Set(frame, tree_.caller_id,
        caller ? *std::move(caller) : MakeUndefined(budget(), "No caller defined"));
  }
  if (stmt.uses_kwargs) {
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : named) entries.emplace_back(String(name), std::move(value));
    LS_TRY(Value dict, MakeDict(budget(), std::move(entries)));
    Set(frame, tree_.kwargs_id, std::move(dict));
  } else if (!named.empty()) {
    return PythonError("macro '{}' takes no keyword argument '{}'", stmt.text, named[0].first);
  }
  const size_t taken = std::min(arguments.positional.size(), stmt.params.size());
  if (stmt.uses_varargs) {
    std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                            arguments.positional.end());
    LS_TRY(Value tuple, MakeList(budget(), std::move(rest), Kind::kTuple));
    Set(frame, tree_.varargs_id, std::move(tuple));
  } else if (arguments.positional.size() > stmt.params.size()) {
    return PythonError("macro '{}' takes not more than {} argument(s)", stmt.text,
                       stmt.params.size());
  }
  // Defaults see the parameters before them.
  for (size_t i = 0; i < stmt.params.size(); ++i) {
    const Param& param = stmt.params[i];
    if (budget()->exhausted()) return tl::unexpected(budget()->Error());
    if (!values[i] && param.default_value) {
      LS_TRY(values[i], Eval(*param.default_value, frame));
    }
    Set(frame, param.name_id,
        values[i]
            ? *std::move(values[i])
            : MakeUndefined(budget(), fmt::format("parameter '{}' was not provided", param.name)));
  }
  ++call_depth_;
  std::string text;
  const Expected<Flow> flow = Exec(stmt.body, frame, text);
  --call_depth_;
  if (!flow) return tl::unexpected(flow.error());
  return String(std::move(text)).AsMarkup(autoescape_);
}

// loop(items) inside a recursive loop: its body again, over other items, as text.
Expected<Value> Evaluator::CallLoop(const Value& callee, const Arguments& arguments) {
  const auto& loop = callee.As<LoopObject>();
  if (arguments.positional.size() != 1 || !arguments.named.empty())
    return PythonError("loop() takes one argument, the items to loop over");
  if (!loop.stmt->recursive)
    return PythonError("The loop must have the 'recursive' marker to be called recursively.");
  if (call_depth_ >= limits_.max_depth)
    return Raise(ErrorKind::kLimit, "loops recurse more than {} deep", limits_.max_depth);
  const Stmt& stmt = *loop.stmt;
  const FramePtr frame = loop.parent;
  const int depth0 = loop.depth0 + 1;
  ++call_depth_;
  std::string text;
  const Expected<Flow> flow = RunLoop(stmt, arguments.positional[0], frame, depth0, text);
  --call_depth_;
  if (!flow) return tl::unexpected(flow.error());
  return String(std::move(text)).AsMarkup(autoescape_);
}

Expected<int64_t> Evaluator::ObjectLength(const Value& object) {
  auto& loop = object.As<LoopObject>();
  if (loop.length) return *loop.length;
  const Value& source = loop.iterator.source();
  if (!loop.stmt->test && !source.is(Kind::kGenerator)) {
    LS_TRY(loop.length, Length(source));
    return *loop.length;
  }
  std::vector<Value> rest;
  for (;;) {  // nothing else has a length: take all that is left
    Value item;
    LS_TRY(const bool more, Fetch(loop, &item));
    if (!more) break;
    if (!budget()->Fits(rest.size() * sizeof(Value)))
      return Raise(ErrorKind::kLimit, "the items of the loop would not fit in memory");
    rest.push_back(std::move(item));
  }
  loop.ahead.erase(loop.ahead.begin(),
                   loop.ahead.begin() + static_cast<std::ptrdiff_t>(loop.ahead_at));
  loop.ahead_at = 0;
  std::move(rest.begin(), rest.end(), std::back_inserter(loop.ahead));
  loop.length = static_cast<int64_t>(loop.ahead.size()) + loop.index0 + 1;
  return *loop.length;
}

Expected<std::optional<Value>> Evaluator::ObjectAttribute(const Value& object,
                                                          std::string_view name) {
  switch (object.kind()) {
    case Kind::kLoop:
      return LoopAttribute(object, name);
    case Kind::kMacro:
      return MacroAttribute(object.As<MacroObject>(), name);
    case Kind::kCycler:
      return CyclerAttribute(object, name);
    case Kind::kFunction: {
      if (object.As<FunctionObject>().name != "dict" || name != "fromkeys") break;
      LS_TRY(
          Value from_keys,
          MakeFunction(budget(), "fromkeys", [this](const Arguments& arguments) -> Expected<Value> {
            LS_TRY(const Bound bound, Bound::Bind("fromkeys", "!iterable,value=", arguments));
            LS_TRY(const std::vector<Value> keys, ToVector(*this, bound[0]));
            std::vector<std::pair<Value, Value>> entries;
            for (const Value& key : keys) entries.emplace_back(key, bound.Or(1, Value()));
            return MakeDict(budget(), std::move(entries));
          }));
      return std::optional<Value>(std::move(from_keys));
    }
    default:
      break;
  }
  return std::optional<Value>();
}

Expected<std::optional<Value>> Evaluator::LoopAttribute(const Value& object,
                                                        std::string_view name) {
  auto& loop = object.As<LoopObject>();
  const auto integer = [](int64_t n) { return std::optional(Value::Integer(n)); };
  if (name == "index") return integer(loop.index0 + 1);
  if (name == "index0") return integer(loop.index0);
  if (name == "first") return std::optional(Value::Bool(loop.index0 == 0));
  if (name == "depth") return integer(loop.depth0 + 1);
  if (name == "depth0") return integer(loop.depth0);
  if (name == "last") {
    LS_RETURN_IF_ERROR(Peek(loop));
    return std::optional(Value::Bool(loop.ahead_at >= loop.ahead.size()));
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    LS_TRY(const int64_t length, ObjectLength(object));
    return integer(name == "length"     ? length
                   : name == "revindex" ? length - loop.index0
                                        : length - loop.index0 - 1);
  }
  if (name == "previtem")
    return std::optional(loop.index0 == 0 ? MakeUndefined(budget(), "there is no previous item")
                                          : loop.previous);
  if (name == "nextitem") {
    LS_RETURN_IF_ERROR(Peek(loop));
    return std::optional(loop.ahead_at < loop.ahead.size()
                             ? loop.ahead[loop.ahead_at]
                             : MakeUndefined(budget(), "there is no next item"));
  }
  if (name == "cycle") {
    LS_TRY(Value cycle, MakeFunction(
                            budget(), "cycle",
                            [object](const Arguments& arguments) -> Expected<Value> {
                              const auto& items = arguments.positional;
                              if (items.empty()) return PythonError("no items for cycling given");
                              const auto index =
                                  static_cast<size_t>(object.As<LoopObject>().index0);
                              return items[index % items.size()];
                            },
                            object));
    return std::optional(std::move(cycle));
  }
  if (name == "changed") {
    LS_TRY(Value changed, MakeFunction(
                              budget(), "changed",
                              [this, object](const Arguments& arguments) -> Expected<Value> {
                                auto& self = object.As<LoopObject>();
                                LS_TRY(Value now,
                                       MakeList(budget(), arguments.positional, Kind::kTuple));
                                if (self.last_changed && Equal(*self.last_changed, now, budget()))
                                  return Value::Bool(false);
                                if (!self.last_changed) KeepAlive(object.object());
                                self.last_changed = std::move(now);
                                return Value::Bool(true);
                              },
                              object));
    return std::optional(std::move(changed));
  }
  return std::optional<Value>();
}

Expected<std::optional<Value>> Evaluator::MacroAttribute(const MacroObject& macro,
                                                         std::string_view name) {
  if (name == "name")
    return std::optional(macro.stmt->text.empty() ? Value() : String(macro.stmt->text));
  if (name == "arguments") {
    std::vector<Value> names;
    for (const Param& param : macro.stmt->params) names.push_back(String(param.name));
    LS_TRY(Value tuple, MakeList(budget(), std::move(names), Kind::kTuple));
    return std::optional(std::move(tuple));
  }
  if (name == "catch_kwargs") return std::optional(Value::Bool(macro.stmt->uses_kwargs));
  if (name == "catch_varargs") return std::optional(Value::Bool(macro.stmt->uses_varargs));
  if (name == "caller") return std::optional(Value::Bool(macro.stmt->uses_caller));
  return std::optional<Value>();
}

Expected<std::optional<Value>> Evaluator::CyclerAttribute(const Value& object,
                                                          std::string_view name) {
  auto& cycler = object.As<CyclerObject>();
  if (name == "current") return std::optional(cycler.items[cycler.position]);
  if (name == "next" || name == "reset") {
    const bool next = name == "next";
    LS_TRY(Value step, MakeFunction(
                           budget(), std::string(name),
                           [object, next](const Arguments&) -> Expected<Value> {
                             auto& self = object.As<CyclerObject>();
                             const size_t at = self.position;
                             self.position = next ? (at + 1) % self.items.size() : 0;
                             return next ? self.items[at] : Value();
                           },
                           object));
    return std::optional(std::move(step));
  }
  return std::optional<Value>();
}

namespace {

Expected<Value> MakeRange(Runtime& r, const Arguments& arguments) {
  LS_TRY(const Bound bound, Bound::Bind("range", "!start,stop=,step=", arguments));
  Int values[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (!bound.has(i)) continue;
    LS_TRY(values[i], bound.Integer(i, 0));
  }
  if (!bound.has(1)) {
    values[1] = values[0];
    values[0] = 0;
  }
  const auto [start, stop, step] = values;
  if (step == 0) return PythonError("range() arg 3 must not be zero");
  Int length = 0;
  if (step > 0 && stop > start) length = (stop - start + step - 1) / step;
  if (step < 0 && stop < start) length = (start - stop - step - 1) / -step;
  if (length > static_cast<Int>(kMaxRange))
    return PythonError("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
                       kMaxRange);
  return Value(Kind::kRange, std::make_shared<RangeObject>(r.budget(), start, step,
                                                           static_cast<size_t>(length), stop));
}

// dict(mapping or pairs, **names)
Expected<Value> CallDict(Runtime& r, const Arguments& arguments) {
  if (arguments.positional.size() > 1)
    return PythonError("dict expected at most 1 argument, got {}", arguments.positional.size());
  std::vector<std::pair<Value, Value>> entries;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      entries = source.dict().entries;
    } else {
      LS_TRY(const std::vector<Value> pairs, ToVector(r, source));
      for (size_t i = 0; i < pairs.size(); ++i) {
        if (!IsIterable(pairs[i]))
          return PythonError("cannot convert dictionary update sequence element #{} to a sequence",
                             i);
        LS_TRY(std::vector<Value> pair, ToVector(r, pairs[i]));
        if (pair.size() != 2)
          return PythonError("dictionary update sequence element #{} has length {}; 2 is required",
                             i, pair.size());
        entries.emplace_back(std::move(pair[0]), std::move(pair[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(r.String(name), value);
  return MakeDict(r.budget(), std::move(entries));
}

Expected<Value> CallNamespace(Runtime& r, const Arguments& arguments) {
  LS_TRY(const Value dict, CallDict(r, arguments));
  auto object = std::make_shared<NamespaceObject>(r.budget());
  for (const auto& [key, value] : dict.dict().entries) {
    if (!key.is_string()) continue;  // no attribute can name it
    if (key.text().starts_with('_'))
      return Raise(ErrorKind::kSecurity,
                   "Chat templates cannot store underscore-prefixed attributes on a namespace, but "
                   "got {}. Please rename the attribute.",
                   StringRepr(key.text()));
    object->attributes.emplace_back(key.text(), value);
  }
  r.KeepAlive(object);
  return Value(Kind::kNamespace, std::move(object));
}

Expected<Value> CallCycler(Runtime& r, const Arguments& arguments) {
  if (arguments.positional.empty()) return PythonError("at least one item has to be provided");
  int depth = 0;
  for (const Value& item : arguments.positional) depth = std::max(depth, item.depth());
  if (depth >= kMaxValueDepth) return Raise(ErrorKind::kLimit, "values are nested too deeply");
  return Value(Kind::kCycler,
               std::make_shared<CyclerObject>(r.budget(), arguments.positional, depth + 1));
}

// joiner(', '): nothing at the first call, the separator from then on.
Expected<Value> CallJoiner(Runtime& r, const Arguments& arguments) {
  LS_TRY(const Bound bound, Bound::Bind("joiner", "sep=", arguments));
  const Value separator = bound.Or(0, r.String(", "));
  auto used = std::make_shared<bool>(false);
  return MakeFunction(
      r.budget(), "joiner",
      [&r, used, separator](const Arguments&) -> Expected<Value> {
        return std::exchange(*used, true) ? separator : r.String("");
      },
      separator);
}

Expected<Value> CallRaise(Runtime& r, const Arguments& arguments) {
  LS_TRY(const Bound bound, Bound::Bind("raise_exception", "message", arguments));
  LS_TRY(const std::string message, Str(bound[0], r.budget()));
  return Raise(ErrorKind::kRaiseException, "{}", message);
}

Expected<Value> CallLipsum(Runtime&, const Arguments&) {
  return PythonError("lipsum is not supported: a chat template must render the same text twice");
}

}  // namespace

Expected<std::optional<Value>> Evaluator::Global(const std::string& name) {
  struct Row {
    std::string_view name;
    Expected<Value> (*call)(Runtime&, const Arguments&);
  };
  static constexpr Row kGlobals[] = {
      {"cycler", CallCycler}, {"dict", CallDict},           {"joiner", CallJoiner},
      {"lipsum", CallLipsum}, {"namespace", CallNamespace}, {"raise_exception", CallRaise},
      {"range", MakeRange},
  };
  for (const Row& row : kGlobals) {
    if (row.name != name) continue;
    LS_TRY(Value function, MakeFunction(budget(), name, [this, row](const Arguments& arguments) {
             return row.call(*this, arguments);
           }));
    return std::optional(std::move(function));
  }
  // `self` names the template's blocks; calling them is not supported, asking for it is.
  if (name == "self") {
    LS_TRY(Value self, CallNamespace(*this, {}));
    return std::optional(std::move(self));
  }
  if (name != "strftime_now") return std::optional<Value>();
  LS_TRY(Value function,
         MakeFunction(budget(), name, [this](const Arguments& arguments) -> Expected<Value> {
           LS_TRY(const Bound bound, Bound::Bind("strftime_now", "format", arguments));
           if (!bound[0].is_string())
             return PythonError("strftime() argument 1 must be str, not {}", TypeName(bound[0]));
           LS_RETURN_IF_ERROR(Reserve(uint64_t{bound[0].text().size()} * 16));
           if (!budget()->ChargeText(bound[0].text().size(), Work::kHeavy))
             return tl::unexpected(budget()->Error());
           return String(FormatTime(clock_, bound[0].text()));
         }));
  return std::optional(std::move(function));
}

}  // namespace lockstep::jinja
