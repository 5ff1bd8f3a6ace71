// Compare: two rows of logits as numbers, and what difference is allowed between two runs of the
// same model. The tolerance is measured on the prompt, not chosen: docs/numerics.md derives it.
#pragma once

#include <cstdint>
#include <span>

#include "trace/trace.h"

namespace lockstep {

// "A few times the noise": noise is max |fp32 - fp64| of one implementation on this prompt. Another
// fp32 implementation rounds elsewhere: its error is of the same size and independent, so that
// twice the noise is the typical distance; the worst of some hundred thousand logits lies a few
// times above. The floor covers logits whose noise is 0 by chance.
inline constexpr double kNoiseMultiple = 8;
inline constexpr double kToleranceFloor = 1e-6;
inline double Tolerance(double noise) { return kNoiseMultiple * noise + kToleranceFloor; }

// The noise that is assumed where nobody measured it (two recorded traces without "noise"): sums of
// a few thousand products in fp32 err by some tens of units in the last place of the largest logit.
inline constexpr double kAssumedNoiseUlps = 16;
double AssumedNoise(std::span<const double> logits);

// A recording is believed that its noise is at most so many times the assumed one (seen, over 38
// architectures: 4.6 at most), or the one that the candidate measures on the same prompt.
inline constexpr double kPlausibleNoise = 16;

// The first logit that is no number (NaN or infinite), or -1. A subject that gives one has failed:
// an infinite difference would make an infinite noise, and that an infinite tolerance.
int64_t FirstNotFinite(std::span<const double> logits);

// A program that rounds more than fp32 does is allowed what that rounding moves the reference's own
// logits, this many times: the rounding is the same, where it falls is not (EngineRounding measures
// the shares that docs/numerics.md lists).
inline constexpr double kRoundingMultiple = 3;

// Bounds of the conformance tests (tests/conformance.cc). Against a run in fp64 only the golden's
// own fp32 rounding is left: half of two implementations'. The two real models are held to one
// number: five times the largest noise that their goldens record (6e-5, on logits of about 20).
inline constexpr double kFp64Multiple = 4;
inline constexpr double kRealBound = 3e-4;

// Ids of the two largest logits (the lowest id among equals) and the distance between them.
struct TopTwo {
  int32_t first = 0;
  double gap = 0;  // 0 when there is only one logit
};
TopTwo FindTopTwo(std::span<const double> logits);

struct RowDifference {
  double max_abs = 0;     // max |a - b|; infinite when either has a NaN, or infinities that differ
  int64_t worst = 0;      // the id where it is
  double kl = 0;          // KL(softmax(a) || softmax(b)) in nats; infinite when not finite
  bool same_top1 = true;  // both have their largest logit at the same id
  TopTwo a, b;
};
// Rows of the same length, not empty; `a` is the reference.
RowDifference CompareRows(std::span<const double> a, std::span<const double> b);

// Log-probabilities of some ids of a row of logits. The ids lie inside the row.
SparseRow ShownOf(std::span<const double> logits, std::span<const int32_t> ids);

// The same of what is shown of two rows, on the ids that both show; absent where there are none.
// max_abs is of log-probabilities. kl is that of "each such id, or any other": a lower bound of the
// rows' own (grouping outcomes never makes two distributions easier to tell apart).
std::optional<RowDifference> CompareShown(const SparseRow& a, const SparseRow& b);

// max |a - b| alone; the same rules.
double MaxAbsDifference(std::span<const double> a, std::span<const double> b);

}  // namespace lockstep
