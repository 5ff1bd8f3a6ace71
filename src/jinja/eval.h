// The evaluator: walks the Tree of a template once and writes its text.
// Scopes are Frames. Names are looked up from the innermost frame outwards, then among the
// variables of the rendering. if, print and set share the frame they stand in; for (each turn),
// macro, call, with, filter and set blocks open one of their own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/jinja.h"
#include "jinja/runtime.h"

namespace lockstep::jinja {

struct Frame {
  std::shared_ptr<Frame> parent;
  std::vector<std::pair<int, Value>> variables;  // by name id
};
using FramePtr = std::shared_ptr<Frame>;

// A macro, or the body of a call block (its name is then empty).
struct MacroObject : Object {
  MacroObject(Budget* budget, const Stmt* stmt, FramePtr closure);
  std::string Describe() const override;
  const Stmt* stmt;
  FramePtr closure;
};

// The `loop` variable: the loop itself, with what it has peeked at.
struct LoopObject : Object {
  LoopObject(Budget* budget, const Stmt* stmt, FramePtr parent, Iterator iterator, int depth0);
  std::string Describe() const override;
  const Stmt* stmt;
  FramePtr parent;  // the frame in which the for stands
  Iterator iterator;
  int depth0;  // how many recursive calls deep
  int64_t index0 = -1;
  std::optional<int64_t> length;
  std::vector<Value> ahead;  // items already taken from the iterator, from `ahead_at` on
  size_t ahead_at = 0;
  Value previous, current;
  std::optional<Value> last_changed;
};

enum class Flow { kNormal, kBreak, kContinue };

class Evaluator final : public Runtime {
 public:
  Evaluator(const Tree& tree, const Clock& clock, const Limits& limits);
  ~Evaluator() override;

  Expected<Rendered> Run(const Json& variables);

  // Runtime
  Expected<Value> Call(const Value& callee, const Arguments& arguments) override;
  bool autoescape() const override { return autoescape_; }
  void KeepAlive(std::shared_ptr<Object> object) override;
  Expected<std::optional<Value>> ObjectAttribute(const Value& object,
                                                 std::string_view name) override;
  Expected<int64_t> ObjectLength(const Value& object) override;

 private:
  // One level of evaluation inside another; ok() is false when there are too many.
  class Nesting {
   public:
    explicit Nesting(Evaluator& evaluator) : evaluator_(evaluator) { ++evaluator_.nesting_; }
    ~Nesting() { --evaluator_.nesting_; }
    Nesting(const Nesting&) = delete;
    bool ok() const;

   private:
    Evaluator& evaluator_;
  };

  // Expressions (eval.cc)
  Expected<Value> Eval(const Expr& expr, const FramePtr& frame);
  Expected<Value> EvalNode(const Expr& expr, const FramePtr& frame);
  Expected<Value> EvalName(int name_id, const FramePtr& frame);
  Expected<std::vector<Value>> EvalItems(const std::vector<ExprPtr>& items, const FramePtr& frame);
  Expected<Value> EvalDict(const Expr& expr, const FramePtr& frame);
  Expected<Value> EvalSlice(const Expr& expr, const FramePtr& frame);
  Expected<Value> EvalCall(const Expr& expr, const FramePtr& frame, const Value* caller = nullptr);
  Expected<Value> EvalFilter(const Expr& expr, const FramePtr& frame);
  Expected<Value> EvalTest(const Expr& expr, const FramePtr& frame);
  Expected<Value> EvalConcat(const Expr& expr, const FramePtr& frame);
  Expected<Value> EvalCompare(const Expr& expr, const FramePtr& frame);
  Expected<bool> CompareOne(CompareOp op, const Value& a, const Value& b);
  Expected<Arguments> EvalArguments(const CallArguments* call, const FramePtr& frame);

  // Statements (statements.cc)
  Expected<Flow> Exec(const Body& body, const FramePtr& frame, std::string& out);
  Expected<Flow> ExecOne(const Stmt& stmt, const FramePtr& frame, std::string& out);
  Expected<Flow> ExecIf(const Stmt& stmt, const FramePtr& frame, std::string& out);
  Expected<Flow> ExecFor(const Stmt& stmt, const FramePtr& frame, std::string& out);
  Expected<Flow> RunLoop(const Stmt& stmt, const Value& iterable, const FramePtr& frame, int depth0,
                         std::string& out);
  Expected<bool> NextItem(LoopObject& loop, Value* out);
  Expected<bool> Fetch(LoopObject& loop, Value* out);
  Expected<void> Peek(LoopObject& loop);
  Expected<Flow> ExecCapture(const Stmt& stmt, const FramePtr& frame, std::string& out);
  Expected<Flow> ExecWith(const Stmt& stmt, const FramePtr& frame, std::string& out);
  Expected<Flow> ExecGeneration(const Stmt& stmt, const FramePtr& frame, std::string& out);
  Expected<void> Assign(const Expr& target, Value value, const FramePtr& frame);
  Expected<void> CheckNamespaces(const Expr& target, const FramePtr& frame);
  Expected<void> Write(std::string& out, std::string_view text);
  Expected<void> Print(std::string& out, const Value& value);
  Expected<void> WriteResult(std::string& out, const Value& value);

  // Calls (calls.cc)
  Value MakeMacro(const Stmt& stmt, const FramePtr& frame);
  Expected<Value> CallMacro(const MacroObject& macro, const Arguments& arguments);
  Expected<Value> CallLoop(const Value& callee, const Arguments& arguments);
  Expected<std::optional<Value>> LoopAttribute(const Value& object, std::string_view name);
  Expected<std::optional<Value>> MacroAttribute(const MacroObject& macro, std::string_view name);
  Expected<std::optional<Value>> CyclerAttribute(const Value& object, std::string_view name);
  Expected<std::optional<Value>> Global(const std::string& name);

  FramePtr NewFrame(const FramePtr& parent) {
    auto frame = std::make_shared<Frame>();
    frame->parent = parent;
    return frame;
  }
  void Set(const FramePtr& frame, int name_id, Value value);

  const Tree& tree_;
  const Clock clock_;
  const Limits limits_;
  int nesting_ = 0;     // Eval and Exec inside each other
  int call_depth_ = 0;  // macros and recursive loops inside each other
  bool autoescape_ = false;
  const Value* filter_input_ = nullptr;  // what a filter block feeds its first filter
  FramePtr root_;
  std::vector<std::optional<Value>> variables_;  // by name id: the context and the globals
  std::string* root_out_ = nullptr;
  std::vector<std::pair<size_t, size_t>> spans_;
  size_t counted_bytes_ = 0, counted_points_ = 0;  // of *root_out_
  std::vector<FramePtr> kept_frames_;              // captured by macros: may be part of a cycle
  std::vector<std::shared_ptr<Object>> kept_objects_;
};

}  // namespace lockstep::jinja
