// Walk: all workers go through the layers together, phase by phase, for the tokens of one call,
// which may belong to several sequences.
//
// Numbers of a token depend on its own sequence alone: projections give each row the same
// operations whatever rows come with it, attention sees the same pages in the same order.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/buffer.h"
#include "engine/kernels/kernel_table.h"
#include "engine/kv_cache.h"
#include "engine/plan.h"
#include "engine/rotary.h"
#include "engine/routing.h"
#include "engine/spin_pool.h"

namespace lockstep {

// What projections read, at most as exact as it pays for how their matrix is stored:
//   kInt8   int8 in front of codes, bf16 in front of bf16, else fp32
//   kBF16   bf16 in front of bf16, else fp32
//   kF32    fp32
enum class Activations : uint8_t { kInt8, kBF16, kF32 };
// What a matrix of that kind reads then.
inline Activations FormFor(Activations activations, PackedKind kind) {
  if (activations == Activations::kInt8 && HoldsCodes(kind)) return Activations::kInt8;
  if (activations != Activations::kF32 && kind == PackedKind::kBF16) return Activations::kBF16;
  return Activations::kF32;
}

// Rows that a projection reads: floats padded with zeros to whole blocks, their codes, their bf16.
struct ProjectionInput {
  Array<float> f32;
  Array<int8_t> codes;
  Array<ActivationBlock> facts;
  Array<uint16_t> bf16;
  void Put(Layout& layout, int64_t rows, int64_t blocks);
};

// A window beyond this is none; sums with it stay far from overflow.
inline constexpr int64_t kLongestWindow = int64_t{1} << 40;

struct WalkSegment {
  KvSequence* sequence = nullptr;
  int64_t row = 0;     // of its first token
  int64_t count = 0;   // tokens
  int64_t first = 0;   // position of the first
  int64_t length = 0;  // positions once its whole call is done
};

// Memory of a walk, kept between calls so that a step allocates nothing.
class WalkBuffers {
 public:
  WalkBuffers(const ExecutionPlan& plan, std::span<const KvShape> shapes, int workers);
  // Room for `rows` tokens of which `head_rows` want logits. What was there is lost when it grows.
  void Reserve(int64_t rows, int64_t head_rows);

  // What one worker writes alone. Where a walk has one row, each worker keeps a residual stream and
  // inputs of its own: to compute a row twice costs less than to wait for it.
  struct Worker {
    Array<std::byte> kernels;  // scratch of kernels
    Array<float> x, row, pair, mixed, key;
    ProjectionInput input, latent;
  };
  std::vector<Worker> workers;

  Array<float> x;  // residual stream [row][hidden]
  ProjectionInput input, latent, attended, gathered, middle;
  Array<float> wide, wide2, mixer_out, mlp_out, shared_out;  // outputs, [row][tiles * 16]
  std::vector<RotaryTable> rotary;

  // Where other programs hold the cores, workers wait for each other longer than they work, and one
  // alone is several times faster. Then the next few small walks go to one, before all are tried
  // again. Numbers do not depend on it.
  struct Crowding {
    int alone_left = 0, next_alone = 32;
  } crowding;

  // What is left of a call in its last layer: see Walker::Narrow.
  std::vector<WalkSegment> last_segments;
  std::vector<int32_t> last_rows;

  // Mixture of experts: rows of the same expert lie together.
  struct Experts {
    RoutingScratch routing;
    std::vector<int32_t> active;  // experts that some row chose, ascending
    std::vector<int32_t> first;   // [active + 1]: their rows in `gathered`
    std::vector<int32_t> source;  // [gathered row]: its token row
    std::vector<float> weight;    // [gathered row]
    std::vector<int32_t> rows;    // [token row * most + i]: its gathered rows, by expert
    std::vector<int32_t> count;   // [token row]
    std::vector<std::vector<std::pair<int32_t, float>>> chosen;  // [expert]: token row, weight
  } experts;

 private:
  struct Sizes {  // the most that any layer asks, in elements or blocks of a row
    int64_t hidden = 0, input_blocks = 0, latent_blocks = 0, attended_blocks = 0, middle_blocks = 0,
            wide = 0, wide2 = 0, mixer_out = 0, mlp_out = 0;
    int64_t key_dim = 0;
    size_t scratch = 0;  // bytes
    int64_t experts_per_token = 1;
    bool moe = false;
  } sizes_;
  void Put(Layout& layout, int64_t rows, int64_t head_rows);
  std::shared_ptr<std::byte> block_;  // holds all arrays
  int64_t rows_ = 0, head_rows_ = 0;
};

struct WalkCall {
  std::span<const int32_t> ids;           // [row]
  std::span<const WalkSegment> segments;  // in the order of their rows
  std::span<const KvShape> shapes;        // [layer]
  std::span<const int32_t> head_rows;     // rows that want logits
  float* logits = nullptr;                // [head_rows][tiles * 16]
};

void Walk(const ExecutionPlan& plan, const KernelTable& kernels, Activations activations,
          SpinPool& pool, WalkBuffers& buffers, const WalkCall& call);

}  // namespace lockstep
