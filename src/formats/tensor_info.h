// TensorInfo: one entry of a checkpoint's directory: a name, a shape, a type and the bytes. Made by
// the readers (safetensors, gguf), which agree on one invariant: the bytes lie in the file and are
// exactly as many as shape and type ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "quant/tensor_type.h"

namespace lockstep {

struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;  // outermost first, as PyTorch prints it (GGUF's dimensions reversed)
  const TensorType* type = nullptr;
  std::span<const std::byte>
      data;         // into the checkpoint's mapped files; its size matches shape and type
  size_t file = 0;  // index into Checkpoint::files

  int64_t elements() const;
};

// More tensors than any checkpoint has. It bounds the time that a directory made to hurt can take.
inline constexpr uint64_t kMaxTensors = 1'000'000;

// The bytes that a tensor of this type and shape occupies. Fails, as `place: tensor "name" ...`,
// when the last dimension is no multiple of the type's block or when a count leaves 63 bits. A
// shape without dimensions is a scalar.
Result<int64_t> StoredBytes(const TensorType& type, std::span<const int64_t> shape,
                            std::string_view place, std::string_view name);

// Sorts by name and refuses a name given twice.
Status SortByName(std::vector<TensorInfo>& tensors, std::string_view place);

}  // namespace lockstep
