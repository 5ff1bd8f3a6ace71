// What ONNX Runtime 1.32 computed, refused and mishandled, replayed without it.
#include <gtest/gtest.h>

#include <cmath>

#include "base/dtype.h"
#include "onnx_ops/ort_goldens.h"
#include "quant/code_bits.h"
#include "quant/sm80_tiles.h"

namespace lockstep {
namespace {

// The repository's own, and the larger set where there is one.
class OrtGoldensTest : public testing::TestWithParam<std::string> {
 protected:
  static OrtGoldens Goldens() {
    auto goldens = OrtGoldens::Open(GetParam());
    EXPECT_TRUE(goldens) << goldens.error().message;
    return *std::move(goldens);
  }
};

std::vector<double> Numbers(OnnxType type, std::span<const std::byte> bytes) {
  const DType dtype = type == OnnxType::kFloat     ? DType::kF32
                      : type == OnnxType::kFloat16 ? DType::kF16
                      : type == OnnxType::kDouble  ? DType::kF64
                      : type == OnnxType::kInt8    ? DType::kI8
                                                   : DType::kBF16;
  std::vector<double> out(bytes.size() / DTypeSize(dtype));
  ConvertToDouble(dtype, bytes.data(), out.size(), out.data());
  return out;
}

// Of one output against what was recorded; unspecified elements (mask 0) are left out.
double LargestDifference(const OrtGoldens& goldens, const Json& entry, const Json& output,
                         const OpValue& value) {
  const auto got = Numbers(value.type, value.bytes);
  const auto want =
      Numbers(OrtGoldens::TypeOf(output["type"]), goldens.Bytes(entry, output["tensor"]));
  EXPECT_EQ(value.type, OrtGoldens::TypeOf(output["type"])) << entry["id"];
  EXPECT_EQ(value.shape, output["shape"].get<std::vector<int64_t>>()) << entry["id"];
  EXPECT_EQ(got.size(), want.size()) << entry["id"];
  if (got.size() != want.size()) return INFINITY;
  std::span<const std::byte> mask;
  if (output.contains("mask")) mask = goldens.Bytes(entry, output["mask"]);
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i)
    if (mask.empty() || mask[i] != std::byte{0}) {
      const double d = std::abs(got[i] - want[i]);
      if (!(d <= most)) most = d;  // a NaN stays
    }
  return most;
}

TEST_P(OrtGoldensTest, EveryCaseIsComputedWithinItsTolerance) {
  const OrtGoldens goldens = Goldens();
  size_t outputs = 0;
  for (const Json& entry : goldens["cases"]) {
    const OpCall call = goldens.Call(entry);
    const auto results = RunOp(call);
    ASSERT_TRUE(results) << results.error().message;
    for (const Json& output : entry["outputs"]) {
      const auto& value = (*results)[output["slot"].get<size_t>()];
      ASSERT_TRUE(value) << entry["id"];
      EXPECT_LE(LargestDifference(goldens, entry, output, *value), entry["tolerance"].get<double>())
          << entry["id"] << " " << output["name"];
      ++outputs;
    }
  }
  EXPECT_GT(outputs, 0u);
}

// The tolerance of an 8-bit case is wide enough for a run without rounding to pass some of them, so
// the rounding is asked for by itself: with it the numbers are those of the runtime to 1e-6.
TEST_P(OrtGoldensTest, ActivationsAreRoundedWhereTheRuntimeRounds) {
  const OrtGoldens goldens = Goldens();
  size_t rounded = 0;
  for (const Json& entry : goldens["cases"]) {
    if (!entry.contains("unquantized_activations_max_abs_diff")) continue;
    const OpCall call = goldens.Call(entry);
    const Json& output = entry["outputs"][0];
    if (output["type"] != "float32") continue;
    const auto with = RunOp(call);
    const auto without = RunOp(call, {.int8_activations = false});
    ASSERT_TRUE(with && without) << entry["id"];
    EXPECT_LE(LargestDifference(goldens, entry, output, *(*with)[0]), 3e-6) << entry["id"];
    EXPECT_GE(LargestDifference(goldens, entry, output, *(*without)[0]), 1e-3) << entry["id"];
    ++rounded;
  }
  EXPECT_GT(rounded, 0u);
}

TEST_P(OrtGoldensTest, EveryRefusedInputIsRefusedAtTheSameStageWithTheSameClass) {
  const OrtGoldens goldens = Goldens();
  EXPECT_FALSE(goldens["refused"].empty());
  for (const Json& entry : goldens["refused"]) {
    const OpCall call = goldens.Call(entry);
    const auto refusal = FindRefusal(call);
    ASSERT_TRUE(refusal) << entry["id"];
    const bool load = refusal->kind == OpRefusal::Kind::kLoad;
    EXPECT_TRUE(load || refusal->kind == OpRefusal::Kind::kRun)
        << entry["id"] << ": " << refusal->sentence;
    EXPECT_EQ(load ? "load" : "run", entry["stage"].get<std::string>())
        << entry["id"] << ": " << refusal->sentence;
    EXPECT_EQ(OrtErrorName(refusal->error), entry["error"].get<std::string>())
        << entry["id"] << ": " << refusal->sentence;
    EXPECT_NE(refusal->sentence.find(call.name), std::string::npos) << refusal->sentence;
    EXPECT_FALSE(RunOp(call)) << entry["id"];
    EXPECT_NE(CheckOp(call).error().message.find(entry["error"].get<std::string>()),
              std::string::npos);
  }
}

TEST_P(OrtGoldensTest, WhatTheRuntimeMishandlesIsRefusedWithTheDangerSaid) {
  const OrtGoldens goldens = Goldens();
  EXPECT_FALSE(goldens["unsafe"].empty());
  for (const Json& entry : goldens["unsafe"]) {
    const OpCall call = goldens.Call(entry);
    const auto refusal = FindRefusal(call);
    ASSERT_TRUE(refusal) << entry["id"];
    EXPECT_EQ(refusal->kind, OpRefusal::Kind::kUnsafe) << entry["id"] << refusal->sentence;
    EXPECT_FALSE(refusal->danger.empty()) << entry["id"];
    const std::string observed = entry["observed"];
    for (const char* word : {"SIGSEGV", "SIGABRT", "NaN"})
      if (observed.find(word) != std::string::npos) {
        EXPECT_NE(refusal->danger.find(word), std::string::npos) << entry["id"];
      }
    if (observed.find("differs between runs") != std::string::npos) {
      EXPECT_NE(refusal->danger.find("run to run"), std::string::npos) << entry["id"];
    }
    EXPECT_FALSE(RunOp(call)) << entry["id"];
    EXPECT_NE(CheckOp(call).error().message.find(refusal->danger), std::string::npos);
  }
}

TEST_P(OrtGoldensTest, TiledBytesAreThoseOfTheRuntimesOwnPacker) {
  const OrtGoldens goldens = Goldens();
  EXPECT_FALSE(goldens["layouts"].empty());
  for (const Json& entry : goldens["layouts"]) {
    const int bits = entry["bits"];
    const int64_t n = entry["N"], k = entry["K"];
    const auto raw = goldens.Bytes(entry, entry["raw"]);
    const auto tiled = goldens.Bytes(entry, entry["tiled"]);
    std::vector<uint8_t> codes(static_cast<size_t>(n * k)), back(codes.size());
    UnpackCodes({reinterpret_cast<const uint8_t*>(raw.data()), raw.size()}, bits, codes);
    std::vector<uint8_t> mine(tiled.size());
    PackSm80Tiles(codes, n, k, bits, mine.data());
    EXPECT_TRUE(
        std::equal(mine.begin(), mine.end(), reinterpret_cast<const uint8_t*>(tiled.data())))
        << entry["id"];
    UnpackSm80Tiles(mine, n, k, bits, back);
    EXPECT_EQ(back, codes) << entry["id"];
  }
}

// Found by running it: without the outputs, the cache is read where nobody wrote it.
TEST(OrtDangers, APastWithoutPresentOutputsIsRefused) {
  auto goldens = OrtGoldens::Open(OrtGoldens::Folders()[0]);
  ASSERT_TRUE(goldens) << goldens.error().message;
  int seen = 0;
  for (const Json& entry : (*goldens)["cases"]) {
    OpCall call = goldens->Call(entry);
    if (call.op != "GroupQueryAttention" || call.inputs.size() < 4 || !call.inputs[3]) continue;
    EXPECT_FALSE(FindRefusal(call)) << entry["id"];
    call.outputs = {true};
    const auto refusal = FindRefusal(call);
    ASSERT_TRUE(refusal) << entry["id"];
    EXPECT_EQ(refusal->kind, OpRefusal::Kind::kUnsafe);
    ++seen;
  }
  EXPECT_GT(seen, 0);
}

// Whatever an operand is cut, widened or retyped to: a refusal or numbers, never a crash.
TEST_P(OrtGoldensTest, NoShapeAndNoAttributeMakesACheckFail) {
  const OrtGoldens goldens = Goldens();
  for (const Json& entry : goldens["cases"]) {
    const OpCall good = goldens.Call(entry);
    for (size_t slot = 0; slot < good.inputs.size(); ++slot) {
      if (!good.inputs[slot]) continue;
      OpCall call = good;
      call.inputs[slot].reset();
      (void)FindRefusal(call);
      for (size_t dim = 0; dim < good.inputs[slot]->shape.size(); ++dim)
        for (const int64_t extent :
             {int64_t{0}, int64_t{-1}, int64_t{1} << 62, good.inputs[slot]->shape[dim] + 1}) {
          call = good;
          call.inputs[slot]->shape[dim] = extent;
          (void)RunOp(call);
          call.inputs[slot]->bytes = {};  // values unknown: only the shapes speak
          (void)FindRefusal(call);
        }
      call = good;
      call.inputs[slot]->shape.clear();
      (void)RunOp(call);
      call = good;
      call.inputs[slot]->shape.push_back(1);
      (void)RunOp(call);
    }
    for (const auto& [name, value] : good.attributes)
      if (std::holds_alternative<int64_t>(value))
        for (const int64_t x : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1} << 62,
                                std::numeric_limits<int64_t>::min()}) {
          OpCall call = good;
          call.attributes[name] = x;
          (void)RunOp(call);
        }
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, OrtGoldensTest, testing::ValuesIn(OrtGoldens::Folders()),
                         [](const auto& folder) { return folder.index == 0 ? "Own" : "Larger"; });

}  // namespace
}  // namespace lockstep
