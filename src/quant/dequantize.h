// The functions behind the table of tensor_type.cc, one per type. Each turns n elements (a multiple
// of the type's block) at `source` into floats, in the order of operations of the format's
// definition (gguf-py's quants.py), so that results agree bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

using Dequantize = void(const std::byte* source, int64_t n, float* out);

// plain.cc
Dequantize DequantizeF64, DequantizeF32, DequantizeF16, DequantizeBF16;
Dequantize DequantizeI64, DequantizeI32, DequantizeI16, DequantizeI8;
Dequantize DequantizeU64, DequantizeU32, DequantizeU16, DequantizeU8;
Dequantize DequantizeF8E4M3, DequantizeF8E5M2, DequantizeF8E8M0;
// One file per family, named like it.
Dequantize DequantizeQ4_0, DequantizeQ4_1, DequantizeQ5_0, DequantizeQ5_1;
Dequantize DequantizeQ8_0, DequantizeQ8_1, DequantizeQ8_K;
Dequantize DequantizeQ2_K, DequantizeQ3_K, DequantizeQ4_K, DequantizeQ5_K, DequantizeQ6_K;
Dequantize DequantizeIQ1_S, DequantizeIQ1_M, DequantizeIQ2_XXS, DequantizeIQ2_XS, DequantizeIQ2_S;
Dequantize DequantizeIQ3_XXS, DequantizeIQ3_S, DequantizeIQ4_NL, DequantizeIQ4_XS;
Dequantize DequantizeTQ1_0, DequantizeTQ2_0, DequantizeMXFP4, DequantizeNVFP4;

}  // namespace lockstep
