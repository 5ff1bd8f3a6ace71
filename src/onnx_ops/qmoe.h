// What the two files of QMoE share: its slots, and its sizes as the attributes and shapes say them.
#pragma once

#include <cstdint>

#include "onnx_ops/experts.h"

namespace lockstep {

enum QMoeSlot : uint8_t {
  kQMoeInput = 0,
  kQMoeRouter = 1,
  kQMoeFc1 = 2,  // then its scales and its bias
  kQMoeFc2 = 5,
  kQMoeFc3 = 8,
  kQMoeFc1Zeros = 11,
  kQMoeFc2Zeros = 12,
  kQMoeFc3Zeros = 13,
  kQMoeRouterWeights = 14,
};

struct QMoeLayout {
  int bits = 4;
  int64_t block = 0;   // 0: per channel
  bool tiled = false;  // SM80 tiles
  int64_t experts = 0, hidden = 0, inter = 0, fc1_rows = 0, tokens = 0;
};

// Of a call that CheckQMoe accepts.
QMoeLayout QMoeLayoutOf(const OpCall& call);

}  // namespace lockstep
