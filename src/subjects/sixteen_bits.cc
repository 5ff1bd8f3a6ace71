#include "subjects/sixteen_bits.h"

#include <algorithm>
#include <variant>

#include "base/dtype.h"
#include "spec/field_list.h"
#include "subjects/dither.h"
#include "subjects/matrix_products.h"

namespace lockstep {
namespace {

constexpr uint32_t kDraws = 3, kRoutedDraws = 16;

void Round(std::span<float> x, Rounding rounding, uint32_t draw) {
  if (rounding == Rounding::kFP16)
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = ToFloat(ToFloat16(x[i] * (1 + Dither(x[i], i, draw) * 0x1p-10f)));
  if (rounding == Rounding::kBF16)
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = ToFloat(ToBFloat16(x[i] * (1 + Dither(x[i], i, draw) * 0x1p-7f)));
}

void Round(MatrixView<float> rows, Rounding rounding, uint32_t draw) {
  for (size_t t = 0; t < rows.rows; ++t) Round(rows.row(t), rounding, draw);
}

}  // namespace

std::string SixteenBits::Words() const {
  if (numbers != Rounding::kNone) return fmt::format("activations in {}", NameOf(numbers));
  return fmt::format("a cache in {}", NameOf(cache));
}

std::string SixteenBits::Island() const {
  if (products_in_16 == 0 || numbers != Rounding::kNone) return {};
  return fmt::format("{} of {} matrix products are in {}: it is judged as a graph in fp32",
                     products_in_16, products, NameOf(products_as));
}

SixteenBits SixteenBitsOf(const OnnxModel& model, const OnnxContract& contract) {
  SixteenBits out;
  for (const OnnxCache& cache : contract.caches) {
    if (cache.type == OrtType::kFloat16) out.cache = Rounding::kFP16;
    if (cache.type == OrtType::kBFloat16) out.cache = Rounding::kBF16;
  }
  const MatrixProducts products = MatrixProductsOf(model);
  out.products = products.fp32 + products.fp16 + products.bf16;
  out.products_in_16 = products.fp16 + products.bf16;
  if (out.products_in_16 == 0) return out;
  out.products_as = products.fp16 >= products.bf16 ? Rounding::kFP16 : Rounding::kBF16;
  if (std::max(products.fp16, products.bf16) == out.products) out.numbers = out.products_as;
  return out;
}

void SixteenBitRounder::Keys(size_t, MatrixView<float> rows) const {
  // As numbers they are rounded already.
  if (bits_.numbers == Rounding::kNone) Round(rows, bits_.cache, draw_);
}

void SixteenBitRounder::Values(size_t, MatrixView<float> rows) const {
  // As numbers they are rounded already.
  if (bits_.numbers == Rounding::kNone) Round(rows, bits_.cache, draw_);
}

void SixteenBitRounder::AttentionWeights(std::span<float> weights) const {
  Round(weights, bits_.numbers, draw_);
}

void SixteenBitRounder::Output(MatrixView<float> rows) const { Round(rows, bits_.numbers, draw_); }

void SixteenBitRounder::Turns(std::span<float> entries) const { Round(entries, bits_.numbers, 0); }

Subject::Abilities SixteenBitSubject::Can() const {
  Abilities can = candidate_.Can();
  can.precision = Precision::kRounded;
  return can;
}

Result<double> SixteenBitSubject::MeasureRounding(const PromptTrace& run, double enough,
                                                  const Progress& progress) {
  // One way of rounding says little of the next where a router stands between two experts.
  const bool routes = std::ranges::any_of(
      formulas_.model().spec.layers,
      [](const LayerSpec& layer) { return std::holds_alternative<MoeSpec>(layer.mlp); });
  std::vector<std::unique_ptr<Rounder<float>>> draws;
  for (uint32_t draw = 0; draw < (routes ? kRoutedDraws : kDraws); ++draw)
    draws.push_back(std::make_unique<SixteenBitRounder>(bits_, draw));
  return formulas_.EffectOf(draws, enough, run, progress);
}

}  // namespace lockstep
