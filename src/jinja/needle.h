// Needle: a text to search for, prepared so that no search looks at a byte twice (Knuth, Morris and
// Pratt). std::string::find may take the product of both lengths, which a template can choose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "jinja/runtime.h"

namespace lockstep::jinja {

class Needle {
 public:
  // Charges for one search through all of `text`, also when it goes on in several calls. `pattern`
  // must outlive the needle.
  static Expected<Needle> Make(Runtime& runtime, std::string_view pattern, std::string_view text);

  // Where the pattern first starts at or after `from`; npos: nowhere.
  size_t Find(std::string_view text, size_t from = 0) const;
  size_t FindLast(std::string_view text) const;

 private:
  explicit Needle(std::string_view pattern) : pattern_(pattern) {}
  std::string_view pattern_;
  // For each length of a beginning (an end) of the pattern: its longest proper border. Empty when
  // the pattern cannot occur or is one byte.
  std::vector<uint32_t> forward_, backward_;
};

}  // namespace lockstep::jinja
