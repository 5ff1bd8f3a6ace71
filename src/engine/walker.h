// Walker: one worker's way through a walk. Every worker runs the same code; Mine(n) is its share of
// a loop, and barriers stand where a phase reads what other workers wrote.
//
// Rows (tokens) are shared out by Mine(rows). With a single row there is nothing to share: then
// every worker keeps the residual stream and the inputs of projections for itself, and the barriers
// between them fall away (SyncRows).
#pragma once

#include <algorithm>
#include <utility>

#include "engine/rounding.h"
#include "engine/walk.h"

namespace lockstep {

inline int64_t BlocksOf(int64_t n) { return (n + kBlockColumns - 1) / kBlockColumns; }
inline int64_t PaddedColumns(int64_t n) { return BlocksOf(n) * kBlockColumns; }

class Walker {
 public:
  Walker(const ExecutionPlan& plan, const KernelTable& kernels, Activations activations,
         SpinPool& pool, WalkBuffers& buffers, const WalkCall& call, int worker);
  // Nothing is thrown in it: a worker that left would keep the others at a barrier.
  void Run() noexcept;

 private:
  // --- walk.cc: the way through the layers, norms, projections ---

  std::pair<int64_t, int64_t> Mine(int64_t n, int64_t grain = 1) const {
    return Share(n, worker_, pool_.num_threads(), grain);
  }
  std::pair<int64_t, int64_t> MyRows() const {
    return alone_ ? std::pair{int64_t{0}, int64_t{1}} : Mine(rows_);
  }
  void Barrier() { pool_.Barrier(); }
  void SyncRows() {
    if (!alone_) Barrier();
  }
  float* X(int64_t row) { return (alone_ ? mine_.x : b_.x).data() + row * hidden_; }
  ProjectionInput& Input() { return alone_ ? mine_.input : b_.input; }
  ProjectionInput& Latent() { return alone_ ? mine_.latent : b_.latent; }

  // In which forms projections read their input.
  struct Form {
    bool codes = false, bf16 = false, floats = false;
    Form operator|(Form other) const {
      return {codes || other.codes, bf16 || other.bf16, floats || other.floats};
    }
  };
  Form FormOf(const Projection& projection) const;

  void Embed();
  void Layer();
  void Head();
  void Norm(const NormWeights& norm, const float* x, int64_t n, int64_t group, float* y) const;
  void NormOrCopy(const std::optional<NormWeights>& norm, const float* x, float* y) const;
  // x += residual * post_norm(half) for this worker's rows.
  void Join(const std::optional<NormWeights>& post_norm, const Scale& residual, const float* half,
            int64_t stride);

  // Where row `row` of n floats is written before Finish turns it into what `form` asks for.
  float* Row(ProjectionInput& input, int64_t row, int64_t n, Form form);
  void Finish(ProjectionInput& input, int64_t row, int64_t n, Form form);
  // Each of this worker's rows: fill(row, floats) and Finish. No barrier.
  template <typename Fill>
  void Prepare(ProjectionInput& input, int64_t n, Form form, const Fill& fill) {
    const auto [begin, end] = MyRows();
    for (int64_t row = begin; row < end; ++row) {
      fill(row, Row(input, row, n, form));
      Finish(input, row, n, form);
    }
  }

  // One or two tiles (b: nullptr or of a's kind) against `rows` rows from first_row on.
  void Tiles(PackedKind kind, const std::byte* a, const std::byte* b, int64_t blocks,
             const ProjectionInput& input, int64_t first_row, int64_t rows, float* y_a, float* y_b,
             int64_t stride) const;
  static void AddBias(const std::vector<float>& bias, int64_t tile, int64_t rows, float* y,
                      int64_t stride);
  // Tiles [begin, end) of the projection's concatenated matrices; out[row * width + column].
  void ProjectTiles(const Projection& projection, const ProjectionInput& input, int64_t first_row,
                    int64_t rows, int64_t begin, int64_t end, float* out, int64_t width) const;
  // This worker's tiles. No barrier.
  void Project(const Projection& projection, const ProjectionInput& input, int64_t rows,
               float* out);

  // --- walk_mixers.cc: from Input() to b_.mixer_out ---

  void Mix(const AttentionSpec& attention);
  void Mix(const MlaSpec& mla);
  void Mix(const ShortConvSpec& conv);
  const RotaryTable& Table(const RopeSpec& rope) const;
  void RotateHead(const RotaryTable& table, RopeLayout layout, int64_t row, float* head) const;
  struct Heads {
    int64_t num;  // of queries
    Scale scale;
    std::optional<int64_t> window;
    std::optional<double> softcap;
  };
  // All rows' queries, q[row * q_width + head * key_dim], to b_.attended.
  void Attend(const Heads& heads, const float* q, int64_t q_width);
  void AttendBlock(const WalkSegment& segment, const Heads& heads, const float* q, int64_t q_width,
                   int64_t token, int64_t tokens, int64_t first_head, int64_t num_heads);
  // b_.attended through the output projection.
  void Output(int64_t columns);
  // In the last layer, once keys and values are written, only the rows that want logits go on:
  // moves them (of `data`, `width` floats each, and of x) to the front and forgets the rest. False:
  // none is left.
  bool Narrow(float* data, int64_t width);
  // A row's segment and position.
  std::pair<const WalkSegment*, int64_t> Locate(int64_t row) const;
  std::byte* PageOf(const WalkSegment& segment, int64_t position) const {
    return segment.sequence->Page(layer_index_, position / kPageTokens);
  }

  // --- walk_feed_forward.cc: from Input() to x ---

  void FeedForward(const MlpSpec& mlp);
  void FeedForward(const MoeSpec& moe);
  void JoinFeedForward(const MlpSpec& mlp);
  void JoinFeedForward(const MoeSpec& moe);
  // Blocks [block, block + count) of the MLP's middle, for `rows` rows of `input` from input_row
  // on, to b_.middle from middle_row on.
  void MlpUnit(const MlpPlan& mlp, const ProjectionInput& input, int64_t input_row, int64_t rows,
               int64_t block, int64_t count, int64_t middle_row);
  void Mlp(const MlpPlan& mlp, float* out);
  void Activate(const MlpSpec& mlp, const float* up, int64_t n, float* gate) const;
  void Route(const MoeSpec& moe);

  const ExecutionPlan& plan_;
  const ModelSpec& spec_;
  const KernelTable& kernels_;
  const Activations activations_;
  SpinPool& pool_;
  WalkBuffers& b_;
  WalkCall call_;
  const int worker_;
  WalkBuffers::Worker& mine_;
  int64_t rows_;
  const int64_t hidden_;
  bool alone_;  // a single row
  size_t layer_index_ = 0;
  const LayerPlan* layer_ = nullptr;
};

}  // namespace lockstep
