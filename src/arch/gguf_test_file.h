// For tests: a GGUF in memory, with key-values and tensors of zeros, as GgufConfig reads it.
#pragma once

#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "formats/checkpoint.h"
#include "quant/tensor_type.h"

namespace lockstep {

class GgufTestFile {
 public:
  explicit GgufTestFile(std::string architecture) : prefix_(std::move(architecture) + ".") {
    checkpoint.kind = Checkpoint::Kind::kGguf;
    checkpoint.path = "model.gguf";
  }

  // Keys get the architecture's prefix; with a slash before them ("/general.name") they do not.
  GgufTestFile& Int(std::string_view key, int64_t value) {
    return Put(key, GgufType::kU32, static_cast<uint32_t>(value));
  }
  GgufTestFile& Float(std::string_view key, float value) { return Put(key, GgufType::kF32, value); }
  GgufTestFile& Bool(std::string_view key, bool value) {
    return Put(key, GgufType::kBool, static_cast<uint8_t>(value));
  }
  GgufTestFile& Text(std::string_view key, std::string_view text) {
    return Set(key, {.type = GgufType::kString}, std::string(text));
  }
  GgufTestFile& Ints(std::string_view key, const std::vector<int32_t>& values) {
    return Set(key,
               {.type = GgufType::kArray, .element_type = GgufType::kI32, .count = values.size()},
               std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  }
  GgufTestFile& Erase(std::string_view key) {
    checkpoint.gguf.mutable_values().erase(Full(key));
    return *this;
  }
  GgufTestFile& Tensor(std::string name, std::vector<int64_t> shape, float fill = 0) {
    size_t elements = 1;
    for (const int64_t d : shape) elements *= static_cast<size_t>(d);
    const auto& data = tensors_.emplace_back(elements, fill);
    checkpoint.tensors.push_back({.name = std::move(name),
                                  .shape = std::move(shape),
                                  .type = FindTensorType("F32"),
                                  .data = std::as_bytes(std::span(data))});
    std::ranges::sort(checkpoint.tensors, {}, &TensorInfo::name);
    return *this;
  }

  Checkpoint checkpoint;

 private:
  std::string Full(std::string_view key) const {
    return key.starts_with('/') ? std::string(key.substr(1)) : prefix_ + std::string(key);
  }
  template <typename T>
  GgufTestFile& Put(std::string_view key, GgufType type, T value) {
    return Set(key, {.type = type}, std::string(reinterpret_cast<const char*>(&value), sizeof(T)));
  }
  GgufTestFile& Set(std::string_view key, GgufValue value, std::string bytes) {
    const std::string& kept = bytes_.emplace_back(std::move(bytes));
    value.bytes = std::as_bytes(std::span(kept));
    checkpoint.gguf.mutable_values()[Full(key)] = value;
    return *this;
  }

  std::string prefix_;
  std::deque<std::string> bytes_;
  std::deque<std::vector<float>> tensors_;
};

}  // namespace lockstep
