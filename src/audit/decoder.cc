#include "audit/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "audit/index_path.h"
#include "audit/walk.h"
#include "spec/validate.h"

namespace lockstep {
namespace {

class Finder {
 public:
  Finder(const Graph& graph, const ModelSpec& spec, std::vector<std::string>& notes)
      : g_(graph), spec_(spec), notes_(notes), walk_(graph) {}

  FoundDecoder Run() {
    Embedding();
    std::vector<int> mixers;
    for (int n = 0; n < static_cast<int>(g_.nodes().size()); ++n)
      if (IsAttention(g_, n) || IsShortConv(g_, n)) mixers.push_back(n);
    if (!mixers.empty() && mixers.size() != spec_.layers.size())
      notes_.push_back(
          fmt::format("the graph has {} attention or convolution operators, the checkpoint {} "
                      "layers",
                      mixers.size(), spec_.layers.size()));
    for (size_t i = 0; i < mixers.size(); ++i) {
      found_.layers.emplace_back();
      if (i < spec_.layers.size()) Layer(static_cast<int32_t>(i), mixers[i]);
    }
    Head();
    return std::move(found_);
  }

 private:
  static WeightId Id(Role role, int32_t layer, int32_t expert = -1) {
    return {role, Part::kWeight, layer, expert};
  }
  void Keep(Role role, int32_t layer, const FoundMatrix& matrix, int32_t expert = -1) {
    found_.matrices.emplace(Id(role, layer, expert), matrix);
    Understand(matrix.node);
    Understand(matrix.bias_node);
  }
  void Understand(int node) {
    if (node >= 0) found_.understood.insert(node);
  }
  static double Wanted(const Scale& scale) { return scale.divide ? 1 / scale.value : scale.value; }
  // Of several factors on one way the one nearest the wanted is the model's.
  static bool Nearer(double wanted, const FoundScale& one, const FoundScale& than) {
    const auto far = [&](const FoundScale& scale) {
      const double ratio =
          std::abs(std::log((scale.divides ? 1 / scale.value : scale.value) / wanted));
      return std::isfinite(ratio) ? ratio : INFINITY;
    };
    return than.node < 0 || far(one) < far(than);
  }
  void KeepNorm(Role role, int32_t layer, const FoundNorm& norm) {
    found_.norms.emplace(Id(role, layer), norm);
    Understand(norm.node);
  }

  void Embedding() {
    // Positions choose rows of tables, too: of RoPE, and of learned positions. An input's name is
    // the contract with whoever runs the graph; then the table's size tells, never the file's
    // order.
    std::optional<FoundMatrix> table;
    std::array<bool, 4> best{};
    for (int n = 0; n < static_cast<int>(g_.nodes().size()); ++n) {
      const auto& node = g_.node(n);
      if (node.op != "Gather" && node.op != "GatherBlockQuantized") continue;
      const IndexPath path = IndexPathTo(g_, node.In(1));
      const int input = path.input;
      if (input == kNoValue) continue;
      auto matrix = MatrixOf(g_, n);
      if (!matrix || matrix->matrix.rows < spec_.embedding.vocab_size / 2) continue;
      const EmbeddingSpec& embedding = spec_.embedding;
      const std::array<bool, 4> fits = {
          matrix->matrix.codes ? matrix->matrix.cols >= embedding.hidden_size
                               : matrix->matrix.cols == embedding.hidden_size,
          g_.Name(input) != "position_ids" && g_.Name(input) != "attention_mask",
          matrix->matrix.rows >= embedding.vocab_size, path.nodes.empty()};
      if (table && fits <= best) continue;
      best = fits;
      table = std::move(matrix);
      found_.tokens = input;
    }
    int value = kNoValue;
    if (table) {
      // Codes fill whole blocks; what is past the hidden size is cut off after the lookup.
      if (table->matrix.codes)
        table->matrix.cols = std::min(table->matrix.cols, spec_.embedding.hidden_size);
      Keep(Role::kEmbedTokens, -1, *table);
      value = g_.node(table->node).Out(0);
    }
    found_.embedded = value;
    found_.stream = value;
    for (int hops = 0; hops < 6 && value != kNoValue; ++hops) {
      int next = kNoValue;
      for (const int c : g_.Consumers(value)) {
        const auto& node = g_.node(c);
        if (walk_.IsShapeOnly(c) || node.op == "Slice") next = node.Out(0);
        if (node.op == "Mul" || (node.op == "Div" && node.In(0) == value)) {
          const int other = node.In(0) == value ? node.In(1) : node.In(0);
          if (const auto scale = g_.Scalar(other)) {
            const FoundScale one{
                .value = *scale, .constant = other, .node = c, .divides = node.op == "Div"};
            if (Nearer(Wanted(spec_.embedding.scale), one, found_.embedding_scale))
              found_.embedding_scale = one;
            next = node.Out(0);
          }
        }
        if (node.op == "Add" || node.op.starts_with("Skip")) {
          const int other = node.In(0) == value ? node.In(1) : node.In(0);
          if (const int p = g_.Producer(walk_.SkipShape(other));
              p >= 0 && g_.node(p).op == "Gather") {
            if (auto matrix = MatrixOf(g_, p)) Keep(Role::kEmbedPositions, -1, *matrix);
            Understand(c);
            value = node.op == "Add" ? node.Out(0) : node.Out(3);
            next = kNoValue;
          }
        }
      }
      if (value != kNoValue) found_.stream = value;
      value = next;
    }
    Understand(found_.embedding_scale.node);
  }

  void Layer(int32_t layer, int mixer) {
    const LayerSpec& spec = spec_.layers[static_cast<size_t>(layer)];
    FoundLayer& found = found_.layers.back();
    int normed = kNoValue;  // what the mixer's first matrix reads
    int out = kNoValue;     // the mixer's last matrix' output
    if (IsShortConv(g_, mixer)) {
      found.conv = true;
      Conv(layer, mixer, normed, out);
    } else if (const auto* mla = std::get_if<MlaSpec>(&spec.mixer)) {
      Latent(layer, mixer, *mla, found, normed, out);
    } else {
      Attention(layer, mixer, found, normed, out);
    }
    int residual = walk_.SkipShape(normed);
    if (const auto norm = walk_.NormMaking(residual)) {
      if (spec.mixer_pre_norm) {
        KeepNorm(Role::kMixerPreNorm, layer, *norm);
        residual = norm->input;
      }
    }
    found.input = residual;
    const Join mixed = walk_.FollowToSum(out, residual, Wanted(spec.residual));
    Understand(mixed.node);
    Understand(mixed.scale.node);
    found.mixer_joined = mixed.found;
    found.mixer_residual = mixed.scale;
    if (mixed.norm && spec.mixer_post_norm) KeepNorm(Role::kMixerPostNorm, layer, *mixed.norm);

    int input = kNoValue, carried = kNoValue;
    if (spec.wiring == Wiring::kParallel) {
      input = normed;
      carried = residual;
      if (spec.mlp_pre_norm)
        for (const int c : walk_.Users(residual))
          if (const auto norm = walk_.NormAt(c); norm && g_.node(c).Out(0) != normed) {
            KeepNorm(Role::kMlpPreNorm, layer, *norm);
            input = g_.node(c).Out(0);
          }
    } else if (mixed.found) {
      carried = mixed.sum;
      input = mixed.sum;
      std::optional<FoundNorm> norm = mixed.skip_norm;
      if (!norm)
        for (const int c : walk_.Users(mixed.sum))
          if (auto at = walk_.NormAt(c)) norm = at;
      if (norm && spec.mlp_pre_norm) {
        KeepNorm(Role::kMlpPreNorm, layer, *norm);
        input = g_.node(norm->node).Out(0);
        if (carried == kNoValue) carried = norm->input;
      }
    }
    if (input == kNoValue) return;
    const int last = std::holds_alternative<MoeSpec>(spec.mlp)
                         ? Moe(layer, std::get<MoeSpec>(spec.mlp), input, found)
                         : Mlp(layer, input, found);
    const Join joined = walk_.FollowToSum(last, carried, Wanted(spec.residual));
    Understand(joined.node);
    Understand(joined.scale.node);
    // Parallel halves may meet before the stream.
    if (spec.wiring == Wiring::kParallel)
      for (const int sum : mixed.sums)
        if (std::find(joined.sums.begin(), joined.sums.end(), sum) != joined.sums.end())
          Understand(sum);
    found.output = joined.sum;
    found.foreign = mixed.other != kNoValue ? mixed.other : joined.other;
    const int end = joined.node >= 0 ? joined.node : g_.Producer(last);
    if (end >= 0) Inside(spec, layer, found, input, end);
    found.mlp_joined = joined.found;
    found.mlp_residual = joined.scale;
    if (joined.norm && spec.mlp_post_norm) KeepNorm(Role::kMlpPostNorm, layer, *joined.norm);
  }

  // What a feed-forward half is made of besides its matrices: the activation, the product of gate
  // and up; of experts also the router's softmax, its weights and sums. Factors and terms that are
  // constants belong to it only as parts of an activation or of routing.
  void Inside(const LayerSpec& spec, int32_t layer, const FoundLayer& found, int input, int sum) {
    const auto* moe = std::get_if<MoeSpec>(&spec.mlp);
    std::set<int> mixers;
    std::vector<int> begin;
    int end = sum;
    for (const auto& [id, matrix] : found_.matrices) {
      if (id.layer != layer) continue;
      const bool mixes = id.role == Role::kQProj || id.role == Role::kKProj ||
                         id.role == Role::kVProj || id.role == Role::kConvInProj;
      if (mixes) mixers.insert(matrix.node);
      if (moe == nullptr && id.role == Role::kDownProj) end = matrix.node;
    }
    for (const int c : walk_.Users(input))
      if (found_.understood.contains(c) && c != sum && !mixers.contains(c)) begin.push_back(c);
    const std::set<int> inside = walk_.Between(begin, end);
    // An activation that is one operator has no other operator beside it.
    const int act = found.activation ? found.activation->node : -1;
    const std::string_view first = act >= 0 ? g_.node(act).op : "";
    const bool built =
        moe != nullptr || first == "Sigmoid" || first == "Mul" || first == "Div" || first == "Pow";
    const bool squared = found.activation && found.activation->activation == Activation::kRelu2;
    bool erf = false, tanh = false, sigmoid = false;
    for (const int n : inside) {
      erf |= built && g_.node(n).op == "Erf";
      tanh |= built && g_.node(n).op == "Tanh";
      sigmoid |= built && g_.node(n).op == "Sigmoid";
    }
    for (const int n : inside) {
      const auto& node = g_.node(n);
      const bool arithmetic = node.op == "Add" || node.op == "Sub" || node.op == "Mul" ||
                              node.op == "Div" || node.op == "Pow";
      if (!arithmetic) {
        const bool part = n == act || node.op == "Erf" || node.op == "Tanh" || node.op == "Sigmoid";
        // Norms and matrices are told by themselves.
        if (moe != nullptr ? !walk_.NormAt(n) && !MatrixOf(g_, n) : n == act || (built && part))
          Understand(n);
        continue;
      }
      const auto number = g_.Scalar(node.In(1)) ? g_.Scalar(node.In(1)) : g_.Scalar(node.In(0));
      if (!number) {
        if (g_.Constant(node.In(0)) || g_.Constant(node.In(1))) continue;
        const bool square = node.In(0) == node.In(1);
        if (moe != nullptr || tanh || (node.op == "Mul" && (!square || squared))) Understand(n);
        continue;
      }
      const auto is = [&](std::initializer_list<double> numbers) {
        return std::any_of(numbers.begin(), numbers.end(),
                           [&](double x) { return std::abs(*number - x) <= 1e-4 * std::abs(x); });
      };
      const double root = std::sqrt(2.0);
      // x/2 (1 + erf(x / sqrt 2)); x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); relu(x)^2;
      // x sigmoid(1.702 x)
      const bool activation = (erf && is({root, 1 / root, 0.5, 1, 2})) ||
                              (tanh && is({0.5, 1, 0.044715, 0.7978845608, 2, 3})) ||
                              (sigmoid && is({1.702})) || (squared && node.op == "Pow" && is({2}));
      const bool routing = moe != nullptr && (std::abs(*number) <= 1e-6 ||
                                              is({Wanted(moe->router.routed_scaling), 1}));
      if (activation || routing) Understand(n);
    }
  }

  void Conv(int32_t layer, int node, int& normed, int& out) {
    if (auto weight = g_.Constant(g_.node(node).In(1)); weight && weight->shape.size() == 3) {
      FoundMatrix conv{.node = node};
      conv.matrix.rows = weight->shape[0];
      conv.matrix.cols = weight->shape[2];
      weight->shape = {weight->shape[0], weight->shape[2]};
      weight->strides = {weight->strides[0], weight->strides[2]};
      conv.matrix.values = *weight;
      if (auto bias = g_.Constant(g_.node(node).In(2));
          bias && bias->elements() == conv.matrix.rows)
        conv.bias = bias;
      Keep(Role::kConv, layer, conv);
    }
    if (const int p = walk_.LinearBehind(g_.node(node).In(0)); p >= 0) {
      auto matrix = *MatrixOf(g_, p);
      walk_.AddBias(matrix);
      Keep(Role::kConvInProj, layer, matrix);
      normed = g_.node(p).In(0);
    }
    Understand(node);
    const int first = walk_.LinearBehind(g_.node(node).In(0));
    if (const int p = walk_.LinearAhead(g_.node(node).Out(0)); p >= 0) {
      auto matrix = *MatrixOf(g_, p);
      out = walk_.AddBias(matrix);
      Keep(Role::kConvOutProj, layer, matrix);
      // Gates, and what keeps the state: all but constants.
      if (first >= 0)
        for (const int n : walk_.Between({first}, p))
          if (!g_.Constant(g_.node(n).In(0)) && !g_.Constant(g_.node(n).In(1)) && !walk_.NormAt(n))
            Understand(n);
    }
  }

  void Attention(int32_t layer, int node, FoundLayer& found, int& normed, int& out) {
    FoundAttention attention = AttentionAt(g_, node);
    const AttentionPorts ports = PortsOf(g_, node);
    Understand(node);
    for (const int n : attention.nodes) Understand(n);
    // A file may say any number.
    const auto sane = [](int64_t n) { return n > 0 && n <= kMaxWidth ? n : 0; };
    const int64_t q_heads = sane(attention.num_heads);
    const int64_t kv_heads = sane(attention.num_key_value_heads);
    PathBack traces[3];
    const int values[] = {ports.q, ports.k, ports.v};
    for (size_t slot = 0; slot < 3; ++slot)
      if (values[slot] != kNoValue) traces[slot] = walk_.Back(values[slot]);
    const bool packed = ports.k == kNoValue || ports.v == kNoValue;
    if (packed && traces[0].linear && q_heads > 0 && kv_heads > 0) {
      const FoundMatrix all = *traces[0].linear;
      const int64_t dim = all.matrix.rows / (q_heads + 2 * kv_heads);
      const int64_t sizes[] = {q_heads * dim, kv_heads * dim, kv_heads * dim};
      int64_t first = 0;
      for (size_t i = 0; i < 3; ++i) {
        traces[i].linear = SliceRows(all, first, sizes[i]);
        traces[i].input = traces[0].input;
        first += sizes[i];
      }
    }
    // Factors on queries and keys are part of the scale; those on values are nobody's.
    for (size_t i = 0; i < 3; ++i)
      for (const int n : traces[i].nodes)
        if (i < 2 || g_.node(n).op == "Clip") Understand(n);
    constexpr Role kRoles[] = {Role::kQProj, Role::kKProj, Role::kVProj};
    for (size_t i = 0; i < 3; ++i)
      if (traces[i].linear) Keep(kRoles[i], layer, *traces[i].linear);
    if (traces[0].norm) KeepNorm(Role::kQNorm, layer, *traces[0].norm);
    if (traces[1].norm) KeepNorm(Role::kKNorm, layer, *traces[1].norm);
    normed = traces[0].input != kNoValue ? traces[0].input : traces[2].input;
    if (traces[0].linear && q_heads > 0 && attention.scale == 0) {
      const int64_t head_dim = traces[0].linear->matrix.rows / q_heads;
      attention.scale = 1 / std::sqrt(static_cast<double>(head_dim));
    }
    attention.scale *= traces[0].scale * traces[1].scale;
    attention.clip = traces[0].clip;
    for (size_t i = 0; i < 2; ++i)
      if (traces[i].rope) attention.rope_nodes[i] = traces[i].rope->node;
    if (!attention.rope && traces[0].linear) {
      attention.rope = traces[0].rope;
      attention.rope_read = true;
    }
    if (attention.sinks) found_.vectors.emplace(Id(Role::kSinks, layer), *attention.sinks);
    found.attention = attention;
    if (const int p = walk_.LinearAhead(ports.out); p >= 0) {
      auto matrix = *MatrixOf(g_, p);
      out = walk_.AddBias(matrix);
      Keep(Role::kOProj, layer, matrix);
    }
  }

  // Latent attention with keys and values expanded before the operator: k and v come of one matrix
  // that multiplies a normed latent vector, q of another likewise or directly.
  void Latent(int32_t layer, int node, const MlaSpec& spec, FoundLayer& found, int& normed,
              int& out) {
    const AttentionPorts ports = PortsOf(g_, node);
    const int64_t heads = spec.num_attention_heads;
    const int64_t q_rows = heads * (spec.qk_nope_head_dim + spec.qk_rope_head_dim);
    // Keeps the matrix behind a value where it has the role's shape; its input.
    const auto linear = [&](int value, Role role, int64_t rows, int64_t cols) {
      const int p = value == kNoValue ? -1 : walk_.LinearBehind(value);
      if (p < 0) return kNoValue;
      auto matrix = *MatrixOf(g_, p);
      if (matrix.matrix.rows != rows || matrix.matrix.cols != cols) return kNoValue;
      walk_.AddBias(matrix);
      Keep(role, layer, matrix);
      return g_.node(p).In(0);
    };
    const auto latent = [&](int value, Role norm_role) {
      const auto norm = walk_.NormMaking(walk_.SkipShape(value));
      if (!norm) return kNoValue;
      KeepNorm(norm_role, layer, *norm);
      return norm->input;
    };
    const int64_t hidden = spec_.embedding.hidden_size;
    const int expanded =
        linear(ports.v, Role::kKvBProj, heads * (spec.qk_nope_head_dim + spec.v_head_dim),
               spec.kv_lora_rank);
    normed = linear(latent(expanded, Role::kKvANorm), Role::kKvAProj,
                    spec.kv_lora_rank + spec.qk_rope_head_dim, hidden);
    if (spec.q_lora_rank) {
      const int low = linear(ports.q, Role::kQBProj, q_rows, *spec.q_lora_rank);
      linear(latent(low, Role::kQANorm), Role::kQAProj, *spec.q_lora_rank, hidden);
    } else {
      linear(ports.q, Role::kQProj, q_rows, hidden);
    }
    FoundAttention& attention = found.attention.emplace(AttentionAt(g_, node));
    Understand(node);
    for (const int n : attention.nodes) Understand(n);
    const auto q = found_.matrices.find(Id(spec.q_lora_rank ? Role::kQBProj : Role::kQProj, layer));
    const auto kv = found_.matrices.find(Id(Role::kKvAProj, layer));
    // A part of the queries turns, and a part of the latent vector that all keys share.
    const std::map<WeightId, FoundMatrix>::const_iterator ends[] = {q, kv};
    for (size_t i = 0; i < 2; ++i) {
      if (ends[i] == found_.matrices.end()) continue;
      for (const int n : walk_.Between({ends[i]->second.node}, node)) {
        if (g_.node(n).op != "RotaryEmbedding") continue;
        attention.rope_nodes[i] = n;
        if (i == 0) attention.rope = walk_.Back(g_.node(n).Out(0)).rope;
        attention.rope_read = attention.rope.has_value();
        Understand(n);
      }
    }
    if (const int p = walk_.LinearAhead(ports.out); p >= 0) {
      auto matrix = *MatrixOf(g_, p);
      out = walk_.AddBias(matrix);
      Keep(Role::kOProj, layer, matrix);
    }
  }

  // Returns the output of the last matrix.
  int Mlp(int32_t layer, int input, FoundLayer& found) {
    const Branch branch = walk_.MlpFrom(input, {});
    return KeepMlp(layer, -1, branch, found, Role::kGateProj, Role::kUpProj, Role::kDownProj);
  }

  int KeepMlp(int32_t layer, int32_t expert, const Branch& branch, FoundLayer& found, Role gate,
              Role up, Role down) {
    if (branch.gate) Keep(gate, layer, *branch.gate, expert);
    if (branch.up) Keep(up, layer, *branch.up, expert);
    if (branch.down) Keep(down, layer, *branch.down, expert);
    if (branch.activation && !found.activation) found.activation = branch.activation;
    return branch.out;
  }

  int Moe(int32_t layer, const MoeSpec& spec, int input, FoundLayer& found) {
    for (const int c : walk_.Users(input))
      if (g_.node(c).op == "MoE" || g_.node(c).op == "QMoE")
        return FusedMoe(layer, spec, c, input, found);
    // Every expert by itself: the router is the matrix with one row an expert, the others come in
    // the order of the experts that their weights are compared with.
    std::set<int> taken;
    for (const int c : walk_.Users(input)) {
      const auto matrix = MatrixOf(g_, c);
      if (!matrix || matrix->matrix.rows != spec.num_experts || taken.contains(c)) continue;
      const auto top = walk_.OperatorAhead(g_.node(c).Out(0), "TopK");
      if (!top) continue;
      auto router = *matrix;
      walk_.AddBias(router);
      Keep(Role::kRouter, layer, router);
      taken.insert(c);
      FoundRouting& routing = found.routing.emplace();
      routing.node = *top;
      routing.top_k_constant = g_.node(*top).In(1);
      if (const auto k = g_.Integers(routing.top_k_constant); k.size() == 1) routing.top_k = k[0];
      SelectionBias(layer, g_.node(*top).In(0), router);
      break;
    }
    int last = kNoValue;
    int32_t order = 0;
    while (order < spec.num_experts + 8) {
      const Branch branch = walk_.MlpFrom(input, taken);
      if (!branch.down) break;
      taken.insert(branch.nodes.begin(), branch.nodes.end());
      const auto named = walk_.ExpertOf(branch.out);
      const int32_t expert = named ? static_cast<int32_t>(*named) : order;
      if (expert >= 0 && expert < spec.num_experts && order < spec.num_experts)
        last = KeepMlp(layer, expert, branch, found, Role::kExpertGateProj, Role::kExpertUpProj,
                       Role::kExpertDownProj);
      else
        KeepMlp(layer, -1, branch, found, Role::kSharedGateProj, Role::kSharedUpProj,
                Role::kSharedDownProj);
      ++order;
    }
    SharedGate(layer, spec, input);
    return last;
  }

  // The one number by which all that the shared expert gives is multiplied.
  void SharedGate(int32_t layer, const MoeSpec& spec, int input) {
    if (!spec.shared_expert || !spec.shared_expert->sigmoid_gate) return;
    for (const int c : walk_.Users(input)) {
      const auto matrix = MatrixOf(g_, c);
      if (!matrix || matrix->matrix.rows != 1) continue;
      for (const int next : walk_.Users(g_.node(c).Out(0)))
        if (g_.node(next).op == "Sigmoid") Keep(Role::kSharedExpertGate, layer, *matrix);
    }
  }

  void SelectionBias(int32_t layer, int scores, const FoundMatrix& router) {
    const int p = g_.Producer(walk_.SkipShape(scores));  // grouped scores are reshaped first
    if (p < 0 || g_.node(p).op != "Add") return;
    for (const size_t side : {size_t{0}, size_t{1}})
      if (const auto& bias = g_.Constant(g_.node(p).In(side));
          bias && bias->elements() == router.matrix.rows &&
          !(router.bias && *router.bias == *bias)) {
        Understand(p);
        found_.vectors.emplace(Id(Role::kRouterSelectionBias, layer), *bias);
      }
  }

  // Codes fill whole blocks: inner elements past the model's are zeros that an exporter added. What
  // else may be in them shows when the graph runs.
  static FoundMatrix WithoutFilling(const ExpertPart& part, int64_t inter) {
    if (!part.matrix.matrix.codes) return part.matrix;
    if (part.role != Role::kExpertDownProj)
      return part.matrix.matrix.rows > inter ? SliceRows(part.matrix, 0, inter) : part.matrix;
    FoundMatrix down = part.matrix;
    down.matrix.cols = std::min(down.matrix.cols, inter);
    return down;
  }

  int FusedMoe(int32_t layer, const MoeSpec& spec, int node, int input, FoundLayer& found) {
    const auto& n = g_.node(node);
    std::set<int> taken;  // whose matrix is the router's
    FoundRouting& routing = found.routing.emplace();
    Understand(node);
    routing.node = node;
    routing.top_k = g_.Int(node, "k", 1);
    if (const int p = walk_.LinearBehind(n.In(1)); p >= 0) {
      auto router = *MatrixOf(g_, p);
      const int scores = walk_.AddBias(router);
      Keep(Role::kRouter, layer, router);
      taken.insert(p);
      if (const auto top = walk_.OperatorAhead(scores, "TopK"))
        SelectionBias(layer, g_.node(*top).In(0), router);
      else
        routing.normalize = g_.Int(node, "normalize_routing_weights", 0) != 0;
    }
    for (const ExpertPart& part : ExpertsOf(g_, node, spec.num_experts))
      Keep(part.role, layer, WithoutFilling(part, spec.expert.intermediate_size), part.expert);
    const std::string activation = g_.Text(node, "activation_type", "relu");
    FoundActivation act{.node = node};
    if (activation == "relu") act.activation = Activation::kRelu;
    if (activation == "gelu") act.activation = Activation::kGeluTanh;
    if (activation == "silu" || activation == "swiglu") act.activation = Activation::kSilu;
    if (activation != "identity") found.activation = act;
    if (spec.shared_expert) {
      const Branch shared = walk_.MlpFrom(input, taken);
      if (shared.up && shared.up->matrix.rows == spec.shared_expert->mlp.intermediate_size)
        KeepMlp(layer, -1, shared, found, Role::kSharedGateProj, Role::kSharedUpProj,
                Role::kSharedDownProj);
      SharedGate(layer, spec, input);
    }
    return n.Out(0);
  }

  void Head() {
    if (g_.model().outputs().empty()) return;
    int value = kNoValue;
    for (const OnnxValueInfo& output : g_.model().outputs()) {
      const int v = g_.Value(output.name);
      if (output.dims && !output.dims->empty() &&
          output.dims->back().value == spec_.embedding.vocab_size)
        value = v;
    }
    if (value == kNoValue) value = g_.Value(g_.model().outputs().front().name);
    found_.logits = value;
    std::optional<double> after_tanh;
    int after_constant = kNoValue;
    int tanh = -1;
    for (int hops = 0; hops < 16; ++hops) {
      const int p = g_.Producer(value);
      if (p < 0) return;
      const auto& node = g_.node(p);
      if (auto matrix = MatrixOf(g_, p); matrix && node.op != "Gather") {
        walk_.AddBias(*matrix);
        Keep(Role::kLmHead, -1, *matrix);
        found_.head_read = true;
        Understand(found_.logit_scale.node);
        Understand(found_.softcap_divide_node);
        Understand(found_.softcap_multiply_node);
        if (found_.logit_softcap) Understand(tanh);
        if (const auto norm = walk_.NormMaking(walk_.SkipPruning(node.In(0)))) {
          KeepNorm(Role::kFinalNorm, -1, *norm);
          found_.last = norm->input;
        }
        return;
      }
      if (node.op == "Mul" || node.op == "Div") {
        const size_t side = g_.Scalar(node.In(1)) ? 1 : 0;
        const auto scale = g_.Scalar(node.In(side));
        if (!scale || (node.op == "Div" && side == 0)) return;  // c / x is no factor
        const int producer = g_.Producer(node.In(1 - side));
        if (node.op == "Mul" && producer >= 0 && g_.node(producer).op == "Tanh") {
          after_tanh = scale;
          after_constant = node.In(side);
          found_.softcap_multiply_node = p;
        } else if (tanh >= 0 && !found_.logit_softcap) {
          found_.logit_softcap = after_tanh.value_or(1);
          found_.softcap_multiply = after_constant;
          found_.softcap_divide = node.In(side);
          found_.softcap_divide_node = p;
        } else {
          const FoundScale one{
              .value = *scale, .constant = node.In(side), .node = p, .divides = node.op == "Div"};
          if (Nearer(Wanted(spec_.lm_head.logit_scale), one, found_.logit_scale))
            found_.logit_scale = one;
        }
        value = node.In(1 - side);
        continue;
      }
      if (node.op == "Tanh") tanh = p;
      if (node.op == "Add") {
        const size_t side = g_.Constant(node.In(1)) ? 1 : 0;
        value = node.In(1 - side);
        continue;
      }
      if (node.op != "Tanh" && !walk_.IsShapeOnly(p) && node.op != "Slice" && node.op != "Gather")
        return;
      value = node.In(0);
    }
  }

  const Graph& g_;
  const ModelSpec& spec_;
  std::vector<std::string>& notes_;
  Walk walk_;
  FoundDecoder found_;
};

}  // namespace

FoundDecoder FindDecoder(const Graph& graph, const ModelSpec& spec,
                         std::vector<std::string>& notes) {
  return Finder(graph, spec, notes).Run();
}

bool FoundDecoder::RoundsToInt8() const {
  return std::ranges::any_of(
      matrices, [](const auto& matrix) { return matrix.second.int8_block.has_value(); });
}

WeightPlace PlaceOf(const FoundDecoder& found, const WeightId& id) {
  WeightId weight = id;
  weight.part = Part::kWeight;
  const bool bias = id.part == Part::kBias;
  const auto at = [](const std::optional<ConstantView>& view) { return view ? &*view : nullptr; };
  if (const auto norm = found.norms.find(weight); norm != found.norms.end())
    return {.vector = at(bias ? norm->second.bias : norm->second.weight), .known = true};
  if (const auto vector = found.vectors.find(id); vector != found.vectors.end())
    return {.vector = &vector->second, .known = true};
  const auto matrix = found.matrices.find(weight);
  if (matrix == found.matrices.end()) return {};
  if (bias) return {.vector = at(matrix->second.bias), .known = true};
  return {.matrix = &matrix->second.matrix, .known = true};
}

}  // namespace lockstep
