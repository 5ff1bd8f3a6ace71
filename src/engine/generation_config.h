// GenerationConfig: how the next token is chosen, as generation_config.json and the user's flags
// say. Every rule is absent by default, and absent means off. Names are those of transformers;
// presence_penalty, frequency_penalty and logit_bias are OpenAI's. logits_processors.h states what
// each does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace lockstep {

struct GenerationConfig {
  // The end.
  std::vector<int32_t> eos_token_id;  // any of them ends the text
  std::optional<int64_t> max_new_tokens;
  std::optional<int64_t> max_length;  // counts the prompt; max_new_tokens wins
  std::vector<std::string> stop_strings;

  // Sampling: without it the highest score is taken, and none of the next block acts.
  bool do_sample = false;
  std::optional<double> temperature, top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff;
  std::optional<int64_t> top_k;
  bool renormalize_logits = false;
  std::optional<uint64_t> seed;

  // Rules that act on every choice, greedy too.
  std::vector<std::pair<std::vector<int32_t>, double>> sequence_bias;
  std::vector<std::pair<int32_t, double>> logit_bias;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> no_repeat_ngram_size;
  std::vector<std::vector<int32_t>> bad_words_ids;
  std::optional<int64_t> min_length, min_new_tokens;
  std::vector<int32_t> forced_eos_token_id;
  bool remove_invalid_values = false;
  std::optional<std::pair<int64_t, double>> exponential_decay_length_penalty;  // start, factor
  std::vector<int32_t> suppress_tokens, begin_suppress_tokens;

  // The same ends and nothing else: no sampling, no penalty, no bias.
  GenerationConfig Greedy() const;
  // Every value in force, in the form that ParseGenerationConfig reads.
  Json ToJson() const;
};

struct ParsedGenerationConfig {
  GenerationConfig config;
  // One sentence for each key that was not read and could change the result.
  std::vector<std::string> warnings;
};

// Reads generation_config.json (or an object of the user's with the same keys). As in transformers,
// top_k is 50 when do_sample is on and the file does not set it. `place` opens every message.
Result<ParsedGenerationConfig> ParseGenerationConfig(const Json& json, std::string_view place);

// Are all values in their ranges? Token ids must be below `vocab_size` when it is given.
Status ValidateGenerationConfig(const GenerationConfig& config, std::string_view place,
                                std::optional<int64_t> vocab_size = std::nullopt);

}  // namespace lockstep
