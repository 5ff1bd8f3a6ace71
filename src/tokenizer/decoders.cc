#include "tokenizer/decoders.h"

#include <deque>
#include <optional>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace lockstep {

// Stages talk in three events: a part of a token's text, its end, and the end of all tokens.
class DecodeChain::Stage {
 public:
  virtual ~Stage() = default;
  virtual void Append(std::string_view part) = 0;
  virtual void EndToken() = 0;
  virtual void Finish() { next->Finish(); }

  Stage* next = nullptr;

 protected:
  void Emit(std::string_view token) {
    next->Append(token);
    next->EndToken();
  }
};

namespace {

using Stage = DecodeChain::Stage;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The end of every chain: token boundaries do not matter any more.
class Collect : public Stage {
 public:
  explicit Collect(std::string& text) : text_(text) {}
  void Append(std::string_view part) override { text_.append(part); }
  void EndToken() override {}
  void Finish() override {}

 private:
  std::string& text_;
};

// A stage that needs whole tokens.
class TokenStage : public Stage {
 public:
  void Append(std::string_view part) override { token_.append(part); }
  void EndToken() override {
    Token(token_);
    token_.clear();
  }
  virtual void Token(const std::string& token) = 0;

 private:
  std::string token_;
};

// All tokens become one: bytes first, then UTF-8 with one U+FFFD for every maximal invalid part.
class ByteLevelStage : public TokenStage {
 public:
  void Token(const std::string& token) override {
    AppendBytesOf(token, pending_);
    any_ = true;
    PassOn(/*all=*/false);
  }
  void Finish() override {
    PassOn(/*all=*/true);
    if (any_) next->EndToken();
    next->Finish();
  }

 private:
  void PassOn(bool all) {
    std::string_view rest = pending_;
    while (!rest.empty()) {
      const auto fault = FindUtf8Fault(rest);
      const size_t valid = fault ? fault->valid_up_to : rest.size();
      if (valid > 0) next->Append(rest.substr(0, valid));
      rest.remove_prefix(valid);
      if (!fault || (!fault->error_length && !all)) break;
      next->Append(kReplacement);
      rest.remove_prefix(fault->error_length ? *fault->error_length : rest.size());
    }
    pending_.erase(0, pending_.size() - rest.size());
  }

  std::string pending_;  // after PassOn(false): an unfinished sequence, at most 3 bytes
  bool any_ = false;
};

// A run of byte tokens is one text if it is UTF-8 as a whole, else one U+FFFD for every byte.
class ByteFallbackStage : public TokenStage {
 public:
  void Token(const std::string& token) override {
    if (const auto byte = ByteOf(token)) {
      run_ += *byte;
      return;
    }
    EndRun();
    Emit(token);
  }
  void Finish() override {
    EndRun();
    next->Finish();
  }

 private:
  static std::optional<char> ByteOf(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    int value = 0;
    for (size_t i = 3; i < 5; ++i) {
      const char c = token[i];
      const int digit = c >= '0' && c <= '9'                 ? c - '0'
                        : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                             : -1;
      // Rust's from_str_radix accepts a leading plus: "<0x+5>" is the byte 5.
      if (digit < 0 && !(c == '+' && i == 3)) return std::nullopt;
      value = value * 16 + (digit < 0 ? 0 : digit);
    }
    return static_cast<char>(value);
  }
  void EndRun() {
    if (run_.empty()) return;
    if (!FindUtf8Fault(run_)) {
      Emit(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) Emit(kReplacement);
    }
    run_.clear();
  }

  std::string run_;
};

class FuseStage : public Stage {
 public:
  void Append(std::string_view part) override { next->Append(part); }
  void EndToken() override { any_ = true; }
  void Finish() override {
    if (any_) next->EndToken();
    next->Finish();
  }

 private:
  bool any_ = false;
};

class ReplaceStage : public TokenStage {
 public:
  explicit ReplaceStage(const ReplaceDecoder& decoder) : decoder_(decoder) {}
  void Token(const std::string& token) override {
    matches_.clear();
    if (!decoder_.pattern.FindAll(token, matches_) || matches_.empty()) return Emit(token);
    std::string result;
    size_t last = 0;
    for (const auto& [begin, end] : matches_) {
      result.append(token, last, begin - last).append(decoder_.content);
      last = end;
    }
    Emit(result.append(token, last));
  }

 private:
  const ReplaceDecoder& decoder_;
  std::vector<Regex::Match> matches_;
};

// Drops up to `start` of the character from the front of a token and up to `stop` from its back.
class StripStage : public Stage {
 public:
  explicit StripStage(const StripDecoder& decoder) : decoder_(decoder) {}
  void Append(std::string_view part) override {
    held_.append(part);
    const std::string& c = decoder_.content;
    // Parts hold whole characters.
    while (at_start_ && !held_.empty()) {
      at_start_ = dropped_ < decoder_.start && held_.starts_with(c);
      if (!at_start_) break;
      ++dropped_;
      held_.erase(0, c.size());
    }
    if (at_start_) return;
    // What may still be stripped from the back is held; the rest is final.
    size_t end = held_.size();
    for (uint64_t k = 0; k < decoder_.stop && std::string_view(held_).substr(0, end).ends_with(c);
         ++k)
      end -= c.size();
    next->Append(std::string_view(held_).substr(0, end));
    held_.erase(0, end);
  }
  void EndToken() override {
    next->EndToken();  // what is still held is stripped
    held_.clear();
    dropped_ = 0;
    at_start_ = true;
  }

 private:
  const StripDecoder& decoder_;
  std::string held_;
  uint64_t dropped_ = 0;
  bool at_start_ = true;
};

class MetaspaceStage : public TokenStage {
 public:
  explicit MetaspaceStage(const MetaspaceDecoder& decoder) : decoder_(decoder) {}
  void Token(const std::string& token) override {
    std::string result;
    for (size_t i = 0; i < token.size();) {
      if (std::string_view(token).substr(i).starts_with(decoder_.replacement)) {
        if (!(first_ && decoder_.drop_first)) result += ' ';
        i += decoder_.replacement.size();
      } else {
        const size_t length = Utf8Length(token[i]);
        result.append(token, i, length);
        i += length;
      }
    }
    first_ = false;
    Emit(result);
  }

 private:
  const MetaspaceDecoder& decoder_;
  bool first_ = true;
};

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  std::string result;
  size_t last = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, last)) {
    result.append(text, last, at - last).append(to);
    last = at + from.size();
  }
  if (last > 0) text = result.append(text, last);
}

// tokenizers: decoders/wordpiece.rs, cleanup.
void CleanUp(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kRules) ReplaceAll(text, from, to);
}

class WordPieceStage : public TokenStage {
 public:
  explicit WordPieceStage(const WordPieceDecoder& decoder) : decoder_(decoder) {}
  void Token(const std::string& token) override {
    const bool continues = !first_ && token.starts_with(decoder_.prefix);
    std::string text;
    if (!first_ && !continues) text += ' ';
    text.append(token, continues ? decoder_.prefix.size() : 0);
    first_ = false;
    if (decoder_.cleanup) CleanUp(text);
    Emit(text);
  }

 private:
  const WordPieceDecoder& decoder_;
  bool first_ = true;
};

// The end-of-word mark is a space, except in the last token.
class BpeStage : public TokenStage {
 public:
  explicit BpeStage(const BpeDecoder& decoder) : decoder_(decoder) {}
  void Token(const std::string& token) override {
    Release(" ");
    last_ = token;
  }
  void Finish() override {
    Release("");
    next->Finish();
  }

 private:
  void Release(std::string_view in_place_of_suffix) {
    if (!last_) return;
    ReplaceAll(*last_, decoder_.suffix, in_place_of_suffix);
    Emit(*last_);
    last_.reset();
  }
  const BpeDecoder& decoder_;
  std::optional<std::string> last_;
};

class CtcStage : public TokenStage {
 public:
  explicit CtcStage(const CtcDecoder& decoder) : decoder_(decoder) {}
  void Token(const std::string& token) override {
    if (last_ == token) return;
    last_ = token;
    std::string text = token;
    ReplaceAll(text, decoder_.pad_token, "");
    if (decoder_.cleanup) {
      CleanUp(text);
      ReplaceAll(text, decoder_.word_delimiter_token, " ");
    }
    if (!text.empty()) Emit(text);
  }

 private:
  const CtcDecoder& decoder_;
  std::optional<std::string> last_;
};

class JoinStage : public Stage {
 public:
  void Append(std::string_view part) override {
    Begin();
    next->Append(part);
  }
  void EndToken() override {
    Begin();
    next->EndToken();
    inside_ = false;
    first_ = false;
  }

 private:
  void Begin() {
    if (!inside_ && !first_) next->Append(" ");
    inside_ = true;
  }
  bool inside_ = false, first_ = true;
};

struct MakeStage {
  using Made = std::unique_ptr<Stage>;
  Made operator()(const ByteLevelDecoder&) { return std::make_unique<ByteLevelStage>(); }
  Made operator()(const ByteFallbackDecoder&) { return std::make_unique<ByteFallbackStage>(); }
  Made operator()(const FuseDecoder&) { return std::make_unique<FuseStage>(); }
  Made operator()(const ReplaceDecoder& d) { return std::make_unique<ReplaceStage>(d); }
  Made operator()(const StripDecoder& d) { return std::make_unique<StripStage>(d); }
  Made operator()(const MetaspaceDecoder& d) { return std::make_unique<MetaspaceStage>(d); }
  Made operator()(const WordPieceDecoder& d) { return std::make_unique<WordPieceStage>(d); }
  Made operator()(const BpeDecoder& d) { return std::make_unique<BpeStage>(d); }
  Made operator()(const CtcDecoder& d) { return std::make_unique<CtcStage>(d); }
  Made operator()(const JoinWithSpaces&) { return std::make_unique<JoinStage>(); }
};

}  // namespace

DecodeChain::DecodeChain(const std::vector<TokenDecoder>& decoders)
    : text_(std::make_unique<std::string>()) {
  for (const TokenDecoder& decoder : decoders) stages_.push_back(std::visit(MakeStage{}, decoder));
  stages_.push_back(std::make_unique<Collect>(*text_));
  for (size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->next = stages_[i + 1].get();
}
DecodeChain::DecodeChain(DecodeChain&&) noexcept = default;
DecodeChain& DecodeChain::operator=(DecodeChain&&) noexcept = default;
DecodeChain::~DecodeChain() = default;

void DecodeChain::Push(std::string_view token) {
  stages_.front()->Append(token);
  stages_.front()->EndToken();
}
void DecodeChain::Finish() { stages_.front()->Finish(); }
std::string DecodeChain::TakeText() { return std::exchange(*text_, {}); }

}  // namespace lockstep
