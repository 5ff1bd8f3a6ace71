// What a GGUF states by having a tensor or not: biases have no key. Used by the readers that
// several families share (decoder.cc, dense.cc).
#pragma once

#include "arch/gguf_config.h"

namespace lockstep {

// Whether the layers have `blk.{i}.` + tensor: all of them or none. A file in which only some do is
// refused: read by its first layer, the others' would be ignored without a word.
inline Result<bool> InEveryLayer(const GgufConfig& config, std::string_view tensor,
                                 int64_t num_layers) {
  const auto name = [&](int64_t layer) { return fmt::format("blk.{}.{}", layer, tensor); };
  const bool first = config.HasTensor(name(0));
  for (int64_t layer = 1; layer < num_layers; ++layer)
    if (config.HasTensor(name(layer)) != first)
      return InputError(
          "{}: tensor \"{}\" is {} and \"{}\" is {}, expected one in every layer or in none",
          config.place(), name(0), first ? "present" : "absent", name(layer),
          first ? "absent" : "present");
  return first;
}

}  // namespace lockstep
