#include <gtest/gtest.h>

#include <numeric>

#include "model/weights.h"

namespace lockstep {
namespace {

// A checkpoint in memory: every tensor counts 0, 1, 2, ... so that a value tells where it was
// stored.
class FakeCheckpoint {
 public:
  void Add(std::string name, std::vector<int64_t> shape) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    auto& values = storage_.emplace_back(std::make_unique<std::vector<float>>(n));
    std::iota(values->begin(), values->end(), 0.0f);
    checkpoint.tensors.push_back({.name = std::move(name),
                                  .shape = std::move(shape),
                                  .type = FindTensorType("F32"),
                                  .data = std::as_bytes(std::span(*values))});
    std::ranges::sort(checkpoint.tensors, {}, &TensorInfo::name);
  }
  Checkpoint checkpoint{.path = "model"};

 private:
  std::vector<std::unique_ptr<std::vector<float>>> storage_;
};

std::vector<float> Read(const WeightView& view) {
  std::vector<float> values(static_cast<size_t>(view.elements()));
  view.ReadRows(0, view.rows, values.data(), view.cols);
  return values;
}

// One layer, hidden 4, two heads of 4 and one kv head: q [8,4], k and v [4,4], o [4,8].
ModelSpec TinySpec() {
  ModelSpec spec;
  spec.architecture = "tiny";
  spec.embedding = {.vocab_size = 3, .hidden_size = 4};
  LayerSpec layer;
  layer.mixer = AttentionSpec{.num_attention_heads = 2,
                              .num_key_value_heads = 1,
                              .head_dim = 4,
                              .q_bias = true,
                              .k_bias = true,
                              .v_bias = true};
  layer.mlp = MlpSpec{.intermediate_size = 2};
  spec.layers = {layer};
  spec.final_norm = {};
  spec.lm_head.tied = true;
  return spec;
}

constexpr Role kQkv[] = {Role::kQProj, Role::kKProj, Role::kVProj};
constexpr Role kGateUp[] = {Role::kGateProj, Role::kUpProj};

std::vector<TensorRule> Rules() {
  return {
      {.role = Role::kEmbedTokens, .name = "wte"},
      {.role = Role::kQProj, .name = "h.{layer}.qkv", .fused = kQkv},
      {.role = Role::kKProj, .name = "h.{layer}.qkv", .fused = kQkv},
      {.role = Role::kVProj, .name = "h.{layer}.qkv", .fused = kQkv},
      {.role = Role::kOProj, .name = "h.{layer}.o"},
      {.role = Role::kGateProj, .name = "h.{layer}.gate_up", .fused = kGateUp},
      {.role = Role::kUpProj, .name = "h.{layer}.gate_up", .fused = kGateUp},
      {.role = Role::kDownProj, .name = "h.{layer}.down"},
      {.role = Role::kFinalNorm, .name = "norm"},
  };
}

void AddTensors(FakeCheckpoint& fake, std::vector<int64_t> qkv_shape = {16, 4}) {
  fake.Add("wte.weight", {3, 4});
  fake.Add("h.0.qkv.weight", std::move(qkv_shape));
  fake.Add("h.0.qkv.bias", {16});
  fake.Add("h.0.o.weight", {4, 8});
  fake.Add("h.0.gate_up.weight", {4, 4});
  fake.Add("h.0.down.weight", {4, 2});
  fake.Add("norm.weight", {4});
}

TEST(Bind, FusedRowsFollowEachOther) {
  FakeCheckpoint fake;
  AddTensors(fake);
  const auto binding = BindWeights(TinySpec(), Rules(), fake.checkpoint);
  ASSERT_TRUE(binding) << binding.error().message;
  EXPECT_EQ(Read(binding->weights.Get(Role::kQProj, 0))[0], 0);
  EXPECT_EQ(Read(binding->weights.Get(Role::kKProj, 0))[0], 8 * 4);
  EXPECT_EQ(Read(binding->weights.Get(Role::kVProj, 0))[0], 12 * 4);
  EXPECT_EQ(Read(binding->weights.Get(Role::kVProj, 0, Part::kBias)),
            (std::vector<float>{12, 13, 14, 15}));
}

TEST(Bind, Conv1DIsReadTransposed) {
  FakeCheckpoint fake;
  AddTensors(fake, {4, 16});
  auto rules = Rules();
  for (TensorRule& rule : rules)
    if (rule.name == "h.{layer}.qkv") rule.transposed = true;
  const auto binding = BindWeights(TinySpec(), rules, fake.checkpoint);
  ASSERT_TRUE(binding) << binding.error().message;
  // Output 1 of k is column 9 of [4, 16].
  const auto k = Read(binding->weights.Get(Role::kKProj, 0));
  EXPECT_EQ(std::vector<float>(k.begin() + 4, k.begin() + 8), (std::vector<float>{9, 25, 41, 57}));
}

TEST(Bind, InterleavedOutputsAlternate) {
  FakeCheckpoint fake;
  AddTensors(fake);
  auto rules = Rules();
  for (TensorRule& rule : rules)
    if (rule.name == "h.{layer}.gate_up") rule.fused_interleaved = true;
  const auto binding = BindWeights(TinySpec(), rules, fake.checkpoint);
  ASSERT_TRUE(binding) << binding.error().message;
  EXPECT_EQ(Read(binding->weights.Get(Role::kGateProj, 0)),
            (std::vector<float>{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(Read(binding->weights.Get(Role::kUpProj, 0))[0], 4);
}

TEST(Bind, PairOrderIsUndoneHeadByHead) {
  FakeCheckpoint fake;
  AddTensors(fake);
  fake.Add("q.weight", {8, 4});
  fake.Add("q.bias", {8});
  auto rules = Rules();
  rules.insert(
      rules.begin(),
      TensorRule{.role = Role::kQProj, .name = "q", .row_order = RowOrder::kInterleavedHalves});
  const auto binding = BindWeights(TinySpec(), rules, fake.checkpoint);
  ASSERT_TRUE(binding) << binding.error().message;
  const auto q = Read(binding->weights.Get(Role::kQProj, 0));
  // Stored 0 1 2 3 of a head hold its rows 0 2 1 3; rows have 4 columns.
  std::vector<float> first;
  for (size_t row = 0; row < 8; ++row) first.push_back(q[row * 4] / 4);
  EXPECT_EQ(first, (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(Read(binding->weights.Get(Role::kQProj, 0, Part::kBias)),
            (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7}));
}

TEST(Bind, AFoldedOffsetIsTakenOut) {
  FakeCheckpoint fake;
  AddTensors(fake);
  auto rules = Rules();
  rules.back().addend = -1;
  const auto binding = BindWeights(TinySpec(), rules, fake.checkpoint);
  ASSERT_TRUE(binding);
  EXPECT_EQ(Read(binding->weights.Get(Role::kFinalNorm)), (std::vector<float>{-1, 0, 1, 2}));
}

TEST(Bind, AMissingTensorIsNamedWithItsRoleAndShape) {
  FakeCheckpoint fake;
  AddTensors(fake);
  std::erase_if(fake.checkpoint.tensors,
                [](const TensorInfo& t) { return t.name == "h.0.o.weight"; });
  const auto binding = BindWeights(TinySpec(), Rules(), fake.checkpoint);
  ASSERT_FALSE(binding);
  EXPECT_NE(binding.error().message.find("\"h.0.o.weight\" (layers.0.o_proj.weight, 4 x 8)"),
            std::string::npos)
      << binding.error().message;
}

TEST(Bind, AShapeThatContradictsTheConfigurationIsRefusedWithBoth) {
  FakeCheckpoint fake;
  AddTensors(fake, {12, 4});
  const auto binding = BindWeights(TinySpec(), Rules(), fake.checkpoint);
  ASSERT_FALSE(binding);
  EXPECT_NE(binding.error().message.find("has shape [12, 4], but the configuration needs [16, 4]"),
            std::string::npos)
      << binding.error().message;
}

TEST(Bind, TensorsThatNothingUsesAreListed) {
  FakeCheckpoint fake;
  AddTensors(fake);
  fake.Add("h.0.attn.masked_bias", {1});
  const auto binding = BindWeights(TinySpec(), Rules(), fake.checkpoint);
  ASSERT_TRUE(binding);
  EXPECT_EQ(binding->unused_tensors, (std::vector<std::string>{"h.0.attn.masked_bias"}));
}

TEST(Bind, ABlockFormatCannotBeReadAcrossItsRows) {
  FakeCheckpoint fake;
  AddTensors(fake, {4, 16});
  auto rules = Rules();
  for (TensorRule& rule : rules)
    if (rule.name == "h.{layer}.qkv") rule.transposed = true;
  for (TensorInfo& t : fake.checkpoint.tensors)
    if (t.name == "h.0.qkv.weight") t.type = FindTensorType("Q4_0");
  const auto binding = BindWeights(TinySpec(), rules, fake.checkpoint);
  ASSERT_FALSE(binding);
  EXPECT_EQ(binding.error().code, ErrorCode::kUnsupported);
}

TEST(Bind, TensorsOfWholeNumbersAreNoWeights) {
  for (const char* type : {"I8", "U8", "BOOL", "I64", "F8_E8M0"}) {
    FakeCheckpoint fake;
    AddTensors(fake);
    for (TensorInfo& t : fake.checkpoint.tensors)
      if (t.name == "norm.weight") t.type = FindTensorType(type);
    const auto binding = BindWeights(TinySpec(), Rules(), fake.checkpoint);
    ASSERT_FALSE(binding) << type;
    EXPECT_EQ(binding.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(binding.error().message.find(fmt::format("is stored as {}", type)), std::string::npos)
        << binding.error().message;
  }
}

TEST(Bind, ANameFromTheFileIsQuotedAndShort) {
  FakeCheckpoint fake;
  AddTensors(fake);
  ModelSpec spec = TinySpec();
  spec.architecture = "\x1b[31m" + std::string(100000, 'x');
  auto rules = Rules();
  rules.pop_back();
  const auto binding = BindWeights(spec, rules, fake.checkpoint);
  ASSERT_FALSE(binding);
  EXPECT_LT(binding.error().message.size(), 300u);
  EXPECT_EQ(binding.error().message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep
