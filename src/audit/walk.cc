#include "audit/walk.h"

#include <algorithm>
#include <cmath>
#include <deque>

namespace lockstep {
namespace {

constexpr size_t kMaxVisited = 400;  // nodes that one search looks at
constexpr int kMaxHops = 40;

bool OneOf(std::string_view op, std::initializer_list<std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

bool IsSkipNorm(std::string_view op) {
  return op == "SkipSimplifiedLayerNormalization" || op == "SkipLayerNormalization";
}

// A vector that is added to every row.
std::optional<ConstantView> VectorOf(const Graph& g, int value, int64_t size) {
  auto view = g.Constant(value);
  if (!view || view->elements() != size || size < 2) return std::nullopt;
  ConstantView out = *view;
  out.shape = {size};
  out.strides = {1};
  for (size_t i = 0; i < view->shape.size(); ++i)
    if (view->shape[i] == size) out.strides = {view->strides[i]};
  return out;
}

ConstantView Slice(ConstantView vector, int64_t first, int64_t count, int64_t step) {
  vector.offset += first * vector.strides[0];
  vector.strides[0] *= step;
  vector.shape = {count};
  return vector;
}

}  // namespace

int64_t LongRowOf(const Graph& g, int rows) {
  const Walk walk(g);
  const int add = g.Producer(walk.SkipShape(rows));
  if (add < 0 || g.node(add).op != "Add") return 0;
  for (const int term : g.node(add).in)
    if (const int mul = g.Producer(walk.SkipShape(term)); mul >= 0 && g.node(mul).op == "Mul")
      for (const int factor : g.node(mul).in)
        if (const auto row = g.Integers(factor); row.size() == 1) return row[0];
  return 0;
}

FoundMatrix SliceRows(const FoundMatrix& matrix, int64_t first, int64_t count, int64_t step) {
  FoundMatrix part = matrix;
  part.matrix = matrix.matrix.Rows(first, count, step);
  if (matrix.bias) part.bias = Slice(*matrix.bias, first, count, step);
  return part;
}

bool Walk::IsShapeOnly(int node) const {
  // Zeros behind a head's numbers, so that it has the size of a cache.
  if (g_.node(node).op == "Pad") return g_.node(node).In(2) == kNoValue && !g_.Has(node, "mode");
  return OneOf(g_.node(node).op, {"Reshape", "Transpose", "Cast", "CastLike", "Identity",
                                  "Unsqueeze", "Squeeze", "Flatten", "Expand", "Tile", "Dropout"});
}

bool Walk::IsMover(int node) const {
  return IsShapeOnly(node) ||
         OneOf(g_.node(node).op, {"Slice", "Gather", "GatherND", "GatherElements", "Split",
                                  "Concat", "Shape", "Size"});
}

std::set<int> Walk::Between(const std::vector<int>& from, int to) const {
  std::set<int> ahead(from.begin(), from.end()), both;
  std::vector<int> open = from;
  while (!open.empty()) {
    const int n = open.back();
    open.pop_back();
    if (n == to) continue;
    for (const int out : g_.node(n).out)
      for (const int c : g_.Consumers(out))
        if (ahead.insert(c).second) open.push_back(c);
  }
  if (!ahead.contains(to)) return both;
  both.insert(to);
  open = {to};
  while (!open.empty()) {
    const int n = open.back();
    open.pop_back();
    for (const int in : g_.node(n).in)
      if (const int p = g_.Producer(in); p >= 0 && ahead.contains(p) && both.insert(p).second)
        open.push_back(p);
  }
  return both;
}

bool Walk::IsTokenInput(int value) const {
  const OnnxValueInfo* info = g_.model().Input(g_.Name(value));
  if (info == nullptr) return false;
  return (info->type == OnnxType::kInt64 || info->type == OnnxType::kInt32) && info->dims &&
         info->dims->size() == 2;
}

int Walk::SkipShape(int value) const {
  for (int hops = 0; hops < kMaxHops; ++hops) {
    const int p = g_.Producer(value);
    if (p < 0 || !IsShapeOnly(p)) break;
    value = g_.node(p).In(0);
  }
  return value;
}

int Walk::SkipPruning(int value) const {
  for (int hops = 0; hops < kMaxHops; ++hops) {
    const int p = g_.Producer(value);
    if (p < 0 || !(IsShapeOnly(p) || OneOf(g_.node(p).op, {"Slice", "Gather", "GatherND"}))) break;
    value = g_.node(p).In(0);
  }
  return value;
}

std::vector<int> Walk::Users(int value) const {
  std::vector<int> out;
  std::deque<int> values = {value};
  for (size_t visited = 0; !values.empty() && visited < kMaxVisited; ++visited) {
    const int v = values.front();
    values.pop_front();
    for (const int c : g_.Consumers(v)) {
      if (IsShapeOnly(c) && g_.node(c).In(0) == v)
        values.push_back(g_.node(c).Out(0));
      else
        out.push_back(c);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::optional<FoundNorm> Walk::NormAt(int n) const {
  const auto& node = g_.node(n);
  FoundNorm norm{.node = n};
  if (OneOf(node.op, {"SimplifiedLayerNormalization", "RMSNormalization", "LayerNormalization"})) {
    norm.kind = node.op == "LayerNormalization" ? NormKind::kLayer : NormKind::kRms;
    norm.eps = g_.Float(n, "epsilon", 1e-5);
    norm.input = node.In(0);
    norm.weight = g_.Constant(node.In(1));
    if (norm.kind == NormKind::kLayer) norm.bias = g_.Constant(node.In(2));
    return norm;
  }
  if (!IsSkipNorm(node.op)) return std::nullopt;
  norm.kind = node.op == "SkipLayerNormalization" ? NormKind::kLayer : NormKind::kRms;
  norm.eps = g_.Float(n, "epsilon", 1e-12);
  norm.input = node.Out(3);
  norm.weight = g_.Constant(node.In(2));
  if (norm.kind == NormKind::kLayer) norm.bias = g_.Constant(node.In(3));
  return norm;
}

std::optional<FoundNorm> Walk::NormMaking(int value) const {
  const int p = g_.Producer(value);
  if (p < 0 || g_.node(p).Out(0) != value) return std::nullopt;
  return NormAt(p);
}

int Walk::AddBias(FoundMatrix& matrix) const {
  const int made = g_.node(matrix.node).Out(0);
  int out = made;  // behind what keeps the order of its elements
  for (int hops = 0; hops < kMaxHops && g_.Consumers(out).size() == 1; ++hops) {
    const auto& node = g_.node(g_.Consumers(out)[0]);
    if (!OneOf(node.op, {"Reshape", "Cast", "Squeeze", "Unsqueeze", "Flatten", "Dropout"})) break;
    if (node.In(0) != out) break;
    out = node.Out(0);
  }
  for (const int c : g_.Consumers(out)) {
    const auto& node = g_.node(c);
    if (node.op == "Add" && g_.Consumers(out).size() == 1) {
      const int other = node.In(0) == out ? node.In(1) : node.In(0);
      if (const auto bias = VectorOf(g_, other, matrix.matrix.rows)) {
        matrix.bias = bias;
        matrix.bias_node = c;
        return node.Out(0);
      }
    }
    if (OneOf(node.op, {"BiasGelu", "FastGelu"}) && node.In(0) == out)
      if (const auto bias = VectorOf(g_, node.In(1), matrix.matrix.rows)) matrix.bias = bias;
    if (IsSkipNorm(node.op)) {
      const size_t slot = node.op == "SkipLayerNormalization" ? 4 : 3;
      if (const auto bias = VectorOf(g_, node.In(slot), matrix.matrix.rows)) matrix.bias = bias;
    }
  }
  return made;
}

int Walk::LinearBehind(int value) const {
  std::deque<int> values = {value};
  std::set<int> seen;
  while (!values.empty() && seen.size() < kMaxVisited) {
    const int p = g_.Producer(values.front());
    values.pop_front();
    if (p < 0 || !seen.insert(p).second) continue;
    if (g_.node(p).op != "Gather" && MatrixOf(g_, p)) return p;
    if (NormAt(p) || OneOf(g_.node(p).op, {"Shape", "Gather"})) continue;
    for (const int in : g_.node(p).in)
      if (in != kNoValue) values.push_back(in);
  }
  return -1;
}

int Walk::LinearAhead(int value) const {
  std::deque<int> values = {value};
  std::set<int> seen;
  while (!values.empty() && seen.size() < kMaxVisited) {
    const int v = values.front();
    values.pop_front();
    for (const int c : g_.Consumers(v)) {
      if (!seen.insert(c).second) continue;
      if (MatrixOf(g_, c) && g_.node(c).In(0) == v) return c;
      if (NormAt(c) || g_.node(c).op == "Shape") continue;
      for (const int out : g_.node(c).out)
        if (out != kNoValue) values.push_back(out);
    }
  }
  return -1;
}

std::optional<int> Walk::OperatorAhead(int value, std::string_view op) const {
  std::deque<int> values = {value};
  std::set<int> seen;
  while (!values.empty() && seen.size() < kMaxVisited) {
    const int v = values.front();
    values.pop_front();
    for (const int c : g_.Consumers(v)) {
      if (!seen.insert(c).second) continue;
      if (g_.node(c).op == op) return c;
      if (NormAt(c) || MatrixOf(g_, c) || OneOf(g_.node(c).op, {"Shape", "MoE", "QMoE"})) continue;
      for (const int out : g_.node(c).out)
        if (out != kNoValue) values.push_back(out);
    }
  }
  return std::nullopt;
}

PathBack Walk::Back(int value) const {
  PathBack trace;
  int64_t first = 0, count = -1;
  std::optional<ConstantView> bias;
  int bias_node = -1;
  constexpr int64_t kMost = int64_t{1} << 40;
  for (int hops = 0; hops < kMaxHops; ++hops) {
    const int p = g_.Producer(value);
    if (p < 0) return trace;
    const auto& node = g_.node(p);
    if (auto matrix = MatrixOf(g_, p); matrix && node.op != "Gather") {
      const int64_t rows = matrix->matrix.rows;
      if (bias && bias->elements() == rows) {
        matrix->bias = bias;
        matrix->bias_node = bias_node;
        bias.reset();
      }
      trace.input = node.In(0);
      if (count >= 0 && first <= rows && count <= rows - first)
        matrix = SliceRows(*matrix, first, count);
      if (bias && bias->elements() == matrix->matrix.rows) {
        matrix->bias = bias;
        matrix->bias_node = bias_node;
      }
      trace.linear = matrix;
      return trace;
    }
    if (const auto norm = NormAt(p)) {
      if (trace.norm || IsSkipNorm(node.op)) return trace;
      trace.norm = norm;
      bias.reset();  // what is added behind a norm is no bias of the matrix before it
      value = norm->input;
    } else if (IsShapeOnly(p)) {
      value = node.In(0);
    } else if (node.op == "RotaryEmbedding") {
      FoundRope rope{.node = p, .interleaved_attribute = "interleaved"};
      rope.interleaved = g_.Int(p, "interleaved", 0) != 0;
      rope.rotary_dim = g_.Int(p, "rotary_embedding_dim", 0);
      if (node.microsoft) rope.long_row = LongRowOf(g_, node.In(1));
      const size_t cos_slot = node.microsoft ? 2 : 1;
      const auto table = [&](int from) -> std::optional<ConstantView> {
        if (auto constant = g_.Constant(from)) return constant;
        const int gather = g_.Producer(SkipShape(from));
        if (gather < 0 || g_.node(gather).op != "Gather") return std::nullopt;
        rope.long_row = LongRowOf(g_, g_.node(gather).In(1));
        return g_.Constant(g_.node(gather).In(0));
      };
      rope.cos = table(node.In(cos_slot));
      rope.sin = table(node.In(cos_slot + 1));
      trace.rope = rope;
      trace.nodes.push_back(p);
      bias.reset();
      value = node.In(0);
    } else if (node.op == "Split") {
      std::vector<int64_t> sizes = g_.Ints(p, "split");
      if (sizes.empty()) sizes = g_.Integers(node.In(1));
      if (sizes.size() != node.out.size()) return trace;
      for (const int64_t size : sizes)
        if (size < 0 || size > kMost) return trace;
      int64_t before = 0;
      for (size_t i = 0; i < sizes.size() && node.out[i] != value; ++i) before += sizes[i];
      const auto mine = std::find(node.out.begin(), node.out.end(), value) - node.out.begin();
      first += before;
      if (count < 0) count = sizes[static_cast<size_t>(mine)];
      value = node.In(0);
    } else if (node.op == "Slice") {
      const auto begin = g_.Integers(node.In(1)), end = g_.Integers(node.In(2));
      if (begin.size() != 1 || end.size() != 1 || begin[0] < 0 || begin[0] > kMost) return trace;
      first += begin[0];
      if (count < 0 && end[0] > begin[0] && end[0] < (int64_t{1} << 40)) count = end[0] - begin[0];
      value = node.In(0);
    } else if (node.op == "Add") {
      const size_t side = g_.Constant(node.In(1)) ? 1 : 0;
      const auto view = g_.Constant(node.In(side));
      if (!view) return trace;
      bias = VectorOf(g_, node.In(side), view->elements());
      bias_node = p;
      value = node.In(1 - side);
    } else if (node.op == "Mul" || node.op == "Div") {
      const size_t side = g_.Scalar(node.In(1)) ? 1 : 0;
      const auto scale = g_.Scalar(node.In(side));
      if (!scale || (node.op == "Div" && side == 0)) return trace;
      // A norm takes away whatever its input was multiplied by.
      if (!trace.norm) {
        trace.scale *= node.op == "Mul" ? *scale : 1 / *scale;
        trace.nodes.push_back(p);
      }
      value = node.In(1 - side);
    } else if (node.op == "Clip") {
      trace.clip = g_.Scalar(node.In(2));
      trace.nodes.push_back(p);
      value = node.In(0);
    } else if (node.op == "Concat") {
      // Earlier keys and values before the new ones.
      int fresh = kNoValue;
      for (const int in : node.in)
        if (!g_.IsInput(SkipShape(in))) fresh = fresh == kNoValue ? in : -2;
      if (fresh < 0) return trace;
      value = fresh;
    } else {
      return trace;
    }
  }
  return trace;
}

Join Walk::FollowToSum(int value, int residual, double wanted) const {
  const auto far = [&](const FoundScale& scale) {
    const double factor = scale.divides ? 1 / scale.value : scale.value;
    const double ratio = std::abs(std::log(factor / wanted));
    return std::isfinite(ratio) ? ratio : INFINITY;
  };
  Join join;
  residual = SkipShape(residual);
  for (int hops = 0; hops < kMaxHops && value != kNoValue; ++hops) {
    int next = kNoValue;
    for (const int c : g_.Consumers(value)) {
      const auto& node = g_.node(c);
      const int other = node.In(0) == value ? node.In(1) : node.In(0);
      if (IsSkipNorm(node.op)) {
        join.found = residual == kNoValue || SkipShape(other) == residual;
        if (!join.found) join.other = other;
        join.skip_norm = NormAt(c);
        join.sum = node.Out(3);
        join.node = c;
        return join;
      }
      if (const auto norm = NormAt(c)) {
        join.norm = norm;
        next = node.Out(0);
      } else if (node.op == "Add") {
        next = node.Out(0);
        if (SkipShape(other) == residual) {
          join.found = true;
          join.sum = node.Out(0);
          join.node = c;
          return join;
        }
        join.sums.push_back(c);
      } else if (node.op == "Mul" || (node.op == "Div" && node.In(0) == value)) {
        next = node.Out(0);
        if (const auto scale = g_.Scalar(other)) {
          const FoundScale one{
              .value = *scale, .constant = other, .node = c, .divides = node.op == "Div"};
          if (join.scale.node < 0 || far(one) < far(join.scale)) join.scale = one;
        }
      } else if (IsShapeOnly(c)) {
        next = node.Out(0);
      }
      if (next != kNoValue) break;
    }
    value = next;
  }
  return join;
}

std::optional<FoundActivation> Walk::ActivationOf(int value) const {
  for (const int c : Users(value)) {
    const auto& node = g_.node(c);
    const auto is = [&](Activation activation) { return FoundActivation{activation, c}; };
    if (node.op == "Gelu")
      return is(g_.Text(c, "approximate", "none") == "tanh" ? Activation::kGeluTanh
                                                            : Activation::kGelu);
    if (node.op == "FastGelu") return is(Activation::kGeluTanh);
    if (node.op == "BiasGelu") return is(Activation::kGelu);
    if (node.op == "QuickGelu")
      return is(std::abs(g_.Float(c, "alpha", 1.702) - 1) < 1e-6 ? Activation::kSilu
                                                                 : Activation::kQuickGelu);
    if (node.op == "Swish")
      return is(std::abs(g_.Float(c, "alpha", 1) - 1.702) < 1e-3 ? Activation::kQuickGelu
                                                                 : Activation::kSilu);
    if (node.op == "Silu") return is(Activation::kSilu);
    if (node.op == "Sigmoid") return is(Activation::kSilu);
    if (node.op == "Relu") {
      for (const int d : g_.Consumers(node.Out(0))) {
        const auto& square = g_.node(d);
        if (square.op == "Pow" || (square.op == "Mul" && square.In(0) == square.In(1)))
          return is(Activation::kRelu2);
      }
      return is(Activation::kRelu);
    }
    if (node.op == "Mul" || node.op == "Div" || node.op == "Pow") {
      const int other = node.In(0) == value ? node.In(1) : node.In(0);
      const auto constant = g_.Scalar(other);
      if (!constant) continue;
      if (const auto s = OperatorAhead(node.Out(0), "Sigmoid");
          s && std::abs(*constant - 1.702) < 1e-3)
        return is(Activation::kQuickGelu);
      if (OperatorAhead(node.Out(0), "Erf")) return is(Activation::kGelu);
      if (OperatorAhead(node.Out(0), "Tanh")) return is(Activation::kGeluTanh);
    }
  }
  return std::nullopt;
}

Branch Walk::MlpFrom(int input, const std::set<int>& taken) const {
  Branch branch;
  struct Half {
    int node;
    FoundMatrix matrix;
    int out;
    std::optional<FoundActivation> activation;
    int down;
  };
  std::vector<Half> halves;
  for (const int c : Users(input)) {
    auto matrix = MatrixOf(g_, c);
    if (!matrix || taken.contains(c) || g_.node(c).op == "Gather") continue;
    const int out = AddBias(*matrix);
    // Gate and up in one matrix: the halves of its rows.
    std::vector<int> splits;
    for (const int d : Users(out))
      if (g_.node(d).op == "Split" && g_.node(d).out.size() == 2) splits.push_back(d);
    if (splits.size() == 1) {
      const int64_t half = matrix->matrix.rows / 2;
      for (size_t i = 0; i < 2; ++i) {
        const int part = g_.node(splits[0]).Out(i);
        halves.push_back({c, SliceRows(*matrix, static_cast<int64_t>(i) * half, half), part,
                          ActivationOf(part), LinearAhead(part)});
      }
    } else {
      halves.push_back({c, *matrix, out, ActivationOf(out), LinearAhead(out)});
    }
  }
  for (const Half& active : halves) {
    if (!active.activation || active.down < 0) continue;
    const Half* plain = nullptr;
    for (const Half& other : halves)
      if (&other != &active && !other.activation && other.down == active.down) plain = &other;
    auto down = MatrixOf(g_, active.down);
    if (!down) continue;
    branch.out = AddBias(*down);
    branch.down = down;
    branch.activation = active.activation;
    branch.nodes = {active.node, active.down};
    if (plain != nullptr) {
      branch.gate = active.matrix;
      branch.up = plain->matrix;
      branch.nodes.push_back(plain->node);
    } else {
      branch.up = active.matrix;
    }
    return branch;
  }
  return branch;
}

std::optional<int64_t> Walk::ExpertOf(int value) const {
  for (const int c : Users(value)) {
    const auto& node = g_.node(c);
    if (node.op != "Mul") continue;
    const bool first = SkipShape(node.In(0)) == SkipShape(value);
    std::deque<int> values = {node.In(first ? 1 : 0)};
    for (size_t visited = 0; !values.empty() && visited < 40; ++visited) {
      const int p = g_.Producer(values.front());
      values.pop_front();
      if (p < 0) continue;
      if (g_.node(p).op == "Equal") {
        for (const int in : g_.node(p).in)
          if (const auto number = g_.Integers(in); number.size() == 1) return number[0];
        return std::nullopt;
      }
      if (MatrixOf(g_, p)) continue;
      for (const int in : g_.node(p).in)
        if (in != kNoValue) values.push_back(in);
    }
  }
  return std::nullopt;
}

std::vector<RowChoice> Walk::PositionReaders(const FoundAttention& attention) const {
  std::vector<RowChoice> out;
  if (attention.gqa && attention.rope_nodes[0] < 0) out.push_back({attention.node, 9});
  for (const int n : attention.rope_nodes) {
    if (n < 0 || g_.node(n).op != "RotaryEmbedding") continue;
    const bool microsoft = g_.node(n).microsoft;
    const size_t position = microsoft ? 1 : 3, cos = microsoft ? 2 : 1;
    if (g_.Constant(g_.node(n).In(cos))) {
      out.push_back({n, position});
      continue;
    }
    for (const size_t table : {cos, cos + 1}) {
      const int gather = g_.Producer(SkipShape(g_.node(n).In(table)));
      if (gather >= 0 && g_.node(gather).op == "Gather") out.push_back({gather, 1});
    }
  }
  return out;
}

}  // namespace lockstep
