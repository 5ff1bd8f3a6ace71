// A decoder in an ONNX graph as a Model: its weights taken back from where the data flow puts them
// (decoder.h), with what an exporter did to them undone: norm offsets, matrices stored transposed,
// stacked or in turn, codes. The graph says no facts, so the spec comes with it. Read by exports
// from ONNX to checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "formats/onnx.h"
#include "model/model.h"

namespace lockstep {

// `checkpoint` has no tensors; its files become the graph's. Plain weights stay where the file has
// them; codes are held in memory as fp32. Fails with every weight of the spec that was not found,
// or has another shape. The model's notes say what is not bit for bit the graph's, and why.
Result<Model> ModelOfOnnx(std::shared_ptr<const OnnxModel> onnx, ModelSpec spec,
                          Checkpoint checkpoint);

// Fails where the graph computes something else than the model's facts on these weights: a scale
// that was multiplied into a matrix, a constant that is another.
Status CheckSameFunction(const Model& model, const OnnxModel& onnx);

}  // namespace lockstep
