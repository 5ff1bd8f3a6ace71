// Healthy graphs in other forms: an optimiser or another exporter may write any of them, and the
// audit must be silent; and with one real fault in the same form, not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "audit/audit_testing.h"
#include "audit/findings.h"
#include "base/mapped_file.h"

namespace lockstep {
namespace {

struct Healthy {
  fs::path checkpoint, folder;
  AuditReport report;
};
using Form = void (*)(const Healthy& healthy, const fs::path& out);

void Write(const OnnxModel& model, const OnnxPatch& patch, const fs::path& out) {
  const Status written = WriteOnnx(model, patch, out);
  ASSERT_TRUE(written) << written.error().message;
}

OnnxPatch::Node Number(size_t after, const std::string& name, double number) {
  return {.after = after,
          .op_type = "Constant",
          .outputs = {name},
          .value = OnnxPatch::Node::Value{
              OnnxType::kFloat, {}, *EncodeNumbers(std::span(&number, 1), OnnxType::kFloat)}};
}

// One node that changes nothing behind the first result of each that `which` takes.
template <typename Which>
OnnxPatch Behind(const OnnxModel& model, const std::string& op, Which which, double number = 0,
                 int64_t to = 0) {
  OnnxPatch patch;
  for (const OnnxNode& node : model.nodes()) {
    if (node.outputs.empty() || node.outputs[0].empty() ||
        model.Output(node.outputs[0]) != nullptr || !which(node))
      continue;
    if (node.op_type == "Constant") continue;
    const std::string &out = node.outputs[0], before = out + "_before";
    patch.results.push_back({.node = node.index, .slot = 0, .value = before});
    OnnxPatch::Node fresh{.after = node.index, .op_type = op, .inputs = {before}, .outputs = {out}};
    if (op == "Add" || op == "Sub" || op == "Mul" || op == "Div") {
      patch.nodes.push_back(Number(node.index, out + "_number", number));
      fresh.inputs.push_back(out + "_number");
    }
    if (op == "Cast") fresh.attributes.emplace_back("to", to);
    patch.nodes.push_back(std::move(fresh));
  }
  return patch;
}

bool IsMatrix(const OnnxNode& node) {
  return node.op_type == "MatMul" || node.op_type == "Gemm" || node.op_type == "MatMulNBits";
}
bool IsNorm(const OnnxNode& node) {
  return node.op_type.ends_with("LayerNormalization") || node.op_type == "RMSNormalization";
}
bool Computes(const OnnxNode& node) { return IsMatrix(node) || IsNorm(node); }

template <const char* kOp, int kNumber>
void NoOpBehindWhatComputes(const Healthy& healthy, const fs::path& out) {
  const OnnxModel model = Must(OnnxModel::Open(healthy.folder));
  Write(model, Behind(model, kOp, Computes, kNumber, static_cast<int64_t>(OnnxType::kFloat)), out);
}
constexpr char kIdentity[] = "Identity", kAdd[] = "Add", kSub[] = "Sub", kMul[] = "Mul",
               kDiv[] = "Div", kCast[] = "Cast", kDropout[] = "Dropout";

void IdentityBehindEverything(const Healthy& healthy, const fs::path& out) {
  const OnnxModel model = Must(OnnxModel::Open(healthy.folder));
  Write(model, Behind(model, "Identity", [](const OnnxNode&) { return true; }), out);
}

void IdentityBeforeEveryReader(const Healthy& healthy, const fs::path& out) {
  const OnnxModel model = Must(OnnxModel::Open(healthy.folder));
  OnnxPatch patch;
  std::set<std::string> made;
  for (const OnnxNode& node : model.nodes())
    for (size_t slot = 0; slot < node.inputs.size() && node.index > 0; ++slot) {
      const std::string& name = node.inputs[slot];
      if (name.empty() || model.Tensor(name) == nullptr) continue;
      const std::string copy = name + "_copy";
      patch.inputs.push_back({.node = node.index, .slot = slot, .value = copy});
      if (made.insert(name).second)
        patch.nodes.push_back(
            {.after = node.index - 1, .op_type = "Identity", .inputs = {name}, .outputs = {copy}});
    }
  Write(model, patch, out);
}

void DeadNodes(const Healthy& healthy, const fs::path& out) {
  const OnnxModel model = Must(OnnxModel::Open(healthy.folder));
  OnnxPatch patch;
  for (const OnnxNode& node : model.nodes())
    if (IsMatrix(node))
      patch.nodes.push_back({.after = node.index,
                             .op_type = "Tanh",
                             .inputs = {node.outputs[0]},
                             .outputs = {node.outputs[0] + "_dead"}});
  Write(model, patch, out);
}

// --- the file's order of nodes

struct Message {
  std::string bytes;
  size_t at = 0;
  uint64_t Varint() {
    uint64_t out = 0;
    for (int shift = 0; at < bytes.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes[at++]);
      out |= uint64_t{byte & 127U} << shift;
      if (byte < 128) break;
    }
    return out;
  }
  // The next field with its tag, and where it is of length-delimited type its payload.
  std::pair<uint64_t, std::string> Next(std::string& payload) {
    const size_t first = at;
    const uint64_t tag = Varint();
    payload.clear();
    if (tag % 8 == 0) Varint();
    if (tag % 8 == 1) at += 8;
    if (tag % 8 == 5) at += 4;
    if (tag % 8 == 2) {
      const uint64_t size = Varint();
      payload = bytes.substr(at, size);
      at += size;
    }
    return {tag / 8, bytes.substr(first, at - first)};
  }
};

std::string Field(uint64_t number, const std::string& payload) {
  std::string out;
  const auto varint = [&](uint64_t x) {
    for (; x > 127; x >>= 7) out += static_cast<char>(x % 128 + 128);
    out += static_cast<char>(x);
  };
  varint(number * 8 + 2);
  varint(payload.size());
  return out + payload;
}

// Of the nodes that could come next always the last of the file: what is independent of others
// comes in another order, and yet each behind what it reads.
void LastNodesFirst(const Healthy& healthy, const fs::path& out) {
  const OnnxModel model = Must(OnnxModel::Open(healthy.folder));
  Write(model, {}, out);
  std::set<std::string> made;
  for (const OnnxNode& node : model.nodes()) made.insert(node.outputs.begin(), node.outputs.end());
  made.erase("");
  std::vector<size_t> order;
  std::vector<bool> done(model.nodes().size(), false);
  while (order.size() < done.size()) {
    const size_t before = order.size();
    for (size_t n = done.size(); n-- > 0;) {
      const auto& inputs = model.nodes()[n].inputs;
      if (done[n] || std::ranges::any_of(inputs, [&](const auto& in) { return made.contains(in); }))
        continue;
      done[n] = true;
      order.push_back(n);
      for (const std::string& name : model.nodes()[n].outputs) made.erase(name);
      break;
    }
    ASSERT_GT(order.size(), before);
  }
  EXPECT_FALSE(std::ranges::is_sorted(order));
  const fs::path file = out / model.path().filename();
  std::string payload, result;
  for (Message outer{.bytes = Must(ReadTextFile(file))}; outer.at < outer.bytes.size();) {
    const auto [number, raw] = outer.Next(payload);
    if (number != 7) {
      result += raw;
      continue;
    }
    std::vector<std::string> nodes;
    std::string rest, inside;
    for (Message graph{.bytes = payload}; graph.at < graph.bytes.size();) {
      const auto [field, all] = graph.Next(inside);
      if (field == 1)
        nodes.push_back(all);
      else
        rest += all;
    }
    ASSERT_EQ(nodes.size(), order.size());
    std::string graph;
    for (const size_t n : order) graph += nodes[n];
    result += Field(7, graph + rest);
  }
  std::ofstream(file, std::ios::binary | std::ios::trunc) << result;
}

// --- other numbers, the same function

using Change = std::vector<float> (*)(const StoredMatrix& matrix, std::vector<float> values,
                                      const std::vector<float>& with);

// The matrix of a role in a layer, changed; a folder for each, or two patches of one tensor would
// meet.
void Edit(const Healthy& healthy, const fs::path& from, const fs::path& to, Role role,
          Change change, const std::vector<float>& with = {}) {
  const OnnxModel model = Must(OnnxModel::Open(from));
  const Graph graph(model);
  const FoundMatrix& found = healthy.report.decoder.matrices.at({role, Part::kWeight, 1, -1});
  OnnxPatch patch;
  auto tensor =
      PatchOf(graph, found.matrix.values, change(found.matrix, found.matrix.ReadAll(graph), with));
  ASSERT_TRUE(tensor);
  patch.tensors.push_back(*std::move(tensor));
  Write(model, patch, to);
}

std::vector<float> Double(const StoredMatrix&, std::vector<float> values,
                          const std::vector<float>&) {
  for (float& x : values) x *= 2;
  return values;
}
std::vector<float> Halve(const StoredMatrix&, std::vector<float> values,
                         const std::vector<float>&) {
  for (float& x : values) x /= 2;
  return values;
}
// Rows, or columns, come `with[0]` places later, and the last ones first.
std::vector<float> TurnRows(const StoredMatrix& m, std::vector<float> values,
                            const std::vector<float>& with) {
  std::rotate(values.begin(), values.end() - static_cast<int64_t>(with[0]) * m.cols, values.end());
  return values;
}
std::vector<float> TurnColumns(const StoredMatrix& m, std::vector<float> values,
                               const std::vector<float>& with) {
  for (int64_t r = 0; r < m.rows; ++r)
    std::rotate(values.begin() + r * m.cols,
                values.begin() + (r + 1) * m.cols - static_cast<int64_t>(with[0]),
                values.begin() + (r + 1) * m.cols);
  return values;
}
std::vector<float> TimesColumns(const StoredMatrix& m, std::vector<float> values,
                                const std::vector<float>& with) {
  for (size_t i = 0; i < values.size(); ++i) values[i] *= with[i % static_cast<size_t>(m.cols)];
  return values;
}

void ScaledAndBack(const Healthy& healthy, const fs::path& out) {
  const TestFolder scratch;
  Edit(healthy, healthy.folder, scratch / "a", Role::kUpProj, Double);
  Edit(healthy, scratch / "a", out, Role::kDownProj, Halve);
}

void NeuronsInAnotherOrder(const Healthy& healthy, const fs::path& out) {
  const TestFolder scratch;
  Edit(healthy, healthy.folder, scratch / "a", Role::kGateProj, TurnRows, {3});
  Edit(healthy, scratch / "a", scratch / "b", Role::kUpProj, TurnRows, {3});
  Edit(healthy, scratch / "b", out, Role::kDownProj, TurnColumns, {3});
}

void HeadsInAnotherOrder(const Healthy& healthy, const fs::path& out) {
  const TestFolder scratch;
  const auto& attention = *healthy.report.decoder.layers[1].attention;
  const auto& q = healthy.report.decoder.matrices.at({Role::kQProj, Part::kWeight, 1, -1});
  ASSERT_GT(attention.num_key_value_heads, 1);
  const int64_t rows = q.matrix.rows / attention.num_heads;
  const int64_t more = rows * attention.num_heads / attention.num_key_value_heads;
  const auto dim = static_cast<float>(rows), group = static_cast<float>(more);
  Edit(healthy, healthy.folder, scratch / "a", Role::kQProj, TurnRows, {group});
  Edit(healthy, scratch / "a", scratch / "b", Role::kKProj, TurnRows, {dim});
  Edit(healthy, scratch / "b", scratch / "c", Role::kVProj, TurnRows, {dim});
  Edit(healthy, scratch / "c", out, Role::kOProj, TurnColumns, {group});
}

void NormInTheNextMatrices(const Healthy& healthy, const fs::path& out) {
  const TestFolder scratch;
  const OnnxModel model = Must(OnnxModel::Open(healthy.folder));
  const Graph graph(model);
  const FoundNorm& norm =
      healthy.report.decoder.norms.at({Role::kMlpPreNorm, Part::kWeight, 1, -1});
  const std::vector<float> weight = graph.Read(*norm.weight);
  const std::vector<float> ones(weight.size(), 1.0F);
  OnnxPatch patch;
  patch.tensors.push_back(*PatchOf(graph, *norm.weight, ones));
  Write(model, patch, scratch / "a");
  Edit(healthy, scratch / "a", scratch / "b", Role::kGateProj, TimesColumns, weight);
  Edit(healthy, scratch / "b", out, Role::kUpProj, TimesColumns, weight);
}

// What a form rewrites, which is where a fault would be hidden: nothing, or weights of layer 1.
enum class Rewrites : uint8_t { kNothing, kMlp, kHeads };
struct Row {
  const char* name;
  Form form;
  Rewrites rewrites = Rewrites::kNothing;
};
const Row kForms[] = {
    {"Identity", NoOpBehindWhatComputes<kIdentity, 0>},
    {"Add0", NoOpBehindWhatComputes<kAdd, 0>},
    {"Sub0", NoOpBehindWhatComputes<kSub, 0>},
    {"Mul1", NoOpBehindWhatComputes<kMul, 1>},
    {"Div1", NoOpBehindWhatComputes<kDiv, 1>},
    {"Cast", NoOpBehindWhatComputes<kCast, 0>},
    {"Dropout", NoOpBehindWhatComputes<kDropout, 0>},
    {"IdentityBehindEverything", IdentityBehindEverything},
    {"IdentityBeforeEveryReader", IdentityBeforeEveryReader},
    {"DeadNodes", DeadNodes},
    {"LastNodesFirst", LastNodesFirst},
    {"ScaledAndBack", ScaledAndBack, Rewrites::kMlp},
    {"NeuronsInAnotherOrder", NeuronsInAnotherOrder, Rewrites::kMlp},
    {"HeadsInAnotherOrder", HeadsInAnotherOrder, Rewrites::kHeads},
    {"NormInTheNextMatrices", NormInTheNextMatrices, Rewrites::kMlp},
};

// The repository's own, mended; and what real builders wrote without a fault, when it is there.
struct Case {
  fs::path checkpoint, folder;
};
std::vector<Case> Cases() {
  std::vector<Case> out = {{kGemma / "checkpoint", kGemma / "genai"},
                           {kGemma / "checkpoint", kGemma / "mobius"}};
  const fs::path goldens = LOCKSTEP_GOLDENS, exports = goldens / "../exports";
  std::error_code error;
  if (goldens.empty() || !fs::is_directory(exports, error)) return out;
  for (const char* name :
       {"genai-0.18/granite", "genai-0.18/lfm2-moe", "genai-0.18/llama", "genai-0.18/qwen3",
        "mobius-0.1/gpt2", "mobius-0.1/mixtral", "mobius-0.1/phi3", "mobius-0.1/smollm3"})
    out.push_back({goldens / "models" / fs::path(name).filename(), exports / name});
  return out;
}

Healthy Mended(const Case& one, const TestFolder& scratch) {
  const Pair pair = Look(one.checkpoint, one.folder);
  const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
  EXPECT_TRUE(WriteRepair(pair.candidate, plan, scratch / "healthy"));
  Healthy healthy{one.checkpoint, scratch / "healthy", {}};
  healthy.report = Look(one.checkpoint, healthy.folder).report;
  EXPECT_TRUE(healthy.report.findings.empty()) << All(healthy.report);
  return healthy;
}

bool Fits(const Row& row, const Healthy& healthy) {
  if (row.rewrites == Rewrites::kNothing) return true;
  const FoundLayer& layer = healthy.report.decoder.layers[1];
  const auto has = [&](Role role) {
    const auto at = healthy.report.decoder.matrices.find({role, Part::kWeight, 1, -1});
    return at != healthy.report.decoder.matrices.end() && !at->second.bias;
  };
  if (row.rewrites == Rewrites::kMlp)
    return has(Role::kGateProj) && has(Role::kUpProj) && has(Role::kDownProj);
  return layer.attention && layer.attention->num_key_value_heads > 1 && has(Role::kQProj) &&
         has(Role::kKProj) && has(Role::kVProj) && has(Role::kOProj);
}

// The weight that gets the fault: one of those that the form rewrites, or the first o_proj.
WeightId Spoiled(const Row& row, const Healthy& healthy) {
  if (row.rewrites == Rewrites::kMlp) return {Role::kDownProj, Part::kWeight, 1, -1};
  if (row.rewrites == Rewrites::kHeads) return {Role::kOProj, Part::kWeight, 1, -1};
  return std::ranges::find_if(healthy.report.decoder.matrices,
                              [](const auto& found) { return found.first.role == Role::kOProj; })
      ->first;
}

class Forms : public testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(Healthy, Forms, testing::ValuesIn(kForms),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(Forms, AreNoFaultAndHideNone) {
  size_t tried = 0;
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.folder.string());
    const TestFolder scratch;
    Healthy healthy = Mended(one, scratch);
    if (!Fits(GetParam(), healthy)) continue;
    ++tried;
    GetParam().form(healthy, scratch / "form");
    const Pair silent = Look(one.checkpoint, scratch / "form");
    EXPECT_TRUE(silent.report.findings.empty()) << All(silent.report);
    EXPECT_EQ(silent.report.strangers, 0);
    EXPECT_EQ(CountOf(silent.report, WeightState::kNotFound), 0);
    EXPECT_EQ(CountOf(silent.report, WeightState::kEquivalent) > 0,
              GetParam().rewrites != Rewrites::kNothing);

    // The last number of one matrix is another one.
    const OnnxModel model = Must(OnnxModel::Open(healthy.folder));
    const Graph graph(model);
    const WeightId id = Spoiled(GetParam(), healthy);
    const StoredMatrix& matrix = healthy.report.decoder.matrices.at(id).matrix;
    std::vector<float> values = matrix.ReadAll(graph);
    values.back() += 0.5F;
    OnnxPatch patch;
    patch.tensors.push_back(*PatchOf(graph, matrix.values, values));
    Write(model, patch, scratch / "fault");
    healthy.folder = scratch / "fault";
    GetParam().form(healthy, scratch / "faulty_form");
    const Pair found = Look(one.checkpoint, scratch / "faulty_form");
    ASSERT_FALSE(found.report.findings.empty());
    const std::string place = fmt::format("layers[{}].{}", id.layer, InfoOf(id.role).name);
    EXPECT_NE(All(found.report).find(place), std::string::npos) << All(found.report);
  }
  // The repository's own exports have one key and value head: no two to exchange.
  if (tried == 0 && GetParam().rewrites == Rewrites::kHeads)
    GTEST_SKIP() << "no export at hand has several key and value heads";
  EXPECT_GT(tried, 0u);
}

}  // namespace
}  // namespace lockstep
