#include <algorithm>

#include "engine/walker.h"
#include "spec/rope_facts.h"

namespace lockstep {

void ProjectionInput::Put(Layout& layout, int64_t rows, int64_t blocks) {
  const int64_t n = rows * blocks;
  layout.Put(f32, n * kBlockColumns);
  layout.Put(codes, n * kBlockColumns);
  layout.Put(facts, n);
  layout.Put(bf16, n * kBlockColumns);
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
  s.scratch = kPanelBytes;
  for (const KvShape& shape : shapes) {
    s.scratch = std::max(s.scratch, AttentionScratchBytes(shape));
    most(s.key_dim, shape.key_dim);
  }
  Reserve(1, 1);
}

void WalkBuffers::Put(Layout& layout, int64_t rows, int64_t head_rows) {
  const Sizes& s = sizes_;
  const int64_t widest =
      std::max({s.input_blocks, s.latent_blocks, s.attended_blocks, s.middle_blocks});
  for (Worker& w : workers) {
    layout.Put(w.kernels, static_cast<int64_t>(s.scratch));
    layout.Put(w.x, s.hidden);
    layout.Put(w.row, widest * kBlockColumns);
    layout.Put(w.pair, rows * 4 * kBlockColumns);
    layout.Put(w.mixed, s.hidden);
    layout.Put(w.key, s.key_dim);
    w.input.Put(layout, 2, s.input_blocks);  // the head takes two
    w.latent.Put(layout, 1, s.latent_blocks);
  }
  const int64_t expert_rows = rows * s.experts_per_token;
  layout.Put(x, rows * s.hidden);
  input.Put(layout, std::max(rows, 2 * head_rows), s.input_blocks);
  latent.Put(layout, rows, s.latent_blocks);
  attended.Put(layout, rows, s.attended_blocks);
  middle.Put(layout, expert_rows, s.middle_blocks);
  layout.Put(wide, rows * s.wide);
  layout.Put(wide2, rows * s.wide2);
  layout.Put(mixer_out, rows * s.mixer_out);
  layout.Put(mlp_out, expert_rows * s.mlp_out);
  if (s.moe) {
    gathered.Put(layout, expert_rows, s.input_blocks);
    layout.Put(shared_out, rows * s.mlp_out);
  }
}

void WalkBuffers::Reserve(int64_t rows, int64_t head_rows) {
  if (rows <= rows_ && head_rows <= head_rows_) return;
  rows = std::max(rows, rows_);
  head_rows = std::max(head_rows, head_rows_);
  rows_ = head_rows_ = 0;  // memory may run out on the way: then nothing counts as there
  block_.reset();
  Layout counted;
  Put(counted, rows, head_rows);
  block_ = AllocateZeroed(counted.size());
  Layout placed(block_.get());
  Put(placed, rows, head_rows);
  for (RotaryTable& table : rotary) table.Reserve(rows);
  if (sizes_.moe) {
    const auto expert_rows = static_cast<size_t>(rows * sizes_.experts_per_token);
    experts.source.resize(expert_rows);
    experts.weight.resize(expert_rows);
    experts.rows.resize(expert_rows);
    experts.count.resize(static_cast<size_t>(rows));
  }
  last_segments.reserve(static_cast<size_t>(head_rows));
  last_rows.reserve(static_cast<size_t>(head_rows));
  rows_ = rows;
  head_rows_ = head_rows;
}

}  // namespace lockstep
