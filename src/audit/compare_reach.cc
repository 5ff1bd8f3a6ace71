// How far a graph's positions reach: the rows of its tables of cosines and sines and bounds put on
// position ids, against the context that is promised. A prompt that is longer than a table fails or
// reads other rows, and no shorter prompt shows it. Learned positions are a weight: its rows are
// counted in compare_weights.cc.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "audit/findings.h"
#include "audit/walk.h"
#include "reference/rope.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 28;  // of a table that a repair would write
constexpr int kMostHops = 24;

class Reach {
 public:
  Reach(const Model& reference, const OnnxModel& candidate, const Graph& graph, const Json* genai,
        AuditReport& report, Collector& out)
      : spec_(reference.spec),
        candidate_(candidate),
        graph_(graph),
        genai_(genai),
        found_(report.decoder),
        out_(out),
        walk_(graph) {}

  void Run() {
    promised_ = std::max(spec_.max_position_embeddings, PromisedByFolder());
    if (promised_ <= 0) return;
    const size_t layers = std::min(found_.layers.size(), spec_.layers.size());
    for (size_t i = 0; i < layers; ++i) Layer(static_cast<int>(i));
    Learned();
    for (const OnnxValueInfo& input : candidate_.inputs())
      if (const int value = graph_.Value(input.name);
          value != kNoValue && input.name.find("position") != std::string::npos)
        Forward(value);
    for (const int node : bounded_) Bound(node);
  }

 private:
  // A context that genai_config.json states beyond the checkpoint's own, where the RoPE stretches
  // so far: that is what is served. Elsewhere it is a finding of its own, and goes.
  int64_t PromisedByFolder() const {
    const Json::json_pointer at("/model/context_length");
    if (genai_ == nullptr || !genai_->contains(at) || !genai_->at(at).is_number_integer()) return 0;
    return StretchesWithLength(spec_) ? genai_->at(at).get<int64_t>() : 0;
  }

  void Layer(int layer) {
    const auto& attention = found_.layers[static_cast<size_t>(layer)].attention;
    const RopeSpec* rope = FindRope(spec_.layers[static_cast<size_t>(layer)]);
    if (!attention || !attention->rope || rope == nullptr) return;
    const FoundRope& found = *attention->rope;
    for (const auto& [node, slot] : walk_.PositionReaders(*attention))
      Backward(graph_.node(node).In(slot));
    if (!found.cos || found.cos->shape.size() != 2) return;
    const int64_t rows = found.cos->shape[0] - std::max<int64_t>(found.long_row, 0);
    const bool grows = rope->scaling && std::holds_alternative<DynamicScaling>(*rope->scaling);
    // A dynamic RoPE has other frequencies at each length past its own: no row holds them.
    if (rows >= promised_ && !grows) return;
    RawFinding raw{.kind = FindingKind::kRope, .layer = layer, .path = "mixer.rope"};
    const int64_t right = grows ? std::min(rows, spec_.max_position_embeddings) : rows;
    raw.what = fmt::format("the table ends behind row {}: prompts longer than {} are wrong or fail",
                           rows - 1, right);
    raw.expected = grows ? "rows that stretch with the length" : fmt::format("{} rows", promised_);
    raw.found = fmt::format("{} rows", rows);
    if (grows)
      raw.how_to =
          "export again with the frequencies computed in the graph: the RoPE is dynamic, and no "
          "table of rows stretches with the length";
    else if (!Lengthen(*rope, found, raw.patch))
      raw.how_to = fmt::format("export again with tables of {} rows", promised_);
    out_.Add(std::move(raw));
  }

  // The same tables with all rows, where every layer that reads them wants these.
  bool Lengthen(const RopeSpec& rope, const FoundRope& found, OnnxPatch& patch) const {
    if (!found.cos || !found.sin || found.long_row > 0 || found.cos->shape != found.sin->shape)
      return false;
    const int64_t half = rope.rotary_dim / 2;
    if (found.cos->shape[1] != half || promised_ > kMostElements / std::max<int64_t>(half, 1))
      return false;
    for (size_t i = 0; i < std::min(found_.layers.size(), spec_.layers.size()); ++i) {
      const auto& other = found_.layers[i].attention;
      const RopeSpec* wanted = FindRope(spec_.layers[i]);
      if (other && other->rope && other->rope->cos &&
          other->rope->cos->tensor == found.cos->tensor && (wanted == nullptr || *wanted != rope))
        return false;
    }
    const RopeTable right(rope, 0, promised_, 1);
    for (const bool cos : {true, false}) {
      const ConstantView& view = cos ? *found.cos : *found.sin;
      const OnnxTensor& tensor = graph_.model().tensors()[static_cast<size_t>(view.tensor)];
      if (tensor.dims != view.shape || view.factor != 1 || view.addend != 0) return false;
      const std::vector<float>& values = cos ? right.cos : right.sin;
      auto bytes = EncodeFinite(std::vector<double>(values.begin(), values.end()), tensor.type);
      if (!bytes) return false;
      patch.tensors.push_back({.name = tensor.name,
                               .bytes = *std::move(bytes),
                               .dims = std::vector<int64_t>{promised_, half}});
    }
    return true;
  }

  void Learned() {
    const auto at = found_.matrices.find({Role::kEmbedPositions, Part::kWeight, -1, -1});
    if (at != found_.matrices.end()) Backward(graph_.node(at->second.node).In(1));
  }

  static bool MovesNumbers(const Graph::Node& node) {
    constexpr std::string_view kOps[] = {"Cast",     "Reshape",  "Unsqueeze", "Squeeze", "Expand",
                                         "Identity", "Add",      "Sub",       "Flatten", "Tile",
                                         "Clip",     "Min",      "Max",       "Mod",     "Where",
                                         "Slice",    "Transpose"};
    return std::find(std::begin(kOps), std::end(kOps), node.op) != std::end(kOps);
  }

  void Note(int node) {
    const auto& op = graph_.node(node).op;
    if (op == "Clip" || op == "Min" || op == "Mod") bounded_.insert(node);
  }

  // From rows back to where they are counted.
  void Backward(int value) {
    std::vector<int> todo = {value};
    for (int hops = 0; !todo.empty() && hops < kMostHops; ++hops) {
      const int p = graph_.Producer(todo.back());
      todo.pop_back();
      if (p < 0 || !seen_.insert(p).second || !MovesNumbers(graph_.node(p))) continue;
      Note(p);
      const auto& node = graph_.node(p);
      const size_t operands = node.op == "Add" || node.op == "Sub" || node.op == "Min" ||
                                      node.op == "Max" || node.op == "Where"
                                  ? node.in.size()
                                  : 1;
      for (size_t slot = node.op == "Where" ? 1 : 0; slot < operands; ++slot)
        if (node.in[slot] != kNoValue && !graph_.Constant(node.in[slot]))
          todo.push_back(node.in[slot]);
    }
  }

  void Forward(int value) {
    std::vector<int> todo = {value};
    for (int hops = 0; !todo.empty() && hops < kMostHops; ++hops) {
      const int from = todo.back();
      todo.pop_back();
      for (const int c : graph_.Consumers(from)) {
        if (!MovesNumbers(graph_.node(c)) || !reached_.insert(c).second) continue;
        Note(c);
        if (graph_.node(c).Out(0) != kNoValue) todo.push_back(graph_.node(c).Out(0));
      }
    }
  }

  void Bound(int n) {
    const auto& node = graph_.node(n);
    int constant = kNoValue;
    if (node.op == "Clip") {
      constant = node.In(2);
    } else {
      for (const int in : node.in)
        if (in != kNoValue && graph_.Scalar(in)) constant = in;
    }
    const auto value = constant == kNoValue ? std::nullopt : graph_.Scalar(constant);
    if (!value || !std::isfinite(*value)) return;
    const bool wraps = node.op == "Mod";
    const double last = wraps ? *value - 1 : *value;
    if (last >= static_cast<double>(promised_ - 1)) return;
    RawFinding raw{.kind = FindingKind::kRope, .path = "positions"};
    const auto longest = static_cast<int64_t>(last) + 1;
    raw.what =
        fmt::format("position ids {} {}: prompts longer than {} are wrong",
                    wraps ? "begin again behind" : "stop at", static_cast<int64_t>(last), longest);
    raw.expected = fmt::format("up to {}", promised_ - 1);
    raw.found = fmt::format("{} {}", node.op, static_cast<int64_t>(*value));
    if (!SetScalar(graph_, constant, n, static_cast<double>(wraps ? promised_ : promised_ - 1),
                   raw.patch))
      raw.how_to = "export again without this bound on position ids";
    out_.Add(std::move(raw));
  }

  const ModelSpec& spec_;
  const OnnxModel& candidate_;
  const Graph& graph_;
  const Json* genai_;
  const FoundDecoder& found_;
  Collector& out_;
  const Walk walk_;
  int64_t promised_ = 0;  // positions
  std::set<int> seen_, reached_, bounded_;
};

}  // namespace

void CompareReach(const Model& reference, const OnnxModel& candidate, const Graph& graph,
                  const Json* genai, AuditReport& report, Collector& out) {
  Reach(reference, candidate, graph, genai, report, out).Run();
}

}  // namespace lockstep
