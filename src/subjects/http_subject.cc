#include "subjects/http_subject.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/quoted.h"

namespace lockstep {
namespace {

// Ways to ask, the best first. Servers refuse fields they do not know (OpenAI's own) or more
// log-probabilities than they show (OpenAI: 5 in completions, vLLM: 20 unless told).
struct Way {
  bool extras;
  int logprobs;
};
constexpr auto kWays = std::to_array<Way>({{true, 20}, {false, 20}, {true, 5}, {false, 5}});

constexpr std::chrono::seconds kSmallQuestion{30};
constexpr size_t kMostShown = 64;  // of a step; none was asked for so many

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

const Json* FindArray(const Json& object, const char* key) {
  const Json* const found = Find(object, key);
  return found != nullptr && found->is_array() ? found : nullptr;
}

std::optional<int32_t> AsId(const Json* value) {
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  const auto id = value->get<int64_t>();
  if (id < 0 || id > 2147483647) return std::nullopt;
  return static_cast<int32_t>(id);
}

int64_t CompletionTokens(const Json& answer) {
  const Json* const usage = Find(answer, "usage");
  return usage == nullptr ? 0 : AsId(Find(*usage, "completion_tokens")).value_or(0);
}

// The ids of all that was generated, where the server tells (llama-server).
std::vector<int32_t> AllTokens(const Json& answer) {
  std::vector<int32_t> ids;
  const Json* const more = Find(answer, "__verbose");
  const Json* const tokens = more == nullptr ? nullptr : FindArray(*more, "tokens");
  if (tokens == nullptr) return ids;
  for (const Json& token : *tokens) {
    const auto id = AsId(&token);
    if (!id) return {};
    ids.push_back(*id);
  }
  return ids;
}

// llama-server shows a token that ends a character with the bytes of those before it that began it,
// and shows no others of them. How many it left out before this entry; absent: cannot be told.
std::optional<size_t> HiddenBefore(const Json& logprobs, size_t entry, int32_t chosen,
                                   const std::vector<int32_t>& tokens, size_t step) {
  const Json* const content = FindArray(logprobs, "content");
  if (content == nullptr) return 0;
  const auto bytes_of = [](const Json& shown) -> std::optional<size_t> {
    const Json* const bytes = FindArray(shown, "bytes");
    return bytes == nullptr ? std::nullopt : std::optional(bytes->size());
  };
  // Among the most probable it stands with its own bytes alone.
  const Json& shown = (*content)[entry];
  std::optional<size_t> own;
  if (const Json* const top = FindArray(shown, "top_logprobs"); top != nullptr)
    for (const Json& one : *top)
      if (AsId(Find(one, "id")) == chosen) own = bytes_of(one);
  const auto all = bytes_of(shown);
  const auto is_at = [&](size_t at) { return at < tokens.size() && tokens[at] == chosen; };
  if (!own || !all || *all <= *own)
    return tokens.empty() || is_at(step) ? std::optional<size_t>(0) : std::nullopt;
  // Each of those left out has at least one byte.
  std::optional<size_t> found;
  for (size_t hidden = 1; hidden <= *all - *own; ++hidden) {
    if (!is_at(step + hidden)) continue;
    if (found) return std::nullopt;
    found = hidden;
  }
  return found;
}

Json Messages(std::string_view content) {
  Json message = {{"role", "user"}, {"content", content}};
  return Json::array({std::move(message)});
}

// What went wrong, in the server's words where it has some.
std::string WordsOf(const HttpAnswer& answer) {
  if (const auto json = ParseJson(answer.body, "")) {
    const Json* error = Find(*json, "error");
    if (error != nullptr && error->is_object()) error = Find(*error, "message");
    if (error == nullptr) error = Find(*json, "message");
    if (error != nullptr && error->is_string()) return OneLine(error->get<std::string>(), 300);
  }
  return OneLine(answer.body, 120);
}

}  // namespace

bool NamesServer(std::string_view name) {
  return name.starts_with("http://") || name.starts_with("https://");
}

Result<std::unique_ptr<HttpSubject>> HttpSubject::Open(std::string_view url, std::string key,
                                                       std::chrono::seconds timeout) {
  std::string base(url.substr(0, url.find('#')));
  const std::string model(url.size() > base.size() ? url.substr(base.size() + 1) : "");
  while (base.ends_with('/')) base.pop_back();
  if (!NamesServer(base) || !base.ends_with("/v1"))
    return UsageError("{}: expected the address of an OpenAI API, http://HOST:PORT/v1", url);
  // Anything else could end the header and begin another.
  if (!std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7f; }))
    return UsageError("LOCKSTEP_API_KEY: expected printable characters without spaces");
  return std::unique_ptr<HttpSubject>(
      new HttpSubject(std::move(base), model, std::move(key), timeout));
}

std::string HttpSubject::Name() const {
  return model_.empty() ? base_ : fmt::format("{} ({})", base_, OneLine(model_, 120));
}

std::vector<std::string> HttpSubject::Notes() const {
  std::vector<std::string> notes;
  if (fewest_shown_ > 0)
    notes.push_back(fmt::format(
        "shows log-probabilities of the {} most probable tokens of a step: only these were "
        "compared, and max |Δ| is theirs",
        fewest_shown_));
  notes.emplace_back(
      "how it rounds is not known: a difference may be a 16-bit cache or quantized activations");
  notes.emplace_back(
      "positions inside the prompts were not seen: it was asked for log-probabilities of the "
      "tokens "
      "that follow them");
  notes.emplace_back(
      "prompts in parts, rewound, in turn with others or in a padded batch were not seen: an "
      "OpenAI API takes whole prompts, and how it fills its cache is its own matter");
  if (!tokenizes_) notes.emplace_back("has no /tokenize: its tokenizer was not seen");
  if (!renders_)
    notes.push_back(chat_ ? *chat_ : "has no /apply-template: its chat template was not seen");
  if (by_text_)
    notes.emplace_back("names tokens by their text: their ids were found with its /tokenize");
  if (left_out_) notes.emplace_back("tokens whose text names no single id were left out");
  if (hides_)
    notes.emplace_back(
        "hides tokens that end inside a character: such steps, and those after one whose tokens "
        "it does not tell, were not compared");
  if (stopped_early_)
    notes.emplace_back("ends at an end-of-text token: steps after it were not compared");
  return notes;
}

Result<HttpAnswer> HttpSubject::Send(const std::string& url, const Json* body,
                                     const Progress& progress) const {
  HttpRequest request{.url = url, .key = key_, .timeout = timeout_};
  // Small questions that nobody can interrupt are not worth ten minutes.
  if (!progress) request.timeout = std::min<std::chrono::milliseconds>(timeout_, kSmallQuestion);
  if (body != nullptr) request.json = Dump(*body);
  if (progress) request.go_on = [&progress] { return progress("waiting for the server", 0, 0); };
  return Ask(request);
}

Result<Json> HttpSubject::SendForObject(const std::string& url, const Json* body,
                                        const Progress& progress) const {
  LS_TRY(const HttpAnswer answer, Send(url, body, progress));
  if (answer.status != 200)
    return InputError("{}: answered with status {}: {}{}", url, answer.status, WordsOf(answer),
                      answer.status == 401 || answer.status == 403
                          ? " (set LOCKSTEP_API_KEY to a key that it takes)"
                          : "");
  LS_TRY(Json json, ParseJson(answer.body, url));
  if (!json.is_object())
    return InputError("{}: answered with {} where an object was expected", url, json.type_name());
  return json;
}

Status HttpSubject::Prepare(const Progress& progress) {
  if (ready_) return {};
  LS_TRY(const Json models, SendForObject(base_ + "/models", nullptr, progress));
  const Json* const list = FindArray(models, "data");
  const Json* chosen = nullptr;
  std::vector<std::string> names;
  const Json none = Json::array();
  for (const Json& model : list != nullptr ? *list : none) {
    const Json* const id = Find(model, "id");
    if (id == nullptr || !id->is_string()) continue;
    names.push_back(id->get<std::string>());
    if (chosen == nullptr && (model_.empty() || names.back() == model_)) chosen = &model;
  }
  if (names.empty())
    return InputError("{}/models: names no model (expected {{\"data\": [{{\"id\": ...}}]}})",
                      base_);
  if (chosen == nullptr)
    return UsageError("{}: has no model {}; it has {}", base_, Quoted(model_),
                      QuotedList(names, 8));
  model_ = (*chosen)["id"].get<std::string>();
  // llama-server says so; nobody must.
  if (const Json* const meta = Find(*chosen, "meta"); meta != nullptr)
    vocab_size_ = AsId(Find(*meta, "n_vocab")).value_or(0);

  const auto can = [&](const Result<Json>& answer, const char* key) -> Result<bool> {
    if (!answer && IsInterrupted(answer.error())) return tl::unexpected(answer.error());
    return answer && Find(*answer, key) != nullptr;
  };
  const Json text = {{"content", "a"}, {"prompt", "a"}, {"model", model_}};
  LS_TRY(tokenizes_, can(SendForObject(Root() + "/tokenize", &text, progress), "tokens"));
  const Json chat = {{"messages", Messages("a")}};
  LS_TRY(renders_, can(SendForObject(Root() + "/apply-template", &chat, progress), "prompt"));
  ready_ = true;
  return {};
}

Result<std::string> HttpSubject::RenderChat(std::string_view user_message) const {
  const Json body = {{"messages", Messages(user_message)}};
  LS_TRY(const Json answer, SendForObject(Root() + "/apply-template", &body, {}));
  const Json* const prompt = Find(answer, "prompt");
  if (prompt == nullptr || !prompt->is_string())
    return InputError("{}/apply-template: expected a text \"prompt\" in its answer", Root());
  return prompt->get<std::string>();
}

Result<std::vector<int32_t>> HttpSubject::Tokenize(const Rendered& text) const {
  // llama-server reads the first and the third, vLLM the others.
  const Json body = {{"content", text.text},         {"prompt", text.text},
                     {"add_special", !text.is_chat}, {"add_special_tokens", !text.is_chat},
                     {"parse_special", true},        {"model", model_}};
  LS_TRY(const Json answer, SendForObject(Root() + "/tokenize", &body, {}));
  const Json* const tokens = FindArray(answer, "tokens");
  std::vector<int32_t> ids;
  const Json none = Json::array();
  for (const Json& token : tokens != nullptr ? *tokens : none) {
    const auto id = AsId(&token);
    if (!id) return InputError("{}/tokenize: {} is no token id", Root(), Quoted(Dump(token)));
    ids.push_back(*id);
  }
  return ids;
}

// The id of a token that is shown with its id, as "token_id:5" (vLLM), or as text alone.
std::optional<int32_t> HttpSubject::IdOf(const Json* entry, const std::string& text) {
  if (entry != nullptr) {
    if (const auto id = AsId(Find(*entry, "id"))) return id;
  }
  constexpr std::string_view kNumbered = "token_id:";
  if (text.starts_with(kNumbered)) {
    int32_t id = -1;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + kNumbered.size(), end, id);
    if (error == std::errc{} && rest == end && id >= 0) return id;
  }
  const auto [found, is_new] = ids_.try_emplace(text);
  // A replacement character stands for any broken byte.
  if (is_new && tokenizes_ && !text.empty() && text.find("\xef\xbf\xbd") == std::string::npos) {
    const auto ids = Tokenize({.text = text, .is_chat = true});
    if (ids && ids->size() == 1) found->second = ids->front();
    if (!ids) tokenizes_ = false;  // once is enough
  }
  by_text_ |= found->second.has_value();
  left_out_ |= !found->second;
  return found->second;
}

// Step `step` of either form: {"content": [{token, logprob, top_logprobs: [...]}]} of chats (and of
// llama-server), or {"tokens": [], "token_logprobs": [], "top_logprobs": [{token: logprob}]}.
Result<SparseRow> HttpSubject::RowOf(const Json& logprobs, size_t step, int32_t& chosen,
                                     bool& there) {
  struct Shown {
    std::string text;
    const Json* entry;  // with an id, perhaps
    const Json* logprob;
  };
  std::vector<Shown> shown;  // the first is the chosen token
  const auto take = [&](const Json& entry) {
    const Json* const text = Find(entry, "token");
    shown.push_back({text != nullptr && text->is_string() ? text->get<std::string>() : "", &entry,
                     Find(entry, "logprob")});
  };
  if (const Json* const content = FindArray(logprobs, "content"); content != nullptr) {
    there = step < content->size();
    if (!there) return SparseRow{};
    take((*content)[step]);
    if (const Json* const top = FindArray((*content)[step], "top_logprobs"); top != nullptr)
      for (const Json& entry : *top) take(entry);
  } else {
    const Json* const tokens = FindArray(logprobs, "tokens");
    const Json* const values = FindArray(logprobs, "token_logprobs");
    there = tokens != nullptr && step < tokens->size();
    if (!there) return SparseRow{};
    const Json& token = (*tokens)[step];
    shown.push_back({token.is_string() ? token.get<std::string>() : "", nullptr,
                     values != nullptr && step < values->size() ? &(*values)[step] : nullptr});
    const Json* const tops = FindArray(logprobs, "top_logprobs");
    if (tops != nullptr && step < tops->size() && (*tops)[step].is_object())
      for (const auto& [text, value] : (*tops)[step].items())
        shown.push_back({text, nullptr, &value});
  }
  std::vector<std::pair<double, int32_t>> rows;
  for (size_t i = 0; i < std::min(shown.size(), kMostShown); ++i) {
    const auto id = IdOf(shown[i].entry, shown[i].text);
    if (i == 0 && !id)
      return InputError(
          "names the token of step {} as {} alone, and its id cannot be found; token ids are "
          "compared (llama-server and vLLM give them)",
          step, Quoted(shown[i].text));
    if (i == 0) chosen = *id;
    if (!id) continue;
    const Json* const value = shown[i].logprob;
    // A log-probability of 0.0 is as well written 0, and the last place may lie above it.
    if (value == nullptr || !value->is_number() || !(value->get<double>() <= 1e-3))
      return InputError("gives {} as the log-probability of {} at step {}",
                        value == nullptr ? "nothing" : OneLine(Dump(*value), 60),
                        Quoted(shown[i].text), step);
    if (std::none_of(rows.begin(), rows.end(), [&](const auto& r) { return r.second == *id; }))
      rows.emplace_back(value->get<double>(), *id);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  SparseRow out;
  for (const auto& [logprob, id] : rows) {
    out.ids.push_back(id);
    out.logprobs.push_back(logprob);
  }
  return out;
}

Result<Json> HttpSubject::Complete(const Probe& probe, const Progress& progress) {
  HttpAnswer refused;
  for (size_t w = way_.value_or(0); w < (way_ ? *way_ + 1 : kWays.size()); ++w) {
    Json body = {{"model", model_},
                 {"prompt", probe.ids},
                 {"max_tokens", std::max<int64_t>(probe.steps, 1)},
                 {"temperature", 0},
                 {"logprobs", kWays[w].logprobs},
                 {"stream", false}};
    if (kWays[w].extras) {
      body["ignore_eos"] = true;  // a step after an end is a step
      body["cache_prompt"] = false;
      body["repeat_penalty"] = 1.0;
      body["repetition_penalty"] = 1.0;
      body["return_tokens_as_token_ids"] = true;
      body["return_tokens"] = true;
      body["verbose"] = true;  // llama-server: every token, also those that logprobs leave out
    }
    LS_TRY(HttpAnswer answer, Send(base_ + "/completions", &body, progress));
    if (answer.status == 400 || answer.status == 422) {
      refused = std::move(answer);
      continue;
    }
    if (answer.status != 200) {
      refused = std::move(answer);
      break;
    }
    way_ = w;
    return ParseJson(answer.body, base_ + "/completions");
  }
  if (probe.text && probe.rendered && *probe.text != *probe.rendered) {
    LS_TRY(auto chat, CompleteChat(probe, progress));
    if (chat) return *std::move(chat);
  }
  return InputError(
      "{}/completions: answered with status {}: {} (it must take token ids as a "
      "prompt, and give logprobs)",
      base_, refused.status, WordsOf(refused));
}

// Where no prompt can be given as it is: the same question as a chat. The server renders and
// tokenizes it by itself; how many tokens it read must then be as many (TakeCompletion).
Result<std::optional<Json>> HttpSubject::CompleteChat(const Probe& probe,
                                                      const Progress& progress) {
  for (const int top : {20, 5}) {
    const Json body = {{"model", model_},
                       {"messages", Messages(*probe.text)},
                       {"max_tokens", std::max<int64_t>(probe.steps, 1)},
                       {"temperature", 0},
                       {"logprobs", true},
                       {"top_logprobs", top}};
    LS_TRY(const HttpAnswer answer, Send(base_ + "/chat/completions", &body, progress));
    if (answer.status != 200) continue;
    chat_ =
        "takes no token ids: it was asked by chat, and only how many tokens it made of each was "
        "seen";
    LS_TRY(Json json, ParseJson(answer.body, base_ + "/chat/completions"));
    return std::optional(std::move(json));
  }
  return std::optional<Json>();
}

Status HttpSubject::TakeCompletion(const Json& answer, const Probe& probe, PromptTrace& run) {
  if (const Json* const usage = Find(answer, "usage"); usage != nullptr)
    if (const auto read = AsId(Find(*usage, "prompt_tokens"));
        read && static_cast<size_t>(*read) != probe.ids.size())
      return InputError(
          "read {} tokens of a prompt of {} ids (another chat template, or it does not take token "
          "ids "
          "as they are)",
          *read, probe.ids.size());
  const Json* const choices = FindArray(answer, "choices");
  const Json* const logprobs =
      choices != nullptr && !choices->empty() ? Find(choices->front(), "logprobs") : nullptr;
  if (logprobs == nullptr || !logprobs->is_object())
    return InputError("gives no logprobs, and nothing can be compared without them");
  const std::vector<int32_t> tokens = AllTokens(answer);
  const size_t wanted = static_cast<size_t>(std::max<int64_t>(probe.steps, 1));
  std::vector<int32_t> greedy;
  bool hid = false;
  for (size_t entry = 0; greedy.size() < wanted; ++entry) {
    bool there = false;
    int32_t chosen = -1;
    LS_TRY(SparseRow row, RowOf(*logprobs, entry, chosen, there));
    if (!there) break;
    const auto skipped = HiddenBefore(*logprobs, entry, chosen, tokens, greedy.size());
    hid = !skipped;
    if (hid) break;
    const auto first =
        tokens.begin() + static_cast<std::ptrdiff_t>(*skipped == 0 ? 0 : greedy.size());
    greedy.insert(greedy.end(), first, first + static_cast<std::ptrdiff_t>(*skipped));
    if (greedy.size() >= wanted) break;
    fewest_shown_ = fewest_shown_ == 0 ? row.ids.size() : std::min(fewest_shown_, row.ids.size());
    run.shown.emplace(static_cast<int64_t>(greedy.size()), std::move(row));
    greedy.push_back(chosen);
  }
  // After the last one that is shown there may be the begin of a character.
  if (!hid && tokens.size() > greedy.size() &&
      std::equal(greedy.begin(), greedy.end(), tokens.begin()))
    greedy = tokens;
  greedy.resize(std::min(greedy.size(), static_cast<size_t>(probe.steps)));
  run.greedy = std::move(greedy);
  const bool fewer = static_cast<int64_t>(run.greedy.size()) < probe.steps;
  hid |= fewer && tokens.empty() && CompletionTokens(answer) >= probe.steps;
  hides_ |= hid || run.shown.size() < run.greedy.size();
  if (run.shown.empty()) return InputError("gives logprobs of no step");
  if (fewer && !hid) {
    const Json* const reason = Find(choices->front(), "finish_reason");
    if (reason == nullptr || *reason != "stop")
      return InputError("gave {} tokens, and {} were asked for", run.greedy.size(), probe.steps);
    stopped_early_ = true;
  }
  return {};
}

// Where the server renders chats only for itself, it still counts the tokens of one.
void HttpSubject::CheckChat(const Probe& probe, const Progress& progress) {
  if (renders_ || chat_ || !probe.text || !probe.rendered || *probe.text == *probe.rendered) return;
  const Json body = {{"model", model_},
                     {"messages", Messages(*probe.text)},
                     {"max_tokens", 1},
                     {"temperature", 0}};
  const auto answer = SendForObject(base_ + "/chat/completions", &body, progress);
  const Json* const usage = answer ? Find(*answer, "usage") : nullptr;
  const auto read = usage != nullptr ? AsId(Find(*usage, "prompt_tokens")) : std::nullopt;
  if (!read) return;
  chat_ = static_cast<size_t>(*read) == probe.ids.size()
              ? fmt::format(
                    "has no /apply-template; its chat of \"{}\" has as many tokens ({}) as "
                    "the prompt compared",
                    probe.name, *read)
              : fmt::format(
                    "its chat template makes {} tokens of \"{}\", and the prompt compared "
                    "has {}: the templates differ",
                    *read, probe.name, probe.ids.size());
}

Result<PromptTrace> HttpSubject::Run(const Probe& probe, const Progress& progress) {
  LS_RETURN_IF_ERROR(Prepare(progress));
  LS_TRY(const Json answer, Complete(probe, progress));
  PromptTrace run{.name = probe.name, .text = probe.text, .rendered = probe.rendered};
  run.ids = probe.ids;
  if (Status taken = TakeCompletion(answer, probe, run); !taken)
    return tl::unexpected(std::move(taken).error().In(Name()));
  CheckChat(probe, progress);
  return run;
}

}  // namespace lockstep
