#include "engine/walker.h"

namespace lockstep {

const RotaryTable& Walker::Table(const RopeSpec& rope) const {
  for (const RotaryTable& table : b_.rotary)
    if (table.rope() == rope) return table;
  LS_CHECK(false, "a RoPE that the walk did not prepare");
  __builtin_unreachable();
}

void Walker::RotateHead(const RotaryTable& table, RopeLayout layout, int64_t row,
                        float* head) const {
  const float *cos = table.Cos(row), *sin = table.Sin(row);
  if (layout == RopeLayout::kHalf) {
    kernels_.rotate(cos, sin, table.half(), head);
    return;
  }
  for (int64_t i = 0; i < table.half(); ++i) {
    const float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = a * cos[i] - b * sin[i];
    head[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

std::pair<const WalkSegment*, int64_t> Walker::Locate(int64_t row) const {
  const auto after = std::ranges::upper_bound(call_.segments, row, {}, &WalkSegment::row);
  const WalkSegment& segment = *std::prev(after);
  return {&segment, segment.first + row - segment.row};
}

bool Walker::Narrow(float* data, int64_t width) {
  const auto count = static_cast<int64_t>(call_.head_rows.size());
  if (layer_index_ + 1 < plan_.layers.size() || count == rows_) return true;
  if (count == 0) {
    rows_ = 0;
    return false;
  }
  if (count == 1) std::copy_n(b_.x.data() + call_.head_rows[0] * hidden_, hidden_, mine_.x.data());
  if (worker_ == 0) {
    b_.last_segments.clear();
    b_.last_rows.clear();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = call_.head_rows[static_cast<size_t>(i)];
      const auto [segment, position] = Locate(row);
      b_.last_segments.push_back({.sequence = segment->sequence,
                                  .row = i,
                                  .count = 1,
                                  .first = position,
                                  .length = segment->length});
      b_.last_rows.push_back(static_cast<int32_t>(i));
      if (i == row) continue;
      std::copy_n(data + row * width, width, data + i * width);
      if (count > 1) std::copy_n(b_.x.data() + row * hidden_, hidden_, b_.x.data() + i * hidden_);
    }
  }
  Barrier();
  call_.segments = b_.last_segments;
  call_.head_rows = b_.last_rows;
  rows_ = count;
  alone_ = count == 1;
  return true;
}

void Walker::Mix(const AttentionSpec& a) {
  const int64_t q_size = a.num_attention_heads * a.head_dim;
  const int64_t kv_size = a.num_key_value_heads * a.head_dim;
  Project(layer_->mixer_in, Input(), rows_, b_.wide.data());
  Barrier();
  const auto& m = layer_->mixer_in.group.matrices;
  const int64_t width = WidthOf(layer_->mixer_in);
  const int64_t k_at = m[0].Tiles() * kTileRows, v_at = k_at + m[1].Tiles() * kTileRows;
  const KvShape& shape = call_.shapes[layer_index_];
  const RotaryTable* table = a.rope ? &Table(*a.rope) : nullptr;
  const bool per_head = a.qk_norm_scope == QkNormScope::kHead;
  const auto clip = [&](float* x, int64_t n) {
    if (!a.clip_qkv) return;
    const auto most = static_cast<float>(*a.clip_qkv);
    for (int64_t i = 0; i < n; ++i) x[i] = std::clamp(x[i], -most, most);
  };
  const auto turn = [&](int64_t row, int64_t heads, float* x) {
    if (table == nullptr) return;
    for (int64_t h = 0; h < heads; ++h) RotateHead(*table, a.rope->layout, row, x + h * a.head_dim);
  };
  const auto query = [&](int64_t row, float* q) {
    if (layer_->q_norm) Norm(*layer_->q_norm, q, q_size, per_head ? a.head_dim : q_size, q);
    clip(q, q_size);
    turn(row, a.num_attention_heads, q);
  };
  const auto key_and_value = [&](int64_t row, float* k, float* v) {
    if (layer_->k_norm) Norm(*layer_->k_norm, k, kv_size, per_head ? a.head_dim : kv_size, k);
    clip(k, kv_size);
    clip(v, kv_size);
    turn(row, a.num_key_value_heads, k);
    const auto [segment, position] = Locate(row);
    std::byte* page = PageOf(*segment, position);
    for (int64_t h = 0; h < a.num_key_value_heads; ++h)
      kernels_.store_kv(shape, page, h, position % kPageTokens, k + h * a.head_dim,
                        v + h * a.head_dim);
  };
  const auto row_at = [&](int64_t row) { return b_.wide.data() + row * width; };
  if (alone_ && pool_.num_threads() > 1) {
    // The first worker has the query, the last the key and value.
    if (worker_ == 0) query(0, row_at(0));
    if (worker_ == pool_.num_threads() - 1) key_and_value(0, row_at(0) + k_at, row_at(0) + v_at);
  } else {
    const auto [begin, end] = Mine(rows_);
    for (int64_t row = begin; row < end; ++row) {
      query(row, row_at(row));
      key_and_value(row, row_at(row) + k_at, row_at(row) + v_at);
    }
  }
  Barrier();
  if (!Narrow(b_.wide.data(), width)) return;
  Attend({a.num_attention_heads, a.query_scale, a.sliding_window, a.logit_softcap}, b_.wide.data(),
         width);
  Output(q_size);
}

void Walker::Attend(const Heads& heads, const float* q, int64_t q_width) {
  const KvShape& shape = call_.shapes[layer_index_];
  const int64_t group = heads.num / shape.heads;  // queries that share a key
  const int64_t together = std::min(group, kAttentionRows);
  const int64_t parts = (group + together - 1) / together;
  const int64_t block = std::max<int64_t>(1, kAttentionRows / together);
  // Prompts: blocks of neighbouring queries, dealt out in turn, since later ones see more.
  int64_t unit = 0;
  for (const WalkSegment& s : call_.segments) {
    if (s.count == 1) continue;
    for (int64_t token = 0; token < s.count; token += block) {
      for (int64_t part = 0; part < shape.heads * parts; ++part, ++unit) {
        if (unit % pool_.num_threads() != worker_) continue;
        const int64_t first = part / parts * group + part % parts * together;
        AttendBlock(s, heads, q, q_width, token, std::min(block, s.count - token), first,
                    std::min(together, (part / parts + 1) * group - first));
      }
    }
  }
  // Single tokens: every worker a range of the heads of all.
  int64_t single = 0;
  for (const WalkSegment& s : call_.segments) single += s.count == 1 ? 1 : 0;
  const auto [begin, end] = Mine(single * heads.num);
  int64_t head = 0;  // of all sequences together
  for (const WalkSegment& s : call_.segments) {
    if (s.count != 1) continue;
    int64_t from = std::max(begin, head) - head;
    const int64_t to = std::min(end, head + heads.num) - head;
    while (from < to) {
      const int64_t next = std::min({to, (from / group + 1) * group, from + together});
      AttendBlock(s, heads, q, q_width, 0, 1, from, next - from);
      from = next;
    }
    head += heads.num;
  }
}

void Walker::AttendBlock(const WalkSegment& s, const Heads& heads, const float* q, int64_t q_width,
                         int64_t token, int64_t tokens, int64_t first_head, int64_t num_heads) {
  const KvShape& shape = call_.shapes[layer_index_];
  const int64_t columns = PaddedColumns(heads.num * shape.value_dim);
  const int64_t row = s.row + token, at = first_head * shape.value_dim;
  const double scale = Round(heads.scale.value, heads.scale.rounding);
  float* out = b_.attended.f32.data() + row * columns + at;
  kernels_.attention({
      .shape = shape,
      .pages = s.sequence->Pages(layer_index_),
      .kv_head = first_head / (heads.num / shape.heads),
      .first = s.first + token,
      .queries = tokens,
      .heads = num_heads,
      .q = q + row * q_width + first_head * shape.key_dim,
      .q_token_stride = q_width,
      .q_head_stride = shape.key_dim,
      .scale = static_cast<float>(heads.scale.divide ? 1 / scale : scale),
      .window = std::min(heads.window.value_or(0), kLongestWindow),
      .softcap = static_cast<float>(heads.softcap.value_or(0)),
      .sinks = layer_->sinks.empty() ? nullptr : layer_->sinks.data() + first_head,
      .out = out,
      .out_token_stride = columns,
      .out_head_stride = shape.value_dim,
      .scratch = mine_.kernels.data(),
  });
  const Form form = FormOf(layer_->mixer_out);
  if (shape.value_dim % kBlockColumns != 0 || !(form.codes || form.bf16)) return;
  // Whole blocks: their codes while they are warm.
  const int64_t n = num_heads * shape.value_dim, blocks = columns / kBlockColumns;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t block = (row + t) * blocks + at / kBlockColumns;
    if (form.bf16)
      kernels_.round_to_bf16(out + t * columns, n, b_.attended.bf16.data() + block * kBlockColumns);
    if (!form.codes) continue;
    kernels_.quantize(out + t * columns, n, b_.attended.codes.data() + block * kBlockColumns,
                      b_.attended.facts.data() + block);
  }
}

void Walker::Output(int64_t columns) {
  Barrier();
  const bool whole = !std::holds_alternative<ShortConvSpec>(layer_->spec->mixer) &&
                     call_.shapes[layer_index_].value_dim % kBlockColumns == 0;
  if (const Form form = FormOf(layer_->mixer_out); !whole) {
    const auto [begin, end] = Mine(rows_);
    for (int64_t row = begin; row < end; ++row)
      Finish(b_.attended, row, columns, {form.codes, form.bf16, true});
    Barrier();
  }
  Project(layer_->mixer_out, b_.attended, rows_, b_.mixer_out.data());
}

void Walker::Mix(const MlaSpec& a) {
  const int64_t heads = a.num_attention_heads, nope = a.qk_nope_head_dim, rope = a.qk_rope_head_dim,
                v_dim = a.v_head_dim, latent = a.kv_lora_rank, key_dim = nope + rope;
  Project(layer_->mixer_in, Input(), rows_, b_.wide.data());
  Barrier();
  const int64_t width = WidthOf(layer_->mixer_in);
  const int64_t kv_at = layer_->mixer_in.group.matrices[0].Tiles() * kTileRows;
  float* q = b_.wide.data();
  int64_t q_width = width;
  if (a.q_lora_rank) {
    Prepare(Latent(), *a.q_lora_rank, FormOf(layer_->mla_q_b), [&](int64_t row, float* to) {
      Norm(*layer_->q_norm, b_.wide.data() + row * width, *a.q_lora_rank, *a.q_lora_rank, to);
    });
    SyncRows();
    Project(layer_->mla_q_b, Latent(), rows_, b_.wide2.data());
    Barrier();
    q = b_.wide2.data();
    q_width = WidthOf(layer_->mla_q_b);
  }
  Prepare(Latent(), latent, FormOf(layer_->mla_kv_b), [&](int64_t row, float* to) {
    Norm(*layer_->k_norm, b_.wide.data() + row * width + kv_at, latent, latent, to);
  });
  SyncRows();
  Project(layer_->mla_kv_b, Latent(), rows_, b_.mixer_out.data());
  Barrier();
  const int64_t expanded = WidthOf(layer_->mla_kv_b);
  const RotaryTable& table = Table(a.rope);
  const KvShape& shape = call_.shapes[layer_index_];
  const auto [begin, end] = Mine(rows_);
  for (int64_t row = begin; row < end; ++row) {
    float* shared_rope = b_.wide.data() + row * width + kv_at + latent;
    RotateHead(table, a.rope.layout, row, shared_rope);
    const auto [segment, position] = Locate(row);
    std::byte* page = PageOf(*segment, position);
    float* key = mine_.key.data();
    for (int64_t h = 0; h < heads; ++h) {
      RotateHead(table, a.rope.layout, row, q + row * q_width + h * key_dim + nope);
      const float* kv = b_.mixer_out.data() + row * expanded + h * (nope + v_dim);
      std::copy_n(kv, nope, key);
      std::copy_n(shared_rope, rope, key + nope);
      kernels_.store_kv(shape, page, h, position % kPageTokens, key, kv + nope);
    }
  }
  Barrier();
  if (!Narrow(q, q_width)) return;
  Attend({heads, a.query_scale, std::nullopt, std::nullopt}, q, q_width);
  Output(heads * v_dim);
}

void Walker::Mix(const ShortConvSpec& c) {
  Project(layer_->mixer_in, Input(), rows_, b_.wide.data());
  Barrier();
  const int64_t width = WidthOf(layer_->mixer_in), padded = PaddedColumns(hidden_);
  const auto state = [&](const WalkSegment& segment, int64_t position) {
    return reinterpret_cast<float*>(PageOf(segment, position)) + position % kPageTokens * hidden_;
  };
  {
    const auto [begin, end] = Mine(rows_);
    for (int64_t row = begin; row < end; ++row) {
      const float* in = b_.wide.data() + row * width;
      const auto [segment, position] = Locate(row);
      float* to = state(*segment, position);
      for (int64_t i = 0; i < hidden_; ++i) to[i] = in[i] * in[2 * hidden_ + i];
    }
  }
  Barrier();
  if (!Narrow(b_.wide.data(), width)) return;
  const auto [begin, end] = Mine(rows_);
  for (int64_t row = begin; row < end; ++row) {
    const auto [segment, position] = Locate(row);
    const float* gate = b_.wide.data() + row * width + hidden_;
    float* out = b_.attended.f32.data() + row * padded;
    std::fill_n(out, hidden_, 0.0f);
    for (int64_t j = 0; j < c.kernel_size; ++j) {
      const int64_t at = position - (c.kernel_size - 1 - j);
      if (at < 0) continue;
      const float* in = state(*segment, at);
      for (int64_t i = 0; i < hidden_; ++i)
        out[i] += layer_->conv[static_cast<size_t>(i * c.kernel_size + j)] * in[i];
    }
    for (int64_t i = 0; i < hidden_; ++i)
      out[i] = (out[i] + layer_->conv_bias[static_cast<size_t>(i)]) * gate[i];
  }
  Output(hidden_);
}

}  // namespace lockstep
