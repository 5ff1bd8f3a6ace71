#include "verify/bisect.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "reference/interpreter.h"
#include "verify/compare.h"

namespace lockstep {
namespace {

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

// The candidate's intermediates of one prompt, by name: [ids * columns].
using Intermediates = std::map<std::string, std::vector<double>>;

std::vector<double> Values(const TraceTensor& tensor) {
  return std::visit([](const auto& x) { return std::vector<double>(x.begin(), x.end()); },
                    tensor.values);
}

Intermediates Known(const PromptTrace& trace, size_t layers) {
  Intermediates known;
  for (const auto& [name, tensor] : trace.taps) known[name] = Values(tensor);
  const auto& hidden = trace.hidden;
  // Where all inside agrees, it is the head.
  if (std::vector<double> last = trace.StepLogits(0); !last.empty() && (hidden || !known.empty()))
    known.try_emplace(TapName(Tap::kLogits), std::move(last));
  if (!hidden || hidden->shape.size() != 3 || hidden->shape[0] != static_cast<int64_t>(layers) + 1)
    return known;
  const std::vector<double> all = Values(*hidden);
  const size_t each = all.size() / (layers + 1);
  for (size_t i = 0; i <= layers; ++i) {
    const std::string name = i == 0        ? TapName(Tap::kEmbedding)
                             : i == layers ? TapName(Tap::kFinalNorm)
                                           : TapName(Tap::kOutput, static_cast<int>(i) - 1);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * each);
    known.try_emplace(name, begin, begin + static_cast<std::ptrdiff_t>(each));
  }
  return known;
}

template <typename T>
class Keeper : public TapSink<T> {
 public:
  explicit Keeper(const Intermediates& wanted) : wanted_(wanted) {}
  bool Wants(Tap tap, int layer) const override { return wanted_.contains(TapName(tap, layer)); }
  void Put(Tap tap, int layer, int64_t, MatrixView<const T> rows) override {
    auto& to = kept[TapName(tap, layer)];
    for (size_t t = 0; t < rows.rows; ++t)
      to.insert(to.end(), rows.row(t).begin(), rows.row(t).end());
  }
  Intermediates kept;

 private:
  const Intermediates& wanted_;
};

template <typename T>
Result<Intermediates> Reference(const Model& model, std::span<const int32_t> ids,
                                const Intermediates& wanted, ThreadPool& pool,
                                const Rounder<T>* rounder = nullptr) {
  Interpreter<T> interpreter(model.spec, model.weights, pool);
  Sequence<T> sequence = interpreter.NewSequence();
  Keeper<T> keeper(wanted);
  const auto logits_at = wanted.find(TapName(Tap::kLogits));
  const auto vocab_size = static_cast<size_t>(model.spec.embedding.vocab_size);
  const LogitsFor which = logits_at == wanted.end()               ? LogitsFor::kNone
                          : logits_at->second.size() > vocab_size ? LogitsFor::kAll
                                                                  : LogitsFor::kLast;
  LS_TRY([[maybe_unused]] const auto logits,
         interpreter.Append(sequence, ids, which, &keeper, rounder));
  return std::move(keeper.kept);
}

// By layer, then in the order of kTaps; taps of the whole model before or behind all layers.
std::pair<int, size_t> Order(const TapPlace& place) {
  const int layer = InfoOf(place.tap).per_layer    ? place.layer
                    : place.tap == Tap::kEmbedding ? -1
                                                   : 1 << 30;
  return {layer, static_cast<size_t>(place.tap)};
}

}  // namespace

Result<std::optional<TapPlace>> FirstDifferentTap(const Model& reference,
                                                  std::span<const PromptTrace> candidate,
                                                  ThreadPool& pool,
                                                  std::span<const RounderFor> rounding,
                                                  double least_tolerance) {
  std::optional<TapPlace> first;
  for (size_t i = 0; i < candidate.size(); ++i) {
    const PromptTrace& trace = candidate[i];
    const Intermediates known = Known(trace, reference.spec.layers.size());
    if (known.empty()) continue;
    LS_TRY(const Intermediates single, Reference<float>(reference, trace.ids, known, pool));
    LS_TRY(const Intermediates exact, Reference<double>(reference, trace.ids, known, pool));
    Intermediates rounded;
    if (i < rounding.size() && rounding[i]) {
      const auto rounder = rounding[i](reference.weights);
      LS_TRY(rounded, Reference<float>(reference, trace.ids, known, pool, rounder.get()));
    }
    for (const auto& [name, values] : known) {
      const auto place = ParseTapName(name);
      const auto mine = single.find(name);
      if (!place || mine == single.end() || mine->second.size() != values.size()) continue;
      if (first && Order(*first) <= Order(*place)) continue;
      const double noise = MaxAbsDifference(mine->second, exact.at(name));
      const auto ours = rounded.find(name);
      const double least = least_tolerance * std::max(1.0, Largest(values));
      if (MaxAbsDifference(ours == rounded.end() ? mine->second : ours->second, values) >
          std::max(Tolerance(noise), least))
        first = *place;
    }
  }
  return first;
}

}  // namespace lockstep
