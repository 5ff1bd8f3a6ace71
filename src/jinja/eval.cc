#include "jinja/eval.h"

#include <algorithm>

#include "jinja/filters.h"
#include "jinja/format.h"
#include "jinja/json.h"
#include "jinja/parser.h"

namespace lockstep::jinja {
namespace {

// Eval and Exec inside each other. A level takes well under 1 KB of stack, and a thread has 8 MB.
constexpr int kMaxNesting = 1500;

}  // namespace

Expected<Template> Template::Parse(std::string_view source) {
  LS_TRY(Tree tree, jinja::Parse(source));
  return Template(std::make_shared<const Tree>(std::move(tree)));
}

Expected<Rendered> Template::Render(const Json& variables, const Clock& clock,
                                    const Limits& limits) const {
  return Evaluator(*tree_, clock, limits).Run(variables);
}

Evaluator::Evaluator(const Tree& tree, const Clock& clock, const Limits& limits)
    : Runtime(limits.max_steps, limits.max_memory_bytes),
      tree_(tree),
      clock_(clock),
      limits_(limits) {}

Evaluator::~Evaluator() {
  // Namespaces, captured frames and loops may hold each other: empty them all, then free them.
  for (const FramePtr& frame : kept_frames_) frame->variables.clear();
  for (const auto& object : kept_objects_) {
    if (auto* ns = dynamic_cast<NamespaceObject*>(object.get())) ns->attributes.clear();
    if (auto* loop = dynamic_cast<LoopObject*>(object.get())) loop->last_changed.reset();
  }
}

bool Evaluator::Nesting::ok() const { return evaluator_.nesting_ <= kMaxNesting; }

Expected<Rendered> Evaluator::Run(const Json& variables) {
  variables_.resize(tree_.names.size());
  for (size_t id = 0; id < tree_.names.size(); ++id) {
    const auto it = variables.find(tree_.names[id]);
    if (it != variables.end()) {
      LS_TRY(variables_[id], FromJson(*it, budget()));
    } else {
      LS_TRY(variables_[id], Global(tree_.names[id]));
    }
  }
  Rendered rendered;
  root_ = NewFrame(nullptr);
  root_out_ = &rendered.text;
  LS_RETURN_IF_ERROR(Exec(tree_.body, root_, rendered.text));
  if (budget()->exhausted()) return tl::unexpected(budget()->Error());
  rendered.generation_spans = std::move(spans_);
  return rendered;
}

void Evaluator::KeepAlive(std::shared_ptr<Object> object) {
  kept_objects_.push_back(std::move(object));
}

void Evaluator::Set(const FramePtr& frame, int name_id, Value value) {
  budget()->ChargeItems(frame->variables.size() / 16);
  for (auto& [id, slot] : frame->variables) {
    if (id != name_id) continue;
    slot = std::move(value);
    return;
  }
  frame->variables.emplace_back(name_id, std::move(value));
}

Expected<Value> Evaluator::Eval(const Expr& expr, const FramePtr& frame) {
  const Nesting nesting(*this);
  if (!nesting.ok() || !budget()->Step()) {
    TemplateError error = budget()->exhausted() ? budget()->Error()
                                                : TemplateError{ErrorKind::kLimit, 0,
                                                                "the template nests too deeply"};
    error.line = expr.line;
    return tl::unexpected(std::move(error));
  }
  Expected<Value> value = EvalNode(expr, frame);
  if (!value && value.error().line == 0) value.error().line = expr.line;
  return value;
}

Expected<Value> Evaluator::EvalNode(const Expr& expr, const FramePtr& frame) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.value;
    case ExprKind::kName:
    case ExprKind::kNamespaceRef:
      return EvalName(expr.name_id, frame);
    case ExprKind::kTuple:
    case ExprKind::kList: {
      LS_TRY(std::vector<Value> items, EvalItems(expr.items, frame));
      return MakeList(budget(), std::move(items),
                      expr.kind == ExprKind::kList ? Kind::kList : Kind::kTuple);
    }
    case ExprKind::kDict:
      return EvalDict(expr, frame);
    case ExprKind::kAttribute: {
      LS_TRY(const Value object, Eval(*expr.a, frame));
      return GetAttribute(*this, object, expr.value);
    }
    case ExprKind::kItem: {
      LS_TRY(const Value object, Eval(*expr.a, frame));
      LS_TRY(const Value key, Eval(*expr.b, frame));
      return GetItem(*this, object, key);
    }
    case ExprKind::kSlice:
      return EvalSlice(expr, frame);
    case ExprKind::kCall:
      return EvalCall(expr, frame);
    case ExprKind::kFilter:
      return EvalFilter(expr, frame);
    case ExprKind::kTest:
      return EvalTest(expr, frame);
    case ExprKind::kUnary: {
      LS_TRY(const Value a, Eval(*expr.a, frame));
      return UnaryOp(*this, expr.op, a);
    }
    case ExprKind::kBinary: {
      LS_TRY(const Value a, Eval(*expr.a, frame));
      LS_TRY(const Value b, Eval(*expr.b, frame));
      return BinaryOp(*this, expr.op, a, b);
    }
    case ExprKind::kConcat:
      return EvalConcat(expr, frame);
    case ExprKind::kCompare:
      return EvalCompare(expr, frame);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      LS_TRY(Value a, Eval(*expr.a, frame));
      if (Truth(a) == (expr.kind == ExprKind::kOr)) return a;
      return Eval(*expr.b, frame);
    }
    case ExprKind::kConditional: {
      LS_TRY(const Value test, Eval(*expr.b, frame));
      if (Truth(test)) return Eval(*expr.a, frame);
      if (expr.c) return Eval(*expr.c, frame);
      return MakeUndefined(budget(),
                           fmt::format("the inline if-expression on line {} evaluated to false and "
                                       "no else section was defined.",
                                       expr.line));
    }
  }
  return Value();
}

Expected<Value> Evaluator::EvalName(int name_id, const FramePtr& frame) {
  for (const Frame* f = frame.get(); f; f = f->parent.get()) {
    if (f->variables.size() > 16 && !budget()->ChargeItems(f->variables.size() / 16))
      return tl::unexpected(budget()->Error());
    for (const auto& [id, value] : f->variables)
      if (id == name_id) return value;
  }
  const size_t index = static_cast<size_t>(name_id);
  if (variables_[index]) return *variables_[index];
  return MakeUndefined(budget(), fmt::format("'{}' is undefined", tree_.names[index]));
}

Expected<std::vector<Value>> Evaluator::EvalItems(const std::vector<ExprPtr>& items,
                                                  const FramePtr& frame) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const ExprPtr& item : items) {
    LS_TRY(Value value, Eval(*item, frame));
    values.push_back(std::move(value));
  }
  return values;
}

Expected<Value> Evaluator::EvalDict(const Expr& expr, const FramePtr& frame) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    LS_TRY(Value key, Eval(*expr.items[i], frame));
    LS_TRY(Value value, Eval(*expr.items[i + 1], frame));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return MakeDict(budget(), std::move(entries));
}

Expected<Value> Evaluator::EvalSlice(const Expr& expr, const FramePtr& frame) {
  LS_TRY(const Value object, Eval(*expr.a, frame));
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!expr.items[i]) continue;
    LS_TRY(bounds[i], Eval(*expr.items[i], frame));
  }
  return Slice(*this, object, bounds[0], bounds[1], bounds[2]);
}

Expected<Arguments> Evaluator::EvalArguments(const CallArguments* call, const FramePtr& frame) {
  Arguments arguments;
  if (!call) return arguments;
  LS_TRY(arguments.positional, EvalItems(call->positional, frame));
  for (const auto& [name, expr] : call->named) {
    LS_TRY(Value value, Eval(*expr, frame));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (call->star) {
    LS_TRY(const Value star, Eval(*call->star, frame));
    if (!IsIterable(star))
      return PythonError("argument after * must be an iterable, not {}", TypeName(star));
    LS_TRY(std::vector<Value> more, ToVector(*this, star));
    std::move(more.begin(), more.end(), std::back_inserter(arguments.positional));
  }
  if (call->star_star) {
    LS_TRY(const Value mapping, Eval(*call->star_star, frame));
    if (!mapping.is(Kind::kDict))
      return PythonError("argument after ** must be a mapping, not {}", TypeName(mapping));
    const size_t written = arguments.named.size();  // the keys of a dict differ among themselves
    for (const auto& [key, value] : mapping.dict().entries) {
      if (!key.is_string()) return PythonError("keywords must be strings");
      if (!budget()->ChargeItems(written / 8) ||
          !budget()->ChargeText(key.text().size(), Work::kCopy))
        return tl::unexpected(budget()->Error());
      for (size_t i = 0; i < written; ++i)
        if (arguments.named[i].first == key.text())
          return PythonError("got multiple values for keyword argument '{}'", key.text());
      arguments.named.emplace_back(key.text(), value);
    }
  }
  return arguments;
}

Expected<Value> Evaluator::EvalCall(const Expr& expr, const FramePtr& frame, const Value* caller) {
  LS_TRY(const Value callee, Eval(*expr.a, frame));
  LS_TRY(Arguments arguments, EvalArguments(expr.call.get(), frame));
  if (caller) arguments.named.emplace_back("caller", *caller);
  return Call(callee, arguments);
}

Expected<Value> Evaluator::EvalFilter(const Expr& expr, const FramePtr& frame) {
  Value input;
  if (expr.a) {
    LS_TRY(input, Eval(*expr.a, frame));
  } else if (filter_input_) {
    input = *filter_input_;
  }
  LS_TRY(const Arguments arguments, EvalArguments(expr.call.get(), frame));
  return CallFilter(*this, expr.name, input, arguments);
}

Expected<Value> Evaluator::EvalTest(const Expr& expr, const FramePtr& frame) {
  LS_TRY(const Value input, Eval(*expr.a, frame));
  LS_TRY(const Arguments arguments, EvalArguments(expr.call.get(), frame));
  LS_TRY(const bool passes, CallTest(*this, expr.name, input, arguments));
  return Value::Bool(passes);
}

Expected<Value> Evaluator::EvalConcat(const Expr& expr, const FramePtr& frame) {
  LS_TRY(const std::vector<Value> items, EvalItems(expr.items, frame));
  bool markup = false;
  for (const Value& item : items) markup |= autoescape_ && item.is_string() && item.markup();
  std::string out;
  for (const Value& item : items) {
    if (markup && !(item.is_string() && item.markup())) {
      LS_TRY(const std::string text, Str(item, budget()));
      out += Escape(text, budget());
    } else {
      LS_RETURN_IF_ERROR(Append(item, Style::kStr, budget(), out));
    }
  }
  return String(std::move(out)).AsMarkup(markup);
}

Expected<bool> Evaluator::CompareOne(CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq:
      return Equal(a, b, budget());
    case CompareOp::kNe:
      return !Equal(a, b, budget());
    case CompareOp::kLt:
      return Less(a, b, "<", budget());
    case CompareOp::kLe:
      return Less(a, b, "<=", budget());
    case CompareOp::kGt:
      return Less(b, a, ">", budget());
    case CompareOp::kGe:
      return Less(b, a, ">=", budget());
    case CompareOp::kIn:
      return Contains(*this, b, a);
    case CompareOp::kNotIn: {
      LS_TRY(const bool contains, Contains(*this, b, a));
      return !contains;
    }
  }
  return false;
}

Expected<Value> Evaluator::EvalCompare(const Expr& expr, const FramePtr& frame) {
  LS_TRY(Value left, Eval(*expr.a, frame));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    LS_TRY(Value right, Eval(*expr.items[i], frame));
    LS_TRY(const bool holds, CompareOne(expr.ops[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

}  // namespace lockstep::jinja
