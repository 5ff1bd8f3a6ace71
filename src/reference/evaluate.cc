#include "reference/evaluate.h"

#include <algorithm>

#include "reference/interpreter.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

// Keeps what each layer gives.
template <typename T>
class StreamSink : public TapSink<T> {
 public:
  StreamSink(Stream& stream, size_t layers, size_t positions) : stream_(stream) {
    stream_.before.resize(layers + 1);
    for (size_t i = 1; i <= layers; ++i) stream_.before[i].reserve(positions);
  }
  bool Wants(Tap tap, int) const override { return tap == Tap::kOutput; }
  void Put(Tap, int layer, int64_t, MatrixView<const T> rows) override {
    auto& to = stream_.before[static_cast<size_t>(layer) + 1];
    for (size_t t = 0; t < rows.rows; ++t)
      to.insert(to.end(), rows.row(t).begin(), rows.row(t).end());
  }

 private:
  Stream& stream_;
};

// As a runtime with a cache is called: the prompt, then token by token.
template <typename T>
Result<std::vector<T>> Stepped(Interpreter<T>& interpreter, const EvaluatedSequence& sequence,
                               std::span<const int32_t> vocabulary, const Rounder<T>* rounder) {
  Sequence<T> state = interpreter.NewSequence();
  const std::span<const int32_t> ids = sequence.ids;
  std::vector<T> out;
  auto wanted = sequence.positions.begin();
  for (size_t begin = 0; begin < ids.size();) {
    const size_t count = begin == 0 ? static_cast<size_t>(sequence.prompt) : 1;
    LS_TRY(const MatrixView<const T> logits,
           interpreter.Append(state, ids.subspan(begin, count), LogitsFor::kAll, nullptr, rounder));
    for (; wanted != sequence.positions.end() && *wanted < static_cast<int64_t>(begin + count);
         ++wanted) {
      const std::span<const T> row = logits.row(static_cast<size_t>(*wanted) - begin);
      if (vocabulary.empty()) out.insert(out.end(), row.begin(), row.end());
      for (const int32_t id : vocabulary) out.push_back(row[static_cast<size_t>(id)]);
    }
    begin += count;
  }
  return out;
}

// A masked score that still counts lets a token see what its call brings after it.
bool DependsOnCalls(const ModelSpec& spec, const RunSpec& run) {
  return DependsOnCallLength(spec) || run.DependsOnCalls() || run.softcap_after_mask ||
         run.mask_fill;
}

}  // namespace

std::optional<int> FirstDifferentLayer(const ModelSpec& a, const ModelSpec& b,
                                       std::span<const WeightId> changed) {
  const auto layers = static_cast<int>(b.layers.size());
  if (a.embedding != b.embedding || a.layers.size() != b.layers.size()) return -1;
  std::optional<int> first;
  const auto at = [&](int layer) { first = std::min(first.value_or(layer), layer); };
  for (const WeightId& id : changed) {
    if (id.role == Role::kEmbedTokens || id.role == Role::kEmbedPositions) at(-1);
    at(id.layer >= 0 ? id.layer : layers);
  }
  for (int i = 0; i < layers; ++i)
    if (a.layers[static_cast<size_t>(i)] != b.layers[static_cast<size_t>(i)]) {
      at(i);
      break;
    }
  if (a.final_norm != b.final_norm || a.lm_head != b.lm_head) at(layers);
  return first;
}

template <typename T>
Result<std::vector<T>> Evaluate(const ModelSpec& spec, const Weights& weights, ThreadPool& pool,
                                const EvaluatedSequence& sequence,
                                std::span<const int32_t> vocabulary, const RunSpec& run, int first,
                                const Stream* stream, Stream* keep, const Rounder<T>* rounder) {
  Interpreter<T> interpreter(spec, weights, pool, run);
  if (DependsOnCalls(spec, run)) return Stepped(interpreter, sequence, vocabulary, rounder);
  std::vector<T> x;
  if (first < 0 || stream == nullptr || stream->before.empty()) {
    LS_TRY(x, interpreter.Embed(sequence.ids));
    first = 0;
  } else {
    const std::vector<float>& before = stream->before[static_cast<size_t>(first)];
    x.assign(before.begin(), before.end());
  }
  const auto hidden = static_cast<size_t>(spec.embedding.hidden_size);
  const MatrixView<T> rows(x.data(), sequence.ids.size(), hidden);
  if (keep != nullptr) {
    StreamSink<T> sink(*keep, spec.layers.size(), x.size());
    keep->before[0].assign(x.begin(), x.end());
    interpreter.RunLayers(first, rows, &sink, rounder);
  } else {
    interpreter.RunLayers(first, rows, nullptr, rounder);
  }
  std::vector<T> wanted;
  wanted.reserve(sequence.positions.size() * hidden);
  for (const int64_t position : sequence.positions) {
    const auto row = rows.row(static_cast<size_t>(position));
    wanted.insert(wanted.end(), row.begin(), row.end());
  }
  return interpreter.Head({wanted.data(), sequence.positions.size(), hidden}, vocabulary, rounder,
                          sequence.positions);
}

template Result<std::vector<float>> Evaluate<float>(const ModelSpec&, const Weights&, ThreadPool&,
                                                    const EvaluatedSequence&,
                                                    std::span<const int32_t>, const RunSpec&, int,
                                                    const Stream*, Stream*, const Rounder<float>*);
template Result<std::vector<double>> Evaluate<double>(const ModelSpec&, const Weights&, ThreadPool&,
                                                      const EvaluatedSequence&,
                                                      std::span<const int32_t>, const RunSpec&, int,
                                                      const Stream*, Stream*,
                                                      const Rounder<double>*);

}  // namespace lockstep
