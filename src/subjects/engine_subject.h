// EngineSubject: a checkpoint under the engine, prompt and greedy steps both through its cache. For
// the text side, for noise and for what its rounding should do it has the reference of the same
// checkpoint beside it.
#pragma once

#include <filesystem>
#include <memory>

#include "base/thread_pool.h"
#include "engine/engine.h"
#include "subjects/engine_rounding.h"
#include "subjects/reference_subject.h"

namespace lockstep {

class EngineSubject : public Subject {
 public:
  // The pool must outlive the subject.
  static Result<std::unique_ptr<EngineSubject>> Open(const std::filesystem::path& path,
                                                     const EngineOptions& options,
                                                     ThreadPool& pool);
  // The engine runs what `reference` holds.
  static Result<std::unique_ptr<EngineSubject>> Create(std::unique_ptr<ReferenceSubject> reference,
                                                       const EngineOptions& options);

  std::string Name() const override;
  Abilities Can() const override;
  int64_t vocab_size() const override { return reference_->vocab_size(); }
  const ModelSpec* spec() const override { return reference_->spec(); }
  std::vector<std::string> Notes() const override;
  Result<std::string> RenderChat(std::string_view user_message) const override {
    return reference_->RenderChat(user_message);
  }
  Result<std::vector<int32_t>> Tokenize(const Rendered& text) const override {
    return reference_->Tokenize(text);
  }
  // Hidden states and taps are refused: the engine keeps no intermediates. The noise is that of the
  // reference's formulas.
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override;
  Result<double> MeasureRounding(const PromptTrace& run, double enough,
                                 const Progress& progress) override;

  const Engine& engine() const { return *engine_; }

 private:
  EngineSubject(std::unique_ptr<ReferenceSubject> reference, std::unique_ptr<Engine> engine,
                const EngineOptions& options);
  Result<PromptTrace> RunProbe(const Probe& probe, const Progress& progress);

  std::unique_ptr<ReferenceSubject> reference_;
  std::unique_ptr<Engine> engine_;
  Activations activations_;
};

}  // namespace lockstep
