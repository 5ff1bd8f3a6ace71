// HfConfig: config.json as the family files read it. It remembers which keys were read, so that a
// key that nothing reads and that could change numbers is reported by name instead of ignored.
#pragma once

#include <initializer_list>
#include <list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "spec/model_spec.h"

namespace lockstep {

class HfConfig {
 public:
  // `place` opens every message: `model/config.json`. `config` must outlive this object.
  HfConfig(const Json& config, std::string place) : config_(config), place_(std::move(place)) {}

  // T: bool, int64_t, double, std::string, std::vector<of those>. A key with null counts as absent.
  // A value of another type is an error that names key, expected and found.
  template <typename T>
  Result<std::optional<T>> Find(std::string_view key);
  template <typename T>
  Result<T> Require(std::string_view key);  // absent: an error
  // `otherwise` is the default of transformers' configuration class, which old files rely on.
  template <typename T>
  Result<T> Get(std::string_view key, T otherwise);

  // Positive sizes of at most kMaxSize: a product of two and the sum over all layers cannot wrap.
  Result<int64_t> RequireSize(std::string_view key);
  Result<int64_t> GetSize(std::string_view key, int64_t otherwise);

  // The object under `key` (Gemma-3's text_config), read like this one. What it leaves unread is
  // unread here, as "text_config.x". The pointer lives as long as this object.
  Result<HfConfig*> RequireObject(std::string_view key);

  bool Has(std::string_view key);             // present and not null; counts as read
  bool IsNull(std::string_view key);          // present and null: an explicit "none"
  const Json* FindRaw(std::string_view key);  // nullptr when absent or null; counts as read
  void Ignore(std::string_view key) {
    read_.insert(std::string(key));
  }  // known not to change numbers here
  // For keys that transformers' code of the family does not have or does not read: absent, null and
  // `value` are fine, anything else is an error because nothing would come of it.
  Status Expect(std::string_view key, const Json& value);
  tl::unexpected<Error> Bad(std::string_view key, std::string_view expected)
      const;  // "config.json: "key" is X, expected ..."

  bool WasRead(std::string_view key) const { return read_.contains(key); }
  const std::string& place() const { return place_; }
  // A key that was seen and, as in transformers, has no effect.
  void ReportUnread(std::string key) { without_effect_.push_back(std::move(key)); }
  // Keys that nothing read and that are not on the list of keys known to change no number of a
  // forward pass (dropout, initializer_range, architectures, ...: table in hf_config.cc).
  std::vector<std::string> UnreadKeys() const;

 private:
  const Json& config_;
  std::string place_;
  std::set<std::string, std::less<>> read_;
  std::vector<std::string> without_effect_;
  std::list<HfConfig> objects_;  // made by RequireObject; their place ends with the key
};

inline constexpr int64_t kMaxSize = int64_t{1} << 24;    // of one dimension of a weight
inline constexpr int64_t kMaxLength = int64_t{1} << 31;  // of a context or a window
inline constexpr int64_t kMaxConfigLayers = 4096;

// Refuses a checkpoint whose config.json has a quantization_config: its tensors hold codes and
// scales of another tool (GPTQ, AWQ, FP8, bitsandbytes, MXFP4, ...), which are no weights by
// themselves and which no family reads. For every family alike, before it reads anything.
Status RefuseQuantized(HfConfig& config);

// --- Readings that many families share ---

// hidden_act words of transformers ("silu", "gelu_new", "gelu_pytorch_tanh", "relu2", ...).
Result<Activation> ParseActivation(HfConfig& config, std::string_view key,
                                   std::string_view otherwise);

// The RoPE of layers of one kind, from any layout a config may have:
//   transformers 5: rope_parameters {rope_theta, rope_type, factor, ..., partial_rotary_factor}
//                   or rope_parameters {layer_type: {...}} (layer_type chooses)
//   transformers 4: rope_theta, rope_scaling {type | rope_type, ...}, partial_rotary_factor;
//                   a rope_scaling that is not empty replaces rope_parameters
// Scaling keys with unknown names or an unknown rope_type are errors. YaRN's and longrope's
// attention_factor are resolved to the number that transformers computes.
struct RopeQuery {
  int64_t head_dim = 0;
  double default_theta = 10000;
  // False: the family's code turns whole heads and never looks at partial_rotary_factor (Llama).
  bool partial_rotary = false;
  double default_partial_rotary_factor = 1;
  // "full_attention", "sliding_attention"; empty: one RoPE for all. With a layer type, values
  // beside the per-type dictionaries do not count, and rope_scaling is of the full_attention layers
  // only (transformers: convert_rope_params_to_dict of Gemma-3 and OLMo-3).
  std::string_view layer_type = {};
  RopeLayout layout = RopeLayout::kHalf;
  int64_t max_position_embeddings = 0;
  std::string_view theta_key = "rope_theta";  // of transformers 4's layout; empty: none
  // The class attribute beside rope_parameters (Phi-3: 4096). 0: the class has none.
  int64_t default_original_max_position_embeddings = 0;
  bool yarn_is_longrope = false;                      // early Phi-3 files say "yarn"
  std::span<const std::string_view> extra_keys = {};  // that the family reads itself (Phi-3.5-MoE)
};
Result<RopeSpec> ParseRope(HfConfig& config, const RopeQuery& query);

// layer_types: the list when given, checked to have num_layers entries from `allowed`.
Result<std::optional<std::vector<std::string>>> FindLayerTypes(
    HfConfig& config, int64_t num_layers, std::initializer_list<std::string_view> allowed);

// vocab_size, hidden_size, tie_word_embeddings, max_position_embeddings, token ids and model_type:
// the part of a spec that every family reads alike. bos/eos/pad; eos may be a list.
// All are the defaults of transformers' configuration class.
struct CommonDefaults {
  int64_t vocab_size = 0;   // 0: required
  int64_t hidden_size = 0;  // 0: required
  bool tie_word_embeddings = false;
  int64_t max_position_embeddings = 0;  // 0: required
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> eos_token_id;
  std::optional<int64_t> pad_token_id;
};
Result<ModelSpec> ParseCommon(HfConfig& config, const CommonDefaults& defaults);
Result<TokenIds> ParseTokenIds(HfConfig& config, const CommonDefaults& defaults);

// num_hidden_layers, at most kMaxConfigLayers; absent: `otherwise`, 0: required.
Result<int64_t> ParseNumLayers(HfConfig& config, int64_t otherwise = 0,
                               std::string_view key = "num_hidden_layers");

// num_attention_heads, num_key_value_heads (absent: as many as heads), head_dim (absent:
// `default_head_dim`, or hidden_size / heads when that is 0): the sizes of an AttentionSpec,
// checked to divide, with all else left at its default except query_scale = 1 / sqrt(head_dim).
struct HeadDefaults {
  int64_t num_attention_heads = 0;  // 0: required
  int64_t num_key_value_heads = 0;  // 0: num_attention_heads
  int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  bool read_head_dim = true;        // false: the family has no head_dim key
};
Result<AttentionSpec> ParseHeads(HfConfig& config, int64_t hidden_size,
                                 const HeadDefaults& defaults = {});

// A window: absent gives `otherwise`, null none.
Result<std::optional<int64_t>> ParseSlidingWindow(HfConfig& config,
                                                  std::optional<int64_t> otherwise,
                                                  std::string_view key = "sliding_window");

// A number above 0: absent gives `otherwise`, null none (soft caps).
Result<std::optional<double>> ParseOptional(HfConfig& config, std::string_view key,
                                            std::optional<double> otherwise);

// A positive number that is finite; `otherwise` when absent.
Result<double> GetPositive(HfConfig& config, std::string_view key, double otherwise);

}  // namespace lockstep
