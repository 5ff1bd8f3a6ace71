#include "engine/plan.h"

#include "engine/rounding.h"

namespace lockstep {
namespace {

class Planner {
 public:
  Planner(const ModelSpec& spec, const Weights& weights) : spec_(spec), weights_(weights) {}

  void Pack(ExecutionPlan& plan, ThreadPool& pool) const {
    plan.packed = PackOrLoad(packing_, weights_.files(), pool, plan.packed_from);
    ForEachProjection(plan, [&](std::string_view, Projection& projection, double) {
      Packing::Place(plan.packed, projection.group);
    });
  }

  ExecutionPlan Make() {
    ExecutionPlan plan;
    plan.spec = &spec_;
    plan.embedding = &weights_.Get(Role::kEmbedTokens);
    plan.positions = weights_.Find({Role::kEmbedPositions});
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      layer_ = static_cast<int>(i);
      plan.layers.push_back(Layer(spec_.layers[i]));
    }
    layer_ = -1;
    plan.final_norm = *Norm(spec_.final_norm, Role::kFinalNorm);
    const WeightView* head = spec_.lm_head.tied ? plan.embedding : &weights_.Get(Role::kLmHead);
    plan.head = Matrices({head}, {weights_.Find({Role::kLmHead, Part::kBias})});
    return plan;
  }

 private:
  LayerPlan Layer(const LayerSpec& layer) {
    LayerPlan plan;
    plan.spec = &layer;
    plan.mixer_pre_norm = Norm(layer.mixer_pre_norm, Role::kMixerPreNorm);
    plan.mixer_post_norm = Norm(layer.mixer_post_norm, Role::kMixerPostNorm);
    plan.mlp_pre_norm = Norm(layer.mlp_pre_norm, Role::kMlpPreNorm);
    plan.mlp_post_norm = Norm(layer.mlp_post_norm, Role::kMlpPostNorm);
    std::visit([&](const auto& mixer) { Mixer(mixer, plan); }, layer.mixer);
    std::visit([&](const auto& mlp) { FeedForward(mlp, plan); }, layer.mlp);
    return plan;
  }

  void Mixer(const AttentionSpec& a, LayerPlan& plan) {
    plan.mixer_in = Project({Role::kQProj, Role::kKProj, Role::kVProj});
    plan.q_norm = Norm(a.q_norm, Role::kQNorm);
    plan.k_norm = Norm(a.k_norm, Role::kKNorm);
    if (a.sinks) plan.sinks = Vector(weights_.Get(Role::kSinks, layer_));
    plan.mixer_out = Project({Role::kOProj});
  }
  void Mixer(const MlaSpec& a, LayerPlan& plan) {
    plan.mixer_in = Project({a.q_lora_rank ? Role::kQAProj : Role::kQProj, Role::kKvAProj});
    plan.q_norm = Norm(a.q_a_norm, Role::kQANorm);
    plan.k_norm = Norm(a.kv_a_norm, Role::kKvANorm);
    if (a.q_lora_rank) plan.mla_q_b = Project({Role::kQBProj});
    plan.mla_kv_b = Project({Role::kKvBProj});
    plan.mixer_out = Project({Role::kOProj});
  }
  void Mixer(const ShortConvSpec& c, LayerPlan& plan) {
    plan.mixer_in = Project({Role::kConvInProj});
    plan.conv = Vector(weights_.Get(Role::kConv, layer_));
    plan.conv_bias = c.bias ? Vector(weights_.Get(Role::kConv, layer_, Part::kBias))
                            : std::vector<float>(static_cast<size_t>(spec_.embedding.hidden_size));
    plan.mixer_out = Project({Role::kConvOutProj});
  }

  void FeedForward(const MlpSpec& mlp, LayerPlan& plan) {
    plan.mlp = Mlp(mlp, Role::kGateProj, Role::kUpProj, Role::kDownProj);
  }
  void FeedForward(const MoeSpec& moe, LayerPlan& plan) {
    plan.router = Project({Role::kRouter});
    if (moe.router.selection_bias)
      plan.selection_bias = Vector(weights_.Get(Role::kRouterSelectionBias, layer_));
    for (int e = 0; e < moe.num_experts; ++e)
      plan.experts.push_back(
          Mlp(moe.expert, Role::kExpertGateProj, Role::kExpertUpProj, Role::kExpertDownProj, e));
    if (!moe.shared_expert) return;
    plan.shared_expert = Mlp(moe.shared_expert->mlp, Role::kSharedGateProj, Role::kSharedUpProj,
                             Role::kSharedDownProj);
    if (moe.shared_expert->sigmoid_gate) plan.shared_gate = Project({Role::kSharedExpertGate});
  }

  MlpPlan Mlp(const MlpSpec& mlp, Role gate, Role up, Role down, int expert = -1) {
    MlpPlan plan{.spec = mlp, .in = {}, .down = Project({down}, expert)};
    plan.in = mlp.gated ? Project({gate, up}, expert) : Project({up}, expert);
    return plan;
  }

  Projection Project(std::initializer_list<Role> roles, int expert = -1) {
    std::vector<const WeightView*> weights, biases;
    for (const Role role : roles) {
      weights.push_back(&weights_.Get(role, layer_, Part::kWeight, expert));
      biases.push_back(weights_.Find({role, Part::kBias, layer_, expert}));
    }
    return Matrices(weights, biases);
  }

  Projection Matrices(std::vector<const WeightView*> weights,
                      const std::vector<const WeightView*>& biases) {
    Projection projection{.group = packing_.Add(weights), .biases = {}};
    for (size_t i = 0; i < weights.size(); ++i) {
      std::vector<float> bias;
      if (biases[i] != nullptr) {
        bias = Vector(*biases[i]);
        bias.resize(static_cast<size_t>(projection.group.matrices[i].Tiles() * kTileRows));
      }
      projection.biases.push_back(std::move(bias));
    }
    return projection;
  }

  static std::vector<float> Vector(const WeightView& view) {
    std::vector<float> values(static_cast<size_t>(view.elements()));
    view.ReadRows(0, view.rows, values.data(), view.cols);
    return values;
  }

  std::optional<NormWeights> Norm(const std::optional<NormSpec>& spec, Role role) const {
    if (!spec) return std::nullopt;
    NormWeights norm{.spec = *spec, .weight = {}, .bias = {}};
    if (spec->weight) {
      norm.weight = Vector(weights_.Get(role, layer_));
      for (float& w : norm.weight)
        w = static_cast<float>(
            Round(static_cast<float>(spec->weight_offset) + w, spec->weight_rounding));
    }
    if (spec->bias) norm.bias = Vector(weights_.Get(role, layer_, Part::kBias));
    return norm;
  }

  const ModelSpec& spec_;
  const Weights& weights_;
  int layer_ = -1;
  Packing packing_;
};

}  // namespace

ExecutionPlan MakePlan(const ModelSpec& spec, const Weights& weights, ThreadPool& pool) {
  Planner planner(spec, weights);
  ExecutionPlan plan = planner.Make();
  planner.Pack(plan, pool);
  return plan;
}

ExecutionPlan PlanLayout(const ModelSpec& spec, const Weights& weights) {
  return Planner(spec, weights).Make();
}

}  // namespace lockstep
