#include <algorithm>

#include "engine/walker.h"
#include "spec/rope_facts.h"

namespace lockstep {

void ProjectionInput::Reserve(int64_t rows, int64_t blocks) {
  const int64_t n = rows * blocks;
  f32.Reserve(n * kBlockColumns);
  codes.Reserve(n * kBlockColumns);
  facts.Reserve(n);
  bf16.Reserve(n * kBlockColumns);
}

WalkBuffers::WalkBuffers(const ExecutionPlan& plan, std::span<const KvShape> shapes, int count)
    : workers(static_cast<size_t>(count)) {
  Sizes& s = sizes_;
  s.hidden = plan.spec->embedding.hidden_size;
  s.input_blocks = BlocksOf(s.hidden);
  const auto most = [](int64_t& size, int64_t other) { size = std::max(size, other); };
  const auto mlp = [&](const MlpPlan& m) {
    most(s.middle_blocks, BlocksOf(m.spec.intermediate_size));
    most(s.mlp_out, WidthOf(m.down));
  };
  for (const LayerPlan& layer : plan.layers) {
    most(s.wide, WidthOf(layer.mixer_in));
    most(s.wide2, WidthOf(layer.mla_q_b));
    most(s.mixer_out, std::max(WidthOf(layer.mixer_out), WidthOf(layer.mla_kv_b)));
    most(s.attended_blocks, layer.mixer_out.group.matrices.front().Blocks());
    for (const Projection* p : {&layer.mla_q_b, &layer.mla_kv_b})
      if (!p->group.matrices.empty()) most(s.latent_blocks, p->group.matrices.front().Blocks());
    most(s.wide, WidthOf(layer.router));
    most(s.wide2, WidthOf(layer.shared_gate));
    if (layer.mlp) mlp(*layer.mlp);
    for (const MlpPlan& expert : layer.experts) mlp(expert);
    if (layer.shared_expert) mlp(*layer.shared_expert);
    if (const auto* moe = std::get_if<MoeSpec>(&layer.spec->mlp)) {
      most(s.experts_per_token, moe->num_experts_per_tok);
      s.moe = true;
    }
    const RopeSpec* rope = FindRope(*layer.spec);
    const bool known = rope == nullptr || std::ranges::any_of(rotary, [&](const RotaryTable& t) {
                         return t.rope() == *rope;
                       });
    if (!known) rotary.emplace_back(*rope);
  }
  size_t scratch = kPanelBytes;
  int64_t key_dim = 0;
  for (const KvShape& shape : shapes) {
    scratch = std::max(scratch, AttentionScratchBytes(shape));
    key_dim = std::max(key_dim, shape.key_dim);
  }
  const int64_t widest =
      std::max({s.input_blocks, s.latent_blocks, s.attended_blocks, s.middle_blocks});
  for (Worker& w : workers) {
    w.kernels.Reserve(static_cast<int64_t>(scratch));
    w.x.Reserve(s.hidden);
    w.row.Reserve(widest * kBlockColumns);
    w.mixed.Reserve(s.hidden);
    w.key.Reserve(key_dim);
    w.input.Reserve(2, s.input_blocks);  // the head takes two
    w.latent.Reserve(1, s.latent_blocks);
  }
}

void WalkBuffers::Reserve(int64_t rows, int64_t head_rows) {
  const Sizes& s = sizes_;
  if (rows <= rows_ && head_rows <= head_rows_) return;
  rows = std::max(rows, rows_);
  head_rows = std::max(head_rows, head_rows_);
  rows_ = head_rows_ = 0;  // memory may run out on the way: then nothing counts as there
  const int64_t expert_rows = rows * s.experts_per_token;
  x.Reserve(rows * s.hidden);
  input.Reserve(std::max(rows, 2 * head_rows), s.input_blocks);
  latent.Reserve(rows, s.latent_blocks);
  attended.Reserve(rows, s.attended_blocks);
  middle.Reserve(expert_rows, s.middle_blocks);
  wide.Reserve(rows * s.wide);
  wide2.Reserve(rows * s.wide2);
  mixer_out.Reserve(rows * s.mixer_out);
  mlp_out.Reserve(expert_rows * s.mlp_out);
  for (RotaryTable& table : rotary) table.Reserve(rows);
  for (Worker& w : workers) w.pair.Reserve(rows * 4 * kBlockColumns);
  if (s.moe) {
    gathered.Reserve(expert_rows, s.input_blocks);
    shared_out.Reserve(rows * s.mlp_out);
    experts.source.resize(static_cast<size_t>(expert_rows));
    experts.weight.resize(static_cast<size_t>(expert_rows));
    experts.rows.resize(static_cast<size_t>(expert_rows));
    experts.count.resize(static_cast<size_t>(rows));
  }
  last_segments.reserve(static_cast<size_t>(head_rows));
  last_rows.reserve(static_cast<size_t>(head_rows));
  rows_ = rows;
  head_rows_ = head_rows;
}

}  // namespace lockstep
