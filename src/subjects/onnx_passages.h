// The ways by which an exported decoder can be given a sequence, for TakePassage: which of them its
// graph's contract allows, and how it is fed then.
#pragma once

#include <memory>
#include <vector>

#include "formats/onnx.h"
#include "ort/ort_session.h"
#include "spec/run_spec.h"
#include "subjects/onnx_contract.h"
#include "subjects/passage_run.h"

namespace lockstep {

// On which side a batch is padded: where the operator finds a row's end by its length
// (GroupQueryAttention), on the right; where it reads a mask, on the left.
PaddingSide PaddingSideOf(const OnnxModel& model);

std::vector<Passage> OnnxPassagesOf(const OnnxModel& model, const OnnxContract& contract);

// Session and contract must outlive what is made.
PassageMaker OnnxPassages(std::shared_ptr<const OrtRuntime> runtime, OrtSession& session,
                          const OnnxContract& contract, PaddingSide side,
                          OrtSession::KeepGoing keep_going);

}  // namespace lockstep
