// Experts by com.microsoft's MoE where it has their activation; otherwise all experts by products
// of three dimensions, each token's chosen ones weighed and the others by zero. The operator's own
// routing is a softmax over all experts, of which the chosen are normalized or not; any other rule
// is computed in plain operators and handed over as the logarithms of the weights.
#include "export/genai/layers.h"
#include "export/genai/linear.h"

namespace lockstep::genai {
namespace {

// What the operator calls an expert's activation.
struct FusedActivation {
  std::string type;
  bool swiglu = false;
  float alpha = 1, beta = 0;
  std::optional<float> limit;
};

std::optional<FusedActivation> Fused(const MlpSpec& mlp) {
  if (mlp.gated && mlp.clamped_glu)
    return FusedActivation{"swiglu", true, static_cast<float>(mlp.clamped_glu->alpha),
                           static_cast<float>(mlp.clamped_glu->up_offset),
                           static_cast<float>(mlp.clamped_glu->limit)};
  if (mlp.gated && mlp.activation == Activation::kSilu) return FusedActivation{"swiglu", true};
  if (mlp.gated && mlp.activation == Activation::kQuickGelu)
    return FusedActivation{"swiglu", true, 1.702f};
  if (mlp.gated) return std::nullopt;
  if (mlp.activation == Activation::kSilu) return FusedActivation{"silu"};
  if (mlp.activation == Activation::kRelu) return FusedActivation{"relu"};
  if (mlp.activation == Activation::kGeluTanh) return FusedActivation{"gelu"};
  return std::nullopt;
}

class MoeLayer {
 public:
  MoeLayer(GraphBuilder& b, const MoeSpec& moe, int layer)
      : b_(b),
        g_(b.graph),
        moe_(moe),
        layer_(layer),
        name_(fmt::format("/model/layers.{}/moe", layer)) {}

  std::string Build(const std::string& x) {
    const std::string router =
        Linear(b_, name_ + "/router", x, Role::kRouter, layer_, moe_.router.bias);
    const std::string logits =
        b_.Reshape(name_ + "/router/Reshape", router, {-1, moe_.num_experts});
    const auto fused = Fused(moe_.expert);
    std::string out = fused ? ByOperator(*fused, x, logits) : ByProducts(x, logits);
    if (moe_.shared_expert) out = AddShared(out, x);
    return out;
  }

 private:
  std::string Node(const std::string& what, OnnxOp op, OnnxGraph::Values inputs,
                   OnnxGraph::Attributes attributes = {}) {
    return g_.Node(name_ + "/" + what, op, std::move(inputs), std::move(attributes));
  }

  // The operator's own routing is this router's.
  std::optional<bool> OperatorNormalizes() const {
    const RouterSpec& router = moe_.router;
    if (router.selection_bias || router.groups || FactorOf(router.routed_scaling) != 1 ||
        (router.normalize_top_k && router.normalize_epsilon != 0))
      return std::nullopt;
    if (router.scoring == RouterScoring::kSoftmaxThenTopK) return router.normalize_top_k;
    if (router.scoring == RouterScoring::kTopKThenSoftmax) return true;
    return std::nullopt;
  }

  std::string Matrices(const char* what, bool transposed) {
    std::vector<MatrixSource> experts;
    const bool down = what[0] == 'd';
    for (int e = 0; e < moe_.num_experts; ++e) {
      const auto of = [&](Role role) {
        return SourceOf(b_.weights.Get(role, layer_, Part::kWeight, e));
      };
      if (down)
        experts.push_back(of(Role::kExpertDownProj));
      else if (!moe_.expert.gated || what[0] == 'u')
        experts.push_back(of(Role::kExpertUpProj));
      else if (what == std::string_view("gate_proj"))
        experts.push_back(of(Role::kExpertGateProj));
      else  // gate_up_proj: rows in turn, as swiglu_fusion 1 reads them
        experts.push_back(InTurn(of(Role::kExpertGateProj), of(Role::kExpertUpProj)));
    }
    return ExpertMatrices(
        b_, fmt::format("{}.experts.{}.weight", GraphBuilder::WeightName(name_), what),
        std::move(experts), transposed);
  }

  // Biases of all experts, [experts, n], or [experts, 1, n] for products.
  std::string Biases(const char* what, std::vector<Role> roles, int64_t n, bool for_products) {
    const int64_t experts = moe_.num_experts;
    const int64_t width = n * static_cast<int64_t>(roles.size());
    return b_.Floats(fmt::format("{}.experts.{}.bias", GraphBuilder::WeightName(name_), what),
                     for_products ? std::vector<int64_t>{experts, 1, width}
                                  : std::vector<int64_t>{experts, width},
                     [&b = b_, layer = layer_, experts, roles = std::move(roles)] {
                       std::vector<float> out;
                       for (int e = 0; e < experts; ++e) {
                         std::vector<std::vector<float>> parts;
                         for (const Role role : roles)
                           parts.push_back(b.ReadVector(role, layer, Part::kBias, e));
                         for (size_t i = 0; i < parts[0].size(); ++i)
                           for (const std::vector<float>& part : parts) out.push_back(part[i]);
                       }
                       return out;
                     });
  }

  std::string ByOperator(const FusedActivation& fused, const std::string& x,
                         const std::string& logits) {
    std::string probabilities = logits, sum;
    std::optional<bool> normalizes = OperatorNormalizes();
    if (!normalizes) {
      const Routing routing = Route(b_, name_ + "/router", moe_, layer_, logits);
      sum = Node("router/sum", Onnx("ReduceSum"), {routing.weights, g_.Ints({-1})},
                 {{"keepdims", int64_t{1}}});
      probabilities = Logarithms(routing, logits);
      normalizes = true;
    }
    const MlpSpec& mlp = moe_.expert;
    const int64_t inter = mlp.intermediate_size, hidden = b_.spec.embedding.hidden_size;
    std::vector<Role> first = {Role::kExpertUpProj};
    if (fused.swiglu) first = {Role::kExpertGateProj, Role::kExpertUpProj};
    const char* up = fused.swiglu ? "gate_up_proj" : "up_proj";
    OnnxGraph::Values inputs = {x, probabilities, Matrices(up, false)};
    inputs.push_back(mlp.up_bias ? Biases(up, first, inter, false) : "");
    inputs.push_back(Matrices("down_proj", false));
    inputs.push_back(mlp.down_bias ? Biases("down_proj", {Role::kExpertDownProj}, hidden, false)
                                   : "");
    OnnxGraph::Attributes attributes = {
        {"k", moe_.num_experts_per_tok},
        {"activation_type", fused.type},
        {"normalize_routing_weights", int64_t{*normalizes}},
    };
    if (fused.swiglu) {
      attributes.push_back({"swiglu_fusion", int64_t{1}});
      attributes.push_back({"activation_alpha", fused.alpha});
      attributes.push_back({"activation_beta", fused.beta});
      if (fused.limit) attributes.push_back({"swiglu_limit", *fused.limit});
    }
    const std::string out = Node("MoE", Microsoft("MoE"), inputs, attributes);
    if (sum.empty()) return out;
    // [T, 1] to [B, S, 1], as the output lies.
    const std::string column = Node("sum/Reshape", Onnx("Reshape"), {sum, ColumnShape(x)});
    return Node("Mul", Onnx("Mul"), {out, column});
  }

  // B, S, 1
  std::string ColumnShape(const std::string& x) {
    const std::string outer =
        Node("sum/Shape", Onnx("Shape"), {x}, {{"end", int64_t{2}}, {"start", int64_t{0}}});
    return Node("sum/Concat", Onnx("Concat"), {outer, g_.Ints({1})}, {{"axis", int64_t{0}}});
  }

  // [T, experts]: the logarithms of the chosen weights, and far below them for the others. The
  // operator's softmax gives the weights back, up to their sum.
  std::string Logarithms(const Routing& routing, const std::string& logits) {
    constexpr float kLeast = 1e-30f, kNever = -10000.0f;
    const std::string positive =
        Node("router/Clip", Onnx("Clip"), {routing.weights, g_.Float(kLeast), ""});
    const std::string logarithms = Node("router/Log", Onnx("Log"), {positive});
    const std::string shape = Node("router/Shape", Onnx("Shape"), {logits});
    const std::string table = Node("router/Expand", Onnx("Expand"), {g_.Float(kNever), shape});
    return Node("router/ScatterElements", Onnx("ScatterElements"),
                {table, routing.experts, logarithms}, {{"axis", int64_t{1}}});
  }

  std::string ByProducts(const std::string& x, const std::string& logits) {
    b_.Note(
        "experts with an activation that the MoE operator lacks: products over all experts, each "
        "token's chosen ones weighed");
    const MlpSpec& mlp = moe_.expert;
    const int64_t inter = mlp.intermediate_size, hidden = b_.spec.embedding.hidden_size;
    const Routing routing = Route(b_, name_ + "/router", moe_, layer_, logits);
    const std::string shape = Node("router/Shape", Onnx("Shape"), {logits});
    const std::string zeros = Node("router/Expand", Onnx("Expand"), {g_.Float(0), shape});
    const std::string dense =
        Node("router/ScatterElements", Onnx("ScatterElements"),
             {zeros, routing.experts, routing.weights}, {{"axis", int64_t{1}}});  // [T, experts]
    const std::string rows = b_.Reshape(name_ + "/rows", x, {1, -1, hidden});
    const auto product = [&](const char* what, const std::string& in, Role role, bool bias,
                             int64_t n) {
      std::string y = Node(fmt::format("{}/MatMul", what), Onnx("MatMul"),
                           {in, Matrices(what, true)});  // [experts, T, n]
      if (bias)
        y = Node(fmt::format("{}/Add", what), Onnx("Add"), {y, Biases(what, {role}, n, true)});
      return y;
    };
    const std::string up = product("up_proj", rows, Role::kExpertUpProj, mlp.up_bias, inter);
    const std::string inner =
        mlp.gated ? Gated(b_, name_, mlp,
                          product("gate_proj", rows, Role::kExpertGateProj, mlp.up_bias, inter), up)
                  : Activated(b_, name_, mlp.activation, up);
    const std::string down =
        product("down_proj", inner, Role::kExpertDownProj, mlp.down_bias, hidden);
    const std::string columns =
        Node("weights/Unsqueeze", Onnx("Unsqueeze"),
             {Node("weights/Transpose", Onnx("Transpose"), {dense}), g_.Ints({-1})});
    const std::string weighed = Node("weights/Mul", Onnx("Mul"), {down, columns});
    const std::string summed = Node("weights/ReduceSum", Onnx("ReduceSum"), {weighed, g_.Ints({0})},
                                    {{"keepdims", int64_t{0}}});
    return Node("Reshape", Onnx("Reshape"), {summed, Node("Shape", Onnx("Shape"), {x})});
  }

  std::string AddShared(const std::string& out, const std::string& x) {
    const std::string at = name_ + "/shared_expert";
    std::string shared =
        Mlp(b_, at, moe_.shared_expert->mlp,
            {Role::kSharedGateProj, Role::kSharedUpProj, Role::kSharedDownProj}, layer_, x);
    if (moe_.shared_expert->sigmoid_gate) {
      const std::string gate = Linear(b_, at + "_gate", x, Role::kSharedExpertGate, layer_, false);
      shared = g_.Node(at + "/gate/Mul", Onnx("Mul"),
                       {shared, g_.Node(at + "/gate/Sigmoid", Onnx("Sigmoid"), {gate})});
    }
    return Node("Add", Onnx("Add"), {out, shared});
  }

  GraphBuilder& b_;
  OnnxGraph& g_;
  const MoeSpec& moe_;
  const int layer_;
  const std::string name_;
};

}  // namespace

std::string FeedForward(GraphBuilder& b, const MoeSpec& moe, int layer, const std::string& x) {
  return MoeLayer(b, moe, layer).Build(x);
}

}  // namespace lockstep::genai
