// Which type each tensor of a GGUF gets. One table of precisions: a plain name is that type for
// every matrix, _s, _m and _l are llama.cpp's mixtures (llama-quant.cpp's llama_tensor_get_type).
// Vectors, biases, routers, convolutions and position embeddings stay F32, as llama.cpp's own tools
// keep them: its kernels read those as floats.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/place_weights.h"

namespace lockstep {

struct GgufPrecision {
  std::string_view name;  // "q4_k_m"; "keep": what the model has
  std::string_view type;  // of most tensors; empty for "keep"
  int file_type = 0;      // general.file_type, llama.cpp's llama_ftype
  bool mixture = false;
  std::string_view description;
};
std::span<const GgufPrecision> GgufPrecisions();
Result<const GgufPrecision*> FindGgufPrecision(std::string_view name);

struct TypeChoice {
  const TensorType* type = nullptr;
  std::string substitution;  // a sentence when it is not the type that was asked for
};
// One for each tensor, in order.
std::vector<TypeChoice> ChooseTypes(const GgufPrecision& precision, const ModelSpec& spec,
                                    std::span<const PlacedTensor> tensors, const Weights& weights);

}  // namespace lockstep
