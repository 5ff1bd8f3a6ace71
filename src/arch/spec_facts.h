// SpecFacts: where in a spec the facts lie that a configuration states once for all layers. A
// configuration is a proposal made from them (gguf_facts.h, hf_facts.h), and what it does not state
// is found by reading it back: nothing here decides whether a spec has such a configuration.
#pragma once

#include "spec/model_spec.h"
#include "spec/rope_facts.h"

namespace lockstep {

// Each pointer is into the spec, or null where it has no such thing.
struct SpecFacts {
  const ModelSpec& spec;
  const AttentionSpec* attention = nullptr;  // of the first layer that attends
  const AttentionSpec* windowed = nullptr;   // of the first with a sliding window
  const MlaSpec* mla = nullptr;
  const ShortConvSpec* conv = nullptr;
  const MlpSpec* mlp = nullptr;  // of the first layer without experts
  const MoeSpec* moe = nullptr;
  const RopeSpec* rope = nullptr;           // of a layer without a window, where one rotates
  const RopeSpec* windowed_rope = nullptr;  // of a layer with one

  explicit SpecFacts(const ModelSpec& spec) : spec(spec) {
    const RopeSpec* first_rope = nullptr;
    for (const LayerSpec& layer : spec.layers) {
      const auto* here = std::get_if<AttentionSpec>(&layer.mixer);
      const bool has_window = here != nullptr && here->sliding_window;
      if (attention == nullptr) attention = here;
      if (windowed == nullptr && has_window) windowed = here;
      if (mla == nullptr) mla = std::get_if<MlaSpec>(&layer.mixer);
      if (conv == nullptr) conv = std::get_if<ShortConvSpec>(&layer.mixer);
      if (mlp == nullptr) mlp = std::get_if<MlpSpec>(&layer.mlp);
      if (moe == nullptr) moe = std::get_if<MoeSpec>(&layer.mlp);
      const RopeSpec* turned = FindRope(layer);
      if (first_rope == nullptr) first_rope = turned;
      const RopeSpec*& of_kind = has_window ? windowed_rope : rope;
      if (of_kind == nullptr) of_kind = turned;
    }
    if (rope == nullptr) rope = first_rope;
  }

  // Layers before the first with experts; all of them when none has.
  int64_t LeadingDenseLayers() const {
    int64_t layers = 0;
    for (const LayerSpec& layer : spec.layers) {
      if (std::holds_alternative<MoeSpec>(layer.mlp)) break;
      ++layers;
    }
    return layers;
  }
  int64_t num_layers() const { return static_cast<int64_t>(spec.layers.size()); }
};

// DeepSeek's mscale_all_dim, which its query scale holds (mscale squared over the root of the
// head's length, mscale = 0.1 m ln(factor) + 1); 0 when it holds none.
double MscaleAllDim(const MlaSpec& mla);

// 0.1 ln(factor) + 1: what YaRN multiplies cos and sin by when nothing else is stated.
double YarnAttentionFactor(double factor);

// llama3's bands as a divisor for each frequency, which is how GGUF holds them.
std::vector<float> Llama3Factors(const Llama3Scaling& scaling, double theta, int64_t rotary_dim);
// The scaling with exactly these factors; absent when no llama3 scaling has them. GGUF does not
// state `original`, without which only the ratios to it are known: 0 takes low_freq_factor 1.
std::optional<Llama3Scaling> FitLlama3(const std::vector<double>& factors, double theta,
                                       int64_t rotary_dim, int64_t original);

// What differs between the two in more than the rounding of a float, in which GGUF holds numbers,
// and the architecture's name. Llama-3 bands count as the factors they are.
std::vector<std::string> FactsThatDiffer(const ModelSpec& wanted, const ModelSpec& found);

}  // namespace lockstep
