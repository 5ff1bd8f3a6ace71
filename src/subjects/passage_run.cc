#include "subjects/passage_run.h"

#include <algorithm>
#include <numeric>

#include "verify/compare.h"

namespace lockstep {
namespace {

// The calls of one probe, whatever the way.
class Walk {
 public:
  Walk(const Probe& probe, const PassageMaker& maker) : probe_(probe), maker_(maker) {}

  // The prompt: logits of its last position, or of all.
  Result<LogitRows> Prompt(int64_t steps) {
    const auto count = static_cast<int64_t>(probe_.ids.size());
    const auto others = static_cast<int64_t>(probe_.other.size());
    const bool all = probe_.all_positions;
    if (probe_.passage == Passage::kPaddedBatch) {
      LS_TRY(batch_, maker_.batch(std::max(count, others) + steps));
      return batch_->Append(probe_.ids, probe_.other, all);
    }
    const bool rewound = probe_.passage == Passage::kRewound;
    LS_TRY(sequence_, maker_.sequence(count + (rewound ? std::max(others, steps) : steps)));
    if (probe_.passage == Passage::kInterleaved) {
      LS_TRY(other_, maker_.sequence(others + steps));
      LS_RETURN_IF_ERROR(other_->Append(probe_.other, false));
    }
    LogitRows rows;
    if (probe_.passage == Passage::kChunked) {
      std::span<const int32_t> rest = probe_.ids;
      for (const int64_t part : probe_.parts) {
        LS_TRY(LogitRows given, sequence_->Append(rest.first(static_cast<size_t>(part)), all));
        if (!all) rows.clear();
        std::ranges::move(given, std::back_inserter(rows));
        rest = rest.subspan(static_cast<size_t>(part));
      }
      return rows;
    }
    LS_TRY(rows, sequence_->Append(probe_.ids, all));
    if (probe_.passage == Passage::kRewound) {
      LS_RETURN_IF_ERROR(sequence_->Append(probe_.other, false));
      LS_RETURN_IF_ERROR(sequence_->CutBack(count));
    }
    return rows;
  }

  Result<LogitRows> Feed(int32_t token, int64_t step) {
    const std::span<const int32_t> one(&token, 1);
    if (batch_ != nullptr) {
      const int32_t others = OtherToken(step);
      return batch_->Append(one, std::span(&others, 1), false);
    }
    if (other_ != nullptr) {
      const int32_t others = OtherToken(step);
      LS_RETURN_IF_ERROR(other_->Append(std::span(&others, 1), false));
    }
    return sequence_->Append(one, false);
  }

 private:
  int32_t OtherToken(int64_t step) const {
    return probe_.other[static_cast<size_t>(step) % probe_.other.size()];
  }

  const Probe& probe_;
  const PassageMaker& maker_;
  std::unique_ptr<PassageSequence> sequence_, other_;
  std::unique_ptr<PassageBatch> batch_;
};

}  // namespace

Result<PromptTrace> TakePassage(const Probe& probe, int64_t steps, const PassageMaker& maker,
                                const Progress& progress) {
  if (probe.hidden || !probe.taps.empty() || probe.measure_noise)
    return UnsupportedError("hidden states, taps and noise are of whole prompts alone");
  const auto count = static_cast<int64_t>(probe.ids.size());
  const bool parts = probe.passage != Passage::kChunked ||
                     (std::ranges::all_of(probe.parts, [](int64_t n) { return n > 0; }) &&
                      std::accumulate(probe.parts.begin(), probe.parts.end(), int64_t{0}) == count);
  LS_CHECK(count > 0 && parts, "{} ids in parts of {}", count, fmt::join(probe.parts, " + "));
  LS_CHECK(probe.passage == Passage::kWhole || probe.passage == Passage::kChunked ||
           !probe.other.empty());
  if (probe.passage == Passage::kPaddedBatch && !maker.batch)
    return UnsupportedError("takes no batch");
  PromptTrace out{.name = probe.name, .text = probe.text, .rendered = probe.rendered};
  out.ids = probe.ids;
  Walk walk(probe, maker);
  if (!progress("running", 0, count + steps)) return tl::unexpected(Interrupted());
  LS_TRY(LogitRows rows, walk.Prompt(steps));
  const auto vocab = static_cast<int64_t>(rows.back().size());
  if (probe.all_positions) {
    TraceRows<double> positions;
    for (const auto& row : rows) positions.Append(row.data(), 1, row.size());
    out.logits = std::move(positions).Take();
  }
  std::vector<double> row = std::move(rows.back());
  out.steps[0] = TraceTensor{{vocab}, row};
  for (int64_t k = 0; k < steps; ++k) {
    const TopTwo top = FindTopTwo(row);
    out.min_top2_gap = std::min(out.min_top2_gap.value_or(top.gap), top.gap);
    out.greedy.push_back(top.first);
    if (k + 1 == steps) break;
    if (!progress("running", count + k, count + steps)) return tl::unexpected(Interrupted());
    LS_TRY(rows, walk.Feed(top.first, k));
    row = std::move(rows.back());
    out.steps[k + 1] = TraceTensor{{vocab}, row};
  }
  return out;
}

}  // namespace lockstep
