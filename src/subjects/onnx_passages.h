// The ways by which an exported decoder can be given a sequence, for TakePassage: which of them its
// graph's contract allows, and how it is fed then.
#pragma once

#include <functional>
#include <memory>
#include <string>
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

// Values inside the graph, on a copy that gives them as outputs, of the sequence that is asked
// about.
struct OnnxWatch {
  std::vector<std::string> names;
  // After each call: a value as for one sequence of `tokens` ids and padding, of which `count` from
  // `begin` on are the ids that were appended.
  struct Seen {
    size_t value;  // index into names
    std::vector<int64_t> shape;
    std::vector<float> numbers;
    int64_t tokens, begin, count;
  };
  std::function<Status(const Seen& seen)> take;
  // Everything from position `length` on is forgotten.
  std::function<void(int64_t length)> cut;
};

// Session and contract must outlive what is made.
PassageMaker OnnxPassages(std::shared_ptr<const OrtRuntime> runtime, OrtSession& session,
                          const OnnxContract& contract, PaddingSide side,
                          OrtSession::KeepGoing keep_going, const OnnxWatch* watch = nullptr);

}  // namespace lockstep
