// The statements of the evaluator: text, print, if, for, set, with, blocks.
#include <algorithm>

#include "jinja/eval.h"
#include "jinja/format.h"
#include "jinja/unicode.h"

namespace lockstep::jinja {

LoopObject::LoopObject(Budget* budget, const Stmt* stmt, FramePtr parent, Iterator iterator,
                       int depth0)
    : Object(budget, sizeof(*this), iterator.source().depth() + 1),
      stmt(stmt),
      parent(std::move(parent)),
      iterator(std::move(iterator)),
      depth0(depth0) {}

std::string LoopObject::Describe() const {
  return fmt::format("<LoopContext {}/{}>", index0 + 1, length.value_or(index0 + 1));
}

Expected<void> Evaluator::Write(std::string& out, std::string_view text) {
  if (out.size() + text.size() > limits_.max_output_bytes)
    return Raise(ErrorKind::kLimit, "the text is longer than {} bytes", limits_.max_output_bytes);
  if (!budget()->ChargeText(text.size(), Work::kCopy)) return tl::unexpected(budget()->Error());
  out += text;
  return {};
}

Expected<void> Evaluator::Print(std::string& out, const Value& value) {
  if (value.is_string() && (!autoescape_ || value.markup())) return Write(out, value.text());
  if (value.is(Kind::kLoop)) LS_RETURN_IF_ERROR(ObjectLength(value));
  LS_TRY(const std::string text, Str(value, budget()));
  return Write(out, autoescape_ ? Escape(text, budget()) : text);
}

// The result of a call or filter block is joined to the text as it is, so it must be text.
Expected<void> Evaluator::WriteResult(std::string& out, const Value& value) {
  if (!value.is_string())
    return PythonError("sequence item 0: expected str instance, {} found", TypeName(value));
  return Write(out, value.text());
}

Expected<Flow> Evaluator::Exec(const Body& body, const FramePtr& frame, std::string& out) {
  const Nesting nesting(*this);
  for (const auto& stmt : body) {
    if (!nesting.ok() || !budget()->Step()) {
      TemplateError error = budget()->exhausted() ? budget()->Error()
                                                  : TemplateError{ErrorKind::kLimit, 0,
                                                                  "the template nests too deeply"};
      error.line = stmt->line;
      return tl::unexpected(std::move(error));
    }
    Expected<Flow> flow = ExecOne(*stmt, frame, out);
    if (!flow && flow.error().line == 0) flow.error().line = stmt->line;
    if (!flow || *flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Expected<Flow> Evaluator::ExecOne(const Stmt& stmt, const FramePtr& frame, std::string& out) {
  switch (stmt.kind) {
    case StmtKind::kData:
      LS_RETURN_IF_ERROR(Write(out, stmt.text));
      return Flow::kNormal;
    case StmtKind::kPrint: {
      LS_TRY(const Value value, Eval(*stmt.expr, frame));
      LS_RETURN_IF_ERROR(Print(out, value));
      return Flow::kNormal;
    }
    case StmtKind::kFor:
      return ExecFor(stmt, frame, out);
    case StmtKind::kIf:
      return ExecIf(stmt, frame, out);
    case StmtKind::kMacro:
      Set(frame, stmt.name_id, MakeMacro(stmt, frame));
      return Flow::kNormal;
    case StmtKind::kCallBlock: {
      const Value caller = MakeMacro(stmt, frame);
      const Nesting nesting(*this);
      LS_TRY(const Value value, EvalCall(*stmt.expr, frame, &caller));
      LS_RETURN_IF_ERROR(WriteResult(out, value));
      return Flow::kNormal;
    }
    case StmtKind::kSet: {
      LS_RETURN_IF_ERROR(CheckNamespaces(*stmt.target, frame));
      LS_TRY(Value value, Eval(*stmt.expr, frame));
      LS_RETURN_IF_ERROR(Assign(*stmt.target, std::move(value), frame));
      return Flow::kNormal;
    }
    case StmtKind::kFilterBlock:
    case StmtKind::kSetBlock:
      return ExecCapture(stmt, frame, out);
    case StmtKind::kWith:
      return ExecWith(stmt, frame, out);
    case StmtKind::kAutoescape: {
      LS_TRY(const Value on, Eval(*stmt.expr, frame));
      const bool before = std::exchange(autoescape_, Truth(on));
      Expected<Flow> flow = Exec(stmt.body, NewFrame(frame), out);
      autoescape_ = before;
      return flow;
    }
    // A block sees the top level of the template, not the place it stands in.
    case StmtKind::kBlock:
      return Exec(stmt.body, NewFrame(root_), out);
    case StmtKind::kGeneration:
      return ExecGeneration(stmt, frame, out);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
    case StmtKind::kNoLoader: {
      LS_TRY([[maybe_unused]] const Value name, Eval(*stmt.expr, frame));
      return PythonError("a chat template cannot load other templates");
    }
  }
  return Flow::kNormal;
}

Expected<Flow> Evaluator::ExecIf(const Stmt& stmt, const FramePtr& frame, std::string& out) {
  for (const auto& [test, body] : stmt.branches) {
    LS_TRY(const Value value, Eval(*test, frame));
    if (Truth(value)) return Exec(body, frame, out);
  }
  return Exec(stmt.else_body, frame, out);
}

Expected<Flow> Evaluator::ExecFor(const Stmt& stmt, const FramePtr& frame, std::string& out) {
  LS_TRY(const Value iterable, Eval(*stmt.expr, frame));
  return RunLoop(stmt, iterable, frame, 0, out);
}

// The next item that passes the loop's `if`. The test sees the target but not `loop`.
Expected<bool> Evaluator::Fetch(LoopObject& loop, Value* out) {
  for (;;) {
    LS_TRY(const bool more, loop.iterator.Next(*this, out));
    if (!more || !loop.stmt->test) return more;
    const FramePtr frame = NewFrame(loop.parent);
    LS_RETURN_IF_ERROR(Assign(*loop.stmt->target, *out, frame));
    LS_TRY(const Value passes, Eval(*loop.stmt->test, frame));
    if (Truth(passes)) return true;
  }
}

Expected<void> Evaluator::Peek(LoopObject& loop) {
  if (loop.ahead_at < loop.ahead.size()) return {};
  loop.ahead.clear();
  loop.ahead_at = 0;
  Value item;
  LS_TRY(const bool more, Fetch(loop, &item));
  if (more) loop.ahead.push_back(std::move(item));
  return {};
}

Expected<bool> Evaluator::NextItem(LoopObject& loop, Value* out) {
  if (loop.ahead_at < loop.ahead.size()) {
    *out = std::move(loop.ahead[loop.ahead_at++]);
  } else {
    LS_TRY(const bool more, Fetch(loop, out));
    if (!more) return false;
  }
  ++loop.index0;
  loop.previous = std::move(loop.current);
  loop.current = *out;
  return true;
}

Expected<Flow> Evaluator::RunLoop(const Stmt& stmt, const Value& iterable, const FramePtr& frame,
                                  int depth0, std::string& out) {
  LS_TRY(Iterator iterator, Iterator::Over(iterable));
  const auto loop =
      std::make_shared<LoopObject>(budget(), &stmt, frame, std::move(iterator), depth0);
  if (loop->depth() > kMaxValueDepth)
    return Raise(ErrorKind::kLimit, "values are nested deeper than {} levels", kMaxValueDepth);
  const Value loop_value(Kind::kLoop, loop);
  // Jinja2 clears this only at the end of a whole turn, so a loop whose every turn ended with
  // continue or break still runs its else.
  bool runs_else = true;
  FramePtr turn;
  for (Value item;;) {
    LS_TRY(const bool more, NextItem(*loop, &item));
    if (!more) break;
    if (turn && turn.use_count() == 1) {
      turn->variables.clear();
    } else {
      turn = NewFrame(frame);
    }
    LS_RETURN_IF_ERROR(Assign(*stmt.target, std::move(item), turn));
    if (stmt.uses_loop) Set(turn, tree_.loop_id, loop_value);
    LS_TRY(const Flow flow, Exec(stmt.body, turn, out));
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) runs_else = false;
  }
  if (!runs_else || stmt.else_body.empty()) return Flow::kNormal;
  return Exec(stmt.else_body, NewFrame(frame), out);
}

// {% filter %} and {% set %} blocks: the body's text, through filters, is printed or assigned.
Expected<Flow> Evaluator::ExecCapture(const Stmt& stmt, const FramePtr& frame, std::string& out) {
  const FramePtr inner = NewFrame(frame);
  std::string text;
  LS_TRY(const Flow flow, Exec(stmt.body, inner, text));
  if (flow != Flow::kNormal) return flow;  // break inside the body: what it wrote is dropped
  Value value = String(std::move(text)).AsMarkup(autoescape_);
  if (stmt.expr) {
    const Value input = value;
    const Value* before = std::exchange(filter_input_, &input);
    Expected<Value> filtered = Eval(*stmt.expr, inner);
    filter_input_ = before;
    LS_TRY(value, std::move(filtered));
  }
  if (stmt.kind == StmtKind::kFilterBlock) {
    LS_RETURN_IF_ERROR(WriteResult(out, value));
    return Flow::kNormal;
  }
  if (autoescape_ && value.is_string()) value = value.AsMarkup();
  LS_RETURN_IF_ERROR(CheckNamespaces(*stmt.target, frame));
  LS_RETURN_IF_ERROR(Assign(*stmt.target, std::move(value), frame));
  return Flow::kNormal;
}

Expected<Flow> Evaluator::ExecWith(const Stmt& stmt, const FramePtr& frame, std::string& out) {
  const FramePtr inner = NewFrame(frame);
  for (const auto& [target, expr] : stmt.assignments) {
    LS_TRY(Value value, Eval(*expr, frame));
    LS_RETURN_IF_ERROR(Assign(*target, std::move(value), inner));
  }
  return Exec(stmt.body, inner, out);
}

Expected<Flow> Evaluator::ExecGeneration(const Stmt& stmt, const FramePtr& frame,
                                         std::string& out) {
  std::string text;
  LS_RETURN_IF_ERROR(Exec(stmt.body, NewFrame(frame), text));
  // transformers counts what the template has put out so far; text that a macro or a set block
  // still holds back is not counted yet.
  const std::string_view fresh = std::string_view(*root_out_).substr(counted_bytes_);
  counted_points_ += CountCodePoints(fresh);
  counted_bytes_ = root_out_->size();
  budget()->ChargeText(text.size(), Work::kScan);
  spans_.emplace_back(counted_points_, counted_points_ + CountCodePoints(text));
  budget()->Allocate(sizeof(spans_[0]));
  LS_RETURN_IF_ERROR(Write(out, text));
  return Flow::kNormal;
}

Expected<void> Evaluator::CheckNamespaces(const Expr& target, const FramePtr& frame) {
  if (target.kind == ExprKind::kTuple) {
    for (const ExprPtr& item : target.items) LS_RETURN_IF_ERROR(CheckNamespaces(*item, frame));
  } else if (target.kind == ExprKind::kNamespaceRef) {
    LS_TRY(const Value object, EvalName(target.name_id, frame));
    if (!object.is(Kind::kNamespace))
      return Raise(ErrorKind::kTemplateRuntime, "cannot assign attribute on non-namespace object");
  }
  return {};
}

Expected<void> Evaluator::Assign(const Expr& target, Value value, const FramePtr& frame) {
  if (target.kind == ExprKind::kName) {
    Set(frame, target.name_id, std::move(value));
    return {};
  }
  if (target.kind == ExprKind::kNamespaceRef) {
    LS_TRY(const Value object, EvalName(target.name_id, frame));
    if (!object.is(Kind::kNamespace))
      return Raise(ErrorKind::kTemplateRuntime, "cannot assign attribute on non-namespace object");
    if (target.name.starts_with('_'))
      return Raise(ErrorKind::kSecurity,
                   "Chat templates cannot store underscore-prefixed attributes on a namespace, but "
                   "got '{}'. Please rename the attribute.",
                   target.name);
    auto& attributes = object.As<NamespaceObject>().attributes;
    budget()->ChargeItems(attributes.size() / 8);
    for (auto& [name, slot] : attributes) {
      if (name != target.name) continue;
      slot = std::move(value);
      return {};
    }
    attributes.emplace_back(target.name, std::move(value));
    return {};
  }
  if (!IsIterable(value))
    return PythonError("cannot unpack non-iterable {} object", TypeName(value));
  LS_TRY(Iterator iterator, Iterator::Over(value));
  std::vector<Value> items;
  for (Value item;;) {
    LS_TRY(const bool more, iterator.Next(*this, &item));
    if (!more) break;
    if (items.size() == target.items.size())
      return PythonError("too many values to unpack (expected {})", target.items.size());
    items.push_back(std::move(item));
  }
  if (items.size() < target.items.size())
    return PythonError("not enough values to unpack (expected {}, got {})", target.items.size(),
                       items.size());
  for (size_t i = 0; i < items.size(); ++i)
    LS_RETURN_IF_ERROR(Assign(*target.items[i], std::move(items[i]), frame));
  return {};
}

}  // namespace lockstep::jinja
