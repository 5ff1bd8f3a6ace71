#include "verify/trials.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "spec/fields.h"
#include "verify/catalogue_edits.h"
#include "verify/compare.h"
#include "verify/systematic_edits.h"

namespace lockstep {
namespace {

// Below so many parameters an edit is evaluated by one thread, and several at once.
constexpr int64_t kSmallModel = 40'000'000;
// The search looks first at the cheapest runs, one at least, of no more tokens (small models: twice
// as many).
constexpr size_t kScreenTokens = 40;

}  // namespace

Trials::Trials(const Model& model, std::span<const PromptTrace> candidate,
               const DiagnoseOptions& options, ThreadPool& pool, const Progress& progress)
    : model_(model),
      candidate_(candidate),
      options_(options),
      pool_(pool),
      progress_(progress),
      start_(std::chrono::steady_clock::now()),
      deadline_(options.seconds) {
  int64_t parameters = 0;
  for (const int64_t n : CountParameters(model.spec)) parameters += n;
  small_ = parameters < kSmallModel;
}

Result<EditedReference> Trials::Begin() {
  LS_TRY(evidence_, GatherEvidence(model_.spec, candidate_));
  EditedReference root = Unedited(model_);
  LS_RETURN_IF_ERROR(MeasureNoise(root, options_, evidence_, pool_));
  LS_RETURN_IF_ERROR(Settle(root, evidence_, pool_));
  before_ = DistanceOf(root);
  return root;
}

Distance Trials::DistanceOf(const EditedReference& edited) const {
  Distance distance;
  double squares = 0;
  for (const RunScore& score : edited.scores) {
    distance.max_abs = std::max(distance.max_abs, score.max_abs);
    squares += score.squares;
  }
  distance.rms = std::sqrt(squares / static_cast<double>(evidence_.Positions()) /
                           static_cast<double>(evidence_.columns));
  distance.times_tolerance = edited.TimesTolerance();
  return distance;
}

void Trials::CollectHypotheses() {
  std::set<std::string> seen;
  const auto add = [&](std::vector<Hypothesis> more, bool all) {
    for (Hypothesis& hypothesis : more) {
      const auto spec = EditedSpec(model_.spec, hypothesis.edit);
      if (!spec) continue;
      Edit rest = hypothesis.edit;
      rest.spec.clear();
      const bool is_new = seen.insert(ToJson(*spec).dump() + ToString(rest)).second;
      if (is_new || all) hypotheses_.push_back(std::move(hypothesis));
    }
  };
  add(options_.audit, true);
  add(CatalogueEdits(model_.spec), true);
  if (options_.systematic) add(SystematicEdits(model_.spec), false);
}

std::vector<size_t> Trials::Of(Origin origin) const {
  std::vector<size_t> out;
  for (size_t i = 0; i < hypotheses_.size(); ++i)
    if (hypotheses_[i].origin == origin) out.push_back(i);
  return out;
}

std::vector<size_t> Trials::Screen(const EditedReference& node) const {
  std::vector<size_t> runs;
  size_t tokens = 0;
  for (size_t r = 0; r < evidence_.runs.size(); ++r) {
    if (node.scores[r].times_tolerance <= 1) continue;
    tokens += evidence_.runs[r].sequence.ids.size();
    if (!runs.empty() && tokens > (small_ ? 2 : 1) * kScreenTokens) break;
    runs.push_back(r);
  }
  return runs;
}

Result<std::vector<Trial>> Trials::Expand(const EditedReference& node, size_t node_index,
                                          std::span<const size_t> hypotheses, size_t keep) {
  const std::vector<size_t> screen = Screen(node);
  struct Outcome {
    double gain = -1e9;
    bool reaches = false;  // within the tolerance on the screen
  };
  std::vector<Outcome> outcomes(hypotheses.size());
  tried_ = 0;
  const std::string doing = fmt::format("trying {} edits", hypotheses.size());
  LS_RETURN_IF_ERROR(ForEach(hypotheses.size(), doing, [&](size_t i, ThreadPool& pool) {
    ++tried_;
    int first = -1;
    const auto edited = WithEdit(node, hypotheses_[hypotheses[i]].edit, first);
    if (!edited) return;
    double gain = 0, worst = 0;
    for (const size_t run : screen) {
      const auto logits = LogitsOf<float>(*edited, evidence_, run, pool, first, &node);
      if (!logits) return;
      const RunScore score = ScoreOf(evidence_, run, *logits);
      gain += (node.scores[run].log_rms - score.log_rms) / static_cast<double>(screen.size());
      worst = std::max(worst, score.times_tolerance);
    }
    outcomes[i] = {gain, worst <= kNearlyThere};
    ++evaluations_;
  }));
  std::vector<size_t> order;
  for (size_t i = 0; i < outcomes.size(); ++i)
    if (outcomes[i].gain > kLeastGain || outcomes[i].reaches) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return outcomes[a].gain > outcomes[b].gain; });
  if (order.size() > keep) order.resize(keep);
  std::vector<Trial> trials(order.size());
  LS_RETURN_IF_ERROR(
      ForEach(order.size(), "comparing the best edits", [&](size_t i, ThreadPool& pool) {
        Trial& trial = trials[i];
        trial.node = node_index;
        trial.hypothesis = hypotheses[order[i]];
        trial.gain = outcomes[order[i]].gain;
        int first = -1;
        auto edited = WithEdit(node, hypotheses_[trial.hypothesis].edit, first);
        if (!edited) return;
        edited->hypotheses.push_back(trial.hypothesis);
        for (size_t run = 0; run < evidence_.runs.size(); ++run) {
          const auto logits = LogitsOf<float>(*edited, evidence_, run, pool, first, &node);
          if (!logits) return;
          edited->scores.push_back(ScoreOf(evidence_, run, *logits));
        }
        trial.edited = std::move(edited);
        ++evaluations_;
      }));
  std::erase_if(trials, [](const Trial& trial) { return !trial.edited; });
  return trials;
}

Result<bool> Trials::Reaches(const EditedReference& edited) {
  if (edited.TimesTolerance() <= 1) return true;
  if (edited.TimesTolerance() > kNearlyThere || before_.max_abs == 0) return false;
  if (DistanceOf(edited).max_abs > 0.05 * before_.max_abs) return false;
  for (size_t run = 0; run < evidence_.runs.size(); ++run) {
    if (edited.scores[run].times_tolerance <= 1) continue;
    LS_TRY(const double noise, NoiseOf(edited, evidence_, run, pool_));
    if (!std::isfinite(noise) || !(edited.scores[run].max_abs <= Tolerance(noise))) return false;
  }
  return true;
}

Result<bool> Trials::Proven(const EditedReference& edited) {
  LS_TRY(const bool reaches, Reaches(edited));
  if (!reaches || evidence_.vocabulary.empty()) return reaches;
  for (size_t run = 0; run < evidence_.runs.size(); ++run) {
    LS_TRY(const auto logits,
           LogitsOf<float>(edited, evidence_, run, pool_, -1, nullptr, nullptr, true));
    const double worst = MaxOverAllIds(evidence_, run, candidate_[evidence_.trace[run]], logits);
    // More ids reach further into the tail of the same noise; not much further.
    if (worst > 2 * std::max(evidence_.runs[run].tolerance, edited.scores[run].max_abs))
      return false;
  }
  return true;
}

Result<std::optional<EditedReference>> Trials::Build(const EditedReference& root,
                                                     std::span<const size_t> hypotheses) {
  EditedReference node = root;
  for (const size_t h : hypotheses) {
    int first = -1;
    auto next = WithEdit(node, hypotheses_[h].edit, first);
    if (!next) return std::nullopt;
    next->hypotheses.push_back(h);
    node = *std::move(next);
  }
  LS_RETURN_IF_ERROR(Settle(node, evidence_, pool_));
  return node;
}

}  // namespace lockstep
