// Any bytes as a GGUF file: an error, or key-values that print and tensors that lie in the bytes
// and can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "formats/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = lockstep::ParseGguf(bytes, "fuzz.gguf");
  if (!file) {
    if (file.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  for (const auto& [key, value] : file->metadata.values()) {
    value.AsInt();
    value.AsDouble();
    value.AsBool();
    value.AsString();
    value.AsStrings();
    value.AsDoubles();
    value.AsInts();
    value.ToJson().dump();
  }
  for (const lockstep::TensorInfo& tensor : file->tensors) {
    std::vector<float> out(static_cast<size_t>(tensor.elements()));
    tensor.type->dequantize(tensor.data.data(), tensor.elements(), out.data());
  }
  return 0;
}
