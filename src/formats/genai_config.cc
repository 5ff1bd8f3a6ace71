#include "formats/genai_config.h"

#include <charconv>

#include "base/mapped_file.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxNumber = int64_t{1} << 40;

const Json* Find(const Json& json, std::initializer_list<const char*> keys) {
  const Json* at = &json;
  for (const char* key : keys) {
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &at->at(key);
  }
  return at;
}

class Fields {
 public:
  Fields(const Json& json, std::string place) : json_(json), place_(std::move(place)) {}

  Status Text(std::initializer_list<const char*> keys, std::string& out) const {
    const Json* value = Find(json_, keys);
    if (value == nullptr) return {};
    if (!value->is_string()) return Wrong(keys, "text");
    out = value->get<std::string>();
    return {};
  }
  Status Number(std::initializer_list<const char*> keys, std::optional<int64_t>& out) const {
    const Json* value = Find(json_, keys);
    if (value == nullptr) return {};
    // An integer may be written 2.0, as the runtime allows.
    const double number = value->is_number() ? value->get<double>() : -1;
    if (!(number >= 0 && number <= static_cast<double>(kMaxNumber)) ||
        number != static_cast<double>(static_cast<int64_t>(number)))
      return Wrong(keys, "a whole number");
    out = static_cast<int64_t>(number);
    return {};
  }
  tl::unexpected<Error> Wrong(std::initializer_list<const char*> keys,
                              std::string_view expected) const {
    return InputError("{}: {} is {}, expected {}", place_, fmt::join(keys, "."),
                      OneLine(Find(json_, keys)->dump(-1, ' ', true), 60), expected);
  }

 private:
  const Json& json_;
  std::string place_;
};

Status ReadWindow(const Fields& fields, const Json& json, GenAiConfig& out) {
  const Json* section = Find(json, {"model", "decoder", "sliding_window"});
  if (section == nullptr || section->is_null()) return {};
  GenAiConfig::SlidingWindow window;
  std::optional<int64_t> size, slack;
  LS_RETURN_IF_ERROR(fields.Number({"model", "decoder", "sliding_window", "window_size"}, size));
  LS_RETURN_IF_ERROR(fields.Number({"model", "decoder", "sliding_window", "cache_slack"}, slack));
  window.window_size = size.value_or(0);
  window.cache_slack = slack.value_or(0);
  if (const Json* layers = Find(*section, {"layers"}); layers != nullptr && layers->is_array()) {
    for (const Json& layer : *layers) {
      if (!layer.is_number_integer())
        return fields.Wrong({"model", "decoder", "sliding_window", "layers"}, "a list of numbers");
      window.layers.push_back(layer.get<int64_t>());
    }
  }
  out.sliding_window = std::move(window);
  return {};
}

}  // namespace

Result<std::optional<GenAiConfig>> ReadGenAiConfig(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "genai_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  LS_TRY(const std::string text, ReadTextFile(path));
  GenAiConfig out;
  LS_TRY(out.json, ParseJson(text, path.string()));
  const Fields fields(out.json, path.string());
  const struct {
    const char *side, *key;
    std::string& name;
  } names[] = {
      {"inputs", "input_ids", out.input_ids},
      {"inputs", "attention_mask", out.attention_mask},
      {"inputs", "position_ids", out.position_ids},
      {"inputs", "past_key_names", out.past_key},
      {"inputs", "past_value_names", out.past_value},
      {"inputs", "past_conv_names", out.past_conv},
      {"outputs", "logits", out.logits},
      {"outputs", "present_key_names", out.present_key},
      {"outputs", "present_value_names", out.present_value},
      {"outputs", "present_conv_names", out.present_conv},
  };
  for (const auto& [side, key, name] : names)
    LS_RETURN_IF_ERROR(fields.Text({"model", "decoder", side, key}, name));
  LS_RETURN_IF_ERROR(fields.Text({"model", "type"}, out.type));
  LS_RETURN_IF_ERROR(fields.Number({"model", "decoder", "head_size"}, out.head_size));
  LS_RETURN_IF_ERROR(fields.Number({"model", "context_length"}, out.context_length));
  LS_RETURN_IF_ERROR(fields.Number({"model", "vocab_size"}, out.vocab_size));
  const Json* share = Find(out.json, {"search", "past_present_share_buffer"});
  out.past_present_share_buffer = share != nullptr && share->is_boolean() && share->get<bool>();
  LS_RETURN_IF_ERROR(ReadWindow(fields, out.json, out));
  return out;
}

std::optional<int64_t> MatchPattern(const std::string& pattern, const std::string& name) {
  const size_t at = pattern.find("%d");
  if (at == std::string::npos) return std::nullopt;
  const std::string_view prefix = std::string_view(pattern).substr(0, at);
  const std::string_view suffix = std::string_view(pattern).substr(at + 2);
  const std::string_view text = name;
  if (text.size() <= prefix.size() + suffix.size() || !text.starts_with(prefix) ||
      !text.ends_with(suffix))
    return std::nullopt;
  const std::string_view digits =
      text.substr(prefix.size(), text.size() - prefix.size() - suffix.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0)
    return std::nullopt;
  return number;
}

std::string FillPattern(const std::string& pattern, int64_t number) {
  const size_t at = pattern.find("%d");
  if (at == std::string::npos) return pattern;
  return pattern.substr(0, at) + std::to_string(number) + pattern.substr(at + 2);
}

}  // namespace lockstep
