#include "jinja/parser.h"

#include <algorithm>
#include <span>

#include "jinja/expression_parser.h"
#include "jinja/unicode.h"

namespace lockstep::jinja {
namespace {

using EndTags = std::span<const std::string_view>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Expected<Tree> Run() {
    tree_.loop_id = NameId("loop");
    tree_.caller_id = NameId("caller");
    tree_.kwargs_id = NameId("kwargs");
    tree_.varargs_id = NameId("varargs");
    LS_TRY(tree_.body, ParseBody({}));
    return std::move(tree_);
  }

 private:
  using StmtPtr = std::unique_ptr<Stmt>;

  static StmtPtr Make(StmtKind kind, int line) {
    auto node = std::make_unique<Stmt>();
    node->kind = kind;
    node->line = line;
    return node;
  }

  // Text, prints and statements up to one of `ends`, whose name is then current.
  Expected<Body> ParseBody(EndTags ends) {
    Body body;
    ends_.push_back(ends);
    while (!Is(TokenKind::kEof)) {
      if (Is(TokenKind::kData)) {
        StmtPtr node = Make(StmtKind::kData, current().line);
        node->text = Next().text;
        body.push_back(std::move(node));
      } else if (Is(TokenKind::kVariableBegin)) {
        StmtPtr node = Make(StmtKind::kPrint, Next().line);
        LS_TRY(node->expr, ParseTuple());
        LS_RETURN_IF_ERROR(Expect(TokenKind::kVariableEnd));
        body.push_back(std::move(node));
      } else {
        Next();  // kBlockBegin
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return IsName(end); })) break;
        LS_TRY(StmtPtr node, ParseStatement());
        body.push_back(std::move(node));
        LS_RETURN_IF_ERROR(Expect(TokenKind::kBlockEnd));
      }
    }
    ends_.pop_back();
    return body;
  }

  // The body of a statement: after the tag's own `%}`, up to one of `ends`.
  Expected<Body> ParseStatements(EndTags ends, bool drop_end) {
    SkipOp(":");
    LS_RETURN_IF_ERROR(Expect(TokenKind::kBlockEnd));
    LS_TRY(Body body, ParseBody(ends));
    if (Is(TokenKind::kEof)) {
      ends_.push_back(ends);
      return UnknownTag(nullptr, current().line);
    }
    if (drop_end) Next();
    return body;
  }
  Expected<Body> ParseUntil(std::string_view end) {
    const std::string_view ends[] = {end};
    return ParseStatements(ends, true);
  }

  tl::unexpected<TemplateError> UnknownTag(const std::string* name, int line) const {
    std::string message =
        name ? fmt::format("Encountered unknown tag '{}'.", *name) : "Unexpected end of template.";
    const EndTags looking = ends_.empty() ? EndTags() : ends_.back();
    if (!looking.empty()) {
      std::string list;
      for (const std::string_view end : looking)
        list += fmt::format("{}'{}'", list.empty() ? "" : " or ", end);
      const bool expected = name && std::any_of(ends_.begin(), ends_.end(), [&](EndTags tags) {
                              return std::find(tags.begin(), tags.end(), *name) != tags.end();
                            });
      message += expected
                     ? " You probably made a nesting mistake. Jinja is expecting this tag, but "
                       "currently looking for " +
                           list + "."
                     : " Jinja was looking for the following tags: " + list + ".";
    }
    if (!tags_.empty())
      message += fmt::format(" The innermost block that needs to be closed is '{}'.", tags_.back());
    return Fail(message, line);
  }

  Expected<StmtPtr> ParseStatement() {
    if (!Is(TokenKind::kName)) return Fail("tag name expected");
    if (++depth_ > kMaxTreeDepth)
      return Fail(fmt::format("the template nests deeper than {} levels", kMaxTreeDepth));
    struct Row {
      std::string_view tag;
      Expected<StmtPtr> (Parser::*parse)();
    };
    static constexpr Row kTags[] = {
        {"autoescape", &Parser::ParseAutoescape},
        {"block", &Parser::ParseBlock},
        {"break", &Parser::ParseBreak},
        {"call", &Parser::ParseCallBlock},
        {"continue", &Parser::ParseContinue},
        {"extends", &Parser::ParseExtends},
        {"filter", &Parser::ParseFilterBlock},
        {"for", &Parser::ParseFor},
        {"from", &Parser::ParseFrom},
        {"generation", &Parser::ParseGeneration},
        {"if", &Parser::ParseIf},
        {"import", &Parser::ParseImport},
        {"include", &Parser::ParseInclude},
        {"macro", &Parser::ParseMacro},
        {"print", &Parser::ParsePrint},
        {"set", &Parser::ParseSet},
        {"with", &Parser::ParseWith},
    };
    for (const Row& row : kTags) {
      if (!IsName(row.tag)) continue;
      tags_.push_back(row.tag);
      LS_TRY(StmtPtr node, (this->*row.parse)());
      tags_.pop_back();
      --depth_;
      return node;
    }
    return UnknownTag(&current().text, current().line);
  }

  Expected<StmtPtr> ParseSet() {
    StmtPtr node = Make(StmtKind::kSet, Next().line);
    LS_TRY(node->target, ParseTarget(true));
    if (SkipOp("=")) {
      LS_TRY(node->expr, ParseTuple());
      return node;
    }
    node->kind = StmtKind::kSetBlock;
    LS_TRY(node->expr, ParseFilter(nullptr));
    LS_TRY(node->body, ParseUntil("endset"));
    return node;
  }

  Expected<StmtPtr> ParseFor() {
    StmtPtr node = Make(StmtKind::kFor, Next().line);
    LS_TRY(node->target, ParseTarget(false, "in"));
    LS_RETURN_IF_ERROR(ExpectName("in"));
    LS_TRY(node->expr, ParseTuple(false, "recursive"));
    if (SkipName("if")) {
      LS_TRY(node->test, ParseExpression());
    }
    node->recursive = SkipName("recursive");
    static constexpr std::string_view kEnds[] = {"endfor", "else"};
    LS_TRY(node->body, ParseStatements(kEnds, false));
    if (Next().text == "endfor") return node;
    LS_TRY(node->else_body, ParseUntil("endfor"));
    return node;
  }

  Expected<StmtPtr> ParseIf() {
    StmtPtr node = Make(StmtKind::kIf, Next().line);
    static constexpr std::string_view kEnds[] = {"elif", "else", "endif"};
    for (;;) {
      LS_TRY(ExprPtr test, ParseTuple(false));
      LS_TRY(Body body, ParseStatements(kEnds, false));
      node->branches.emplace_back(std::move(test), std::move(body));
      const std::string tag = Next().text;
      if (tag == "elif") continue;
      if (tag == "else") {
        LS_TRY(node->else_body, ParseUntil("endif"));
      }
      return node;
    }
  }

  Expected<StmtPtr> ParseWith() {
    StmtPtr node = Make(StmtKind::kWith, Next().line);
    while (!Is(TokenKind::kBlockEnd)) {
      if (!node->assignments.empty()) LS_RETURN_IF_ERROR(ExpectOp(","));
      LS_TRY(ExprPtr target, ParseTarget());
      LS_RETURN_IF_ERROR(ExpectOp("="));
      LS_TRY(ExprPtr value, ParseExpression());
      node->assignments.emplace_back(std::move(target), std::move(value));
    }
    LS_TRY(node->body, ParseUntil("endwith"));
    return node;
  }

  Expected<StmtPtr> ParseAutoescape() {
    StmtPtr node = Make(StmtKind::kAutoescape, Next().line);
    LS_TRY(node->expr, ParseExpression());
    LS_TRY(node->body, ParseUntil("endautoescape"));
    return node;
  }

  Expected<StmtPtr> ParseBlock() {
    StmtPtr node = Make(StmtKind::kBlock, Next().line);
    LS_TRY(const Token name, ExpectName());
    node->text = name.text;
    SkipName("scoped");
    const bool required = SkipName("required");
    if (IsOp("-"))
      return Fail(
          "Block names in Jinja have to be valid Python identifiers and may not contain "
          "hyphens, use an underscore instead.");
    LS_TRY(node->body, ParseUntil("endblock"));
    for (const StmtPtr& child : node->body)
      if (required && (child->kind != StmtKind::kData || !Strip(child->text, Side::kBoth).empty()))
        return Fail("Required blocks can only contain comments or whitespace");
    SkipName(node->text);
    if (std::find(blocks_.begin(), blocks_.end(), node->text) != blocks_.end())
      return Fail(fmt::format("block '{}' defined twice", node->text), node->line);
    blocks_.push_back(node->text);
    return node;
  }

  Expected<void> ParseSignature(Stmt& node) {
    LS_RETURN_IF_ERROR(ExpectOp("("));
    while (!IsOp(")")) {
      if (!node.params.empty()) LS_RETURN_IF_ERROR(ExpectOp(","));
      LS_TRY(const Token name, ExpectName());
      Param param;
      param.name = name.text;
      param.name_id = NameId(name.text);
      if (SkipOp("=")) {
        LS_TRY(param.default_value, ParseExpression());
      } else if (!node.params.empty() && node.params.back().default_value) {
        return Fail("non-default argument follows default argument");
      }
      for (const Param& other : node.params)
        if (other.name_id == param.name_id)
          return tl::unexpected(TemplateError{
              ErrorKind::kPython, name.line,
              fmt::format("duplicate argument '{}' in function definition", name.text)});
      node.params.push_back(std::move(param));
    }
    Next();
    return {};
  }

  Expected<StmtPtr> ParseMacro() {
    StmtPtr node = Make(StmtKind::kMacro, Next().line);
    LS_TRY(const Token name, ExpectName());
    node->text = name.text;
    node->name_id = NameId(name.text);
    LS_RETURN_IF_ERROR(ParseSignature(*node));
    LS_TRY(node->body, ParseUntil("endmacro"));
    return node;
  }

  Expected<StmtPtr> ParseCallBlock() {
    StmtPtr node = Make(StmtKind::kCallBlock, Next().line);
    if (IsOp("(")) LS_RETURN_IF_ERROR(ParseSignature(*node));
    LS_TRY(node->expr, ParseExpression());
    if (node->expr->kind != ExprKind::kCall) return Fail("expected call", node->line);
    LS_TRY(node->body, ParseUntil("endcall"));
    return node;
  }

  Expected<StmtPtr> ParseFilterBlock() {
    StmtPtr node = Make(StmtKind::kFilterBlock, Next().line);
    LS_TRY(node->expr, ParseFilter(nullptr, true));
    LS_TRY(node->body, ParseUntil("endfilter"));
    return node;
  }

  Expected<StmtPtr> ParseGeneration() {
    StmtPtr node = Make(StmtKind::kGeneration, Next().line);
    LS_TRY(node->body, ParseUntil("endgeneration"));
    return node;
  }

  // {% print a, b %}: the values one after the other, like ~.
  Expected<StmtPtr> ParsePrint() {
    StmtPtr node = Make(StmtKind::kPrint, Next().line);
    node->expr = std::make_unique<Expr>();
    node->expr->kind = ExprKind::kConcat;
    node->expr->line = node->line;
    while (!Is(TokenKind::kBlockEnd)) {
      if (!node->expr->items.empty()) LS_RETURN_IF_ERROR(ExpectOp(","));
      LS_TRY(ExprPtr item, ParseExpression());
      node->expr->items.push_back(std::move(item));
    }
    return node;
  }

  Expected<StmtPtr> ParseBreak() { return Make(StmtKind::kBreak, Next().line); }
  Expected<StmtPtr> ParseContinue() { return Make(StmtKind::kContinue, Next().line); }

  // These parse, and fail when they run: a chat template has nowhere to load others from.
  Expected<StmtPtr> ParseExtends() {
    StmtPtr node = Make(StmtKind::kNoLoader, Next().line);
    LS_TRY(node->expr, ParseExpression());
    return node;
  }
  void SkipContext() {
    if ((IsName("with") || IsName("without")) && look().kind == TokenKind::kName &&
        look().text == "context") {
      Next();
      Next();
    }
  }
  Expected<StmtPtr> ParseInclude() {
    LS_TRY(StmtPtr node, ParseExtends());
    if (IsName("ignore") && look().kind == TokenKind::kName && look().text == "missing") {
      Next();
      Next();
    }
    SkipContext();
    return node;
  }
  Expected<StmtPtr> ParseImport() {
    LS_TRY(StmtPtr node, ParseExtends());
    LS_RETURN_IF_ERROR(ExpectName("as"));
    LS_RETURN_IF_ERROR(ExpectName());
    SkipContext();
    return node;
  }
  Expected<StmtPtr> ParseFrom() {
    LS_TRY(StmtPtr node, ParseExtends());
    LS_RETURN_IF_ERROR(ExpectName("import"));
    for (bool first = true;; first = false) {
      if (!first) LS_RETURN_IF_ERROR(ExpectOp(","));
      LS_TRY(const Token name, ExpectName());
      if (name.text.starts_with('_'))
        return Fail("names starting with an underline can not be imported", name.line);
      if (SkipName("as")) LS_RETURN_IF_ERROR(ExpectName());
      SkipContext();
      if (!IsOp(",")) return node;
    }
  }

  std::vector<EndTags> ends_;           // what each open body waits for
  std::vector<std::string_view> tags_;  // the open statements
  std::vector<std::string> blocks_;
};

}  // namespace

Expected<Tree> Parse(std::string_view source) {
  LS_TRY(std::vector<Token> tokens, Tokenize(source));
  LS_TRY(Tree tree, Parser(std::move(tokens)).Run());
  LS_RETURN_IF_ERROR(CheckTree(tree));
  return tree;
}

}  // namespace lockstep::jinja
