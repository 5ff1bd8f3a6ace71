// Experts by com.microsoft's MoE where it has their activation; otherwise all experts by products
// of three dimensions, each token's chosen ones weighed and the others by zero. The operator's own
// routing is a softmax over all experts, of which the chosen are normalized or not; any other rule
// is computed in plain operators and handed over as the logarithms of the weights.
#include "export/genai/coded.h"
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
        Linear(b_, name_ + "/router", x, Role::kRouter, layer_, moe_.router.bias, Kept::kAsNumbers);
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

  std::vector<MatrixSource> Sources(const char* what) {
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
    return experts;
  }

  std::string WeightName(const char* what) const {
    return fmt::format("{}.experts.{}.weight", GraphBuilder::WeightName(name_), what);
  }

  std::string Matrices(const char* what, bool transposed) {
    return ExpertMatrices(b_, WeightName(what), Sources(what), transposed);
  }

  // Biases of all experts, [experts, n], or [experts, 1, n] for products.
  // `padded`: zeros follow each role's n numbers up to so many.
  std::string Biases(const char* what, std::vector<Role> roles, int64_t padded, bool for_products) {
    const int64_t experts = moe_.num_experts, n = padded;
    const int64_t width = n * static_cast<int64_t>(roles.size());
    return b_.Floats(fmt::format("{}.experts.{}.bias", GraphBuilder::WeightName(name_), what),
                     for_products ? std::vector<int64_t>{experts, 1, width}
                                  : std::vector<int64_t>{experts, width},
                     [&b = b_, layer = layer_, experts, padded, roles = std::move(roles)] {
                       std::vector<float> out;
                       for (int e = 0; e < experts; ++e) {
                         std::vector<std::vector<float>> parts;
                         for (const Role role : roles)
                           parts.push_back(b.ReadVector(role, layer, Part::kBias, e));
                         for (std::vector<float>& part : parts)
                           part.resize(static_cast<size_t>(padded), 0.0f);
                         for (size_t i = 0; i < parts[0].size(); ++i)
                           for (const std::vector<float>& part : parts) out.push_back(part[i]);
                       }
                       return out;
                     });
  }

  std::string ByOperator(const FusedActivation& fused, const std::string& x,
                         const std::string& logits) {
    const std::optional<QMoePlan> plan = b_.precision.bits > 0 ? Plan(fused) : std::nullopt;
    std::string probabilities = logits, sum;
    std::optional<bool> normalizes = OperatorNormalizes();
    // What a plan says of it is always true.
    if (!normalizes || (plan && !*normalizes)) {
      const Routing routing = Route(b_, name_ + "/router", moe_, layer_, logits);
      sum = Node("router/sum", Onnx("ReduceSum"), {routing.weights, g_.Ints({-1})},
                 {{"keepdims", int64_t{1}}});
      probabilities = Logarithms(routing, logits);
      normalizes = true;
    }
    std::string out;
    if (plan) {
      out = Quantized(fused, *plan, x, probabilities);
    } else {
      out = Floating(fused, *normalizes, x, probabilities);
    }
    if (sum.empty()) return out;
    // [T, 1] to [B, S, 1], as the output lies.
    const std::string column = Node("sum/Reshape", Onnx("Reshape"), {sum, ColumnShape(x)});
    return Node("Mul", Onnx("Mul"), {out, column});
  }

  // The numbers of an activation, as both operators call them.
  static void AddNumbers(const FusedActivation& fused, OnnxGraph::Attributes& attributes) {
    if (!fused.swiglu) return;
    attributes.push_back({"activation_alpha", fused.alpha});
    attributes.push_back({"activation_beta", fused.beta});
    if (fused.limit) attributes.push_back({"swiglu_limit", *fused.limit});
  }
  static std::vector<Role> FirstRoles(const FusedActivation& fused) {
    if (fused.swiglu) return {Role::kExpertGateProj, Role::kExpertUpProj};
    return {Role::kExpertUpProj};
  }
  static const char* FirstName(const FusedActivation& fused) {
    return fused.swiglu ? "gate_up_proj" : "up_proj";
  }

  std::string Floating(const FusedActivation& fused, bool normalizes, const std::string& x,
                       const std::string& probabilities) {
    const MlpSpec& mlp = moe_.expert;
    const int64_t inter = mlp.intermediate_size, hidden = b_.spec.embedding.hidden_size;
    const char* up = FirstName(fused);
    OnnxGraph::Values inputs = {x, probabilities, Matrices(up, false)};
    inputs.push_back(mlp.up_bias ? Biases(up, FirstRoles(fused), inter, false) : "");
    inputs.push_back(Matrices("down_proj", false));
    inputs.push_back(mlp.down_bias ? Biases("down_proj", {Role::kExpertDownProj}, hidden, false)
                                   : "");
    OnnxGraph::Attributes attributes = {{"k", moe_.num_experts_per_tok},
                                        {"activation_type", fused.type},
                                        {"normalize_routing_weights", int64_t{normalizes}}};
    if (fused.swiglu) attributes.push_back({"swiglu_fusion", int64_t{1}});
    AddNumbers(fused, attributes);
    return Node("MoE", Microsoft("MoE"), inputs, attributes);
  }

  QMoeRequest Request(const FusedActivation& fused, const CodeRecipe& recipe) const {
    return {.bits = recipe.bits,
            .block = recipe.block,
            .zeros = recipe.zeros,
            .ep = ExecutionProviderOf(b_.options.execution_provider),
            .activations = recipe.scale_type,
            .activation = fused.type,
            .experts = moe_.num_experts,
            .hidden = b_.spec.embedding.hidden_size,
            .inter = moe_.expert.intermediate_size,
            .tiled = b_.options.execution_provider == "cuda",
            .accuracy_level = AccuracyLevel(b_)};
  }

  std::vector<MatrixSource> AllSources(const FusedActivation& fused) {
    std::vector<MatrixSource> all = Sources(FirstName(fused));
    for (MatrixSource& down : Sources("down_proj")) all.push_back(std::move(down));
    return all;
  }

  // As the policy says: the file's codes where they fit raw and whole, else codes of this export's
  // recipe or of what takes its place; none: the experts stay numbers.
  std::optional<QMoePlan> Plan(const FusedActivation& fused) {
    if (const auto stored = StoredExperts(b_, AllSources(fused))) {
      QMoeRequest request = Request(fused, *stored);
      request.tiled = false;
      if (auto decision = DecideQMoe(request);
          decision.plan && decision.plan->inter == moe_.expert.intermediate_size &&
          decision.plan->format == "qmoe") {
        keeps_codes_ = true;
        return decision.plan;
      }
    }
    const QMoeRequest request = Request(fused, RecipeOf(b_));
    QMoeDecision decision = DecideQMoe(request);
    if (decision.plan) return Noted(*decision.plan);
    const auto other = FallbackRequest(request);
    if (other && other->ep == request.ep && other->activations == request.activations) {
      b_.Note(fmt::format(
          "experts: {}; written with {} bits, {}{}", decision.reason, other->bits,
          other->block > 0 ? fmt::format("blocks of {}", other->block) : "one scale per channel",
          other->zeros == ZeroPoints::kCodes ? " and zero points" : ""));
      return Noted(*DecideQMoe(*other).plan);
    }
    b_.Note(fmt::format("experts stay numbers: {}", decision.reason));
    return std::nullopt;
  }

  QMoePlan Noted(const QMoePlan& plan) {
    if (plan.inter != moe_.expert.intermediate_size)
      b_.Note(fmt::format("experts of {} inner elements are padded with zeros to {}",
                          moe_.expert.intermediate_size, plan.inter));
    if (b_.options.execution_provider != "cpu")
      b_.Note(fmt::format("experts for {}: proved {}", b_.options.execution_provider, plan.proved));
    return plan;
  }

  std::string Quantized(const FusedActivation& fused, const QMoePlan& plan, const std::string& x,
                        const std::string& probabilities) {
    const MlpSpec& mlp = moe_.expert;
    const int64_t hidden = b_.spec.embedding.hidden_size;
    const char* up = FirstName(fused);
    const std::vector<Role> roles = FirstRoles(fused);
    const bool stored = keeps_codes_;
    const CodedExperts one =
        CodeExperts(b_, WeightName(up), FirstSources(fused, plan), plan,
                    {plan.fc1_codes, plan.fc1_scales, plan.fc1_zero_points},
                    plan.inter * static_cast<int64_t>(roles.size()), hidden, stored);
    const CodedExperts two = CodeExperts(b_, WeightName("down_proj"), Sources("down_proj"), plan,
                                         {plan.fc2_codes, plan.fc2_scales, plan.fc2_zero_points},
                                         hidden, plan.inter, stored);
    OnnxGraph::Values inputs = {x, probabilities, one.codes, one.scales};
    inputs.push_back(mlp.up_bias ? Biases(up, roles, plan.inter, false) : "");
    inputs.insert(inputs.end(), {two.codes, two.scales});
    inputs.push_back(mlp.down_bias ? Biases("down_proj", {Role::kExpertDownProj}, hidden, false)
                                   : "");
    if (!one.zeros.empty()) inputs.insert(inputs.end(), {"", "", "", one.zeros, two.zeros});
    OnnxGraph::Attributes attributes = {{"k", moe_.num_experts_per_tok}};
    for (const auto& attribute : plan.attributes)
      std::visit(
          [&](const auto& v) {
            attributes.push_back({attribute.first, v});
          },
          attribute.second);
    AddNumbers(fused, attributes);
    return Node("QMoE", Microsoft("QMoE"), inputs, attributes);
  }

  // Gate and up each have the plan's rows before they lie in turn.
  std::vector<MatrixSource> FirstSources(const FusedActivation& fused, const QMoePlan& plan) {
    std::vector<MatrixSource> out;
    const int64_t more = plan.inter - moe_.expert.intermediate_size;
    if (more == 0 || !fused.swiglu) return Sources(FirstName(fused));
    for (int e = 0; e < moe_.num_experts; ++e) {
      const auto of = [&](Role role) {
        MatrixSource source = SourceOf(b_.weights.Get(role, layer_, Part::kWeight, e));
        const int64_t cols = source.cols;
        return Stacked({std::move(source), Zeros(more, cols)});
      };
      out.push_back(InTurn(of(Role::kExpertGateProj), of(Role::kExpertUpProj)));
    }
    return out;
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
    if (b_.precision.bits > 0) b_.Note("experts stay numbers: QMoE lacks their activation");
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
      const std::string gate =
          Linear(b_, at + "_gate", x, Role::kSharedExpertGate, layer_, false, Kept::kAsNumbers);
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
  bool keeps_codes_ = false;
};

}  // namespace

std::string FeedForward(GraphBuilder& b, const MoeSpec& moe, int layer, const std::string& x) {
  return MoeLayer(b, moe, layer).Build(x);
}

}  // namespace lockstep::genai
