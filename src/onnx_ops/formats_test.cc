// What the quantizers write, read by the operators that it is for; and next to what
// onnxruntime-genai's builder writes of the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "formats/checkpoint.h"
#include "formats/onnx.h"
#include "formats/safetensors.h"
#include "onnx_ops/op.h"
#include "onnx_ops/qmoe_node.h"
#include "quant/onnx_formats.h"
#include "quant/onnx_repack.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 12, kCols = 128;

std::vector<float> Weights(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

OpTensor Operand(const PackedPart& part) {
  return {.type = part.type == DType::kU8    ? OnnxType::kUInt8
                  : part.type == DType::kF16 ? OnnxType::kFloat16
                                             : OnnxType::kFloat,
          .shape = part.shape,
          .bytes = part.bytes,
          .constant = true};
}

std::vector<float> FloatsOf(const OpValue& value) {
  std::vector<float> x(value.bytes.size() / 4);
  std::memcpy(x.data(), value.bytes.data(), value.bytes.size());
  return x;
}

// The weights [rows, cols] as MatMulNBits has them: its product with the identity, transposed.
std::vector<float> ThroughMatMul(const PackedWeight& weight, const CodeRecipe& recipe, int64_t rows,
                                 int64_t cols) {
  std::vector<float> identity(static_cast<size_t>(cols * cols), 0.0f);
  for (int64_t i = 0; i < cols; ++i) identity[static_cast<size_t>(i * cols + i)] = 1;
  OpCall call{.op = "MatMulNBits",
              .domain = "com.microsoft",
              .name = "m",
              .attributes = {{"K", cols},
                             {"N", rows},
                             {"bits", int64_t{recipe.bits}},
                             {"block_size", recipe.block}},
              .inputs = {}};
  call.inputs = {OpTensor{.type = OnnxType::kFloat,
                          .shape = {cols, cols},
                          .bytes = std::as_bytes(std::span(identity)),
                          .constant = false},
                 Operand(weight.codes), Operand(weight.scales)};
  if (weight.zero_points) call.inputs.emplace_back(Operand(*weight.zero_points));
  const auto results = RunOp(call);
  EXPECT_TRUE(results) << results.error().message;
  const std::vector<float> y = FloatsOf(*(*results)[0]);
  std::vector<float> w(y.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      w[static_cast<size_t>(r * cols + c)] = y[static_cast<size_t>(c * rows + r)];
  return w;
}

std::vector<float> Unpacked(std::string_view format, const PackedWeight& weight,
                            const CodeRecipe& recipe, int64_t rows, int64_t cols) {
  std::vector<float> w(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r)
    FindOnnxFormat(format)->unpack(weight, recipe, 0, rows, cols, r, w.data() + r * cols);
  return w;
}

TEST(OnnxWeights, MatMulNBitsReadsWhatItsQuantizerWrote) {
  for (const int64_t cols : {kCols, int64_t{72}})  // 72: the last block is not full
    for (const int bits : {2, 4, 8})
      for (const int64_t block : {16, 32, 64, 128, 256})
        for (const ZeroPoints zeros : {ZeroPoints::kNone, ZeroPoints::kCodes}) {
          const auto values = Weights(kRows * cols, 3);
          const RowSource source = RowsOf(values, kRows, cols);
          const CodeRecipe recipe{.bits = bits, .block = block, .zeros = zeros};
          const auto weight = PackMatMulNBits({&source, 1}, recipe, nullptr);
          ASSERT_TRUE(weight) << weight.error().message;
          const auto w = ThroughMatMul(*weight, recipe, kRows, cols);
          EXPECT_EQ(w, Unpacked("matmul_nbits", *weight, recipe, kRows, cols));
          double error = 0;
          for (size_t i = 0; i < w.size(); ++i)
            error += (double{w[i]} - values[i]) * (double{w[i]} - values[i]);
          EXPECT_NEAR(error, weight->squared_error, 1e-9 * weight->squared_norm)
              << bits << " " << block;
        }
}

TEST(OnnxWeights, GatherBlockQuantizedReadsWhatItsQuantizerWroteAndTheHeadsBytesReshaped) {
  const auto values = Weights(kRows * kCols, 4);
  const RowSource source = RowsOf(values, kRows, kCols);
  std::vector<int64_t> indices(static_cast<size_t>(kRows));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
  for (const int bits : {2, 4, 8})
    for (const ZeroPoints zeros : {ZeroPoints::kNone, ZeroPoints::kCodes}) {
      const CodeRecipe recipe{.bits = bits, .block = 32, .zeros = zeros};
      const auto head = PackMatMulNBits({&source, 1}, recipe, nullptr);
      const auto table = PackGather({&source, 1}, recipe, nullptr);
      ASSERT_TRUE(head && table);
      for (const PackedWeight* weight : {&*table, &*head}) {
        OpCall call{.op = "GatherBlockQuantized",
                    .domain = "com.microsoft",
                    .name = "g",
                    .attributes = {{"bits", int64_t{bits}},
                                   {"block_size", int64_t{32}},
                                   {"gather_axis", int64_t{0}},
                                   {"quantize_axis", int64_t{1}}},
                    .inputs = {}};
        OpTensor data = Operand(weight->codes);
        data.shape = {kRows, kCols * bits / 8};
        call.inputs = {data,
                       OpTensor{.type = OnnxType::kInt64,
                                .shape = {kRows},
                                .bytes = std::as_bytes(std::span(indices))},
                       Operand(weight->scales)};
        if (weight->zero_points) call.inputs.emplace_back(Operand(*weight->zero_points));
        const auto results = RunOp(call);
        ASSERT_TRUE(results) << results.error().message;
        EXPECT_EQ(FloatsOf(*(*results)[0]),
                  Unpacked("gather_block_quantized", *table, recipe, kRows, kCols));
      }
    }
}

TEST(OnnxWeights, RepackedCodesGiveTheOperatorTheWeightsOfTheFile) {
  for (const RepackRule& rule : RepackRules()) {
    const TensorType& type = *FindTensorType(rule.type);
    const int64_t cols = 256;
    std::mt19937 random(6);
    std::vector<std::byte> bytes(
        static_cast<size_t>(kRows * cols / type.block_elements * type.block_bytes));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0xff);
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(type.block_bytes)) {
      // fp16 scales between 2^-10 and 2^-6; for MXFP4 an exponent.
      const auto half = [&](size_t offset) {
        const uint16_t h = static_cast<uint16_t>((random() & 0x03ff) | ((5 + random() % 4) << 10));
        std::memcpy(bytes.data() + at + offset, &h, 2);
      };
      if (type.name == "MXFP4") {
        bytes[at] = static_cast<std::byte>(115 + random() % 16);
        continue;
      }
      half(type.name == "Q6_K" ? 208 : 0);
      if (!rule.exact) half(2);
    }
    const int64_t row_bytes = cols / type.block_elements * type.block_bytes;
    const StoredRows stored{.rows = kRows, .cols = cols, .row_bytes = [&](int64_t row) {
                              return bytes.data() + row * row_bytes;
                            }};
    const auto repacked = RepackForMatMulNBits(type, stored, DType::kF32, nullptr);
    ASSERT_TRUE(repacked) << repacked.error().message;
    const auto w = ThroughMatMul(repacked->weight, repacked->recipe, kRows, cols);
    std::vector<float> want(w.size());
    type.dequantize(bytes.data(), kRows * cols, want.data());
    for (size_t i = 0; i < w.size(); ++i) {
      if (rule.exact)
        ASSERT_EQ(w[i], want[i]) << rule.type;
      else
        ASSERT_NEAR(w[i], want[i], 1e-6) << rule.type;
    }
  }
}

// Files that llama-quantize wrote.
TEST(OnnxWeights, CodesOfGgufFilesAreKept) {
  std::map<std::string_view, int> seen;
  for (const std::string& folder : {std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/gguf",
                                    std::string(LOCKSTEP_GOLDENS) + "/gguf"}) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".gguf") continue;
      const auto checkpoint = OpenCheckpoint(entry.path());
      if (!checkpoint) continue;  // a part of a split file
      for (const TensorInfo& tensor : checkpoint->tensors) {
        const RepackRule* rule = FindRepackRule(tensor.type->name);
        if (rule == nullptr || tensor.shape.empty()) continue;
        const int64_t cols = tensor.shape.back(), rows = tensor.elements() / cols;
        const int64_t row_bytes = static_cast<int64_t>(tensor.data.size()) / rows;
        const StoredRows stored{.rows = rows, .cols = cols, .row_bytes = [&](int64_t row) {
                                  return tensor.data.data() + row * row_bytes;
                                }};
        const auto repacked = RepackForMatMulNBits(*tensor.type, stored, DType::kF32, nullptr);
        ASSERT_TRUE(repacked) << entry.path() << tensor.name << repacked.error().message;
        if (rule->exact)
          EXPECT_TRUE(repacked->identical()) << entry.path() << tensor.name;
        else
          EXPECT_LT(repacked->largest_difference, 2e-7) << entry.path() << tensor.name;
        ++seen[rule->type];
      }
    }
  }
  EXPECT_GE(seen.size(), 3u);
  EXPECT_GT(seen["Q4_0"], 0);
}

// --- Against onnxruntime-genai's builder, where its exports are at hand ---

struct Exports {
  std::string model, checkpoint;
};

std::optional<Exports> Find(const std::string& name, const std::string& checkpoint) {
  const std::string root = LOCKSTEP_GOLDENS;
  Exports found{.model = root + "/../exports/genai-0.18/" + name,
                .checkpoint = root + "/models/" + checkpoint + "/model.safetensors"};
  if (root.empty() || !std::filesystem::exists(found.model)) return {};
  return found;
}

std::vector<float> Tensor(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* tensor = file.Find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<float> x(static_cast<size_t>(tensor->elements()));
  tensor->type->dequantize(tensor->data.data(), tensor->elements(), x.data());
  return x;
}

PackedWeight Builders(const OnnxTensor& codes, const OnnxTensor& scales) {
  const auto part = [](const OnnxTensor& tensor, DType type) {
    return PackedPart{
        .type = type, .shape = tensor.dims, .bytes = {tensor.bytes.begin(), tensor.bytes.end()}};
  };
  EXPECT_EQ(codes.type, OnnxType::kUInt8);
  EXPECT_EQ(scales.type, OnnxType::kFloat);
  return {.codes = part(codes, DType::kU8), .scales = part(scales, DType::kF32), .zero_points = {}};
}

// sum (w - w')^2 of one matrix among many.
double ErrorOf(std::string_view format, const PackedWeight& weight, const CodeRecipe& recipe,
               int64_t matrix, int64_t rows, int64_t cols, std::span<const float> values) {
  std::vector<float> row(static_cast<size_t>(cols));
  double error = 0;
  for (int64_t r = 0; r < rows; ++r) {
    FindOnnxFormat(format)->unpack(weight, recipe, matrix, rows, cols, r, row.data());
    for (int64_t c = 0; c < cols; ++c) {
      const double d =
          double{row[static_cast<size_t>(c)]} - values[static_cast<size_t>(r * cols + c)];
      error += d * d;
    }
  }
  return error;
}

TEST(OnnxWeights, MatMulNBitsAreNearerToTheWeightsThanTheBuildersAtEqualSize) {
  const auto found = Find("llama@int4", "llama");
  if (!found) GTEST_SKIP() << "no exports beside LOCKSTEP_GOLDENS";
  const auto model = OnnxModel::Open(found->model);
  ASSERT_TRUE(model) << model.error().message;
  const auto file = OpenSafetensors(found->checkpoint);
  ASSERT_TRUE(file) << file.error().message;
  double theirs = 0, nearest = 0, searched = 0, norm = 0;
  int matrices = 0;
  int64_t other_codes = 0, all_codes = 0;
  for (const OnnxNode& node : model->nodes()) {
    if (node.op_type != "MatMulNBits" || node.name.find("layers") == std::string::npos) continue;
    const size_t at = node.name.find("layers.");
    const std::string layer = "model." + node.name.substr(at, node.name.find('/', at) - at) + ".";
    std::vector<float> values;
    const auto add = [&](const std::string& part) {
      const auto x = Tensor(*file, layer + part + ".weight");
      values.insert(values.end(), x.begin(), x.end());
    };
    if (node.name.find("qkv_proj") != std::string::npos)
      for (const char* part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
        add(part);
    if (node.name.find("o_proj") != std::string::npos) add("self_attn.o_proj");
    for (const char* part : {"gate_proj", "up_proj", "down_proj"})
      if (node.name.find(part) != std::string::npos) add(std::string("mlp.") + part);
    const int64_t n = *node.Int("N"), k = *node.Int("K");
    ASSERT_EQ(static_cast<int64_t>(values.size()), n * k) << node.name;
    CodeRecipe recipe{.bits = 4, .block = *node.Int("block_size"), .search = ScaleSearch::kNearest};
    const PackedWeight built =
        Builders(*model->Tensor(node.Input(1)), *model->Tensor(node.Input(2)));
    const RowSource source = RowsOf(values, n, k);
    const auto rounded = PackMatMulNBits({&source, 1}, recipe, nullptr);
    recipe.search = ScaleSearch::kSquaredError;
    const auto mine = PackMatMulNBits({&source, 1}, recipe, nullptr);
    ASSERT_TRUE(rounded && mine);
    EXPECT_EQ(mine->codes.shape, built.codes.shape);
    EXPECT_EQ(mine->scales.shape, built.scales.shape);
    EXPECT_EQ(mine->codes.bytes.size(), built.codes.bytes.size());
    const double error = ErrorOf("matmul_nbits", built, recipe, 0, n, k, values);
    EXPECT_LT(mine->squared_error, error) << node.name;
    theirs += error;
    nearest += rounded->squared_error;
    searched += mine->squared_error;
    norm += mine->squared_norm;
    for (size_t i = 0; i < built.codes.bytes.size(); ++i, ++all_codes)
      other_codes += built.codes.bytes[i] != rounded->codes.bytes[i];
    ++matrices;
  }
  EXPECT_EQ(matrices, 20);
  // Nearest rounding is the builder's own grid.
  EXPECT_NEAR(nearest, theirs, 0.02 * theirs);
  EXPECT_LT(searched, 0.9 * theirs);
  fmt::print(
      "llama@int4: relative squared error of the builder {:.6f}, nearest {:.6f} ({} of {} "
      "bytes differ), searched {:.6f}\n",
      theirs / norm, nearest / norm, other_codes, all_codes, searched / norm);
}

TEST(OnnxWeights, ExpertsAreNearerToTheWeightsThanTheBuildersAtEqualSize) {
  const auto found = Find("lfm2-moe@int4", "lfm2-moe");
  if (!found) GTEST_SKIP() << "no exports beside LOCKSTEP_GOLDENS";
  const auto model = OnnxModel::Open(found->model);
  ASSERT_TRUE(model) << model.error().message;
  const auto file = OpenSafetensors(found->checkpoint);
  ASSERT_TRUE(file) << file.error().message;
  double theirs = 0, searched = 0, norm = 0;
  int nodes = 0;
  for (const OnnxNode& node : model->nodes()) {
    if (node.op_type != "QMoE") continue;
    const size_t at = node.name.find("layers.");
    const std::string layer = "model." + node.name.substr(at, node.name.find('/', at) - at);
    const OnnxTensor& codes = *model->Tensor(node.Input(2));
    const PackedWeight built = Builders(codes, *model->Tensor(node.Input(3)));
    const int64_t experts = codes.dims[0], rows = codes.dims[1], cols = 2 * codes.dims[2];
    std::vector<std::vector<float>> values;
    for (int64_t e = 0; e < experts; ++e) {
      const std::string expert = fmt::format("{}.feed_forward.experts.{}.", layer, e);
      const auto gate = Tensor(*file, expert + "w1.weight"),
                 up = Tensor(*file, expert + "w3.weight");
      std::vector<float> both(gate.size() + up.size());
      Interleaved(RowsOf(gate, rows / 2, cols), RowsOf(up, rows / 2, cols))
          .read(0, rows, both.data());
      values.push_back(std::move(both));
    }
    std::vector<RowSource> sources;
    for (const auto& v : values) sources.push_back(RowsOf(v, rows, cols));
    const CodeRecipe recipe{.bits = 4, .block = *node.Int("block_size")};
    const auto mine = PackQMoeRaw(sources, recipe, nullptr);
    ASSERT_TRUE(mine) << mine.error().message;
    EXPECT_EQ(mine->codes.shape, built.codes.shape);
    EXPECT_EQ(mine->scales.shape, built.scales.shape);
    double error = 0;
    for (int64_t e = 0; e < experts; ++e)
      error += ErrorOf("qmoe", built, recipe, e, rows, cols, values[static_cast<size_t>(e)]);
    EXPECT_LT(mine->squared_error, error) << node.name;
    theirs += error;
    searched += mine->squared_error;
    norm += mine->squared_norm;
    ++nodes;
  }
  EXPECT_EQ(nodes, 3);
  EXPECT_LT(searched, 0.9 * theirs);
  fmt::print("lfm2-moe@int4, FC1: relative squared error of the builder {:.6f}, searched {:.6f}\n",
             theirs / norm, searched / norm);
}

// Every node of those exports whose operator is known, with the shapes that a decoder gives it.
TEST(OnnxWeights, TheBuildersOwnNodesAreSound) {
  int checked = 0;
  for (const char* name : {"llama@int4", "lfm2-moe@int4"}) {
    const auto found = Find(name, "llama");
    if (!found) GTEST_SKIP() << "no exports beside LOCKSTEP_GOLDENS";
    const auto model = OnnxModel::Open(found->model);
    ASSERT_TRUE(model) << model.error().message;
    for (const OnnxNode& node : model->nodes()) {
      if (node.op_type != "MatMulNBits" && node.op_type != "QMoE") continue;
      const auto operand = [&](std::string_view value) -> std::optional<OpTensor> {
        if (const OnnxTensor* tensor = model->Tensor(value)) return OperandOf(*tensor);
        if (node.op_type == "MatMulNBits")
          return OpTensor{.type = OnnxType::kFloat, .shape = {1, 5, *node.Int("K")}};
        const bool router = value == node.Input(1);
        return OpTensor{.type = OnnxType::kFloat, .shape = {5, router ? 6 : 64}};
      };
      const OpCall call = CallOf(node, operand);
      const auto status = CheckOp(call);
      EXPECT_TRUE(status) << status.error().message;
      if (node.op_type == "QMoE") {
        // Right on the CPU, and garbage if somebody moves the folder to CUDA.
        const QMoeNode experts = QMoeNodeOf(call);
        EXPECT_TRUE(CheckQMoeNode(experts, ExecutionProvider::kCpu, node.name));
        const auto dangers = QMoeDangersOf(experts, ExecutionProvider::kCuda);
        EXPECT_TRUE(std::any_of(dangers.begin(), dangers.end(), [](const QMoeDanger* danger) {
          return danger->id == "prepacked-not-said";
        }));
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 20);
}

}  // namespace
}  // namespace lockstep
