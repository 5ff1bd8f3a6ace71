// Any bytes as an ONNX file: an error, or a graph whose tensors can be read and whose empty patch
// is the file again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "formats/onnx.h"
#include "formats/onnx_write.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto model = lockstep::OnnxModel::Parse(bytes, "fuzz.onnx");
  if (!model) {
    if (model.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  for (const lockstep::OnnxTensor& tensor : model->tensors()) {
    if (const auto values = lockstep::ReadDoubles(tensor))
      if (static_cast<int64_t>(values->size()) != tensor.elements) std::abort();
    if (!tensor.node && model->Tensor(tensor.name) != &tensor) std::abort();
  }
  for (const lockstep::OnnxNode& node : model->nodes())
    for (const std::string& output : node.outputs)
      if (!output.empty() && model->Producer(output) != &node) std::abort();
  if (const auto copy = lockstep::PatchedOnnx(*model, {}))
    if (copy->size() > size + 16) std::abort();
  return 0;
}
