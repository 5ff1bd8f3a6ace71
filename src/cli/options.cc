#include "cli/options.h"

#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "base/utf8.h"
#include "formats/describe.h"

namespace lockstep {

CLI::Validator WholeNumber(int64_t lowest, int64_t highest) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc{} && end == text.data() + text.size() && value >= lowest &&
            value <= highest)
          return "";
        return fmt::format("expected a whole number from {} to {}, found {}", lowest, highest,
                           Quoted(text));
      },
      "");
}

CLI::Validator WholeNumbers(int64_t lowest, int64_t highest) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        for (size_t begin = 0; begin <= text.size();) {
          const size_t end = std::min(text.find(',', begin), text.size());
          std::string item = text.substr(begin, end - begin);
          if (std::string fault = WholeNumber(lowest, highest)(item); !fault.empty()) return fault;
          begin = end + 1;
        }
        return "";
      },
      "");
}

std::vector<int64_t> NumbersIn(const std::vector<std::string>& lists) {
  std::vector<int64_t> out;
  for (const std::string& text : lists)
    for (const char *at = text.data(), *end = at + text.size(); at < end;) {
      int64_t value = 0;
      at = std::from_chars(at, end, value).ptr + 1;
      out.push_back(value);
    }
  return out;
}

CLI::Validator RealNumber(double lowest, double highest) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc{} && end == text.data() + text.size() && value >= lowest &&
            value <= highest)
          return "";
        return fmt::format("expected a number from {} to {}, found {}", lowest, highest,
                           Quoted(text));
      },
      "");
}

Result<std::vector<int32_t>> ParseIds(std::string_view text, std::string_view place) {
  std::vector<int32_t> ids;
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  const auto trim = [&](std::string_view s) {
    while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
    while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
    return s;
  };
  std::string_view list = trim(text);
  if (list.starts_with('[') && list.ends_with(']') && list.size() > 1)
    list = trim(list.substr(1, list.size() - 2));
  const char* at = list.data();
  const char* const end = at + list.size();
  // Between two ids there is space, or a comma with or without it.
  for (bool comma = false; at != end;) {
    const char* const word = at;
    while (at != end && !is_space(*at) && *at != ',') ++at;
    if (at == word)
      return UsageError("{}: expected token ids such as 1,2,3, found nothing {}", place,
                        ids.empty() ? "in front of the first comma"
                                    : fmt::format("between the two commas behind {}", ids.back()));
    int32_t id = 0;
    const auto [rest, error] = std::from_chars(word, at, id);
    if (error != std::errc{} || rest != at || id < 0)
      return UsageError("{}: expected token ids such as 1,2,3, found {}", place,
                        Quoted({word, static_cast<size_t>(at - word)}));
    ids.push_back(id);
    comma = false;
    while (at != end && (is_space(*at) || (*at == ',' && !comma))) comma = *at++ == ',' || comma;
    if (at == end && comma)
      return UsageError("{}: expected token ids such as 1,2,3, found nothing behind the last comma",
                        place);
  }
  if (ids.empty()) return UsageError("{}: expected token ids such as 1,2,3, found none", place);
  return ids;
}

Result<std::vector<NamedPrompt>> ReadPrompts(const std::filesystem::path& path) {
  LS_TRY(const std::string text, ReadTextFile(path));
  LS_RETURN_IF_ERROR(CheckUtf8(text, path.string()));
  std::vector<NamedPrompt> prompts;
  const auto add = [&](std::string name, std::string prompt) {
    if (name.empty()) name = fmt::format("prompt {}", prompts.size() + 1);
    prompts.push_back({std::move(name), std::move(prompt), {}});
  };
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '[') {
    LS_TRY(const Json list, ParseJson(text, path.string()));
    for (const Json& entry : list) {
      if (entry.is_string()) {
        add("", entry.get<std::string>());
      } else if (entry.is_object() && entry.contains("text") && entry["text"].is_string()) {
        const auto name = entry.find("name");
        add(name != entry.end() && name->is_string() ? name->get<std::string>() : "",
            entry["text"].get<std::string>());
      } else {
        return UsageError(
            "{}: entry {} of the list: expected a text or an object with \"text\", found {}",
            path.string(), prompts.size(), entry.type_name());
      }
    }
  } else {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string line = text.substr(begin, end - begin);
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty()) add("", std::move(line));
      begin = end + 1;
    }
  }
  if (prompts.empty())
    return UsageError("{}: no prompts in it; write one a line, or a JSON list of texts",
                      path.string());
  return prompts;
}

void PromptOptions::AddTo(CLI::App& verb) {
  verb.add_option("-p,--prompt", texts, "A prompt; may be given several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->type_name("TEXT");
  verb.add_option("--prompts", file,
                  "Prompts from a file: one a line, or a JSON list of texts or of {name, text}")
      ->type_name("FILE");
  verb.add_option("--ids", ids, "A prompt as token ids, 1,2,3; may be given several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->type_name("IDS");
  auto* chat_flag = verb.add_flag(
      "--chat", chat, "Render prompts through the chat template (default when there is one)");
  verb.add_flag("--raw", raw, "Give prompts to the tokenizer as they are")->excludes(chat_flag);
}

Result<std::vector<NamedPrompt>> PromptOptions::Prompts() const {
  std::vector<NamedPrompt> prompts;
  for (const std::string& text : texts) {
    LS_RETURN_IF_ERROR(CheckUtf8(text, "--prompt"));
    prompts.push_back({fmt::format("prompt {}", prompts.size() + 1), text, {}});
  }
  if (!file.empty()) {
    LS_TRY(auto more, ReadPrompts(file));
    for (NamedPrompt& prompt : more) prompts.push_back(std::move(prompt));
  }
  for (const std::string& text : ids) {
    NamedPrompt prompt{.name = fmt::format("prompt {}", prompts.size() + 1)};
    LS_TRY(prompt.ids, ParseIds(text, "--ids"));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::optional<bool> PromptOptions::Chat() const {
  if (chat) return true;
  if (raw) return false;
  return std::nullopt;
}

int ThreadCount(int64_t asked) { return asked > 0 ? static_cast<int>(asked) : AvailableCores(); }

Status CheckUtf8(std::string_view text, std::string_view place) {
  if (const auto fault = FindUtf8Fault(text))
    return UsageError("{}: byte {} is not UTF-8; text must be UTF-8", place, fault->valid_up_to);
  return {};
}

}  // namespace lockstep
