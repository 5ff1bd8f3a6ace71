#include "formats/onnx.h"

#include <algorithm>

#include "base/json.h"
#include "base/quoted.h"
#include "formats/onnx_read.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

template <typename T>
const T* FindNamed(const std::vector<T>& all, std::string_view name) {
  const auto it = std::find_if(all.begin(), all.end(), [&](const T& x) { return x.name == name; });
  return it == all.end() ? nullptr : &*it;
}

template <typename T>
std::optional<T> ValueOf(const OnnxAttribute* attribute) {
  if (attribute == nullptr) return std::nullopt;
  const T* value = std::get_if<T>(&attribute->value);
  return value == nullptr ? std::nullopt : std::optional<T>(*value);
}

template <typename T>
T FindOr(const std::map<std::string_view, T>& map, std::string_view key, T otherwise) {
  const auto it = map.find(key);
  return it == map.end() ? otherwise : it->second;
}

// model.decoder.filename of genai_config.json; empty when it says nothing.
Result<std::string> FilenameOfConfig(const fs::path& config) {
  LS_TRY(const std::string text, ReadTextFile(config));
  LS_TRY(const Json json, ParseJson(text, config.string()));
  const Json::json_pointer pointer("/model/decoder/filename");
  if (!json.is_object() || !json.contains(pointer) || !json.at(pointer).is_string()) return "";
  const auto name = json.at(pointer).get<std::string>();
  if (fs::path(name).filename() != name || name == "." || name == "..")
    return InputError("{}: model.decoder.filename is {}, expected the name of a file beside it",
                      config.string(), Quoted(name));
  return name;
}

Result<fs::path> FindModelFile(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  if (fs::exists(path / "genai_config.json", ignored)) {
    LS_TRY(const std::string name, FilenameOfConfig(path / "genai_config.json"));
    if (!name.empty()) return path / name;
  }
  if (fs::exists(path / "model.onnx", ignored)) return path / "model.onnx";
  std::vector<fs::path> found;
  for (fs::directory_iterator it(path, ignored), end; it != end && !ignored; it.increment(ignored))
    if (it->path().extension() == ".onnx") found.push_back(it->path());
  if (found.size() == 1) return found[0];
  if (found.empty()) return InputError("{}: holds no model.onnx", path.string());
  return InputError("{}: holds {} .onnx files and none is called model.onnx: name the file",
                    path.string(), found.size());
}

}  // namespace

const OnnxAttribute* OnnxNode::Find(std::string_view attribute) const {
  return FindNamed(attributes, attribute);
}
std::optional<int64_t> OnnxNode::Int(std::string_view attribute) const {
  return ValueOf<int64_t>(Find(attribute));
}
std::optional<float> OnnxNode::Float(std::string_view attribute) const {
  return ValueOf<float>(Find(attribute));
}
std::optional<std::string> OnnxNode::String(std::string_view attribute) const {
  return ValueOf<std::string>(Find(attribute));
}
std::string_view OnnxNode::Input(size_t slot) const {
  return slot < inputs.size() ? std::string_view(inputs[slot]) : std::string_view();
}

Result<OnnxModel> OnnxModel::Open(const fs::path& path) {
  LS_TRY(const fs::path file, FindModelFile(path));
  LS_TRY(auto mapped, MappedFile::Open(file));
  OnnxModel model;
  model.path_ = file;
  const std::string place = file.string();
  model.files_.push_back({file.filename().string(), mapped->bytes(), mapped});
  LS_RETURN_IF_ERROR(OnnxReader(model, place).Read());
  LS_RETURN_IF_ERROR(model.Index(place));
  return model;
}

Result<OnnxModel> OnnxModel::Parse(std::span<const std::byte> bytes, std::string_view place) {
  OnnxModel model;
  model.files_.push_back({std::string(place), bytes, nullptr});
  LS_RETURN_IF_ERROR(OnnxReader(model, place).Read());
  LS_RETURN_IF_ERROR(model.Index(place));
  return model;
}

fs::path OnnxModel::folder() const {
  return path_.has_parent_path() ? path_.parent_path() : fs::path(".");
}

Status OnnxModel::Index(std::string_view place) {
  for (const OnnxTensor& tensor : tensors_) {
    if (tensor.node) continue;  // found as an output below
    if (!tensor_of_.emplace(tensor.name, &tensor).second)
      return InputError("{}: two initializers are called {}", place, Quoted(tensor.name));
  }
  // Until IR version 3 every initializer was an input, too, and its value a default.
  std::erase_if(inputs_, [&](const OnnxValueInfo& input) {
    return tensor_of_.contains(std::string_view(input.name));
  });
  std::map<std::string_view, bool> names;
  for (const OnnxValueInfo& input : inputs_)
    if (!names.emplace(input.name, true).second)
      return InputError("{}: two inputs are called {}", place, Quoted(input.name));
  for (const OnnxNode& node : nodes_) {
    for (const std::string& output : node.outputs) {
      if (output.empty()) continue;
      if (!producer_of_.emplace(output, &node).second || names.contains(output) ||
          tensor_of_.contains(output))
        return InputError("{}: the value {} has two sources: node {} ({}) and an earlier one",
                          place, Quoted(output), Quoted(node.name), Quoted(node.op_type));
    }
    for (const std::string& input : node.inputs) {
      if (input.empty()) continue;
      auto& consumers = consumers_of_[input];
      if (consumers.empty() || consumers.back() != &node) consumers.push_back(&node);
    }
  }
  for (const OnnxTensor& tensor : tensors_)
    if (tensor.node) tensor_of_.emplace(tensor.name, &tensor);
  names.clear();
  for (const OnnxValueInfo& output : outputs_)
    if (!names.emplace(output.name, true).second)
      return InputError("{}: two outputs are called {}", place, Quoted(output.name));
  return {};
}

const OnnxTensor* OnnxModel::Tensor(std::string_view name) const {
  return FindOr<const OnnxTensor*>(tensor_of_, name, nullptr);
}
const OnnxNode* OnnxModel::Producer(std::string_view value) const {
  return FindOr<const OnnxNode*>(producer_of_, value, nullptr);
}
const OnnxValueInfo* OnnxModel::Input(std::string_view name) const {
  return FindNamed(inputs_, name);
}
const OnnxValueInfo* OnnxModel::Output(std::string_view name) const {
  return FindNamed(outputs_, name);
}
std::span<const OnnxNode* const> OnnxModel::ConsumersOf(std::string_view value) const {
  const auto it = consumers_of_.find(value);
  if (it == consumers_of_.end()) return {};
  return it->second;
}

}  // namespace lockstep
