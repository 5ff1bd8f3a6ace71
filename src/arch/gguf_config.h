// GgufConfig: a GGUF's key-values and tensors as the family files read them. Keys are given without
// the architecture's prefix: "attention.head_count" reads "llama.attention.head_count". Like
// HfConfig it remembers what was read.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/checkpoint.h"
#include "spec/model_spec.h"

namespace lockstep {

class GgufConfig {
 public:
  GgufConfig(const Checkpoint& checkpoint, std::string architecture);

  // T: bool, int64_t, double, std::string, and vectors of int64_t, double, bool.
  template <typename T>
  Result<std::optional<T>> Find(std::string_view key);
  template <typename T>
  Result<T> Require(std::string_view key);
  template <typename T>
  Result<T> Get(std::string_view key, T otherwise);  // `otherwise` is llama.cpp's default
  Result<int64_t> RequireSize(std::string_view key);
  Result<int64_t> GetSize(std::string_view key, int64_t otherwise);
  // A value that is one number for all layers or an array of one per layer (head_count_kv,
  // feed_forward_length).
  Result<std::vector<int64_t>> RequirePerLayer(std::string_view key, int64_t num_layers);

  bool HasTensor(std::string_view name) const;
  // All elements of a small tensor (rope_freqs.weight); `size` is checked. Absent tensor: nullopt.
  Result<std::optional<std::vector<double>>> FindTensor(std::string_view name, int64_t size) const;
  int64_t VocabSize() const;  // rows of token_embd.weight; 0 when absent (the binding reports it)

  const std::string& architecture() const { return architecture_; }
  std::string place() const;
  std::vector<std::string> UnreadKeys()
      const;  // keys under the architecture's prefix that nothing read

 private:
  const Checkpoint& checkpoint_;
  std::string architecture_;
  std::set<std::string, std::less<>> read_;
};

// rope.freq_base, rope.dimension_count,
// rope.scaling.{type,factor,original_context_length,attn_factor, yarn_*}, rope_freqs.weight,
// rope_factors_{long,short}.weight, with llama.cpp's meanings.
struct GgufRopeQuery {
  int64_t head_dim = 0;
  double default_theta = 10000;
  RopeLayout layout = RopeLayout::kHalf;
  std::string_view freq_base_key = "rope.freq_base";
  bool scaled = true;  // false: layers that ignore rope.scaling (Gemma-3's sliding layers)
};
Result<RopeSpec> ParseGgufRope(GgufConfig& config, const GgufRopeQuery& query);

// vocab size, embedding_length, context_length, token ids, tied head (GGUF states it by leaving
// output.weight out) and the architecture's name.
Result<ModelSpec> ParseGgufCommon(GgufConfig& config);

}  // namespace lockstep
