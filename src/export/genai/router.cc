// Routing in plain operators: which experts a token takes and what each weighs (RouterSpec's
// rules).
#include "export/genai/layers.h"

#include <limits>

namespace lockstep::genai {
namespace {

class Router {
 public:
  Router(GraphBuilder& b, const std::string& name, const MoeSpec& moe, int layer)
      : b_(b), g_(b.graph), name_(name), moe_(moe), router_(moe.router), layer_(layer) {}

  Routing Build(const std::string& logits) {
    if (router_.scoring == RouterScoring::kSparseMixer) return SparseMixer(logits);
    std::string scores = logits;
    if (router_.scoring == RouterScoring::kSoftmaxThenTopK) scores = Softmax("scores", logits);
    if (router_.scoring == RouterScoring::kSigmoidThenTopK)
      scores = Node("scores/Sigmoid", Onnx("Sigmoid"), {logits});
    std::string choice = scores;
    if (router_.selection_bias)
      choice = Node("choice/Add", Onnx("Add"),
                    {choice, b_.Floats(GraphBuilder::WeightName(name_) + ".selection_bias",
                                       {moe_.num_experts}, [&b = b_, layer = layer_] {
                                         return b.ReadVector(Role::kRouterSelectionBias, layer);
                                       })});
    if (router_.groups) choice = BestGroups(*router_.groups, choice);
    Routing out;
    out.experts = TopK("choice", choice, moe_.num_experts_per_tok).second;
    out.weights = Node("GatherElements", Onnx("GatherElements"), {scores, out.experts},
                       {{"axis", int64_t{1}}});
    if (router_.scoring == RouterScoring::kTopKThenSoftmax)
      out.weights = Softmax("weights", out.weights);
    if (router_.normalize_top_k) {
      std::string sum = Sum("weights", out.weights);
      if (router_.normalize_epsilon != 0)
        sum = Node("weights/epsilon/Add", Onnx("Add"),
                   {sum, g_.Float(static_cast<float>(router_.normalize_epsilon))});
      out.weights = Node("weights/Div", Onnx("Div"), {out.weights, sum});
    }
    out.weights = b_.Scaled(name_ + "/routed_scaling", out.weights, router_.routed_scaling);
    return out;
  }

 private:
  std::string Node(const std::string& what, OnnxOp op, OnnxGraph::Values inputs,
                   OnnxGraph::Attributes attributes = {}) {
    return g_.Node(name_ + "/" + what, op, std::move(inputs), std::move(attributes));
  }
  std::string Softmax(const std::string& what, const std::string& x) {
    return Node(what + "/Softmax", Onnx("Softmax"), {x}, {{"axis", int64_t{-1}}});
  }
  std::string Sum(const std::string& what, const std::string& x) {
    return Node(what + "/ReduceSum", Onnx("ReduceSum"), {x, g_.Ints({-1})},
                {{"keepdims", int64_t{1}}});
  }
  std::pair<std::string, std::string> TopK(const std::string& what, const std::string& x,
                                           int64_t k) {
    const std::string node = name_ + "/" + what + "/TopK";
    std::pair<std::string, std::string> out = {node + "/output_0", node + "/output_1"};
    g_.NodeTo(node, Onnx("TopK"), {x, g_.Ints({k})}, {out.first, out.second},
              {{"axis", int64_t{-1}}, {"largest", int64_t{1}}, {"sorted", int64_t{1}}});
    return out;
  }
  std::string Never() { return g_.Float(-std::numeric_limits<float>::infinity()); }

  // Scores outside the best groups become -inf.
  std::string BestGroups(const RouterGroups& groups, const std::string& choice) {
    const int64_t size = moe_.num_experts / groups.n_group;
    const std::string grouped =
        b_.Reshape(name_ + "/groups/Reshape", choice, {-1, groups.n_group, size});
    const std::string best =
        TopK("groups/best", grouped, std::min(groups.best_per_group, size)).first;
    const std::string worth = Node("groups/ReduceSum", Onnx("ReduceSum"), {best, g_.Ints({-1})},
                                   {{"keepdims", int64_t{0}}});
    const std::string kept = TopK("groups/kept", worth, groups.topk_group).second;
    const std::string zeros = Node("groups/zeros", Onnx("Mul"), {worth, g_.Float(0)});
    const std::string ones = Node("groups/ones", Onnx("Expand"),
                                  {g_.Float(1), Node("groups/Shape", Onnx("Shape"), {kept})});
    const std::string flags = Node("groups/ScatterElements", Onnx("ScatterElements"),
                                   {zeros, kept, ones}, {{"axis", int64_t{1}}});
    const std::string chosen = Node("groups/Greater", Onnx("Greater"), {flags, g_.Float(0)});
    const std::string column = Node("groups/Unsqueeze", Onnx("Unsqueeze"), {chosen, g_.Ints({-1})});
    const std::string left = Node("groups/Where", Onnx("Where"), {column, grouped, Never()});
    return b_.Reshape(name_ + "/groups/flat", left, {-1, moe_.num_experts});
  }

  // PhiMoE: twice the best of what is left, weighed by a softmax over the logits within a relative
  // 2 * jitter of it.
  Routing SparseMixer(const std::string& logits) {
    const std::string limit =
        g_.Float(static_cast<float>(2 * router_.sparse_mixer_jitter.value_or(0)));
    const std::string size = Node("Abs", Onnx("Abs"), {logits});
    std::string left = logits;
    std::vector<std::string> experts, weights;
    for (int pick = 0; pick < 2; ++pick) {
      const std::string at = fmt::format("pick_{}", pick);
      const auto [best, index] = TopK(at, left, 1);
      const std::string factor = Node(at + "/Max", Onnx("Max"), {size, best});
      const std::string gap = Node(at + "/Sub", Onnx("Sub"), {best, logits});
      const std::string relative = Node(at + "/Div", Onnx("Div"), {gap, factor});
      const std::string far = Node(at + "/Greater", Onnx("Greater"), {relative, limit});
      const std::string near = Node(at + "/Where", Onnx("Where"), {far, Never(), left});
      const std::string gates = Softmax(at, near);
      experts.push_back(index);
      weights.push_back(Node(at + "/GatherElements", Onnx("GatherElements"), {gates, index},
                             {{"axis", int64_t{1}}}));
      if (pick > 0) break;
      const std::string never = Node(at + "/Expand", Onnx("Expand"),
                                     {Never(), Node(at + "/Shape", Onnx("Shape"), {index})});
      left = Node(at + "/ScatterElements", Onnx("ScatterElements"), {left, index, never},
                  {{"axis", int64_t{1}}});
    }
    return {Node("experts/Concat", Onnx("Concat"), experts, {{"axis", int64_t{1}}}),
            Node("weights/Concat", Onnx("Concat"), weights, {{"axis", int64_t{1}}})};
  }

  GraphBuilder& b_;
  OnnxGraph& g_;
  const std::string name_;
  const MoeSpec& moe_;
  const RouterSpec& router_;
  const int layer_;
};

}  // namespace

Routing Route(GraphBuilder& b, const std::string& name, const MoeSpec& moe, int layer,
              const std::string& logits) {
  return Router(b, name, moe, layer).Build(logits);
}

}  // namespace lockstep::genai
