// Answer: one generation as a person sees it: text that appears as it is made, ends at a stop
// string or Ctrl-C, and a line on speed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/generate.h"
#include "model/text_model.h"

namespace lockstep {

struct Answer {
  std::string text;          // without special tokens, cut before a stop string
  std::vector<int32_t> ids;  // as generated
  std::string ended_by;      // "end token", "length", "stop string", "Ctrl-C" or "context full"
  uint64_t seed = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0;  // the cached ones were not computed again
  double prefill_seconds = 0, decode_seconds = 0;
  bool interrupted = false;

  std::string SpeedLine() const;
};

Json ToJson(const Answer& answer);

struct AnswerRequest {
  std::vector<int32_t> ids;  // the whole prompt; what the decoder holds of it is kept
  const GenerationConfig* config = nullptr;
  const Tokenizer* tokenizer = nullptr;  // null: ids are printed instead of text
  bool print = true;                     // as it is made, to stdout
};

// An interrupted answer is an answer; being interrupted while reading the prompt is Interrupted().
Result<Answer> MakeAnswer(RewindableDecoder& decoder, const AnswerRequest& request);

}  // namespace lockstep
