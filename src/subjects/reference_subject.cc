#include "subjects/reference_subject.h"

#include <algorithm>
#include <cmath>

#include "model/apply_edit.h"
#include "subjects/reference_passages.h"
#include "subjects/text_side.h"
#include "verify/compare.h"

namespace lockstep {
namespace {

// Tokens of a prompt per call: often enough for Ctrl-C and progress, rarely enough that decoding
// the weights once per call costs little.
constexpr size_t kPrefillChunk = 128;

// Keeps the rows of the taps that a probe asks for.
template <typename T>
class Recorder : public TapSink<T> {
 public:
  Recorder(const Probe& probe, int num_layers) : probe_(probe), num_layers_(num_layers) {}

  bool wants_any() const { return probe_.hidden || !probe_.taps.empty(); }

  bool Wants(Tap tap, int layer) const override {
    return IsHidden(tap, layer) || IsAsked(tap, layer);
  }

  void Put(Tap tap, int layer, int64_t, MatrixView<const T> rows) override {
    for (size_t r = 0; r < rows.rows; ++r)
      rows_[{tap, layer}].Append(rows.row(r).data(), 1, rows.cols);
  }

  void Finish(PromptTrace& out) {
    if (probe_.hidden) {
      // The layers' outputs, but the last one after the final norm, as transformers reports them.
      std::vector<T> all;
      int64_t positions = 0, columns = 0;
      const auto append = [&](Tap tap, int layer) {
        const TraceTensor tensor = TraceRows<T>(rows_[{tap, layer}]).Take();
        positions = tensor.shape[0];
        columns = tensor.shape[1];
        const auto& values = std::get<std::vector<T>>(tensor.values);
        all.insert(all.end(), values.begin(), values.end());
      };
      append(Tap::kEmbedding, -1);
      for (int layer = 0; layer + 1 < num_layers_; ++layer) append(Tap::kOutput, layer);
      append(Tap::kFinalNorm, -1);
      out.hidden = TraceTensor{{num_layers_ + 1, positions, columns}, std::move(all)};
    }
    for (auto& [place, rows] : rows_)
      if (IsAsked(place.first, place.second))
        out.taps[TapName(place.first, place.second)] = std::move(rows).Take();
  }

 private:
  bool IsHidden(Tap tap, int layer) const {
    return probe_.hidden && (tap == Tap::kEmbedding || tap == Tap::kFinalNorm ||
                             (tap == Tap::kOutput && layer + 1 < num_layers_));
  }
  // A layer of -1 in a per-layer tap asks for every layer. The logits are recorded as such.
  bool IsAsked(Tap tap, int layer) const {
    return tap != Tap::kLogits &&
           std::any_of(probe_.taps.begin(), probe_.taps.end(), [&](const TapPlace& place) {
             return place.tap == tap && (place.layer == layer || place.layer == -1);
           });
  }

  const Probe& probe_;
  const int num_layers_;
  std::map<std::pair<Tap, int>, TraceRows<T>> rows_;
};

template <typename T>
std::vector<double> ToDoubles(std::span<const T> row) {
  return {row.begin(), row.end()};
}

// A run of one probe on one interpreter, call by call.
template <typename T>
class ProbeRun {
 public:
  ProbeRun(Interpreter<T>& interpreter, const Probe& probe, const Progress& progress,
           std::string_view doing, const Rounder<T>* rounder = nullptr)
      : interpreter_(interpreter),
        probe_(probe),
        progress_(progress),
        doing_(doing),
        rounder_(rounder),
        sequence_(interpreter.NewSequence()),
        whole_(DependsOnCallLength(interpreter.spec()) || interpreter.run().DependsOnCalls() ||
               interpreter.run().chunk_size) {}

  // The prompt; afterwards last_row() is the end of the prompt.
  Status Prompt(TapSink<T>* taps, TraceRows<T>* positions) {
    const std::span<const int32_t> ids = probe_.ids;
    const size_t step = whole_ ? ids.size() : kPrefillChunk;
    for (size_t begin = 0; begin < ids.size(); begin += step) {
      const size_t count = std::min(step, ids.size() - begin);
      if (!progress_(doing_, static_cast<int64_t>(begin), Total()))
        return tl::unexpected(Interrupted());
      const bool last = begin + count == ids.size();
      const LogitsFor wanted = positions != nullptr ? LogitsFor::kAll
                               : last               ? LogitsFor::kLast
                                                    : LogitsFor::kNone;
      LS_TRY(const auto logits,
             interpreter_.Append(sequence_, ids.subspan(begin, count), wanted, taps, rounder_));
      // Every row, not the last alone: rows of inner positions are compared too.
      LS_RETURN_IF_ERROR(CheckFinite(logits));
      if (positions != nullptr) positions->Append(logits.data, logits.rows, logits.cols);
      if (last) Keep(logits.row(logits.rows - 1));
    }
    return {};
  }

  // One more token.
  Status Feed(int32_t token) {
    if (!progress_(doing_, sequence_.length, Total())) return tl::unexpected(Interrupted());
    LS_TRY(const auto logits, interpreter_.Append(sequence_, std::span(&token, 1), LogitsFor::kLast,
                                                  nullptr, rounder_));
    Keep(logits.row(0));
    return CheckFinite(logits);
  }

  const std::vector<T>& last_row() const { return last_; }

 private:
  int64_t Total() const { return static_cast<int64_t>(probe_.ids.size()) + probe_.steps; }
  void Keep(std::span<const T> row) { last_.assign(row.begin(), row.end()); }
  // Of the rows that the last call gave. An infinite logit would make the noise infinite, and with
  // it the tolerance.
  Status CheckFinite(MatrixView<const T> logits) const {
    for (size_t r = 0; r < logits.rows; ++r) {
      const std::span<const T> row = logits.row(r);
      const auto bad =
          std::find_if_not(row.begin(), row.end(), [](T x) { return std::isfinite(x); });
      if (bad != row.end())
        return InputError(
            "the logit of id {} at position {} is {}, which is no number; `lockstep inspect` finds "
            "weights that are damaged",
            bad - row.begin(), sequence_.length - static_cast<int64_t>(logits.rows - r), *bad);
    }
    return {};
  }

  Interpreter<T>& interpreter_;
  const Probe& probe_;
  const Progress& progress_;
  const std::string doing_;
  const Rounder<T>* rounder_;
  Sequence<T> sequence_;
  const bool whole_;
  std::vector<T> last_;
};

// Tokens that the context leaves room for after the prompt. The last one is not fed.
int64_t StepsThatFit(const ModelSpec& spec, const Probe& probe) {
  const auto limit = ContextLimit(spec);
  if (!limit) return probe.steps;
  const int64_t room = *limit - static_cast<int64_t>(probe.ids.size()) + 1;
  return std::clamp<int64_t>(room, 0, probe.steps);
}

template <typename T>
Result<PromptTrace> RunProbe(Interpreter<T>& interpreter, const Probe& probe,
                             const Progress& progress, std::string_view doing,
                             const Rounder<T>* rounder = nullptr) {
  PromptTrace out{.name = probe.name, .text = probe.text, .rendered = probe.rendered};
  out.ids = probe.ids;
  Recorder<T> recorder(probe, static_cast<int>(interpreter.spec().layers.size()));
  TraceRows<T> positions;
  ProbeRun<T> run(interpreter, probe, progress, doing, rounder);
  LS_RETURN_IF_ERROR(run.Prompt(recorder.wants_any() ? &recorder : nullptr,
                                probe.all_positions ? &positions : nullptr));
  if (probe.all_positions) out.logits = std::move(positions).Take();
  recorder.Finish(out);
  const int64_t steps = StepsThatFit(interpreter.spec(), probe);
  const auto vocab = static_cast<int64_t>(run.last_row().size());
  out.steps[0] = TraceTensor{{vocab}, run.last_row()};
  for (int64_t k = 0; k < steps; ++k) {
    const TopTwo top = FindTopTwo(ToDoubles<T>(run.last_row()));
    out.min_top2_gap = std::min(out.min_top2_gap.value_or(top.gap), top.gap);
    out.greedy.push_back(top.first);
    if (k + 1 == steps) break;
    LS_RETURN_IF_ERROR(run.Feed(top.first));
    out.steps[k + 1] = TraceTensor{{vocab}, run.last_row()};
  }
  return out;
}

// max |fp32 - fp64| over everything `single` holds, feeding fp64 the same tokens.
template <typename T>
Result<double> NoiseOf(const PromptTrace& single, Interpreter<T>& other, const Probe& probe,
                       const Progress& progress) {
  TraceRows<T> positions;
  ProbeRun<T> run(other, probe, progress, "measuring its noise");
  LS_RETURN_IF_ERROR(run.Prompt(nullptr, single.logits ? &positions : nullptr));
  double noise = MaxAbsDifference(single.StepLogits(0), ToDoubles<T>(run.last_row()));
  if (single.logits) {
    const TraceTensor rows = std::move(positions).Take();
    for (int64_t r = 0; r < rows.num_rows(); ++r)
      noise = std::max(noise, MaxAbsDifference(single.logits->Row(r), rows.Row(r)));
  }
  for (size_t k = 0; k + 1 < single.greedy.size(); ++k) {
    LS_RETURN_IF_ERROR(run.Feed(single.greedy[k]));
    noise = std::max(noise, MaxAbsDifference(single.StepLogits(static_cast<int64_t>(k) + 1),
                                             ToDoubles<T>(run.last_row())));
  }
  return noise;
}

// Logits at the positions of `run`, fed its ids and tokens: prompt positions, then steps.
template <typename T>
Result<std::vector<std::vector<double>>> LogitsAlong(const PromptTrace& run, Interpreter<T>& on,
                                                     const Rounder<T>* rounder,
                                                     const Progress& progress) {
  Probe probe{.name = run.name, .ids = run.ids};
  probe.steps = static_cast<int64_t>(run.greedy.size());
  ProbeRun<T> pass(on, probe, progress, "measuring what its rounding does", rounder);
  TraceRows<T> positions;
  LS_RETURN_IF_ERROR(pass.Prompt(nullptr, run.logits ? &positions : nullptr));
  std::vector<std::vector<double>> rows;
  if (run.logits) {
    const TraceTensor tensor = std::move(positions).Take();
    for (int64_t r = 0; r < tensor.num_rows(); ++r) rows.push_back(tensor.Row(r));
  }
  rows.push_back(ToDoubles<T>(pass.last_row()));
  for (size_t k = 0; k + 1 < run.greedy.size(); ++k) {
    LS_RETURN_IF_ERROR(pass.Feed(run.greedy[k]));
    rows.push_back(ToDoubles<T>(pass.last_row()));
  }
  return rows;
}

}  // namespace

ReferenceSubject::ReferenceSubject(Model model, TextModel text, ThreadPool& pool,
                                   Precision precision, const RunSpec& run)
    : model_(std::move(model)),
      text_(std::move(text)),
      precision_(precision),
      single_(model_.spec, model_.weights, pool, run),
      double_(model_.spec, model_.weights, pool, run) {}

Result<std::unique_ptr<ReferenceSubject>> ReferenceSubject::Open(const std::filesystem::path& path,
                                                                 ThreadPool& pool,
                                                                 Precision precision,
                                                                 const Edit& edit) {
  LS_TRY(Model model, LoadModel(path));
  TextModel text = LoadTextModelOrNote(model.checkpoint);
  if (edit.empty()) return Create(std::move(model), std::move(text), pool, precision);
  LS_TRY(Model edited, Edited(model, edit));
  LS_TRY(const RunSpec run, EditedRun({}, edit));
  auto subject = Create(std::move(edited), std::move(text), pool, precision, run);
  subject->edit_ = ToString(edit);
  return subject;
}

std::unique_ptr<ReferenceSubject> ReferenceSubject::Create(Model model, TextModel text,
                                                           ThreadPool& pool, Precision precision,
                                                           const RunSpec& run) {
  return std::unique_ptr<ReferenceSubject>(
      new ReferenceSubject(std::move(model), std::move(text), pool, precision, run));
}

std::string ReferenceSubject::Name() const {
  return fmt::format("{} (reference, {}{}{})", model_.checkpoint.path.string(),
                     precision_ == Precision::kFloat ? "fp32" : "fp64",
                     edit_.empty() ? "" : ", edited: ", edit_);
}

Subject::Abilities ReferenceSubject::Can() const {
  return {.any_prompt = true,
          .all_positions = true,
          .tokenizes = text_.tokenizer.has_value(),
          .renders_chat = text_.tokenizer.has_value() && text_.chat_template.has_value(),
          .measures_noise = true,
          .hidden = true,
          .passages = ReferencePassagesOf(model_.spec)};
}

std::vector<std::string> ReferenceSubject::Notes() const {
  std::vector<std::string> notes = model_.notes;
  notes.insert(notes.end(), text_.notes.begin(), text_.notes.end());
  return notes;
}

Result<std::string> ReferenceSubject::RenderChat(std::string_view user_message) const {
  return RenderUserMessage(text_, user_message);
}

Result<std::vector<int32_t>> ReferenceSubject::Tokenize(const Rendered& text) const {
  return EncodeText(text_, text.text, !text.is_chat);
}

Result<PromptTrace> ReferenceSubject::Run(const Probe& probe, const Progress& progress) {
  if (probe.passage != Passage::kWhole) {
    const int64_t steps = StepsThatFit(model_.spec, probe);
    return precision_ == Precision::kFloat
               ? TakePassage(probe, steps, ReferencePassages(single_, rounder_), progress)
               : TakePassage(
                     probe, steps,
                     ReferencePassages(double_, static_cast<const Rounder<double>*>(nullptr)),
                     progress);
  }
  Result<PromptTrace> out = precision_ == Precision::kFloat
                                ? RunProbe(single_, probe, progress, "running", rounder_)
                                : RunProbe(double_, probe, progress, "running");
  if (!out) return tl::unexpected(std::move(out).error());
  if (probe.measure_noise && rounder_ != nullptr) {
    LS_TRY(const auto narrow, LogitsAlong<float>(*out, single_, nullptr, progress));
    LS_TRY(const auto wide, LogitsAlong<double>(*out, double_, nullptr, progress));
    out->noise = 0;
    for (size_t i = 0; i < narrow.size(); ++i)
      out->noise = std::max(*out->noise, MaxAbsDifference(narrow[i], wide[i]));
  } else if (probe.measure_noise) {
    LS_TRY(out->noise, precision_ == Precision::kFloat ? NoiseOf(*out, double_, probe, progress)
                                                       : NoiseOf(*out, single_, probe, progress));
  }
  out->greedy_text = TextOf(out->greedy);
  return out;
}

std::optional<std::string> ReferenceSubject::TextOf(std::span<const int32_t> ids) const {
  if (!text_.tokenizer) return std::nullopt;
  auto text = DecodeIds(text_, ids);
  return text ? std::optional(*std::move(text)) : std::nullopt;
}

Result<double> ReferenceSubject::EffectOf(std::span<const std::unique_ptr<Rounder<float>>> rounders,
                                          double enough, const PromptTrace& run,
                                          const Progress& progress) {
  LS_TRY(const auto exact, LogitsAlong<float>(run, single_, nullptr, progress));
  double effect = 0;
  for (const auto& rounder : rounders) {
    LS_TRY(const auto rounded, LogitsAlong<float>(run, single_, rounder.get(), progress));
    for (size_t i = 0; i < exact.size(); ++i)
      effect = std::max(effect, MaxAbsDifference(exact[i], rounded[i]));
    if (effect >= enough) break;
  }
  return effect;
}

}  // namespace lockstep
