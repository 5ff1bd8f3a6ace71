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
  // Sizes of one dimension of a weight: 1 to kMaxSize (hf_config.h).
  Result<int64_t> RequireSize(std::string_view key);
  Result<int64_t> GetSize(std::string_view key, int64_t otherwise);
  // Numbers that size what is built from the file (layers, experts). A larger one than `max` is an
  // error before anything is allocated.
  Result<int64_t> RequireCount(std::string_view key, int64_t max);
  Result<int64_t> RequireLayers();  // block_count, at most kMaxConfigLayers (hf_config.h)
  // A value that is one number for all layers or an array of one per layer (head_count_kv,
  // feed_forward_length).
  Result<std::vector<int64_t>> RequirePerLayer(std::string_view key, int64_t num_layers);

  const GgufValue* FindRaw(std::string_view key);      // nullptr when absent; counts as read
  void Ignore(std::string_view key) { FindRaw(key); }  // known not to change numbers here
  // `model.gguf: key "llama.x" is 7, expected ...`
  tl::unexpected<Error> Bad(std::string_view key, std::string_view expected) const;
  // tokenizer.ggml.<key>: an id below VocabSize(); the old marks for "none" (-1) count as absent.
  Result<std::optional<int64_t>> FindTokenId(std::string_view key) const;

  bool HasTensor(std::string_view name) const;
  // Whether anything asked for this key ("attention.head_count").
  bool WasRead(std::string_view key) const {
    return read_.contains(fmt::format("{}.{}", architecture_, key));
  }
  // Tensors that FindTensor read: facts, not weights.
  const std::set<std::string, std::less<>>& tensors_read() const { return tensors_read_; }
  // All elements of a small tensor (rope_freqs.weight); `size` is checked. Absent tensor: nullopt.
  Result<std::optional<std::vector<double>>> FindTensor(std::string_view name, int64_t size);
  int64_t VocabSize() const;  // rows of token_embd.weight; 0 when absent (the binding reports it)

  const std::string& architecture() const { return architecture_; }
  std::string place() const;
  std::vector<std::string> UnreadKeys()
      const;  // keys under the architecture's prefix that nothing read

 private:
  const Checkpoint& checkpoint_;
  std::string architecture_;
  std::set<std::string, std::less<>> read_;
  std::set<std::string, std::less<>> tensors_read_;
};

// rope.freq_base, rope.dimension_count,
// rope.scaling.{type,factor,original_context_length,attn_factor, yarn_*}, rope_freqs.weight,
// rope_factors_{long,short}.weight, with llama.cpp's meanings.
struct GgufRopeQuery {
  int64_t head_dim = 0;
  double default_theta = 10000;
  RopeLayout layout = RopeLayout::kHalf;
  std::string_view freq_base_key = "rope.freq_base";
  bool scaled = true;         // false: layers that ignore rope.scaling (Gemma-3's sliding layers)
  bool yarn_truncate = true;  // GGUF has no key for it; gpt-oss does not truncate
  // deepseek2 states rope.scaling.yarn_log_multiplier as 0.1 * mscale_all_dim and has mscale equal
  // to mscale_all_dim; other architectures state mscale_all_dim itself and have an mscale of 1.
  bool deepseek_mscale = false;
};
Result<RopeSpec> ParseGgufRope(GgufConfig& config, const GgufRopeQuery& query);

// One AttentionSpec per layer: attention.head_count, head_count_kv (absent: head_count; 0: a layer
// without attention), key_length (absent: embedding_length / head_count), checked to divide, with
// all else left at its default except query_scale = 1 / sqrt(head_dim).
Result<std::vector<AttentionSpec>> ParseGgufHeads(GgufConfig& config, int64_t hidden_size,
                                                  int64_t num_layers);

// A number above 0; `otherwise` when absent or stated as 0, as llama.cpp takes it.
Result<double> GetGgufPositive(GgufConfig& config, std::string_view key, double otherwise);

// vocab size, embedding_length, context_length, token ids, tied head (GGUF states it by leaving
// output.weight out) and the architecture's name.
Result<ModelSpec> ParseGgufCommon(GgufConfig& config);

}  // namespace lockstep
