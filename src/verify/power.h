// Power: which of the known faults could these prompts have shown? A match says no more than that.
// Fault by fault of the catalogue, the reference with the fault is held against the reference, as a
// verification holds a candidate: shortest prompts first, until one shows it.
//
// With a large vocabulary a part of it is compared (evidence.h), against the tolerance of all: what
// is said to show, shows; what is said not to might, by a logit outside of that part.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "faults/catalog.h"
#include "model/model.h"
#include "verify/subject.h"

namespace lockstep {

enum class PowerState {
  kShows,          // in every form, beyond the tolerance, on some prompt
  kSomeFormsShow,  // and others do not: also where the size of a window had to be invented
  kNeedsMore,      // a longer prompt, or more steps
  kSilent,         // every prompt was long enough, and none shows it
  kDoesNotApply,   // no prompt can show it on this checkpoint
};
std::string_view PowerStateName(PowerState state);

struct FaultPower {
  const Fault* fault = nullptr;
  PowerState state = PowerState::kDoesNotApply;
  int64_t forms = 0, forms_shown = 0;
  // Where any form shows: the faintest of those that do, on the first prompt that shows it. Where
  // none does: the most that any does on any prompt, or a bound of it.
  double times_tolerance = 0;
  std::string probe;
  int64_t tokens = 0;        // of that prompt
  int64_t step = -1;         // of the greedy ones after it, the first beyond the tolerance
  int64_t needs_tokens = 0;  // kNeedsMore: of a prompt that would do; 0: more steps
  std::string sentence;      // why it, or a form of it, does not show; empty where all do
};

struct PowerReport {
  std::vector<FaultPower> faults;  // one for each of KnownFaults(), in its order
  int64_t probes = 0, longest = 0;
  std::string sentence;
  int64_t Count(PowerState state) const;
};

// `reference` runs `model` in fp32. Fails where the reference cannot run a probe,
// or with Interrupted().
Result<PowerReport> MeasurePower(const Model& model, Subject& reference, std::vector<Probe> probes,
                                 ThreadPool& pool, const Progress& progress);

Json ToJson(const PowerReport& report);

}  // namespace lockstep
