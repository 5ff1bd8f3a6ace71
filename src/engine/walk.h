// Walk: all workers go through the layers together, phase by phase, for the tokens of one call.
#pragma once

#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/kernels/kernel_table.h"
#include "engine/plan.h"
#include "engine/rotary.h"
#include "engine/spin_pool.h"

namespace lockstep {

// Memory of a walk, kept between calls so that a decode step allocates nothing.
struct WalkBuffers {
  // What a projection reads: floats padded with zeros to whole blocks, and their codes.
  struct Input {
    std::vector<float> f32;
    std::vector<int8_t> codes;
    std::vector<float> scales, sums;
    void Resize(int64_t tokens, int64_t blocks);
  };
  std::vector<float> x;  // residual stream [token][hidden]
  Input input, middle, gathered;
  std::vector<float> wide, wide2, out, attended,
      mixed;                               // outputs of projections, [token][tiles * 16]
  std::vector<std::vector<float>> scores;  // per worker
  std::vector<std::pair<const RopeSpec*, RotaryTable>> rotary;
  std::vector<std::vector<int32_t>> expert_tokens;
};

struct WalkCall {
  std::span<const int32_t> ids;
  int64_t first = 0;   // position of ids[0]
  int64_t length = 0;  // positions once the whole call is done
  EngineSequence* sequence = nullptr;
  float* logits = nullptr;  // [head_rows][tiles * 16] of the last head_rows tokens
  int64_t head_rows = 0;
};

void Walk(const ExecutionPlan& plan, const KernelTable& kernels, Activations activations,
          SpinPool& pool, WalkBuffers& buffers, const WalkCall& call);

}  // namespace lockstep
