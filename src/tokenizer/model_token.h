// What a model makes of one word: ids and the bytes of the word that each stands for.
#pragma once

#include <cstdint>

namespace lockstep {

struct ModelToken {
  int32_t id;
  uint32_t begin, end;  // bytes of the word
};

}  // namespace lockstep
