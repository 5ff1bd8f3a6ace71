#include "engine/walk.h"

#include <cmath>
#include <cstring>

#include "engine/walker.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

// From here on unpacking a pair of tiles once for all rows costs less than once for every four.
constexpr int64_t kPanelRows = 12;

}  // namespace

Walker::Walker(const ExecutionPlan& plan, const KernelTable& kernels, Activations activations,
               SpinPool& pool, WalkBuffers& buffers, const WalkCall& call, int worker)
    : plan_(plan),
      spec_(*plan.spec),
      kernels_(kernels),
      activations_(activations),
      pool_(pool),
      b_(buffers),
      call_(call),
      worker_(worker),
      mine_(buffers.workers[static_cast<size_t>(worker)]),
      rows_(static_cast<int64_t>(call.ids.size())),
      hidden_(spec_.embedding.hidden_size),
      alone_(rows_ == 1) {}

void Walker::Run() noexcept {
  Embed();
  for (layer_index_ = 0; layer_index_ < plan_.layers.size(); ++layer_index_) {
    layer_ = &plan_.layers[layer_index_];
    Layer();
  }
  Head();
}

void Walker::Embed() {
  // The tables are read after the first layer's projection, behind a barrier.
  for (RotaryTable& table : b_.rotary) {
    const bool serial = table.follows_length() || alone_;
    if (serial && worker_ != 0) continue;
    const auto [begin, end] = serial ? std::pair{int64_t{0}, rows_} : Mine(rows_);
    for (const WalkSegment& s : call_.segments) {
      const int64_t from = std::max(begin, s.row), to = std::min(end, s.row + s.count);
      if (from < to) table.Fill(from, s.first + from - s.row, to - from, s.length);
    }
  }
  const auto [begin, end] = MyRows();
  for (int64_t row = begin; row < end; ++row) {
    plan_.embedding->ReadRows(call_.ids[static_cast<size_t>(row)], 1, X(row), hidden_);
    ScaleRow(spec_.embedding.scale, hidden_, X(row));
    if (plan_.positions == nullptr) continue;
    plan_.positions->ReadRows(Locate(row).second, 1, mine_.row.data(), hidden_);
    kernels_.add(mine_.row.data(), hidden_, X(row));
  }
}

// --- Norms and inputs ---

// y <- norm of each group of `group` of n elements; x and y may be the same.
void Walker::Norm(const NormWeights& norm, const float* x, int64_t n, int64_t group,
                  float* y) const {
  for (int64_t g = 0; g < n; g += group) {
    if (norm.spec.kind == NormKind::kRms && !norm.weight.empty()) {
      kernels_.rms_norm(x + g, norm.weight.data(), group, static_cast<float>(norm.spec.eps), y + g);
      continue;
    }
    double sum = 0, squares = 0;
    if (norm.spec.kind == NormKind::kLayer)
      for (int64_t i = 0; i < group; ++i) sum += x[g + i];
    const auto mean = static_cast<float>(sum / static_cast<double>(group));
    for (int64_t i = 0; i < group; ++i) {
      const double deviation = x[g + i] - mean;
      squares += deviation * deviation;
    }
    const auto scale =
        static_cast<float>(1 / std::sqrt(squares / static_cast<double>(group) + norm.spec.eps));
    for (int64_t i = 0; i < group; ++i) {
      y[g + i] = (x[g + i] - mean) * scale;
      if (!norm.weight.empty()) y[g + i] *= norm.weight[static_cast<size_t>(i)];
      if (!norm.bias.empty()) y[g + i] += norm.bias[static_cast<size_t>(i)];
    }
  }
}

void Walker::NormOrCopy(const std::optional<NormWeights>& norm, const float* x, float* y) const {
  if (norm)
    Norm(*norm, x, hidden_, hidden_, y);
  else
    std::copy_n(x, hidden_, y);
}

void Walker::Join(const std::optional<NormWeights>& post_norm, const Scale& residual,
                  const float* half, int64_t stride) {
  const auto [begin, end] = MyRows();
  for (int64_t row = begin; row < end; ++row) {
    const float* from = half + row * stride;
    if (post_norm || residual.value != 1) {
      float* changed = mine_.row.data();  // another worker may read the row too
      NormOrCopy(post_norm, from, changed);
      ScaleRow(residual, hidden_, changed);
      from = changed;
    }
    kernels_.add(from, hidden_, X(row));
  }
}

Walker::Form Walker::FormOf(const Projection& projection) const {
  Form form;
  for (const PackedMatrix& m : projection.group.matrices) {
    switch (FormFor(activations_, m.kind)) {
      case Activations::kInt8:
        form.codes = true;
        break;
      case Activations::kBF16:
        form.bf16 = true;
        break;
      case Activations::kF32:
        form.floats = true;
        break;
    }
  }
  return form;
}

float* Walker::Row(ProjectionInput& input, int64_t row, int64_t n, Form form) {
  return form.floats ? input.f32.data() + row * PaddedColumns(n) : mine_.row.data();
}

void Walker::Finish(ProjectionInput& input, int64_t row, int64_t n, Form form) {
  const int64_t blocks = BlocksOf(n), padded = blocks * kBlockColumns;
  float* x = Row(input, row, n, form);
  std::fill(x + n, x + padded, 0.0f);
  if (form.bf16) kernels_.round_to_bf16(x, padded, input.bf16.data() + row * padded);
  if (form.codes)
    kernels_.quantize(x, padded, input.codes.data() + row * padded,
                      input.facts.data() + row * blocks);
}

// --- Projections ---

void Walker::Tiles(PackedKind kind, const std::byte* a, const std::byte* b, int64_t blocks,
                   const ProjectionInput& input, int64_t first_row, int64_t rows, float* y_a,
                   float* y_b, int64_t stride) const {
  const Activations form = FormFor(activations_, kind);
  if (form == Activations::kBF16) {
    const int64_t padded = blocks * kBlockColumns;
    kernels_.pair_bf16(a, b, blocks, input.bf16.data() + first_row * padded, padded, rows, y_a, y_b,
                       stride);
    return;
  }
  if (form == Activations::kInt8) {
    const QuantizedActivations x{input.codes.data(), input.facts.data(), blocks};
    if (b != nullptr && rows >= kPanelRows) {
      kernels_.pair_int8(kind, a, b, blocks, x, first_row, rows, y_a, y_b, stride,
                         mine_.kernels.data());
      return;
    }
    kernels_.tile_int8(kind, a, blocks, x, first_row, rows, y_a, stride);
    if (b != nullptr) kernels_.tile_int8(kind, b, blocks, x, first_row, rows, y_b, stride);
    return;
  }
  const int64_t padded = blocks * kBlockColumns;
  const float* x = input.f32.data() + first_row * padded;
  kernels_.tile_f32(kind, a, blocks, x, padded, rows, y_a, stride);
  if (b != nullptr) kernels_.tile_f32(kind, b, blocks, x, padded, rows, y_b, stride);
}

void Walker::AddBias(const std::vector<float>& bias, int64_t tile, int64_t rows, float* y,
                     int64_t stride) {
  if (bias.empty()) return;
  const float* from = bias.data() + tile * kTileRows;
  for (int64_t row = 0; row < rows; ++row)
    for (int r = 0; r < kTileRows; ++r) y[row * stride + r] += from[r];
}

void Walker::ProjectTiles(const Projection& projection, const ProjectionInput& input,
                          int64_t first_row, int64_t rows, int64_t begin, int64_t end, float* out,
                          int64_t width) const {
  int64_t before = 0;  // tiles of the matrices so far
  for (size_t i = 0; i < projection.group.matrices.size(); ++i) {
    const PackedMatrix& m = projection.group.matrices[i];
    const int64_t from = std::max(begin - before, int64_t{0});
    const int64_t to = std::min(end - before, m.Tiles());
    for (int64_t tile = from; tile < to; tile += 2) {
      float* y = out + (before + tile) * kTileRows;
      const bool pair = tile + 1 < to;
      Tiles(m.kind, m.Tile(tile), pair ? m.Tile(tile + 1) : nullptr, m.Blocks(), input, first_row,
            rows, y, y + kTileRows, width);
      AddBias(projection.biases[i], tile, rows, y, width);
      if (pair) AddBias(projection.biases[i], tile + 1, rows, y + kTileRows, width);
    }
    before += m.Tiles();
  }
}

void Walker::Project(const Projection& projection, const ProjectionInput& input, int64_t rows,
                     float* out) {
  const int64_t width = WidthOf(projection);
  const auto [begin, end] = Mine(width / kTileRows, 2);
  ProjectTiles(projection, input, 0, rows, begin, end, out, width);
}

// --- Layer ---

void Walker::Layer() {
  const LayerSpec& layer = *layer_->spec;
  const bool parallel = layer.wiring == Wiring::kParallel;
  // The router reads floats, experts read codes of the same rows.
  Form mlp_form = FormOf(layer_->mlp ? layer_->mlp->in : layer_->router);
  for (const MlpPlan& expert : layer_->experts) mlp_form = mlp_form | FormOf(expert.in);
  if (layer_->shared_expert) mlp_form = mlp_form | FormOf(layer_->shared_expert->in);
  if (!layer_->shared_gate.group.matrices.empty())
    mlp_form = mlp_form | FormOf(layer_->shared_gate);
  const bool shared_input = parallel && !layer_->mlp_pre_norm;
  Form mixer_form = FormOf(layer_->mixer_in);
  if (shared_input) mixer_form = mixer_form | mlp_form;

  Prepare(Input(), hidden_, mixer_form,
          [&](int64_t row, float* to) { NormOrCopy(layer_->mixer_pre_norm, X(row), to); });
  SyncRows();
  const int64_t rows = rows_;
  std::visit([&](const auto& mixer) { Mix(mixer); }, layer.mixer);
  if (rows_ == 0) return;
  Barrier();
  const int64_t mixer_width = WidthOf(layer_->mixer_out);
  if (!parallel) Join(layer_->mixer_post_norm, layer.residual, b_.mixer_out.data(), mixer_width);
  if (!shared_input || rows_ < rows) {
    const auto& norm = shared_input ? layer_->mixer_pre_norm : layer_->mlp_pre_norm;
    Prepare(Input(), hidden_, mlp_form,
            [&](int64_t row, float* to) { NormOrCopy(norm, X(row), to); });
    SyncRows();
  }
  std::visit([&](const auto& mlp) { FeedForward(mlp); }, layer.mlp);
  Barrier();
  if (parallel) Join(layer_->mixer_post_norm, layer.residual, b_.mixer_out.data(), mixer_width);
  std::visit([&](const auto& mlp) { JoinFeedForward(mlp); }, layer.mlp);
}

// The head's input is as good as exact even as codes: a second row of codes holds what the first
// left over, and both go through the same tiles. Its error would land in the logits undamped, and
// there are few rows: the tiles are read once either way.
void Walker::Head() {
  const auto count = static_cast<int64_t>(call_.head_rows.size());
  if (count == 0) return;
  SyncRows();  // the rows may be another worker's
  const Form form = FormOf(plan_.head);
  const int64_t parts = form.codes ? 2 : 1;
  // One row: each worker for itself.
  ProjectionInput& input = count == 1 ? mine_.input : b_.input;
  const auto [begin, end] = count == 1 ? std::pair{int64_t{0}, count} : Mine(count);
  for (int64_t i = begin; i < end; ++i) {
    float* x = Row(input, parts * i, hidden_, form);
    Norm(plan_.final_norm, X(call_.head_rows[static_cast<size_t>(i)]), hidden_, hidden_, x);
    Finish(input, parts * i, hidden_, form);
    if (parts == 1) continue;
    const int64_t padded = PaddedColumns(hidden_), at = parts * i * padded;
    float* rest = Row(input, parts * i + 1, hidden_, form);
    for (int64_t c = 0; c < padded; ++c)
      rest[c] = x[c] - static_cast<float>(input.codes.data()[at + c]) *
                           input.facts.data()[(at + c) / kBlockColumns].scale;
    Finish(input, parts * i + 1, hidden_, form);
  }
  if (count > 1) Barrier();
  const PackedMatrix& m = plan_.head.group.matrices[0];
  const int64_t width = WidthOf(plan_.head);
  const auto [from, to] = Mine(m.Tiles(), 2);
  float* y = mine_.pair.data();  // [parts * count][32]
  for (int64_t tile = from; tile < to; tile += 2) {
    const int64_t tiles = std::min<int64_t>(2, to - tile);
    Tiles(m.kind, m.Tile(tile), tiles > 1 ? m.Tile(tile + 1) : nullptr, m.Blocks(), input, 0,
          parts * count, y, y + kTileRows, 2 * kTileRows);
    for (int64_t i = 0; i < count; ++i) {
      const float* row = y + parts * i * 2 * kTileRows;
      float* logits = call_.logits + i * width + tile * kTileRows;
      for (int64_t r = 0; r < tiles * kTileRows; ++r)
        logits[r] = parts == 1 ? row[r] : row[r] + row[2 * kTileRows + r];
    }
    for (int64_t i = 0; i < tiles; ++i)
      AddBias(plan_.head.biases[0], tile + i, count, call_.logits + (tile + i) * kTileRows, width);
  }
  const LmHeadSpec& head = spec_.lm_head;
  if (head.logit_scale.value == 1 && !head.logit_softcap) return;
  for (int64_t row = 0; row < count; ++row) {
    float* logits = call_.logits + row * width + from * kTileRows;
    const int64_t n = (to - from) * kTileRows;
    ScaleRow(head.logit_scale, n, logits);
    if (!head.logit_softcap) continue;
    const auto cap = static_cast<float>(*head.logit_softcap);
    for (int64_t i = 0; i < n; ++i) logits[i] = cap * std::tanh(logits[i] / cap);
  }
}

void Walk(const ExecutionPlan& plan, const KernelTable& kernels, Activations activations,
          SpinPool& pool, WalkBuffers& buffers, const WalkCall& call) {
  buffers.Reserve(static_cast<int64_t>(call.ids.size()),
                  static_cast<int64_t>(call.head_rows.size()));
  // Larger walks have phases long enough to bear a wait.
  constexpr size_t kSmallWalk = 16;
  constexpr uint32_t kCrowded = 4;  // of some two hundred barriers
  constexpr int kMostAlone = 512;
  WalkBuffers::Crowding& crowding = buffers.crowding;
  const bool small = call.ids.size() <= kSmallWalk, alone = small && crowding.alone_left > 0;
  pool.Run(
      [&](int worker) { Walker(plan, kernels, activations, pool, buffers, call, worker).Run(); },
      alone);
  if (alone) {
    --crowding.alone_left;
  } else if (small && pool.long_waits() >= kCrowded) {
    crowding.alone_left = crowding.next_alone;
    crowding.next_alone = std::min(2 * crowding.next_alone, kMostAlone);
  } else if (small) {
    crowding.next_alone = 32;
  }
}

}  // namespace lockstep
