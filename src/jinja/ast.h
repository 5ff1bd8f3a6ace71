// The tree of a chat template: what the parser makes and the evaluator walks. Plain structs; which
// fields a kind uses stands beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace lockstep::jinja {

// No expression or statement nests deeper: every walk over the tree may recurse.
inline constexpr int kMaxTreeDepth = 240;

enum class ExprKind : uint8_t {
  kConstant,   // value
  kName,       // name_id
  kTuple,      // items
  kList,       // items
  kDict,       // items: key, value, key, value
  kAttribute,  // a.name
  kItem,       // a[b]
  kSlice,      // a[items[0]:items[1]:items[2]], each may be null
  kCall,       // a(call)
  kFilter,     // a | name(call); a is null for the content of a filter block
  kTest,       // a is name(call)
  kUnary,      // op a: - + !
  kBinary,     // a op b: + - * / f(loor) % p(ow)
  kConcat,     // items joined by ~
  kCompare,    // a ops[0] items[0] ops[1] items[1] ...
  kAnd,
  kOr,            // a, b
  kConditional,   // a if b else c (c may be null)
  kNamespaceRef,  // name.attribute, only as a target of set: name_id, name
};

enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // *args, **kwargs
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  char op = 0;
  int line = 0;
  int depth = 1;  // levels below and at this one
  int name_id = -1;
  std::string name;
  Value value;
  ExprPtr a, b, c;
  std::vector<ExprPtr> items;
  std::vector<CompareOp> ops;
  std::unique_ptr<CallArguments> call;
};

enum class StmtKind : uint8_t {
  kData,         // text
  kPrint,        // expr
  kFor,          // for target in expr if test (recursive): body, else_body
  kIf,           // branches: (test, body) ..., else_body
  kMacro,        // name_id, text = its name, params, body
  kCallBlock,    // call(params) expr: body
  kFilterBlock,  // expr: a chain of filters over the body
  kSet,          // target = expr
  kSetBlock,     // target = body, through the filters of expr (may be null)
  kWith,         // targets = values: body
  kAutoescape,   // expr: body
  kBlock,        // text = its name, body
  kGeneration,   // body: text that the assistant wrote
  kBreak,
  kContinue,
  kNoLoader,  // include, import, extends, from: nothing to load from
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Param {
  int name_id = -1;
  std::string name;
  ExprPtr default_value;  // null: none
};

struct Stmt {
  StmtKind kind = StmtKind::kData;
  int line = 0;
  bool recursive = false;
  bool uses_loop = false;                                               // kFor: body reads `loop`
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;  // kMacro, kCallBlock
  int name_id = -1;
  std::string text;
  ExprPtr target, expr, test;
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;  // kWith
  std::vector<std::pair<ExprPtr, Body>> branches;        // kIf
  std::vector<Param> params;
  Body body, else_body;
};

struct Tree {
  Body body;
  std::vector<std::string> names;  // by name_id
  int loop_id = -1, caller_id = -1, kwargs_id = -1, varargs_id = -1;
};

}  // namespace lockstep::jinja
