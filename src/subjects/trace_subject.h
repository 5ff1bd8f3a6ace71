// TraceSubject: a recorded run. It knows its own prompts and nothing else.
#pragma once

#include <filesystem>
#include <memory>

#include "verify/subject.h"

namespace lockstep {

class TraceSubject : public Subject {
 public:
  static Result<std::unique_ptr<TraceSubject>> Open(const std::filesystem::path& path);
  explicit TraceSubject(Trace trace) : trace_(std::move(trace)) {}

  std::string Name() const override { return trace_.source + " (recorded)"; }
  Abilities Can() const override;
  int64_t vocab_size() const override;
  std::vector<Probe> RecordedProbes() const override;
  // Finds the prompt by its ids.
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override;

 private:
  Trace trace_;  // at least one prompt
};

}  // namespace lockstep
