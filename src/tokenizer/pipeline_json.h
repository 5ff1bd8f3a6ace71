// The parts of tokenizer.json around the model: normalizer, pre_tokenizer, post_processor, decoder.
// Each part is an object with a "type"; Sequences become flat lists. An unknown type is an error
// that lists the known ones.
#pragma once

#include <vector>

#include "base/error.h"
#include "tokenizer/decoders.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/normalizers.h"
#include "tokenizer/post_processors.h"
#include "tokenizer/pre_tokenizers.h"

namespace lockstep {

Result<std::vector<Normalizer>> ReadNormalizers(const JsonField& part);
Result<std::vector<PreTokenizer>> ReadPreTokenizers(const JsonField& part);
Result<std::vector<PostProcessor>> ReadPostProcessors(const JsonField& part);
Result<std::vector<TokenDecoder>> ReadDecoders(const JsonField& part);

}  // namespace lockstep
