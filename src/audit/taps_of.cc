#include "audit/taps_of.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "audit/graph.h"
#include "audit/walk.h"
#include "base/quoted.h"
#include "spec/taps.h"

namespace lockstep {
namespace {

constexpr int kMaxHops = 40;

class Mapper {
 public:
  Mapper(const OnnxModel& model, const FoundDecoder& decoder)
      : graph_(model), walk_(graph_), decoder_(decoder) {}

  std::map<std::string, std::string> Run() {
    const auto layers = static_cast<int32_t>(decoder_.layers.size());
    for (int32_t i = 0; i < layers; ++i) {
      Put(i == 0 ? Tap::kEmbedding : Tap::kOutput, i - 1, Stream(i));
      Mixer(i);
      FeedForward(i);
    }
    if (const FoundNorm* norm = Norm(Role::kFinalNorm, -1)) {
      Put(Tap::kOutput, layers - 1, norm->input);
      Put(Tap::kFinalNorm, -1, OutputOf(*norm));
    }
    Put(Tap::kLogits, -1, decoder_.logits);
    return std::move(taps_);
  }

 private:
  void Put(Tap tap, int layer, int value) {
    if (value == kNoValue || graph_.Producer(value) < 0) return;
    if (InfoOf(tap).per_layer && layer < 0) return;
    taps_.emplace(TapName(tap, layer), graph_.Name(value));
  }

  const FoundMatrix* Matrix(Role role, int32_t layer) const {
    const auto at = decoder_.matrices.find({role, Part::kWeight, layer, -1});
    return at == decoder_.matrices.end() ? nullptr : &at->second;
  }
  const FoundNorm* Norm(Role role, int32_t layer) const {
    const auto at = decoder_.norms.find({role, Part::kWeight, layer, -1});
    return at == decoder_.norms.end() ? nullptr : &at->second;
  }
  int OutputOf(const FoundNorm& norm) const { return graph_.node(norm.node).Out(0); }
  int InputOf(const FoundMatrix* matrix) const {
    return matrix == nullptr ? kNoValue : graph_.node(matrix->node).In(0);
  }

  // A sum of two things that are computed: what a residual stream is after a half has joined it.
  bool IsSum(int value) const {
    const int p = graph_.Producer(value);
    if (p < 0 || graph_.node(p).op != "Add") return false;
    return !graph_.Constant(graph_.node(p).In(0)) && !graph_.Constant(graph_.node(p).In(1));
  }

  // The product with the whole matrix, its bias done; kNoValue where the bias seems to be added by
  // an operator that does more.
  int After(const FoundMatrix& matrix) const {
    auto whole = MatrixOf(graph_, matrix.node);
    if (!whole) return kNoValue;
    const bool adds_itself = whole->bias.has_value();
    whole->bias.reset();
    const int product = graph_.node(matrix.node).Out(0), sum = walk_.AddBias(*whole);
    if (sum != product) return sum;
    if (whole->bias || (matrix.bias && !adds_itself)) return kNoValue;
    return product;
  }
  int After(const FoundMatrix* matrix) const {
    return matrix == nullptr ? kNoValue : After(*matrix);
  }

  // The node that cuts a value into so many parts, when there is one.
  std::optional<int> SplitOf(int value, size_t parts) const {
    std::optional<int> found;
    for (const int user : walk_.Users(value))
      if (graph_.node(user).op == "Split" && graph_.node(user).out.size() == parts) {
        if (found) return std::nullopt;
        found = user;
      }
    return found;
  }

  // `from` is `to`, normed, turned or scaled on the way.
  bool ComesFrom(int from, int to) const {
    for (int hops = 0; hops < kMaxHops && from != kNoValue; ++hops) {
      if (from == to) return true;
      const int p = graph_.Producer(from);
      if (p < 0) return false;
      const auto& node = graph_.node(p);
      const bool one_input = walk_.IsShapeOnly(p) || walk_.NormAt(p) ||
                             node.op == "RotaryEmbedding" || node.op == "Clip";
      if (!one_input && node.op != "Concat") return false;
      from = node.op == "Concat" ? node.In(node.in.size() - 1) : node.In(0);
    }
    return false;
  }

  bool Scaled(int value) const { return walk_.Back(value).scale != 1; }

  // The residual stream that enters a layer.
  int Stream(int32_t layer) const {
    if (const FoundNorm* norm = Norm(Role::kMixerPreNorm, layer)) return norm->input;
    const FoundMatrix* first = Matrix(Role::kQProj, layer);
    if (first == nullptr) first = Matrix(Role::kConvInProj, layer);
    const int value = walk_.SkipShape(InputOf(first));
    if (IsSum(value)) return value;
    const int scale = decoder_.embedding_scale.node;
    const int embedded = scale >= 0 ? graph_.node(scale).Out(0) : decoder_.embedded;
    const bool is_embedding = layer == 0 && value != kNoValue && value == walk_.SkipShape(embedded);
    return is_embedding ? value : kNoValue;
  }

  void Mixer(int32_t layer) {
    const FoundLayer& found = decoder_.layers[static_cast<size_t>(layer)];
    if (found.conv) {
      Put(Tap::kMixerNorm, layer, InputOf(Matrix(Role::kConvInProj, layer)));
      Put(Tap::kMixer, layer, After(Matrix(Role::kConvOutProj, layer)));
    } else {
      Put(Tap::kMixerNorm, layer, InputOf(Matrix(Role::kQProj, layer)));
      if (found.attention) Attention(layer, *found.attention);
      Put(Tap::kAttention, layer, InputOf(Matrix(Role::kOProj, layer)));
      Put(Tap::kMixer, layer, After(Matrix(Role::kOProj, layer)));
    }
    if (const FoundNorm* norm = Norm(Role::kMixerPostNorm, layer))
      Put(Tap::kMixerPostNorm, layer, OutputOf(*norm));
  }

  void Attention(int32_t layer, const FoundAttention& attention) {
    const FoundMatrix* const matrices[] = {Matrix(Role::kQProj, layer), Matrix(Role::kKProj, layer),
                                           Matrix(Role::kVProj, layer)};
    constexpr Tap kProjected[] = {Tap::kQ, Tap::kK, Tap::kV};
    const AttentionPorts ports = PortsOf(graph_, attention.node);
    const int read[] = {ports.q, ports.k, ports.v};
    if (std::all_of(std::begin(matrices), std::end(matrices), [](auto* m) { return m; })) {
      if (matrices[0]->node == matrices[1]->node) {
        if (const auto split = SplitOf(After(*matrices[0]), 3))
          for (size_t i = 0; i < 3; ++i)
            if (const int part = graph_.node(*split).Out(i); ComesFrom(read[i], part))
              Put(kProjected[i], layer, part);
      } else {
        for (size_t i = 0; i < 3; ++i) Put(kProjected[i], layer, After(*matrices[i]));
      }
    }
    constexpr Role kNorms[] = {Role::kQNorm, Role::kKNorm};
    constexpr Tap kNormed[] = {Tap::kQNorm, Tap::kKNorm}, kTurned[] = {Tap::kQRope, Tap::kKRope};
    for (size_t i = 0; i < 2; ++i) {
      if (const FoundNorm* norm = Norm(kNorms[i], layer); norm && !Scaled(OutputOf(*norm)))
        Put(kNormed[i], layer, OutputOf(*norm));
      // The attention operator's own rotation does not show.
      const int rope = attention.rope_nodes[i];
      if (rope < 0 || rope == attention.node) continue;
      if (const int turned = graph_.node(rope).Out(0); !Scaled(turned))
        Put(kTurned[i], layer, turned);
    }
  }

  void FeedForward(int32_t layer) {
    const FoundLayer& found = decoder_.layers[static_cast<size_t>(layer)];
    const FoundMatrix* const gate = Matrix(Role::kGateProj, layer);
    const FoundMatrix* const up = Matrix(Role::kUpProj, layer);
    const FoundMatrix* const down = Matrix(Role::kDownProj, layer);
    const FoundMatrix* const router = Matrix(Role::kRouter, layer);
    const FoundMatrix* const first = gate != nullptr ? gate : up != nullptr ? up : router;
    const FoundNorm* const norm = Norm(Role::kMlpPreNorm, layer);

    int stream = norm != nullptr ? norm->input : walk_.SkipShape(InputOf(first));
    if (norm == nullptr && !IsSum(stream)) stream = kNoValue;
    // Parallel halves read the same stream: there is no sum between them.
    if (stream != Stream(layer)) Put(Tap::kMixerResidual, layer, stream);
    Put(Tap::kMlpNorm, layer, InputOf(first));
    if (router != nullptr) Put(Tap::kRouterLogits, layer, After(*router));

    if (gate != nullptr && up != nullptr && gate->node == up->node) {
      const auto split = SplitOf(After(*gate), 2);
      if (split && found.activation) {
        const auto& halves = graph_.node(*split);
        const std::vector<int> users = walk_.Users(halves.Out(0));
        const bool gate_first =
            std::find(users.begin(), users.end(), found.activation->node) != users.end();
        Put(Tap::kGate, layer, halves.Out(gate_first ? 0 : 1));
        Put(Tap::kUp, layer, halves.Out(gate_first ? 1 : 0));
      }
    } else {
      Put(Tap::kGate, layer, After(gate));
      Put(Tap::kUp, layer, After(up));
    }
    Put(Tap::kActivation, layer, InputOf(down));
    Put(Tap::kMlp, layer, After(down));
    if (router != nullptr && found.routing) Experts(layer, found.routing->node);
    if (const FoundNorm* post = Norm(Role::kMlpPostNorm, layer))
      Put(Tap::kMlpPostNorm, layer, OutputOf(*post));
  }

  // Of an operator that holds all experts. A scale behind it belongs to them as well.
  void Experts(int32_t layer, int node) {
    const auto& moe = graph_.node(node);
    if (moe.op != "MoE" && moe.op != "QMoE") return;
    for (const int user : walk_.Users(moe.Out(0)))
      if (graph_.node(user).op == "Mul" || graph_.node(user).op == "Div") return;
    Put(Tap::kExperts, layer, moe.Out(0));
  }

  const Graph graph_;
  const Walk walk_;
  const FoundDecoder& decoder_;
  std::map<std::string, std::string> taps_;
};

}  // namespace

std::map<std::string, std::string> TapsOf(const OnnxModel& model, const FoundDecoder& decoder) {
  return Mapper(model, decoder).Run();
}

std::string OperationMaking(const OnnxModel& model, std::string_view value) {
  const Graph graph(model);
  const int found = Walk(graph).SkipShape(graph.Value(value));
  const int p = graph.Producer(found);
  if (p < 0) return {};
  const OnnxNode& node = model.nodes()[static_cast<size_t>(graph.node(p).source)];
  const std::string op = OneLine(node.op_type, 64);
  return node.name.empty() ? op : fmt::format("{} {}", op, Quoted(node.name));
}

}  // namespace lockstep
