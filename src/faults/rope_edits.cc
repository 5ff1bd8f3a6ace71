#include <cmath>

#include "faults/edit_maker.h"
#include "faults/fault_edits.h"
#include "spec/rope_facts.h"

namespace lockstep::fault_edits {
namespace {

constexpr const char* kRope = "mixer.rope";
constexpr const char* kScaling = "mixer.rope.scaling";

bool IsLocal(const LayerSpec& layer) {
  const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
  return a != nullptr && a->sliding_window.has_value();
}

// The first layer that rotates and for which `is` holds; -1: none.
template <typename Is>
int32_t FirstRotating(const ModelSpec& spec, const Is& is) {
  for (size_t i = 0; i < spec.layers.size(); ++i)
    if (const RopeSpec* rope = FindRope(spec.layers[i]);
        rope != nullptr && is(spec.layers[i], *rope))
      return static_cast<int32_t>(i);
  return -1;
}

const RopeSpec& RopeOf(const ModelSpec& spec, int32_t layer) {
  return *FindRope(spec.layers[static_cast<size_t>(layer)]);
}

bool HasLists(const RopeSpec& rope) {
  return rope.scaling && (std::holds_alternative<LongRopeScaling>(*rope.scaling) ||
                          std::holds_alternative<FrequencyFactors>(*rope.scaling));
}

template <typename Scaling>
const Scaling* ScalingAs(const RopeSpec& rope) {
  return rope.scaling ? std::get_if<Scaling>(&*rope.scaling) : nullptr;
}

// attention_factor <- value(factor that is there) in every layer that has one.
template <typename Value>
EditMaker SetAttentionFactor(const ModelSpec& spec, const Value& value) {
  return EachRope(spec, [&](EditMaker& maker, int32_t i, const RopeSpec& rope) {
    double found = 0;
    if (const auto* yarn = ScalingAs<YarnScaling>(rope)) found = yarn->attention_factor;
    if (const auto* longrope = ScalingAs<LongRopeScaling>(rope)) found = longrope->attention_factor;
    const double wrong = value(rope, found);
    if (found != 0 && wrong != found) maker.Set(i, "mixer.rope.scaling.attention_factor", wrong);
  });
}

EditMaker Permuted(const ModelSpec& spec) {
  EditMaker maker(spec);
  for (const Role role : {Role::kQProj, Role::kKProj})
    for (const Part part : {Part::kWeight, Part::kBias})
      EditWhereItIs(maker, spec,
                    {.change = WeightChange::kHalvesToPairs, .role = role, .part = part});
  return maker;
}

}  // namespace

Edits ScalingOnLocalLayers(const ModelSpec& spec) {
  const int32_t global = FirstRotating(spec, [](const LayerSpec& layer, const RopeSpec& rope) {
    return !IsLocal(layer) && rope.scaling.has_value();
  });
  if (global < 0) return {};
  return One(EachRope(spec, [&](EditMaker& maker, int32_t i, const RopeSpec& rope) {
    const LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    if (IsLocal(layer) && !rope.scaling && rope.rotary_dim == RopeOf(spec, global).rotary_dim)
      maker.Set(i, kScaling, FactAt(spec, global, kScaling));
  }));
}

Edits ScalingMissing(const ModelSpec& spec) {
  return One(EachRope(spec, [](EditMaker& maker, int32_t i, const RopeSpec& rope) {
    if (!rope.scaling) return;
    maker.Set(i, kScaling, nullptr);
    // Without dynamic scaling the context ends, but programs that miss the scaling run on.
    constexpr int64_t kLong = 1 << 20;
    if (ScalingAs<DynamicScaling>(rope) != nullptr && i == 0)
      maker.Set("max_position_embeddings", kLong);
  }));
}

Edits RopeOfOtherLayers(const ModelSpec& spec) {
  const auto give = [&](bool to_local) {
    const int32_t from = FirstRotating(
        spec, [&](const LayerSpec& layer, const RopeSpec&) { return IsLocal(layer) != to_local; });
    return EachRope(spec, [&, from](EditMaker& maker, int32_t i, const RopeSpec& rope) {
      if (from < 0 || IsLocal(spec.layers[static_cast<size_t>(i)]) != to_local) return;
      const double theta = RopeOf(spec, from).theta;
      if (theta != rope.theta) maker.Set(i, "mixer.rope.theta", theta);
    });
  };
  return Several({give(true), give(false)});
}

Edits AttentionFactor(const ModelSpec& spec) {
  const auto not_applied = [](const RopeSpec&, double) { return 1.0; };
  const auto twice = [](const RopeSpec&, double found) { return found * found; };
  // 0.1 ln(factor) + 1 whatever mscale and mscale_all_dim say.
  const auto not_cancelled = [](const RopeSpec& rope, double found) {
    const auto* yarn = ScalingAs<YarnScaling>(rope);
    return yarn != nullptr && yarn->factor > 1 ? 0.1 * std::log(yarn->factor) + 1 : found;
  };
  return Several({SetAttentionFactor(spec, not_applied), SetAttentionFactor(spec, twice),
                  SetAttentionFactor(spec, not_cancelled)});
}

Edits YarnBands(const ModelSpec& spec) {
  const auto each = [&](const auto& set) {
    return EachRope(spec, [&](EditMaker& maker, int32_t i, const RopeSpec& rope) {
      if (const auto* yarn = ScalingAs<YarnScaling>(rope)) set(maker, i, *yarn);
    });
  };
  const auto truncate = [](EditMaker& maker, int32_t i, const YarnScaling& yarn) {
    maker.Set(i, "mixer.rope.scaling.truncate", !yarn.truncate);
  };
  const auto edges = [](EditMaker& maker, int32_t i, const YarnScaling& yarn) {
    maker.Set(i, "mixer.rope.scaling.beta_fast", yarn.beta_slow);
    maker.Set(i, "mixer.rope.scaling.beta_slow", yarn.beta_fast);
  };
  const auto inverted = [](EditMaker& maker, int32_t i, const YarnScaling& yarn) {
    maker.Set(i, "mixer.rope.scaling.factor", 1 / yarn.factor);
  };
  return Several({each(truncate), each(edges), each(inverted)});
}

Edits Llama3Bands(const ModelSpec& spec) {
  const auto each = [&](const auto& value) {
    return EachRope(spec, [&](EditMaker& maker, int32_t i, const RopeSpec& rope) {
      const auto* llama3 = ScalingAs<Llama3Scaling>(rope);
      if (llama3 == nullptr) return;
      const Json wrong = value(*llama3);
      if (wrong != FactAt(spec, i, kScaling)) maker.Set(i, kScaling, wrong);
    });
  };
  const auto linear = [](const Llama3Scaling& llama3) {
    return Json{{"kind", "linear"}, {"factor", llama3.factor}};
  };
  const auto of_8b = [](const Llama3Scaling&) {
    return Json{{"kind", "llama3"},
                {"factor", 8.0},
                {"low_freq_factor", 1.0},
                {"high_freq_factor", 4.0},
                {"original_max_position_embeddings", 8192}};
  };
  return Several({each(linear), each(of_8b)});
}

Edits NopeIgnored(const ModelSpec& spec) {
  const int32_t rotating =
      FirstRotating(spec, [](const LayerSpec&, const RopeSpec&) { return true; });
  if (rotating < 0 ||
      !std::holds_alternative<AttentionSpec>(spec.layers[static_cast<size_t>(rotating)].mixer))
    return {};
  return One(EachAttention(spec, [&](EditMaker& maker, int32_t i, const AttentionSpec& a) {
    if (!a.rope && a.head_dim >= RopeOf(spec, rotating).rotary_dim)
      maker.Set(i, kRope, FactAt(spec, rotating, kRope));
  }));
}

Edits NopeInverted(const ModelSpec& spec) {
  if (NopeIgnored(spec).empty()) return {};
  const int32_t rotating =
      FirstRotating(spec, [](const LayerSpec&, const RopeSpec&) { return true; });
  return One(EachAttention(spec, [&](EditMaker& maker, int32_t i, const AttentionSpec& a) {
    if (a.rope)
      maker.Set(i, kRope, nullptr);
    else if (a.head_dim >= RopeOf(spec, rotating).rotary_dim)
      maker.Set(i, kRope, FactAt(spec, rotating, kRope));
  }));
}

Edits RowOrder(const ModelSpec& spec) {
  EditMaker layout = EachRope(spec, [](EditMaker& maker, int32_t i, const RopeSpec& rope) {
    if (rope.rotary_dim == 2) return;  // one pair: both layouts are the same
    maker.Set(i, "mixer.rope.layout", rope.layout == RopeLayout::kHalf ? "interleaved" : "half");
  });
  const bool attention = FirstRotating(spec, [](const LayerSpec& layer, const RopeSpec& rope) {
                           const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
                           return a != nullptr && a->head_dim > 2 && rope.rotary_dim > 2;
                         }) >= 0;
  std::vector<EditMaker> forms = {std::move(layout)};
  if (attention) forms.push_back(Permuted(spec));
  return Several(std::move(forms));
}

Edits RowOrderByWrongHeads(const ModelSpec& spec) {
  EditMaker maker(spec);
  const auto* first = std::get_if<AttentionSpec>(&spec.layers.front().mixer);
  for (const LayerSpec& layer : spec.layers) {  // one head count for all, or none
    const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
    if (a == nullptr || first == nullptr || !a->rope ||
        a->num_attention_heads != first->num_attention_heads ||
        a->num_key_value_heads == a->num_attention_heads ||
        a->num_key_value_heads * a->head_dim % (2 * a->num_attention_heads) != 0 ||
        a->num_key_value_heads * a->head_dim == 2 * a->num_attention_heads)
      return {};
  }
  // k's rows are taken apart by num_attention_heads and put together by its own heads.
  EditWhereItIs(maker, spec,
                {.change = WeightChange::kHalvesToPairs,
                 .role = Role::kKProj,
                 .count = first->num_attention_heads});
  EditWhereItIs(maker, spec, {.change = WeightChange::kPairsToHalves, .role = Role::kKProj});
  return One(std::move(maker));
}

Edits LongFactors(const ModelSpec& spec) {
  const auto each = [&](const char* to, const char* from) {
    return EachRope(spec, [&](EditMaker& maker, int32_t i, const RopeSpec& rope) {
      const auto* longrope = ScalingAs<LongRopeScaling>(rope);
      if (longrope == nullptr || longrope->short_factor == longrope->long_factor) return;
      const std::string path = "mixer.rope.scaling.";
      maker.Set(i, path + to, FactAt(spec, i, path + from));
    });
  };
  return Several({each("long_factor", "short_factor"), each("short_factor", "long_factor")});
}

Edits RotaryFraction(const ModelSpec& spec) {
  const auto each = [&](const auto& value) {
    return EachAttention(spec, [&](EditMaker& maker, int32_t i, const AttentionSpec& a) {
      if (!a.rope || HasLists(*a.rope)) return;
      const int64_t wrong = value(a);
      const bool dynamic = ScalingAs<DynamicScaling>(*a.rope) != nullptr;
      if (wrong >= (dynamic ? 4 : 2) && wrong % 2 == 0 && wrong != a.rope->rotary_dim)
        maker.Set(i, "mixer.rope.rotary_dim", wrong);
    });
  };
  return Several({each([](const AttentionSpec& a) { return a.head_dim; }),
                  each([](const AttentionSpec& a) { return a.rope->rotary_dim / 2; })});
}

Edits DefaultTheta(const ModelSpec& spec) {
  const auto each = [&](double wrong) {
    return EachRope(spec, [wrong](EditMaker& maker, int32_t i, const RopeSpec& rope) {
      if (rope.theta != wrong) maker.Set(i, "mixer.rope.theta", wrong);
    });
  };
  return Several({each(10000), each(500000)});
}

Edits PositionsFromOne(const ModelSpec& spec) {
  EditMaker maker(spec);
  if (spec.embedding.positions) maker.Run("first_position", 1);
  return One(std::move(maker));
}

Edits PositionsOfPadding(const ModelSpec& spec) {
  EditMaker maker(spec);
  if (spec.embedding.positions)
    maker.Run("padding", Json{{"side", "left"}, {"length", 3}})
        .Run("padding_takes_positions", true);
  return One(std::move(maker));
}

}  // namespace lockstep::fault_edits
