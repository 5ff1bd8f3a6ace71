#include "audit/repair.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "audit/audit_testing.h"
#include "audit/merge_patch.h"
#include "audit/walk.h"
#include "model/apply_edit.h"

namespace lockstep {
namespace {

const OnnxTensor& NormAt(const OnnxModel& model, size_t nth) {
  return *model.Tensor(model.nodes()[NodeOf(model, "SimplifiedLayerNormalization", nth)].Input(1));
}

OnnxPatch::Tensor With(const OnnxTensor& tensor, size_t at, double number) {
  std::vector<double> numbers = *ReadDoubles(tensor);
  numbers[at] = number;
  return {.name = tensor.name, .bytes = *EncodeNumbers(numbers, tensor.type)};
}

TEST(MergePatch, NumbersInDifferentPlacesOfOneTensorAreBothWritten) {
  const OnnxModel model = Must(OnnxModel::Open(kGemma / "genai"));
  const OnnxTensor& norm = NormAt(model, 0);
  OnnxPatch all;
  EXPECT_FALSE(MergePatch(model, {.tensors = {With(norm, 0, 5)}}, all));
  EXPECT_FALSE(MergePatch(model, {.tensors = {With(norm, 1, 7)}}, all));
  ASSERT_EQ(all.tensors.size(), 1u);
  float both[2];
  std::memcpy(both, all.tensors[0].bytes.data(), sizeof both);
  EXPECT_EQ(both[0], 5);
  EXPECT_EQ(both[1], 7);
}

// 1.5 and 1.75 share three of four bytes: a merge by bytes would write a number nobody wanted.
TEST(MergePatch, TwoNumbersForOnePlaceAreAConflictAndNoBlend) {
  const OnnxModel model = Must(OnnxModel::Open(kGemma / "genai"));
  const OnnxTensor& norm = NormAt(model, 0);
  OnnxPatch all;
  EXPECT_FALSE(MergePatch(model, {.tensors = {With(norm, 0, 1.5)}}, all));
  OnnxPatch second{.tensors = {With(NormAt(model, 1), 0, 3), With(norm, 0, 1.75)}};
  const auto conflict = MergePatch(model, second, all);
  ASSERT_TRUE(conflict);
  EXPECT_EQ(*conflict, "the numbers of \"" + norm.name + "\"");
  ASSERT_EQ(all.tensors.size(), 1u) << "a refused patch leaves nothing behind";
  EXPECT_EQ(all.tensors[0].bytes, With(norm, 0, 1.5).bytes);
}

TEST(MergePatch, AnotherShapeBesideOtherNumbersIsAConflict) {
  const OnnxModel model = Must(OnnxModel::Open(kGemma / "genai"));
  const OnnxTensor& norm = NormAt(model, 0);
  OnnxPatch::Tensor reshaped = With(norm, 0, 1.5);
  reshaped.dims = {1, norm.elements};
  for (const bool first : {true, false}) {
    OnnxPatch all;
    EXPECT_FALSE(MergePatch(model, {.tensors = {first ? reshaped : With(norm, 1, 2)}}, all));
    EXPECT_TRUE(MergePatch(model, {.tensors = {first ? With(norm, 1, 2) : reshaped}}, all));
  }
}

TEST(MergePatch, AttributesSlotsAndNewValuesAreOneThingOnly) {
  const OnnxModel model = Must(OnnxModel::Open(kGemma / "genai"));
  const auto scalar = [](double x) {
    return OnnxPatch::Node{
        .op_type = "Constant",
        .outputs = {"fresh"},
        .value = OnnxPatch::Node::Value{
            OnnxType::kFloat, {}, *EncodeNumbers(std::span(&x, 1), OnnxType::kFloat)}};
  };
  const std::pair<OnnxPatch, OnnxPatch> pairs[] = {
      {{.attributes = {{0, "scale", 1.0f}}}, {.attributes = {{0, "scale", 2.0f}}}},
      {{.inputs = {{0, 0, "a"}}}, {.inputs = {{0, 0, "b"}}}},
      {{.results = {{0, 0, "a"}}}, {.results = {{0, 0, "b"}}}},
      {{.nodes = {scalar(0)}}, {.nodes = {scalar(2)}}},
  };
  for (const auto& [one, other] : pairs) {
    OnnxPatch all;
    EXPECT_FALSE(MergePatch(model, one, all));
    EXPECT_FALSE(MergePatch(model, one, all)) << "the same again is no conflict";
    EXPECT_TRUE(MergePatch(model, other, all));
  }
}

TEST(MergePatch, PartsOfOneAddedVectorAreJoinedWhereOneIsZero) {
  const OnnxModel model = Must(OnnxModel::Open(kGemma / "genai"));
  const auto vector = [](std::vector<double> numbers) {
    return OnnxPatch{
        .nodes = {{.op_type = "Constant",
                   .outputs = {"bias"},
                   .value = OnnxPatch::Node::Value{OnnxType::kFloat,
                                                   {static_cast<int64_t>(numbers.size())},
                                                   *EncodeNumbers(numbers, OnnxType::kFloat)}}}};
  };
  OnnxPatch all;
  EXPECT_FALSE(MergePatch(model, vector({1, 0, 0}), all));
  EXPECT_FALSE(MergePatch(model, vector({0, 0, 3}), all));
  EXPECT_TRUE(MergePatch(model, vector({1.5, 0, 0}), all));
  EXPECT_EQ(all.nodes[0].value->bytes, vector({1, 0, 3}).nodes[0].value->bytes);
}

// Two norms that read one tensor, and want different numbers in it: each gets one of its own.
TEST(Repair, NormsThatShareATensorAreNotBlended) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
    const size_t one = NodeOf(m, "SimplifiedLayerNormalization", 0);
    const size_t other = NodeOf(m, "SkipSimplifiedLayerNormalization", 0);
    p.inputs.push_back({other, 2, std::string(m.nodes()[one].Input(1))});
  });
  const Pair pair = faulty.LookAt();
  ASSERT_FALSE(pair.report.healthy());
  const AuditReport mended = faulty.Mended(pair);
  EXPECT_TRUE(mended.findings.empty()) << All(mended);
}

// An attribute that an operator does not have would keep the model from loading.
TEST(Repair, NoSoftCapIsGivenToAnOperatorWithoutOne) {
  EXPECT_TRUE(AttentionHas("GroupQueryAttention", true, "softcap"));
  EXPECT_TRUE(AttentionHas("Attention", false, "softcap"));
  for (const char* attribute : {"softcap", "nothing"}) {
    EXPECT_FALSE(AttentionHas("MultiHeadAttention", true, attribute));
    EXPECT_FALSE(AttentionHas("Attention", true, attribute));
  }
  EXPECT_TRUE(AttentionHas("MultiHeadAttention", true, "scale"));
  EXPECT_FALSE(AttentionHas("Softmax", false, "scale"));
}

// One weight of the reference is NaN: nothing is written there, and the sentence says why.
TEST(Repair, ANumberThatIsNotFiniteIsNeverWritten) {
  const std::vector<double> numbers = {std::numeric_limits<double>::quiet_NaN(),
                                       std::numeric_limits<double>::infinity()};
  for (const double bad : numbers) {
    Pair pair = Look(kGemma / "checkpoint", kGemma / "genai");
    const std::vector<WeightId> ids = {{Role::kUpProj, Part::kWeight, 0, -1},
                                       {Role::kMlpPreNorm, Part::kWeight, 1, -1}};
    for (const WeightId& id : ids) {
      WeightView view = *pair.reference.weights.Find(id);
      auto values =
          std::make_shared<std::vector<float>>(static_cast<size_t>(view.rows * view.cols));
      view.ReadRows(0, view.rows, values->data(), view.cols);
      (*values)[1] = static_cast<float>(bad);
      view.type = FindTensorType("F32");
      view.data = reinterpret_cast<const std::byte*>(values->data());
      view.row_stride = view.cols;
      pair.reference.weights.Set(id, view);
      pair.reference.weights.Keep(values);
    }
    const AuditReport report = Must(Audit(pair.reference, pair.candidate));
    const std::string all = All(report);
    EXPECT_NE(all.find("the reference's own numbers are not all finite"), std::string::npos) << all;
    EXPECT_EQ(all.find("nan"), std::string::npos) << all;
    EXPECT_EQ(all.find("inf "), std::string::npos) << all;
    const RepairPlan plan = Must(PlanRepair(pair.candidate, report));
    EXPECT_FALSE(plan.left.empty());
    for (const OnnxPatch::Tensor& tensor : plan.patch.tensors) {
      OnnxTensor after = *pair.candidate.Tensor(tensor.name);
      after.bytes = tensor.bytes;
      if (after.type != OnnxType::kFloat) continue;
      const std::vector<float> values = *ReadFloats(after);
      for (const float x : values) ASSERT_TRUE(std::isfinite(x)) << tensor.name;
    }
  }
}

// The same in the candidate is a finding of its own, and is mended.
TEST(Repair, NumbersOfTheCandidateThatAreNotFiniteAreMended) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
    p.tensors.push_back(
        With(MatrixAt(m, NodeOf(m, "MatMul", 3)), 4, std::numeric_limits<double>::quiet_NaN()));
  });
  const Pair pair = faulty.LookAt();
  EXPECT_NE(All(pair.report)
                .find("holds numbers that are not finite; expected the checkpoint's "
                      "numbers, found 1 that are NaN or infinite"),
            std::string::npos)
      << All(pair.report);
  const AuditReport mended = faulty.Mended(pair);
  EXPECT_TRUE(mended.findings.empty()) << All(mended);
}

// A key on the way that is no object is no place for a value.
TEST(Repair, AConfigurationOfAnotherShapeIsLeftAndSaid) {
  const TestFolder scratch;
  fs::copy(kGemma / "genai", scratch / "model");
  for (const char* text :
       {R"({"model": "text", "search": 3})", R"({"model": [1], "search": []})"}) {
    std::ofstream(scratch / "model" / "genai_config.json") << text;
    const Pair pair = Look(kGemma / "checkpoint", scratch / "model");
    const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
    EXPECT_FALSE(plan.left.empty());
    for (const std::string& left : plan.left)
      EXPECT_NE(left.find("expected an object"), std::string::npos) << left;
  }
}

// What lies in subfolders goes along; what leads out of the folder, or round in circles, does not.
TEST(Repair, SubfoldersAreCopiedAndLinksThatLeadOutAreNot) {
  const TestFolder scratch;
  fs::copy(kGemma / "genai", scratch / "model");
  fs::create_directories(scratch / "model/extra/deep/empty");
  std::ofstream(scratch / "model/extra/deep/notes.txt") << "kept";
  std::ofstream(scratch / "secret") << "outside";
  fs::create_symlink(scratch / "secret", scratch / "model/extra/leak");
  fs::create_symlink("deep/notes.txt", scratch / "model/extra/inside");
  fs::create_directory_symlink("..", scratch / "model/extra/circle");
  fs::create_directory_symlink(scratch.path(), scratch / "model/out");
  const Pair pair = Look(kGemma / "checkpoint", scratch / "model");
  const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
  // Into a folder of the one that is copied: it holds no copy of itself.
  for (const char* to : {"mended", "model/mended"}) {
    const Status written = WriteRepair(pair.candidate, plan, scratch / to);
    ASSERT_TRUE(written) << written.error().message;
    const fs::path extra = scratch / to / "extra";
    std::string text;
    std::ifstream(extra / "deep/notes.txt") >> text;
    EXPECT_EQ(text, "kept");
    EXPECT_TRUE(fs::is_directory(extra / "deep/empty"));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(extra / "inside")));
    EXPECT_FALSE(fs::exists(fs::symlink_status(extra / "leak")));
    EXPECT_FALSE(fs::exists(fs::symlink_status(extra / "circle")));
    EXPECT_FALSE(fs::exists(fs::symlink_status(scratch / to / "out")));
    EXPECT_FALSE(fs::exists(scratch / to / "mended"));
  }
}

// A matrix in codes of 4 or 8 bits, blocks of 16, in the place of a MatMul's.
struct Codes {
  std::vector<std::byte> bytes;
  std::vector<double> scales;
  std::vector<std::byte> zeros;  // empty: none are stored
  int64_t zero_bytes = 0;        // that all rows' zero points take
};

void Quantize(const OnnxModel& m, size_t node, OnnxPatch& p, void (*spoil)(Codes& codes),
              int64_t bits = 4) {
  const OnnxTensor& tensor = MatrixAt(m, node);
  const std::vector<double> numbers = *ReadDoubles(tensor);
  const int64_t cols = tensor.dims[0], rows = tensor.dims[1], block = 16;
  Codes codes{std::vector<std::byte>(static_cast<size_t>(rows * cols * bits / 8)), {}, {}};
  codes.zero_bytes = rows * ((cols / block * bits + 7) / 8);
  const int zero = 1 << (bits - 1);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t b = 0; b < cols / block; ++b) {
      const auto at = [&](int64_t c) {
        return numbers[static_cast<size_t>((b * block + c) * rows + r)];
      };
      double largest = 0;
      for (int64_t c = 0; c < block; ++c)
        if (std::abs(at(c)) > std::abs(largest)) largest = at(c);
      const double scale = largest / -zero;
      codes.scales.push_back(scale);
      for (int64_t c = 0; c < block; ++c) {
        const int code =
            std::min(2 * zero - 1, static_cast<int>(std::lround(at(c) / scale)) + zero);
        codes.bytes[static_cast<size_t>((r * cols + b * block + c) * bits / 8)] |=
            static_cast<std::byte>(code << (c * bits % 8));
      }
    }
  spoil(codes);
  const std::string name = tensor.name;
  const size_t after = node - 1;
  p.nodes.push_back({.after = after,
                     .op_type = "Constant",
                     .outputs = {name + "_codes"},
                     .value = OnnxPatch::Node::Value{
                         OnnxType::kUInt8, {rows, cols / block, block * bits / 8}, codes.bytes}});
  p.nodes.push_back(
      {.after = after,
       .op_type = "Constant",
       .outputs = {name + "_scales"},
       .value = OnnxPatch::Node::Value{OnnxType::kFloat,
                                       {rows, cols / block},
                                       *EncodeNumbers(codes.scales, OnnxType::kFloat)}});
  std::vector<std::string> inputs = {std::string(m.nodes()[node].Input(0)), name + "_codes",
                                     name + "_scales"};
  if (!codes.zeros.empty()) {
    inputs.push_back(name + "_zeros");
    p.nodes.push_back(
        {.after = after,
         .op_type = "Constant",
         .outputs = {inputs.back()},
         .value = OnnxPatch::Node::Value{OnnxType::kUInt8, {codes.zero_bytes}, codes.zeros}});
  }
  const std::string out = m.nodes()[node].outputs[0];
  p.results.push_back({.node = node, .slot = 0, .value = out + "_plain"});
  p.nodes.push_back(
      {.after = node,
       .op_type = "MatMulNBits",
       .domain = "com.microsoft",
       .inputs = inputs,
       .outputs = {out},
       .attributes = {{"K", cols}, {"N", rows}, {"bits", bits}, {"block_size", block}}});
}

constexpr size_t kDown = 4;  // the MatMul of the first down_proj
const WeightId kDownProj{Role::kDownProj, Part::kWeight, 0, -1};

TEST(RepairScales, SoundCodesAreNoFault) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
    Quantize(m, NodeOf(m, "MatMul", kDown), p, [](Codes&) {});
  });
  const Pair pair = faulty.LookAt();
  EXPECT_TRUE(pair.report.healthy()) << All(pair.report);
  EXPECT_EQ(pair.report.weights.at(kDownProj).state, WeightState::kQuantized);
}

TEST(RepairScales, ScalesAreFittedToRightCodes) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
    Quantize(m, NodeOf(m, "MatMul", kDown), p,
             [](Codes& codes) { codes.scales.assign(codes.scales.size(), codes.scales[0]); });
  });
  const Pair pair = faulty.LookAt();
  EXPECT_NE(All(pair.report).find("the codes are right, and their scales are not"),
            std::string::npos)
      << All(pair.report);
  const AuditReport mended = faulty.Mended(pair);
  EXPECT_TRUE(mended.healthy()) << All(mended);
}

TEST(RepairScales, AFewPercentAreSeenAndMended) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
    Quantize(m, NodeOf(m, "MatMul", kDown), p, [](Codes& codes) {
      for (double& scale : codes.scales) scale *= 1.03;
    });
  });
  const Pair pair = faulty.LookAt();
  EXPECT_NE(All(pair.report).find("the codes are right, and their scales are not"),
            std::string::npos)
      << All(pair.report);
  const AuditReport mended = faulty.Mended(pair);
  EXPECT_TRUE(mended.healthy()) << All(mended);
}

// Under no scales are these the checkpoint's numbers: fitting some would hide the fault.
TEST(RepairScales, WrongCodesAreToBeExportedAgain) {
  void (*const spoilers[])(Codes&) = {
      [](Codes& codes) {  // nibbles exchanged
        for (std::byte& b : codes.bytes) b = (b << 4) | (b >> 4);
      },
      [](Codes& codes) {  // one code of thousands
        codes.bytes[40] ^= std::byte{0x08};
      },
      [](Codes& codes) {  // a zero point of 7
        for (std::byte& b : codes.bytes) {
          const int low = std::min(15, std::to_integer<int>(b & std::byte{15}) + 1);
          const int high = std::min(15, std::to_integer<int>(b >> 4) + 1);
          b = static_cast<std::byte>(low | high << 4);
        }
      }};
  static void (*spoil)(Codes&);
  for (const auto& each : spoilers) {
    spoil = each;
    const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
      Quantize(m, NodeOf(m, "MatMul", kDown), p, spoil);
    });
    const Pair pair = faulty.LookAt();
    const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
    EXPECT_TRUE(plan.changes.empty()) << plan.changes[0];
    ASSERT_EQ(plan.left.size(), 1u) << All(pair.report);
    EXPECT_NE(plan.left[0].find("export again"), std::string::npos) << plan.left[0];
  }
}

void Fill(Codes& codes, int zeros) {
  codes.zeros.assign(static_cast<size_t>(codes.zero_bytes), static_cast<std::byte>(zeros));
}

TEST(RepairZeros, StoredOnesThatAreRightAreNoFault) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
    Quantize(m, NodeOf(m, "MatMul", kDown), p, [](Codes& codes) { Fill(codes, 0x88); });
  });
  const Pair pair = faulty.LookAt();
  EXPECT_TRUE(pair.report.healthy()) << All(pair.report);
}

// Off by one they keep a correlation that sound codes have as well.
TEST(RepairZeros, OffByOneTheyAreNamedAndWrittenBack) {
  struct Case {
    void (*inject)(const OnnxModel& m, OnnxPatch& p);
    const char* what;
  };
  const Case cases[] = {
      {[](const OnnxModel& m, OnnxPatch& p) {
         Quantize(m, NodeOf(m, "MatMul", kDown), p, [](Codes& codes) { Fill(codes, 0x99); });
       },
       "the zero points are one more than those of its codes"},
      {[](const OnnxModel& m, OnnxPatch& p) {
         Quantize(m, NodeOf(m, "MatMul", kDown), p, [](Codes& codes) { Fill(codes, 0x66); });
       },
       "the zero points are 2 less than those of its codes"},
      {[](const OnnxModel& m, OnnxPatch& p) {
         Quantize(
             m, NodeOf(m, "MatMul", kDown), p, [](Codes& codes) { Fill(codes, 0x81); }, 8);
       },
       "the zero points are one more than those of its codes"},
      {[](const OnnxModel& m, OnnxPatch& p) {
         Quantize(
             m, NodeOf(m, "MatMul", kDown), p,
             [](Codes& codes) {
               Fill(codes, 0x80);
               codes.zeros[3] = std::byte{0x7f};
             },
             8);
       },
       ") are one less than those of its codes"},
  };
  for (const Case& one : cases) {
    const Faulty faulty(one.inject);
    const Pair pair = faulty.LookAt();
    EXPECT_EQ(pair.report.weights.at(kDownProj).state, WeightState::kZeroPoints);
    EXPECT_NE(All(pair.report).find(one.what), std::string::npos) << All(pair.report);
    const AuditReport mended = faulty.Mended(pair);
    EXPECT_TRUE(mended.healthy()) << All(mended);
    EXPECT_EQ(mended.weights.at(kDownProj).state, WeightState::kQuantized);
  }
}

TEST(RepairZeros, WhereNoneAreStoredTheSentenceSaysSo) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
    Quantize(
        m, NodeOf(m, "MatMul", kDown), p,
        [](Codes& codes) {
          for (std::byte& b : codes.bytes)
            b = static_cast<std::byte>(std::max(0, std::to_integer<int>(b) - 1));
        },
        8);
  });
  const Pair pair = faulty.LookAt();
  EXPECT_EQ(pair.report.weights.at(kDownProj).state, WeightState::kZeroPoints) << All(pair.report);
  const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
  EXPECT_TRUE(plan.changes.empty());
  ASSERT_EQ(plan.left.size(), 1u) << All(pair.report);
  EXPECT_NE(plan.left[0].find("no zero points are stored"), std::string::npos) << plan.left[0];
}

constexpr size_t kOtherDown = 9;  // of the second layer
const WeightId kOtherDownProj{Role::kDownProj, Part::kWeight, 1, -1};

// A layer reads the zero points of another, whose codes need them: no repair of the one breaks the
// other.
TEST(RepairZeros, ThoseThatAnotherWeightReadsStay) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
    Quantize(
        m, NodeOf(m, "MatMul", kDown), p, [](Codes& codes) { Fill(codes, 0x80); }, 8);
    Quantize(
        m, NodeOf(m, "MatMul", kOtherDown), p,
        [](Codes& codes) {
          for (std::byte& b : codes.bytes)
            b = static_cast<std::byte>(std::max(0, std::to_integer<int>(b) - 1));
          Fill(codes, 0x7f);
        },
        8);
    ASSERT_EQ(p.nodes.size(), 8u);
    p.nodes[6].after = p.nodes[2].after;
    p.nodes[3].inputs[3] = p.nodes[6].outputs[0];
  });
  const Pair pair = faulty.LookAt();
  EXPECT_EQ(pair.report.weights.at(kDownProj).state, WeightState::kZeroPoints) << All(pair.report);
  EXPECT_EQ(pair.report.weights.at(kOtherDownProj).state, WeightState::kQuantized)
      << All(pair.report);
  const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
  EXPECT_TRUE(plan.changes.empty());
  ASSERT_EQ(plan.left.size(), 1u) << All(pair.report);
  EXPECT_NE(plan.left[0].find("another weight reads the same zero points"), std::string::npos)
      << plan.left[0];
}

// With their scales, or the codes alone.
TEST(RepairCodes, ExchangedOnesAreExchangedBack) {
  for (const bool scales : {true, false}) {
    SCOPED_TRACE(scales);
    static bool with_scales;
    with_scales = scales;
    const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
      const auto keep = [](Codes&) {};
      Quantize(m, NodeOf(m, "MatMul", kDown), p, keep);
      Quantize(m, NodeOf(m, "MatMul", kOtherDown), p, keep);
      ASSERT_EQ(p.nodes.size(), 6u);
      std::swap(p.nodes[0].value, p.nodes[3].value);
      if (with_scales) std::swap(p.nodes[1].value, p.nodes[4].value);
    });
    const Pair pair = faulty.LookAt();
    EXPECT_NE(All(pair.report).find("exchanged with those of layer 1"), std::string::npos)
        << All(pair.report);
    const AuditReport mended = faulty.Mended(pair);
    EXPECT_TRUE(mended.healthy()) << All(mended);
    EXPECT_EQ(mended.weights.at(kDownProj).state, WeightState::kQuantized);
    EXPECT_EQ(mended.weights.at(kOtherDownProj).state, WeightState::kQuantized);
  }
}

}  // namespace
}  // namespace lockstep
