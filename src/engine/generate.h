// Generate: the loop that turns a prompt into new tokens, over anything that can give logits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/error.h"
#include "engine/generation_config.h"

namespace lockstep {

// One sequence being decoded: the reference's interpreter or the engine's plan behind one
// interface.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // Appends ids to the sequence; the logits of the last position, [vocab_size], valid until the
  // next call.
  virtual Result<std::span<const float>> Append(std::span<const int32_t> ids) = 0;
  virtual int64_t position() const = 0;  // ids appended so far
  // The most ids the sequence can hold; 0: no bound.
  virtual int64_t capacity() const { return 0; }
};

// A decoder whose sequence can be cut back: a conversation keeps what its turns have in common.
class RewindableDecoder : public Decoder {
 public:
  // Forgets all but what `ids` begins with, and returns how many of them are held: the rest is what
  // Append must still read. At least the last id is left to read, since it gives the logits.
  virtual size_t KeepCommonPrefix(std::span<const int32_t> ids) = 0;
};

enum class StopReason { kEndToken, kLength, kCancelled, kContextFull };

struct GenerateResult {
  std::vector<int32_t> ids;  // the new ones, the end token included
  StopReason reason = StopReason::kLength;
  uint64_t seed = 0;  // that was used, when sampling
};

// Called with each new id; false stops (the caller saw a stop string, or the client went away).
using OnToken = std::function<bool(int32_t id)>;

// Starts at the decoder's present position: ids already in its cache belong before `prompt_ids` and
// count as part of the prompt only if they are passed in `history`.
Result<GenerateResult> Generate(Decoder& decoder, std::span<const int32_t> prompt_ids,
                                const GenerationConfig& config, const OnToken& on_token = {},
                                std::span<const int32_t> history = {}, uint64_t fallback_seed = 0);

}  // namespace lockstep
