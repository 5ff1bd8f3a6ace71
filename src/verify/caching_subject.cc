#include "verify/caching_subject.h"

namespace lockstep {
namespace {

// Everything that decides an answer; names and texts do not.
std::string KeyOf(const Probe& probe) {
  std::string key = fmt::format("{} {:d}{:d}{:d}:{}", probe.steps, probe.all_positions,
                                probe.measure_noise, probe.hidden, fmt::join(probe.ids, ","));
  if (probe.passage != Passage::kWhole)
    key += fmt::format(":{}:{}:{}", PassageName(probe.passage), fmt::join(probe.parts, ","),
                       fmt::join(probe.other, ","));
  for (const TapPlace& place : probe.taps) key += ":" + TapName(place.tap, place.layer);
  return key;
}

}  // namespace

Status CachingSubject::Prepare(const Progress& progress) {
  if (ready_) return {};
  LS_RETURN_IF_ERROR(subject_->Prepare(progress));
  ready_ = true;
  return {};
}

Result<PromptTrace> CachingSubject::Run(const Probe& probe, const Progress& progress) {
  const std::string key = KeyOf(probe);
  if (const auto found = runs_.find(key); found != runs_.end()) return found->second;
  Result<PromptTrace> run = subject_->Run(probe, progress);
  if (!run && IsInterrupted(run.error())) return run;
  return runs_.emplace(key, std::move(run)).first->second;
}

}  // namespace lockstep
