#include "faults/edit_maker.h"
#include "faults/fault_edits.h"
#include "spec/field_list.h"

namespace lockstep::fault_edits {
namespace {

struct GateUp {
  Role gate, up, down;
};
constexpr GateUp kGateUps[] = {
    {Role::kGateProj, Role::kUpProj, Role::kDownProj},
    {Role::kExpertGateProj, Role::kExpertUpProj, Role::kExpertDownProj},
    {Role::kSharedGateProj, Role::kSharedUpProj, Role::kSharedDownProj},
};

// The change on gate with up, weights and biases, one form for dense MLPs and one for experts.
Edits OfGateUp(const ModelSpec& spec, WeightChange change) {
  std::vector<EditMaker> makers;
  for (const GateUp& roles : kGateUps) {
    EditMaker& maker = makers.emplace_back(spec);
    for (const Part part : {Part::kWeight, Part::kBias})
      EditWhereItIs(maker, spec,
                    {.change = change, .role = roles.gate, .part = part, .other_role = roles.up});
  }
  return Several(std::move(makers));
}

EditMaker SetActivation(const ModelSpec& spec, Activation from, Activation to) {
  return EachMlp(spec,
                 [=](EditMaker& maker, int32_t i, const std::string& path, const MlpSpec& mlp) {
                   if (mlp.activation == from && !mlp.clamped_glu)
                     maker.Set(i, path + ".activation", std::string(NameOf(to)));
                 });
}

}  // namespace

Edits GeluOther(const ModelSpec& spec) {
  return Several({SetActivation(spec, Activation::kGelu, Activation::kGeluTanh),
                  SetActivation(spec, Activation::kGeluTanh, Activation::kGelu),
                  SetActivation(spec, Activation::kGelu, Activation::kQuickGelu),
                  SetActivation(spec, Activation::kGeluTanh, Activation::kQuickGelu)});
}

Edits ActivationOther(const ModelSpec& spec) {
  using enum Activation;
  return Several({SetActivation(spec, kRelu2, kRelu), SetActivation(spec, kRelu2, kSilu),
                  SetActivation(spec, kSilu, kGelu), SetActivation(spec, kSilu, kGeluTanh),
                  SetActivation(spec, kGelu, kSilu), SetActivation(spec, kGeluTanh, kSilu),
                  SetActivation(spec, kRelu, kGelu)});
}

Edits ClampMissing(const ModelSpec& spec) {
  const auto each = [&](const auto& set) {
    return EachMlp(spec,
                   [&](EditMaker& maker, int32_t i, const std::string& path, const MlpSpec& mlp) {
                     if (mlp.clamped_glu) set(maker, i, path + ".clamped_glu");
                   });
  };
  return Several({
      each([](EditMaker& maker, int32_t i, const std::string& path) {
        maker.Set(i, path, nullptr);
      }),
      each([](EditMaker& maker, int32_t i, const std::string& path) {
        maker.Set(i, path + ".up_offset", 0.0);
      }),
      each([](EditMaker& maker, int32_t i, const std::string& path) {
        maker.Set(i, path + ".alpha", 1.0);
      }),
      each([](EditMaker& maker, int32_t i, const std::string& path) {
        maker.Set(i, path + ".limit", 1e30);
      }),
  });
}

Edits ClampWherePlain(const ModelSpec& spec) {
  return One(
      EachMlp(spec, [](EditMaker& maker, int32_t i, const std::string& path, const MlpSpec& mlp) {
        if (mlp.gated && !mlp.clamped_glu && mlp.activation == Activation::kSilu)
          maker.Set(i, path + ".clamped_glu",
                    Json{{"alpha", 1.702}, {"limit", 7.0}, {"up_offset", 1.0}});
      }));
}

Edits RouterOrder(const ModelSpec& spec) {
  using enum RouterScoring;
  const auto to = [&](RouterScoring from, RouterScoring wrong, bool normalized) {
    return EachMoe(spec, [=](EditMaker& maker, int32_t i, const MoeSpec& moe) {
      const RouterSpec& router = moe.router;
      if (router.scoring != from) return;
      // softmax, top-k, renormalize is top-k, softmax: no fault.
      if (from == kSoftmaxThenTopK && wrong == kTopKThenSoftmax && router.normalize_top_k) return;
      maker.Set(i, "mlp.router.scoring", std::string(NameOf(wrong)));
      if (router.normalize_top_k != normalized)
        maker.Set(i, "mlp.router.normalize_top_k", normalized);
      if (router.sparse_mixer_jitter) maker.Set(i, "mlp.router.sparse_mixer_jitter", nullptr);
    });
  };
  return Several(
      {to(kSoftmaxThenTopK, kTopKThenSoftmax, false), to(kTopKThenSoftmax, kSoftmaxThenTopK, false),
       to(kTopKThenSoftmax, kSigmoidThenTopK, false), to(kSigmoidThenTopK, kSoftmaxThenTopK, true),
       to(kSparseMixer, kSoftmaxThenTopK, false), to(kSparseMixer, kTopKThenSoftmax, false)});
}

Edits RouterNormalization(const ModelSpec& spec) {
  EditMaker normalize = EachMoe(spec, [](EditMaker& maker, int32_t i, const MoeSpec& moe) {
    if (moe.router.scoring != RouterScoring::kTopKThenSoftmax &&
        moe.router.scoring != RouterScoring::kSparseMixer)
      maker.Set(i, "mlp.router.normalize_top_k", !moe.router.normalize_top_k);
  });
  EditMaker bias = EachMoe(spec, [](EditMaker& maker, int32_t i, const MoeSpec& moe) {
    if (moe.router.selection_bias) maker.Set(i, "mlp.router.selection_bias", false);
    if (moe.router.bias) maker.Set(i, "mlp.router.bias", false);
  });
  return Several({std::move(normalize), std::move(bias)});
}

Edits ExpertsOffByOne(const ModelSpec& spec) {
  const auto each = [&](int64_t by) {
    return EachMoe(spec, [by](EditMaker& maker, int32_t i, const MoeSpec& moe) {
      const int64_t wrong = moe.num_experts_per_tok + by;
      const auto& groups = moe.router.groups;
      const bool fits =
          wrong >= 1 && wrong <= moe.num_experts && !moe.router.sparse_mixer_jitter &&
          (!groups || groups->topk_group * (moe.num_experts / groups->n_group) >= wrong);
      if (fits) maker.Set(i, "mlp.num_experts_per_tok", wrong);
    });
  };
  return Several({each(-1), each(1)});
}

Edits GateUpSwapped(const ModelSpec& spec) { return OfGateUp(spec, WeightChange::kSwap); }
Edits GateUpInterleaved(const ModelSpec& spec) {
  return OfGateUp(spec, WeightChange::kDeinterleave);
}
Edits GateUpConcatenated(const ModelSpec& spec) {
  return OfGateUp(spec, WeightChange::kInterleave);
}

Edits MlpBiasDropped(const ModelSpec& spec) {
  return One(
      EachMlp(spec, [](EditMaker& maker, int32_t i, const std::string& path, const MlpSpec& mlp) {
        if (mlp.up_bias) maker.Set(i, path + ".up_bias", false);
        if (mlp.down_bias) maker.Set(i, path + ".down_bias", false);
      }));
}

Edits SameRouter(const ModelSpec& spec) {
  using enum RouterScoring;
  return One(EachMoe(spec, [](EditMaker& maker, int32_t i, const MoeSpec& moe) {
    const RouterSpec& router = moe.router;
    if (router.selection_bias || router.groups || router.normalize_epsilon != 0) return;
    if (router.scoring == kSoftmaxThenTopK && router.normalize_top_k) {
      maker.Set(i, "mlp.router.scoring", std::string(NameOf(kTopKThenSoftmax)));
      maker.Set(i, "mlp.router.normalize_top_k", false);
    } else if (router.scoring == kTopKThenSoftmax) {
      maker.Set(i, "mlp.router.scoring", std::string(NameOf(kSoftmaxThenTopK)));
      maker.Set(i, "mlp.router.normalize_top_k", true);
    }
  }));
}

Edits OtherRowOrder(const ModelSpec& spec) {
  EditMaker maker(spec);
  for (const GateUp& roles : kGateUps) {
    for (const Role role : {roles.gate, roles.up})
      for (const Part part : {Part::kWeight, Part::kBias})
        EditWhereItIs(maker, spec,
                      {.change = WeightChange::kReverseRows, .role = role, .part = part});
    EditWhereItIs(maker, spec, {.change = WeightChange::kReverseColumns, .role = roles.down});
  }
  return One(std::move(maker));
}

}  // namespace lockstep::fault_edits
