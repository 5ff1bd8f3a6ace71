// TensorType: how the elements of a tensor are stored: plain numbers or blocks of codes with
// scales. The table in tensor_type.cc has one row per type; each block format is one file that
// documents its bytes. Everything that reads weights goes through `dequantize`, so a new row works
// everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lockstep {

struct TensorType {
  std::string_view
      name;  // safetensors' word for plain types ("BF16"), GGUF's for the rest ("Q4_K")
  std::optional<int> ggml_type;  // its number in GGUF files
  int64_t block_elements;        // a row's length is a multiple of this
  int64_t block_bytes;
  // n elements (a multiple of block_elements) from `source`, which may be unaligned: the float that
  // the format's definition gives. Only F64 and integers of more than 24 bits hold numbers that no
  // float is; those are rounded to the nearest.
  void (*dequantize)(const std::byte* source, int64_t n, float* out);
  // The way back (quant/quantize.h); null: this type is read, never written.
  void (*quantize)(const float* x, int64_t n, std::byte* out) = nullptr;
  std::string_view description;  // one phrase: "32 4-bit codes, one fp16 scale"
  // False: whole numbers, truth values or bare scales, which are no weights by themselves. The
  // binding refuses such a tensor.
  bool weights = true;

  bool plain() const { return block_elements == 1; }
  double bits_per_weight() const {
    return 8.0 * static_cast<double>(block_bytes) / static_cast<double>(block_elements);
  }
};

std::span<const TensorType> TensorTypes();
const TensorType* FindTensorType(std::string_view name);  // nullptr when unknown
const TensorType* FindGgmlType(uint32_t ggml_type);       // nullptr when unknown

}  // namespace lockstep
