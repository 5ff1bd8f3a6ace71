// OnnxFormat: how the quantized operators of ONNX Runtime store a weight, and the quantizers that
// write it. The table in onnx_formats.cc has one row per format; each is one file that documents
// its bytes. Read by the exporter, which turns the parts into initializers; what the operators make
// of them is in onnx_ops/.
//
// Multi-threaded, and the bytes do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "quant/grid.h"
#include "quant/row_source.h"

namespace lockstep {

struct CodeRecipe {
  int bits = 4;
  int64_t block = 32;  // elements of a row under one scale; 0: the whole row (QMoE's per channel)
  ZeroPoints zeros = ZeroPoints::kNone;
  ScaleSearch search = ScaleSearch::kSquaredError;
  DType scale_type = DType::kF32;  // kF32, kF16, kBF16
  // How much a column's squared error counts in the search: empty, or one number >= 0 per column. A
  // run that would lose an element over it is searched without.
  std::span<const float> importance = {};
};

// An initializer to be.
struct PackedPart {
  DType type = DType::kU8;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;  // little-endian
};

struct PackedWeight {
  PackedPart codes, scales;
  std::optional<PackedPart> zero_points;
  // Of what the codes stand for against what was read: sum (w - w')^2 and sum w^2.
  double squared_error = 0, squared_norm = 0;
};

struct OnnxFormat {
  std::string_view name;         // "matmul_nbits"
  std::string_view op;           // "MatMulNBits"
  std::string_view description;  // one phrase
  // Whether the operator can hold a matrix [rows, cols] by this recipe; else the sentence says why.
  Status (*check)(const CodeRecipe& recipe, int64_t rows, int64_t cols);
  // One matrix, or (QMoE) one of each expert, all of one shape.
  Result<PackedWeight> (*pack)(std::span<const RowSource> matrices, const CodeRecipe& recipe,
                               ThreadPool* pool);
  // Row `row` of matrix `matrix`, `cols` floats, as the operator reads it.
  void (*unpack)(const PackedWeight& weight, const CodeRecipe& recipe, int64_t matrix, int64_t rows,
                 int64_t cols, int64_t row, float* out);
};

std::span<const OnnxFormat> OnnxFormats();
const OnnxFormat* FindOnnxFormat(std::string_view name);  // nullptr when unknown

// The rows of the table by name.
Status CheckMatMulNBits(const CodeRecipe& recipe, int64_t rows, int64_t cols);
Result<PackedWeight> PackMatMulNBits(std::span<const RowSource> matrices, const CodeRecipe& recipe,
                                     ThreadPool* pool);
// GatherBlockQuantized. Where CanShareWithGather says so, the parts of a MatMulNBits weight are the
// same bytes: one initializer serves embedding and head, its codes reshaped to [rows, cols*bits/8].
Status CheckGather(const CodeRecipe& recipe, int64_t rows, int64_t cols);
bool CanShareWithGather(const CodeRecipe& recipe, int64_t cols);
Result<PackedWeight> PackGather(std::span<const RowSource> matrices, const CodeRecipe& recipe,
                                ThreadPool* pool);
// QMoE: raw, or with the codes in SM80 tiles (weights_prepacked=1). Which of them a node may have
// is the policy's to say (qmoe_policy.h).
Status CheckQMoeRaw(const CodeRecipe& recipe, int64_t rows, int64_t cols);
Result<PackedWeight> PackQMoeRaw(std::span<const RowSource> experts, const CodeRecipe& recipe,
                                 ThreadPool* pool);
Status CheckQMoeTiled(const CodeRecipe& recipe, int64_t rows, int64_t cols);
Result<PackedWeight> PackQMoeTiled(std::span<const RowSource> experts, const CodeRecipe& recipe,
                                   ThreadPool* pool);

}  // namespace lockstep
