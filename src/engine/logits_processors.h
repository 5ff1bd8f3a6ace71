// The rules between the logits of a step and the choice of a token, in transformers' order. Each
// takes the scores as the rule before it left them; a masked token has the score -infinity.
//
//   always:        biases, repetition_penalty, no_repeat_ngram_size, bad_words_ids, min_length,
//                  min_new_tokens, forced_eos_token_id, remove_invalid_values, exponential decay,
//                  suppress_tokens, begin_suppress_tokens, presence and frequency penalties
//   when sampling: temperature, top_k, top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff
//   last:          renormalize_logits
// Scores are float32, as transformers keeps them; probabilities behind thresholds are double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/generation_config.h"

namespace lockstep {

// All rules of `config`. `ids` is everything so far, of which the first `prompt_len` are the
// prompt. `min_keep` tokens survive every filter (beam search wants 2 or more). Ids that lie
// outside the vocabulary are left alone: ValidateGenerationConfig refuses them beforehand.
void ProcessLogits(const GenerationConfig& config, std::span<const int32_t> ids, size_t prompt_len,
                   std::span<float> scores, size_t min_keep = 1);

// softmax of `scores` in double, with PortableExp. Masked tokens get exactly 0.
std::vector<double> Softmax(std::span<const float> scores);

// The single filters, for tests.
void ApplyTopK(std::span<float> scores, int64_t k, size_t min_keep);
void ApplyTopP(std::span<float> scores, double p, size_t min_keep);
void ApplyMinP(std::span<float> scores, double min_p, size_t min_keep);
void ApplyTypicalP(std::span<float> scores, double mass, size_t min_keep);
void ApplyEpsilonCutoff(std::span<float> scores, double epsilon, size_t min_keep);
void ApplyEtaCutoff(std::span<float> scores, double epsilon, size_t min_keep);

}  // namespace lockstep
