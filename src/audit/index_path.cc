#include "audit/index_path.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "audit/walk.h"
#include "base/dtype.h"

namespace lockstep {
namespace {

constexpr size_t kMostNodes = 48;
constexpr int kMostDepth = 32;

bool OneOf(std::string_view op, std::initializer_list<std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

bool ActsOnElements(std::string_view op) {
  return OneOf(op, {"Add",   "Sub",   "Mul",   "Div",  "Mod",     "Min",         "Max",
                    "Clip",  "Where", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual",
                    "Not",   "And",   "Or",    "Abs",  "Neg",     "Floor",       "Ceil",
                    "Round", "Cast"});
}

// The numbers of a value, for 0, 1, ... of the input; one number where it is the same for all.
struct Numbers {
  std::vector<double> each;
  bool whole = true;  // of an integer type, whose division cuts off
  double At(size_t i) const { return each.size() == 1 ? each[0] : each[i]; }
};

class Evaluator {
 public:
  Evaluator(const Graph& graph, int input, int64_t count)
      : g_(graph), walk_(graph), input_(input), count_(static_cast<size_t>(count)) {}

  std::optional<Numbers> Of(int value, int depth = 0) {
    if (value == kNoValue || depth > kMostDepth) return std::nullopt;
    if (const auto at = known_.find(value); at != known_.end()) return at->second;
    if (known_.size() > kMostNodes) return std::nullopt;
    auto numbers = Compute(value, depth);
    known_[value] = numbers;
    return numbers;
  }

 private:
  std::optional<Numbers> Compute(int value, int depth) {
    if (value == input_) {
      Numbers all;
      all.each.resize(count_);
      for (size_t i = 0; i < count_; ++i) all.each[i] = static_cast<double>(i);
      return all;
    }
    if (const auto& constant = g_.Constant(value)) {
      if (constant->elements() != 1) return std::nullopt;
      const OnnxType type = g_.model().tensors()[static_cast<size_t>(constant->tensor)].type;
      const auto whole = g_.Integers(value);
      const auto plain = g_.Scalar(value);
      if (!whole.empty()) return Numbers{{static_cast<double>(whole[0])}, true};
      if (plain) return Numbers{{*plain}, type != OnnxType::kFloat && type != OnnxType::kDouble};
      return std::nullopt;
    }
    const int p = g_.Producer(value);
    if (p < 0) return std::nullopt;
    const auto& node = g_.node(p);
    if (node.op == "Cast") return Cast(p, Of(node.In(0), depth + 1));
    if (node.op == "Gather" && g_.Constant(node.In(0))) return Chosen(p, Of(node.In(1), depth + 1));
    if (!ActsOnElements(node.op))
      return walk_.IsShapeOnly(p) ? Of(node.In(0), depth + 1) : std::nullopt;
    std::vector<std::optional<Numbers>> in;
    for (const int v : node.in) {
      in.push_back(v == kNoValue ? std::nullopt : Of(v, depth + 1));
      if (v != kNoValue && !in.back()) return std::nullopt;
    }
    if (in.empty() || !in[0]) return std::nullopt;
    return Apply(p, in);
  }

  // Each number's own of a table of numbers.
  std::optional<Numbers> Chosen(int node, std::optional<Numbers> x) const {
    const std::vector<int64_t> table = g_.Integers(g_.node(node).In(0));
    if (!x || table.empty()) return std::nullopt;
    const auto size = static_cast<double>(table.size());
    for (double& number : x->each) {
      if (number < 0) number += size;
      if (!(number >= 0 && number < size)) return std::nullopt;
      number = static_cast<double>(table[static_cast<size_t>(number)]);
    }
    return x;
  }

  std::optional<Numbers> Cast(int node, std::optional<Numbers> x) const {
    if (!x) return x;
    const auto to = static_cast<OnnxType>(g_.Int(node, "to", 0));
    for (double& number : x->each) {
      if (to == OnnxType::kFloat)
        number = static_cast<float>(number);
      else if (to == OnnxType::kFloat16)
        number = ToFloat(ToFloat16(static_cast<float>(number)));
      else if (to == OnnxType::kBFloat16)
        number = ToFloat(ToBFloat16(static_cast<float>(number)));
      else if (to == OnnxType::kBool)
        number = number != 0 ? 1 : 0;
      else if (to != OnnxType::kDouble)
        number = std::trunc(number);
    }
    x->whole = to != OnnxType::kFloat && to != OnnxType::kFloat16 && to != OnnxType::kBFloat16 &&
               to != OnnxType::kDouble;
    return x;
  }

  std::optional<Numbers> Apply(int n, const std::vector<std::optional<Numbers>>& in) const {
    const auto& node = g_.node(n);
    size_t size = 1;
    for (const auto& one : in)
      if (one) size = std::max(size, one->each.size());
    Numbers out;
    out.whole = in.size() > 1 && node.op == "Where" ? in[1] && in[1]->whole : in[0]->whole;
    out.each.resize(size);
    const bool fmod = g_.Int(n, "fmod", 0) != 0;
    const size_t wanted = node.op == "Where" ? 3
                          : OneOf(node.op, {"Clip", "Not", "Abs", "Neg", "Floor", "Ceil", "Round"})
                              ? 1
                              : 2;
    if (in.size() < wanted) return std::nullopt;
    for (size_t slot = 0; slot < wanted; ++slot)
      if (!in[slot]) return std::nullopt;
    for (size_t i = 0; i < size; ++i) {
      const double x = in[0]->At(i);
      const double y = wanted > 1 ? in[1]->At(i) : 0;
      double& z = out.each[i];
      if (node.op == "Add")
        z = x + y;
      else if (node.op == "Sub")
        z = x - y;
      else if (node.op == "Mul")
        z = x * y;
      else if (node.op == "Div")
        z = out.whole ? std::trunc(x / y) : x / y;
      else if (node.op == "Mod")
        z = fmod ? std::fmod(x, y) : x - y * std::floor(x / y);
      else if (node.op == "Equal")
        z = x == y;
      else if (node.op == "Less")
        z = x < y;
      else if (node.op == "Greater")
        z = x > y;
      else if (node.op == "LessOrEqual")
        z = x <= y;
      else if (node.op == "GreaterOrEqual")
        z = x >= y;
      else if (node.op == "And")
        z = x != 0 && y != 0;
      else if (node.op == "Or")
        z = x != 0 || y != 0;
      else if (node.op == "Not")
        z = x == 0;
      else if (node.op == "Abs")
        z = std::abs(x);
      else if (node.op == "Neg")
        z = -x;
      else if (node.op == "Floor")
        z = std::floor(x);
      else if (node.op == "Ceil")
        z = std::ceil(x);
      else if (node.op == "Round")
        z = std::nearbyint(x);
      else if (node.op == "Where")
        z = x != 0 ? y : in[2]->At(i);
      else if (node.op == "Clip")
        z = Clipped(x, in, i);
      else
        z = Extreme(node.op == "Min", in, i);
      if (!std::isfinite(z)) return std::nullopt;
    }
    return out;
  }

  static double Clipped(double x, const std::vector<std::optional<Numbers>>& in, size_t i) {
    if (in.size() > 1 && in[1]) x = std::max(x, in[1]->At(i));
    if (in.size() > 2 && in[2]) x = std::min(x, in[2]->At(i));
    return x;
  }
  static double Extreme(bool least, const std::vector<std::optional<Numbers>>& in, size_t i) {
    double out = in[0]->At(i);
    for (const auto& one : in)
      if (one) out = least ? std::min(out, one->At(i)) : std::max(out, one->At(i));
    return out;
  }

  const Graph& g_;
  const Walk walk_;
  int input_;
  size_t count_;
  std::map<int, std::optional<Numbers>> known_;
};

}  // namespace

IndexPath IndexPathTo(const Graph& graph, int indices) {
  const Walk walk(graph);
  IndexPath path;
  std::vector<int> todo = {indices};
  std::set<int> seen;
  const auto is_other = [&](int value) {
    return graph.Name(value) == "position_ids" || graph.Name(value) == "attention_mask";
  };
  while (!todo.empty() && seen.size() < kMostNodes) {
    const int value = todo.back();
    todo.pop_back();
    if (value == kNoValue || !seen.insert(value).second) continue;
    if (graph.IsInput(value)) {
      if (walk.IsTokenInput(value) &&
          (path.input == kNoValue || (is_other(path.input) && !is_other(value))))
        path.input = value;
      continue;
    }
    const int p = graph.Producer(value);
    if (p < 0 || graph.Constant(value)) continue;
    const auto& node = graph.node(p);
    if (node.op == "Cast") {
      path.straight = false;
      const auto to = static_cast<OnnxType>(graph.Int(p, "to", 0));
      if (to != OnnxType::kInt64 && to != OnnxType::kInt32) path.nodes.push_back(p);
      todo.push_back(node.In(0));
    } else if (ActsOnElements(node.op)) {
      path.nodes.push_back(p);
      todo.insert(todo.end(), node.in.begin(), node.in.end());
    } else if (node.op == "Gather" && graph.Constant(node.In(0))) {
      path.nodes.push_back(p);
      todo.push_back(node.In(1));
    } else if (walk.IsMover(p) && node.op != "Shape" && node.op != "Size") {
      path.straight = false;
      if (!walk.IsShapeOnly(p)) path.nodes.push_back(p);
      todo.push_back(node.In(0));
    }
  }
  std::ranges::sort(path.nodes);
  return path;
}

std::optional<std::vector<double>> NumbersAlong(const Graph& graph, const IndexPath& path,
                                                int indices, int64_t count) {
  if (path.input == kNoValue || count < 1) return std::nullopt;
  auto numbers = Evaluator(graph, path.input, count).Of(indices);
  if (!numbers) return std::nullopt;
  if (numbers->each.size() == 1)
    numbers->each.assign(static_cast<size_t>(count), double{numbers->each[0]});
  return std::move(numbers->each);
}

}  // namespace lockstep
