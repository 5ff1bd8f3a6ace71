// What Jinja2's compiler (not its parser) refuses or works out; see parser.h.
#include "jinja/filters.h"
#include "jinja/parser.h"

namespace lockstep::jinja {
namespace {

// Where in the template a node stands.
struct Place {
  bool soft = false;     // inside an if: an unknown filter fails only when it runs
  bool in_loop = false;  // break and continue mean something
  bool in_for = false;   // `loop` may not be assigned
};

// The special names read in a body: those of all bodies inside it count too, unless a target of
// that name was seen first.
struct Reads {
  bool loop = false, caller = false, kwargs = false, varargs = false;
  void Add(const Reads& other) {
    loop |= other.loop;
    caller |= other.caller;
    kwargs |= other.kwargs;
    varargs |= other.varargs;
  }
};

class Checker {
 public:
  explicit Checker(Tree& tree) : tree_(tree) {}

  Expected<void> Check(Body& body, Place place, Reads& reads) {
    for (auto& stmt : body) LS_RETURN_IF_ERROR(Check(*stmt, place, reads));
    return {};
  }

 private:
  static tl::unexpected<TemplateError> Fail(ErrorKind kind, int line, std::string message) {
    return tl::unexpected(TemplateError{kind, line, std::move(message)});
  }

  Expected<void> CheckCall(const CallArguments* call, Place place, Reads& reads) {
    if (!call) return {};
    for (const ExprPtr& item : call->positional)
      LS_RETURN_IF_ERROR(Check(item.get(), place, reads));
    for (size_t i = 0; i < call->named.size(); ++i) {
      LS_RETURN_IF_ERROR(Check(call->named[i].second.get(), place, reads));
      for (size_t j = 0; j < i; ++j)
        if (call->named[i].first == call->named[j].first)
          return Fail(ErrorKind::kPython, call->named[i].second->line,
                      "keyword argument repeated: " + call->named[i].first);
    }
    LS_RETURN_IF_ERROR(Check(call->star.get(), place, reads));
    return Check(call->star_star.get(), place, reads);
  }

  Expected<void> Check(const Expr* expr, Place place, Reads& reads) {
    if (!expr) return {};
    switch (expr->kind) {
      case ExprKind::kName:
        reads.loop |= expr->name_id == tree_.loop_id;
        reads.caller |= expr->name_id == tree_.caller_id;
        reads.kwargs |= expr->name_id == tree_.kwargs_id;
        reads.varargs |= expr->name_id == tree_.varargs_id;
        break;
      case ExprKind::kFilter:
        if (!place.soft && !HasFilter(expr->name))
          return Fail(ErrorKind::kSyntax, expr->line,
                      fmt::format("No filter named '{}'.", expr->name));
        break;
      case ExprKind::kTest:
        if (!place.soft && !HasTest(expr->name))
          return Fail(ErrorKind::kSyntax, expr->line,
                      fmt::format("No test named '{}'.", expr->name));
        break;
      case ExprKind::kConditional:
        place.soft = true;
        break;
      default:
        break;
    }
    for (const Expr* child : {expr->a.get(), expr->b.get(), expr->c.get()})
      LS_RETURN_IF_ERROR(Check(child, place, reads));
    for (const ExprPtr& item : expr->items) LS_RETURN_IF_ERROR(Check(item.get(), place, reads));
    return CheckCall(expr->call.get(), place, reads);
  }

  Expected<void> CheckTarget(const Expr* target, Place place) {
    if (!target) return {};
    if (target->kind == ExprKind::kTuple) {
      for (const ExprPtr& item : target->items) LS_RETURN_IF_ERROR(CheckTarget(item.get(), place));
    } else if (place.in_for && target->kind == ExprKind::kName &&
               target->name_id == tree_.loop_id) {
      return Fail(ErrorKind::kSyntax, target->line,
                  "Can't assign to special loop variable in for-loop target");
    }
    return {};
  }

  Expected<void> Check(Stmt& stmt, Place place, Reads& reads) {
    Place inner = place;  // a scope of its own: Jinja2 forgets there that it is inside an if
    inner.soft = false;
    switch (stmt.kind) {
      case StmtKind::kFor: {
        LS_RETURN_IF_ERROR(Check(stmt.expr.get(), place, reads));
        inner.in_for = true;
        LS_RETURN_IF_ERROR(CheckTarget(stmt.target.get(), inner));
        Reads test, body;
        LS_RETURN_IF_ERROR(Check(stmt.test.get(), inner, test));
        inner.in_loop = true;
        LS_RETURN_IF_ERROR(Check(stmt.body, inner, body));
        stmt.uses_loop = stmt.recursive || body.loop;
        inner.in_loop = place.in_loop;
        LS_RETURN_IF_ERROR(Check(stmt.else_body, inner, body));
        reads.Add(test);
        reads.Add(body);
        return {};
      }
      case StmtKind::kIf:
        place.soft = true;
        for (auto& [test, body] : stmt.branches) {
          LS_RETURN_IF_ERROR(Check(test.get(), place, reads));
          LS_RETURN_IF_ERROR(Check(body, place, reads));
        }
        return Check(stmt.else_body, place, reads);
      case StmtKind::kMacro:
      case StmtKind::kCallBlock: {
        LS_RETURN_IF_ERROR(Check(stmt.expr.get(), place, reads));
        inner.in_loop = false;  // a body of its own: break cannot leave it
        for (const Param& param : stmt.params)
          LS_RETURN_IF_ERROR(Check(param.default_value.get(), inner, reads));
        Reads body;
        LS_RETURN_IF_ERROR(Check(stmt.body, inner, body));
        stmt.uses_caller = body.caller;
        stmt.uses_kwargs = body.kwargs;
        stmt.uses_varargs = body.varargs;
        for (const Param& param : stmt.params) {
          if (param.name_id == tree_.caller_id && body.caller && !param.default_value)
            return Fail(ErrorKind::kSyntax, stmt.line,
                        "When defining macros or call blocks the special \"caller\" argument must "
                        "be omitted or be given a default.");
          if (param.name_id == tree_.caller_id) stmt.uses_caller = false;
          if (param.name_id == tree_.kwargs_id) stmt.uses_kwargs = false;
          if (param.name_id == tree_.varargs_id) stmt.uses_varargs = false;
        }
        reads.Add(body);
        return {};
      }
      case StmtKind::kGeneration:
        inner.in_loop = false;
        break;  // runs as a call block
      case StmtKind::kBlock:
        inner = Place();
        break;
      case StmtKind::kBreak:
      case StmtKind::kContinue:
        if (!place.in_loop)
          return Fail(ErrorKind::kPython, stmt.line,
                      stmt.kind == StmtKind::kBreak ? "'break' outside loop"
                                                    : "'continue' not properly in loop");
        return {};
      case StmtKind::kSet:
        LS_RETURN_IF_ERROR(CheckTarget(stmt.target.get(), place));
        return Check(stmt.expr.get(), place, reads);
      case StmtKind::kSetBlock:
        LS_RETURN_IF_ERROR(CheckTarget(stmt.target.get(), place));
        LS_RETURN_IF_ERROR(Check(stmt.expr.get(), inner, reads));
        return Check(stmt.body, inner, reads);
      case StmtKind::kWith:
        for (auto& [target, value] : stmt.assignments)
          LS_RETURN_IF_ERROR(Check(value.get(), place, reads));
        return Check(stmt.body, inner, reads);
      default:
        break;
    }
    LS_RETURN_IF_ERROR(Check(stmt.expr.get(), place, reads));
    return Check(stmt.body, inner, reads);
  }

  Tree& tree_;
};

}  // namespace

Expected<void> CheckTree(Tree& tree) {
  Reads reads;
  return Checker(tree).Check(tree.body, Place(), reads);
}

}  // namespace lockstep::jinja
