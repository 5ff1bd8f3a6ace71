// SixteenBits: a graph that keeps its numbers in fp16 or bf16, between its operators or in its
// cache alone, and what that does to the reference. A program that rounds every number on the way
// is as far from the reference as such rounding reaches, and no further; where each of its
// roundings falls nobody can follow (an operator may hold more inside), so that its size is what is
// measured, on the reference's own formulas.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "reference/rounder.h"
#include "subjects/onnx_subject.h"
#include "subjects/reference_subject.h"

namespace lockstep {

struct SixteenBits {
  Rounding numbers = Rounding::kNone;  // of what operators give
  Rounding cache = Rounding::kNone;    // of keys and values between two calls
  // Matrix products of the graph, and those in 16 bits (most of them in `products_as`). Only where
  // they are all of one such type are the numbers: one operator in fp16 is no graph in fp16.
  int64_t products = 0, products_in_16 = 0;
  Rounding products_as = Rounding::kNone;
  bool any() const { return numbers != Rounding::kNone || cache != Rounding::kNone; }
  std::string Words() const;  // "activations in fp16", "a cache in fp16"
  // "1 of 15 matrix products are in fp16: ..."; empty where all are, or none is.
  std::string Island() const;
};

// By the types of its matrix products (matrix_products.h) and its caches.
SixteenBits SixteenBitsOf(const OnnxModel& model, const OnnxContract& contract);

class SixteenBitRounder : public Rounder<float> {
 public:
  // draw 0 rounds to nearest; any other number moves each value by up to half a step first, its own
  // way: rounding that falls elsewhere, and is up to twice as large.
  explicit SixteenBitRounder(SixteenBits bits, uint32_t draw = 0) : bits_(bits), draw_(draw) {}

  void Input(const WeightView&, bool, std::span<const int64_t>, MatrixView<float>) const override {}
  void Queries(size_t, MatrixView<float>) const override {}
  void Keys(size_t dim, MatrixView<float> rows) const override;
  void Values(size_t dim, MatrixView<float> rows) const override;
  void AttentionWeights(std::span<float> weights) const override;
  void Output(MatrixView<float> rows) const override;
  void Turns(std::span<float> entries) const override;

 private:
  SixteenBits bits_;
  uint32_t draw_;
};

// A candidate that owns up to its 16 bits: for the rest it is the candidate itself.
class SixteenBitSubject : public Subject {
 public:
  // `formulas` is the reference, on the weights that the candidate holds. Both must outlive it.
  SixteenBitSubject(Subject& candidate, ReferenceSubject& formulas, SixteenBits bits)
      : candidate_(candidate), formulas_(formulas), bits_(bits) {}

  Status Prepare(const Progress& progress) override { return candidate_.Prepare(progress); }
  std::string Name() const override { return candidate_.Name(); }
  Abilities Can() const override;
  int64_t vocab_size() const override { return candidate_.vocab_size(); }
  const ModelSpec* spec() const override { return candidate_.spec(); }
  std::vector<std::string> Notes() const override { return candidate_.Notes(); }
  Result<std::string> RenderChat(std::string_view user_message) const override {
    return candidate_.RenderChat(user_message);
  }
  Result<std::vector<int32_t>> Tokenize(const Rendered& text) const override {
    return candidate_.Tokenize(text);
  }
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override {
    return candidate_.Run(probe, progress);
  }
  Result<double> MeasureRounding(const PromptTrace& run, double enough,
                                 const Progress& progress) override;

 private:
  Subject& candidate_;
  ReferenceSubject& formulas_;
  SixteenBits bits_;
};

}  // namespace lockstep
