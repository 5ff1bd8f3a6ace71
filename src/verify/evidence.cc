#include "verify/evidence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/quoted.h"
#include "reference/interpreter.h"
#include "verify/compare.h"

namespace lockstep {
namespace {

// Smaller vocabularies are compared whole.
constexpr int64_t kSmallVocabulary = 8192;
constexpr int64_t kSampledIds = 2048;
constexpr size_t kBestIds = 32;
// Positions inside a prompt that count, beside its end: early ones, where attention sees little.
constexpr int64_t kInnerPositions[] = {0, 1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512};

// The ids of the largest logits of every row, and others that anybody would draw the same way.
std::vector<int32_t> ChooseIds(int64_t vocab_size, const std::vector<std::vector<double>>& rows) {
  std::vector<int32_t> ids;
  for (const std::vector<double>& row : rows) {
    std::vector<int32_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(std::min(kBestIds, row.size()));
    std::partial_sort(order.begin(), middle, order.end(), [&](int32_t a, int32_t b) {
      return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
    });
    ids.insert(ids.end(), order.begin(), middle);
  }
  for (int64_t i = 0; i < kSampledIds; ++i)
    ids.push_back(static_cast<int32_t>(i * vocab_size / kSampledIds + (i * 37) % 4));
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// The candidate's logits at a compared position.
std::vector<double> RowOf(const PromptTrace& trace, int64_t position, int64_t step) {
  return step >= 0 ? trace.StepLogits(step) : trace.logits->Row(position);
}

}  // namespace

int64_t Evidence::Positions() const {
  int64_t positions = 0;
  for (const Run& run : runs) positions += static_cast<int64_t>(run.steps.size());
  return positions;
}

Result<Evidence> GatherEvidence(const ModelSpec& spec, std::span<const PromptTrace> candidate) {
  const int64_t vocab = spec.embedding.vocab_size;
  const auto limit = ContextLimit(spec);
  Evidence out;
  std::vector<std::vector<double>> rows;
  for (size_t r = 0; r < candidate.size(); ++r) {
    const PromptTrace& trace = candidate[r];
    const auto prompt = static_cast<int64_t>(trace.ids.size());
    const auto check = [&](const std::vector<double>& row, int64_t position) -> Status {
      if (static_cast<int64_t>(row.size()) != vocab)
        return InputError(
            "prompt {}: the candidate has logits for {} tokens and the reference for {}; they are "
            "not the same model",
            Quoted(trace.name), row.size(), vocab);
      if (const int64_t id = FirstNotFinite(row); id >= 0)
        return InputError(
            "prompt {}: the candidate's logit of id {} at position {} is {}, which is no number",
            Quoted(trace.name), id, position, row[static_cast<size_t>(id)]);
      return {};
    };
    Evidence::Run run{.name = trace.name};
    run.sequence.prompt = prompt;
    const auto add = [&](int64_t position, int64_t step) -> Status {
      std::vector<double> row = RowOf(trace, position, step);
      if (row.empty() || (limit && position >= *limit)) return {};
      LS_RETURN_IF_ERROR(check(row, position));
      run.sequence.positions.push_back(position);
      run.steps.push_back(step);
      rows.push_back(std::move(row));
      return {};
    };
    if (trace.logits)
      for (const int64_t position : kInnerPositions)
        if (position < prompt - 1) LS_RETURN_IF_ERROR(add(position, -1));
    const auto greedy = static_cast<int64_t>(trace.greedy.size());
    for (int64_t step = 0; step < std::max<int64_t>(greedy, 1); ++step)
      LS_RETURN_IF_ERROR(add(prompt - 1 + step, step));
    if (run.sequence.positions.empty()) continue;
    run.sequence.ids = trace.ids;
    for (int64_t k = 0; prompt + k <= run.sequence.positions.back(); ++k)
      run.sequence.ids.push_back(trace.greedy[static_cast<size_t>(k)]);
    for (size_t i = 0; i < run.sequence.ids.size(); ++i)
      if (run.sequence.ids[i] < 0 || run.sequence.ids[i] >= vocab)
        return InputError("prompt {}: token {} has id {}, but the vocabulary has ids 0 to {}",
                          Quoted(trace.name), i, run.sequence.ids[i], vocab - 1);
    out.runs.push_back(std::move(run));
    out.trace.push_back(r);
  }
  if (out.runs.empty())
    return UsageError(
        "the candidate gave no logits to explain; record them (`lockstep trace`), or run it here");
  if (vocab > kSmallVocabulary) out.vocabulary = ChooseIds(vocab, rows);
  out.columns = out.vocabulary.empty() ? static_cast<size_t>(vocab) : out.vocabulary.size();
  size_t row = 0;
  for (Evidence::Run& run : out.runs) {
    run.logits.reserve(run.steps.size() * out.columns);
    for (size_t i = 0; i < run.steps.size(); ++i, ++row) {
      const std::vector<double>& values = rows[row];
      if (out.vocabulary.empty())
        for (const double x : values) run.logits.push_back(static_cast<float>(x));
      for (const int32_t id : out.vocabulary)
        run.logits.push_back(static_cast<float>(values[static_cast<size_t>(id)]));
    }
  }
  // The cheapest first: a guess that fails there need not be tried on the others.
  std::vector<size_t> order(out.runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return out.runs[a].sequence.ids.size() < out.runs[b].sequence.ids.size();
  });
  Evidence sorted{.vocabulary = std::move(out.vocabulary), .columns = out.columns};
  for (const size_t r : order) {
    sorted.runs.push_back(std::move(out.runs[r]));
    sorted.trace.push_back(out.trace[r]);
  }
  return sorted;
}

double MaxAt(const Evidence& evidence, size_t run, size_t position, std::span<const float> logits) {
  const size_t begin = position * evidence.columns;
  const std::vector<float>& expected = evidence.runs[run].logits;
  double worst = 0;
  for (size_t i = begin; i < begin + evidence.columns; ++i) {
    const double d = std::abs(static_cast<double>(logits[i]) - static_cast<double>(expected[i]));
    if (std::isnan(d)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, d);
  }
  return worst;
}

RunScore ScoreOf(const Evidence& evidence, size_t run, std::span<const float> logits) {
  const Evidence::Run& of = evidence.runs[run];
  RunScore score;
  const double floor = std::max(of.noise / kNoiseMultiple, 1e-12);
  for (size_t p = 0; p < of.steps.size(); ++p) {
    double squares = 0;
    for (size_t i = p * evidence.columns; i < (p + 1) * evidence.columns; ++i) {
      const double d = static_cast<double>(logits[i]) - static_cast<double>(of.logits[i]);
      squares += d * d;
    }
    double rms = std::sqrt(squares / static_cast<double>(evidence.columns));
    // What is no number is as far away as can be.
    if (!std::isfinite(rms)) rms = 1e30;
    score.log_rms += std::log10(std::max(rms, floor)) / static_cast<double>(of.steps.size());
    score.squares += rms * rms * static_cast<double>(evidence.columns);
    score.max_abs = std::max(score.max_abs, MaxAt(evidence, run, p, logits));
  }
  score.times_tolerance = score.max_abs / of.tolerance;
  return score;
}

double MaxOverAllIds(const Evidence& evidence, size_t run, const PromptTrace& trace,
                     std::span<const float> logits) {
  const Evidence::Run& of = evidence.runs[run];
  double worst = 0;
  const size_t vocab = logits.size() / of.steps.size();
  for (size_t p = 0; p < of.steps.size(); ++p) {
    const auto row = logits.subspan(p * vocab, vocab);
    worst = std::max(worst, MaxAbsDifference(std::vector<double>(row.begin(), row.end()),
                                             RowOf(trace, of.sequence.positions[p], of.steps[p])));
  }
  return worst;
}

}  // namespace lockstep
