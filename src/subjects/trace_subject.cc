#include "subjects/trace_subject.h"

#include <algorithm>

namespace lockstep {

Result<std::unique_ptr<TraceSubject>> TraceSubject::Open(const std::filesystem::path& path) {
  LS_TRY(Trace trace, ReadTrace(path));
  return std::make_unique<TraceSubject>(std::move(trace));
}

Subject::Abilities TraceSubject::Can() const {
  const auto any = [&](auto has) {
    return std::any_of(trace_.prompts.begin(), trace_.prompts.end(), has);
  };
  return {.all_positions = any([](const PromptTrace& p) { return p.logits.has_value(); }),
          .hidden = any([](const PromptTrace& p) { return p.hidden || p.hidden_last; })};
}

int64_t TraceSubject::vocab_size() const {
  // Those that have logits have as many columns; ReadTrace sees to it.
  for (const PromptTrace& prompt : trace_.prompts)
    if (const int64_t columns = prompt.vocab_size(); columns > 0) return columns;
  return 0;
}

std::vector<Probe> TraceSubject::RecordedProbes() const {
  std::vector<Probe> probes;
  for (const PromptTrace& prompt : trace_.prompts)
    probes.push_back({.name = prompt.name,
                      .text = prompt.text,
                      .rendered = prompt.rendered,
                      .ids = prompt.ids,
                      .steps = static_cast<int64_t>(prompt.greedy.size())});
  return probes;
}

Result<PromptTrace> TraceSubject::Run(const Probe& probe, const Progress&) {
  const auto found = std::find_if(trace_.prompts.begin(), trace_.prompts.end(),
                                  [&](const PromptTrace& p) { return p.ids == probe.ids; });
  if (found == trace_.prompts.end())
    return UsageError("{}: none of its {} prompts has the {} ids of \"{}\"", trace_.source,
                      trace_.prompts.size(), probe.ids.size(), probe.name);
  return *found;
}

}  // namespace lockstep
