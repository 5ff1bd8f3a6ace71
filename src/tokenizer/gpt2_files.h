// Reads the two files of OpenAI's GPT-2, encoder.json (token -> id) and vocab.bpe (one merge a
// line), or vocab.json and merges.txt, which have the same form.
#pragma once

#include <string_view>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

// The files say nothing about special tokens: "<|endoftext|>" is one if the vocabulary has it.
Result<Tokenizer> LoadGpt2Tokenizer(std::string_view encoder_json, std::string_view vocab_bpe,
                                    std::string_view place);

// Merge lines "left right" to pairs; a first line that begins with "#version" is a comment.
Result<Bpe::Merges> ParseMergeLines(std::string_view text);

}  // namespace lockstep
