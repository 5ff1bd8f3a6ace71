#include "jinja/lexer.h"

#include <algorithm>
#include <cstdlib>

#include "base/utf8.h"
#include "jinja/unicode.h"

namespace lockstep::jinja {
namespace {

tl::unexpected<TemplateError> SyntaxError(int line, std::string message) {
  return tl::unexpected(TemplateError{ErrorKind::kSyntax, line, std::move(message)});
}

std::string NormalizeNewlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

int CountNewlines(std::string_view text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The inside of a string literal, as Python's unicode-escape codec reads it.
Expected<std::string> Unescape(std::string_view text, int line) {
  std::string out;
  char32_t high = 0;  // the first half of a surrogate pair
  const auto append = [&](char32_t c) -> bool {
    if (high) {
      if (c < 0xDC00 || c > 0xDFFF) return false;
      AppendUtf8(0x10000 + ((high - 0xD800) << 10) + (c - 0xDC00), out);
      high = 0;
      return true;
    }
    if (c >= 0xD800 && c <= 0xDBFF) {
      high = c;
      return true;
    }
    if (c >= 0xDC00 && c <= 0xDFFF) return false;
    AppendUtf8(c, out);
    return true;
  };
  const auto lone = [&] { return SyntaxError(line, "a string holds half of a surrogate pair"); };
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '\\') {
      if (high) return lone();
      out += text[i++];
      continue;
    }
    if (++i >= text.size()) return SyntaxError(line, "\\ at end of string");
    const char c = text[i++];
    if (high && c != 'u') return lone();
    switch (c) {
      case '\n':
        break;
      case '\\':
      case '\'':
      case '"':
        out += c;
        break;
      case 'a':
        out += '\a';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'v':
        out += '\v';
        break;
      case 'x':
      case 'u':
      case 'U': {
        const size_t want = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        char32_t value = 0;
        size_t got = 0;
        for (; got < want && i < text.size() && HexDigit(text[i]) >= 0; ++got, ++i)
          value = value * 16 + static_cast<char32_t>(HexDigit(text[i]));
        if (got < want)
          return SyntaxError(line,
                             fmt::format("truncated \\{}{} escape", c, std::string(want, 'X')));
        if (value > 0x10FFFF) return SyntaxError(line, "illegal Unicode character");
        if (!append(value)) return lone();
        break;
      }
      case 'N':
        return SyntaxError(line, "characters by name (\\N{...}) are not supported");
      default:
        if (c >= '0' && c <= '7') {
          int value = c - '0';
          for (int n = 1; n < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; ++n)
            value = value * 8 + (text[i++] - '0');
          append(static_cast<char32_t>(value));
        } else if (static_cast<unsigned char>(c) >= 0x80) {
          // Jinja2 writes other characters as \x.. before decoding, so a backslash before one of
          // them escapes that backslash: the text becomes "\xe9".
          --i;
          const uint32_t v = NextCodePoint(text, i);
          out += v <= 0xFF     ? fmt::format("\\x{:02x}", v)
                 : v <= 0xFFFF ? fmt::format("\\u{:04x}", v)
                               : fmt::format("\\U{:08x}", v);
        } else {
          out += '\\';
          out += c;
        }
    }
  }
  if (high) return lone();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Expected<std::vector<Token>> Run() {
    while (pos_ < source_.size()) LS_RETURN_IF_ERROR(Root());
    Emit(TokenKind::kEof, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(pos_); }
  bool At(std::string_view text) const { return rest().substr(0, text.size()) == text; }
  void Emit(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }
  // Moves past n bytes that belong to a tag.
  void Advance(size_t n) {
    line_ += CountNewlines(rest().substr(0, n));
    if (n > 0) line_starting_ = source_[pos_ + n - 1] == '\n';
    pos_ += n;
  }
  size_t SpaceLength(size_t from) const {  // bytes of white space at `from`
    size_t i = from;
    while (i < source_.size()) {
      size_t next = i;
      if (!IsSpace(NextCodePoint(source_, next))) break;
      i = next;
    }
    return i - from;
  }

  // `%}`, `-%}` with the white space after it, `+%}`; and the newline that trim_blocks eats.
  // 0 when none is here.
  size_t EndLength(size_t at, std::string_view end, bool trims) const {
    const std::string_view text = std::string_view(source_).substr(at);
    if (trims && text.substr(0, 1) == "+" && text.substr(1, end.size()) == end)
      return 1 + end.size();
    if (text.substr(0, 1) == "-" && text.substr(1, end.size()) == end)
      return 1 + end.size() + SpaceLength(at + 1 + end.size());
    if (text.substr(0, end.size()) != end) return 0;
    return end.size() + (trims && text.substr(end.size(), 1) == "\n" ? 1 : 0);
  }

  // {% raw %}: its length, or 0.
  size_t RawBeginLength(size_t at) const {
    size_t i = at + 2;
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
    i += SpaceLength(i);
    if (source_.compare(i, 3, "raw") != 0) return 0;
    i += 3;
    i += SpaceLength(i);
    const size_t end = EndLength(i, "%}", false);
    return end == 0 ? 0 : i + end - at;
  }

  // Emits text[pos_, end) as data, stripped as the sign of the tag that follows demands.
  void EmitData(size_t end, char sign, bool variable) {
    const std::string_view text = std::string_view(source_).substr(pos_, end - pos_);
    std::string_view kept = text;
    if (sign == '-') {
      kept = Strip(text, Side::kRight);
    } else if (sign != '+' && !variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_start > 0 || line_starting_) &&
          SpaceLength(pos_ + line_start) >= text.size() - line_start)
        kept = text.substr(0, line_start);
    }
    if (!kept.empty()) Emit(TokenKind::kData, std::string(kept));
    Advance(text.size());
  }

  Expected<void> Root() {
    size_t at = pos_;
    for (;; ++at) {
      at = source_.find('{', at);
      if (at == std::string::npos || at + 1 >= source_.size()) {
        Emit(TokenKind::kData, std::string(rest()));
        pos_ = source_.size();
        return {};
      }
      if (source_[at + 1] == '%' || source_[at + 1] == '{' || source_[at + 1] == '#') break;
    }
    const char type = source_[at + 1];
    char sign = at + 2 < source_.size() ? source_[at + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    const size_t raw = type == '%' ? RawBeginLength(at) : 0;
    EmitData(at, sign, type == '{');
    if (raw) {
      Advance(raw);
      return Raw();
    }
    if (type == '{') Emit(TokenKind::kVariableBegin, "");
    if (type == '%') Emit(TokenKind::kBlockBegin, "");
    Advance(2 + (sign ? 1 : 0));
    line_starting_ = false;
    if (type == '#') return Comment();
    return Tag(type == '%');
  }

  Expected<void> Comment() {
    if (pos_ >= source_.size()) return {};
    size_t end = source_.find("#}", pos_);
    if (end == std::string::npos) return SyntaxError(line_, "Missing end of comment tag");
    if (end > pos_ && (source_[end - 1] == '-' || source_[end - 1] == '+')) --end;
    Advance(end - pos_ + EndLength(end, "#}", true));
    return {};
  }

  Expected<void> Raw() {
    if (pos_ >= source_.size()) return {};
    for (size_t at = pos_; (at = source_.find("{%", at)) != std::string::npos; ++at) {
      size_t i = at + 2;
      const char sign =
          i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i++] : '\0';
      i += SpaceLength(i);
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i += 6;
      i += SpaceLength(i);
      const size_t end = EndLength(i, "%}", true);
      if (end == 0) continue;
      EmitData(at, sign, false);
      Advance(i + end - at);
      return {};
    }
    return SyntaxError(line_, "Missing end of raw directive");
  }

  Expected<void> Tag(bool block) {
    std::string brackets;  // those still open, by the one that closes them
    while (pos_ < source_.size()) {
      if (brackets.empty()) {
        const size_t end = EndLength(pos_, block ? "%}" : "}}", block);
        if (end > 0) {
          Emit(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
          Advance(end);
          return {};
        }
      }
      if (const size_t space = SpaceLength(pos_)) {
        Advance(space);
        continue;
      }
      if (Number()) {
        if (overflow_) return SyntaxError(line_, "an integer of the template is beyond 127 bits");
        continue;
      }
      if (Name()) continue;
      if (source_[pos_] == '\'' || source_[pos_] == '"') {
        LS_TRY(const bool found, String());
        if (found) continue;
      }
      LS_RETURN_IF_ERROR(Operator(brackets));
    }
    return {};
  }

  // digits with single underscores between them; the end offset, or `at` when there are none
  size_t DigitsEnd(size_t at) const {
    size_t i = at;
    while (i < source_.size() && IsDigit(source_[i])) {
      ++i;
      if (i + 1 < source_.size() && source_[i] == '_' && IsDigit(source_[i + 1])) ++i;
    }
    return i;
  }

  bool Number() {
    overflow_ = false;
    if (!IsDigit(source_[pos_])) return false;
    const auto at = [&](size_t i) { return i < source_.size() ? source_[i] : '\0'; };
    // A float needs a fraction or an exponent, and no dot before it.
    if (pos_ == 0 || source_[pos_ - 1] != '.') {
      size_t end = DigitsEnd(pos_);
      bool real = false;
      if (at(end) == '.' && IsDigit(at(end + 1))) {
        end = DigitsEnd(end + 1);
        real = true;
      }
      if (at(end) == 'e' || at(end) == 'E') {
        size_t digits = end + 1;
        if (at(digits) == '+' || at(digits) == '-') ++digits;
        if (IsDigit(at(digits))) {
          end = DigitsEnd(digits);
          real = true;
        }
      }
      if (real) {
        std::string text;
        for (size_t i = pos_; i < end; ++i)
          if (source_[i] != '_') text += source_[i];
        Emit(TokenKind::kFloat, text);
        tokens_.back().real = std::strtod(text.c_str(), nullptr);
        Advance(end - pos_);
        return true;
      }
    }
    unsigned base = 10;
    size_t i = pos_;
    const char prefix = static_cast<char>(at(pos_ + 1) | 0x20);
    if (source_[pos_] == '0' && (prefix == 'x' || prefix == 'o' || prefix == 'b')) {
      const unsigned wanted = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
      size_t first = pos_ + 2;
      if (at(first) == '_') ++first;
      if (HexDigit(at(first)) >= 0 && static_cast<unsigned>(HexDigit(at(first))) < wanted) {
        base = wanted;
        i = pos_ + 2;
      }
    }
    Int value = 0;
    const bool zeros = base == 10 && source_[pos_] == '0';  // 007 is the integer 00 and then a 7
    while (i < source_.size()) {
      if (source_[i] == '_') {
        const int next = HexDigit(at(i + 1));
        if (next < 0 || static_cast<unsigned>(next) >= base || (zeros && next != 0)) break;
        ++i;
      }
      const int digit = HexDigit(source_[i]);
      if (digit < 0 || static_cast<unsigned>(digit) >= base || (zeros && digit != 0)) break;
      if (__builtin_mul_overflow(value, static_cast<Int>(base), &value) ||
          __builtin_add_overflow(value, static_cast<Int>(digit), &value))
        overflow_ = true;
      ++i;
    }
    Emit(TokenKind::kInteger, source_.substr(pos_, i - pos_));
    tokens_.back().integer = value;
    Advance(i - pos_);
    return true;
  }

  bool Name() {
    size_t i = pos_;
    size_t next = i;
    char32_t c = NextCodePoint(source_, next);
    if (!IsIdentifierStart(c)) return false;
    i = next;
    while (i < source_.size()) {
      next = i;
      c = NextCodePoint(source_, next);
      if (!IsIdentifierPart(c)) break;
      i = next;
    }
    Emit(TokenKind::kName, source_.substr(pos_, i - pos_));
    Advance(i - pos_);
    return true;
  }

  Expected<bool> String() {
    const char quote = source_[pos_];
    size_t i = pos_ + 1;
    while (i < source_.size() && source_[i] != quote) i += source_[i] == '\\' ? 2 : 1;
    if (i >= source_.size()) return false;
    LS_TRY(std::string text,
           Unescape(std::string_view(source_).substr(pos_ + 1, i - pos_ - 1), line_));
    Emit(TokenKind::kString, std::move(text));
    Advance(i + 1 - pos_);
    return true;
  }

  Expected<void> Operator(std::string& brackets) {
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!At(two)) continue;
      Emit(TokenKind::kOperator, std::string(two));
      Advance(2);
      return {};
    }
    const char c = source_[pos_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos)
      return SyntaxError(line_, fmt::format("unexpected char '{}' at {}", CharacterAt(pos_), pos_));
    if (c == '{') brackets += '}';
    if (c == '(') brackets += ')';
    if (c == '[') brackets += ']';
    if (c == '}' || c == ')' || c == ']') {
      if (brackets.empty()) return SyntaxError(line_, fmt::format("unexpected '{}'", c));
      const char wanted = brackets.back();
      brackets.pop_back();
      if (wanted != c)
        return SyntaxError(line_, fmt::format("unexpected '{}', expected '{}'", c, wanted));
    }
    Emit(TokenKind::kOperator, std::string(1, c));
    Advance(1);
    return {};
  }

  std::string CharacterAt(size_t at) const {
    size_t next = at;
    NextCodePoint(source_, next);
    return source_.substr(at, next - at);
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last tag ended with a newline, so this text begins a line
  bool overflow_ = false;      // of the last integer
  std::vector<Token> tokens_;
};

}  // namespace

Expected<std::vector<Token>> Tokenize(std::string_view source) {
  if (const auto fault = FindUtf8Fault(source))
    return SyntaxError(1 + CountNewlines(source.substr(0, fault->valid_up_to)),
                       fmt::format("the template is not UTF-8 (byte {})", fault->valid_up_to));
  std::string text = NormalizeNewlines(source);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return Lexer(std::move(text)).Run();
}

std::string_view DescribeKind(TokenKind kind) {
  switch (kind) {
    case TokenKind::kData:
      return "template data / text";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kName:
      return "name";
    case TokenKind::kString:
      return "string";
    case TokenKind::kInteger:
      return "integer";
    case TokenKind::kFloat:
      return "float";
    case TokenKind::kOperator:
      return "operator";
    case TokenKind::kEof:
      return "end of template";
  }
  return "?";
}

std::string Describe(const Token& token) {
  if (token.kind == TokenKind::kName || token.kind == TokenKind::kOperator) return token.text;
  return std::string(DescribeKind(token.kind));
}

}  // namespace lockstep::jinja
