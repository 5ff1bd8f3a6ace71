// MergePatch: the patches of several findings as one patch of a model. Between findings.h, where
// each patch is made by itself, and repair.h, which writes them all. Where two of them want
// different things of one place (a number, an attribute, a slot, a name), neither is blended into
// the other: the second is refused whole.
#pragma once

#include <optional>
#include <string>

#include "formats/onnx_write.h"

namespace lockstep {

// Adds `from` to `to`. Absent: done. Else what both want, for a sentence ("the numbers of the
// tensor \"x\""), and `to` is as it was.
std::optional<std::string> MergePatch(const OnnxModel& model, const OnnxPatch& from, OnnxPatch& to);

}  // namespace lockstep
