#include "reference/interpreter.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

#include "reference/linear.h"
#include "reference/mask.h"
#include "reference/ops.h"
#include "reference/rope.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

// Tokens that go through the layers together: bounds the memory of a long prompt's activations.
constexpr size_t kChunk = 512;

template <typename T>
struct Matrix {
  std::vector<T> data;
  size_t rows = 0, cols = 0;
  Matrix(size_t rows, size_t cols) : data(rows * cols), rows(rows), cols(cols) {}
  operator MatrixView<T>() { return {data.data(), rows, cols}; }
  operator MatrixView<const T>() const { return {data.data(), rows, cols}; }
  MatrixView<T> view() { return *this; }
};

template <typename T>
void Add(MatrixView<const T> x, MatrixView<T> y) {
  for (size_t t = 0; t < y.rows; ++t)
    for (size_t i = 0; i < y.cols; ++i) y(t, i) += x(t, i);
}

// What attention needs to know once q, k and v exist.
struct AttendShape {
  size_t num_heads, num_kv_heads, key_dim, value_dim;
};

// One chunk of one sequence on its way through the layers.
template <typename T>
class Pass {
 public:
  Pass(const ModelSpec& spec, const Weights& weights, ThreadPool& pool, const RunSpec& run,
       Sequence<T>& sequence, int64_t call_first, int64_t first, size_t count, int64_t length,
       TapSink<T>* taps, const Rounder<T>* rounder)
      : spec_(spec),
        weights_(weights),
        pool_(pool),
        run_(run),
        sequence_(sequence),
        call_first_(call_first),
        first_(first),
        count_(count),
        length_(length),
        taps_(taps),
        rounder_(rounder) {}

  Matrix<T> Embed(std::span<const int32_t> ids) {
    const EmbeddingSpec& embedding = spec_.embedding;
    Matrix<T> x(count_, Hidden());
    std::vector<float> row(Hidden());
    const WeightView& table = weights_.Get(Role::kEmbedTokens);
    for (size_t t = 0; t < count_; ++t) {
      table.ReadRows(ids[t], 1, row.data(), table.cols);
      std::ranges::copy(row, x.view().row(t).begin());
    }
    ApplyScale<T>(embedding.scale, x);
    if (embedding.positions) {
      const WeightView& positions = weights_.Get(Role::kEmbedPositions);
      for (size_t t = 0; t < count_; ++t) {
        positions.ReadRows(run_.FirstPosition() + first_ + static_cast<int64_t>(t), 1, row.data(),
                           positions.cols);
        for (size_t i = 0; i < row.size(); ++i) x.view()(t, i) += static_cast<T>(row[i]);
      }
    }
    RoundResidual(x);
    Put(Tap::kEmbedding, -1, x);
    return x;
  }

  // x <- the layer's output.
  void Layer(int index, Matrix<T>& x) {
    layer_ = index;
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(index)];
    Matrix<T> mixer_in = Normed(layer.mixer_pre_norm, Role::kMixerPreNorm, x);
    Put(Tap::kMixerNorm, index, mixer_in);
    Matrix<T> mixed =
        std::visit([&](const auto& mixer) { return Mix(mixer, mixer_in); }, layer.mixer);
    Put(Tap::kMixer, index, mixed);
    if (layer.mixer_post_norm) {
      mixed = Normed(layer.mixer_post_norm, Role::kMixerPostNorm, mixed);
      Put(Tap::kMixerPostNorm, index, mixed);
    }
    Scaled(layer.residual, mixed);
    if (layer.wiring == Wiring::kSequential) {
      Add<T>(mixed, x);
      RoundResidual(x);
      Put(Tap::kMixerResidual, index, x);
    }
    // Parallel wiring without a norm of its own: the MLP reads what the mixer read.
    Matrix<T> mlp_in = layer.wiring == Wiring::kParallel && !layer.mlp_pre_norm
                           ? std::move(mixer_in)
                           : Normed(layer.mlp_pre_norm, Role::kMlpPreNorm, x);
    Put(Tap::kMlpNorm, index, mlp_in);
    Matrix<T> fed =
        std::visit([&](const auto& mlp) { return FeedForward(mlp, mlp_in); }, layer.mlp);
    Put(Tap::kMlp, index, fed);
    if (layer.mlp_post_norm) {
      fed = Normed(layer.mlp_post_norm, Role::kMlpPostNorm, fed);
      Put(Tap::kMlpPostNorm, index, fed);
    }
    Scaled(layer.residual, fed);
    if (layer.wiring == Wiring::kParallel) Add<T>(mixed, fed);
    Add<T>(fed, x);
    RoundResidual(x);
    Put(Tap::kOutput, index, x);
  }

  // Logits of the last `rows` rows of x into `logits` [rows, vocab_size], or [rows, vocabulary].
  // They are the chunk's last positions, or `positions`.
  void Head(Matrix<T>& x, MatrixView<T> logits, std::span<const int32_t> vocabulary = {},
            std::span<const int64_t> positions = {}) {
    layer_ = -1;
    x = Normed(spec_.final_norm, Role::kFinalNorm, x);
    Put(Tap::kFinalNorm, -1, x);
    if (logits.rows == 0) return;
    const WeightView& head = weights_.Get(spec_.lm_head.tied ? Role::kEmbedTokens : Role::kLmHead);
    const WeightView* bias =
        spec_.lm_head.bias ? &weights_.Get(Role::kLmHead, -1, Part::kBias) : nullptr;
    Multiply(head, bias, true, x.view().block(x.rows - logits.rows, logits.rows), logits,
             vocabulary, positions);
    ApplyScale<T>(spec_.lm_head.logit_scale, logits);
    if (spec_.lm_head.logit_softcap)
      pool_.For(logits.rows,
                [&](size_t t) { SoftCap<T>(*spec_.lm_head.logit_softcap, logits.row(t)); });
    RoundOutput(logits);
    if (taps_ != nullptr && taps_->Wants(Tap::kLogits, -1))
      taps_->Put(Tap::kLogits, -1, first_ + static_cast<int64_t>(x.rows - logits.rows), logits);
  }

 private:
  size_t Hidden() const { return static_cast<size_t>(spec_.embedding.hidden_size); }

  void Put(Tap tap, int layer, MatrixView<const T> rows) {
    if (taps_ != nullptr && taps_->Wants(tap, layer)) taps_->Put(tap, layer, first_, rows);
  }

  std::vector<float> ReadVector(Role role, Part part) const {
    const WeightView& view = weights_.Get(role, layer_, part);
    std::vector<float> values(static_cast<size_t>(view.elements()));
    view.ReadRows(0, view.rows, values.data(), view.cols);
    return values;
  }

  void NormInPlace(const NormSpec& norm, Role role, size_t group_size, MatrixView<T> x) {
    const std::vector<float> w =
        norm.weight ? ReadVector(role, Part::kWeight) : std::vector<float>{};
    const std::vector<float> b = norm.bias ? ReadVector(role, Part::kBias) : std::vector<float>{};
    Norm<T>(norm, w, b, group_size, x, x, {run_.norm_cast, run_.inverse_rms_rounding});
    RoundOutput(x);
  }

  void RoundOutput(MatrixView<T> x) const {
    if (rounder_ != nullptr) rounder_->Output(x);
  }

  void Scaled(const Scale& scale, Matrix<T>& x) const {
    if (scale.value == 1) return;
    ApplyScale<T>(scale, x);
    RoundOutput(x);
  }

  // A sum of the residual stream, as the run keeps it.
  void RoundResidual(Matrix<T>& x) const {
    RoundOutput(x);
    if (run_.residual_rounding == Rounding::kNone) return;
    for (T& e : x.data) e = static_cast<T>(Rounded(e, run_.residual_rounding));
  }

  Matrix<T> Normed(const std::optional<NormSpec>& norm, Role role, Matrix<T> x) {
    if (norm) NormInPlace(*norm, role, x.cols, x);
    return x;
  }

  // `positions` of the rows: by default the chunk's last ones.
  Matrix<T> Project(Role role, MatrixView<const T> x, bool has_bias, int expert = -1,
                    std::span<const int64_t> positions = {}) {
    const WeightView& weight = weights_.Get(role, layer_, Part::kWeight, expert);
    const WeightView* bias = has_bias ? &weights_.Get(role, layer_, Part::kBias, expert) : nullptr;
    Matrix<T> y(x.rows, static_cast<size_t>(weight.rows));
    Multiply(weight, bias, false, x, y, {}, positions);
    return y;
  }

  void Multiply(const WeightView& weight, const WeightView* bias, bool head, MatrixView<const T> x,
                MatrixView<T> y, std::span<const int32_t> rows = {},
                std::span<const int64_t> positions = {}) {
    Matrix<T> rounded(rounder_ != nullptr ? x.rows : 0, x.cols);
    if (rounder_ != nullptr) {
      std::vector<int64_t> last;
      for (size_t t = 0; positions.empty() && t < x.rows; ++t)
        last.push_back(first_ + static_cast<int64_t>(count_ - x.rows + t));
      for (size_t t = 0; t < x.rows; ++t)
        std::ranges::copy(x.row(t), rounded.view().row(t).begin());
      rounder_->Input(weight, head, positions.empty() ? std::span<const int64_t>(last) : positions,
                      rounded);
      x = rounded;
    }
    Linear<T>(pool_, weight, bias, x, y, rows);
    RoundOutput(y);
  }

  void RoundAttention(const AttendShape& shape, Matrix<T>& q, Matrix<T>& k, Matrix<T>& v) const {
    if (rounder_ == nullptr) return;
    rounder_->Queries(shape.key_dim, q);
    rounder_->Keys(shape.key_dim, k);
    rounder_->Values(shape.value_dim, v);
  }

  // Layers share a handful of tables: each is made once a pass.
  const RopeTable& Table(const RopeSpec& rope) {
    for (const auto& [spec, table] : tables_)
      if (*spec == rope) return table;
    RopeTable& made = tables_
                          .emplace_back(&rope, RopeTable(rope, run_.FirstPosition() + first_,
                                                         static_cast<int64_t>(count_),
                                                         run_.FirstPosition() + length_))
                          .second;
    if (rounder_ != nullptr) {
      rounder_->Turns(made.cos);
      rounder_->Turns(made.sin);
    }
    return made;
  }

  // Rows of this chunk join the layer's cache, as the run keeps them.
  void Remember(Matrix<T>& k, Matrix<T>& v) {
    auto& cache = sequence_.layers[static_cast<size_t>(layer_)];
    const bool stale =
        run_.cache_state == CacheState::kRowStale && call_first_ > 0 && first_ == call_first_;
    for (const auto& [rows, kept] : {std::pair{&k, &cache.k}, std::pair{&v, &cache.v}}) {
      if (run_.kv_rounded_after_call) {
        // What earlier calls left is found as the cache kept it.
        const auto earlier = static_cast<size_t>(call_first_) * rows->cols;
        RoundTo(run_.kv_dtype, std::span(*kept).first(first_ == call_first_ ? earlier : 0));
      } else {
        RoundTo(run_.kv_dtype, rows->data);
      }
      if (stale)
        std::copy(kept->end() - static_cast<std::ptrdiff_t>(rows->cols), kept->end(),
                  rows->data.begin());
      kept->insert(kept->end(), rows->data.begin(), rows->data.end());
    }
  }

  static void RoundTo(KvDType dtype, std::span<T> numbers) {
    if (dtype != KvDType::kF16 && dtype != KvDType::kBF16) return;  // T is no wider than those
    const Rounding rounding = dtype == KvDType::kF16 ? Rounding::kFP16 : Rounding::kBF16;
    for (T& e : numbers) e = static_cast<T>(Rounded(e, rounding));
  }

  // --- Mixers ---

  Matrix<T> Mix(const AttentionSpec& a, const Matrix<T>& x) {
    Matrix<T> q = Project(Role::kQProj, x, a.q_bias);
    Matrix<T> k = Project(Role::kKProj, x, a.k_bias);
    Matrix<T> v = Project(Role::kVProj, x, a.v_bias);
    Put(Tap::kQ, layer_, q);
    Put(Tap::kK, layer_, k);
    Put(Tap::kV, layer_, v);
    if (!run_.qk_norm_after_rope) NormQk(a, q, k);
    if (a.clip_qkv) {
      const T clip = static_cast<T>(*a.clip_qkv);
      for (Matrix<T>* m : {&q, &k, &v})
        for (T& e : m->data) e = std::clamp(e, -clip, clip);
    }
    if (a.rope) {
      const RopeTable& table = Table(*a.rope);
      ApplyRope<T>(table, a.rope->layout, a.num_attention_heads, a.head_dim, 0, q);
      ApplyRope<T>(table, a.rope->layout, a.num_key_value_heads, a.head_dim, 0, k);
      RoundOutput(q);
      RoundOutput(k);
      Put(Tap::kQRope, layer_, q);
      Put(Tap::kKRope, layer_, k);
    }
    if (run_.qk_norm_after_rope) NormQk(a, q, k);
    const auto head_dim = static_cast<size_t>(a.head_dim);
    const AttendShape shape{static_cast<size_t>(a.num_attention_heads),
                            static_cast<size_t>(a.num_key_value_heads), head_dim, head_dim};
    RoundAttention(shape, q, k, v);
    Remember(k, v);
    const Matrix<T> out =
        Attend(shape, a.query_scale, a.sliding_window, a.logit_softcap,
               a.sinks ? ReadVector(Role::kSinks, Part::kWeight) : std::vector<float>{}, q);
    return Project(Role::kOProj, out, a.o_bias);
  }

  void NormQk(const AttentionSpec& a, Matrix<T>& q, Matrix<T>& k) {
    NormHeads(a.q_norm, Role::kQNorm, Tap::kQNorm, a, q);
    NormHeads(a.k_norm, Role::kKNorm, Tap::kKNorm, a, k);
  }

  void NormHeads(const std::optional<NormSpec>& norm, Role role, Tap tap, const AttentionSpec& a,
                 Matrix<T>& x) {
    if (!norm) return;
    const bool per_head = a.qk_norm_scope == QkNormScope::kHead;
    NormInPlace(*norm, role, per_head ? static_cast<size_t>(a.head_dim) : x.cols, x);
    Put(tap, layer_, x);
  }

  // DeepseekV3Attention: q = [nope | rope] per head; kv_a = [latent | one k_rope for all heads];
  // kv_b(norm(latent)) = [k_nope | v] per head. Keys and values are cached expanded.
  Matrix<T> Mix(const MlaSpec& a, const Matrix<T>& x) {
    const auto heads = static_cast<size_t>(a.num_attention_heads);
    const auto nope = static_cast<size_t>(a.qk_nope_head_dim);
    const auto rope = static_cast<size_t>(a.qk_rope_head_dim);
    const auto v_dim = static_cast<size_t>(a.v_head_dim);
    const auto latent = static_cast<size_t>(a.kv_lora_rank);
    Matrix<T> q(0, 0);
    if (a.q_lora_rank) {
      Matrix<T> q_a = Project(Role::kQAProj, x, a.bias);
      Put(Tap::kQA, layer_, q_a);
      q_a = Normed(a.q_a_norm, Role::kQANorm, std::move(q_a));
      q = Project(Role::kQBProj, q_a, false);
    } else {
      q = Project(Role::kQProj, x, false);
    }
    Put(Tap::kQ, layer_, q);
    Matrix<T> kv_a = Project(Role::kKvAProj, x, a.bias);
    Put(Tap::kKvA, layer_, kv_a);
    Matrix<T> compressed(count_, latent), k_rope(count_, rope);
    for (size_t t = 0; t < count_; ++t) {
      const auto row = kv_a.view().row(t);
      std::ranges::copy(row.first(latent), compressed.view().row(t).begin());
      std::ranges::copy(row.subspan(latent), k_rope.view().row(t).begin());
    }
    compressed = Normed(a.kv_a_norm, Role::kKvANorm, std::move(compressed));
    Matrix<T> kv_b = Project(Role::kKvBProj, compressed, false);
    Put(Tap::kKvB, layer_, kv_b);

    const RopeTable& table = Table(a.rope);
    ApplyRope<T>(table, a.rope.layout, a.num_attention_heads,
                 a.qk_nope_head_dim + a.qk_rope_head_dim, a.qk_nope_head_dim, q);
    ApplyRope<T>(table, a.rope.layout, 1, a.qk_rope_head_dim, 0, k_rope);
    RoundOutput(q);
    RoundOutput(k_rope);
    Matrix<T> k(count_, heads * (nope + rope)), v(count_, heads * v_dim);
    for (size_t t = 0; t < count_; ++t) {
      for (size_t h = 0; h < heads; ++h) {
        const auto expanded = kv_b.view().row(t).subspan(h * (nope + v_dim), nope + v_dim);
        const auto key = k.view().row(t).subspan(h * (nope + rope), nope + rope);
        std::ranges::copy(expanded.first(nope), key.begin());
        std::ranges::copy(k_rope.view().row(t), key.begin() + static_cast<std::ptrdiff_t>(nope));
        std::ranges::copy(expanded.subspan(nope),
                          v.view().row(t).begin() + static_cast<std::ptrdiff_t>(h * v_dim));
      }
    }
    Put(Tap::kQRope, layer_, q);
    Put(Tap::kKRope, layer_, k);
    Put(Tap::kV, layer_, v);
    const AttendShape shape{heads, heads, nope + rope, v_dim};
    RoundAttention(shape, q, k, v);
    Remember(k, v);
    const Matrix<T> out = Attend(shape, a.query_scale, std::nullopt, std::nullopt, {}, q);
    return Project(Role::kOProj, out, a.bias);
  }

  // softmax(scale * q . k, capped, over the visible keys) . v for every head of every token.
  Matrix<T> Attend(const AttendShape& shape, const Scale& query_scale,
                   const std::optional<int64_t>& window, const std::optional<double>& softcap,
                   const std::vector<float>& sinks, const Matrix<T>& q) {
    const auto& cache = sequence_.layers[static_cast<size_t>(layer_)];
    const size_t key_stride = shape.num_kv_heads * shape.key_dim;
    const size_t value_stride = shape.num_kv_heads * shape.value_dim;
    const size_t heads_per_kv = shape.num_heads / shape.num_kv_heads;
    Matrix<T> out(count_, shape.num_heads * shape.value_dim);
    const bool masks = NeedsMask(run_);
    pool_.For(count_ * shape.num_heads, [&](size_t task) {
      const size_t t = task / shape.num_heads, h = task % shape.num_heads;
      const size_t position = static_cast<size_t>(first_) + t;
      const T sink = sinks.empty() ? T{0} : static_cast<T>(sinks[h]);
      if (masks) {  // over every row that there is, each masked or not
        const size_t rows = cache.k.size() / key_stride;
        std::vector<T> scores(rows);
        Scores(q.data.data() + t * q.cols + h * shape.key_dim,
               cache.k.data() + h / heads_per_kv * shape.key_dim, key_stride, rows, shape.key_dim,
               scores.data());
        ApplyScale<T>(query_scale, {scores.data(), 1, rows});
        Mask<T>(run_, window, softcap, {call_first_, static_cast<int64_t>(position)}, scores);
        Softmax<T>(scores, sinks.empty() ? nullptr : &sink);
        WeightedSum(scores.data(), cache.v.data() + h / heads_per_kv * shape.value_dim,
                    value_stride, rows, shape.value_dim,
                    out.view().row(t).data() + h * shape.value_dim);
        return;
      }
      // Causal: this position and those before it; a window of w sees the w latest.
      const size_t begin = window && position + 1 > static_cast<size_t>(*window)
                               ? position + 1 - static_cast<size_t>(*window)
                               : 0;
      const size_t visible = position + 1 - begin;
      const size_t kv_head = h / heads_per_kv;
      std::vector<T> scores(visible);
      Scores(q.data.data() + t * q.cols + h * shape.key_dim,
             cache.k.data() + begin * key_stride + kv_head * shape.key_dim, key_stride, visible,
             shape.key_dim, scores.data());
      ApplyScale<T>(query_scale, {scores.data(), 1, visible});
      if (softcap) SoftCap<T>(*softcap, scores);
      Softmax<T>(scores, sinks.empty() ? nullptr : &sink);
      if (rounder_ != nullptr) rounder_->AttentionWeights(scores);
      WeightedSum(scores.data(), cache.v.data() + begin * value_stride + kv_head * shape.value_dim,
                  value_stride, visible, shape.value_dim,
                  out.view().row(t).data() + h * shape.value_dim);
    });
    RoundOutput(out);
    Put(Tap::kAttention, layer_, out);
    return out;
  }

  // Lfm2ShortConv: B, C, x = in_proj; out_proj(C * conv(B * x)), each channel with its own kernel
  // whose last element meets the present position.
  Matrix<T> Mix(const ShortConvSpec& c, const Matrix<T>& x) {
    const size_t hidden = Hidden();
    const auto kernel = static_cast<size_t>(c.kernel_size);
    Matrix<T> bcx = Project(Role::kConvInProj, x, c.bias);
    Matrix<T> bx(count_, hidden);
    for (size_t t = 0; t < count_; ++t)
      for (size_t i = 0; i < hidden; ++i)
        bx.view()(t, i) = bcx.view()(t, i) * bcx.view()(t, 2 * hidden + i);
    RoundOutput(bx);
    Put(Tap::kConvIn, layer_, bx);
    auto& inputs = sequence_.layers[static_cast<size_t>(layer_)].conv;
    inputs.insert(inputs.end(), bx.data.begin(), bx.data.end());
    const std::vector<float> weight = ReadVector(Role::kConv, Part::kWeight);  // [hidden, kernel]
    const std::vector<float> bias =
        c.bias ? ReadVector(Role::kConv, Part::kBias) : std::vector<float>(hidden, 0.0f);
    Matrix<T> y(count_, hidden);
    const size_t oldest =
        run_.cache_state == CacheState::kConvLost ? static_cast<size_t>(call_first_) : 0;
    for (size_t t = 0; t < count_; ++t) {
      const size_t position = static_cast<size_t>(first_) + t;
      for (size_t i = 0; i < hidden; ++i) {
        T sum = 0;
        for (size_t j = 0; j < kernel; ++j)  // kernel element j meets position - (kernel - 1 - j)
          if (position + j + 1 >= kernel + oldest)
            sum += static_cast<T>(weight[i * kernel + j]) *
                   inputs[(position + j + 1 - kernel) * hidden + i];
        y.view()(t, i) = sum + static_cast<T>(bias[i]);
      }
    }
    RoundOutput(y);
    Put(Tap::kConvOut, layer_, y);
    for (size_t t = 0; t < count_; ++t)
      for (size_t i = 0; i < hidden; ++i) y.view()(t, i) *= bcx.view()(t, hidden + i);
    return Project(Role::kConvOutProj, y, c.bias);
  }

  // --- Feed-forward ---

  struct MlpRoles {
    Role gate, up, down;
    bool taps = false;
  };

  Matrix<T> Mlp(const MlpSpec& mlp, MatrixView<const T> x, const MlpRoles& roles, int expert = -1,
                std::span<const int64_t> positions = {}) {
    Matrix<T> up = Project(roles.up, x, mlp.up_bias, expert, positions);
    if (roles.taps) Put(Tap::kUp, layer_, up);
    if (mlp.gated) {
      Matrix<T> gate = Project(roles.gate, x, mlp.up_bias, expert, positions);
      if (roles.taps) Put(Tap::kGate, layer_, gate);
      GatedActivation<T>(mlp, up, gate);
      up = std::move(gate);
    } else {
      for (T& e : up.data) e = Activate(mlp.activation, e);
    }
    RoundOutput(up);
    if (roles.taps) Put(Tap::kActivation, layer_, up);
    return Project(roles.down, up, mlp.down_bias, expert, positions);
  }

  Matrix<T> FeedForward(const MlpSpec& mlp, const Matrix<T>& x) {
    return Mlp(mlp, x, {Role::kGateProj, Role::kUpProj, Role::kDownProj, true});
  }

  Matrix<T> FeedForward(const MoeSpec& moe, const Matrix<T>& x) {
    Matrix<T> weights = Project(Role::kRouter, x, moe.router.bias);
    Put(Tap::kRouterLogits, layer_, weights);
    Route<T>(moe.router, moe.num_experts_per_tok,
             moe.router.selection_bias ? ReadVector(Role::kRouterSelectionBias, Part::kWeight)
                                       : std::vector<float>{},
             weights);
    Put(Tap::kRouterWeights, layer_, weights);

    // Experts in the order of their number, each over the tokens that chose it.
    Matrix<T> out(count_, Hidden());
    for (size_t e = 0; e < weights.cols; ++e) {
      std::vector<size_t> tokens;
      for (size_t t = 0; t < count_; ++t)
        if (weights.view()(t, e) != T{0}) tokens.push_back(t);
      if (tokens.empty()) continue;
      Matrix<T> in(tokens.size(), Hidden());
      std::vector<int64_t> positions;
      for (const size_t t : tokens) positions.push_back(first_ + static_cast<int64_t>(t));
      for (size_t i = 0; i < tokens.size(); ++i)
        std::copy_n(x.data.begin() + static_cast<std::ptrdiff_t>(tokens[i] * x.cols), x.cols,
                    in.view().row(i).begin());
      Matrix<T> y =
          Mlp(moe.expert, in, {Role::kExpertGateProj, Role::kExpertUpProj, Role::kExpertDownProj},
              static_cast<int>(e), positions);
      for (size_t i = 0; i < tokens.size(); ++i)
        for (size_t c = 0; c < y.cols; ++c)
          out.view()(tokens[i], c) += weights.view()(tokens[i], e) * y.view()(i, c);
    }
    Put(Tap::kExperts, layer_, out);
    if (moe.shared_expert) {
      Matrix<T> shared = Mlp(moe.shared_expert->mlp, x,
                             {Role::kSharedGateProj, Role::kSharedUpProj, Role::kSharedDownProj});
      if (moe.shared_expert->sigmoid_gate) {
        const Matrix<T> gate = Project(Role::kSharedExpertGate, x, false);
        for (size_t t = 0; t < count_; ++t)
          for (T& s : shared.view().row(t)) s *= T{1} / (T{1} + std::exp(-gate.data[t]));
      }
      Put(Tap::kSharedExpert, layer_, shared);
      Add<T>(shared, out);
    }
    return out;
  }

  const ModelSpec& spec_;
  const Weights& weights_;
  ThreadPool& pool_;
  const RunSpec& run_;
  Sequence<T>& sequence_;
  const int64_t call_first_;  // position of the forward pass' first token
  const int64_t first_;       // position of the chunk's first token
  const size_t count_;        // tokens in the chunk
  const int64_t length_;      // positions once the whole call is done: what dynamic RoPE asks
  TapSink<T>* taps_;
  const Rounder<T>* rounder_;
  std::deque<std::pair<const RopeSpec*, RopeTable>> tables_;
  int layer_ = -1;
};

Status CheckCall(const ModelSpec& spec, const RunSpec& run, int64_t held,
                 std::span<const int32_t> ids) {
  if (ids.empty())
    return UsageError("there are no tokens to run; give a prompt of at least one token");
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= spec.embedding.vocab_size)
      return UsageError(
          "token {} of the input has id {}, but the model's vocabulary has ids 0 to {}", i, ids[i],
          spec.embedding.vocab_size - 1);
  const auto total = held + static_cast<int64_t>(ids.size());
  const auto limit = ContextLimit(spec);
  if (limit && run.FirstPosition() + total > *limit) {
    return UsageError(
        "the sequence would have {} tokens ({} held, {} new), but the model {} {} positions; "
        "shorten the "
        "input or generate less",
        total, held, ids.size(),
        spec.embedding.positions ? "has learned only" : "was made for at most", *limit);
  }
  return {};
}

}  // namespace

std::optional<int64_t> ContextLimit(const ModelSpec& spec) {
  if (spec.embedding.positions) return spec.embedding.positions->num_positions;
  if (StretchesWithLength(spec)) return std::nullopt;
  if (spec.max_position_embeddings <= 0) return std::nullopt;
  return spec.max_position_embeddings;
}

template <typename T>
struct Interpreter<T>::Scratch {
  std::vector<T> logits;
};

template <typename T>
Interpreter<T>::Interpreter(const ModelSpec& spec, const Weights& weights, ThreadPool& pool,
                            const RunSpec& run)
    : spec_(spec),
      weights_(weights),
      pool_(pool),
      run_(run),
      scratch_(std::make_unique<Scratch>()) {}

template <typename T>
Interpreter<T>::~Interpreter() = default;

template <typename T>
Sequence<T> Interpreter<T>::NewSequence() const {
  Sequence<T> sequence;
  sequence.layers.resize(spec_.layers.size());
  return sequence;
}

template <typename T>
Result<MatrixView<const T>> Interpreter<T>::Append(Sequence<T>& sequence,
                                                   std::span<const int32_t> ids, LogitsFor wanted,
                                                   TapSink<T>* taps, const Rounder<T>* rounder) {
  LS_RETURN_IF_ERROR(CheckCall(spec_, run_, sequence.length, ids));
  const auto vocab = static_cast<size_t>(spec_.embedding.vocab_size);
  const size_t wanted_rows = wanted == LogitsFor::kAll    ? ids.size()
                             : wanted == LogitsFor::kLast ? 1
                                                          : 0;
  scratch_->logits.assign(wanted_rows * vocab, T{0});
  const MatrixView<T> logits(scratch_->logits.data(), wanted_rows, vocab);
  const auto call_size =
      static_cast<size_t>(run_.chunk_size.value_or(static_cast<int64_t>(ids.size())));
  int64_t call_first = sequence.length, call_end = sequence.length;
  for (size_t begin = 0, count = 0; begin < ids.size(); begin += count) {
    if (sequence.length == call_end) {  // the next forward pass
      call_first = call_end;
      call_end += static_cast<int64_t>(std::min(call_size, ids.size() - begin));
    }
    count = std::min(kChunk, static_cast<size_t>(call_end - sequence.length));
    const bool last = begin + count == ids.size();
    Pass<T> pass(spec_, weights_, pool_, run_, sequence, call_first, sequence.length, count,
                 call_end, taps, rounder);
    Matrix<T> x = pass.Embed(ids.subspan(begin, count));
    for (size_t layer = 0; layer < spec_.layers.size(); ++layer)
      pass.Layer(static_cast<int>(layer), x);
    if (wanted == LogitsFor::kAll)
      pass.Head(x, logits.block(begin, count));
    else if (last || taps != nullptr)
      pass.Head(x, logits.block(0, last ? wanted_rows : 0));
    sequence.length += static_cast<int64_t>(count);
  }
  return MatrixView<const T>(logits);
}

template <typename T>
void Interpreter<T>::Truncate(Sequence<T>& sequence, int64_t length) const {
  LS_CHECK(length >= 0 && length <= sequence.length, "{} of {}", length, sequence.length);
  if (sequence.length == 0) return;
  for (auto& layer : sequence.layers)
    for (std::vector<T>* rows : {&layer.k, &layer.v, &layer.conv})
      rows->resize(rows->size() / static_cast<size_t>(sequence.length) *
                   static_cast<size_t>(length));
  sequence.length = length;
}

template <typename T>
Result<std::vector<T>> Interpreter<T>::RunBatch(std::span<const int32_t> ids,
                                                std::span<const uint8_t> mask, int64_t batch) {
  LS_CHECK(batch > 0 && ids.size() == mask.size() && ids.size() % static_cast<size_t>(batch) == 0,
           "{} ids, {} mask, batch {}", ids.size(), mask.size(), batch);
  const size_t length = ids.size() / static_cast<size_t>(batch);
  const auto vocab = static_cast<size_t>(spec_.embedding.vocab_size);
  std::vector<T> out(ids.size() * vocab, T{0});
  for (size_t b = 0; b < static_cast<size_t>(batch); ++b) {
    std::vector<int32_t> row;
    std::vector<size_t> where;
    for (size_t t = b * length; t < (b + 1) * length; ++t) {
      if (mask[t] == 0) continue;
      row.push_back(ids[t]);
      where.push_back(t);
    }
    if (row.empty()) continue;  // a row of padding only: nothing to compute, and no NaN
    Sequence<T> sequence = NewSequence();
    LS_TRY(const MatrixView<const T> logits, Append(sequence, row, LogitsFor::kAll));
    for (size_t i = 0; i < row.size(); ++i)
      std::ranges::copy(logits.row(i), out.begin() + static_cast<std::ptrdiff_t>(where[i] * vocab));
  }
  return out;
}

template <typename T>
Result<std::vector<T>> Interpreter<T>::Embed(std::span<const int32_t> ids) {
  LS_RETURN_IF_ERROR(CheckCall(spec_, run_, 0, ids));
  Sequence<T> none;
  const auto length = static_cast<int64_t>(ids.size());
  Pass<T> pass(spec_, weights_, pool_, run_, none, 0, 0, ids.size(), length, nullptr, nullptr);
  return std::move(pass.Embed(ids).data);
}

template <typename T>
void Interpreter<T>::RunLayers(int first, MatrixView<T> x, TapSink<T>* taps,
                               const Rounder<T>* rounder, std::optional<int> end) {
  const size_t layers = end ? static_cast<size_t>(*end) : spec_.layers.size();
  Sequence<T> sequence = NewSequence();
  const auto length = static_cast<int64_t>(x.rows);
  for (size_t begin = 0; begin < x.rows; begin += kChunk) {
    const size_t count = std::min(kChunk, x.rows - begin);
    Pass<T> pass(spec_, weights_, pool_, run_, sequence, 0, sequence.length, count, length, taps,
                 rounder);
    Matrix<T> rows(count, x.cols);
    for (size_t t = 0; t < count; ++t)
      std::ranges::copy(x.row(begin + t), rows.view().row(t).begin());
    for (size_t layer = static_cast<size_t>(first); layer < layers; ++layer)
      pass.Layer(static_cast<int>(layer), rows);
    for (size_t t = 0; t < count; ++t)
      std::ranges::copy(rows.view().row(t), x.row(begin + t).begin());
    sequence.length += static_cast<int64_t>(count);
  }
}

template <typename T>
std::vector<T> Interpreter<T>::Head(MatrixView<const T> x, std::span<const int32_t> vocabulary,
                                    const Rounder<T>* rounder, std::span<const int64_t> positions) {
  const size_t cols =
      vocabulary.empty() ? static_cast<size_t>(spec_.embedding.vocab_size) : vocabulary.size();
  Sequence<T> none;
  Pass<T> pass(spec_, weights_, pool_, run_, none, 0, 0, x.rows, 0, nullptr, rounder);
  Matrix<T> rows(x.rows, x.cols), logits(x.rows, cols);
  for (size_t t = 0; t < x.rows; ++t) std::ranges::copy(x.row(t), rows.view().row(t).begin());
  pass.Head(rows, logits, vocabulary, positions);
  return std::move(logits.data);
}

template class Interpreter<float>;
template class Interpreter<double>;

}  // namespace lockstep
