// Small unsigned codes as bytes, the way ONNX Runtime's quantized operators store them: without
// gaps, the first code in the low bits (MatMulNBits, QMoE, GatherBlockQuantized; codes of 3 bits
// cross byte borders).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

constexpr int64_t PackedBytes(int64_t codes, int bits) { return (codes * bits + 7) / 8; }

// Code i of a packed run.
inline uint8_t CodeAt(const uint8_t* packed, int64_t i, int bits) {
  const int64_t bit = i * bits;
  uint32_t word = packed[bit / 8];
  if (bit % 8 + bits > 8) word |= uint32_t{packed[bit / 8 + 1]} << 8;
  return static_cast<uint8_t>(word >> (bit % 8) & ((1u << bits) - 1));
}

// out.size() codes of 2, 3, 4 or 8 bits from a run that begins at packed[0].
void UnpackCodes(std::span<const uint8_t> packed, int bits, std::span<uint8_t> out);
// Writes PackedBytes(codes.size(), bits) bytes; what is left of the last one is zero.
void PackCodes(std::span<const uint8_t> codes, int bits, uint8_t* out);

}  // namespace lockstep
