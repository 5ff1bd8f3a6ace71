// Codes of GGUF as codes of MatMulNBits or QMoE: no weight is quantized again. The table in
// onnx_repack.cc has one row per type and says whether the weights stay what they were to the last
// bit. They do where a type is code * scale: (code - zero) * scale in float is then the same
// product. Types with a minimum (Q4_1, Q4_K: code * scale + minimum) do not fit (code - zero) *
// scale: a zero point is a code, or in MatMulNBits a float, and -minimum / scale is as a rule
// neither a code nor a float. With float zero points their weights move by roundings of float
// (compare Repacked); bit for bit only the dequantized matrix keeps them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "quant/onnx_formats.h"
#include "quant/tensor_type.h"

namespace lockstep {

struct RepackRule {
  std::string_view type;  // TensorType::name
  int bits;               // of the codes that come out
  int64_t block;
  bool exact;  // always: the same floats, bit for bit. false: float zero points, roundings of float
  std::string_view why;
  bool half_scales = false;  // each is one stored half: no more bits than float16 has
};

std::span<const RepackRule> RepackRules();
const RepackRule* FindRepackRule(std::string_view type);  // nullptr: quantize again

// A matrix as a checkpoint stores it, in rows that begin on a block.
struct StoredRows {
  int64_t rows = 0, cols = 0;
  std::function<const std::byte*(int64_t row)> row_bytes;
};

struct Repacked {
  PackedWeight weight;  // squared_error: of the roundings
  CodeRecipe recipe;    // zeros: kNone also where zero_points are floats
  // Every element was compared with what the type's definition gives.
  int64_t differing = 0;          // elements that are other floats
  double largest_difference = 0;  // in units of their block's largest element

  bool identical() const { return differing == 0; }
};

// One matrix: the parts of MatMulNBits. scale_type kF32, or kF16 where every scale is one.
Result<Repacked> RepackForMatMulNBits(const TensorType& type, const StoredRows& matrix,
                                      DType scale_type, ThreadPool* pool);
// One matrix of every expert: the parts of a raw QMoE, block-wise. Only exact types.
Result<Repacked> RepackForQMoe(const TensorType& type, std::span<const StoredRows> experts,
                               DType scale_type, ThreadPool* pool);

}  // namespace lockstep
