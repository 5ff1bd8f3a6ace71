// The part of the parser that reads expressions; parser.cc reads statements.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace lockstep::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  // The current token, and whether it is a given operator, name or kind.
  const Token& current() const { return tokens_[pos_]; }
  const Token& look() const { return tokens_[pos_ + 1 < tokens_.size() ? pos_ + 1 : pos_]; }
  bool IsOp(std::string_view op) const {
    return current().kind == TokenKind::kOperator && current().text == op;
  }
  bool IsName(std::string_view name) const {
    return current().kind == TokenKind::kName && current().text == name;
  }
  bool Is(TokenKind kind) const { return current().kind == kind; }
  Token Next() {
    Token token = tokens_[pos_];
    if (pos_ + 1 < tokens_.size()) ++pos_;
    return token;
  }
  bool SkipOp(std::string_view op) { return IsOp(op) ? (Next(), true) : false; }
  bool SkipName(std::string_view name) { return IsName(name) ? (Next(), true) : false; }
  Expected<Token> ExpectOp(std::string_view op);
  Expected<Token> ExpectName(std::string_view name = {});
  Expected<void> Expect(TokenKind kind);
  tl::unexpected<TemplateError> Fail(std::string message, int line = 0) const;

  int NameId(const std::string& name);

  // `with_condition`: a if b else c is allowed. `ends`: names that end a tuple (in, recursive).
  Expected<ExprPtr> ParseExpression(bool with_condition = true);
  Expected<ExprPtr> ParseTuple(bool with_condition = true, std::string_view end = {},
                               bool explicit_parentheses = false);
  Expected<ExprPtr> ParseTarget(bool with_namespace = false, std::string_view end = {});
  Expected<ExprPtr> ParseFilter(ExprPtr node, bool start_inline = false);

  Tree tree_;

 private:
  // Guards recursion: a Level lives as long as one level of nesting.
  struct Level {
    explicit Level(int& depth) : depth(depth) { ++depth; }
    ~Level() { --depth; }
    int& depth;
  };
  Expected<ExprPtr> Finish(ExprPtr node) const;  // sets depth and checks it

  Expected<ExprPtr> ParseOr();
  Expected<ExprPtr> ParseAnd();
  Expected<ExprPtr> ParseNot();
  Expected<ExprPtr> ParseCompare();
  Expected<ExprPtr> ParseSum();
  Expected<ExprPtr> ParseConcat();
  Expected<ExprPtr> ParseProduct();
  Expected<ExprPtr> ParsePower();
  Expected<ExprPtr> ParseUnary(bool with_filter = true);
  Expected<ExprPtr> ParsePrimary(bool with_namespace = false);
  Expected<ExprPtr> ParseListLiteral();
  Expected<ExprPtr> ParseDictLiteral();
  Expected<ExprPtr> ParsePostfix(ExprPtr node);
  Expected<ExprPtr> ParseFilters(ExprPtr node);
  Expected<ExprPtr> ParseSubscript(ExprPtr node);
  Expected<ExprPtr> ParseTest(ExprPtr node);
  Expected<ExprPtr> ParseCall(ExprPtr node);
  Expected<std::unique_ptr<CallArguments>> ParseArguments();
  Expected<std::string> ParseDottedName();

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  std::unordered_map<std::string, int> name_ids_;

 protected:
  int depth_ = 0;  // of expressions and statements being read
};

}  // namespace lockstep::jinja
