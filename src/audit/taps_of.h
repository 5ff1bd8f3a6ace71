// TapsOf: which value of an exported decoder's graph is which tap of the reference (spec/taps.h).
// What FindDecoder read of the graph (decoder.h), as names to ask a run for; verify/bisect.h finds
// the first of them that differs.
//
// A value that is only nearly a tap (scaled already, a bias missing that a later operator adds) is
// left out: a wrong name would put the blame on a sound operation.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "audit/decoder.h"
#include "formats/onnx.h"

namespace lockstep {

// TapName -> the name of the value. `decoder` is what FindDecoder made of this model.
std::map<std::string, std::string> TapsOf(const OnnxModel& model, const FoundDecoder& decoder);

// The operation that computes a value, behind nodes that only move elements: `MatMul
// "/model/layers.0/mlp/gate_proj/MatMul"`. Empty for a value that no node makes.
std::string OperationMaking(const OnnxModel& model, std::string_view value);

}  // namespace lockstep
