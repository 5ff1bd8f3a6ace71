#include <cmath>

#include "base/dtype.h"
#include "faults/edit_maker.h"
#include "faults/fault_edits.h"
#include "spec/field_list.h"

namespace lockstep::fault_edits {
namespace {

// Scales that multiply a whole path of the model, where they are not 1; set(maker, layer, path,
// scale).
template <typename Set>
std::vector<EditMaker> EachMultiplier(const ModelSpec& spec, const Set& set) {
  std::vector<EditMaker> makers(4, EditMaker(spec));
  const auto visit = [&](EditMaker& maker, int32_t layer, const char* path, const Scale& scale) {
    if (scale.value != 1) set(maker, layer, path, scale);
  };
  visit(makers[0], -1, "embedding.scale", spec.embedding.scale);
  visit(makers[1], -1, "lm_head.logit_scale", spec.lm_head.logit_scale);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto layer = static_cast<int32_t>(i);
    visit(makers[2], layer, "residual", spec.layers[i].residual);
    if (const auto* moe = std::get_if<MoeSpec>(&spec.layers[i].mlp))
      visit(makers[3], layer, "mlp.router.routed_scaling", moe->router.routed_scaling);
  }
  return makers;
}

template <typename Value>
Edits SetOffset(const ModelSpec& spec, const Value& value) {
  return One(EachNorm(
      spec, [&](EditMaker& maker, int32_t i, const std::string& path, const NormSpec& norm) {
        if (norm.weight && norm.weight_offset != 0)
          maker.Set(i, path + ".weight_offset", value(norm.weight_offset));
      }));
}

Edits OfRun(const ModelSpec& spec, bool applies, const char* path, const char* value) {
  EditMaker maker(spec);
  if (applies) maker.Run(path, value);
  return One(std::move(maker));
}

bool HasRms(const ModelSpec& spec) {
  return !EachNorm(spec, [](EditMaker& maker, int32_t i, const std::string& path,
                            const NormSpec& norm) {
            if (norm.kind == NormKind::kRms) maker.Set(i, path, nullptr);
          }).empty();
}

}  // namespace

Edits NormOffsetRounded(const ModelSpec& spec) {
  return One(EachNorm(
      spec, [](EditMaker& maker, int32_t i, const std::string& path, const NormSpec& norm) {
        if (norm.weight && norm.weight_offset != 0) maker.Set(i, path + ".weight_rounding", "bf16");
      }));
}

Edits NormOffsetMissing(const ModelSpec& spec) {
  return SetOffset(spec, [](double) { return 0.0; });
}
Edits NormOffsetTwice(const ModelSpec& spec) {
  return SetOffset(spec, [](double offset) { return 2 * offset; });
}

Edits NormCast(const ModelSpec& spec) { return OfRun(spec, HasRms(spec), "norm_cast", "bf16"); }
Edits InverseRmsRounded(const ModelSpec& spec) {
  return OfRun(spec, true, "inverse_rms_rounding", "bf16");
}

Edits ResidualRounded(const ModelSpec& spec) {
  Edits edits = OfRun(spec, true, "residual_rounding", "fp16");
  const Edits bf16 = OfRun(spec, true, "residual_rounding", "bf16");
  edits.insert(edits.end(), bf16.begin(), bf16.end());
  return edits;
}

Edits NormEps(const ModelSpec& spec) {
  return One(EachNorm(
      spec, [](EditMaker& maker, int32_t i, const std::string& path, const NormSpec& norm) {
        maker.Set(i, path + ".eps", norm.eps == 1e-5 ? 1e-6 : 1e-5);
      }));
}

Edits FinalNormSkipped(const ModelSpec& spec) {
  // A norm is no optional fact here, but one whose eps drowns the mean is only a factor, and the
  // logit scale can take that out again: x / sqrt(1e8) * 1e4.
  constexpr double kEps = 1e8, kFactor = 1e4;
  EditMaker maker(spec);
  const Scale& scale = spec.lm_head.logit_scale;
  maker.Set("final_norm", Json{{"kind", "rms"},
                               {"eps", kEps},
                               {"weight_offset", 0.0},
                               {"weight_rounding", "none"},
                               {"weight", false},
                               {"bias", false}});
  maker.Set("lm_head.logit_scale.value",
            scale.divide ? scale.value / kFactor : scale.value * kFactor);
  if (spec.lm_head.bias) return {};  // the bias would be multiplied as well
  return One(std::move(maker));
}

Edits MultiplierDropped(const ModelSpec& spec) {
  return Several(
      EachMultiplier(spec, [](EditMaker& maker, int32_t layer, const std::string& path,
                              const Scale&) { maker.Set(layer, path + ".value", 1.0); }));
}

Edits MultiplierInverted(const ModelSpec& spec) {
  return Several(EachMultiplier(
      spec, [](EditMaker& maker, int32_t layer, const std::string& path, const Scale& scale) {
        maker.Set(layer, path + ".divide", !scale.divide);
      }));
}

Edits MultiplierRounded(const ModelSpec& spec) {
  const auto to = [&](Rounding rounding) {
    return EachMultiplier(spec, [rounding](EditMaker& maker, int32_t layer, const std::string& path,
                                           const Scale& scale) {
      // What is rounded already, or rounds to itself, is not changed by rounding; nor may a small
      // multiplier become 0.
      const double rounded = rounding == Rounding::kBF16
                                 ? ToFloat(ToBFloat16(static_cast<float>(scale.value)))
                                 : std::nearbyint(scale.value * 100) / 100;
      if (scale.rounding == Rounding::kNone && rounded != scale.value && rounded != 0)
        maker.Set(layer, path + ".rounding", std::string(NameOf(rounding)));
    });
  };
  std::vector<EditMaker> makers = to(Rounding::kTwoDecimals);
  for (EditMaker& maker : to(Rounding::kBF16)) makers.push_back(std::move(maker));
  return Several(std::move(makers));
}

}  // namespace lockstep::fault_edits
