#include <cmath>

#include "engine/routing.h"
#include "engine/walker.h"

namespace lockstep {
namespace {

float Apply(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      return 0.5f * x * (1 + std::erf(x * 0.70710678118654752f));
    case Activation::kGeluTanh:
      return 0.5f * x * (1 + std::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    case Activation::kQuickGelu:
      return x / (1 + std::exp(-1.702f * x));
    case Activation::kRelu:
      return x < 0 ? 0 : x;  // NaN stays NaN
    case Activation::kRelu2:
      return x < 0 ? 0 : x * x;
  }
  return x;
}

constexpr int64_t kBlockTiles = kBlockColumns / kTileRows;
// Blocks of an MLP's middle that a worker makes at a time: two quantize for the price of one, where
// enough units remain to share.
constexpr int64_t kUnitBlocks = 2;
int64_t UnitBlocks(int64_t blocks, int workers) { return blocks >= 8 * workers ? kUnitBlocks : 1; }

}  // namespace

// n elements: gate <- activation(gate) * up, or activation(gate).
void Walker::Activate(const MlpSpec& mlp, const float* up, int64_t n, float* gate) const {
  if (!mlp.gated) {
    for (int64_t i = 0; i < n; ++i) gate[i] = Apply(mlp.activation, gate[i]);
  } else if (mlp.clamped_glu) {
    const auto limit = static_cast<float>(mlp.clamped_glu->limit);
    const auto alpha = static_cast<float>(mlp.clamped_glu->alpha);
    for (int64_t i = 0; i < n; ++i) {
      const float g = std::min(gate[i], limit), u = std::clamp(up[i], -limit, limit);
      gate[i] =
          g / (1 + std::exp(-alpha * g)) * (u + static_cast<float>(mlp.clamped_glu->up_offset));
    }
  } else if (mlp.activation == Activation::kSilu) {
    kernels_.silu_mul(up, n, gate);
  } else if (mlp.activation == Activation::kGeluTanh) {
    kernels_.gelu_tanh_mul(up, n, gate);
  } else {
    for (int64_t i = 0; i < n; ++i) gate[i] = Apply(mlp.activation, gate[i]) * up[i];
  }
}

void Walker::MlpUnit(const MlpPlan& mlp, const ProjectionInput& input, int64_t input_row,
                     int64_t rows, int64_t block, int64_t count, int64_t middle_row) {
  const PackedMatrix& first = mlp.in.group.matrices[0];
  const int64_t tile = block * kBlockTiles;
  const int64_t tiles = std::min(count * kBlockTiles, first.Tiles() - tile);
  const int64_t width = count * kBlockColumns;
  float* gate = mine_.pair.data();  // [row][width]
  float* up = gate + rows * width;
  if (mlp.spec.gated) {
    // A gate tile and its up tile meet in the same worker, which joins them while they are warm.
    const PackedMatrix& second = mlp.in.group.matrices[1];
    for (int64_t i = 0; i < tiles; ++i) {
      float* y_gate = gate + i * kTileRows;
      float* y_up = up + i * kTileRows;
      const bool pair = first.kind == second.kind;
      Tiles(first.kind, first.Tile(tile + i), pair ? second.Tile(tile + i) : nullptr,
            first.Blocks(), input, input_row, rows, y_gate, y_up, width);
      if (!pair)
        Tiles(second.kind, second.Tile(tile + i), nullptr, first.Blocks(), input, input_row, rows,
              y_up, nullptr, width);
      AddBias(mlp.in.biases[0], tile + i, rows, y_gate, width);
      AddBias(mlp.in.biases[1], tile + i, rows, y_up, width);
    }
  } else {
    for (int64_t i = 0; i < tiles; i += 2) {
      float* y = gate + i * kTileRows;
      Tiles(first.kind, first.Tile(tile + i), i + 1 < tiles ? first.Tile(tile + i + 1) : nullptr,
            first.Blocks(), input, input_row, rows, y, y + kTileRows, width);
    }
    for (int64_t i = 0; i < tiles; ++i)
      AddBias(mlp.in.biases[0], tile + i, rows, gate + i * kTileRows, width);
  }
  const Form form = FormOf(mlp.down);
  const int64_t blocks = BlocksOf(mlp.spec.intermediate_size);
  const int64_t columns = std::min(width, mlp.spec.intermediate_size - block * kBlockColumns);
  for (int64_t row = 0; row < rows; ++row) {
    float* x = gate + row * width;
    Activate(mlp.spec, up + row * width, columns, x);
    std::fill(x + columns, x + width, 0.0f);
    const int64_t at = (middle_row + row) * blocks + block;
    if (form.floats) std::copy_n(x, width, b_.middle.f32.data() + at * kBlockColumns);
    if (form.bf16) kernels_.round_to_bf16(x, width, b_.middle.bf16.data() + at * kBlockColumns);
    if (form.codes)
      kernels_.quantize(x, width, b_.middle.codes.data() + at * kBlockColumns,
                        b_.middle.facts.data() + at);
  }
}

void Walker::Mlp(const MlpPlan& mlp, float* out) {
  const int64_t blocks = BlocksOf(mlp.spec.intermediate_size);
  const int64_t unit = UnitBlocks(blocks, pool_.num_threads());
  const auto [begin, end] = Mine(blocks, unit);
  for (int64_t block = begin; block < end; block += unit)
    MlpUnit(mlp, Input(), 0, rows_, block, std::min(unit, blocks - block), 0);
  Barrier();
  Project(mlp.down, b_.middle, rows_, out);
}

void Walker::FeedForward(const MlpSpec&) { Mlp(*layer_->mlp, b_.mlp_out.data()); }

void Walker::JoinFeedForward(const MlpSpec&) {
  Join(layer_->mlp_post_norm, layer_->spec->residual, b_.mlp_out.data(),
       WidthOf(layer_->mlp->down));
}

// One worker: which rows go to which expert, from the router's logits in b_.wide.
void Walker::Route(const MoeSpec& moe) {
  WalkBuffers::Experts& e = b_.experts;
  const int64_t width = WidthOf(layer_->router);
  e.chosen.resize(layer_->experts.size());
  for (auto& rows : e.chosen) rows.clear();
  for (int64_t row = 0; row < rows_; ++row) {
    const std::span<float> logits(b_.wide.data() + row * width, layer_->experts.size());
    RouteToken(moe.router, moe.num_experts_per_tok, layer_->selection_bias, logits, e.routing);
    for (size_t i = 0; i < logits.size(); ++i)
      if (logits[i] != 0) e.chosen[i].emplace_back(static_cast<int32_t>(row), logits[i]);
    e.count[static_cast<size_t>(row)] = 0;
  }
  e.active.clear();
  e.first.assign(1, 0);
  size_t at = 0;
  for (size_t i = 0; i < e.chosen.size(); ++i) {
    if (e.chosen[i].empty()) continue;
    for (const auto& [row, weight] : e.chosen[i]) {
      const auto r = static_cast<size_t>(row);
      e.rows[r * static_cast<size_t>(moe.num_experts_per_tok) + static_cast<size_t>(e.count[r]++)] =
          static_cast<int32_t>(at);
      e.source[at] = row;
      e.weight[at++] = weight;
    }
    e.active.push_back(static_cast<int32_t>(i));
    e.first.push_back(static_cast<int32_t>(at));
  }
}

void Walker::FeedForward(const MoeSpec& moe) {
  Project(layer_->router, Input(), rows_, b_.wide.data());
  Barrier();
  if (worker_ == 0) Route(moe);
  Barrier();
  const WalkBuffers::Experts& e = b_.experts;
  const auto active = static_cast<int64_t>(e.active.size());
  const int64_t gathered = e.first.back(), blocks = BlocksOf(hidden_);
  const int64_t padded = blocks * kBlockColumns;
  if (!alone_) {
    Form form;
    for (const MlpPlan& expert : layer_->experts) form = form | FormOf(expert.in);
    const auto [begin, end] = Mine(gathered);
    for (int64_t to = begin; to < end; ++to) {
      const int64_t from = e.source[static_cast<size_t>(to)];
      const auto copy = [&](auto& target, const auto& source, int64_t n) {
        std::copy_n(source.data() + from * n, n, target.data() + to * n);
      };
      if (form.floats) copy(b_.gathered.f32, b_.input.f32, padded);
      if (form.bf16) copy(b_.gathered.bf16, b_.input.bf16, padded);
      if (!form.codes) continue;
      copy(b_.gathered.codes, b_.input.codes, padded);
      copy(b_.gathered.facts, b_.input.facts, blocks);
    }
    Barrier();
  }
  // Every expert reads the only row that there is, or its own of the gathered ones.
  const ProjectionInput& input = alone_ ? mine_.input : b_.gathered;
  const int64_t blocks_in_middle = BlocksOf(moe.expert.intermediate_size);
  const int64_t unit = UnitBlocks(blocks_in_middle, pool_.num_threads());
  const int64_t units = (blocks_in_middle + unit - 1) / unit;
  for (int64_t i = worker_; i < active * units; i += pool_.num_threads()) {
    const auto a = static_cast<size_t>(i / units);
    const int64_t first = e.first[a], rows = e.first[a + 1] - first, block = i % units * unit;
    MlpUnit(layer_->experts[static_cast<size_t>(e.active[a])], input, alone_ ? 0 : first, rows,
            block, std::min(unit, blocks_in_middle - block), first);
  }
  Barrier();
  if (active > 0) {
    const int64_t width = WidthOf(layer_->experts[0].down), pairs = (width / kTileRows + 1) / 2;
    for (int64_t i = worker_; i < active * pairs; i += pool_.num_threads()) {
      const auto a = static_cast<size_t>(i / pairs);
      const int64_t first = e.first[a], rows = e.first[a + 1] - first, tile = i % pairs * 2;
      ProjectTiles(layer_->experts[static_cast<size_t>(e.active[a])].down, b_.middle, first, rows,
                   tile, std::min(tile + 2, width / kTileRows), b_.mlp_out.data() + first * width,
                   width);
    }
  }
  if (layer_->shared_expert) {
    Barrier();
    Mlp(*layer_->shared_expert, b_.shared_out.data());
    if (!layer_->shared_gate.group.matrices.empty())
      Project(layer_->shared_gate, Input(), rows_, b_.wide2.data());
  }
}

void Walker::JoinFeedForward(const MoeSpec& moe) {
  const WalkBuffers::Experts& e = b_.experts;
  const int64_t width = WidthOf(layer_->experts[0].down);
  const auto [begin, end] = MyRows();
  for (int64_t row = begin; row < end; ++row) {
    float* mixed = mine_.mixed.data();
    std::fill_n(mixed, hidden_, 0.0f);
    const auto r = static_cast<size_t>(row);
    const auto most = static_cast<size_t>(moe.num_experts_per_tok);
    for (size_t i = 0; i < static_cast<size_t>(e.count[r]); ++i) {
      const auto from = static_cast<size_t>(e.rows[r * most + i]);
      const float weight = e.weight[from];
      const float* out = b_.mlp_out.data() + static_cast<int64_t>(from) * width;
      for (int64_t c = 0; c < hidden_; ++c) mixed[c] += weight * out[c];
    }
    if (layer_->shared_expert) {
      const float* out = b_.shared_out.data() + row * WidthOf(layer_->shared_expert->down);
      const bool gated = !layer_->shared_gate.group.matrices.empty();
      const float gate = gated ? 1 / (1 + std::exp(-b_.wide2.data()[row * kTileRows])) : 1;
      for (int64_t c = 0; c < hidden_; ++c) mixed[c] += gate * out[c];
    }
    float* x = X(row);
    if (layer_->mlp_post_norm) Norm(*layer_->mlp_post_norm, mixed, hidden_, hidden_, mixed);
    ScaleRow(layer_->spec->residual, hidden_, mixed);
    kernels_.add(mixed, hidden_, x);
  }
}

}  // namespace lockstep
