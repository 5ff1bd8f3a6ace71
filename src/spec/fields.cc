#include "spec/fields.h"

#include "spec/field_json.h"

namespace lockstep {

std::string FoundText(const Json& json) {
  constexpr size_t kLongest = 40;
  switch (json.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return fmt::format("a list of {}", json.size());
    case Json::value_t::string: {
      // Escaped, so that the message stays one line; bytes that are not UTF-8 are replaced.
      std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
      if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
      return "the string " + text;
    }
    default:
      return json.dump();
  }
}

Json ToJson(const ModelSpec& spec) { return WriteJson(spec); }
Json ToJson(const RunSpec& run) { return WriteJson(run); }

Result<ModelSpec> FromJson(const Json& json, std::string_view place) {
  ModelSpec spec;
  LS_RETURN_IF_ERROR(ReadJson(json, {place, ""}, spec));
  return spec;
}

Result<RunSpec> RunSpecFromJson(const Json& json, std::string_view place) {
  RunSpec run;
  LS_RETURN_IF_ERROR(ReadJson(json, {place, ""}, run));
  return run;
}

}  // namespace lockstep
