#include "export/genai/linear.h"

#include "export/genai/coded.h"

namespace lockstep::genai {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";

}  // namespace

std::string Linear(GraphBuilder& b, const std::string& name, const std::string& x,
                   MatrixSource matrix, const Bias& bias, Kept kept) {
  const int64_t rows = matrix.rows, cols = matrix.cols;
  const std::string node = name + "/MatMul";
  const std::string weight_name = GraphBuilder::WeightName(node) + ".weight";
  std::string y;
  if (b.precision.bits > 0 && kept == Kept::kAsPrecision) {
    y = CodedProduct(b, node, x, Coded(b, weight_name, std::move(matrix)));
  } else {
    const std::string weight =
        b.graph.Initializer(weight_name, OnnxType::kFloat, {cols, rows},
                            [&b, matrix = std::move(matrix)](DataFile& file) {
                              return WriteTransposed(matrix, b.weights, b.pool, file);
                            });
    y = b.graph.Node(node, Onnx("MatMul"), {x, weight});
  }
  if (!bias) return y;
  const std::string add = name + "/Add";
  return b.graph.Node(add, Onnx("Add"),
                      {y, b.Floats(GraphBuilder::WeightName(add) + ".bias", {rows}, bias)});
}

std::string Linear(GraphBuilder& b, const std::string& name, const std::string& x, Role role,
                   int layer, bool has_bias, Kept kept) {
  const WeightView& view = b.weights.Get(role, layer);
  Bias bias;
  if (has_bias) bias = [&b, role, layer] { return b.ReadVector(role, layer, Part::kBias); };
  return Linear(b, name, x, SourceOf(view), bias, kept);
}

namespace {

// Once for the lookup and for a head that is tied to it.
CodedMatrix CodedTable(GraphBuilder& b) {
  return Coded(b, kEmbedding, SourceOf(b.weights.Get(Role::kEmbedTokens)), true);
}

// MatMulNBits' codes [rows, blocks, bytes] are read as [rows, bytes]; of the last block, what is
// past the width is cut off.
std::string CodedLookup(GraphBuilder& b, const std::string& ids) {
  const CodedMatrix table = CodedTable(b);
  const std::string base = "/model/embed_tokens";
  const std::string flat = b.Reshape(base + "/Reshape", table.codes,
                                     {table.rows, table.width() * table.recipe.bits / 8});
  OnnxGraph::Values inputs = {flat, ids, table.scales};
  if (!table.zeros.empty()) inputs.push_back(table.zeros);
  const std::string rows =
      b.graph.Node(base + "/GatherBlockQuantized", Microsoft("GatherBlockQuantized"), inputs,
                   {{"bits", int64_t{table.recipe.bits}},
                    {"block_size", table.recipe.block},
                    {"gather_axis", int64_t{0}},
                    {"quantize_axis", int64_t{1}}});
  if (table.width() == table.cols) return rows;
  return b.graph.Node(
      base + "/Slice", Onnx("Slice"),
      {rows, b.graph.Ints({0}), b.graph.Ints({table.cols}), b.graph.Ints({2}), b.graph.Ints({1})});
}

}  // namespace

std::string Lookup(GraphBuilder& b, const std::string& ids) {
  // The operator has no bfloat16.
  if (b.precision.bits > 0 && b.graph.floats() != OnnxType::kBFloat16) return CodedLookup(b, ids);
  const MatrixSource table = SourceOf(b.weights.Get(Role::kEmbedTokens));
  const std::string weight = b.graph.Initializer(
      kEmbedding, OnnxType::kFloat, {table.rows, table.cols},
      [&b, table](DataFile& file) { return WriteRows(table, b.weights, b.pool, file); });
  return b.graph.Node("/model/embed_tokens/Gather", Onnx("Gather"), {weight, ids});
}

// The table is stored once, as the lookup reads it: [vocab_size, H], or its codes.
std::string TiedHead(GraphBuilder& b, const std::string& x) {
  if (b.precision.bits > 0) return CodedProduct(b, "/lm_head/MatMul", x, CodedTable(b));
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
