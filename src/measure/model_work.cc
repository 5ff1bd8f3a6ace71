#include "measure/model_work.h"

namespace lockstep {
namespace {

void Add(MatrixWork& work, const PackedMatrix& m, double share, Activations activations) {
  const double macs = share * static_cast<double>(m.rows) * static_cast<double>(m.cols);
  const Activations form = FormFor(activations, m.kind);
  (form == Activations::kInt8   ? work.int8_macs
   : form == Activations::kBF16 ? work.bf16_macs
                                : work.f32_macs) += macs;
  work.bytes +=
      share * static_cast<double>(TileBytes(m.kind, m.Blocks())) * static_cast<double>(m.Tiles());
}

MatrixWork Sum(const MatrixWork& a, double n, const MatrixWork& b, double m) {
  return {a.int8_macs * n + b.int8_macs * m, a.bf16_macs * n + b.bf16_macs * m,
          a.f32_macs * n + b.f32_macs * m, a.bytes * n + b.bytes * m};
}

}  // namespace

MatrixWork ModelWork::Of(int64_t tokens, int64_t logits) const {
  return Sum(layers, static_cast<double>(tokens), head, static_cast<double>(logits));
}

ModelWork WorkOf(const ExecutionPlan& plan, Activations activations) {
  ModelWork work;
  ForEachProjection(plan, [&](std::string_view, const Projection& projection, double share) {
    work.experts = work.experts || share != 1;
    MatrixWork& into = &projection == &plan.head ? work.head : work.layers;
    for (const PackedMatrix& m : projection.group.matrices) Add(into, m, share, activations);
  });
  return work;
}

}  // namespace lockstep
