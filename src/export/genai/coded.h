// Matrices as codes: the initializers that MatMulNBits, GatherBlockQuantized and QMoE read, made
// when they are written, one matrix in memory at a time. Between linear.cc and moe.cc, which say
// what is a matrix, and quant/, which chooses codes. Codes that the file already has and that fit
// are kept.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "export/genai/builder.h"
#include "quant/onnx_formats.h"
#include "quant/qmoe_policy.h"

namespace lockstep::genai {

struct CodedMatrix {
  std::string codes, scales, zeros;  // initializers; zeros may be ""
  CodeRecipe recipe;
  int64_t rows = 0, cols = 0;
  int64_t width() const {  // columns with the last block filled
    return (cols + recipe.block - 1) / recipe.block * recipe.block;
  }
};

// The recipe of this export; precision.bits > 0.
CodeRecipe RecipeOf(const GraphBuilder& b);
int64_t AccuracyLevel(const GraphBuilder& b);

// "NAME_Q4", "NAME_scales", "NAME_zero_points". A second call with a name gives the first's.
// `gathered`: GatherBlockQuantized reads them as well, and has no float zero points.
CodedMatrix Coded(GraphBuilder& b, const std::string& name, MatrixSource matrix,
                  bool gathered = false);

// MatMulNBits: x [.., cols] to [.., rows].
std::string CodedProduct(GraphBuilder& b, const std::string& node, const std::string& x,
                         const CodedMatrix& matrix);

// One of FC1, FC2 of every expert.
struct CodedExperts {
  std::string codes, scales, zeros;
};
struct ExpertShapes {
  std::vector<int64_t> codes, scales, zeros;  // of a QMoePlan
};
// Sources are padded to [rows, cols]. `stored`: their codes are kept; the plan's recipe is theirs.
CodedExperts CodeExperts(GraphBuilder& b, const std::string& name,
                         std::vector<MatrixSource> experts, const QMoePlan& plan,
                         const ExpertShapes& shapes, int64_t rows, int64_t cols, bool stored);

// The width and block at which the file's codes can be kept by QMoE: all matrices have one type
// that fits exactly, and no more bits than the precision.
std::optional<CodeRecipe> StoredExperts(const GraphBuilder& b,
                                        const std::vector<MatrixSource>& matrices);

}  // namespace lockstep::genai
