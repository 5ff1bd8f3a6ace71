// What single operators say: attention with its window, and the experts of MoE and QMoE.
#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

#include "audit/walk.h"
#include "formats/ort_int8.h"

namespace lockstep {
namespace {

bool Is(const Graph& g, int node, std::string_view op) { return g.node(node).op == op; }

// A window in a mask: query - key < W, in any of its spellings, among what makes the mask.
struct MaskWindow {
  int64_t window;
  int constant;
};
std::optional<MaskWindow> WindowInMask(const Graph& g, int mask) {
  std::deque<int> values = {mask};
  std::set<int> seen;
  while (!values.empty() && seen.size() < 400) {
    const int p = g.Producer(values.front());
    values.pop_front();
    if (p < 0 || !seen.insert(p).second) continue;
    const auto& node = g.node(p);
    const bool less = node.op == "Less" || node.op == "LessOrEqual";
    const bool greater = node.op == "Greater" || node.op == "GreaterOrEqual";
    if (less || greater) {
      const auto number = g.Integers(node.In(1));
      const int sub = g.Producer(node.In(0));
      constexpr int64_t kMost = int64_t{1} << 40;
      if (number.size() == 1 && std::abs(std::clamp(number[0], -kMost, kMost)) < kMost &&
          sub >= 0 && Is(g, sub, "Sub")) {
        const bool equal = node.op.ends_with("OrEqual");
        // Sub(q, k) < W keeps W keys; Sub(k, q) > -W is the same.
        if (less && number[0] > 0) return MaskWindow{number[0] + (equal ? 1 : 0), node.In(1)};
        if (greater && number[0] < 0) return MaskWindow{-number[0] + (equal ? 1 : 0), node.In(1)};
      }
    }
    for (const int in : node.in)
      if (in != kNoValue) values.push_back(in);
  }
  return std::nullopt;
}

}  // namespace

namespace {

// softmax(q k^T * scale + mask) v of elementary operators, around its Softmax.
struct Elementary {
  int scores = -1, mix = -1;  // the two products
  FoundAttention facts;
};

std::optional<Elementary> ElementaryAt(const Graph& g, int softmax) {
  if (!Is(g, softmax, "Softmax")) return std::nullopt;
  Elementary out;
  const auto product = [&](int n) {
    return Is(g, n, "MatMul") && !g.Constant(g.node(n).In(0)) && !g.Constant(g.node(n).In(1));
  };
  // Forward: what is between may drop a column (a sink's) or change the type.
  int value = g.node(softmax).Out(0);
  for (int hops = 0; hops < 8 && out.mix < 0; ++hops) {
    int next = kNoValue;
    for (const int c : g.Consumers(value)) {
      const auto& node = g.node(c);
      if (product(c) && node.In(0) == value) {
        out.mix = c;
        out.facts.nodes.push_back(c);
      }
      if (node.op == "Slice" || node.op == "Cast" || node.op == "Dropout") next = node.Out(0);
    }
    if (next == kNoValue) break;
    value = next;
  }
  if (out.mix < 0) return std::nullopt;
  FoundAttention& facts = out.facts;
  facts.node = softmax;
  facts.elementary = true;
  facts.window_read = true;
  facts.scale = 1;
  value = g.node(softmax).In(0);
  for (int hops = 0; hops < 16; ++hops) {
    const int p = g.Producer(value);
    if (p < 0) return std::nullopt;
    const auto& node = g.node(p);
    facts.nodes.push_back(p);
    if (product(p)) {
      out.scores = p;
      return out;
    }
    value = node.In(0);
    if (node.op == "Mul" || node.op == "Div") {
      const size_t side = g.Scalar(node.In(1)) ? 1 : 0;
      const auto scale = g.Scalar(node.In(side));
      if (!scale) return std::nullopt;
      facts.scale *= node.op == "Mul" ? *scale : 1 / *scale;
      if (node.op == "Mul") {
        facts.scale_constant = node.In(side);
        facts.scale_node = p;
      }
      value = node.In(1 - side);
    } else if (node.op == "Add") {
      facts.mask = node.In(1);
      facts.mask_node = p;
      facts.mask_slot = 1;
      if (const auto window = WindowInMask(g, facts.mask)) {
        facts.window = window->window;
        facts.window_constant = window->constant;
      }
    } else if (node.op == "Concat") {
      // A learned score beside those of the keys.
      int sink = node.In(1);
      for (int back = 0; back < 8 && !facts.sinks; ++back) {
        facts.sinks = g.Constant(sink);
        const int from = g.Producer(sink);
        if (facts.sinks || from < 0) break;
        sink = g.node(from).In(0);
      }
      if (facts.sinks) {
        facts.sinks->shape = {facts.sinks->elements()};
        facts.sinks->strides = {1};
      }
    } else if (node.op != "Sub" && node.op != "Cast" && node.op != "Identity") {
      return std::nullopt;  // a soft cap, or something new
    }
  }
  return std::nullopt;
}

}  // namespace

AttentionPorts PortsOf(const Graph& g, int n) {
  if (const auto parts = ElementaryAt(g, n)) {
    const auto &scores = g.node(parts->scores), &mix = g.node(parts->mix);
    return {scores.In(0), scores.In(1), mix.In(1), mix.Out(0)};
  }
  const auto& node = g.node(n);
  return {node.In(0), node.In(1), node.In(2), node.Out(0)};
}

bool IsAttention(const Graph& g, int node) {
  const std::string_view op = g.node(node).op;
  if (op == "Softmax") return ElementaryAt(g, node).has_value();
  return op == "GroupQueryAttention" || op == "Attention" || op == "MultiHeadAttention" ||
         op == "PagedAttention";
}

bool IsShortConv(const Graph& g, int node) {
  if (Is(g, node, "CausalConvWithState")) return true;
  return Is(g, node, "Conv") && g.Int(node, "group", 1) > 1;
}

bool AttentionHas(std::string_view op, bool microsoft, std::string_view attribute) {
  struct Row {
    std::string_view op;
    bool microsoft, scale, softcap;
  };
  static constexpr Row kRows[] = {
      {.op = "Attention", .microsoft = false, .scale = true, .softcap = true},
      {.op = "Attention", .microsoft = true, .scale = true, .softcap = false},
      {.op = "GroupQueryAttention", .microsoft = true, .scale = true, .softcap = true},
      {.op = "MultiHeadAttention", .microsoft = true, .scale = true, .softcap = false},
      {.op = "PagedAttention", .microsoft = true, .scale = true, .softcap = true},
  };
  for (const Row& row : kRows)
    if (row.op == op && row.microsoft == microsoft)
      return attribute == "scale" ? row.scale : attribute == "softcap" && row.softcap;
  return false;
}

FoundAttention AttentionAt(const Graph& g, int n) {
  if (const auto parts = ElementaryAt(g, n)) return parts->facts;
  const auto& node = g.node(n);
  FoundAttention out{.node = n};
  out.mask_node = n;
  out.gqa = node.op == "GroupQueryAttention";
  out.num_heads = g.Int(n, out.gqa || node.microsoft ? "num_heads" : "q_num_heads", 0);
  out.num_key_value_heads = g.Int(n, "kv_num_heads", out.num_heads);
  out.scale = g.Float(n, "scale", 0);
  if (const double cap = g.Float(n, "softcap", 0); cap > 0) out.softcap = cap;
  if (out.gqa) {
    out.window_read = true;
    out.sinks = g.Constant(node.In(11));
    if (const int64_t window = g.Int(n, "local_window_size", -1); window >= 0) out.window = window;
    if (g.Int(n, "do_rotary", 0) != 0) {
      FoundRope rope{.node = n, .interleaved_attribute = "rotary_interleaved"};
      rope.interleaved = g.Int(n, "rotary_interleaved", 0) != 0;
      rope.cos = g.Constant(node.In(7));
      rope.sin = g.Constant(node.In(8));
      rope.long_row = LongRowOf(g, node.In(9));
      out.rope = rope;
      out.rope_read = true;
    }
    return out;
  }
  out.mask_slot = node.microsoft ? 5 : 3;
  out.mask = node.In(out.mask_slot);
  out.window_read = true;
  if (const auto window = WindowInMask(g, out.mask)) {
    out.window = window->window;
    out.window_constant = window->constant;
  }
  return out;
}

namespace {

// Expert `e` of a stored [experts, rows, columns].
std::optional<FoundMatrix> Expert(const Graph& g, int node, size_t weight, size_t scales,
                                  size_t zeros, size_t bias, bool quantized, int64_t experts,
                                  int64_t e, int64_t columns) {
  const auto& n = g.node(node);
  const auto& view = g.Constant(n.In(weight));
  if (!view || view->shape.size() != 3 || view->shape[0] != experts || columns < 1)
    return std::nullopt;
  FoundMatrix out{.node = node};
  const int64_t rows = view->shape[1];
  out.matrix.rows = rows;
  if (!quantized) {
    // The operator reads [E, N, K] as it lies, whatever the last two say of each other.
    out.matrix.cols = view->shape[2];
    out.matrix.values = *view;
    out.matrix.values.shape = {rows, view->shape[2]};
    out.matrix.values.strides = {view->strides[1], view->strides[2]};
    out.matrix.values.offset += e * view->strides[0];
  } else {
    const auto& scale = g.Constant(n.In(scales));
    if (!scale) return std::nullopt;
    out.matrix.cols = columns;
    out.matrix.values.tensor = view->tensor;
    BlockCodes& b = out.matrix.codes.emplace();
    const int64_t bits = g.Int(node, "expert_weight_bits", 4);
    if (bits < 1 || bits > 8) return std::nullopt;
    b.bits = static_cast<int>(bits);
    const int64_t block = g.Int(node, "block_size", 0);
    b.block = block > 0 ? block : columns;
    b.blocks = 1 + (columns - 1) / b.block;
    b.row_bits = view->shape[2] * 8;
    b.scales = scale->tensor;
    // As many codes and scales as the sizes ask for, or the operator cannot run.
    if (columns > b.row_bits / b.bits ||
        b.blocks > scale->elements() / std::max<int64_t>(1, experts * rows))
      return std::nullopt;
    b.zero = static_cast<float>(1 << (b.bits - 1));
    if (const auto& zero = g.Constant(n.In(zeros))) {
      b.zeros = zero->tensor;
      b.zeros_along_rows = block <= 0;
    }
    out.matrix.expert_rows = rows;
    out.matrix.first_row = e * rows;
    if (QMoeRoundsInput({.bits = b.bits,
                         .block = block,
                         .columns = columns,
                         .accuracy_level = g.Int(node, "accuracy_level", 0)}))
      out.int8_block = block;
  }
  if (auto vector = g.Constant(n.In(bias)); vector && vector->elements() == experts * rows) {
    vector->offset += e * rows;
    vector->shape = {rows};
    vector->strides = {1};
    out.bias = vector;
  }
  return out;
}

}  // namespace

std::vector<ExpertPart> ExpertsOf(const Graph& g, int node, int64_t experts) {
  std::vector<ExpertPart> parts;
  const bool quantized = Is(g, node, "QMoE");
  const auto& n = g.node(node);
  const auto dims = [&](size_t slot) {
    const auto& view = g.Constant(n.In(slot));
    return view && view->shape.size() == 3 ? view->shape : std::vector<int64_t>(3, 0);
  };
  const size_t first = 2, second = quantized ? 5 : 4, third = quantized ? 8 : 6;
  const int64_t per_byte =
      quantized ? 8 / std::clamp<int64_t>(g.Int(node, "expert_weight_bits", 4), 1, 8) : 1;
  const int64_t hidden = dims(second)[1];
  const int64_t inter = dims(second)[2] * per_byte;
  const int64_t fusion = g.Int(node, "swiglu_fusion", 0);
  const bool gated = fusion != 0 || dims(first)[1] == 2 * inter;
  for (int64_t e = 0; e < experts; ++e) {
    const auto expert = static_cast<int32_t>(e);
    const auto get = [&](size_t slot, size_t zeros, int64_t columns) {
      return quantized ? Expert(g, node, slot, slot + 1, zeros, slot + 2, true, experts, e, columns)
                       : Expert(g, node, slot, 0, 0, slot + 1, false, experts, e, columns);
    };
    if (const auto one = get(first, 11, hidden)) {
      const int64_t half = one->matrix.rows / 2;
      if (gated) {
        const bool interleaved = fusion != 2;
        parts.push_back({Role::kExpertGateProj, expert,
                         interleaved ? SliceRows(*one, 0, half, 2) : SliceRows(*one, 0, half)});
        parts.push_back({Role::kExpertUpProj, expert,
                         interleaved ? SliceRows(*one, 1, half, 2) : SliceRows(*one, half, half)});
      } else {
        const bool third_there = dims(third)[0] == experts;
        parts.push_back({third_there ? Role::kExpertGateProj : Role::kExpertUpProj, expert, *one});
      }
    }
    if (const auto two = get(second, 12, inter))
      parts.push_back({Role::kExpertDownProj, expert, *two});
    if (!gated)
      if (const auto three = get(third, 13, hidden))
        parts.push_back({Role::kExpertUpProj, expert, *three});
  }
  return parts;
}

}  // namespace lockstep
