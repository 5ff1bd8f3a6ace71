#include "verify/diagnose.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>
#include <tuple>

#include "verify/bisect.h"
#include "verify/catalogue_edits.h"
#include "verify/compare.h"
#include "verify/edited_reference.h"
#include "verify/evidence.h"
#include "verify/systematic_edits.h"

namespace lockstep {
namespace {

// Below so many parameters an edit is evaluated by one thread, and several at once.
constexpr int64_t kSmallModel = 40'000'000;
// A step of the search must lower the residual by this many decades to count as one.
constexpr double kLeastGain = 0.01;
// With so many decades gained there is no need to look for something better before going on.
constexpr double kLargeGain = 0.7;
// An edit may amplify rounding: its own noise is measured where it comes this close.
constexpr double kNearlyThere = 50;
// The search looks first at the cheapest runs that hold this many tokens.
constexpr size_t kScreenTokens = 40;

struct Trial {
  size_t node = 0, hypothesis = 0;
  double gain = 0;                        // decades of the screen's residual
  std::optional<EditedReference> edited;  // scored on every run
};

class Search {
 public:
  Search(const Model& model, std::span<const PromptTrace> candidate, const DiagnoseOptions& options,
         ThreadPool& pool, const Progress& progress)
      : model_(model),
        candidate_(candidate),
        options_(options),
        pool_(pool),
        progress_(progress),
        start_(std::chrono::steady_clock::now()),
        deadline_(options.seconds) {}

  Result<Diagnosis> Run() {
    LS_TRY(evidence_, GatherEvidence(model_.spec, candidate_));
    EditedReference root = Unedited(model_);
    LS_RETURN_IF_ERROR(MeasureNoise(root, options_.allowed, evidence_, pool_));
    LS_RETURN_IF_ERROR(Settle(root, evidence_, pool_));
    out_.positions = evidence_.Positions();
    for (const Evidence::Run& run : evidence_.runs)
      if (run.tolerance > out_.tolerance) {
        out_.noise = run.noise;
        out_.tolerance = run.tolerance;
      }
    out_.before = DistanceOf(root);
    out_.after = out_.before;
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
    std::optional<EditedReference> found;
    for (const bool thorough : {false, true}) {
      LS_TRY(found, FindEdits(root, thorough));
      if (found || OutOfTime()) break;
      if (!thorough) {
        LS_TRY(found, FitNumbers(root));
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

  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  bool OutOfTime() const { return Seconds() > deadline_; }

  Diagnosis Finish() {
    out_.hypotheses = static_cast<int64_t>(hypotheses_.size());
    out_.evaluations = evaluations_;
    out_.out_of_time = Seconds() > options_.seconds;
    out_.seconds = Seconds();
    return std::move(out_);
  }

  Distance DistanceOf(const EditedReference& edited) const {
    Distance distance;
    double squares = 0;
    for (const RunScore& score : edited.scores) {
      distance.max_abs = std::max(distance.max_abs, score.max_abs);
      squares += score.squares;
    }
    distance.rms = std::sqrt(squares / static_cast<double>(out_.positions) /
                             static_cast<double>(evidence_.columns));
    distance.times_tolerance = edited.TimesTolerance();
    return distance;
  }

  // Of those that edit the model alike the first is kept, but every known fault has its name.
  void CollectHypotheses() {
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

  std::vector<size_t> Of(Origin origin) const {
    std::vector<size_t> out;
    for (size_t i = 0; i < hypotheses_.size(); ++i)
      if (hypotheses_[i].origin == origin) out.push_back(i);
    return out;
  }

  // --- Trying ---

  bool IsSmall() const {
    if (!small_) {
      int64_t parameters = 0;
      for (const int64_t n : CountParameters(model_.spec)) parameters += n;
      small_ = parameters < kSmallModel;
    }
    return *small_;
  }

  // The cheapest runs on which `node` is not yet right.
  std::vector<size_t> Screen(const EditedReference& node) const {
    std::vector<size_t> runs;
    size_t tokens = 0;
    for (size_t r = 0; r < evidence_.runs.size() && tokens < kScreenTokens; ++r) {
      if (node.scores[r].times_tolerance <= 1) continue;
      runs.push_back(r);
      tokens += evidence_.runs[r].sequence.ids.size();
    }
    return runs;
  }

  // Calls fn(i, pool) for every i, as this model is best computed.
  template <typename Fn>
  Status ForEach(size_t n, std::string_view doing, const Fn& fn) {
    if (!progress_(doing, 0, static_cast<int64_t>(n))) return tl::unexpected(Interrupted());
    if (IsSmall()) {
      pool_.For(n, [&](size_t i) {
        if (OutOfTime()) return;
        ThreadPool alone(1);
        fn(i, alone);
      });
      return {};
    }
    for (size_t i = 0; i < n && !OutOfTime(); ++i) {
      if (!progress_(doing, static_cast<int64_t>(i), static_cast<int64_t>(n)))
        return tl::unexpected(Interrupted());
      fn(i, pool_);
    }
    return {};
  }

  // Every hypothesis on top of `node`, on the screen; the most promising on every run.
  Result<std::vector<Trial>> Expand(const EditedReference& node, size_t node_index,
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

  // Within the tolerance on every run; where the edit amplifies rounding, within its own.
  Result<bool> Reaches(const EditedReference& edited) {
    if (edited.TimesTolerance() <= 1) return true;
    if (edited.TimesTolerance() > kNearlyThere || out_.before.max_abs == 0) return false;
    if (DistanceOf(edited).max_abs > 0.05 * out_.before.max_abs) return false;
    for (size_t run = 0; run < evidence_.runs.size(); ++run) {
      if (edited.scores[run].times_tolerance <= 1) continue;
      LS_TRY(const auto single, LogitsOf<float>(edited, evidence_, run, pool_));
      LS_TRY(const auto exact, LogitsOf<double>(edited, evidence_, run, pool_));
      double noise = 0;
      for (size_t i = 0; i < single.size(); ++i)
        noise = std::max(noise, std::abs(static_cast<double>(single[i]) - exact[i]));
      if (!(edited.scores[run].max_abs <= Tolerance(noise))) return false;
    }
    return true;
  }

  // The same over every id of the vocabulary.
  Result<bool> Proven(const EditedReference& edited) {
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

  // --- Searching ---

  // Eager: goes on with what lowers the residual much, and tries the rest only where nothing does.
  // Thorough: everything at every step, from more beginnings.
  Result<std::optional<EditedReference>> FindEdits(const EditedReference& root, bool thorough) {
    std::vector<EditedReference> beam(1, root);
    const size_t width = thorough ? 12 : 4;
    const size_t keep = IsSmall() ? (thorough ? 40 : 24) : 8;
    for (int depth = 1; depth <= options_.max_edits && !OutOfTime(); ++depth) {
      std::vector<Trial> trials;
      for (const Origin origin :
           {Origin::kAudit, Origin::kCatalogue, Origin::kSystematic, Origin::kSingle}) {
        std::vector<size_t> hypotheses = Of(origin);
        if (depth == 1 && !thorough) KeepThoseAt(root, hypotheses);
        double best = 0;
        for (size_t n = 0; n < beam.size() && !hypotheses.empty(); ++n) {
          LS_TRY(std::vector<Trial> more, Expand(beam[n], n, hypotheses, keep));
          std::move(more.begin(), more.end(), std::back_inserter(trials));
        }
        LS_TRY(std::optional<EditedReference> found, FirstProven(trials));
        if (found) return found;
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

  // --- Numbers that nobody would guess ---

  // The same edit with another number in it.
  static Edit WithNumber(Edit edit, const std::string& number) {
    for (FieldEdit& field : edit.spec) field.value = number;
    return edit;
  }
  static std::string NumberText(double x) { return Json(x).dump(); }

  struct Fit {
    double log_rms = 1e9, times_tolerance = 1e9;
  };
  Fit TryNumber(const EditedReference& root, const std::vector<size_t>& screen, const Edit& edit,
                double x, ThreadPool& pool) {
    int first = -1;
    const auto edited = WithEdit(root, WithNumber(edit, NumberText(x)), first);
    if (!edited) return {};
    Fit fit{0, 0};
    for (const size_t run : screen) {
      const auto logits = LogitsOf<float>(*edited, evidence_, run, pool, first, &root);
      if (!logits) return {};
      const RunScore score = ScoreOf(evidence_, run, *logits);
      fit.log_rms += score.log_rms;
      fit.times_tolerance = std::max(fit.times_tolerance, score.times_tolerance);
    }
    ++evaluations_;
    return fit;
  }

  // A number of the model that edits replace, and its value.
  struct NumberField {
    Edit edit;
    double value = 0;
  };
  // Absent where the edit does anything else.
  std::optional<NumberField> NumberOf(const Edit& edit) const {
    if (edit.spec.empty() || !edit.run.empty() || !edit.weights.empty()) return std::nullopt;
    for (const FieldEdit& field : edit.spec)
      if (field.value != edit.spec.front().value) return std::nullopt;
    const auto number = ParseJson(edit.spec.front().value, edit.spec.front().path);
    if (!number || !number->is_number_float()) return std::nullopt;
    // Of several layers the first one's.
    std::string path = edit.spec.front().path;
    if (const size_t open = path.find('['); open != std::string::npos) {
      const size_t end = path.find_first_not_of("0123456789", open + 1);
      const std::string layer = path[open + 1] == '*' ? "0" : path.substr(open + 1, end - open - 1);
      path = path.substr(0, open + 1) + layer + path.substr(path.find(']'));
    }
    const auto value = GetField(model_.spec, path);
    if (!value || !value->is_number() || value->get<double>() <= 0) return std::nullopt;
    return NumberField{edit, value->get<double>()};
  }

  // Every number by itself: those of which a little more or a little less helps most are fitted,
  // coarsely over two decades, then by golden section, as the residual is least at one place and
  // grows away from it. What is found joins the hypotheses.
  Result<std::optional<EditedReference>> FitNumbers(const EditedReference& root) {
    constexpr size_t kFields = 4;
    constexpr double kLittle = 1.02;
    std::vector<NumberField> fields;
    std::set<std::string> paths;
    for (const Hypothesis& hypothesis : hypotheses_) {
      if (!IsSmall() && hypothesis.origin == Origin::kSingle) continue;
      auto field = NumberOf(hypothesis.edit);
      if (!field) continue;
      std::string path;
      for (const FieldEdit& edit : field->edit.spec) path += edit.path + ";";
      if (paths.insert(path).second) fields.push_back(*std::move(field));
    }
    const std::vector<size_t> screen = Screen(root);
    double before = 0;
    for (const size_t run : screen) before += root.scores[run].log_rms;
    std::vector<double> gains(fields.size(), 0.0);
    LS_RETURN_IF_ERROR(ForEach(fields.size(), "fitting numbers", [&](size_t i, ThreadPool& pool) {
      for (const double factor : {kLittle, 1 / kLittle})
        gains[i] = std::max(
            gains[i],
            before -
                TryNumber(root, screen, fields[i].edit, fields[i].value * factor, pool).log_rms);
    }));
    std::vector<size_t> order(fields.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return gains[a] > gains[b]; });
    for (size_t i = 0; i < std::min(kFields, order.size()) && !OutOfTime(); ++i) {
      if (gains[order[i]] <= 0) break;
      LS_TRY(auto fitted, FitNumber(root, fields[order[i]].edit, fields[order[i]].value));
      if (fitted) return fitted;
    }
    return std::nullopt;
  }

  Result<std::optional<EditedReference>> FitNumber(const EditedReference& root, const Edit& edit,
                                                   double around) {
    const std::vector<size_t> screen = Screen(root);
    constexpr size_t kCoarse = 33;
    const double step = std::log(10.0) / 16;
    const auto number = [&](double i) {
      return around * std::exp((i - static_cast<double>(kCoarse / 2)) * step);
    };
    std::vector<Fit> coarse(kCoarse);
    LS_RETURN_IF_ERROR(ForEach(kCoarse, "fitting a number", [&](size_t i, ThreadPool& pool) {
      coarse[i] = TryNumber(root, screen, edit, number(static_cast<double>(i)), pool);
    }));
    const auto best =
        std::min_element(coarse.begin(), coarse.end(),
                         [](const Fit& a, const Fit& b) { return a.log_rms < b.log_rms; });
    const auto at = [&](double i) {
      return TryNumber(root, screen, edit, number(i), pool_).log_rms;
    };
    double low = static_cast<double>(best - coarse.begin()) - 1, high = low + 2;
    const double golden = (std::sqrt(5.0) - 1) / 2;
    double a = high - golden * (high - low), b = low + golden * (high - low);
    double at_a = at(a), at_b = at(b);
    for (int i = 0; i < 48 && !OutOfTime(); ++i) {
      if (!progress_("fitting a number", i, 48)) return tl::unexpected(Interrupted());
      if (at_a < at_b) {
        high = b, b = a, at_b = at_a;
        at_a = at(a = high - golden * (high - low));
      } else {
        low = a, a = b, at_a = at_b;
        at_b = at(b = low + golden * (high - low));
      }
    }
    // The shortest number that does as well.
    double x = number((low + high) / 2);
    for (int digits = 1; digits < 9; ++digits) {
      const double rounded = std::strtod(fmt::format("{:.{}g}", x, digits).c_str(), nullptr);
      if (TryNumber(root, screen, edit, rounded, pool_).times_tolerance > 1) continue;
      x = rounded;
      break;
    }
    hypotheses_.push_back({WithNumber(edit, NumberText(x)), Origin::kSystematic, "",
                           "another number, fitted to the candidate"});
    const size_t last = hypotheses_.size() - 1;
    LS_TRY(auto fitted, Build(root, std::span(&last, 1)));
    if (!fitted) return std::nullopt;
    LS_TRY(const bool proven, Proven(*fitted));
    if (!proven) return std::nullopt;
    return fitted;
  }

  // Where the first differing tap is known, the first cause begins there or before.
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

  void Remember(const std::vector<Trial>& trials) {
    for (const Trial& trial : trials) {
      if (nearest_ && nearest_->LogRms() <= trial.edited->LogRms()) continue;
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
        out_.first = {run.name, run.steps[p], run.sequence.positions[p], worst, {}};
        break;
      }
      break;
    }
    if (!out_.first) return {};
    LS_TRY(out_.first->tap, FirstDifferentTap(model_, candidate_, pool_));
    if (const auto& tap = out_.first->tap) {
      const auto layers = static_cast<int>(model_.spec.layers.size());
      first_layer_ = tap->tap == Tap::kEmbedding  ? -1
                     : InfoOf(tap->tap).per_layer ? tap->layer
                                                  : layers;
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

  // The reference with these hypotheses in this order, scored; absent where one does not apply.
  Result<std::optional<EditedReference>> Build(const EditedReference& root,
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

  Status Compare(size_t cause, const Trial& trial) {
    const Alternative alternative{cause, hypotheses_[trial.hypothesis], DistanceOf(*trial.edited)};
    LS_TRY(const bool same, Reaches(*trial.edited));
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
      const std::vector<size_t> chosen = nearest_->hypotheses;
      for (size_t i = 0; i < chosen.size(); ++i) {
        LS_TRY(auto after, Build(root, std::span(chosen).first(i + 1)));
        if (!after) break;
        out_.nearest.push_back(CauseOf(before, *after, chosen[i]));
        before = *std::move(after);
      }
      out_.after = DistanceOf(before);
      out_.edit = before.edit;
    }
    out_.sentence = fmt::format(
        "none of {} edits, alone or up to {} together, reproduces the candidate{}: max |Δ| {:.2e}, "
        "{:.2g} times the tolerance{}",
        hypotheses_.size(), options_.max_edits,
        OutOfTime() ? " in the time given (not all were tried)" : "", out_.before.max_abs,
        out_.before.times_tolerance,
        out_.nearest.empty() ? "" : fmt::format("; the nearest leave {:.2e}", out_.after.max_abs));
    return {};
  }

  const Model& model_;
  const std::span<const PromptTrace> candidate_;
  const DiagnoseOptions& options_;
  ThreadPool& pool_;
  const Progress& progress_;
  const std::chrono::steady_clock::time_point start_;
  double deadline_;  // in Seconds()
  Evidence evidence_;
  std::vector<Hypothesis> hypotheses_;
  std::optional<EditedReference> nearest_;
  std::optional<int> first_layer_;
  mutable std::optional<bool> small_;
  std::atomic<int64_t> evaluations_ = 0, tried_ = 0;  // all; of the last Expand
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
