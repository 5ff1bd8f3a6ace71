#include "verify/edited_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "model/apply_edit.h"
#include "verify/compare.h"

namespace lockstep {
namespace {

bool SameView(const WeightView& a, const WeightView& b) {
  return a.data == b.data && a.type == b.type && a.rows == b.rows && a.cols == b.cols &&
         a.offset == b.offset && a.row_stride == b.row_stride && a.col_stride == b.col_stride &&
         a.pair_dim == b.pair_dim && a.addend == b.addend;
}

// The weights are all that the spec needs, in its shapes.
bool Suffice(const Weights& weights, const ModelSpec& spec) {
  for (const WeightSlot& slot : RequiredWeights(spec)) {
    const WeightView* view = weights.Find(slot.id);
    if (view == nullptr || view->rows != slot.rows || view->cols != slot.cols) return false;
  }
  return true;
}

}  // namespace

double EditedReference::LogRms() const {
  double sum = 0;
  for (const RunScore& score : scores) sum += score.log_rms;
  return sum / static_cast<double>(scores.size());
}

double EditedReference::TimesTolerance() const {
  double worst = 0;
  for (const RunScore& score : scores) worst = std::max(worst, score.times_tolerance);
  return worst;
}

EditedReference Unedited(const Model& model) {
  EditedReference out;
  out.spec = model.spec;
  // Not owned: the model outlives the search.
  out.weights = std::shared_ptr<const Weights>(&model.weights, [](const Weights*) {});
  return out;
}

std::optional<EditedReference> WithEdit(const EditedReference& base, const Edit& edit, int& first) {
  EditedReference out;
  if (edit.spec.empty()) {
    out.spec = base.spec;
  } else {
    auto spec = EditedSpec(base.spec, edit);
    if (!spec) return std::nullopt;
    out.spec = *std::move(spec);
  }
  auto run = EditedRun(base.run, edit);
  if (!run) return std::nullopt;
  out.run = *std::move(run);
  std::vector<WeightId> changed;
  if (edit.weights.empty() && out.spec == base.spec && out.run == base.run) return std::nullopt;
  if (edit.weights.empty() && Suffice(*base.weights, out.spec)) {
    out.weights = base.weights;
  } else {
    auto weights = EditedWeights(out.spec, *base.weights, edit.weights);
    if (!weights) return std::nullopt;
    if (!edit.weights.empty())
      for (const auto& [id, view] : weights->all()) {
        const WeightView* before = base.weights->Find(id);
        if (before == nullptr || !SameView(*before, view)) changed.push_back(id);
      }
    out.weights = std::make_shared<const Weights>(*std::move(weights));
  }
  const auto differs = FirstDifferentLayer(base.spec, out.spec, changed);
  if (!differs && out.run == base.run) return std::nullopt;
  first = out.run == base.run ? *differs : -1;
  out.edit = Joined(base.edit, edit);
  out.hypotheses = base.hypotheses;
  out.parents = base.parents;
  out.parents.push_back(base.weights);
  return out;
}

template <typename T>
Result<std::vector<T>> LogitsOf(const EditedReference& edited, const Evidence& evidence, size_t run,
                                ThreadPool& pool, int first, const EditedReference* base,
                                Stream* keep, bool all_ids) {
  const Evidence::Run& of = evidence.runs[run];
  const std::span<const int32_t> ids =
      all_ids ? std::span<const int32_t>() : std::span<const int32_t>(evidence.vocabulary);
  const Stream* stream = base == nullptr ? nullptr : &base->streams[run];
  if constexpr (std::is_same_v<T, float>) {
    const auto rounder = of.rounding ? of.rounding(*edited.weights) : nullptr;
    return Evaluate<T>(edited.spec, *edited.weights, pool, of.sequence, ids, edited.run, first,
                       stream, keep, rounder.get());
  }
  return Evaluate<T>(edited.spec, *edited.weights, pool, of.sequence, ids, edited.run, first,
                     stream, keep);
}
template Result<std::vector<float>> LogitsOf<float>(const EditedReference&, const Evidence&, size_t,
                                                    ThreadPool&, int, const EditedReference*,
                                                    Stream*, bool);
template Result<std::vector<double>> LogitsOf<double>(const EditedReference&, const Evidence&,
                                                      size_t, ThreadPool&, int,
                                                      const EditedReference*, Stream*, bool);

Status Settle(EditedReference& edited, const Evidence& evidence, ThreadPool& pool) {
  edited.streams.assign(evidence.runs.size(), {});
  edited.scores.clear();
  for (size_t run = 0; run < evidence.runs.size(); ++run) {
    LS_TRY(const std::vector<float> logits,
           LogitsOf<float>(edited, evidence, run, pool, -1, nullptr, &edited.streams[run]));
    edited.scores.push_back(ScoreOf(evidence, run, logits));
  }
  return {};
}

Result<double> NoiseOf(const EditedReference& edited, const Evidence& evidence, size_t run,
                       ThreadPool& pool) {
  const EvaluatedSequence& sequence = evidence.runs[run].sequence;
  LS_TRY(const std::vector<float> single,
         Evaluate<float>(edited.spec, *edited.weights, pool, sequence, evidence.vocabulary,
                         edited.run));
  LS_TRY(const std::vector<double> exact, LogitsOf<double>(edited, evidence, run, pool));
  double noise = 0;
  for (size_t i = 0; i < single.size(); ++i) {
    const double d = std::abs(static_cast<double>(single[i]) - exact[i]);
    if (!std::isfinite(d)) return std::numeric_limits<double>::infinity();
    noise = std::max(noise, d);
  }
  return noise;
}

Status MeasureNoise(const EditedReference& unedited, const DiagnoseOptions& options,
                    Evidence& evidence, ThreadPool& pool) {
  for (size_t r = 0; r < evidence.runs.size(); ++r) {
    Evidence::Run& run = evidence.runs[r];
    LS_TRY(run.noise, NoiseOf(unedited, evidence, r, pool));
    if (!std::isfinite(run.noise))
      return InputError(
          "prompt {}: the reference's own logits are no numbers; `lockstep inspect` finds "
          "weights that are damaged",
          run.name);
    const size_t trace = evidence.trace[r];
    if (trace < options.rounding.size()) run.rounding = options.rounding[trace];
    const double allowed = trace < options.allowed.size() ? options.allowed[trace] : 0;
    run.tolerance = std::max(options.least_tolerance, Tolerance(run.noise) + allowed);
  }
  return {};
}

}  // namespace lockstep
