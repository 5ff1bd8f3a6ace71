#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/dtype.h"
#include "base/quoted.h"
#include "formats/describe.h"
#include "formats/safetensors.h"
#include "spec/taps.h"
#include "trace/prompts_json.h"
#include "trace/trace.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxPrompts = 100'000;
constexpr int64_t kMaxSteps = 1'000'000;

// "p12.logits" -> 12, "logits". The unprefixed form is prompt 0.
struct PromptTensor {
  int64_t prompt = 0;
  std::string_view name;
  bool prefixed = false;
};

PromptTensor SplitName(std::string_view name) {
  if (name.starts_with('p')) {
    int64_t index = 0;
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + 1, end, index);
    if (error == std::errc{} && rest != end && *rest == '.' && index >= 0)
      return {index, std::string_view(rest + 1, static_cast<size_t>(end - rest - 1)), true};
  }
  return {0, name, false};
}

std::optional<int64_t> StepOf(std::string_view name) {
  constexpr std::string_view kPrefix = "logits.step";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t step = 0;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc{} || rest != name.data() + name.size() || step < 0 || step > kMaxSteps)
    return std::nullopt;
  return step;
}

bool IsPartOfTrace(std::string_view name) {
  return name == "input_ids" || name == "logits" || name == "greedy" || name == "greedy_logits" ||
         name == "hidden" || name == "hidden_last" || StepOf(name) || ParseTapName(name);
}

bool HoldsTrace(const SafetensorsFile& file) {
  return std::any_of(file.tensors.begin(), file.tensors.end(), [](const TensorInfo& tensor) {
    const PromptTensor split = SplitName(tensor.name);
    return split.name == "logits" || split.name == "greedy_logits" || StepOf(split.name);
  });
}

class Reader {
 public:
  explicit Reader(std::string place) : place_(std::move(place)) {}

  Result<TraceTensor> Floats(const TensorInfo& tensor, size_t rank) const {
    if (!tensor.type->plain() || tensor.type->name.starts_with('I') ||
        tensor.type->name.starts_with('U') || tensor.type->name == "BOOL")
      return InputError("{}: tensor {} is {}, expected floats (F32, F64, F16 or BF16)", place_,
                        Quoted(tensor.name), tensor.type->name);
    if (tensor.shape.size() != rank || tensor.elements() == 0)
      return InputError("{}: tensor {} has shape {}, expected {} dimensions, none empty", place_,
                        Quoted(tensor.name), ShapeText(tensor.shape), rank);
    const auto n = static_cast<size_t>(tensor.elements());
    if (tensor.type->name == "F64") {
      std::vector<double> values(n);
      ConvertToDouble(DType::kF64, tensor.data.data(), n, values.data());
      return TraceTensor{tensor.shape, std::move(values)};
    }
    std::vector<float> values(n);
    tensor.type->dequantize(tensor.data.data(), tensor.elements(), values.data());
    return TraceTensor{tensor.shape, std::move(values)};
  }

  Result<std::vector<int32_t>> Ids(const TensorInfo& tensor) const {
    const auto dtype = DTypeFromName(tensor.type->name);
    if (!tensor.type->plain() || (dtype != DType::kI64 && dtype != DType::kI32))
      return InputError("{}: tensor {} is {}, expected I64 or I32", place_, Quoted(tensor.name),
                        tensor.type->name);
    // [T], or a batch of one.
    if (tensor.shape.empty() || tensor.shape.size() > 2 ||
        (tensor.shape.size() == 2 && tensor.shape[0] != 1))
      return InputError("{}: tensor {} has shape {}, expected one row of ids", place_,
                        Quoted(tensor.name), ShapeText(tensor.shape));
    std::vector<double> values(static_cast<size_t>(tensor.elements()));
    ConvertToDouble(*dtype, tensor.data.data(), values.size(), values.data());
    std::vector<int32_t> ids;
    for (const double value : values) {
      if (value < 0 || value > 2147483647.0)
        return InputError("{}: tensor {} holds {}, which is no token id", place_,
                          Quoted(tensor.name), value);
      ids.push_back(static_cast<int32_t>(value));
    }
    return ids;
  }

  Status TakeStep(int64_t step, TraceTensor row, PromptTrace& prompt) const {
    if (!prompt.steps.emplace(step, std::move(row)).second)
      return InputError(
          "{}: the logits of step {} are there twice: in greedy_logits and as logits.step{}; keep "
          "one",
          place_, step, step);
    return {};
  }

  Status Take(const TensorInfo& tensor, std::string_view name, PromptTrace& prompt) const {
    if (name == "input_ids") {
      LS_TRY(prompt.ids, Ids(tensor));
    } else if (name == "greedy") {
      LS_TRY(prompt.greedy, Ids(tensor));
    } else if (name == "logits") {
      LS_TRY(prompt.logits, Floats(tensor, 2));
    } else if (name == "greedy_logits") {
      LS_TRY(const TraceTensor rows, Floats(tensor, 2));
      const int64_t cols = rows.row_length();
      for (int64_t k = 0; k < rows.num_rows(); ++k) {
        TraceTensor row = std::visit(
            [&](const auto& all) {
              return TraceTensor{{cols},
                                 std::decay_t<decltype(all)>(all.begin() + k * cols,
                                                             all.begin() + (k + 1) * cols)};
            },
            rows.values);
        LS_RETURN_IF_ERROR(TakeStep(k, std::move(row), prompt));
      }
    } else if (const auto step = StepOf(name)) {
      LS_TRY(TraceTensor row, Floats(tensor, 1));
      LS_RETURN_IF_ERROR(TakeStep(*step, std::move(row), prompt));
    } else if (name == "hidden") {
      LS_TRY(prompt.hidden, Floats(tensor, 3));
    } else if (name == "hidden_last") {
      LS_TRY(prompt.hidden_last, Floats(tensor, 2));
    } else if (ParseTapName(name)) {
      LS_TRY(prompt.taps[std::string(name)], Floats(tensor, 2));
    }
    return {};
  }

 private:
  std::string place_;
};

Result<std::vector<int32_t>> IdsOf(const Json& value, const std::string& place,
                                   std::string_view key) {
  std::vector<int32_t> ids;
  if (!value.is_array())
    return InputError("{}: \"{}\": expected a list of token ids, found {}", place, key,
                      value.type_name());
  for (const Json& id : value) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > 2147483647)
      return InputError("{}: \"{}\": expected token ids, found {}", place, key,
                        Quoted(id.dump(-1, ' ', true, Json::error_handler_t::replace)));
    ids.push_back(static_cast<int32_t>(id.get<int64_t>()));
  }
  return ids;
}

// One row of "shown".
Status TakeShown(const Json& entry, const std::string& place, PromptTrace& prompt) {
  const auto step = entry.is_object() ? entry.find("step") : entry.end();
  const auto ids = entry.is_object() ? entry.find("ids") : entry.end();
  const auto numbers = entry.is_object() ? entry.find("logprobs") : entry.end();
  if (step == entry.end() || !step->is_number_unsigned() ||
      step->get<uint64_t>() > static_cast<uint64_t>(kMaxSteps) || ids == entry.end() ||
      numbers == entry.end() || !numbers->is_array())
    return InputError(
        "{}: \"shown\": expected objects with a step, ids and as many logprobs, found {}", place,
        Quoted(entry.dump(-1, ' ', true, Json::error_handler_t::replace)));
  SparseRow row;
  LS_TRY(row.ids, IdsOf(*ids, place, "shown"));
  for (const Json& number : *numbers) {
    if (!number.is_number() || !std::isfinite(number.get<double>()))
      return InputError("{}: \"shown\": expected finite log-probabilities, found {}", place,
                        Quoted(number.dump(-1, ' ', true, Json::error_handler_t::replace)));
    row.logprobs.push_back(number.get<double>());
  }
  if (row.ids.empty() || row.ids.size() != row.logprobs.size())
    return InputError(
        "{}: \"shown\": {} ids and {} log-probabilities; expected as many, and one at least", place,
        row.ids.size(), row.logprobs.size());
  if (!prompt.shown.emplace(step->get<int64_t>(), std::move(row)).second)
    return InputError("{}: \"shown\": step {} is there twice; keep one", place,
                      step->get<int64_t>());
  return {};
}

// Takes what the JSON says of a prompt; what tensors say as well must be the same.
Status TakeJson(const Json& entry, const std::string& place, PromptTrace& prompt) {
  if (!entry.is_object())
    return InputError("{}: expected an object, found {}", place, entry.type_name());
  const auto text = [&](const char* key, std::optional<std::string>& out) {
    if (const auto found = entry.find(key); found != entry.end() && found->is_string())
      out = found->get<std::string>();
  };
  const auto number = [&](const char* key, std::optional<double>& out) {
    if (const auto found = entry.find(key); found != entry.end() && found->is_number())
      out = found->get<double>();
  };
  std::optional<std::string> name;
  text("name", name);
  prompt.name = OneLine(name.value_or(""), 200);  // stands in tables
  text("text", prompt.text);
  text("rendered", prompt.rendered);
  text("greedy_text", prompt.greedy_text);
  number("noise", prompt.noise);
  number("min_top2_gap", prompt.min_top2_gap);
  if (prompt.noise && (!std::isfinite(*prompt.noise) || *prompt.noise < 0))
    return InputError("{}: \"noise\" is {}, expected a number that is not negative", place,
                      *prompt.noise);
  for (const auto& [key, ids] : {std::pair{"ids", &prompt.ids}, {"greedy", &prompt.greedy}}) {
    const auto found = entry.find(key);
    if (found == entry.end()) continue;
    LS_TRY(std::vector<int32_t> read, IdsOf(*found, place, key));
    if (!ids->empty() && *ids != read)
      return InputError("{}: \"{}\" differs from the ids in the safetensors file (two runs mixed?)",
                        place, key);
    *ids = std::move(read);
  }
  const auto shown = entry.find("shown");
  if (shown == entry.end()) return {};
  if (!shown->is_array())
    return InputError("{}: \"shown\": expected a list, found {}", place, shown->type_name());
  for (const Json& row : *shown) LS_RETURN_IF_ERROR(TakeShown(row, place, prompt));
  return {};
}

Status CheckPrompt(const PromptTrace& prompt, const std::string& place, int64_t vocab) {
  const int64_t n = static_cast<int64_t>(prompt.ids.size());
  if (prompt.ids.empty())
    return InputError(
        "{}: no ids of the prompt: expected a tensor input_ids, or \"ids\" in the JSON file of the "
        "same name beside it",
        place);
  for (const auto* ids : {&prompt.ids, &prompt.greedy})
    for (const int32_t id : *ids)
      if (vocab > 0 && id >= vocab)
        return InputError("{}: token id {} is outside the {} columns of the logits", place, id,
                          vocab);
  if (prompt.logits && prompt.logits->num_rows() != n)
    return InputError("{}: {} rows of logits for a prompt of {} ids", place,
                      prompt.logits->num_rows(), n);
  if (prompt.hidden && prompt.hidden->shape[1] != n)
    return InputError("{}: hidden states of {} positions for a prompt of {} ids", place,
                      prompt.hidden->shape[1], n);
  for (const auto& [tap, tensor] : prompt.taps)
    if (tensor.num_rows() != n)
      return InputError("{}: {} has {} rows for a prompt of {} ids", place, tap, tensor.num_rows(),
                        n);
  const auto width = [&](const TraceTensor& tensor) -> Status {
    if (tensor.row_length() != vocab)
      return InputError("{}: logits with {} columns beside others with {}", place,
                        tensor.row_length(), vocab);
    return {};
  };
  if (prompt.logits) LS_RETURN_IF_ERROR(width(*prompt.logits));
  for (const auto& [step, row] : prompt.steps) {
    LS_RETURN_IF_ERROR(width(row));
    // The logits of step k are reached by feeding the greedy tokens before it.
    if (step > static_cast<int64_t>(prompt.greedy.size()))
      return InputError("{}: logits of step {} but only {} greedy ids that lead to it", place, step,
                        prompt.greedy.size());
  }
  return {};
}

}  // namespace

bool IsTrace(const fs::path& path) {
  const auto file = OpenSafetensors(path);
  return file && HoldsTrace(*file);
}

Result<std::vector<PromptTrace>> ReadPromptsJson(const Json& list, const std::string& place) {
  if (!list.is_array() || list.empty() || list.size() > static_cast<size_t>(kMaxPrompts))
    return InputError("{}: expected a list of 1 to {} prompts, found {}", place, kMaxPrompts,
                      list.is_array() ? fmt::format("{}", list.size()) : list.type_name());
  std::vector<PromptTrace> prompts;
  for (const Json& entry : list) {
    const std::string here = fmt::format("{}: prompt {}", place, prompts.size());
    PromptTrace& prompt = prompts.emplace_back();
    LS_RETURN_IF_ERROR(TakeJson(entry, here, prompt));
    LS_RETURN_IF_ERROR(CheckPrompt(prompt, here, 0));
    for (const auto& [step, row] : prompt.shown)
      if (step > static_cast<int64_t>(prompt.greedy.size()))
        return InputError("{}: \"shown\": step {} but only {} greedy ids that lead to it", here,
                          step, prompt.greedy.size());
  }
  return prompts;
}

Result<Trace> ReadTrace(const fs::path& path) {
  const std::string place = path.string();
  LS_TRY(const SafetensorsFile file, OpenSafetensors(path));
  if (!HoldsTrace(file))
    return InputError(
        "{}: expected a recorded trace (tensors such as p0.logits), found {} other tensors{}",
        place, file.tensors.size(), " (weights? name their folder instead)");
  Trace trace;
  trace.source = place;
  trace.metadata = file.metadata;

  const Reader reader(place);
  std::map<int64_t, PromptTrace> prompts;
  // What a file says twice ("logits" and "p0.logits") is no recording of one run.
  std::map<std::pair<int64_t, std::string_view>, std::string_view> seen;
  for (const TensorInfo& tensor : file.tensors) {
    const PromptTensor split = SplitName(tensor.name);
    if (!IsPartOfTrace(split.name)) continue;  // dequant.*, and whatever else people add
    if (split.prompt >= kMaxPrompts)
      return InputError("{}: tensor {}: more than {} prompts", place, Quoted(tensor.name),
                        kMaxPrompts);
    const auto [first, is_new] = seen.emplace(std::pair{split.prompt, split.name}, tensor.name);
    if (!is_new)
      return InputError("{}: tensors {} and {} are both \"{}\" of prompt {}; keep one", place,
                        Quoted(first->second), Quoted(tensor.name), split.name, split.prompt);
    LS_RETURN_IF_ERROR(reader.Take(tensor, split.name, prompts[split.prompt]));
  }

  fs::path json_path = path;
  json_path.replace_extension(".json");
  std::error_code ignored;
  if (fs::is_regular_file(json_path, ignored)) {
    LS_TRY(const std::string text, ReadTextFile(json_path));
    LS_TRY(const Json json, ParseJson(text, json_path.string()));
    // A JSON file that lists no prompts is somebody else's; what is missing then is told below.
    const Json none = Json::array();
    const auto found = json.is_object() ? json.find("prompts") : json.end();
    const Json& list = found != json.end() && found->is_array() ? *found : none;
    if (json.is_object())
      for (const auto& [key, value] : json.items())
        if (value.is_string()) trace.metadata.emplace(key, value.get<std::string>());
    for (auto& [index, prompt] : prompts) {
      if (list.empty()) break;
      if (static_cast<size_t>(index) >= list.size())
        return InputError("{}: has {} prompts, but {} holds tensors of prompt {}",
                          json_path.string(), list.size(), place, index);
      LS_RETURN_IF_ERROR(TakeJson(list[static_cast<size_t>(index)],
                                  fmt::format("{}: prompt {}", json_path.string(), index), prompt));
    }
  }

  // Of the first prompt that has logits: not every one need.
  int64_t vocab = 0;
  for (const auto& [index, prompt] : prompts)
    if (vocab == 0) vocab = prompt.vocab_size();
  for (auto& [index, prompt] : prompts) {
    LS_RETURN_IF_ERROR(CheckPrompt(prompt, fmt::format("{}: prompt {}", place, index), vocab));
    trace.prompts.push_back(std::move(prompt));
  }
  return trace;
}

}  // namespace lockstep
