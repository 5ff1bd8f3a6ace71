// CachingSubject: a subject that runs each probe once. Stands for the reference while several
// candidates are compared with it, and for a candidate that is compared more than once, so that
// neither is asked the same again.
#pragma once

#include <map>
#include <memory>

#include "verify/subject.h"

namespace lockstep {

class CachingSubject : public Subject {
 public:
  explicit CachingSubject(std::unique_ptr<Subject> subject)
      : owned_(std::move(subject)), subject_(owned_.get()) {}
  // The subject must outlive this.
  explicit CachingSubject(Subject& subject) : subject_(&subject) {}

  Status Prepare(const Progress& progress) override;
  std::string Name() const override { return subject_->Name(); }
  Abilities Can() const override { return subject_->Can(); }
  int64_t vocab_size() const override { return subject_->vocab_size(); }
  const ModelSpec* spec() const override { return subject_->spec(); }
  std::vector<std::string> Notes() const override { return subject_->Notes(); }
  std::vector<Probe> RecordedProbes() const override { return subject_->RecordedProbes(); }
  Result<std::string> RenderChat(std::string_view user_message) const override {
    return subject_->RenderChat(user_message);
  }
  Result<std::vector<int32_t>> Tokenize(const Rendered& text) const override {
    return subject_->Tokenize(text);
  }
  // An error is kept as well, but not that somebody interrupted.
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override;
  Result<double> MeasureRounding(const PromptTrace& run, double enough,
                                 const Progress& progress) override {
    return subject_->MeasureRounding(run, enough, progress);
  }

 private:
  std::unique_ptr<Subject> owned_;  // or nullptr
  Subject* subject_;
  bool ready_ = false;
  std::map<std::string, Result<PromptTrace>> runs_;  // by all that a probe asks for
};

}  // namespace lockstep
