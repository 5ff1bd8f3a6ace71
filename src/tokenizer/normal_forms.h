// NFC, NFD, NFKC and NFKD of UAX #15 over the tables of `tokenizers` (a crate of Unicode 9: 94
// marks that came later have combining class 0, U+11935 U+11930 does not compose). A step of the
// normalizers.
#pragma once

#include <string_view>
#include <vector>

#include "tokenizer/aligned_text.h"

namespace lockstep {

struct NormalForm {
  bool compatibility = false;
  bool compose = false;
};

// The normal form of `text` as a rewrite of it.
std::vector<RewrittenChar> ToNormalForm(std::string_view text, NormalForm form);

// Quick check: true only if the text is in its normal form already (false says nothing).
bool IsSurelyNormal(std::string_view text, NormalForm form);

}  // namespace lockstep
