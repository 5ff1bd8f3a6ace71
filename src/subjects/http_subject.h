// HttpSubject: any server with OpenAI's API that gives log-probabilities. It is given token ids
// (/completions takes them) and shows, for each greedy step, the token it chose and the most
// probable ones: PromptTrace::shown. Where it can tokenize or render a chat (llama-server's
// /tokenize and /apply-template, vLLM's /tokenize) these are compared as well.
//
// What it did not show is said in Notes(). Nothing that it answers is trusted.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "subjects/http_client.h"
#include "verify/subject.h"

namespace lockstep {

// "http://..." or "https://...".
bool NamesServer(std::string_view name);

class HttpSubject : public Subject {
 public:
  // `url` ends in /v1; "#NAME" after it chooses one of several models. The key is sent as a bearer
  // token; empty: none. Touches no network.
  static Result<std::unique_ptr<HttpSubject>> Open(std::string_view url, std::string key,
                                                   std::chrono::seconds timeout);

  Status Prepare(const Progress& progress) override;
  std::string Name() const override;
  Abilities Can() const override {
    return {.any_prompt = true, .tokenizes = tokenizes_, .renders_chat = renders_};
  }
  int64_t vocab_size() const override { return vocab_size_; }
  std::vector<std::string> Notes() const override;
  Result<std::string> RenderChat(std::string_view user_message) const override;
  Result<std::vector<int32_t>> Tokenize(const Rendered& text) const override;
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override;

 private:
  HttpSubject(std::string base, std::string model, std::string key, std::chrono::seconds timeout)
      : base_(std::move(base)), model_(std::move(model)), key_(std::move(key)), timeout_(timeout) {}

  Result<HttpAnswer> Send(const std::string& url, const Json* body, const Progress& progress) const;
  // An answer with status 200 and an object in it.
  Result<Json> SendForObject(const std::string& url, const Json* body,
                             const Progress& progress) const;
  std::string Root() const { return base_.substr(0, base_.size() - 3); }  // without /v1
  Result<Json> Complete(const Probe& probe, const Progress& progress);
  Result<std::optional<Json>> CompleteChat(const Probe& probe, const Progress& progress);
  Status TakeCompletion(const Json& answer, const Probe& probe, PromptTrace& run);
  std::optional<int32_t> IdOf(const Json* entry, const std::string& text);
  Result<SparseRow> RowOf(const Json& logprobs, size_t step, int32_t& chosen, bool& there);
  void CheckChat(const Probe& probe, const Progress& progress);

  std::string base_, model_, key_;
  std::chrono::seconds timeout_;
  bool ready_ = false, tokenizes_ = false, renders_ = false;
  int64_t vocab_size_ = 0;
  std::optional<size_t> way_;                          // of asking that it understood
  std::map<std::string, std::optional<int32_t>> ids_;  // of tokens shown as text alone
  // For the notes.
  size_t fewest_shown_ = 0;
  bool by_text_ = false, stopped_early_ = false, left_out_ = false, hides_ = false;
  std::optional<std::string> chat_;
};

}  // namespace lockstep
