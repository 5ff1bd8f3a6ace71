// The facts of a spec as a GGUF states them: the way back from a family's reader. One list of keys
// proposes what each fact would be called; the family's own reader then reads the proposal, and its
// word is the only one: keys it did not ask for are not written, and a spec that it does not find
// again, fact by fact, has no such file.
#pragma once

#include <string>
#include <vector>

#include "arch/architecture.h"
#include "formats/gguf_values.h"
#include "formats/tensor_info.h"

namespace lockstep {

// A tensor that is a fact and no weight: rope_freqs.weight.
struct FactTensor {
  std::string name;
  std::vector<float> values;
};

struct GgufFacts {
  GgufValues values;  // general.architecture and the architecture's own keys
  std::vector<FactTensor> tensors;
};

// `weights` are the tensors that will stand beside the keys (names, shapes, types; their data is
// not touched): GGUF states biases and a tied head by having a tensor or not. Fails with the facts
// that the architecture cannot state. `place` opens the message.
Result<GgufFacts> StateInGguf(const ModelSpec& spec, const GgufArchitecture& architecture,
                              std::span<const TensorInfo> weights, std::string_view place);

}  // namespace lockstep
