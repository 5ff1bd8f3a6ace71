#include "verify/probes.h"

#include <algorithm>
#include <map>
#include <set>
#include <type_traits>
#include <variant>

#include "spec/rope_facts.h"

namespace lockstep {
namespace {

// Caches and kernels of most programs go by 16, 32 or 64 positions.
constexpr int64_t kPage = 64;

// Where a scaled RoPE stops to be what was trained; 0: nowhere.
int64_t OriginalContext(const RopeSpec& rope) {
  if (!rope.scaling) return 0;
  return std::visit(
      [](const auto& scaling) -> int64_t {
        using Scaling = std::decay_t<decltype(scaling)>;
        if constexpr (std::is_same_v<Scaling, LinearScaling> ||
                      std::is_same_v<Scaling, FrequencyFactors>)
          return 0;
        else
          return scaling.original_max_position_embeddings;
      },
      *rope.scaling);
}

}  // namespace

DerivedProbes DeriveProbes(const ModelSpec& spec, std::span<const int32_t> words, int64_t steps,
                           int64_t longest) {
  std::map<int64_t, std::string> lengths;  // with the first reason
  const auto around = [&](int64_t length, const std::string& what) {
    lengths.emplace(length - 1, fmt::format("{} - 1", what));
    lengths.emplace(length + 1, fmt::format("{} + 1", what));
  };
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer))
      if (attention->sliding_window)
        around(*attention->sliding_window, fmt::format("window {}", *attention->sliding_window));
    if (const RopeSpec* rope = FindRope(layer))
      if (const int64_t context = OriginalContext(*rope); context > 0)
        around(context, fmt::format("context {}", context));
  }
  if (spec.embedding.positions)
    lengths.emplace(spec.embedding.positions->num_positions - steps,
                    fmt::format("up to position {}", spec.embedding.positions->num_positions));
  around(kPage, fmt::format("page {}", kPage));
  lengths.emplace(1, "one token");

  DerivedProbes out;
  for (const auto& [length, name] : lengths) {
    if (length < 1) continue;
    if (spec.embedding.positions && length + steps > spec.embedding.positions->num_positions)
      continue;
    if (length > longest) {
      out.notes.push_back(
          fmt::format("\"{}\" was left out: a prompt of {} tokens; --longest {} asks for it", name,
                      length, length));
      continue;
    }
    NamedPrompt prompt{.name = name};
    for (int64_t i = 0; i < length; ++i)
      prompt.ids.push_back(words[static_cast<size_t>(i) % words.size()]);
    out.prompts.push_back(std::move(prompt));
  }
  return out;
}

const std::vector<NamedPrompt>& TokenizerPrompts() {
  static const std::vector<NamedPrompt> kPrompts = {
      {"bytes", "🜂𒀭 \x01\x7f ﷽ naïve e\xCC\x81 ﬁ ℵ", {}},
      {"specials", "<|endoftext|> </s> <bos> [INST] <|im_end|> <unk> <pad>", {}},
      {"spaces", "  two\t\ttabs\r\n\n\n   three lines \u00A0 1234567890 x=  y;", {}},
  };
  return kPrompts;
}

}  // namespace lockstep
