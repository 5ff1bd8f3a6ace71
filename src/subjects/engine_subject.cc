#include "subjects/engine_subject.h"

#include <algorithm>

#include "engine/kernels/kernel_table.h"
#include "spec/rope_facts.h"
#include "subjects/engine_passages.h"
#include "verify/compare.h"

namespace lockstep {
namespace {

constexpr auto kChunk = static_cast<size_t>(kMaxWalkTokens);  // then Ctrl-C is looked at
constexpr uint32_t kRoutedDraws = 16;

}  // namespace

EngineSubject::EngineSubject(std::unique_ptr<ReferenceSubject> reference,
                             std::unique_ptr<Engine> engine, const EngineOptions& options)
    : reference_(std::move(reference)),
      engine_(std::move(engine)),
      activations_(options.activations) {}

Result<std::unique_ptr<EngineSubject>> EngineSubject::Open(const std::filesystem::path& path,
                                                           const EngineOptions& options,
                                                           ThreadPool& pool) {
  LS_TRY(auto reference, ReferenceSubject::Open(path, pool));
  return Create(std::move(reference), options);
}

Result<std::unique_ptr<EngineSubject>> EngineSubject::Create(
    std::unique_ptr<ReferenceSubject> reference, const EngineOptions& options) {
  const Model& model = reference->model();
  LS_TRY(auto engine, Engine::Create(model.spec, model.weights, options));
  return std::unique_ptr<EngineSubject>(
      new EngineSubject(std::move(reference), std::move(engine), options));
}

std::string EngineSubject::Name() const {
  return fmt::format("{} ({})", reference_->model().checkpoint.path.string(), engine_->Describe());
}

Subject::Abilities EngineSubject::Can() const {
  Abilities can = reference_->Can();
  can.hidden = false;
  can.passages = EnginePassagesOf(reference_->model().spec);
  can.precision = PrecisionOf(engine_->plan(), activations_, engine_->kv_type());
  return can;
}

std::vector<std::string> EngineSubject::Notes() const {
  std::vector<std::string> notes = reference_->Notes();
  if (const std::string& note = engine_->plan().packed_from.note; !note.empty())
    notes.push_back(note);
  return notes;
}

Result<PromptTrace> EngineSubject::RunProbe(const Probe& probe, const Progress& progress) {
  if (probe.hidden || !probe.taps.empty())
    return UnsupportedError(
        "{}: the engine keeps no intermediates: hidden states and taps are the reference's to give",
        Name());
  PromptTrace out{.name = probe.name, .text = probe.text, .rendered = probe.rendered};
  out.ids = probe.ids;
  const std::span<const int32_t> ids = probe.ids;
  const auto count = static_cast<int64_t>(ids.size()), total = count + probe.steps;
  const std::optional<int64_t> limit = PositionLimit(reference_->model().spec);
  // The last token is not fed.
  const int64_t steps =
      limit ? std::clamp<int64_t>(*limit - count + 1, 0, probe.steps) : probe.steps;
  if (probe.passage != Passage::kWhole)
    return TakePassage(probe, steps, EnginePassages(*engine_), progress);
  const bool whole = DependsOnCallLength(reference_->model().spec) || (limit && count > *limit);
  const size_t chunk = whole ? std::max<size_t>(ids.size(), 1) : kChunk;

  KvSequence sequence = engine_->NewSequence();
  TraceRows<float> positions;
  std::vector<float> row;
  for (size_t begin = 0; begin < std::max<size_t>(ids.size(), 1); begin += chunk) {
    if (!progress("running", static_cast<int64_t>(begin), total))
      return tl::unexpected(Interrupted());
    const size_t n = std::min(chunk, ids.size() - begin);
    const auto wanted = probe.all_positions       ? Engine::Logits::kAll
                        : begin + n == ids.size() ? Engine::Logits::kLast
                                                  : Engine::Logits::kNone;
    LS_TRY(const auto logits, engine_->Append(sequence, ids.subspan(begin, n), wanted));
    // A row at a time: they are padded to whole tiles.
    for (size_t r = 0; probe.all_positions && r < logits.rows; ++r)
      positions.Append(logits.row(r).data(), 1, logits.cols);
    if (logits.rows > 0) {
      const auto last = logits.row(logits.rows - 1);
      row.assign(last.begin(), last.end());
    }
  }
  if (probe.all_positions) out.logits = std::move(positions).Take();
  const auto vocab = static_cast<int64_t>(row.size());
  out.steps[0] = TraceTensor{{vocab}, row};
  for (int64_t k = 0; k < steps; ++k) {
    const TopTwo top = FindTopTwo(std::vector<double>(row.begin(), row.end()));
    out.min_top2_gap = std::min(out.min_top2_gap.value_or(top.gap), top.gap);
    out.greedy.push_back(top.first);
    if (k + 1 == steps) break;
    if (!progress("running", count + k, total)) return tl::unexpected(Interrupted());
    LS_TRY(const auto logits, engine_->Append(sequence, std::span(&top.first, 1)));
    row.assign(logits.row(0).begin(), logits.row(0).end());
    out.steps[k + 1] = TraceTensor{{vocab}, row};
  }
  return out;
}

Result<PromptTrace> EngineSubject::Run(const Probe& probe, const Progress& progress) {
  LS_TRY(PromptTrace out, RunProbe(probe, progress));
  if (probe.measure_noise) {
    LS_TRY(const PromptTrace run, reference_->Run(probe, progress));
    out.noise = run.noise;
  }
  out.greedy_text = reference_->TextOf(out.greedy);
  return out;
}

Result<double> EngineSubject::MeasureRounding(const PromptTrace& run, double enough,
                                              const Progress& progress) {
  // Where a router stands between two experts, another rounding is another answer, and one way of
  // rounding says little of the next: there several are drawn.
  const bool routes = std::ranges::any_of(
      reference_->model().spec.layers,
      [](const LayerSpec& layer) { return std::holds_alternative<MoeSpec>(layer.mlp); });
  std::vector<std::unique_ptr<Rounder<float>>> draws;
  for (uint32_t draw = 0; draw < (routes ? kRoutedDraws : 1); ++draw)
    draws.push_back(std::make_unique<EngineRounding>(activations_, engine_->kv_type(), draw));
  return reference_->EffectOf(draws, enough, run, progress);
}

}  // namespace lockstep
