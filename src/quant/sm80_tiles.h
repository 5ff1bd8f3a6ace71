// The layout in which the CUDA execution provider of ONNX Runtime wants an expert's weights
// (CUTLASS's interleaved columns for SM80, on every GPU): codes of one [N, K] matrix reordered, and
// nothing else changed. QMoE with weights_prepacked=1 holds it, and on CUDA a QMoE that does not
// say weights_prepacked. Read and written by the expert packer (qmoe_pack.h) and by QMoE itself.
//
//   1. In each group of 128/bits positions of K (32 for 4 bits, 16 for 8), for i = 0..3 the pairs
//      2i, 2i+1 of every run of 8: 0,1,8,9,16,17,24,25, 2,3,10,11, ...
//   2. Groups of 16/bits rows (4, 2) are interleaved over tiles of 64 positions: for each tile, row
//      by row.
//   3. In each word of 32 bits the codes of even places come first: 0,2,4,6,1,3,5,7 (8 bits:
//      0,2,1,3), low bits first.
//
// Defined by onnxruntime-genai's cuda_quantizer; the bytes are compared with its own in the
// goldens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace lockstep {

// 4 or 8 bits, N a multiple of 16/bits, K of 64; else the sentence says which of them is not.
Status CheckSm80Shape(int64_t rows, int64_t cols, int bits);

// codes: [rows, cols], one a byte. Writes rows * cols * bits / 8 bytes.
void PackSm80Tiles(std::span<const uint8_t> codes, int64_t rows, int64_t cols, int bits,
                   uint8_t* out);
// The inverse: [rows, cols] codes, one a byte.
void UnpackSm80Tiles(std::span<const uint8_t> tiled, int64_t rows, int64_t cols, int bits,
                     std::span<uint8_t> codes);

}  // namespace lockstep
