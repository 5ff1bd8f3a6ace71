// The lexer of chat templates: text, {{ }}, {% %} and {# #}, with Jinja's white space control.
// It works as transformers configures Jinja2: trim_blocks and lstrip_blocks on, one trailing
// newline of the template dropped, CRLF and CR read as LF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace lockstep::jinja {

enum class TokenKind : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEof,
};

struct Token {
  TokenKind kind = TokenKind::kEof;
  int line = 1;
  std::string text;  // data, name, the decoded string, or the operator itself
  Int integer = 0;   // kInteger
  double real = 0;   // kFloat
};

Expected<std::vector<Token>> Tokenize(std::string_view source);  // ends with kEof

// How messages call a token: 'end of print statement', 'name', ...
std::string Describe(const Token& token);
std::string_view DescribeKind(TokenKind kind);

}  // namespace lockstep::jinja
