#include "engine/walk.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/rounding.h"
#include "engine/routing.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

int64_t Padded(int64_t n) { return (n + kBlockColumns - 1) / kBlockColumns * kBlockColumns; }

float Activate(Activation activation, float x) {
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
      return x > 0 ? x : 0;
    case Activation::kRelu2:
      return x > 0 ? x * x : 0;
  }
  return x;
}

// One worker's way through a call. Every worker runs the same code; Mine(n) is its share of a loop,
// and the barriers stand where a phase reads what other workers wrote.
class Walker {
 public:
  Walker(const ExecutionPlan& plan, const KernelTable& kernels, Activations activations,
         SpinPool& pool, WalkBuffers& buffers, const WalkCall& call, int worker)
      : plan_(plan),
        spec_(*plan.spec),
        kernels_(kernels),
        activations_(activations),
        pool_(pool),
        b_(buffers),
        call_(call),
        worker_(worker),
        tokens_(static_cast<int64_t>(call.ids.size())),
        hidden_(spec_.embedding.hidden_size) {}

  void Run() {
    Embed();
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      layer_ = &plan_.layers[i];
      cache_ = &call_.sequence->layers[i];
      Layer();
    }
    Head();
  }

 private:
  std::pair<int64_t, int64_t> Mine(int64_t n) const {
    return Share(n, worker_, pool_.num_threads());
  }
  void Barrier() { pool_.Barrier(); }
  // One worker does what costs less than sharing it.
  template <typename Fn>
  void Once(const Fn& fn) {
    if (worker_ == 0) fn();
    Barrier();
  }
  float* X(int64_t t) { return b_.x.data() + t * hidden_; }

  void Embed() {
    Once([&] {
      b_.x.resize(static_cast<size_t>(tokens_ * hidden_));
      b_.scores.resize(static_cast<size_t>(pool_.num_threads()));
      for (auto& [rope, table] : b_.rotary) table.Fill(*rope, call_.first, tokens_, call_.length);
    });
    const auto [begin, end] = Mine(tokens_);
    std::vector<float> row;
    for (int64_t t = begin; t < end; ++t) {
      plan_.embedding->ReadRows(call_.ids[static_cast<size_t>(t)], 1, X(t), hidden_);
      ScaleRow(spec_.embedding.scale, hidden_, X(t));
      if (plan_.positions == nullptr) continue;
      row.resize(static_cast<size_t>(hidden_));
      plan_.positions->ReadRows(call_.first + t, 1, row.data(), hidden_);
      for (int64_t i = 0; i < hidden_; ++i) X(t)[i] += row[static_cast<size_t>(i)];
    }
  }

  // --- Norms and inputs ---

  // y <- norm of each group of `group` of n elements; x and y may be the same.
  void Norm(const NormWeights& norm, const float* x, int64_t n, int64_t group, float* y) const {
    for (int64_t g = 0; g < n; g += group) {
      if (norm.spec.kind == NormKind::kRms && !norm.weight.empty()) {
        kernels_.rms_norm(x + g, norm.weight.data(), group, static_cast<float>(norm.spec.eps),
                          y + g);
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

  bool ReadsCodes(const Projection& projection) const {
    return activations_ == Activations::kInt8 &&
           std::ranges::any_of(projection.group.matrices, [](const PackedMatrix& m) {
             return HoldsCodes(m.kind);
           });
  }

  // Makes `input` hold rows of n floats: fill(t, row) writes row t. Ends with all workers together.
  template <typename Fill>
  void Prepare(WalkBuffers::Input& input, int64_t rows, int64_t n, bool codes, const Fill& fill) {
    const int64_t padded = Padded(n), blocks = padded / kBlockColumns;
    Once([&] { input.Resize(rows, blocks); });
    const auto [begin, end] = Mine(rows);
    for (int64_t t = begin; t < end; ++t) {
      float* row = input.f32.data() + t * padded;
      fill(t, row);
      std::fill(row + n, row + padded, 0.0f);
      if (codes)
        kernels_.quantize(row, padded, input.codes.data() + t * padded,
                          input.scales.data() + t * blocks, input.sums.data() + t * blocks * 2);
    }
    Barrier();
  }

  static int64_t Width(const Projection& projection) {  // of an output row
    int64_t tiles = 0;
    for (const PackedMatrix& m : projection.group.matrices) tiles += m.Tiles();
    return tiles * kTileRows;
  }

  // One tile against all rows of the input, bias included; y[t * stride].
  void Tile(const Projection& projection, size_t matrix, int64_t tile,
            const WalkBuffers::Input& input, int64_t rows, float* y, int64_t stride) const {
    const PackedMatrix& m = projection.group.matrices[matrix];
    const int64_t blocks = m.Blocks(), padded = blocks * kBlockColumns;
    if (activations_ == Activations::kInt8 && HoldsCodes(m.kind)) {
      kernels_.tile_int8(m.kind, m.Tile(tile), blocks,
                         {input.codes.data(), input.scales.data(), input.sums.data(), blocks}, 0,
                         static_cast<int>(rows), y, stride);
    } else {
      kernels_.tile_f32(m.kind, m.Tile(tile), blocks, input.f32.data(), padded,
                        static_cast<int>(rows), y, stride);
    }
    if (!projection.biases[matrix].empty()) {
      const float* bias = projection.biases[matrix].data() + tile * kTileRows;
      for (int64_t t = 0; t < rows; ++t)
        for (int r = 0; r < kTileRows; ++r) y[t * stride + r] += bias[r];
    }
  }

  // out [rows][Width]: the matrices' outputs side by side. Ends with all workers together.
  void Project(const Projection& projection, const WalkBuffers::Input& input, int64_t rows,
               std::vector<float>& out) {
    const int64_t width = Width(projection);
    Once([&] { out.resize(static_cast<size_t>(rows * width)); });
    ProjectInto(projection, input, rows, out.data(), width);
  }
  void ProjectInto(const Projection& projection, const WalkBuffers::Input& input, int64_t rows,
                   float* out, int64_t width) {
    const auto [begin, end] = Mine(width / kTileRows);
    size_t matrix = 0;
    int64_t before = 0;
    for (int64_t tile = begin; tile < end; ++tile) {
      while (tile - before >= projection.group.matrices[matrix].Tiles())
        before += projection.group.matrices[matrix++].Tiles();
      Tile(projection, matrix, tile - before, input, rows, out + tile * kTileRows, width);
    }
    Barrier();
  }

  // --- Layer ---

  void Layer() {
    const LayerSpec& layer = *layer_->spec;
    const bool parallel = layer.wiring == Wiring::kParallel;
    const Projection& first_mlp = layer_->mlp ? layer_->mlp->in : layer_->router;
    const bool shared_input = parallel && !layer_->mlp_pre_norm;
    Prepare(b_.input, tokens_, hidden_,
            ReadsCodes(layer_->mixer_in) || shared_input || !layer_->mlp,
            [&](int64_t t, float* row) { NormOrCopy(layer_->mixer_pre_norm, X(t), row); });
    std::visit([&](const auto& mixer) { Mix(mixer); }, layer.mixer);  // -> b_.out
    if (!parallel) {
      Join(layer_->mixer_post_norm, layer.residual, b_.out);
    } else {
      Once([&] { b_.wide2 = b_.out; });  // the mixer's half waits for the MLP's
    }
    if (!shared_input)
      Prepare(b_.input, tokens_, hidden_, ReadsCodes(first_mlp) || !layer_->mlp,
              [&](int64_t t, float* row) { NormOrCopy(layer_->mlp_pre_norm, X(t), row); });
    std::visit([&](const auto& mlp) { FeedForward(mlp); }, layer.mlp);  // -> b_.out
    if (parallel) Join(layer_->mixer_post_norm, layer.residual, b_.wide2);
    Join(layer_->mlp_post_norm, layer.residual, b_.out);
  }

  void NormOrCopy(const std::optional<NormWeights>& norm, const float* x, float* y) const {
    if (norm)
      Norm(*norm, x, hidden_, hidden_, y);
    else
      std::copy_n(x, hidden_, y);
  }

  // x += residual * post_norm(half), this worker's rows; the next Prepare has the same share.
  void Join(const std::optional<NormWeights>& post_norm, const Scale& residual,
            std::vector<float>& half) {
    const auto width = static_cast<int64_t>(half.size()) / tokens_;
    const auto [begin, end] = Mine(tokens_);
    for (int64_t t = begin; t < end; ++t) {
      float* row = half.data() + t * width;
      if (post_norm) Norm(*post_norm, row, hidden_, hidden_, row);
      ScaleRow(residual, hidden_, row);
      for (int64_t i = 0; i < hidden_; ++i) X(t)[i] += row[i];
    }
  }

  // --- Mixers: from b_.input to b_.out ---

  const RotaryTable& Table(const RopeSpec& rope) const {
    for (const auto& [spec, table] : b_.rotary)
      if (*spec == rope) return table;
    LS_CHECK(false, "a RoPE that the walk did not prepare");
    __builtin_unreachable();
  }

  void Mix(const AttentionSpec& a) {
    const int64_t q_size = a.num_attention_heads * a.head_dim;
    const int64_t kv_size = a.num_key_value_heads * a.head_dim;
    Project(layer_->mixer_in, b_.input, tokens_, b_.wide);
    const auto& m = layer_->mixer_in.group.matrices;
    const int64_t width = Width(layer_->mixer_in);
    const int64_t k_at = m[0].Tiles() * kTileRows, v_at = k_at + m[1].Tiles() * kTileRows;
    Once([&] {
      const auto rows = static_cast<size_t>((call_.first + tokens_) * kv_size);
      Grow(cache_->k, rows);
      Grow(cache_->v, rows);
      b_.attended.resize(static_cast<size_t>(tokens_ * q_size));
    });
    const auto [begin, end] = Mine(tokens_);
    for (int64_t t = begin; t < end; ++t) {
      float* row = b_.wide.data() + t * width;
      float* q = row;
      float* k = row + k_at;
      float* v = row + v_at;
      const bool per_head = a.qk_norm_scope == QkNormScope::kHead;
      if (layer_->q_norm) Norm(*layer_->q_norm, q, q_size, per_head ? a.head_dim : q_size, q);
      if (layer_->k_norm) Norm(*layer_->k_norm, k, kv_size, per_head ? a.head_dim : kv_size, k);
      if (a.clip_qkv) {
        const auto clip = static_cast<float>(*a.clip_qkv);
        for (int64_t i = 0; i < q_size; ++i) q[i] = std::clamp(q[i], -clip, clip);
        for (int64_t i = 0; i < kv_size; ++i) k[i] = std::clamp(k[i], -clip, clip);
        for (int64_t i = 0; i < kv_size; ++i) v[i] = std::clamp(v[i], -clip, clip);
      }
      if (a.rope) {
        const RotaryTable& table = Table(*a.rope);
        for (int64_t h = 0; h < a.num_attention_heads; ++h)
          Rotate(table, a.rope->layout, t, q + h * a.head_dim);
        for (int64_t h = 0; h < a.num_key_value_heads; ++h)
          Rotate(table, a.rope->layout, t, k + h * a.head_dim);
      }
      std::copy_n(k, kv_size, cache_->k.data() + (call_.first + t) * kv_size);
      std::copy_n(v, kv_size, cache_->v.data() + (call_.first + t) * kv_size);
    }
    Barrier();
    Attend({a.num_attention_heads, a.num_key_value_heads, a.head_dim, a.head_dim}, a.query_scale,
           a.sliding_window, a.logit_softcap, b_.wide.data(), width);
    Output(q_size);
  }

  // What attention needs to know of its heads.
  struct Heads {
    int64_t num, num_kv, key_dim, value_dim;
  };

  void Attend(const Heads& heads, const Scale& query_scale, const std::optional<int64_t>& window,
              const std::optional<double>& softcap, const float* q, int64_t q_width) {
    const int64_t key_stride = heads.num_kv * heads.key_dim;
    const int64_t value_stride = heads.num_kv * heads.value_dim;
    const auto [begin, end] = Mine(tokens_ * heads.num);
    std::vector<float>& scores = b_.scores[static_cast<size_t>(worker_)];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t t = task / heads.num, h = task % heads.num;
      const int64_t position = call_.first + t, kv = h / (heads.num / heads.num_kv);
      const int64_t from = window ? std::max<int64_t>(0, position + 1 - *window) : 0;
      const int64_t visible = position + 1 - from;
      if (static_cast<int64_t>(scores.size()) < visible)
        scores.resize(static_cast<size_t>(visible) * 2);
      float* s = scores.data();
      kernels_.scores(q + t * q_width + h * heads.key_dim,
                      cache_->k.data() + from * key_stride + kv * heads.key_dim, key_stride,
                      visible, heads.key_dim, s);
      ScaleRow(query_scale, visible, s);
      if (softcap) {
        const auto cap = static_cast<float>(*softcap);
        for (int64_t i = 0; i < visible; ++i) s[i] = cap * std::tanh(s[i] / cap);
      }
      kernels_.softmax(s, visible,
                       layer_->sinks.empty() ? nullptr : &layer_->sinks[static_cast<size_t>(h)]);
      kernels_.weighted_sum(s, cache_->v.data() + from * value_stride + kv * heads.value_dim,
                            value_stride, visible, heads.value_dim,
                            b_.attended.data() + task * heads.value_dim);
    }
    Barrier();
  }

  // b_.attended [token][n] through the output projection.
  void Output(int64_t n) {
    Prepare(b_.middle, tokens_, n, ReadsCodes(layer_->mixer_out),
            [&](int64_t t, float* row) { std::copy_n(b_.attended.data() + t * n, n, row); });
    Project(layer_->mixer_out, b_.middle, tokens_, b_.out);
  }

  void Mix(const MlaSpec& a) {
    const int64_t heads = a.num_attention_heads, nope = a.qk_nope_head_dim,
                  rope = a.qk_rope_head_dim;
    const int64_t key_dim = nope + rope, v_dim = a.v_head_dim, latent = a.kv_lora_rank;
    const auto& m = layer_->mixer_in.group.matrices;
    const int64_t width = Width(layer_->mixer_in), kv_at = m[0].Tiles() * kTileRows;
    Project(layer_->mixer_in, b_.input, tokens_, b_.wide);
    int64_t q_width = width;
    std::vector<float>* q = &b_.wide;
    if (a.q_lora_rank) {
      Prepare(b_.middle, tokens_, *a.q_lora_rank, ReadsCodes(layer_->mla_q_b),
              [&](int64_t t, float* row) {
                Norm(*layer_->q_norm, b_.wide.data() + t * width, *a.q_lora_rank, *a.q_lora_rank,
                     row);
              });
      Project(layer_->mla_q_b, b_.middle, tokens_, b_.wide2);
      q = &b_.wide2;
      q_width = Width(layer_->mla_q_b);
    }
    Prepare(b_.middle, tokens_, latent, ReadsCodes(layer_->mla_kv_b), [&](int64_t t, float* row) {
      Norm(*layer_->k_norm, b_.wide.data() + t * width + kv_at, latent, latent, row);
    });
    Project(layer_->mla_kv_b, b_.middle, tokens_, b_.out);
    const int64_t expanded = Width(layer_->mla_kv_b);
    Once([&] {
      Grow(cache_->k, static_cast<size_t>((call_.first + tokens_) * heads * key_dim));
      Grow(cache_->v, static_cast<size_t>((call_.first + tokens_) * heads * v_dim));
      b_.attended.resize(static_cast<size_t>(tokens_ * heads * v_dim));
    });
    const RotaryTable& table = Table(a.rope);
    const auto [begin, end] = Mine(tokens_);
    for (int64_t t = begin; t < end; ++t) {
      float* shared_rope = b_.wide.data() + t * width + kv_at + latent;
      Rotate(table, a.rope.layout, t, shared_rope);
      float* k = cache_->k.data() + (call_.first + t) * heads * key_dim;
      float* v = cache_->v.data() + (call_.first + t) * heads * v_dim;
      for (int64_t h = 0; h < heads; ++h) {
        Rotate(table, a.rope.layout, t, q->data() + t * q_width + h * key_dim + nope);
        const float* kv = b_.out.data() + t * expanded + h * (nope + v_dim);
        std::copy_n(kv, nope, k + h * key_dim);
        std::copy_n(shared_rope, rope, k + h * key_dim + nope);
        std::copy_n(kv + nope, v_dim, v + h * v_dim);
      }
    }
    Barrier();
    Attend({heads, heads, key_dim, v_dim}, a.query_scale, std::nullopt, std::nullopt, q->data(),
           q_width);
    Output(heads * v_dim);
  }

  void Mix(const ShortConvSpec& c) {
    Project(layer_->mixer_in, b_.input, tokens_, b_.wide);
    const int64_t width = Width(layer_->mixer_in);
    Once([&] {
      Grow(cache_->conv, static_cast<size_t>((call_.first + tokens_) * hidden_));
      b_.attended.resize(static_cast<size_t>(tokens_ * hidden_));
    });
    {
      const auto [begin, end] = Mine(tokens_);
      for (int64_t t = begin; t < end; ++t) {
        const float* row = b_.wide.data() + t * width;
        float* in = cache_->conv.data() + (call_.first + t) * hidden_;
        for (int64_t i = 0; i < hidden_; ++i) in[i] = row[i] * row[2 * hidden_ + i];
      }
    }
    Barrier();
    const auto [begin, end] = Mine(tokens_);
    for (int64_t t = begin; t < end; ++t) {
      const float* gate = b_.wide.data() + t * width + hidden_;
      float* out = b_.attended.data() + t * hidden_;
      for (int64_t i = 0; i < hidden_; ++i) {
        float sum = 0;
        for (int64_t j = 0; j < c.kernel_size; ++j) {
          const int64_t position = call_.first + t - (c.kernel_size - 1 - j);
          if (position >= 0)
            sum += layer_->conv[static_cast<size_t>(i * c.kernel_size + j)] *
                   cache_->conv[static_cast<size_t>(position * hidden_ + i)];
        }
        out[i] = (sum + layer_->conv_bias[static_cast<size_t>(i)]) * gate[i];
      }
    }
    Barrier();
    Output(hidden_);
  }

  // The cache of one layer to `size` elements, doubling its room.
  static void Grow(std::vector<float>& rows, size_t size) {
    if (rows.capacity() < size) rows.reserve(std::max(size, rows.capacity() * 2));
    rows.resize(size);
  }

  // --- Feed-forward: from b_.input to b_.out ---

  void Mlp(const MlpPlan& mlp, const WalkBuffers::Input& input, int64_t rows,
           std::vector<float>& out) {
    const int64_t size = mlp.spec.intermediate_size;
    const int64_t tiles = mlp.in.group.matrices[0].Tiles(), width = Width(mlp.in);
    Once([&] { b_.wide.resize(static_cast<size_t>(rows * width)); });
    const auto [begin, end] = Mine(tiles);
    for (int64_t tile = begin; tile < end; ++tile) {
      // A gate tile and its up tile meet in the same worker, which joins them while they are warm.
      float* gate = b_.wide.data() + tile * kTileRows;
      Tile(mlp.in, 0, tile, input, rows, gate, width);
      float* up = gate + tiles * kTileRows;
      if (mlp.spec.gated) Tile(mlp.in, 1, tile, input, rows, up, width);
      for (int64_t t = 0; t < rows; ++t) Join(mlp.spec, up + t * width, gate + t * width);
    }
    Barrier();
    Prepare(b_.middle, rows, size, ReadsCodes(mlp.down),
            [&](int64_t t, float* row) { std::copy_n(b_.wide.data() + t * width, size, row); });
    Project(mlp.down, b_.middle, rows, out);
  }

  // 16 elements: gate <- activation(gate) * up, or activation(gate).
  void Join(const MlpSpec& mlp, const float* up, float* gate) const {
    if (!mlp.gated) {
      for (int i = 0; i < kTileRows; ++i) gate[i] = Activate(mlp.activation, gate[i]);
    } else if (mlp.clamped_glu) {
      const auto limit = static_cast<float>(mlp.clamped_glu->limit);
      const auto alpha = static_cast<float>(mlp.clamped_glu->alpha);
      for (int i = 0; i < kTileRows; ++i) {
        const float g = std::min(gate[i], limit), u = std::clamp(up[i], -limit, limit);
        gate[i] =
            g / (1 + std::exp(-alpha * g)) * (u + static_cast<float>(mlp.clamped_glu->up_offset));
      }
    } else if (mlp.activation == Activation::kSilu) {
      kernels_.silu_mul(up, kTileRows, gate);
    } else if (mlp.activation == Activation::kGeluTanh) {
      kernels_.gelu_tanh_mul(up, kTileRows, gate);
    } else {
      for (int i = 0; i < kTileRows; ++i) gate[i] = Activate(mlp.activation, gate[i]) * up[i];
    }
  }

  void FeedForward(const MlpSpec&) { Mlp(*layer_->mlp, b_.input, tokens_, b_.out); }

  void FeedForward(const MoeSpec& moe) {
    const int64_t width = Width(layer_->router);
    Project(layer_->router, b_.input, tokens_, b_.attended);
    Once([&] {
      b_.expert_tokens.assign(layer_->experts.size(), {});
      for (int64_t t = 0; t < tokens_; ++t) {
        const std::span<float> row(b_.attended.data() + t * width, layer_->experts.size());
        RouteToken(moe.router, moe.num_experts_per_tok, layer_->selection_bias, row);
        for (size_t e = 0; e < row.size(); ++e)
          if (row[e] != 0) b_.expert_tokens[e].push_back(static_cast<int32_t>(t));
      }
      b_.mixed.assign(static_cast<size_t>(tokens_ * hidden_), 0.0f);
    });
    for (size_t e = 0; e < layer_->experts.size(); ++e) {
      const std::vector<int32_t>& chosen = b_.expert_tokens[e];
      if (chosen.empty()) continue;
      const MlpPlan& expert = layer_->experts[e];
      const auto rows = static_cast<int64_t>(chosen.size());
      Prepare(b_.gathered, rows, hidden_, ReadsCodes(expert.in), [&](int64_t i, float* row) {
        std::copy_n(b_.input.f32.data() + chosen[static_cast<size_t>(i)] * Padded(hidden_), hidden_,
                    row);
      });
      Mlp(expert, b_.gathered, rows, b_.out);
      const int64_t out_width = Width(expert.down);
      const auto [begin, end] = Mine(rows);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t t = chosen[static_cast<size_t>(i)];
        const float weight = b_.attended[static_cast<size_t>(t * width) + e];
        for (int64_t c = 0; c < hidden_; ++c)
          b_.mixed[static_cast<size_t>(t * hidden_ + c)] +=
              weight * b_.out[static_cast<size_t>(i * out_width + c)];
      }
      Barrier();
    }
    if (layer_->shared_expert) {
      Mlp(*layer_->shared_expert, b_.input, tokens_, b_.out);
      const int64_t out_width = Width(layer_->shared_expert->down);
      const bool gated = !layer_->shared_gate.group.matrices.empty();
      if (gated) Project(layer_->shared_gate, b_.input, tokens_, b_.attended);
      const auto [begin, end] = Mine(tokens_);
      for (int64_t t = begin; t < end; ++t) {
        const float gate =
            gated ? 1 / (1 + std::exp(-b_.attended[static_cast<size_t>(t * kTileRows)])) : 1;
        for (int64_t c = 0; c < hidden_; ++c)
          b_.mixed[static_cast<size_t>(t * hidden_ + c)] +=
              gate * b_.out[static_cast<size_t>(t * out_width + c)];
      }
      Barrier();
    }
    Once([&] { b_.out = b_.mixed; });
  }

  void Head() {
    if (call_.head_rows == 0) return;
    const int64_t first = tokens_ - call_.head_rows;
    Barrier();  // the last rows may be another worker's
    Prepare(b_.input, call_.head_rows, hidden_, ReadsCodes(plan_.head), [&](int64_t t, float* row) {
      Norm(plan_.final_norm, X(first + t), hidden_, hidden_, row);
    });
    const int64_t width = Width(plan_.head);
    ProjectInto(plan_.head, b_.input, call_.head_rows, call_.logits, width);
    const LmHeadSpec& head = spec_.lm_head;
    const auto [begin, end] = Mine(call_.head_rows * (width / kTileRows));
    for (int64_t i = begin; i < end; ++i) {
      float* logits = call_.logits + i * kTileRows;
      ScaleRow(head.logit_scale, kTileRows, logits);
      if (!head.logit_softcap) continue;
      const auto cap = static_cast<float>(*head.logit_softcap);
      for (int r = 0; r < kTileRows; ++r) logits[r] = cap * std::tanh(logits[r] / cap);
    }
  }

  const ExecutionPlan& plan_;
  const ModelSpec& spec_;
  const KernelTable& kernels_;
  const Activations activations_;
  SpinPool& pool_;
  WalkBuffers& b_;
  const WalkCall& call_;
  const int worker_;
  const int64_t tokens_, hidden_;
  const LayerPlan* layer_ = nullptr;
  EngineSequence::Layer* cache_ = nullptr;
};

}  // namespace

void WalkBuffers::Input::Resize(int64_t tokens, int64_t blocks) {
  const auto n = static_cast<size_t>(tokens * blocks);
  // Kernels may read a few codes past the end.
  f32.resize(n * kBlockColumns);
  codes.resize(n * kBlockColumns + 64);
  scales.resize(n);
  sums.resize(n * 2);
}

std::optional<int64_t> PositionLimit(const ModelSpec& spec) {
  if (spec.embedding.positions) return spec.embedding.positions->num_positions;
  if (StretchesWithLength(spec)) return std::nullopt;
  if (spec.max_position_embeddings <= 0) return std::nullopt;
  return spec.max_position_embeddings;
}

void Walk(const ExecutionPlan& plan, const KernelTable& kernels, Activations activations,
          SpinPool& pool, WalkBuffers& buffers, const WalkCall& call) {
  if (buffers.rotary.empty()) {
    for (const LayerSpec& layer : plan.spec->layers) {
      const RopeSpec* rope = FindRope(layer);
      const bool known = rope == nullptr || std::ranges::any_of(buffers.rotary, [&](const auto& r) {
                           return *r.first == *rope;
                         });
      if (!known) buffers.rotary.emplace_back(rope, RotaryTable{});
    }
  }
  pool.Run(
      [&](int worker) { Walker(plan, kernels, activations, pool, buffers, call, worker).Run(); });
}

}  // namespace lockstep
