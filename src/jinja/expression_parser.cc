#include "jinja/expression_parser.h"

#include <algorithm>

namespace lockstep::jinja {
namespace {

ExprPtr Make(ExprKind kind, int line) {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  return node;
}

int DepthOf(const ExprPtr& node) { return node ? node->depth : 0; }

}  // namespace

tl::unexpected<TemplateError> ExpressionParser::Fail(std::string message, int line) const {
  return tl::unexpected(
      TemplateError{ErrorKind::kSyntax, line > 0 ? line : current().line, std::move(message)});
}

namespace {
std::string Wanted(std::string_view wanted, const Token& found) {
  if (found.kind == TokenKind::kEof)
    return fmt::format("unexpected end of template, expected '{}'.", wanted);
  return fmt::format("expected token '{}', got '{}'", wanted, Describe(found));
}
}  // namespace

Expected<Token> ExpressionParser::ExpectOp(std::string_view op) {
  if (!IsOp(op)) return Fail(Wanted(op, current()));
  return Next();
}
Expected<Token> ExpressionParser::ExpectName(std::string_view name) {
  if (!Is(TokenKind::kName) || (!name.empty() && current().text != name))
    return Fail(Wanted(name.empty() ? "name" : name, current()));
  return Next();
}
Expected<void> ExpressionParser::Expect(TokenKind kind) {
  if (!Is(kind)) return Fail(Wanted(DescribeKind(kind), current()));
  Next();
  return {};
}

int ExpressionParser::NameId(const std::string& name) {
  const auto [it, added] = name_ids_.emplace(name, static_cast<int>(tree_.names.size()));
  if (added) tree_.names.push_back(name);
  return it->second;
}

Expected<ExprPtr> ExpressionParser::Finish(ExprPtr node) const {
  int depth = std::max({DepthOf(node->a), DepthOf(node->b), DepthOf(node->c)});
  for (const ExprPtr& item : node->items) depth = std::max(depth, DepthOf(item));
  if (node->call) {
    for (const ExprPtr& item : node->call->positional) depth = std::max(depth, DepthOf(item));
    for (const auto& [name, item] : node->call->named) depth = std::max(depth, DepthOf(item));
    depth = std::max({depth, DepthOf(node->call->star), DepthOf(node->call->star_star)});
  }
  node->depth = depth + 1;
  if (node->depth > kMaxTreeDepth)
    return Fail(fmt::format("an expression nests deeper than {} levels", kMaxTreeDepth),
                node->line);
  return node;
}

Expected<ExprPtr> ExpressionParser::ParseExpression(bool with_condition) {
  const Level level(depth_);
  if (depth_ > kMaxTreeDepth)
    return Fail(fmt::format("the template nests deeper than {} levels", kMaxTreeDepth));
  if (!with_condition) return ParseOr();
  int line = current().line;
  LS_TRY(ExprPtr node, ParseOr());
  while (SkipName("if")) {
    ExprPtr conditional = Make(ExprKind::kConditional, line);
    conditional->a = std::move(node);
    LS_TRY(conditional->b, ParseOr());
    if (SkipName("else")) {
      LS_TRY(conditional->c, ParseExpression());
    }
    LS_TRY(node, Finish(std::move(conditional)));
    line = current().line;
  }
  return node;
}

Expected<ExprPtr> ExpressionParser::ParseOr() {
  int line = current().line;
  LS_TRY(ExprPtr left, ParseAnd());
  while (SkipName("or")) {
    ExprPtr node = Make(ExprKind::kOr, line);
    node->a = std::move(left);
    LS_TRY(node->b, ParseAnd());
    LS_TRY(left, Finish(std::move(node)));
    line = current().line;
  }
  return left;
}

Expected<ExprPtr> ExpressionParser::ParseAnd() {
  int line = current().line;
  LS_TRY(ExprPtr left, ParseNot());
  while (SkipName("and")) {
    ExprPtr node = Make(ExprKind::kAnd, line);
    node->a = std::move(left);
    LS_TRY(node->b, ParseNot());
    LS_TRY(left, Finish(std::move(node)));
    line = current().line;
  }
  return left;
}

Expected<ExprPtr> ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const Level level(depth_);
  if (depth_ > kMaxTreeDepth)
    return Fail(fmt::format("the template nests deeper than {} levels", kMaxTreeDepth));
  ExprPtr node = Make(ExprKind::kUnary, Next().line);
  node->op = '!';
  LS_TRY(node->a, ParseNot());
  return Finish(std::move(node));
}

Expected<ExprPtr> ExpressionParser::ParseCompare() {
  const int line = current().line;
  LS_TRY(ExprPtr left, ParseSum());
  ExprPtr node;
  for (;;) {
    CompareOp op;
    if (IsOp("==")) {
      op = CompareOp::kEq;
    } else if (IsOp("!=")) {
      op = CompareOp::kNe;
    } else if (IsOp("<")) {
      op = CompareOp::kLt;
    } else if (IsOp("<=")) {
      op = CompareOp::kLe;
    } else if (IsOp(">")) {
      op = CompareOp::kGt;
    } else if (IsOp(">=")) {
      op = CompareOp::kGe;
    } else if (IsName("in")) {
      op = CompareOp::kIn;
    } else if (IsName("not") && look().kind == TokenKind::kName && look().text == "in") {
      Next();
      op = CompareOp::kNotIn;
    } else {
      break;
    }
    Next();
    if (!node) {
      node = Make(ExprKind::kCompare, line);
      node->a = std::move(left);
    }
    LS_TRY(ExprPtr operand, ParseSum());
    node->ops.push_back(op);
    node->items.push_back(std::move(operand));
  }
  if (!node) return left;
  return Finish(std::move(node));
}

Expected<ExprPtr> ExpressionParser::ParseSum() {
  int line = current().line;
  LS_TRY(ExprPtr left, ParseConcat());
  while (IsOp("+") || IsOp("-")) {
    ExprPtr node = Make(ExprKind::kBinary, line);
    node->op = Next().text[0];
    node->a = std::move(left);
    LS_TRY(node->b, ParseConcat());
    LS_TRY(left, Finish(std::move(node)));
    line = current().line;
  }
  return left;
}

Expected<ExprPtr> ExpressionParser::ParseConcat() {
  const int line = current().line;
  LS_TRY(ExprPtr left, ParseProduct());
  if (!IsOp("~")) return left;
  ExprPtr node = Make(ExprKind::kConcat, line);
  node->items.push_back(std::move(left));
  while (SkipOp("~")) {
    LS_TRY(ExprPtr item, ParseProduct());
    node->items.push_back(std::move(item));
  }
  return Finish(std::move(node));
}

Expected<ExprPtr> ExpressionParser::ParseProduct() {
  int line = current().line;
  LS_TRY(ExprPtr left, ParsePower());
  while (IsOp("*") || IsOp("/") || IsOp("//") || IsOp("%")) {
    ExprPtr node = Make(ExprKind::kBinary, line);
    const std::string op = Next().text;
    node->op = op == "//" ? 'f' : op[0];
    node->a = std::move(left);
    LS_TRY(node->b, ParsePower());
    LS_TRY(left, Finish(std::move(node)));
    line = current().line;
  }
  return left;
}

// Left to right, unlike Python: 2 ** 3 ** 2 is 64.
Expected<ExprPtr> ExpressionParser::ParsePower() {
  int line = current().line;
  LS_TRY(ExprPtr left, ParseUnary());
  while (SkipOp("**")) {
    ExprPtr node = Make(ExprKind::kBinary, line);
    node->op = 'p';
    node->a = std::move(left);
    LS_TRY(node->b, ParseUnary());
    LS_TRY(left, Finish(std::move(node)));
    line = current().line;
  }
  return left;
}

// A sign binds tighter than ** and than a filter: -2 ** 2 is 4, -3 | abs is 3.
Expected<ExprPtr> ExpressionParser::ParseUnary(bool with_filter) {
  const Level level(depth_);
  if (depth_ > kMaxTreeDepth)
    return Fail(fmt::format("the template nests deeper than {} levels", kMaxTreeDepth));
  ExprPtr node;
  if (IsOp("-") || IsOp("+")) {
    ExprPtr sign = Make(ExprKind::kUnary, current().line);
    sign->op = Next().text[0];
    LS_TRY(sign->a, ParseUnary(false));
    LS_TRY(node, Finish(std::move(sign)));
  } else {
    LS_TRY(node, ParsePrimary());
  }
  LS_TRY(node, ParsePostfix(std::move(node)));
  if (with_filter) return ParseFilters(std::move(node));
  return node;
}

Expected<ExprPtr> ExpressionParser::ParsePrimary(bool with_namespace) {
  const Token token = current();
  ExprPtr node = Make(ExprKind::kConstant, token.line);
  switch (token.kind) {
    case TokenKind::kName:
      Next();
      if (token.text == "true" || token.text == "True") {
        node->value = Value::Bool(true);
      } else if (token.text == "false" || token.text == "False") {
        node->value = Value::Bool(false);
      } else if (token.text == "none" || token.text == "None") {
        node->value = Value();
      } else {
        node->kind = ExprKind::kName;
        node->name_id = NameId(token.text);
        if (with_namespace && SkipOp(".")) {
          node->kind = ExprKind::kNamespaceRef;
          LS_TRY(const Token attribute, ExpectName());
          node->name = attribute.text;
        }
      }
      return node;
    case TokenKind::kString: {
      std::string text;
      while (Is(TokenKind::kString)) text += Next().text;
      node->value = MakeString(nullptr, std::move(text));
      return node;
    }
    case TokenKind::kInteger:
      node->value = Value::Integer(Next().integer);
      return node;
    case TokenKind::kFloat:
      node->value = Value::Float(Next().real);
      return node;
    default:
      break;
  }
  if (SkipOp("(")) {
    LS_TRY(node, ParseTuple(true, {}, true));
    LS_RETURN_IF_ERROR(ExpectOp(")"));
    return node;
  }
  if (IsOp("[")) return ParseListLiteral();
  if (IsOp("{")) return ParseDictLiteral();
  return Fail(fmt::format("unexpected '{}'", Describe(token)), token.line);
}

Expected<ExprPtr> ExpressionParser::ParseTuple(bool with_condition, std::string_view end,
                                               bool explicit_parentheses) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) LS_RETURN_IF_ERROR(ExpectOp(","));
    if (Is(TokenKind::kVariableEnd) || Is(TokenKind::kBlockEnd) || IsOp(")") ||
        (!end.empty() && IsName(end)))
      break;
    LS_TRY(ExprPtr item, ParseExpression(with_condition));
    items.push_back(std::move(item));
    if (!IsOp(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!explicit_parentheses)
      return Fail(fmt::format("Expected an expression, got '{}'", Describe(current())));
  }
  ExprPtr node = Make(ExprKind::kTuple, line);
  node->items = std::move(items);
  return Finish(std::move(node));
}

namespace {
// The word that Jinja2's message uses for an expression that cannot be assigned to.
std::string_view NodeName(const Expr& node) {
  switch (node.kind) {
    case ExprKind::kConstant:
      return "const";
    case ExprKind::kList:
      return "list";
    case ExprKind::kDict:
      return "dict";
    case ExprKind::kTuple:
      return "tuple";
    default:
      return "expression";
  }
}
}  // namespace

Expected<ExprPtr> ExpressionParser::ParseTarget(bool with_namespace, std::string_view end) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) LS_RETURN_IF_ERROR(ExpectOp(","));
    if (Is(TokenKind::kVariableEnd) || Is(TokenKind::kBlockEnd) || IsOp(")") ||
        (!end.empty() && IsName(end)))
      break;
    const Level level(depth_);
    LS_TRY(ExprPtr item, ParsePrimary(with_namespace));
    items.push_back(std::move(item));
    if (!IsOp(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.empty())
    return Fail(fmt::format("Expected an expression, got '{}'", Describe(current())));
  ExprPtr target;
  if (is_tuple) {
    target = Make(ExprKind::kTuple, line);
    target->items = std::move(items);
    LS_TRY(target, Finish(std::move(target)));
  } else {
    target = std::move(items[0]);
  }
  // Names, namespace attributes, and tuples of them.
  std::vector<const Expr*> pending = {target.get()};
  while (!pending.empty()) {
    const Expr* node = pending.back();
    pending.pop_back();
    if (node->kind == ExprKind::kTuple) {
      for (const ExprPtr& item : node->items) pending.push_back(item.get());
    } else if (node->kind != ExprKind::kName && node->kind != ExprKind::kNamespaceRef) {
      return Fail(fmt::format("can't assign to '{}'", NodeName(*target)), target->line);
    }
  }
  return target;
}

Expected<ExprPtr> ExpressionParser::ParseListLiteral() {
  ExprPtr node = Make(ExprKind::kList, Next().line);
  while (!IsOp("]")) {
    if (!node->items.empty()) LS_RETURN_IF_ERROR(ExpectOp(","));
    if (IsOp("]")) break;
    LS_TRY(ExprPtr item, ParseExpression());
    node->items.push_back(std::move(item));
  }
  Next();
  return Finish(std::move(node));
}

Expected<ExprPtr> ExpressionParser::ParseDictLiteral() {
  ExprPtr node = Make(ExprKind::kDict, Next().line);
  while (!IsOp("}")) {
    if (!node->items.empty()) LS_RETURN_IF_ERROR(ExpectOp(","));
    if (IsOp("}")) break;
    LS_TRY(ExprPtr key, ParseExpression());
    LS_RETURN_IF_ERROR(ExpectOp(":"));
    LS_TRY(ExprPtr value, ParseExpression());
    node->items.push_back(std::move(key));
    node->items.push_back(std::move(value));
  }
  Next();
  return Finish(std::move(node));
}

Expected<ExprPtr> ExpressionParser::ParsePostfix(ExprPtr node) {
  for (;;) {
    if (IsOp(".") || IsOp("[")) {
      LS_TRY(node, ParseSubscript(std::move(node)));
    } else if (IsOp("(")) {
      LS_TRY(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

Expected<ExprPtr> ExpressionParser::ParseFilters(ExprPtr node) {
  for (;;) {
    if (IsOp("|")) {
      LS_TRY(node, ParseFilter(std::move(node)));
    } else if (IsName("is")) {
      LS_TRY(node, ParseTest(std::move(node)));
    } else if (IsOp("(")) {
      LS_TRY(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

Expected<ExprPtr> ExpressionParser::ParseSubscript(ExprPtr object) {
  const Token token = Next();
  if (token.text == ".") {
    const Token name = Next();
    if (name.kind == TokenKind::kName) {
      ExprPtr node = Make(ExprKind::kAttribute, token.line);
      node->a = std::move(object);
      node->name = name.text;
      node->value = MakeString(nullptr, name.text);
      return Finish(std::move(node));
    }
    if (name.kind != TokenKind::kInteger) return Fail("expected name or number", name.line);
    ExprPtr node = Make(ExprKind::kItem, token.line);
    node->a = std::move(object);
    node->b = Make(ExprKind::kConstant, name.line);
    node->b->value = Value::Integer(name.integer);
    return Finish(std::move(node));
  }
  // Several subscripts make a tuple; a slice can only stand alone (Python refuses to hash it).
  std::vector<ExprPtr> keys;
  while (!IsOp("]")) {
    if (!keys.empty()) LS_RETURN_IF_ERROR(ExpectOp(","));
    ExprPtr bounds[3];
    const int line = current().line;
    bool slice = false;
    if (!IsOp(":")) {
      LS_TRY(bounds[0], ParseExpression());
    }
    if (SkipOp(":")) {
      slice = true;
      if (!IsOp(":") && !IsOp("]") && !IsOp(",")) {
        LS_TRY(bounds[1], ParseExpression());
      }
      if (SkipOp(":") && !IsOp("]") && !IsOp(",")) {
        LS_TRY(bounds[2], ParseExpression());
      }
    }
    if (!slice) {
      keys.push_back(std::move(bounds[0]));
      continue;
    }
    ExprPtr node = Make(ExprKind::kSlice, line);
    for (ExprPtr& bound : bounds) node->items.push_back(std::move(bound));
    keys.push_back(std::move(node));
  }
  Next();
  if (keys.size() == 1 && keys[0]->kind == ExprKind::kSlice && !keys[0]->a) {
    keys[0]->a = std::move(object);
    return Finish(std::move(keys[0]));
  }
  for (const ExprPtr& key : keys)
    if (key->kind == ExprKind::kSlice && !key->a)
      return Fail("a slice cannot be one of several subscripts", key->line);
  ExprPtr node = Make(ExprKind::kItem, token.line);
  node->a = std::move(object);
  if (keys.size() == 1) {
    node->b = std::move(keys[0]);
  } else {
    node->b = Make(ExprKind::kTuple, token.line);
    node->b->items = std::move(keys);
    LS_TRY(node->b, Finish(std::move(node->b)));
  }
  return Finish(std::move(node));
}

Expected<std::string> ExpressionParser::ParseDottedName() {
  LS_TRY(const Token first, ExpectName());
  std::string name = first.text;
  while (SkipOp(".")) {
    LS_TRY(const Token part, ExpectName());
    name += "." + part.text;
  }
  return name;
}

Expected<ExprPtr> ExpressionParser::ParseFilter(ExprPtr node, bool start_inline) {
  while (IsOp("|") || start_inline) {
    if (!start_inline) Next();
    start_inline = false;
    ExprPtr filter = Make(ExprKind::kFilter, current().line);
    LS_TRY(filter->name, ParseDottedName());
    filter->a = std::move(node);
    if (IsOp("(")) {
      LS_TRY(filter->call, ParseArguments());
    }
    LS_TRY(node, Finish(std::move(filter)));
  }
  return node;
}

Expected<ExprPtr> ExpressionParser::ParseTest(ExprPtr object) {
  const int line = Next().line;
  const bool negated = SkipName("not");
  ExprPtr node = Make(ExprKind::kTest, line);
  LS_TRY(node->name, ParseDottedName());
  node->a = std::move(object);
  if (IsOp("(")) {
    LS_TRY(node->call, ParseArguments());
  } else if ((Is(TokenKind::kName) || Is(TokenKind::kString) || Is(TokenKind::kInteger) ||
              Is(TokenKind::kFloat) || IsOp("[") || IsOp("{")) &&
             !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) return Fail("You cannot chain multiple tests with is");
    LS_TRY(ExprPtr argument, ParsePrimary());
    LS_TRY(argument, ParsePostfix(std::move(argument)));
    node->call = std::make_unique<CallArguments>();
    node->call->positional.push_back(std::move(argument));
  }
  LS_TRY(node, Finish(std::move(node)));
  if (!negated) return node;
  ExprPtr inverse = Make(ExprKind::kUnary, line);
  inverse->op = '!';
  inverse->a = std::move(node);
  return Finish(std::move(inverse));
}

Expected<ExprPtr> ExpressionParser::ParseCall(ExprPtr callee) {
  ExprPtr node = Make(ExprKind::kCall, current().line);
  LS_TRY(node->call, ParseArguments());
  node->a = std::move(callee);
  return Finish(std::move(node));
}

Expected<std::unique_ptr<CallArguments>> ExpressionParser::ParseArguments() {
  const Token open = Next();
  auto call = std::make_unique<CallArguments>();
  bool first = true;
  const auto invalid = [&] {
    return Fail("invalid syntax for function call expression", open.line);
  };
  while (!IsOp(")")) {
    if (!first) {
      LS_RETURN_IF_ERROR(ExpectOp(","));
      if (IsOp(")")) break;
    }
    first = false;
    if (IsOp("*")) {
      if (call->star || call->star_star) return invalid();
      Next();
      LS_TRY(call->star, ParseExpression());
    } else if (IsOp("**")) {
      if (call->star_star) return invalid();
      Next();
      LS_TRY(call->star_star, ParseExpression());
    } else if (Is(TokenKind::kName) && look().kind == TokenKind::kOperator && look().text == "=") {
      if (call->star_star) return invalid();
      const std::string key = Next().text;
      Next();
      LS_TRY(ExprPtr value, ParseExpression());
      call->named.emplace_back(key, std::move(value));
    } else {
      if (call->star || call->star_star || !call->named.empty()) return invalid();
      LS_TRY(ExprPtr value, ParseExpression());
      call->positional.push_back(std::move(value));
    }
  }
  Next();
  return call;
}

}  // namespace lockstep::jinja
