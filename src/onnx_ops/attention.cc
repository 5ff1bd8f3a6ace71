// GroupQueryAttention (com.microsoft): RoPE, the cache and attention in one node.
//
//   query [B, S, Nq*D], or packed [B, S, (Nq + 2Nk)*D]   key, value [B, S, Nk*D]
//   past and present [B, Nk, P, D]   seqlens_k [B]: tokens in the cache after this step, minus 1
//   attention_bias [1|B, 1|Nq, S, total]   head_sink [Nq]
//
// logit = scale * q.k, then softcap, then the bias; key j is visible to the query at p when
// p - window < j <= p. smooth_softmax adds exp(0) to the denominator, head_sink exp(sink). Keys are
// stored rotated. A cache of P rows grows to P + S, or stays when it is a buffer (total <= P), or
// holds the last rows only (sliding_window_cache).
#include "onnx_ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "onnx_ops/rotate.h"

namespace lockstep {
namespace {

// Keys or values of a cache: floats, or int8 codes under scales.
struct Cache {
  std::vector<float> past;     // [B, Nk, P, D], as floats
  std::vector<float> present;  // [B, Nk, present rows, D], as stored: codes when it is int8
  std::vector<float> scales;   // [1] or [Nk * D] (one for all, or for each channel); else empty

  float Scale(int64_t head, int64_t size, int64_t i) const {
    return scales.size() == 1 ? scales[0] : scales[static_cast<size_t>(head * size + i)];
  }
};

class Attention {
 public:
  Attention(const OpCall& call, ThreadPool* pool)
      : call_(call), pool_(pool), n_(AttentionSizesOf(call)), type_(In(call, kQuery)->type) {
    total_ = IntegersOf(*In(call, kTotal))[0];
    window_ = IntOf(call, "local_window_size", -1);
    causal_ = IntOf(call, "causal", 1) != 0;
    softcap_ = FloatOf(call, "softcap", 0);
    scale_ = FloatOf(call, "scale", 0);
    if (scale_ == 0) scale_ = 1.0 / std::sqrt(static_cast<double>(n_.head_size));
    qk_output_ = Wanted(call, 3) ? IntOf(call, "qk_output", 0) : 0;
    present_rows_ = n_.past >= total_ || n_.windowed ? n_.past : total_;
    if (const OpTensor* bias = In(call, kBias)) bias_ = FloatsOf(*bias);
    if (const OpTensor* sink = In(call, kSink)) sink_ = FloatsOf(*sink);
    smooth_ = IntOf(call, "smooth_softmax", 0) != 0;
    seqlens_ = IntegersOf(*In(call, kSeqlens));
    if (const OpTensor* queries = In(call, kQuerySeqlens)) queries_ = IntegersOf(*queries);
    if (const OpTensor* positions = In(call, kPositions)) positions_ = IntegersOf(*positions);
    if (IntOf(call, "do_rotary", 0) != 0)
      rotary_ = RotaryCaches{.cos = FloatsOf(*In(call, kCos)),
                             .sin = FloatsOf(*In(call, kSin)),
                             .half = In(call, kCos)->shape[1],
                             .interleaved = IntOf(call, "rotary_interleaved", 0) != 0};
    keys_ = OpenCache(kPastKey, kKeyScale);
    values_ = OpenCache(kPastValue, kValueScale);
    ReadNew();
    output_.assign(q_.size(), 0.0f);
    if (qk_output_ != 0)
      qk_.assign(static_cast<size_t>(n_.batch * n_.heads * n_.sequence * total_), 0.0f);
  }

  OpResults Run() {
    for (int64_t b = 0; b < n_.batch; ++b) {
      RunBatchEntry(b);
    }
    OpResults results(4);
    if (Wanted(call_, 0))
      results[0] = ValueOf(type_, {n_.batch, n_.sequence, n_.heads * n_.head_size}, output_);
    const Shape present{n_.batch, n_.kv_heads, present_rows_, n_.head_size};
    const OnnxType stored = In(call_, kPastKey) != nullptr ? In(call_, kPastKey)->type : type_;
    if (Wanted(call_, 1)) results[1] = ValueOf(stored, present, keys_.present);
    if (Wanted(call_, 2)) results[2] = ValueOf(stored, present, values_.present);
    if (Wanted(call_, 3))
      results[3] = ValueOf(type_, {n_.batch, n_.heads, n_.sequence, total_}, qk_);
    return results;
  }

 private:
  Cache OpenCache(size_t past, size_t scales) const {
    Cache cache;
    if (const OpTensor* tensor = In(call_, past)) {
      cache.past = FloatsOf(*tensor);
      if (tensor->type == OnnxType::kInt8) cache.scales = FloatsOf(*In(call_, scales));
    }
    cache.present.assign(static_cast<size_t>(n_.batch * n_.kv_heads * present_rows_ * n_.head_size),
                         0.0f);
    return cache;
  }

  // q_ [B, S, Nq, D], new_keys_ and new_values_ [B, S, Nk, D].
  void ReadNew() {
    q_ = FloatsOf(*In(call_, kQuery));
    if (!n_.packed) {
      new_keys_ = FloatsOf(*In(call_, kKey));
      new_values_ = FloatsOf(*In(call_, kValue));
      return;
    }
    const std::vector<float> all = std::move(q_);
    q_.clear();
    const int64_t nq = n_.heads * n_.head_size, nk = n_.kv_heads * n_.head_size;
    for (int64_t row = 0; row < n_.batch * n_.sequence; ++row) {
      const float* at = all.data() + row * (nq + 2 * nk);
      q_.insert(q_.end(), at, at + nq);
      new_keys_.insert(new_keys_.end(), at + nq, at + nq + nk);
      new_values_.insert(new_values_.end(), at + nq + nk, at + nq + 2 * nk);
    }
  }

  // The first new token's position is `past`.
  void RotateNew(int64_t b, int64_t past, int64_t fresh) {
    if (!rotary_) return;
    for (int64_t s = 0; s < fresh; ++s) {
      int64_t position = past + s;
      if (!positions_.empty())
        // Of a first prompt only the first position is read.
        position = past == 0 ? positions_[static_cast<size_t>(b * n_.sequence)] + s
                             : positions_[static_cast<size_t>(b * n_.sequence + s)];
      const int64_t row = b * n_.sequence + s;
      for (int64_t h = 0; h < n_.heads; ++h) RotateHead(q_, row * n_.heads + h, position);
      for (int64_t h = 0; h < n_.kv_heads; ++h)
        RotateHead(new_keys_, row * n_.kv_heads + h, position);
    }
  }
  void RotateHead(std::vector<float>& all, int64_t index, int64_t position) {
    float* head = all.data() + index * n_.head_size;
    Rotate(*rotary_, position, head);
    for (int64_t i = 0; i < 2 * rotary_->half; ++i) head[i] = RoundTo(type_, head[i]);
  }

  // One head's rows as floats, the resident past then the new ones; and what is stored of them.
  // resident: rows before this step; kept: rows after it, the last of all of them.
  std::vector<float> Extend(Cache& cache, const std::vector<float>& fresh_rows, int64_t b,
                            int64_t head, int64_t resident, int64_t fresh, int64_t kept) const {
    const int64_t d = n_.head_size;
    std::vector<float> rows, stored;
    const int64_t plane = b * n_.kv_heads + head;
    for (int64_t r = 0; r < resident + fresh; ++r)
      for (int64_t i = 0; i < d; ++i) {
        float x;
        if (r < resident)
          x = cache.past[static_cast<size_t>((plane * n_.past + r) * d + i)];
        else
          x = fresh_rows[static_cast<size_t>(
              ((b * n_.sequence + r - resident) * n_.kv_heads + head) * d + i)];
        if (cache.scales.empty()) {
          rows.push_back(x);
          stored.push_back(x);
          continue;
        }
        const float scale = cache.Scale(head, d, i);
        const float code =
            r < resident ? x : std::min(127.0f, std::max(-128.0f, std::nearbyint(x / scale)));
        stored.push_back(code);
        rows.push_back(code * scale);
      }
    std::copy(stored.end() - kept * d, stored.end(),
              cache.present.begin() + plane * present_rows_ * d);
    return rows;
  }

  void RunBatchEntry(int64_t b) {
    const int64_t tokens = seqlens_[static_cast<size_t>(b)] + 1;
    const int64_t fresh =
        queries_.empty() ? std::min(n_.sequence, tokens) : queries_[static_cast<size_t>(b)];
    const int64_t past = tokens - fresh;
    const int64_t resident = n_.windowed ? ResidentRows(past, n_.past, window_) : past;
    const int64_t kept = n_.windowed ? ResidentRows(tokens, n_.past, window_) : tokens;
    RotateNew(b, past, fresh);
    for (int64_t h = 0; h < n_.kv_heads; ++h) {
      const auto keys = Extend(keys_, new_keys_, b, h, resident, fresh, kept);
      const auto values = Extend(values_, new_values_, b, h, resident, fresh, kept);
      const int64_t group = n_.heads / n_.kv_heads;
      ForEach(pool_, static_cast<size_t>(group * fresh), [&](size_t i) {
        const auto at = static_cast<int64_t>(i);
        Attend(b, h * group + at / fresh, at % fresh, past, resident, fresh, keys, values);
      });
    }
  }

  // One query: token s of the new ones, at position past + s. Row r of keys is position
  // past - resident + r.
  void Attend(int64_t b, int64_t head, int64_t s, int64_t past, int64_t resident, int64_t fresh,
              const std::vector<float>& keys, const std::vector<float>& values) {
    const int64_t d = n_.head_size, p = past + s, first = past - resident;
    const int64_t end = causal_ ? p + 1 : past + fresh;
    const int64_t begin = std::max(first, window_ > 0 ? p + 1 - window_ : 0);
    const int64_t query = ((b * n_.sequence + s) * n_.heads + head) * d;
    std::vector<double> logits;
    for (int64_t j = begin; j < end; ++j) {
      double z = Dot(q_.data() + query, keys.data() + (j - first) * d, d) * scale_;
      if (softcap_ > 0) z = softcap_ * std::tanh(z / softcap_);
      if (!bias_.empty()) z += BiasOf(b, head, s, j);
      logits.push_back(z);
    }
    double extra = -std::numeric_limits<double>::infinity();
    if (smooth_) extra = 0;
    if (!sink_.empty()) extra = sink_[static_cast<size_t>(head)];
    double most = extra;
    for (const double z : logits) most = std::max(most, z);
    if (qk_output_ == 1) StoreQk(b, head, s, begin, logits);
    double sum = std::isinf(extra) ? 0 : std::exp(extra - most);
    for (double& z : logits) sum += z = std::exp(z - most);
    for (double& z : logits) z /= sum;
    if (qk_output_ == 2) StoreQk(b, head, s, begin, logits);
    for (int64_t i = 0; i < d; ++i) {
      double y = 0;
      for (int64_t j = begin; j < end; ++j)
        y += logits[static_cast<size_t>(j - begin)] *
             values[static_cast<size_t>((j - first) * d + i)];
      output_[static_cast<size_t>(query + i)] = static_cast<float>(y);
    }
  }

  double BiasOf(int64_t b, int64_t head, int64_t s, int64_t j) const {
    const Shape& shape = In(call_, kBias)->shape;
    return bias_[static_cast<size_t>(
        (((b % shape[0]) * shape[1] + head % shape[1]) * shape[2] + s) * shape[3] + j)];
  }
  void StoreQk(int64_t b, int64_t head, int64_t s, int64_t begin, const std::vector<double>& row) {
    const int64_t at = ((b * n_.heads + head) * n_.sequence + s) * total_ + begin;
    for (size_t i = 0; i < row.size(); ++i)
      qk_[static_cast<size_t>(at) + i] = static_cast<float>(row[i]);
  }

  const OpCall& call_;
  ThreadPool* pool_;
  AttentionSizes n_;
  OnnxType type_;
  int64_t total_, window_, qk_output_, present_rows_;
  bool causal_, smooth_;
  double softcap_, scale_;
  std::vector<float> q_, new_keys_, new_values_, bias_, sink_, output_, qk_;
  std::vector<int64_t> seqlens_, queries_, positions_;
  std::optional<RotaryCaches> rotary_;
  Cache keys_, values_;
};

}  // namespace

Result<OpResults> RunGroupQueryAttention(const OpCall& call, const OpOptions& options) {
  return Attention(call, options.pool).Run();
}

}  // namespace lockstep
