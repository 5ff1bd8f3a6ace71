// ReferenceSubject: a checkpoint under our reference interpreter, in fp32 (or fp64, the same
// formulas). It measures its own noise: the distance between the two.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "base/thread_pool.h"
#include "faults/edit.h"
#include "model/model.h"
#include "model/text_model.h"
#include "reference/interpreter.h"
#include "spec/rope_facts.h"
#include "verify/subject.h"

namespace lockstep {

class ReferenceSubject : public Subject {
 public:
  enum class Precision { kFloat, kDouble };

  // The pool must outlive the subject. Reads the spec, the tokenizer and the template; touches no
  // weight before Run.
  // With an edit (faults/edit.h) it is the edited model that runs, under the edited run.
  static Result<std::unique_ptr<ReferenceSubject>> Open(const std::filesystem::path& path,
                                                        ThreadPool& pool,
                                                        Precision precision = Precision::kFloat,
                                                        const Edit& edit = {});

  // Of a model that was loaded, or edited, already.
  static std::unique_ptr<ReferenceSubject> Create(Model model, TextModel text, ThreadPool& pool,
                                                  Precision precision = Precision::kFloat,
                                                  const RunSpec& run = {});

  std::string Name() const override;
  Abilities Can() const override;
  int64_t vocab_size() const override { return model_.spec.embedding.vocab_size; }
  const ModelSpec* spec() const override { return &model_.spec; }
  std::vector<std::string> Notes() const override;
  Result<std::string> RenderChat(std::string_view user_message) const override;
  Result<std::vector<int32_t>> Tokenize(const Rendered& text) const override;
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override;

  // From now on its fp32 runs round as `rounder` says (not owned; nullptr: not at all). The noise
  // stays that of the formulas.
  void RoundWith(const Rounder<float>* rounder) { rounder_ = rounder; }

  const Model& model() const { return model_; }
  const RunSpec& run() const { return single_.run(); }
  // Special tokens included; absent without a tokenizer.
  std::optional<std::string> TextOf(std::span<const int32_t> ids) const;
  // max |Δ| that a rounder makes in the fp32 logits of run's positions, on its ids and tokens: the
  // most that any of them does, or the first that is `enough`.
  Result<double> EffectOf(std::span<const std::unique_ptr<Rounder<float>>> rounders, double enough,
                          const PromptTrace& run, const Progress& progress);

 private:
  ReferenceSubject(Model model, TextModel text, ThreadPool& pool, Precision precision,
                   const RunSpec& run);

  Model model_;
  TextModel text_;
  Precision precision_;
  const Rounder<float>* rounder_ = nullptr;
  std::string edit_;  // the text of the edit; empty: none
  Interpreter<float> single_;
  Interpreter<double> double_;
};

}  // namespace lockstep
