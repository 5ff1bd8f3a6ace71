#include "audit/account.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "audit/walk.h"
#include "base/quoted.h"
#include "reference/rope.h"
#include "spec/fields.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

constexpr size_t kMostBypassed = 16;
constexpr size_t kMostTried = 8;  // in one round
constexpr size_t kMostSeen = 64;
constexpr int kMostHops = 40;

bool OneOf(std::string_view op, std::initializer_list<std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

bool OneOfRoles(Role role, std::initializer_list<Role> roles) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

bool IsFloat(OnnxType type) {
  return type == OnnxType::kFloat || type == OnnxType::kFloat16 || type == OnnxType::kBFloat16 ||
         type == OnnxType::kDouble;
}

// Chooses elements by constant numbers, from what is no constant itself.
bool GathersByConstants(const Graph& g, int n) {
  const auto& node = g.node(n);
  const auto& chosen = g.Constant(node.In(1));
  return node.op == "Gather" && chosen && chosen->elements() > 1 && !g.Constant(node.In(0));
}

// Of as many numbers as there are elements, each once; or it would change a shape.
bool IsPermutation(const Graph& g, int n) {
  if (!GathersByConstants(g, n)) return false;
  std::vector<int64_t> chosen = g.Integers(g.node(n).In(1));
  std::ranges::sort(chosen);
  for (size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i] != static_cast<int64_t>(i)) return false;
  return !chosen.empty();
}

// The slot of what an operator on single elements changes by a constant, or by itself.
std::optional<size_t> Through(const Graph& g, int n) {
  const auto& node = g.node(n);
  if (OneOf(node.op, {"Add", "Sub", "Mul", "Div", "Pow"}) && node.in.size() == 2) {
    const bool first = g.Constant(node.In(0)).has_value();
    const bool second = g.Constant(node.In(1)).has_value();
    if (first == second) return std::nullopt;
    return first ? size_t{1} : size_t{0};
  }
  if (OneOf(node.op, {"Abs",       "Celu",  "Ceil",     "Clip",       "Cos",         "Elu",
                      "Erf",       "Exp",   "FastGelu", "Floor",      "Gelu",        "HardSwish",
                      "LeakyRelu", "Log",   "Mish",     "Neg",        "QuickGelu",   "Reciprocal",
                      "Relu",      "Round", "Selu",     "Sigmoid",    "HardSigmoid", "Sign",
                      "Silu",      "Sin",   "Softmax",  "LogSoftmax", "Softplus",    "Softsign",
                      "Sqrt",      "Swish", "Tanh",     "Cast"}))
    return size_t{0};
  if (node.op == "Gather" && IsPermutation(g, n)) return size_t{0};
  return std::nullopt;
}

// Nodes that what the table of embeddings gave, a cache keeps, or a table of RoPE holds flows
// through; in order.
std::vector<int> OnTheWay(const Graph& g, const FoundDecoder& found) {
  std::set<int> values;
  std::vector<int> nodes;
  if (found.embedded != kNoValue) values.insert(found.embedded);
  for (const OnnxValueInfo& input : g.model().inputs())
    if (IsFloat(input.type))
      if (const int v = g.Value(input.name); v != kNoValue) values.insert(v);
  for (int n = 0; n < static_cast<int>(g.nodes().size()); ++n) {
    const auto& node = g.node(n);
    if (const auto& table = g.Constant(node.In(0));
        node.op == "Gather" && table && table->elements() > 1 &&
        IsFloat(g.model().tensors()[static_cast<size_t>(table->tensor)].type))
      values.insert(node.Out(0));
    if (std::none_of(node.in.begin(), node.in.end(), [&](int v) { return values.contains(v); }))
      continue;
    nodes.push_back(n);
    if (node.op != "Shape" && node.op != "Size")  // a shape is not what flows
      values.insert(node.out.begin(), node.out.end());
    values.erase(kNoValue);
  }
  return nodes;
}

// Some exporters multiply cosines and sines by the RoPE's factor while the graph runs.
bool IsRopeFactor(const Graph& g, const FoundDecoder& found, int n, const ModelSpec& spec) {
  const auto& node = g.node(n);
  if (node.op != "Mul") return false;
  const size_t side = g.Scalar(node.In(1)) ? 1 : 0;
  const auto number = g.Scalar(node.In(side));
  if (!number) return false;
  // Cosines and sines as computed, or a row of a table of them, never
  // the embeddings.
  const Walk walk(g);
  const int value = walk.SkipShape(node.In(1 - side));
  const int maker = g.Producer(value);
  if (maker < 0) return false;
  const auto& table = g.Constant(g.node(maker).In(0));
  const bool gathered =
      g.node(maker).op == "Gather" && table && maker != g.Producer(found.embedded);
  if (!OneOf(g.node(maker).op, {"Cos", "Sin"}) && !gathered) return false;
  return std::ranges::any_of(spec.layers, [&](const LayerSpec& layer) {
    const RopeSpec* rope = FindRope(layer);
    return rope != nullptr && rope->scaling &&
           std::abs(*number - RopeAttentionFactor(*rope)) <= 1e-6 * std::abs(*number);
  });
}

bool IsNarrow(int64_t type) {
  return type != static_cast<int64_t>(OnnxType::kFloat) &&
         type != static_cast<int64_t>(OnnxType::kDouble);
}

// Number types that the graph computes in: of its caches, and of constants that an operator reads
// as they are. A table that is gathered from and then made fp32 is none.
std::set<int64_t> TypesOf(const Graph& g) {
  std::set<int64_t> types;
  for (const OnnxValueInfo& input : g.model().inputs())
    types.insert(static_cast<int64_t>(input.type));
  for (const auto& node : g.nodes()) {
    if (OneOf(node.op, {"Cast", "Gather", "DequantizeLinear"})) continue;
    for (const int in : node.in)
      if (const auto& constant = g.Constant(in); constant && constant->tensor >= 0) {
        const OnnxType type = g.model().tensors()[static_cast<size_t>(constant->tensor)].type;
        if (IsFloat(type)) types.insert(static_cast<int64_t>(type));
      }
  }
  return types;
}

// A Cast to fewer bits whose result is at once made wide again, in a graph that has no other use of
// the narrow type: it rounds.
bool Rounds(const Graph& g, const Walk& walk, int n, const std::set<int64_t>& types) {
  const int64_t to = g.Int(n, "to", 0);
  if (g.node(n).op != "Cast" || !IsNarrow(to)) return false;
  if (IsFloat(static_cast<OnnxType>(to)) && types.contains(to)) return false;
  std::vector<int> open = {g.node(n).Out(0)};
  for (size_t seen = 0; !open.empty() && seen < kMostSeen; ++seen) {
    const int value = open.back();
    open.pop_back();
    for (const int c : g.Consumers(value)) {
      if (!walk.IsShapeOnly(c) || g.node(c).In(0) != value) continue;
      if (g.node(c).op != "Cast")
        open.push_back(g.node(c).Out(0));
      else if (!IsNarrow(g.Int(c, "to", 0)))
        return true;
    }
  }
  return false;
}

// Nodes whose results are the residual stream, or a half's input or output: the hidden size is
// their last axis, and nobody has reason to move elements of it before the next of them.
std::set<int> StreamMakers(const Graph& g, const Walk& walk, const FoundDecoder& found,
                           const ModelSpec& spec) {
  std::set<int> makers;
  const auto made = [&](int value) {
    if (value == kNoValue) return;
    if (const int p = g.Producer(walk.SkipShape(value)); p >= 0) makers.insert(p);
  };
  made(found.embedded);
  made(found.stream);
  for (const FoundLayer& layer : found.layers) {
    made(layer.input);
    made(layer.output);
  }
  const auto mixes_experts = [&](const WeightId& id) {
    return id.layer >= 0 && static_cast<size_t>(id.layer) < spec.layers.size() &&
           std::holds_alternative<MoeSpec>(spec.layers[static_cast<size_t>(id.layer)].mlp);
  };
  for (const auto& [id, norm] : found.norms)
    if (OneOfRoles(id.role, {Role::kMixerPreNorm, Role::kMixerPostNorm, Role::kMlpPreNorm,
                             Role::kMlpPostNorm, Role::kFinalNorm}) &&
        !mixes_experts(id))
      makers.insert(norm.node);
  for (const auto& [id, matrix] : found.matrices)
    if (id.role == Role::kOProj || id.role == Role::kDownProj) {
      makers.insert(matrix.node);
      if (matrix.bias_node >= 0) makers.insert(matrix.bias_node);
    }
  // Parallel halves and experts read a layer's input itself.
  if (std::ranges::any_of(spec.layers, [](const LayerSpec& layer) {
        return std::holds_alternative<MoeSpec>(layer.mlp);
      }))
    std::erase_if(makers, [&](int n) { return !walk.NormAt(n) && g.node(n).op != "Gather"; });
  return makers;
}

// Reorders, repeats or cuts elements of the stream.
bool MovesTheStream(const Graph& g, const Walk& walk, const FoundDecoder& found, int n,
                    const std::set<int>& makers) {
  const auto& node = g.node(n);
  if (!OneOf(node.op, {"Transpose", "Expand", "Tile", "Slice", "Gather", "GatherND",
                       "GatherElements", "Split", "Concat"}))
    return false;
  const size_t inputs = node.op == "Concat" ? node.in.size() : 1;
  for (size_t slot = 0; slot < inputs; ++slot) {
    const int value = node.In(slot);
    if (value == kNoValue || g.Constant(value)) continue;
    int maker = g.Producer(value);
    for (int hops = 0; hops < kMostHops && maker >= 0 && !makers.contains(maker); ++hops) {
      if (!walk.IsMover(maker)) break;
      maker = g.Producer(g.node(maker).In(0));
    }
    if (maker < 0 || !makers.contains(maker)) continue;
    // What is past the hidden size in a table's last block is cut off; and of the last stream only
    // the last positions are wanted.
    const bool table =
        node.op == "Slice" && OneOf(g.node(maker).op, {"Gather", "GatherBlockQuantized"});
    const bool prunes = OneOf(node.op, {"Slice", "Gather", "GatherND"}) &&
                        !GathersByConstants(g, n) &&
                        (walk.SkipPruning(node.Out(0)) == found.last ||
                         (found.norms.contains({Role::kFinalNorm, Part::kWeight, -1, -1}) &&
                          maker == found.norms.at({Role::kFinalNorm, Part::kWeight, -1, -1}).node));
    if (!table && !prunes) return true;
  }
  return false;
}

// `certain` takes those that no form of the model has.
std::vector<int> StrangersIn(const Graph& g, const FoundDecoder& found, const ModelSpec& spec,
                             std::set<int>& certain) {
  const Walk walk(g);
  const std::set<int64_t> types = TypesOf(g);
  const std::set<int> makers = StreamMakers(g, walk, found, spec);
  std::vector<int> out;
  for (const int n : OnTheWay(g, found)) {
    if (found.understood.contains(n)) continue;
    if (!walk.IsMover(n)) {
      if (!IsRopeFactor(g, found, n, spec)) out.push_back(n);
      continue;
    }
    const bool moves = Rounds(g, walk, n, types) || MovesTheStream(g, walk, found, n, makers);
    if (moves) certain.insert(n);
    if (moves || GathersByConstants(g, n)) out.push_back(n);
  }
  return out;
}

// Strangers that do what this one does, each behind an operator like the one before it: what an
// exporter does to one layer it does to all.
Graph::Bypassed LikeNodes(const Graph& g, const std::vector<int>& strangers, int one, size_t slot) {
  const Walk walk(g);
  const auto before = [&](int n) {
    const int p = g.Producer(walk.SkipShape(g.node(n).In(slot)));
    return p < 0 ? std::string_view() : g.node(p).op;
  };
  Graph::Bypassed like;
  for (const int n : strangers)
    if (g.node(n).op == g.node(one).op && Through(g, n) == slot && before(n) == before(one))
      like.emplace(n, slot);
  return like;
}

bool IsWhole(const FoundDecoder& found, const ModelSpec& spec) {
  if (found.layers.size() != spec.layers.size() || !found.head_read || found.embedded == kNoValue)
    return false;
  for (const FoundLayer& layer : found.layers)
    if (!layer.mixer_joined || !layer.mlp_joined) return false;
  for (const WeightSlot& slot : RequiredWeights(spec))
    if (slot.id.part == Part::kWeight && !found.matrices.contains(slot.id) &&
        !found.norms.contains(slot.id) && !found.vectors.contains(slot.id))
      return false;
  return true;
}

std::string NameOf(const Graph& g, const FoundDecoder& found, int node) {
  for (const auto& [id, matrix] : found.matrices)
    if (matrix.node == node) return ToString(id);
  for (const auto& [id, norm] : found.norms)
    if (norm.node == node) return ToString(id);
  for (size_t i = 0; i < found.layers.size(); ++i)
    if (found.layers[i].attention && found.layers[i].attention->node == node)
      return fmt::format("layers.{}.attention", i);
  const OnnxNode& source = g.model().nodes()[static_cast<size_t>(node)];
  return fmt::format("{} {}", OneLine(source.op_type, 64),
                     Quoted(source.outputs.empty() ? source.name : source.outputs[0]));
}

// "Mul by 1.01"
std::string WhatItDoes(const Graph& plain, int node) {
  std::string text = OneLine(plain.model().nodes()[static_cast<size_t>(node)].op_type, 64);
  for (const int in : plain.node(node).in)
    if (const auto& constant = plain.Constant(in)) {
      const auto number = plain.Scalar(in);
      text += number ? fmt::format(" by {:.6g}", *number)
                     : fmt::format(" by a constant of {} numbers", constant->elements());
      break;
    }
  return text;
}

class Teller {
 public:
  Teller(const Account& account, const OnnxModel& model)
      : account_(account), model_(model), plain_(model) {}

  RawFinding Stranger(int node, bool bypassed) const {
    RawFinding raw{.kind = FindingKind::kStructure, .path = "operators"};
    raw.expected = "no such operator";
    raw.found = WhatItDoes(plain_, node);
    const auto [before, behind] = Neighbours(node);
    raw.what = fmt::format("an operator that the model does not have: {} between {} and {}",
                           raw.found, before, behind);
    if (!bypassed || !Bypass(node, raw.patch))
      raw.how_to = "export again without it: nothing can take the operator's place in the graph";
    return raw;
  }

 private:
  // The next ones that stay.
  std::pair<std::string, std::string> Neighbours(int node) const {
    const Walk walk(*account_.graph);
    const Graph& g = *account_.graph;
    const auto slot = account_.bypassed.find(node);
    const int in = plain_.node(node).In(slot == account_.bypassed.end() ? 0 : slot->second);
    const int producer = g.Producer(walk.SkipShape(in));
    std::string before = in == kNoValue ? "nothing" : Quoted(plain_.Name(in));
    if (producer >= 0) before = NameOf(g, account_.decoder, producer);
    std::string behind = "the output";
    const std::vector<int> users = walk.Users(plain_.node(node).Out(0));
    if (!users.empty()) behind = NameOf(g, account_.decoder, users.front());
    return {before, behind};
  }

  // What is read instead of a node's output, through all that is bypassed.
  std::string SourceOf(int node) const {
    std::string name;
    for (size_t hops = 0; hops <= kMostBypassed; ++hops) {
      const auto at = account_.bypassed.find(node);
      if (at == account_.bypassed.end()) break;
      name = model_.nodes()[static_cast<size_t>(node)].inputs[at->second];
      const OnnxNode* producer = model_.Producer(name);
      if (producer == nullptr) break;
      node = static_cast<int>(producer->index);
    }
    return name;
  }

  bool Bypass(int node, OnnxPatch& patch) const {
    const OnnxNode& stranger = model_.nodes()[static_cast<size_t>(node)];
    const std::string& out = stranger.outputs[0];
    const std::string source = SourceOf(node);
    const auto readers = [&](const std::string& name, const std::string& instead) {
      for (const OnnxNode* reader : model_.ConsumersOf(name))
        for (size_t s = 0; s < reader->inputs.size(); ++s)
          if (reader->inputs[s] == name)
            patch.inputs.push_back({.node = reader->index, .slot = s, .value = instead});
    };
    if (model_.Output(out) == nullptr) {
      readers(out, source);
      return true;
    }
    // A graph output keeps its name: what made the input makes it.
    const OnnxNode* maker = model_.Producer(source);
    if (maker == nullptr || maker->op_type == "Constant" || model_.Output(source) != nullptr)
      return false;
    for (size_t s = 0; s < maker->outputs.size(); ++s)
      if (maker->outputs[s] == source)
        patch.results.push_back({.node = maker->index, .slot = s, .value = out});
    patch.results.push_back({.node = stranger.index, .slot = 0, .value = out + "_unread"});
    readers(source, out);
    return true;
  }

  const Account& account_;
  const OnnxModel& model_;
  const Graph plain_;
};

}  // namespace

Account TakeAccount(const OnnxModel& model, const ModelSpec& spec,
                    std::vector<std::string>& notes) {
  Account account;
  std::vector<std::string> said;
  const auto look = [&](const Graph::Bypassed& bypassed) {
    said.clear();
    account.bypassed = bypassed;
    account.graph = std::make_unique<Graph>(model, bypassed);
    account.decoder = FindDecoder(*account.graph, spec, said);
    account.certain.clear();
    account.strangers = StrangersIn(*account.graph, account.decoder, spec, account.certain);
    account.whole = IsWhole(account.decoder, spec);
  };
  look({});
  // One after the other: the one without which most is understood. One that the model does not have
  // hides others behind it, so that the first in the file's order are tried.
  for (size_t round = 0; round < kMostBypassed && !account.strangers.empty(); ++round) {
    const Graph::Bypassed before = account.bypassed;
    std::optional<Graph::Bypassed> best;
    size_t fewest = account.strangers.size();
    std::vector<std::pair<int, size_t>> candidates;
    for (const int n : account.strangers)
      if (const auto slot = Through(*account.graph, n); slot && candidates.size() < kMostTried)
        candidates.emplace_back(n, *slot);
    const auto better = [&](const Graph::Bypassed& without) {
      Graph::Bypassed more = before;
      more.insert(without.begin(), without.end());
      look(more);
      if (account.strangers.size() >= fewest) return;
      fewest = account.strangers.size();
      best = std::move(more);
    };
    // With all that are like it, or a deep model would have more of them than rounds; or alone.
    look(before);
    std::vector<Graph::Bypassed> tries;
    for (const auto& [node, slot] : candidates) {
      const Graph::Bypassed like = LikeNodes(*account.graph, account.strangers, node, slot);
      if (like.size() > 1 && std::ranges::find(tries, like) == tries.end()) tries.push_back(like);
    }
    for (const auto& one : candidates) tries.push_back({one});
    for (const Graph::Bypassed& one : tries) {
      better(one);
      if (fewest == 0) break;
    }
    look(best ? *best : before);
    if (!best) break;
  }
  if (!account.whole && !account.bypassed.empty()) look({});
  notes.insert(notes.end(), said.begin(), said.end());
  return account;
}

namespace {

// The stream goes from one layer to the next. Where a part was not found, only what is certain is
// told: a layer that reads what an earlier one already has.
void TellWiring(const Account& account, const ModelSpec& spec, Collector& out) {
  const Graph& g = *account.graph;
  const Walk walk(g);
  int stream = walk.SkipShape(account.decoder.stream);
  std::set<int> earlier;
  const size_t layers = std::min(spec.layers.size(), account.decoder.layers.size());
  for (size_t i = 0; i <= layers; ++i) {
    const int in = i < layers ? walk.SkipShape(account.decoder.layers[i].input)
                              : walk.SkipPruning(account.decoder.last);
    const bool other = account.whole && stream != kNoValue && in != stream;
    if (in != kNoValue && (other || earlier.contains(in))) {
      RawFinding raw{.kind = FindingKind::kStructure, .path = "operators"};
      const std::string here = i < layers ? fmt::format("layer {}", i) : "the final norm";
      const std::string before = i > 0 ? fmt::format("layer {}", i - 1) : "the embedding";
      raw.what = fmt::format("{} does not read what {} gives", here, before);
      raw.expected = fmt::format("the output of {}", before);
      raw.found = Quoted(g.Name(in));
      raw.how_to = "export again: the layers are wired otherwise";
      out.Add(std::move(raw));
    }
    if (stream != kNoValue) earlier.insert(stream);
    const int foreign = i < layers ? account.decoder.layers[i].foreign : kNoValue;
    if (foreign != kNoValue) {
      RawFinding raw{.kind = FindingKind::kStructure, .layer = static_cast<int>(i)};
      raw.path = "residual";
      raw.what = "a half is added to another value than the residual stream";
      raw.expected = "the stream that it reads";
      raw.found = Quoted(g.Name(foreign));
      raw.how_to = "export again: the layer is wired otherwise";
      out.Add(std::move(raw));
    }
    if (i < layers) stream = walk.SkipShape(account.decoder.layers[i].output);
  }
}

}  // namespace

void TellStrangers(const Account& account, const ModelSpec& spec, AuditReport& report,
                   Collector& out) {
  const Graph& g = *account.graph;
  report.strangers = static_cast<int64_t>(account.strangers.size() + account.bypassed.size());
  TellWiring(account, spec, out);
  std::vector<int64_t> unjoined;
  for (size_t i = 0; i < std::min(spec.layers.size(), account.decoder.layers.size()); ++i)
    if (const FoundLayer& layer = account.decoder.layers[i];
        !layer.mixer_joined || !layer.mlp_joined)
      unjoined.push_back(static_cast<int64_t>(i));
  if (!unjoined.empty())
    report.notes.push_back(
        fmt::format("the residual sums of layers {} could not be followed, and were not compared",
                    JoinNumbers(unjoined)));
  if (!account.whole) {
    if (account.strangers.empty() || account.decoder.layers.empty()) return;
    const Teller teller(account, g.model());
    for (const int node : account.certain) out.Add(teller.Stranger(node, false));
    if (account.certain.size() == account.strangers.size()) return;
    std::vector<std::string> ops;
    for (const int n : account.strangers) {
      if (account.certain.contains(n)) continue;
      const std::string op(g.node(n).op);
      if (std::find(ops.begin(), ops.end(), op) == ops.end()) ops.push_back(op);
    }
    report.notes.push_back(fmt::format(
        "{} operators between the token ids and the logits were not understood, and not compared: "
        "{}",
        account.strangers.size() - account.certain.size(), QuotedList(ops, 6)));
    return;
  }
  const Teller teller(account, g.model());
  for (const auto& [node, slot] : account.bypassed) out.Add(teller.Stranger(node, true));
  for (const int node : account.strangers) out.Add(teller.Stranger(node, false));
}

}  // namespace lockstep
