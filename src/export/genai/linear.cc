#include "export/genai/linear.h"

namespace lockstep::genai {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";

}  // namespace

std::string Linear(GraphBuilder& b, const std::string& name, const std::string& x,
                   MatrixSource matrix, const Bias& bias) {
  const int64_t rows = matrix.rows, cols = matrix.cols;
  const std::string node = name + "/MatMul";
  const std::string weight =
      b.graph.Initializer(GraphBuilder::WeightName(node) + ".weight", OnnxType::kFloat,
                          {cols, rows}, [&b, matrix = std::move(matrix)](DataFile& file) {
                            return WriteTransposed(matrix, b.weights, b.pool, file);
                          });
  std::string y = b.graph.Node(node, Onnx("MatMul"), {x, weight});
  if (bias) {
    const std::string add = name + "/Add";
    y = b.graph.Node(add, Onnx("Add"),
                     {y, b.Floats(GraphBuilder::WeightName(add) + ".bias", {rows}, bias)});
  }
  return y;
}

std::string Linear(GraphBuilder& b, const std::string& name, const std::string& x, Role role,
                   int layer, bool has_bias) {
  const WeightView& view = b.weights.Get(role, layer);
  Bias bias;
  if (has_bias) bias = [&b, role, layer] { return b.ReadVector(role, layer, Part::kBias); };
  return Linear(b, name, x, SourceOf(view), bias);
}

std::string Lookup(GraphBuilder& b, const std::string& ids) {
  const MatrixSource table = SourceOf(b.weights.Get(Role::kEmbedTokens));
  const std::string weight = b.graph.Initializer(
      kEmbedding, OnnxType::kFloat, {table.rows, table.cols},
      [&b, table](DataFile& file) { return WriteRows(table, b.weights, b.pool, file); });
  return b.graph.Node("/model/embed_tokens/Gather", Onnx("Gather"), {weight, ids});
}

// The table is stored once, [vocab_size, H], as the lookup reads it.
std::string TiedHead(GraphBuilder& b, const std::string& x) {
  return b.graph.Node("/lm_head/MatMul", Microsoft("FusedMatMul"), {x, kEmbedding},
                      {{"transB", int64_t{1}}});
}

std::string ExpertMatrices(GraphBuilder& b, const std::string& name,
                           std::vector<MatrixSource> experts, bool transposed) {
  const auto count = static_cast<int64_t>(experts.size());
  const int64_t rows = experts[0].rows, cols = experts[0].cols;
  const std::vector<int64_t> dims =
      transposed ? std::vector{count, cols, rows} : std::vector{count, rows, cols};
  return b.graph.Initializer(
      name, OnnxType::kFloat, dims,
      [&b, transposed, experts = std::move(experts)](DataFile& file) -> Status {
        for (const MatrixSource& expert : experts) {
          LS_RETURN_IF_ERROR(transposed ? WriteTransposed(expert, b.weights, b.pool, file)
                                        : WriteRows(expert, b.weights, b.pool, file));
        }
        return {};
      });
}

}  // namespace lockstep::genai
