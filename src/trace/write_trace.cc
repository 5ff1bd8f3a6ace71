#include <list>
#include <memory>

#include "formats/safetensors.h"
#include "trace/prompts_json.h"
#include "trace/trace.h"

namespace lockstep {
namespace {

// Owns names and id tensors until the file is written; floats are views of the trace.
class Writer {
 public:
  void Add(std::string name, const TraceTensor& tensor) {
    std::visit(
        [&](const auto& values) {
          const bool wide = sizeof(values[0]) == sizeof(double);
          tensors_.push_back({Own(std::move(name)), FindTensorType(wide ? "F64" : "F32"),
                              tensor.shape, std::as_bytes(std::span(values))});
        },
        tensor.values);
  }
  void Add(std::string name, const std::vector<int32_t>& ids) {
    auto& wide = ids_.emplace_back(ids.begin(), ids.end());
    auto& shape = shapes_.emplace_back(1, static_cast<int64_t>(wide.size()));
    tensors_.push_back(
        {Own(std::move(name)), FindTensorType("I64"), shape, std::as_bytes(std::span(wide))});
  }
  // Rows 0, 1, 2, ... of steps as one tensor [n, vocab], the goldens' greedy_logits.
  void AddRows(std::string name, const std::map<int64_t, TraceTensor>& steps) {
    TraceTensor& all = joined_.emplace_back();
    all.shape = {static_cast<int64_t>(steps.size()), steps.begin()->second.row_length()};
    std::visit(
        [&](const auto& first) {
          std::decay_t<decltype(first)> values;
          for (const auto& [k, row] : steps)
            std::visit([&](const auto& v) { values.insert(values.end(), v.begin(), v.end()); },
                       row.values);
          all.values = std::move(values);
        },
        steps.begin()->second.values);
    Add(std::move(name), all);
  }

  std::span<const TensorToWrite> tensors() const { return tensors_; }

 private:
  std::string_view Own(std::string name) {
    return *names_.emplace_back(std::make_unique<std::string>(std::move(name)));
  }

  std::vector<std::unique_ptr<std::string>> names_;
  std::list<std::vector<int64_t>> ids_, shapes_;
  std::list<TraceTensor> joined_;
  std::vector<TensorToWrite> tensors_;
};

bool AreConsecutive(const std::map<int64_t, TraceTensor>& steps) {
  return !steps.empty() && steps.rbegin()->first == static_cast<int64_t>(steps.size()) - 1;
}

Json PromptJson(const PromptTrace& prompt) {
  Json out = Json::object();
  const auto optional = [&](const char* key, const auto& value) {
    if (value) out[key] = *value;
  };
  if (!prompt.name.empty()) out["name"] = prompt.name;
  optional("text", prompt.text);
  optional("rendered", prompt.rendered);
  out["tokens"] = prompt.ids.size();
  out["ids"] = prompt.ids;
  out["greedy"] = prompt.greedy;
  optional("greedy_text", prompt.greedy_text);
  optional("noise", prompt.noise);
  optional("min_top2_gap", prompt.min_top2_gap);
  for (const auto& [step, row] : prompt.shown)
    out["shown"].push_back({{"step", step}, {"ids", row.ids}, {"logprobs", row.logprobs}});
  return out;
}

}  // namespace

Json PromptsJson(const std::vector<PromptTrace>& prompts) {
  Json list = Json::array();
  for (const PromptTrace& prompt : prompts) list.push_back(PromptJson(prompt));
  return list;
}

Status WriteTrace(const std::filesystem::path& path, const Trace& trace) {
  Writer writer;
  Json json = Json::object();
  for (const auto& [key, value] : trace.metadata) json[key] = value;
  json["prompts"] = Json::array();
  for (size_t i = 0; i < trace.prompts.size(); ++i) {
    const PromptTrace& prompt = trace.prompts[i];
    const std::string p = fmt::format("p{}.", i);
    writer.Add(p + "input_ids", prompt.ids);
    if (!prompt.greedy.empty()) writer.Add(p + "greedy", prompt.greedy);
    if (prompt.logits) writer.Add(p + "logits", *prompt.logits);
    // A whole run is one tensor; chosen steps are one each.
    if (prompt.logits && AreConsecutive(prompt.steps)) {
      writer.AddRows(p + "greedy_logits", prompt.steps);
    } else {
      for (const auto& [step, row] : prompt.steps)
        writer.Add(fmt::format("{}logits.step{}", p, step), row);
    }
    if (prompt.hidden) writer.Add(p + "hidden", *prompt.hidden);
    if (prompt.hidden_last) writer.Add(p + "hidden_last", *prompt.hidden_last);
    for (const auto& [tap, tensor] : prompt.taps) writer.Add(p + tap, tensor);
    json["prompts"].push_back(PromptJson(prompt));
  }
  LS_RETURN_IF_ERROR(WriteSafetensors(path, writer.tensors(), trace.metadata));
  std::filesystem::path json_path = path;
  json_path.replace_extension(".json");
  return WriteFileAtomically(json_path,
                             json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace lockstep
