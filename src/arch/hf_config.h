// HfConfig: config.json as the family files read it. It remembers which keys were read, so that a
// key that nothing reads and that could change numbers is reported by name instead of ignored.
#pragma once

#include <optional>
#include <set>
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

  // Positive sizes with a sane upper bound (2^31), so that later products cannot wrap.
  Result<int64_t> RequireSize(std::string_view key);
  Result<int64_t> GetSize(std::string_view key, int64_t otherwise);

  bool Has(std::string_view key);             // present and not null; counts as read
  const Json* FindRaw(std::string_view key);  // nullptr when absent or null; counts as read
  void Ignore(std::string_view key) {
    read_.insert(std::string(key));
  }  // known not to change numbers here
  tl::unexpected<Error> Bad(std::string_view key, std::string_view expected)
      const;  // "config.json: "key" is X, expected ..."

  const std::string& place() const { return place_; }
  // Keys that nothing read and that are not on the list of keys known to change no number of a
  // forward pass (dropout, initializer_range, architectures, ...: table in hf_config.cc).
  std::vector<std::string> UnreadKeys() const;

 private:
  const Json& config_;
  std::string place_;
  std::set<std::string, std::less<>> read_;
};

// --- Readings that many families share ---

// hidden_act words of transformers ("silu", "gelu_new", "gelu_pytorch_tanh", "relu2", ...).
Result<Activation> ParseActivation(HfConfig& config, std::string_view key,
                                   std::string_view otherwise);

// The RoPE of layers of one kind, from any layout a config may have:
//   transformers 5: rope_parameters {rope_theta, rope_type, factor, ..., partial_rotary_factor}
//                   or rope_parameters {layer_type: {...}} (layer_type chooses)
//   transformers 4: rope_theta, rope_scaling {type | rope_type, ...}, partial_rotary_factor
// Scaling keys with unknown names or an unknown rope_type are errors. YaRN's and longrope's
// attention_factor are resolved to the number that transformers computes.
struct RopeQuery {
  int64_t head_dim = 0;
  double default_theta = 10000;
  double default_partial_rotary_factor = 1;
  std::string_view layer_type =
      {};  // "full_attention", "sliding_attention"; empty: one RoPE for all
  RopeLayout layout = RopeLayout::kHalf;
  int64_t max_position_embeddings = 0;
};
Result<RopeSpec> ParseRope(HfConfig& config, const RopeQuery& query);

// layer_types: the list when given, checked to have num_layers entries from `allowed`.
Result<std::optional<std::vector<std::string>>> FindLayerTypes(
    HfConfig& config, int64_t num_layers, std::initializer_list<std::string_view> allowed);

// vocab_size, hidden_size, tie_word_embeddings, max_position_embeddings, token ids and model_type:
// the part of a spec that every family reads alike. bos/eos/pad; eos may be a list.
struct CommonDefaults {
  bool tie_word_embeddings = false;     // the default of transformers' configuration class
  int64_t max_position_embeddings = 0;  // 0: required
};
Result<ModelSpec> ParseCommon(HfConfig& config, const CommonDefaults& defaults);

}  // namespace lockstep
