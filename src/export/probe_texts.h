// Texts on which two tokenizers are compared before one is written in place of the other.
#pragma once

#include <string>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

size_t NumProbeTexts();
// The first probe that the two encode, or decode, differently, in quotes; empty: none.
Result<std::string> FirstDifferentProbe(const Tokenizer& wanted, const Tokenizer& found,
                                        EncodeOptions options);

}  // namespace lockstep
