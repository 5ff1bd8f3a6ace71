// Weights that a graph keeps as codes in front of DequantizeLinear are quantized weights, in every
// layout that the operator has, and faults in them are named.
#include <gtest/gtest.h>

#include <cmath>

#include "audit/audit_testing.h"

namespace lockstep {
namespace {

enum class Layout { kTensor, kChannel, kBlocks };

std::vector<std::byte> Bytes(const std::vector<uint8_t>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

// The second MatMul's matrix [inputs, outputs] as 8-bit codes with zero points, `off` beside those
// that the codes were made with.
OnnxPatch Quantized(const OnnxModel& model, Layout layout, int off) {
  constexpr int64_t kBlock = 16;
  const size_t node = NodeOf(model, "MatMul", 1);
  const OnnxTensor& matrix = MatrixAt(model, node);
  const std::vector<double> numbers = *ReadDoubles(matrix);
  const int64_t inputs = matrix.dims[0], outputs = matrix.dims[1];
  const int64_t blocks = layout == Layout::kBlocks ? inputs / kBlock : 1;
  const int64_t columns = layout == Layout::kTensor ? 1 : outputs;
  const auto group = [&](int64_t i, int64_t o) {
    return static_cast<size_t>(i * blocks / inputs * columns + (columns == 1 ? 0 : o));
  };
  std::vector<double> low(static_cast<size_t>(blocks * columns)), high = low, scales = low;
  for (int64_t i = 0; i < inputs; ++i)
    for (int64_t o = 0; o < outputs; ++o) {
      const double x = numbers[static_cast<size_t>(i * outputs + o)];
      low[group(i, o)] = std::min(low[group(i, o)], x);
      high[group(i, o)] = std::max(high[group(i, o)], x);
    }
  std::vector<uint8_t> zeros, codes;
  for (size_t g = 0; g < scales.size(); ++g) {
    scales[g] = static_cast<float>((high[g] - low[g]) / 250);
    zeros.push_back(static_cast<uint8_t>(std::nearbyint(-low[g] / scales[g]) + off));
  }
  for (int64_t i = 0; i < inputs; ++i)
    for (int64_t o = 0; o < outputs; ++o) {
      const size_t g = group(i, o);
      codes.push_back(static_cast<uint8_t>(
          std::nearbyint(numbers[static_cast<size_t>(i * outputs + o)] / scales[g]) +
          (zeros[g] - off)));
    }
  std::vector<int64_t> dims;
  if (layout == Layout::kChannel) dims = {outputs};
  if (layout == Layout::kBlocks) dims = {blocks, outputs};
  OnnxPatch patch;
  const size_t before = node - 1;
  const auto constant = [&](const char* name, OnnxType type, std::vector<int64_t> shape,
                            std::vector<std::byte> bytes) {
    patch.nodes.push_back(
        {.after = before,
         .op_type = "Constant",
         .outputs = {name},
         .value = OnnxPatch::Node::Value{type, std::move(shape), std::move(bytes)}});
  };
  constant("codes", OnnxType::kUInt8, matrix.dims, Bytes(codes));
  constant("scales", OnnxType::kFloat, dims, *EncodeNumbers(scales, OnnxType::kFloat));
  constant("zeros", OnnxType::kUInt8, dims, Bytes(zeros));
  OnnxPatch::Node made{.after = before,
                       .op_type = "DequantizeLinear",
                       .inputs = {"codes", "scales", "zeros"},
                       .outputs = {"numbers"}};
  if (layout == Layout::kChannel) made.attributes = {{"axis", 1}};
  if (layout == Layout::kBlocks) made.attributes = {{"axis", 0}, {"block_size", kBlock}};
  patch.nodes.push_back(std::move(made));
  patch.inputs.push_back({.node = node, .slot = 1, .value = "numbers"});
  return patch;
}

class DequantizeLinear : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, DequantizeLinear,
                         testing::Values(Layout::kTensor, Layout::kChannel, Layout::kBlocks));

TEST_P(DequantizeLinear, ItsCodesAreQuantizedWeightsAndWrongZeroPointsAreNamedAndMended) {
  const TestFolder scratch;
  const Pair original = Look(kGemma / "checkpoint", kGemma / "genai");
  ASSERT_TRUE(WriteRepair(original.candidate, Must(PlanRepair(original.candidate, original.report)),
                          scratch / "healthy"));
  const OnnxModel healthy = Must(OnnxModel::Open(scratch / "healthy"));
  ASSERT_TRUE(WriteOnnx(healthy, Quantized(healthy, GetParam(), 0), scratch / "codes"));
  const Pair codes = Look(kGemma / "checkpoint", scratch / "codes");
  EXPECT_TRUE(codes.report.healthy()) << All(codes.report);
  ASSERT_EQ(codes.report.findings.size(), 1U) << All(codes.report);
  EXPECT_EQ(codes.report.findings[0].kind, FindingKind::kQuantized);
  EXPECT_NE(codes.report.findings[0].found.find("8-bit codes"), std::string::npos)
      << codes.report.findings[0].found;

  ASSERT_TRUE(WriteOnnx(healthy, Quantized(healthy, GetParam(), 1), scratch / "faulty"));
  const Pair faulty = Look(kGemma / "checkpoint", scratch / "faulty");
  EXPECT_NE(All(faulty.report).find("the zero points are one more than those of its codes"),
            std::string::npos)
      << All(faulty.report);
  ASSERT_TRUE(WriteRepair(faulty.candidate, Must(PlanRepair(faulty.candidate, faulty.report)),
                          scratch / "mended"));
  const AuditReport mended = Look(kGemma / "checkpoint", scratch / "mended").report;
  EXPECT_TRUE(mended.healthy()) << All(mended);
}

}  // namespace
}  // namespace lockstep
