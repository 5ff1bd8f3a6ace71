// The table of precisions: what --precision names, how matrices lie then, and in which type the
// graph computes on which execution provider. Read by the exporters and by the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "formats/onnx.h"

namespace lockstep {

struct ExportPrecision {
  std::string_view name;
  int bits;  // of the codes that matrices become; 0: numbers of the graph's type
  // What activations, caches and all that is no code are; absent: not on this provider.
  std::optional<OnnxType> on_cpu, on_cuda;
  std::string_view description;  // one phrase
};

std::span<const ExportPrecision> ExportPrecisions();
const ExportPrecision* FindExportPrecision(std::string_view name);  // nullptr when unknown

// The graph's type, or why there is none. `provider` is cpu or cuda.
Result<OnnxType> TypeOn(const ExportPrecision& precision, std::string_view provider);

}  // namespace lockstep
