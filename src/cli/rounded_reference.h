// RoundedReference: the reference on a quantized graph's own codes, its activations rounded to int8
// where the graph's operators round theirs. For every prompt the graph is run with the inputs of
// those operators as further outputs, so that a number between two codes falls as it fell there
// (audit/int8_rounder.h). One prompt's activations are held at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "audit/int8_rounder.h"
#include "subjects/onnx_subject.h"
#include "subjects/reference_subject.h"

namespace lockstep {

class RoundedReference : public Subject {
 public:
  // All must outlive this. `subject` runs on the weights of the graph of `onnx`, which rounds in
  // front of the matrices `places`; `candidate` runs the same graph.
  RoundedReference(const RoundedPlaces& places, ReferenceSubject& subject, Subject& candidate,
                   OnnxSubject& onnx);

  std::string Name() const override { return subject_.Name(); }
  Abilities Can() const override { return subject_.Can(); }
  int64_t vocab_size() const override { return subject_.vocab_size(); }
  const ModelSpec* spec() const override { return subject_.spec(); }
  // Why ties could not be resolved, if that is so.
  std::vector<std::string> Notes() const override { return notes_; }
  Result<std::string> RenderChat(std::string_view user_message) const override {
    return subject_.RenderChat(user_message);
  }
  Result<std::vector<int32_t>> Tokenize(const Rendered& text) const override {
    return subject_.Tokenize(text);
  }
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override;

  // What the graph multiplied along what it gave (a prompt and its greedy steps); where that cannot
  // be told, what is known of it, and a note.
  Result<std::unique_ptr<TheirInputs>> InputsAlong(const PromptTrace& theirs,
                                                   const Progress& progress);
  // A probe that the candidate took by another way than whole, its numbers between two codes
  // rounded as in those calls: the candidate's run, and the reference's own of the whole prompt.
  struct Passed {
    PromptTrace reference, candidate;
  };
  Result<Passed> RunPassage(const Probe& probe, const Progress& progress);
  // The reference along a probe, and how many numbers at each position lie in the middle between
  // two codes where nobody sees how they fell in the candidate.
  struct WithHidden {
    PromptTrace run;
    TieCounter ties;
  };
  Result<WithHidden> RunWithHidden(const Probe& probe, HiddenTies hidden, const Progress& progress);
  const RoundedPlaces& places() const { return places_; }

  // Over all that was run, as long as both chose the same tokens.
  const TieCount& ties() const { return ties_; }
  // How far giving those values moved the graph's own logits: an operator that is not fused with
  // its neighbour adds up in another order. 0: they are what it computes otherwise, bit by bit.
  double moved() const { return moved_; }

 private:
  Status Read(const PromptTrace& run, TheirInputs& out, const Progress& progress);

  const RoundedPlaces& places_;
  ReferenceSubject& subject_;
  Subject& candidate_;
  OnnxSubject& onnx_;
  std::vector<std::string> names_;  // of the values that are read
  int64_t columns_ = 0;             // of all of them together
  std::unique_ptr<OrtSession> session_;
  std::vector<std::string> notes_;
  TieCount ties_;
  double moved_ = 0;
};

}  // namespace lockstep
