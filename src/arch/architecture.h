// Architecture: how one kind of checkpoint states the facts of a ModelSpec and what it calls the
// weights. A family file (llama.cc, gemma.cc, ...) holds two tables, of Hugging Face model types
// and of GGUF architectures, each row with a function from configuration to spec and the names of
// the tensors. Adding an architecture is adding one such file: see docs/adding/architecture.md.
//
// Only this folder knows a model's name. What a row produces is a spec; nothing downstream asks
// again.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/gguf_config.h"
#include "arch/hf_config.h"
#include "spec/model_spec.h"
#include "spec/weights.h"

namespace lockstep {

// How the names of the weight and the bias follow from a rule's stem.
enum class TensorSuffix {
  kDotted,  // stem.weight, stem.bias
  kBare,    // stem, stem_bias   (parameters that are not in a module, such as gpt-oss' experts)
};

// What the rows of a stored matrix are.
enum class RowOrder {
  kPlain,
  // llama.cpp stores each head's q and k rows as (0, d/2, 1, d/2+1, ...) so that its interleaved
  // RoPE gives what half RoPE gives on the original order. The binding undoes it; the spec says
  // kHalf.
  kInterleavedHalves,
};

// Where the weight (and bias) of a role lies. `name` may hold {layer} and {expert}. Several rules
// may give the same role: alternatives, of which the first whose tensor is present is taken, and
// the first that can hold the weight is written. An export has no other table.
struct TensorRule {
  Role role;
  std::string_view name;
  TensorSuffix suffix = TensorSuffix::kDotted;
  bool transposed = false;       // stored [inputs, outputs], as GPT-2's Conv1D does
  bool stacked_experts = false;  // the tensor has a leading dimension: the expert
  std::span<const Role> fused =
      {};                          // all roles that share the tensor, in the order of their outputs
  bool fused_interleaved = false;  // their outputs alternate (g0 u0 g1 u1 ...) instead of following
  RowOrder row_order = RowOrder::kPlain;
  double addend = 0;   // added to each element of the weight, not of the bias: -1 undoes a norm
                       // offset that GGUF folded in
  int unit_axis = -1;  // where the stored weight has a further dimension of 1: a convolution's
                       // [outputs, 1, kernel]
};

struct HfArchitecture {
  std::string_view model_type;  // config.json's model_type
  std::string_view class_name;  // the class of transformers that config.json's architectures names
  Result<ModelSpec> (*build)(HfConfig& config);
  std::span<const TensorRule> tensors;
  // Tensors of old files that the model computes itself ({layer}): masks, inverse frequencies.
  std::span<const std::string_view> buffers = {};
  // The GGUF architecture that holds such models; empty: none does. Several model types may share
  // one: which of them a GGUF is, only its facts tell.
  std::string_view gguf = {};
};

struct GgufArchitecture {
  std::string_view architecture;  // general.architecture
  Result<ModelSpec> (*build)(GgufConfig& config);
  std::span<const TensorRule> tensors;
  // Where llama.cpp computes something else than the model this file states: a sentence.
  std::string_view llama_cpp_differs = {};
};

// One object of this type at namespace scope in a family file adds its rows to the tables below.
struct ArchitectureFamily {
  ArchitectureFamily(std::span<const HfArchitecture> hf, std::span<const GgufArchitecture> gguf);
};

const HfArchitecture* FindHfArchitecture(std::string_view model_type);
const GgufArchitecture* FindGgufArchitecture(std::string_view architecture);
// The rows that name this GGUF architecture, by model type.
std::vector<const HfArchitecture*> HfArchitecturesOf(std::string_view gguf);
std::vector<std::string> KnownHfArchitectures();    // sorted
std::vector<std::string> KnownGgufArchitectures();  // sorted

}  // namespace lockstep
