#include "quant/tensor_type.h"

#include <algorithm>

#include "quant/dequantize.h"
#include "quant/quantize.h"

namespace lockstep {
namespace {

// clang-format off
// Plain types first, then block types by their number in GGUF. Numbers and sizes: ggml.h and
// ggml-common.h of llama.cpp; plain names: the `Dtype` enum of the safetensors crate.
constexpr TensorType kTypes[] = {
    {.name = "F32",     .ggml_type = 0,  .block_elements = 1,   .block_bytes = 4,   .dequantize = DequantizeF32, .quantize = QuantizeF32,     .description = "32-bit float"},
    {.name = "F16",     .ggml_type = 1,  .block_elements = 1,   .block_bytes = 2,   .dequantize = DequantizeF16, .quantize = QuantizeF16,     .description = "16-bit float"},
    {.name = "I8",      .ggml_type = 24, .block_elements = 1,   .block_bytes = 1,   .dequantize = DequantizeI8,      .description = "8-bit integer", .weights = false},
    {.name = "I16",     .ggml_type = 25, .block_elements = 1,   .block_bytes = 2,   .dequantize = DequantizeI16,     .description = "16-bit integer", .weights = false},
    {.name = "I32",     .ggml_type = 26, .block_elements = 1,   .block_bytes = 4,   .dequantize = DequantizeI32,     .description = "32-bit integer", .weights = false},
    {.name = "I64",     .ggml_type = 27, .block_elements = 1,   .block_bytes = 8,   .dequantize = DequantizeI64,     .description = "64-bit integer", .weights = false},
    {.name = "F64",     .ggml_type = 28, .block_elements = 1,   .block_bytes = 8,   .dequantize = DequantizeF64, .quantize = QuantizeF64,     .description = "64-bit float"},
    {.name = "BF16",    .ggml_type = 30, .block_elements = 1,   .block_bytes = 2,   .dequantize = DequantizeBF16, .quantize = QuantizeBF16,    .description = "bfloat16, the upper half of a 32-bit float"},
    {.name = "U8",      .ggml_type = {}, .block_elements = 1,   .block_bytes = 1,   .dequantize = DequantizeU8,      .description = "8-bit unsigned integer", .weights = false},
    {.name = "U16",     .ggml_type = {}, .block_elements = 1,   .block_bytes = 2,   .dequantize = DequantizeU16,     .description = "16-bit unsigned integer", .weights = false},
    {.name = "U32",     .ggml_type = {}, .block_elements = 1,   .block_bytes = 4,   .dequantize = DequantizeU32,     .description = "32-bit unsigned integer", .weights = false},
    {.name = "U64",     .ggml_type = {}, .block_elements = 1,   .block_bytes = 8,   .dequantize = DequantizeU64,     .description = "64-bit unsigned integer", .weights = false},
    {.name = "BOOL",    .ggml_type = {}, .block_elements = 1,   .block_bytes = 1,   .dequantize = DequantizeU8,      .description = "a byte, 0 or 1", .weights = false},
    {.name = "F8_E4M3", .ggml_type = {}, .block_elements = 1,   .block_bytes = 1,   .dequantize = DequantizeF8E4M3,  .description = "8-bit float, 4 bits of exponent, no infinities"},
    {.name = "F8_E5M2", .ggml_type = {}, .block_elements = 1,   .block_bytes = 1,   .dequantize = DequantizeF8E5M2,  .description = "8-bit float, 5 bits of exponent"},
    {.name = "F8_E8M0", .ggml_type = {}, .block_elements = 1,   .block_bytes = 1,   .dequantize = DequantizeF8E8M0,  .description = "8-bit power of two", .weights = false},
    {.name = "Q4_0",    .ggml_type = 2,  .block_elements = 32,  .block_bytes = 18,  .dequantize = DequantizeQ4_0, .quantize = QuantizeQ4_0,    .description = "32 4-bit codes, one fp16 scale"},
    {.name = "Q4_1",    .ggml_type = 3,  .block_elements = 32,  .block_bytes = 20,  .dequantize = DequantizeQ4_1, .quantize = QuantizeQ4_1,    .description = "32 4-bit codes, one fp16 scale and minimum"},
    {.name = "Q5_0",    .ggml_type = 6,  .block_elements = 32,  .block_bytes = 22,  .dequantize = DequantizeQ5_0, .quantize = QuantizeQ5_0,    .description = "32 5-bit codes, one fp16 scale"},
    {.name = "Q5_1",    .ggml_type = 7,  .block_elements = 32,  .block_bytes = 24,  .dequantize = DequantizeQ5_1, .quantize = QuantizeQ5_1,    .description = "32 5-bit codes, one fp16 scale and minimum"},
    {.name = "Q8_0",    .ggml_type = 8,  .block_elements = 32,  .block_bytes = 34,  .dequantize = DequantizeQ8_0, .quantize = QuantizeQ8_0,    .description = "32 8-bit codes, one fp16 scale"},
    {.name = "Q8_1",    .ggml_type = 9,  .block_elements = 32,  .block_bytes = 36,  .dequantize = DequantizeQ8_1,    .description = "32 8-bit codes, one fp16 scale, their sum"},
    {.name = "Q2_K",    .ggml_type = 10, .block_elements = 256, .block_bytes = 84,  .dequantize = DequantizeQ2_K, .quantize = QuantizeQ2_K,    .description = "16 groups of 16 2-bit codes, 4-bit scales and minima"},
    {.name = "Q3_K",    .ggml_type = 11, .block_elements = 256, .block_bytes = 110, .dequantize = DequantizeQ3_K, .quantize = QuantizeQ3_K,    .description = "16 groups of 16 3-bit codes, 6-bit scales"},
    {.name = "Q4_K",    .ggml_type = 12, .block_elements = 256, .block_bytes = 144, .dequantize = DequantizeQ4_K, .quantize = QuantizeQ4_K,    .description = "8 groups of 32 4-bit codes, 6-bit scales and minima"},
    {.name = "Q5_K",    .ggml_type = 13, .block_elements = 256, .block_bytes = 176, .dequantize = DequantizeQ5_K, .quantize = QuantizeQ5_K,    .description = "8 groups of 32 5-bit codes, 6-bit scales and minima"},
    {.name = "Q6_K",    .ggml_type = 14, .block_elements = 256, .block_bytes = 210, .dequantize = DequantizeQ6_K, .quantize = QuantizeQ6_K,    .description = "16 groups of 16 6-bit codes, 8-bit scales"},
    {.name = "Q8_K",    .ggml_type = 15, .block_elements = 256, .block_bytes = 292, .dequantize = DequantizeQ8_K,    .description = "256 8-bit codes, one fp32 scale, 16 sums"},
    {.name = "IQ2_XXS", .ggml_type = 16, .block_elements = 256, .block_bytes = 66,  .dequantize = DequantizeIQ2_XXS, .description = "32 points of a grid of 256, 7-bit signs, 4-bit scales"},
    {.name = "IQ2_XS",  .ggml_type = 17, .block_elements = 256, .block_bytes = 74,  .dequantize = DequantizeIQ2_XS,  .description = "32 points of a grid of 512, 7-bit signs, 4-bit scales"},
    {.name = "IQ3_XXS", .ggml_type = 18, .block_elements = 256, .block_bytes = 98,  .dequantize = DequantizeIQ3_XXS, .description = "64 points of a grid of 256, 7-bit signs, 4-bit scales"},
    {.name = "IQ1_S",   .ggml_type = 19, .block_elements = 256, .block_bytes = 50,  .dequantize = DequantizeIQ1_S,   .description = "32 points of a ternary grid of 2048, 3-bit scales"},
    {.name = "IQ4_NL",  .ggml_type = 20, .block_elements = 32,  .block_bytes = 18,  .dequantize = DequantizeIQ4_NL, .quantize = QuantizeIQ4_NL,  .description = "32 4-bit codes into a fixed table, one fp16 scale"},
    {.name = "IQ3_S",   .ggml_type = 21, .block_elements = 256, .block_bytes = 110, .dequantize = DequantizeIQ3_S,   .description = "64 points of a grid of 512, 8-bit signs, 4-bit scales"},
    {.name = "IQ2_S",   .ggml_type = 22, .block_elements = 256, .block_bytes = 82,  .dequantize = DequantizeIQ2_S,   .description = "32 points of a grid of 1024, 8-bit signs, 4-bit scales"},
    {.name = "IQ4_XS",  .ggml_type = 23, .block_elements = 256, .block_bytes = 136, .dequantize = DequantizeIQ4_XS, .quantize = QuantizeIQ4_XS,  .description = "8 groups of 32 4-bit codes into a fixed table, 6-bit scales"},
    {.name = "IQ1_M",   .ggml_type = 29, .block_elements = 256, .block_bytes = 56,  .dequantize = DequantizeIQ1_M,   .description = "32 points of a ternary grid of 2048, 3-bit scales per 16"},
    {.name = "TQ1_0",   .ggml_type = 34, .block_elements = 256, .block_bytes = 54,  .dequantize = DequantizeTQ1_0,   .description = "256 ternary codes in base 3, one fp16 scale"},
    {.name = "TQ2_0",   .ggml_type = 35, .block_elements = 256, .block_bytes = 66,  .dequantize = DequantizeTQ2_0,   .description = "256 ternary codes of 2 bits, one fp16 scale"},
    {.name = "MXFP4",   .ggml_type = 39, .block_elements = 32,  .block_bytes = 17,  .dequantize = DequantizeMXFP4, .quantize = QuantizeMXFP4,   .description = "32 4-bit floats, one 8-bit power of two"},
    {.name = "NVFP4",   .ggml_type = 40, .block_elements = 64,  .block_bytes = 36,  .dequantize = DequantizeNVFP4,   .description = "4 groups of 16 4-bit floats, 8-bit float scales"},
};
// clang-format on

}  // namespace

std::span<const TensorType> TensorTypes() { return kTypes; }

const TensorType* FindTensorType(std::string_view name) {
  const auto* it = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](const TensorType& type) { return type.name == name; });
  return it == std::end(kTypes) ? nullptr : it;
}

const TensorType* FindGgmlType(uint32_t ggml_type) {
  const auto* it = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TensorType& type) {
    return type.ggml_type && static_cast<uint32_t>(*type.ggml_type) == ggml_type;
  });
  return it == std::end(kTypes) ? nullptr : it;
}

}  // namespace lockstep
