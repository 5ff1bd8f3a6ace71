#include "verify/diagnose.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "verify/bisect.h"
#include "verify/fit_number.h"
#include "verify/trials.h"

namespace lockstep {
namespace {

// With so many decades gained there is no need to look for something better before going on.
constexpr double kLargeGain = 0.7;

class Search : private Trials {
 public:
  using Trials::Trials;

  Result<Diagnosis> Run() {
    LS_TRY(EditedReference root, Begin());
    out_.positions = evidence_.Positions();
    for (const Evidence::Run& run : evidence_.runs)
      if (run.tolerance > out_.tolerance) {
        out_.noise = run.noise;
        out_.tolerance = run.tolerance;
      }
    out_.before = out_.after = before_;
    LS_TRY(const bool same, Proven(root));
    if (same) {
      out_.sentence = fmt::format(
          "the reference gives the candidate's logits at all {} compared positions (max |Δ| "
          "{:.1e}, "
          "{:.2g} times the tolerance)",
          out_.positions, out_.before.max_abs, out_.before.times_tolerance);
      return Finish();
    }
    LS_RETURN_IF_ERROR(FindFirst(root));
    CollectHypotheses();
    LS_TRY(std::optional<EditedReference> seen, AllThatWasSeen(root));
    std::optional<EditedReference> found;
    if (seen) {
      LS_TRY(const bool proven, Proven(*seen));
      if (proven) found = seen;
    }
    for (const bool thorough : {false, true}) {
      if (found) break;
      LS_TRY(found, FindEdits(root, seen, thorough));
      if (found || OutOfTime()) break;
      if (!thorough) {
        LS_TRY(found, FitNumbers(*this, root));
      }
      if (found) break;
    }
    if (found)
      LS_RETURN_IF_ERROR(Explain(root, *std::move(found)));
    else
      LS_RETURN_IF_ERROR(Unexplained(root));
    return Finish();
  }

 private:
  // --- Bookkeeping ---

  Diagnosis Finish() {
    out_.hypotheses = static_cast<int64_t>(hypotheses_.size());
    out_.evaluations = evaluations_;
    out_.out_of_time = Seconds() > options_.seconds;
    out_.seconds = Seconds();
    return std::move(out_);
  }

  // --- Searching ---

  // What a static look at the candidate saw, all of it at once: several faults together are the
  // rule, and then no one of them need lower the residual. What does nothing here is left out.
  Result<std::optional<EditedReference>> AllThatWasSeen(const EditedReference& root) {
    std::vector<size_t> seen;
    EditedReference node = root;
    for (const size_t h : Of(Origin::kAudit)) {
      int first = -1;
      auto next = WithEdit(node, hypotheses_[h].edit, first);
      if (!next) continue;
      seen.push_back(h);
      node = *std::move(next);
    }
    if (seen.empty()) return std::nullopt;
    return Build(root, seen);
  }

  // Eager: goes on with what lowers the residual much, and tries the rest only where nothing does.
  // Thorough: everything at every step, from more beginnings. `seen`: all that an audit saw, from
  // which it begins as well where that is nearer; the rest may be one fault more.
  Result<std::optional<EditedReference>> FindEdits(const EditedReference& root,
                                                   const std::optional<EditedReference>& seen,
                                                   bool thorough) {
    std::vector<EditedReference> beam(1, root);
    if (seen && seen->hypotheses.size() > 1 && Lower(DistanceOf(*seen), out_.before))
      beam.push_back(*seen);
    const size_t width = thorough ? 12 : 4;
    const size_t keep = IsSmall() ? (thorough ? 40 : 24) : 8;
    for (int depth = 1; depth <= options_.max_edits && !OutOfTime(); ++depth) {
      std::vector<Trial> trials;
      for (const Origin origin :
           {Origin::kAudit, Origin::kCatalogue, Origin::kSystematic, Origin::kSingle}) {
        std::vector<size_t> hypotheses = Of(origin);
        if (depth == 1 && !thorough && origin >= Origin::kSystematic) KeepThoseAt(root, hypotheses);
        double best = 0;
        for (size_t n = 0; n < beam.size() && !hypotheses.empty(); ++n) {
          LS_TRY(std::vector<Trial> more, Expand(beam[n], n, hypotheses, keep));
          LS_TRY(std::optional<EditedReference> found, FirstProven(more));
          if (found) return found;
          std::move(more.begin(), more.end(), std::back_inserter(trials));
        }
        for (const Trial& trial : trials)
          best = std::max(best, beam[trial.node].LogRms() - trial.edited->LogRms());
        if (!thorough && best >= kLargeGain) break;
        // One layer alone, on top of other edits: only when there is nothing else.
        if (depth > 1 && origin == Origin::kSystematic && (best > 0.1 || !IsSmall())) break;
      }
      Remember(trials);
      beam = NextBeam(beam, std::move(trials), width);
      if (beam.empty()) break;
      for (EditedReference& node : beam) LS_RETURN_IF_ERROR(Settle(node, evidence_, pool_));
    }
    return std::nullopt;
  }

  // Where the first differing tap is known, a cause begins there. Others may begin later, so that
  // what is not generated is tried all the same.
  void KeepThoseAt(const EditedReference& root, std::vector<size_t>& hypotheses) const {
    if (!first_layer_) return;
    std::erase_if(hypotheses, [&](size_t h) {
      int first = -1;
      if (!WithEdit(root, hypotheses_[h].edit, first)) return true;
      const bool of_run = !hypotheses_[h].edit.run.empty();
      return !of_run && first != *first_layer_;
    });
  }

  // The one that reaches the noise; among several the first origin, then the fewest changes.
  Result<std::optional<EditedReference>> FirstProven(std::vector<Trial>& trials) {
    std::vector<size_t> order;
    for (size_t i = 0; i < trials.size(); ++i)
      if (trials[i].edited->TimesTolerance() <= kNearlyThere) order.push_back(i);
    const auto key = [&](size_t i) {
      const Trial& trial = trials[i];
      return std::tuple{hypotheses_[trial.hypothesis].origin, trial.edited->TimesTolerance() > 1,
                        JoinLayers(Diff(model_.spec, trial.edited->spec)).size(), trial.hypothesis};
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(a) < key(b); });
    for (const size_t i : order) {
      LS_TRY(const bool proven, Proven(*trials[i].edited));
      if (proven) return std::optional(std::move(*trials[i].edited));
    }
    return std::nullopt;
  }

  // The best of the trials that lower their node's residual, of different effect.
  std::vector<EditedReference> NextBeam(const std::vector<EditedReference>& beam,
                                        std::vector<Trial> trials, size_t width) const {
    std::erase_if(trials, [&](const Trial& trial) {
      return beam[trial.node].LogRms() - trial.edited->LogRms() < kLeastGain;
    });
    std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
      return a.edited->LogRms() < b.edited->LogRms();
    });
    std::vector<EditedReference> next;
    for (Trial& trial : trials) {
      if (next.size() == width) break;
      const auto alike = [&](const EditedReference& other) {
        return std::abs(other.LogRms() - trial.edited->LogRms()) < 1e-3;
      };
      if (std::none_of(next.begin(), next.end(), alike)) next.push_back(std::move(*trial.edited));
    }
    return next;
  }

  // What is told as near when nothing explains the candidate takes a fifth of the residual away at
  // least: less is what any change does by chance.
  static bool Nearer(const Distance& a, const Distance& b) {
    return Lower(a, b) && a.rms <= 0.8 * b.rms && a.times_tolerance < b.times_tolerance;
  }

  // What lowers one of the two and raises the other has come no nearer.
  static bool Lower(const Distance& a, const Distance& b) {
    return a.rms < b.rms && a.max_abs <= b.max_abs;
  }

  void Remember(const std::vector<Trial>& trials) {
    for (const Trial& trial : trials) {
      if (nearest_ && nearest_->LogRms() <= trial.edited->LogRms()) continue;
      if (!Lower(DistanceOf(*trial.edited), out_.before)) continue;
      nearest_ = *trial.edited;
    }
  }

  // --- Telling ---

  Status FindFirst(const EditedReference& root) {
    // In the order in which the candidate's runs were given.
    std::vector<size_t> order(evidence_.runs.size());
    for (size_t r = 0; r < order.size(); ++r) order[r] = r;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return evidence_.trace[a] < evidence_.trace[b]; });
    for (const size_t r : order) {
      if (root.scores[r].times_tolerance <= 1) continue;
      LS_TRY(const auto logits, LogitsOf<float>(root, evidence_, r, pool_));
      const Evidence::Run& run = evidence_.runs[r];
      for (size_t p = 0; p < run.steps.size(); ++p) {
        const double worst = MaxAt(evidence_, r, p, logits);
        if (worst <= run.tolerance) continue;
        out_.first = {run.name, run.steps[p], run.sequence.positions[p], worst, {}, {}};
        break;
      }
      break;
    }
    if (!out_.first) return {};
    LS_TRY(out_.first->tap, FirstDifferentTap(model_, candidate_, pool_, options_.rounding,
                                              options_.least_tolerance));
    if (const auto& run = options_.decoding; run && !out_.first->tap) {
      LS_TRY(out_.first->tap, FirstDifferentTap(model_, std::span(&run->trace, 1), pool_,
                                                run->rounding ? std::span(&run->rounding, 1)
                                                              : std::span<const RounderFor>(),
                                                options_.least_tolerance));
      out_.first->decoding = out_.first->tap.has_value();
    }
    if (const auto& tap = out_.first->tap) {
      // After the last layer nothing is known: recordings lack that layer's own output.
      if (tap->tap == Tap::kEmbedding) first_layer_ = -1;
      if (InfoOf(tap->tap).per_layer) first_layer_ = tap->layer;
    }
    return {};
  }

  Cause CauseOf(const EditedReference& before, const EditedReference& after, size_t hypothesis) {
    std::vector<FieldDifference> changes = JoinLayers(Diff(before.spec, after.spec));
    for (FieldDifference& change : Diff(before.run, after.run)) {
      change.path = "run." + change.path;
      changes.push_back(std::move(change));
    }
    return {hypotheses_[hypothesis], std::move(changes), DistanceOf(after)};
  }

  // The one first that lowers the residual most, then the one that does so beside it, and so on.
  Status SortByGain(const EditedReference& root, std::vector<size_t>& chosen) {
    for (size_t done = 0; done + 1 < chosen.size(); ++done) {
      size_t best = done;
      double least = INFINITY;
      for (size_t i = done; i < chosen.size(); ++i) {
        if (OutOfTime()) return {};  // as they were found
        std::vector<size_t> tried(chosen.begin(), chosen.begin() + static_cast<int64_t>(done));
        tried.push_back(chosen[i]);
        LS_TRY(const auto node, Build(root, tried));
        if (!node || !(node->LogRms() < least)) continue;
        least = node->LogRms();
        best = i;
      }
      std::swap(chosen[done], chosen[best]);
    }
    return {};
  }

  // Without what is not needed, in the order in which the residual falls most.
  Status Explain(const EditedReference& root, EditedReference found) {
    std::vector<size_t> chosen = found.hypotheses;
    for (size_t i = 0; i < chosen.size() && chosen.size() > 1;) {
      std::vector<size_t> without = chosen;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      LS_TRY(const auto fewer, Build(root, without));
      bool proven = false;
      if (fewer) {
        LS_TRY(proven, Proven(*fewer));
      }
      if (proven)
        chosen = std::move(without);
      else
        ++i;
    }
    LS_RETURN_IF_ERROR(SortByGain(root, chosen));
    LS_TRY(auto whole, Build(root, chosen));
    // Dropping changes nothing that the set was proven with; its own order builds again.
    LS_CHECK(whole, "{} edits no longer apply", chosen.size());
    out_.verdict = DiagnosisVerdict::kExplained;
    out_.edit = whole->edit;
    out_.after = DistanceOf(*whole);
    EditedReference before = root;
    for (size_t i = 0; i < chosen.size(); ++i) {
      LS_TRY(auto after, Build(root, std::span(chosen).first(i + 1)));
      out_.causes.push_back(CauseOf(before, *after, chosen[i]));
      before = *std::move(after);
    }
    out_.sentence = fmt::format(
        "{} of the reference reproduce{} the candidate at all {} compared positions: max |Δ| "
        "{:.2e} falls to {:.1e}, {:.2g} times the tolerance",
        chosen.size() == 1 ? "one edit" : fmt::format("{} edits together", chosen.size()),
        chosen.size() == 1 ? "s" : "", out_.positions, out_.before.max_abs, out_.after.max_abs,
        out_.after.times_tolerance);
    return FindAlternatives(root, chosen);
  }

  // Everything that could take the place of one of the causes, and the best that cannot. Known
  // faults first: where time is short the others are told to be untried.
  Status FindAlternatives(const EditedReference& root, const std::vector<size_t>& chosen) {
    deadline_ = std::min(options_.seconds, Seconds() * 2 + 3);
    for (const bool known : {true, false}) {
      for (size_t i = 0; i < chosen.size(); ++i) {
        std::vector<size_t> others = chosen;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
        std::vector<size_t> hypotheses;
        for (size_t h = 0; h < hypotheses_.size(); ++h)
          if (h != chosen[i] && (hypotheses_[h].origin <= Origin::kCatalogue) == known &&
              (IsSmall() || hypotheses_[h].origin <= Origin::kSystematic))
            hypotheses.push_back(h);
        out_.alternatives += static_cast<int64_t>(hypotheses.size());
        if (OutOfTime() || hypotheses.empty()) continue;
        LS_TRY(const auto base, Build(root, others));
        if (!base) continue;
        LS_TRY(std::vector<Trial> trials, Expand(*base, 0, hypotheses, 16));
        out_.alternatives_tried += static_cast<int64_t>(tried_);
        for (Trial& trial : trials) LS_RETURN_IF_ERROR(Compare(i, trial));
      }
    }
    return {};
  }

  // What an audit saw may be a known fault by another spelling: then it gets that fault's name.
  bool NamesTheSame(size_t cause, const Hypothesis& known) {
    Hypothesis& hypothesis = out_.causes[cause].hypothesis;
    const auto facts_alone = [](const Edit& e) { return e.weights.empty(); };
    if (!facts_alone(known.edit) || !facts_alone(hypothesis.edit)) return false;
    if (!(known.edit.run == hypothesis.edit.run)) return false;
    const auto a = EditedSpec(model_.spec, known.edit);
    const auto b = EditedSpec(model_.spec, hypothesis.edit);
    if (!a || !b || *a != *b) return false;
    if (hypothesis.id.empty()) hypothesis.id = known.id;
    return true;
  }

  Status Compare(size_t cause, const Trial& trial) {
    const Alternative alternative{cause, hypotheses_[trial.hypothesis], DistanceOf(*trial.edited)};
    LS_TRY(const bool same, Reaches(*trial.edited));
    if (same && NamesTheSame(cause, alternative.hypothesis)) return {};
    if (same)
      out_.indistinguishable.push_back(alternative);
    else if (trial.gain > kLeastGain &&  // does something, but not enough
             (!out_.runner_up || alternative.distance.rms < out_.runner_up->distance.rms))
      out_.runner_up = alternative;
    return {};
  }

  Status Unexplained(const EditedReference& root) {
    out_.verdict = DiagnosisVerdict::kUnexplained;
    if (nearest_) {
      EditedReference before = root;
      std::vector<size_t> kept;  // those of them that bring the two nearer
      for (const size_t h : nearest_->hypotheses) {
        kept.push_back(h);
        LS_TRY(auto after, Build(root, kept));
        if (!after || !Nearer(DistanceOf(*after), DistanceOf(before))) {
          kept.pop_back();
          continue;
        }
        out_.nearest.push_back(CauseOf(before, *after, h));
        before = *std::move(after);
      }
      out_.after = DistanceOf(before);
      out_.edit = before.edit;
    }
    out_.sentence = fmt::format(
        "none of {} edits, alone or up to {} together, reproduces the candidate{}: max |Δ| {:.2e}, "
        "{:.2g} times the tolerance{}{}",
        hypotheses_.size(), options_.max_edits,
        OutOfTime() ? " in the time given (not all were tried)" : "", out_.before.max_abs,
        out_.before.times_tolerance,
        out_.nearest.empty() ? ""
                             : fmt::format("; the nearest leave {:.2g} times the tolerance",
                                           out_.after.times_tolerance),
        !out_.first || !out_.first->tap
            ? ""
            : fmt::format("; the first that differs inside is {}{}",
                          TapName(out_.first->tap->tap, out_.first->tap->layer),
                          out_.first->decoding ? ", when tokens are fed one by one behind what is "
                                                 "cached (in the prompt's own call all agrees)"
                                               : ""));
    return {};
  }

  std::optional<EditedReference> nearest_;
  std::optional<int> first_layer_;
  Diagnosis out_;
};

}  // namespace

std::string_view DiagnosisVerdictName(DiagnosisVerdict verdict) {
  switch (verdict) {
    case DiagnosisVerdict::kMatch:
      return "match";
    case DiagnosisVerdict::kExplained:
      return "explained";
    case DiagnosisVerdict::kUnexplained:
      return "unexplained";
  }
  return "";
}

Result<Diagnosis> Diagnose(const Model& reference, std::span<const PromptTrace> candidate,
                           const DiagnoseOptions& options, ThreadPool& pool,
                           const Progress& progress) {
  return Search(reference, candidate, options, pool, progress).Run();
}

}  // namespace lockstep
