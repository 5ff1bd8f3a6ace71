// What the known faults would do on the prompts of a verification, for the verbs that tell it.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "verify/power.h"
#include "verify/verify.h"

namespace lockstep {

struct ModelPower {
  PowerReport report;
  std::string name;  // of the model
  std::vector<std::string> notes;
};

// On what Verify would ask `reference`, behind which `model` stands.
Result<ModelPower> MeasureModelPower(const Model& model, Subject& reference,
                                     const VerifyOptions& options, ThreadPool& pool,
                                     const Progress& progress);

std::string PowerText(const ModelPower& power);
Json ToJson(const ModelPower& power);

}  // namespace lockstep
