#include "audit/account.h"

#include <gtest/gtest.h>

#include <set>

#include "audit/audit_testing.h"

namespace lockstep {
namespace {

// Values that the embeddings flow through: a healthy export's results, by node.
std::vector<size_t> OnTheWay(const OnnxModel& model) {
  std::set<std::string> values;
  std::vector<size_t> nodes;
  for (const OnnxNode& node : model.nodes()) {
    bool flows = node.op_type == "Gather" && model.Input(node.Input(1)) != nullptr;
    for (const std::string& in : node.inputs) flows |= values.contains(in);
    if (!flows || node.op_type == "Shape") continue;
    values.insert(node.outputs.begin(), node.outputs.end());
    values.erase("");
    nodes.push_back(node.index);
  }
  return nodes;
}

// `op` by a constant behind the node's first result.
OnnxPatch Behind(const OnnxModel& model, size_t node, const std::string& op, double number) {
  const std::string out = model.nodes()[node].outputs[0];
  OnnxPatch patch;
  patch.results.push_back({.node = node, .slot = 0, .value = out + "_before"});
  patch.nodes.push_back(
      {.after = node,
       .op_type = "Constant",
       .outputs = {out + "_number"},
       .value = OnnxPatch::Node::Value{
           OnnxType::kFloat, {}, *EncodeNumbers(std::span(&number, 1), OnnxType::kFloat)}});
  std::vector<std::string> inputs = {out + "_before"};
  if (op == "Mul" || op == "Add") inputs.push_back(out + "_number");
  patch.nodes.push_back({.after = node, .op_type = op, .inputs = inputs, .outputs = {out}});
  return patch;
}

// Two builders' exports, mended, with one operator too many, wherever it may be.
class Strangers : public testing::TestWithParam<const char*> {
 protected:
  Strangers() : original_(Look(kGemma / "checkpoint", kGemma / GetParam())) {
    const RepairPlan plan = Must(PlanRepair(original_.candidate, original_.report));
    EXPECT_TRUE(WriteRepair(original_.candidate, plan, scratch_ / "healthy"));
  }

  // Found; and mended or said to be left. Returns whether it was mended.
  bool Check(const OnnxModel& healthy, size_t node, const std::string& op) {
    SCOPED_TRACE(op + " behind " + healthy.nodes()[node].op_type + " " +
                 healthy.nodes()[node].outputs[0]);
    const fs::path faulty = scratch_ / "faulty", mended = scratch_ / "mended";
    fs::remove_all(faulty);
    fs::remove_all(mended);
    EXPECT_TRUE(WriteOnnx(healthy, Behind(healthy, node, op, 1.01), faulty));
    const OnnxModel candidate = Must(OnnxModel::Open(faulty));
    const AuditReport report = Must(Audit(original_.reference, candidate));
    EXPECT_FALSE(report.healthy()) << report.strangers;
    const RepairPlan plan = Must(PlanRepair(candidate, report));
    EXPECT_EQ(plan.changes.size() + plan.left.size(), report.findings.size());
    if (!plan.left.empty()) return false;
    EXPECT_TRUE(WriteRepair(candidate, plan, mended));
    const AuditReport after = Must(Audit(original_.reference, Must(OnnxModel::Open(mended))));
    EXPECT_TRUE(after.findings.empty()) << All(report) << "then\n" << All(after);
    return true;
  }

  TestFolder scratch_;
  Pair original_;
};
INSTANTIATE_TEST_SUITE_P(Gemma2, Strangers, testing::Values("genai", "mobius"));

TEST_P(Strangers, WhereverOneIsItIsFound) {
  const OnnxModel healthy = Must(OnnxModel::Open(scratch_ / "healthy"));
  const std::vector<size_t> nodes = OnTheWay(healthy);
  ASSERT_GT(nodes.size(), 30u);
  for (const char* op : {"Mul", "Add", "Tanh"}) {
    size_t mended = 0;
    for (const size_t node : nodes) mended += Check(healthy, node, op) ? 1 : 0;
    EXPECT_GT(2 * mended, nodes.size()) << op;
  }
}

TEST_P(Strangers, AHealthyGraphHasNone) {
  const OnnxModel healthy = Must(OnnxModel::Open(scratch_ / "healthy"));
  std::vector<std::string> notes;
  const Account account = TakeAccount(healthy, original_.reference.spec, notes);
  EXPECT_TRUE(account.whole);
  EXPECT_TRUE(account.strangers.empty());
  EXPECT_TRUE(account.bypassed.empty());
}

TEST(Account, TheSentenceNamesTheOperatorAndItsNeighbours) {
  const Faulty faulty(
      [](const OnnxModel& m, OnnxPatch& p) { p = Behind(m, NodeOf(m, "MatMul", 7), "Mul", 1.01); });
  const Pair pair = faulty.LookAt();
  ASSERT_EQ(pair.report.findings.size(), 1u) << All(pair.report);
  EXPECT_EQ(pair.report.findings[0].kind, FindingKind::kStructure);
  EXPECT_NE(pair.report.findings[0].sentence.find(
                "an operator that the model does not have: Mul by 1.01 between "),
            std::string::npos)
      << All(pair.report);
}

OnnxPatch Joined(OnnxPatch a, const OnnxPatch& b) {
  a.results.insert(a.results.end(), b.results.begin(), b.results.end());
  a.nodes.insert(a.nodes.end(), b.nodes.begin(), b.nodes.end());
  return a;
}

// More of them than are looked through one by one.
TEST_P(Strangers, OneInEveryPlaceOfEveryLayerIsFoundAndMended) {
  const OnnxModel healthy = Must(OnnxModel::Open(scratch_ / "healthy"));
  OnnxPatch patch;
  size_t count = 0;
  size_t head = 0;  // whose own Tanh is the soft cap's
  for (const OnnxNode& node : healthy.nodes())
    if (node.op_type == "MatMul") head = node.index;
  for (const OnnxNode& node : healthy.nodes())
    if (node.op_type == "MatMul" && node.index != head) {
      // Two behind one another.
      OnnxPatch one = Behind(healthy, node.index, "Tanh", 1);
      const std::string between = node.outputs[0] + "_between";
      one.nodes.back().outputs = {between};
      one.nodes.push_back(
          {.after = node.index, .op_type = "Tanh", .inputs = {between}, .outputs = node.outputs});
      patch = Joined(std::move(patch), one);
      count += 2;
    }
  ASSERT_GT(count, 16u);
  ASSERT_TRUE(WriteOnnx(healthy, patch, scratch_ / "faulty"));
  const OnnxModel candidate = Must(OnnxModel::Open(scratch_ / "faulty"));
  const AuditReport report = Must(Audit(original_.reference, candidate));
  EXPECT_FALSE(report.healthy()) << report.strangers;
  EXPECT_EQ(report.strangers, static_cast<int64_t>(count)) << All(report);
  ASSERT_TRUE(WriteRepair(candidate, Must(PlanRepair(candidate, report)), scratch_ / "mended"));
  const AuditReport after =
      Must(Audit(original_.reference, Must(OnnxModel::Open(scratch_ / "mended"))));
  EXPECT_TRUE(after.findings.empty()) << All(after);
}

// What moves elements, or changes their type, is no stranger where a model does so; on the stream
// it is.
TEST_P(Strangers, AStreamThatIsRoundedOrReorderedIsFound) {
  const OnnxModel healthy = Must(OnnxModel::Open(scratch_ / "healthy"));
  const int64_t width = original_.reference.spec.embedding.hidden_size;
  // Behind the scale of the embeddings, and behind the last matrix of a layer.
  std::vector<size_t> places = {NodeOf(healthy, "Mul", 0)};
  for (const OnnxNode& node : healthy.nodes())
    if (node.op_type == "MatMul" && healthy.Tensor(node.Input(1)) != nullptr &&
        healthy.Tensor(node.Input(1))->dims.back() == width)
      places.push_back(node.index);
  ASSERT_GT(places.size(), 2u);
  for (const size_t node : places) {
    const std::string out = healthy.nodes()[node].outputs[0], before = out + "_before";
    const auto moved = [&](const std::string& op, std::vector<std::string> inputs,
                           std::vector<std::pair<std::string, int64_t>> attributes) {
      OnnxPatch::Node made{
          .after = node, .op_type = op, .inputs = std::move(inputs), .outputs = {out}};
      for (const auto& [name, value] : attributes) made.attributes.emplace_back(name, value);
      return made;
    };
    std::vector<double> backwards;
    for (int64_t i = width; i-- > 0;) backwards.push_back(static_cast<double>(i));
    const OnnxPatch::Node order{
        .after = node,
        .op_type = "Constant",
        .outputs = {out + "_order"},
        .value = OnnxPatch::Node::Value{
            OnnxType::kInt64, {width}, *EncodeNumbers(backwards, OnnxType::kInt64)}};
    OnnxPatch::Node narrow = moved("Cast", {before}, {{"to", 10}});
    narrow.outputs = {out + "_narrow"};
    const std::vector<std::vector<OnnxPatch::Node>> faults = {
        {narrow, moved("Cast", {out + "_narrow"}, {{"to", 1}})},
        {order, moved("Gather", {before, out + "_order"}, {{"axis", -1}})},
        {moved("Transpose", {before}, {})},
        {moved("Concat", {before, before}, {{"axis", 1}})}};
    for (const auto& nodes : faults) {
      SCOPED_TRACE(nodes.back().op_type + " behind " + out);
      OnnxPatch patch;
      patch.results.push_back({.node = node, .slot = 0, .value = before});
      patch.nodes = nodes;
      fs::remove_all(scratch_ / "faulty");
      ASSERT_TRUE(WriteOnnx(healthy, patch, scratch_ / "faulty"));
      const OnnxModel candidate = Must(OnnxModel::Open(scratch_ / "faulty"));
      const AuditReport report = Must(Audit(original_.reference, candidate));
      EXPECT_FALSE(report.healthy()) << fmt::format("{}", fmt::join(report.notes, "\n"));
    }
  }
}

// c / x is not x / c: on the embeddings, behind a layer's matrix, on the logits.
TEST_P(Strangers, AQuotientWithTheStreamBelowIsNoScale) {
  const OnnxModel healthy = Must(OnnxModel::Open(scratch_ / "healthy"));
  for (const size_t node : OnTheWay(healthy)) {
    const std::string out = healthy.nodes()[node].outputs[0];
    OnnxPatch patch = Behind(healthy, node, "Mul", 1);
    patch.nodes.back().op_type = "Div";
    std::swap(patch.nodes.back().inputs[0], patch.nodes.back().inputs[1]);
    fs::remove_all(scratch_ / "faulty");
    ASSERT_TRUE(WriteOnnx(healthy, patch, scratch_ / "faulty"));
    const Pair pair = Look(kGemma / "checkpoint", scratch_ / "faulty");
    EXPECT_FALSE(pair.report.healthy()) << healthy.nodes()[node].op_type << " " << out;
  }
}

// A half that is added to an earlier stream leaves a layer out, though all its weights are there.
TEST(Account, ALayerThatIsLeftOutOfTheStreamIsFound) {
  const TestFolder scratch;
  const OnnxModel mobius = Must(OnnxModel::Open(kGemma / "mobius"));
  OnnxPatch patch;
  patch.inputs.push_back({.node = NodeOf(mobius, "SkipSimplifiedLayerNormalization", 1),
                          .slot = 0,
                          .value = mobius.nodes()[NodeOf(mobius, "Mul", 0)].outputs[0]});
  ASSERT_TRUE(WriteOnnx(mobius, patch, scratch / "faulty"));
  const Pair pair = Look(kGemma / "checkpoint", scratch / "faulty");
  EXPECT_NE(All(pair.report)
                .find("layers[0].residual: a half is added to another value than the "
                      "residual stream"),
            std::string::npos)
      << All(pair.report);
}

}  // namespace
}  // namespace lockstep
