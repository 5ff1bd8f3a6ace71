// Walk: steps along the data flow of a decoder's graph, which the search for its parts
// (decoder.cc) is made of.
#pragma once

#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "audit/decoder.h"

namespace lockstep {

bool IsAttention(const Graph& graph, int node);
bool IsShortConv(const Graph& graph, int node);

// What the operator itself says: heads, scale (0: by the head size), soft cap, window, and, where
// the operator rotates, the tables.
FoundAttention AttentionAt(const Graph& graph, int node);

// Whether an operator that computes attention whole has the attribute `scale` or `softcap` (the
// onnx domain's Attention from opset 23 on; com.microsoft: onnxruntime's ContribOperators.md). One
// that it does not have would keep the model from loading.
bool AttentionHas(std::string_view op, bool microsoft, std::string_view attribute);

// What goes into attention and what comes out.
struct AttentionPorts {
  int q = kNoValue, k = kNoValue, v = kNoValue, out = kNoValue;
};
AttentionPorts PortsOf(const Graph& graph, int node);

// The matrices of a MoE or QMoE operator.
struct ExpertPart {
  Role role;
  int32_t expert;
  FoundMatrix matrix;
};
std::vector<ExpertPart> ExpertsOf(const Graph& graph, int node, int64_t num_experts);

// Which row of a RoPE table a token takes once the sequence is past a length (longrope), from the
// rows that an operator is given: Add(position, Mul(Greater(..), row)). 0: always its position.
int64_t LongRowOf(const Graph& graph, int rows);

// Rows of a matrix, and the same elements of its bias.
FoundMatrix SliceRows(const FoundMatrix& matrix, int64_t first, int64_t count, int64_t step = 1);

// From an input of attention back to the matrix that made it.
struct PathBack {
  std::optional<FoundMatrix> linear;  // with the bias that was seen on the way
  int input = kNoValue;               // what the matrix multiplies
  std::optional<FoundNorm> norm;      // of q or k
  std::optional<FoundRope> rope;
  double scale = 1;
  std::optional<double> clip;
  std::vector<int> nodes;  // that were read on the way, but for the matrix
};

// From a half's output forward to the sum with the residual stream.
struct Join {
  bool found = false;
  FoundScale scale;
  std::optional<FoundNorm> norm;       // of the output, before the sum
  std::optional<FoundNorm> skip_norm;  // of the sum, by the same operator
  int sum = kNoValue;
  int node = -1;          // that adds
  int other = kNoValue;   // what it adds instead of the residual stream, where that is certain
  std::vector<int> sums;  // on the way: of other things than the stream
};

// One gated or plain MLP.
struct Branch {
  std::optional<FoundMatrix> gate, up, down;
  std::optional<FoundActivation> activation;
  int out = kNoValue;
  std::vector<int> nodes;  // that multiply by gate, up and down
};

// Input `slot` of a node says which rows of a table it reads.
struct RowChoice {
  int node;
  size_t slot;
};

class Walk {
 public:
  explicit Walk(const Graph& graph) : g_(graph) {}

  // The node moves elements, or changes their type, and computes nothing.
  bool IsShapeOnly(int node) const;
  // Likewise, or it chooses, cuts or joins elements.
  bool IsMover(int node) const;
  // An input of whole numbers [batch, sequence], as token ids are, and positions and masks may be.
  bool IsTokenInput(int value) const;
  int SkipShape(int value) const;           // back over nodes that only move elements
  int SkipPruning(int value) const;         // likewise, and over the choice of the last positions
  std::vector<int> Users(int value) const;  // nodes that read it, behind nodes that move elements

  std::optional<FoundNorm> NormAt(int node) const;
  std::optional<FoundNorm> NormMaking(int value) const;  // the value is the norm's output

  PathBack Back(int value) const;
  // Of several factors on the way the one nearest `wanted` is the scale.
  Join FollowToSum(int value, int residual, double wanted) const;
  Branch MlpFrom(int input, const std::set<int>& taken) const;

  // The output of the matrix and its bias, which is set when a following node adds one.
  int AddBias(FoundMatrix& matrix) const;
  // The nodes on all ways from one node's outputs to another node, both ends included.
  std::set<int> Between(const std::vector<int>& from, int to) const;
  int LinearBehind(int value) const;  // the nearest node with a matrix; -1
  int LinearAhead(int value) const;
  std::optional<int> OperatorAhead(int value, std::string_view op) const;
  // The expert whose output this is, by the number that its mixing weight is chosen with.
  std::optional<int64_t> ExpertOf(int value) const;
  // Where positions choose the rows of cosines and sines that turn a layer's queries and keys.
  std::vector<RowChoice> PositionReaders(const FoundAttention& attention) const;

 private:
  std::optional<FoundActivation> ActivationOf(int value) const;
  const Graph& g_;
};

}  // namespace lockstep
