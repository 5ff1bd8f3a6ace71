// Products with the model's matrices: the one place that knows how a matrix lies in the graph.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "export/genai/builder.h"

namespace lockstep::genai {

// A bias of several outputs, read when it is written; empty: there is none.
using Bias = std::function<std::vector<float>()>;

// Small matrices whose errors decide much (a router's) stay numbers at every precision.
enum class Kept : uint8_t { kAsPrecision, kAsNumbers };

// x [.., cols] times the matrix, plus the bias: [.., rows]. `name` is of the nodes
// ("/model/layers.0/mlp/up_proj") and gives the weight's.
std::string Linear(GraphBuilder& b, const std::string& name, const std::string& x,
                   MatrixSource matrix, const Bias& bias = nullptr, Kept kept = Kept::kAsPrecision);
// By the weight of a role.
std::string Linear(GraphBuilder& b, const std::string& name, const std::string& x, Role role,
                   int layer, bool has_bias, Kept kept = Kept::kAsPrecision);

// Rows of the embedding of the ids [B, S]: [B, S, H].
std::string Lookup(GraphBuilder& b, const std::string& ids);
// x times the embedding's matrix: the head of a model that ties the two. [B, S, vocab_size]
std::string TiedHead(GraphBuilder& b, const std::string& x);

// Matrices of all experts, [experts, rows, cols] as the MoE operator reads them, or
// [experts, cols, rows] for products.
std::string ExpertMatrices(GraphBuilder& b, const std::string& name,
                           std::vector<MatrixSource> experts, bool transposed);

}  // namespace lockstep::genai
