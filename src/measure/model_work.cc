#include "measure/model_work.h"

#include "engine/pack.h"
#include "spec/weights.h"

namespace lockstep {
namespace {

bool IsMatrix(Role role) {
  switch (role) {
    case Role::kEmbedTokens:  // rows are looked up
    case Role::kEmbedPositions:
    case Role::kFinalNorm:
    case Role::kMixerPreNorm:
    case Role::kMixerPostNorm:
    case Role::kMlpPreNorm:
    case Role::kMlpPostNorm:
    case Role::kQNorm:
    case Role::kKNorm:
    case Role::kQANorm:
    case Role::kKvANorm:
    case Role::kSinks:
    case Role::kConv:
    case Role::kRouterSelectionBias:
      return false;
    default:
      return true;
  }
}

void Add(MatrixWork& work, const WeightView& view, double share, Activations activations) {
  const PackedMatrix packed{.kind = ChoosePackedKind(view), .rows = view.rows, .cols = view.cols};
  const double macs = share * static_cast<double>(view.elements());
  const InputForm form = FormFor(activations, packed.kind);
  (form == InputForm::kInt8   ? work.int8_macs
   : form == InputForm::kBF16 ? work.bf16_macs
                              : work.f32_macs) += macs;
  work.bytes += share * static_cast<double>(TileBytes(packed.kind, packed.Blocks())) *
                static_cast<double>(packed.Tiles());
}

MatrixWork Sum(const MatrixWork& a, double n, const MatrixWork& b, double m) {
  return {a.int8_macs * n + b.int8_macs * m, a.bf16_macs * n + b.bf16_macs * m,
          a.f32_macs * n + b.f32_macs * m, a.bytes * n + b.bytes * m};
}

}  // namespace

MatrixWork ModelWork::Of(int64_t tokens, int64_t logits) const {
  return Sum(layers, static_cast<double>(tokens), head, static_cast<double>(logits));
}

ModelWork WorkOf(const Model& model, Activations activations) {
  ModelWork work;
  for (const auto& [id, view] : model.weights.all()) {
    if (id.part != Part::kWeight || !IsMatrix(id.role)) continue;
    if (id.role == Role::kLmHead) {
      Add(work.head, view, 1, activations);
      continue;
    }
    double share = 1;
    if (id.expert >= 0) {
      const auto& moe = std::get<MoeSpec>(model.spec.layers[static_cast<size_t>(id.layer)].mlp);
      share = static_cast<double>(moe.num_experts_per_tok) / static_cast<double>(moe.num_experts);
      work.experts = true;
    }
    Add(work.layers, view, share, activations);
  }
  if (model.spec.lm_head.tied)
    Add(work.head, model.weights.Get(Role::kEmbedTokens), 1, activations);
  return work;
}

}  // namespace lockstep
