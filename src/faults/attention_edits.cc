#include <algorithm>
#include <cmath>

#include "faults/edit_maker.h"
#include "faults/fault_edits.h"

namespace lockstep::fault_edits {
namespace {

constexpr const char* kWindow = "mixer.sliding_window";

bool HasWindow(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
    return a != nullptr && a->sliding_window;
  });
}

template <typename Mixer>
bool Has(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    return std::holds_alternative<Mixer>(layer.mixer);
  });
}

bool HasAttention(const ModelSpec& spec) { return Has<AttentionSpec>(spec) || Has<MlaSpec>(spec); }

// One fact of the run.
Edits OfRun(const ModelSpec& spec, bool applies, const char* path, const Json& value) {
  EditMaker maker(spec);
  if (applies) maker.Run(path, value);
  return One(std::move(maker));
}

// query_scale.value <- value(attention) where that differs by more than rounding.
template <typename Value>
EditMaker SetScale(const ModelSpec& spec, const Value& value) {
  return EachAttention(spec, [&](EditMaker& maker, int32_t i, const AttentionSpec& a) {
    const double right = a.query_scale.divide ? 1 / a.query_scale.value : a.query_scale.value;
    const double wrong = value(a);
    if (std::abs(wrong / right - 1) < 1e-6) return;
    maker.Set(i, "mixer.query_scale.value", a.query_scale.divide ? 1 / wrong : wrong);
  });
}

}  // namespace

Edits WindowShifted(const ModelSpec& spec) {
  const int32_t n = static_cast<int32_t>(spec.layers.size());
  return One(EachAttention(spec, [&](EditMaker& maker, int32_t i, const AttentionSpec& a) {
    const auto* next =
        std::get_if<AttentionSpec>(&spec.layers[static_cast<size_t>((i + 1) % n)].mixer);
    if (next == nullptr || next->sliding_window == a.sliding_window) return;
    maker.Set(i, kWindow, next->sliding_window ? Json(*next->sliding_window) : Json(nullptr));
  }));
}

Edits WindowOffByOne(const ModelSpec& spec) {
  const auto each = [&](int64_t by) {
    return EachAttention(spec, [by](EditMaker& maker, int32_t i, const AttentionSpec& a) {
      if (a.sliding_window && *a.sliding_window + by > 0)
        maker.Set(i, kWindow, *a.sliding_window + by);
    });
  };
  return Several({each(1), each(-1)});
}

Edits WindowDropped(const ModelSpec& spec) {
  return One(EachAttention(spec, [](EditMaker& maker, int32_t i, const AttentionSpec& a) {
    if (a.sliding_window) maker.Set(i, kWindow, nullptr);
  }));
}

Edits WindowWhereNone(const ModelSpec& spec) {
  // The model's own window; where it has none, a window that its context exceeds.
  int64_t window = InventedWindow(spec);
  for (const LayerSpec& layer : spec.layers)
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer); a != nullptr && a->sliding_window)
      window = *a->sliding_window;
  return One(EachAttention(spec, [&](EditMaker& maker, int32_t i, const AttentionSpec& a) {
    if (!a.sliding_window) maker.Set(i, kWindow, window);
  }));
}

Edits AttentionScale(const ModelSpec& spec) {
  const auto by_head_dim = [](const AttentionSpec& a) {
    return 1 / std::sqrt(static_cast<double>(a.head_dim));
  };
  const auto by_hidden = [&](const AttentionSpec& a) {
    return 1 / std::sqrt(static_cast<double>(spec.embedding.hidden_size) /
                         static_cast<double>(a.num_attention_heads));
  };
  const auto none = [](const AttentionSpec&) { return 1.0; };
  // MLA: YaRN's m^2 left out of it.
  EditMaker mla(spec);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto* a = std::get_if<MlaSpec>(&spec.layers[i].mixer);
    if (a == nullptr) continue;
    const double plain =
        1 / std::sqrt(static_cast<double>(a->qk_nope_head_dim + a->qk_rope_head_dim));
    if (std::abs(plain / a->query_scale.value - 1) > 1e-6)
      mla.Set(static_cast<int32_t>(i), "mixer.query_scale.value", plain);
  }
  return Several({SetScale(spec, by_head_dim), SetScale(spec, by_hidden), SetScale(spec, none),
                  std::move(mla)});
}

Edits SoftcapMissing(const ModelSpec& spec) {
  EditMaker attention =
      EachAttention(spec, [](EditMaker& maker, int32_t i, const AttentionSpec& a) {
        if (a.logit_softcap) maker.Set(i, "mixer.logit_softcap", nullptr);
      });
  EditMaker head(spec);
  if (spec.lm_head.logit_softcap) head.Set("lm_head.logit_softcap", nullptr);
  return Several({std::move(attention), std::move(head)});
}

Edits SoftcapAfterMask(const ModelSpec& spec) {
  const bool capped =
      std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
        const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
        return a != nullptr && a->logit_softcap;
      });
  return OfRun(spec, capped, "softcap_after_mask", true);
}

Edits CausalCorner(const ModelSpec& spec) {
  return OfRun(spec, HasAttention(spec), "causal_alignment", "start");
}

Edits MaskFill(const ModelSpec& spec) {
  return OfRun(spec, HasAttention(spec), "mask_fill", -10000.0);
}

Edits QkNormAfterRope(const ModelSpec& spec) {
  const bool both = std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
    return a != nullptr && a->rope && (a->q_norm || a->k_norm);
  });
  return OfRun(spec, both, "qk_norm_after_rope", true);
}

Edits QkNormScopeFlipped(const ModelSpec& spec) {
  EditMaker maker = EachAttention(spec, [](EditMaker& m, int32_t i, const AttentionSpec& a) {
    if (!a.q_norm && !a.k_norm) return;
    m.Set(i, "mixer.qk_norm_scope", a.qk_norm_scope == QkNormScope::kHead ? "projection" : "head");
  });
  if (maker.empty()) return {};
  for (const Role role : {Role::kQNorm, Role::kKNorm})
    for (const Part part : {Part::kWeight, Part::kBias})
      EditWhereItIs(maker, spec, {.change = WeightChange::kFit, .role = role, .part = part});
  return One(std::move(maker));
}

Edits QkvBiasDropped(const ModelSpec& spec) {
  const auto each = [&](const auto& set) { return EachAttention(spec, set); };
  const auto all = [](EditMaker& maker, int32_t i, const AttentionSpec& a) {
    if (a.q_bias) maker.Set(i, "mixer.q_bias", false);
    if (a.k_bias) maker.Set(i, "mixer.k_bias", false);
    if (a.v_bias) maker.Set(i, "mixer.v_bias", false);
  };
  const auto output = [](EditMaker& maker, int32_t i, const AttentionSpec& a) {
    if (a.o_bias) maker.Set(i, "mixer.o_bias", false);
  };
  return Several({each(all), each(output)});
}

Edits SinksMissing(const ModelSpec& spec) {
  return One(EachAttention(spec, [](EditMaker& maker, int32_t i, const AttentionSpec& a) {
    if (a.sinks) maker.Set(i, "mixer.sinks", false);
  }));
}

Edits KvHeadsTiled(const ModelSpec& spec) {
  const bool grouped =
      std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
        const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
        return a != nullptr && a->num_key_value_heads > 1 &&
               a->num_key_value_heads < a->num_attention_heads;
      });
  EditMaker maker(spec);
  if (!grouped || Has<MlaSpec>(spec)) return {};
  const auto tile = [&](Role role, Part part) {
    EditWhereItIs(maker, spec, {.change = WeightChange::kTileHeads, .role = role, .part = part});
  };
  tile(Role::kQProj, Part::kWeight);
  tile(Role::kQProj, Part::kBias);
  tile(Role::kOProj, Part::kWeight);
  tile(Role::kSinks, Part::kWeight);
  const auto* first = std::get_if<AttentionSpec>(&spec.layers.front().mixer);
  if (first != nullptr && first->qk_norm_scope == QkNormScope::kProjection)
    tile(Role::kQNorm, Part::kWeight);
  return One(std::move(maker));
}

Edits RingCacheWrong(const ModelSpec& spec) {
  Edits edits = OfRun(spec, HasWindow(spec), "ring_cache", "stuck");
  const Edits short_one = OfRun(spec, HasWindow(spec), "ring_cache", "one_short");
  edits.insert(edits.end(), short_one.begin(), short_one.end());
  return edits;
}

Edits CacheLost(const ModelSpec& spec) {
  Edits edits = OfRun(spec, Has<ShortConvSpec>(spec), "cache_state", "conv_lost");
  const Edits kv = OfRun(spec, HasAttention(spec), "cache_state", "kv_lost");
  edits.insert(edits.end(), kv.begin(), kv.end());
  return edits;
}

Edits CacheStale(const ModelSpec& spec) {
  return OfRun(spec, HasAttention(spec), "cache_state", "row_stale");
}

Edits SixteenBitCache(const ModelSpec& spec) {
  Edits edits = OfRun(spec, HasAttention(spec), "kv_dtype", "f16");
  const Edits bf16 = OfRun(spec, HasAttention(spec), "kv_dtype", "bf16");
  edits.insert(edits.end(), bf16.begin(), bf16.end());
  return edits;
}

}  // namespace lockstep::fault_edits
