#include "engine/generate.h"

#include <limits>

#include "engine/sampler.h"

namespace lockstep {

Result<GenerateResult> Generate(Decoder& decoder, std::span<const int32_t> prompt_ids,
                                const GenerationConfig& config, const OnToken& on_token,
                                std::span<const int32_t> history, uint64_t fallback_seed) {
  if (prompt_ids.empty())
    return UsageError("the prompt has no tokens; at least one is needed to begin");
  const int64_t capacity =
      decoder.capacity() > 0 ? decoder.capacity() : std::numeric_limits<int64_t>::max();
  if (static_cast<int64_t>(prompt_ids.size()) > capacity - decoder.position())
    return UsageError("the prompt has {} tokens but the context holds {} more of {}",
                      prompt_ids.size(), capacity - decoder.position(), capacity);

  std::vector<int32_t> ids(history.begin(), history.end());
  ids.insert(ids.end(), prompt_ids.begin(), prompt_ids.end());
  const size_t prompt_len = ids.size();
  Sampler sampler(config, prompt_len, fallback_seed);
  int64_t most = std::numeric_limits<int64_t>::max();
  if (config.max_new_tokens) {
    most = *config.max_new_tokens;
  } else if (config.max_length) {
    most = *config.max_length - static_cast<int64_t>(prompt_len);
  }

  GenerateResult result;
  result.seed = sampler.seed();
  std::span<const int32_t> next = prompt_ids;
  while (static_cast<int64_t>(result.ids.size()) < most) {
    if (static_cast<int64_t>(next.size()) > capacity - decoder.position()) {
      result.reason = StopReason::kContextFull;
      return result;
    }
    LS_TRY(const std::span<const float> logits, decoder.Append(next));
    LS_TRY(const int32_t id, sampler.Next(logits, ids));
    ids.push_back(id);
    result.ids.push_back(id);
    if (on_token && !on_token(id)) {
      result.reason = StopReason::kCancelled;
      return result;
    }
    if (sampler.IsEnd(id)) {
      result.reason = StopReason::kEndToken;
      return result;
    }
    next = std::span<const int32_t>(ids).last(1);
  }
  result.reason = StopReason::kLength;
  return result;
}

}  // namespace lockstep
