// The other direction of dequantize.h: n floats (a multiple of the type's block) into codes at
// `out`, as near to them as the type allows: plain types are rounded to nearest even, block types
// are searched for the codes and scales with the least sum of squared errors (fit.h). The same
// floats give the same bytes. Numbers that are not finite are the caller's to refuse.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

using Quantize = void(const float* x, int64_t n, std::byte* out);

Quantize QuantizeF64, QuantizeF32, QuantizeF16, QuantizeBF16;
Quantize QuantizeQ4_0, QuantizeQ4_1, QuantizeQ5_0, QuantizeQ5_1, QuantizeQ8_0;
Quantize QuantizeQ2_K, QuantizeQ3_K, QuantizeQ4_K, QuantizeQ5_K, QuantizeQ6_K;
Quantize QuantizeIQ4_NL, QuantizeIQ4_XS, QuantizeMXFP4;

}  // namespace lockstep
