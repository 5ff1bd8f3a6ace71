// The manifest of recorded ONNX Runtime runs (tests/golden/ort-ops, and the larger set under
// LOCKSTEP_GOLDENS), for the tests of this folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "formats/safetensors.h"
#include "onnx_ops/op.h"

namespace lockstep {

class OrtGoldens {
 public:
  static Result<OrtGoldens> Open(const std::filesystem::path& folder) {
    OrtGoldens goldens;
    LS_TRY(const auto text, ReadTextFile(folder / "manifest.json"));
    LS_TRY(goldens.manifest_, ParseJson(text, "manifest.json"));
    for (const auto& [name, _] : goldens.manifest_["files"].items()) {
      LS_TRY(goldens.files_[name], OpenSafetensors(folder / name));
    }
    return goldens;
  }
  // The repository's own, then the larger set where there is one.
  static std::vector<std::string> Folders() {
    std::vector<std::string> folders = {std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/ort-ops"};
    const std::string larger = std::string(LOCKSTEP_GOLDENS) + "/ort-ops";
    if (std::filesystem::exists(larger)) folders.push_back(larger);
    return folders;
  }

  const Json& operator[](const char* list) const { return manifest_.at(list); }
  std::span<const std::byte> Bytes(const Json& entry, const std::string& key) const {
    const TensorInfo* tensor = files_.at(entry["file"]).Find(key);
    return tensor == nullptr ? std::span<const std::byte>() : tensor->data;
  }

  static OnnxType TypeOf(const std::string& name) {
    static const std::map<std::string, OnnxType> types = {
        {"float32", OnnxType::kFloat},     {"float16", OnnxType::kFloat16},
        {"bfloat16", OnnxType::kBFloat16}, {"float64", OnnxType::kDouble},
        {"uint8", OnnxType::kUInt8},       {"int8", OnnxType::kInt8},
        {"int32", OnnxType::kInt32},       {"int64", OnnxType::kInt64},
        {"uint4", OnnxType::kUInt4},       {"int4", OnnxType::kInt4}};
    return types.at(name);
  }

  OpCall Call(const Json& entry) const {
    OpCall call{.op = entry["op"],
                .domain = entry["domain"],
                .name = entry["id"],
                .attributes = {},
                .inputs = {},
                .outputs = {}};
    for (const auto& [name, value] : entry["attributes"].items()) {
      if (value.is_string())
        call.attributes[name] = value.get<std::string>();
      else if (value.is_number_float())
        call.attributes[name] = value.get<float>();
      else
        call.attributes[name] = value.get<int64_t>();
    }
    for (const Json& input : entry["inputs"]) {
      const size_t slot = input["slot"];
      if (call.inputs.size() <= slot) call.inputs.resize(slot + 1);
      call.inputs[slot] = OpTensor{.type = TypeOf(input["type"]),
                                   .shape = input["shape"].get<std::vector<int64_t>>(),
                                   .bytes = Bytes(entry, input["tensor"]),
                                   .constant = input["constant"]};
    }
    const auto want = [&](size_t slot) {
      if (call.outputs.size() <= slot) call.outputs.resize(slot + 1);
      call.outputs[slot] = true;
    };
    if (entry.contains("output_slots"))
      for (const Json& slot : entry["output_slots"]) want(slot);
    if (!entry.contains("outputs")) {
      if (call.outputs.empty()) want(0);
      return call;
    }
    for (const Json& output : entry["outputs"]) want(output["slot"]);
    return call;
  }

 private:
  Json manifest_;
  std::map<std::string, SafetensorsFile> files_;
};

}  // namespace lockstep
