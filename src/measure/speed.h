// Speed: how fast the engine reads prompts and makes tokens. Every round measures everything once,
// so that a machine that slows down slows all alike; a first round warms up and does not count.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "measure/rounds.h"

namespace lockstep {

struct SpeedRequest {
  std::vector<int64_t>
      prompts;  // tokens; a prompt is read into an empty sequence, logits of its end
  // Where `steps` greedy tokens are made one by one: after a prompt of so many tokens; 0: after one
  // token, as llama-bench's tg tests.
  std::vector<int64_t> depths;
  // The same from depth 0 for so many sequences at once.
  std::vector<int64_t> batches;
  int64_t steps = 64;
  int rounds = 5;
  // Called between calls of the engine; false stops, and MeasureSpeed fails with kInterrupted.
  std::function<bool(std::string_view doing, int64_t done, int64_t total)> progress;
};

struct Speed {
  int64_t size = 0;          // tokens of the prompt, depth, or sequences
  Spread tokens_per_second;  // of all sequences together
  size_t kv_bytes = 0;       // of keys and values that the last step of all sequences reads
};

struct SpeedTable {
  std::vector<Speed> prefill, decode, batch;  // sizes ascend
  std::vector<std::string> skipped;           // sentences: what does not fit into the context
};

// Ids are random and fixed. The choice of the next token is part of a decode step.
Result<SpeedTable> MeasureSpeed(Engine& engine, const ModelSpec& spec, const SpeedRequest& request);

}  // namespace lockstep
