// One run of weights (a block, or a whole row) on a grid of codes: w = (code - zero) * scale, codes
// unsigned. What every quantizer for ONNX's operators does with each of its runs (onnx_formats.h).
//
// Nearest rounding takes the grids of ONNX Runtime's and onnxruntime-genai's own quantizers:
//   symmetric   scale = -extreme / 2^(bits-1), zero = 2^(bits-1), where the extreme is the element
//   of
//               largest magnitude with its sign: it becomes code 0 and nothing is clipped but its
//               mirror image. Scales may be negative.
//   asymmetric  scale = (max - min) / (2^bits - 1) over the run and 0, zero = round(-min / scale).
// The search tries other scales (and zeros), takes the best by squared error, and falls back to the
// above: its error is never larger.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace lockstep {

enum class ZeroPoints : uint8_t { kNone, kCodes };
enum class ScaleSearch : uint8_t { kNearest, kSquaredError };

struct GridSpec {
  int bits = 4;  // 2, 3, 4 or 8
  ZeroPoints zeros = ZeroPoints::kNone;
  ScaleSearch search = ScaleSearch::kSquaredError;
  // The scale is a number of this type (kF32, kF16, kBF16), rounded before codes are chosen, so
  // that the error is that of what is stored.
  DType scale_type = DType::kF32;
};

struct Grid {
  float scale = 0;
  int zero = 0;  // a code

  float Value(uint8_t code) const {
    return (static_cast<float>(code) - static_cast<float>(zero)) * scale;
  }
};

// Chooses the grid of x and writes its codes (x.size() of them). x is finite; importance is empty,
// or says how much each element's squared error counts (>= 0). A scale that its type cannot hold
// comes out infinite.
Grid FitGrid(std::span<const float> x, const GridSpec& spec, std::span<uint8_t> codes,
             std::span<const float> importance = {});

// sum importance * (x - Value(code))^2.
double GridError(std::span<const float> x, std::span<const uint8_t> codes, const Grid& grid,
                 std::span<const float> importance = {});

}  // namespace lockstep
