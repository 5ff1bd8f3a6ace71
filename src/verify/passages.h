// Passages: does the candidate give the same logits however its cache is filled? A plain run fills
// it in one way only: the prompt whole, then token by token. One or two prompts of a plan are put
// to the candidate again by every other way that it can take (Subject::Abilities::passages).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "verify/verify.h"

namespace lockstep {

// Greedy steps after a prompt that came by another way: enough to read every row of the cache, and
// to cross a window that the prompt stops short of.
inline constexpr int64_t kPassageSteps = 4;

// A prompt of the plan that both sides ran, and what was seen.
struct PlainRun {
  Probe probe;
  PromptTrace reference, candidate;
  PromptComparison compared;
  // What less precision does to the reference on this prompt (as in CompareRuns), measured when
  // asked; the argument is what is enough.
  std::function<Result<std::optional<RoundingEffect>>(double)> rounding;
};

// Which of the plan's probes are put again, as indices into it, in that order: the shortest that
// can be cut into three calls, and one that crosses the smallest window (of a model without, a page
// of a cache).
std::vector<size_t> ProbesForPassages(const ProbePlan& plan, const ModelSpec* spec);

// The ways that make sense for this prompt, with what is asked in each, the cheapest first. `spec`
// may be nullptr. Where a token's numbers follow from the call that it comes in
// (DependsOnCallLength) the definition allows no other way than to take turns.
std::vector<Probe> PassagesOf(const PlainRun& plain, std::span<const Passage> can,
                              const ModelSpec* spec);

// Puts `runs` to the candidate by every way it can, as long as that costs less than half of what
// the plain comparison of `plan` did, counted in calls and tokens; one that it takes in any case.
// Ways that are not asked are in the result as well (left_out). Fails only when interrupted.
Result<std::vector<PassageComparison>> ComparePassages(Subject& reference, Subject& candidate,
                                                       const ProbePlan& plan,
                                                       const std::vector<PlainRun>& runs,
                                                       const Progress& progress);

// What could not be taken, with the candidate's own words, and what was left out.
std::vector<std::string> PassageNotes(const std::vector<PassageComparison>& passages);

// What passages change in a verification: the verdict where they alone differ or break, and the
// sentence where any does. That a way cannot be run is told as that, not as other logits.
void ConcludePassages(Verification& verification);

}  // namespace lockstep
