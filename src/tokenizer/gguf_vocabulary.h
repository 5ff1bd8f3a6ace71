// GgufVocabulary: the tokenizer keys of a GGUF file as plain data. model/ fills it from the
// key-values
// (`tokenizer.ggml.*`, the names in brackets); gguf_tokenizer.h makes a Tokenizer of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum GgufTokenType : int32_t {
  kGgufNormal = 1,
  kGgufUnknown = 2,
  kGgufControl = 3,      // matched in the raw text, special
  kGgufUserDefined = 4,  // matched in the raw text, not special
  kGgufUnused = 5,
  kGgufByte = 6,  // "<0x41>"
};

struct GgufVocabulary {
  std::string model;  // [model] "gpt2", "llama", "gemma4"
  std::string pre;    // [pre] names the regular expressions; no meaning for "llama"
  std::vector<std::string_view> tokens;  // [tokens] id = index; the bytes must outlive the call
  std::vector<float> scores;             // [scores] one for each token; only "llama" needs them
  std::vector<int32_t> token_types;      // [token_type] one for each token; empty: all normal
  std::vector<std::string_view> merges;  // [merges] "left right"; not for "llama"
  std::optional<int64_t> bos, eos, unk;  // [bos_token_id], [eos_token_id], [unknown_token_id]
  // [add_bos_token], [add_eos_token], [add_space_prefix]; absent: the default of model and pre
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

}  // namespace lockstep
