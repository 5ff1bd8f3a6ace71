// Any bytes as a safetensors file: an error, or tensors that lie in the bytes and can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = lockstep::ParseSafetensors(bytes, "fuzz.safetensors");
  if (!file) {
    if (file.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  for (const lockstep::TensorInfo& tensor : file->tensors) {
    std::vector<float> out(static_cast<size_t>(tensor.elements()));
    tensor.type->dequantize(tensor.data.data(), tensor.elements(), out.data());
    if (file->Find(tensor.name) != &tensor) std::abort();
  }
  return 0;
}
