// FoundDecoder: a decoder recognised in an ONNX graph: which stored tensor plays which role of a
// spec, and what the graph says about norms, attention, RoPE, scales and activations. Made by
// FindDecoder from the data flow alone, anchored at the mixers (attention operators, short
// convolutions) in the order of the computation; compared with a spec by audit.h.
//
// What the walk does not understand stays absent: absent means "not read", never "not there", but
// where a field says otherwise.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "audit/graph.h"
#include "audit/stored_matrix.h"
#include "spec/model_spec.h"
#include "spec/weights.h"

namespace lockstep {

struct FoundMatrix {
  int node = -1;  // that multiplies by it, or gathers from it
  StoredMatrix matrix;
  std::optional<ConstantView> bias;  // [rows]; absent: none is added
  int bias_node = -1;                // that adds it, where it is a node of its own
  // The operator rounds what it multiplies to int8, this many numbers to a scale.
  std::optional<int64_t> int8_block;
};

struct FoundNorm {
  int node = -1;
  NormKind kind = NormKind::kRms;
  double eps = 0;
  std::optional<ConstantView> weight, bias;
  int input = kNoValue;  // what is normed
};

struct FoundRope {
  int node = -1;  // whose attribute says `interleaved`
  std::string_view interleaved_attribute;
  bool interleaved = false;
  int64_t rotary_dim = 0;                // 0: twice the width of the tables
  std::optional<ConstantView> cos, sin;  // [positions, rotary_dim / 2]; absent: not readable
  // Past this length the tables' rows from `long_row` on count (longrope); 0: all rows are one.
  int64_t long_row = 0;
};

struct FoundAttention {
  int node = -1;
  bool gqa = false;  // the operator has window and RoPE as attributes
  int64_t num_heads = 0, num_key_value_heads = 0;
  double scale = 0;  // of q . k, all factors together
  std::optional<double> softcap;
  bool window_read = false;
  std::optional<int64_t> window;
  int window_constant = kNoValue;  // the value whose number is the window, in a mask
  int mask = kNoValue;             // what is added to the scores, or says which ones count
  int mask_node = -1;              // that reads it
  size_t mask_slot = 0;
  bool elementary = false;        // built of MatMul and Softmax: `node` is the Softmax
  std::vector<int> nodes;         // all that it is built of, then
  int scale_constant = kNoValue;  // where its scale lies, and who multiplies by it
  int scale_node = -1;
  std::optional<ConstantView> sinks;
  bool rope_read = false;         // false: neither present nor absent is known
  std::optional<FoundRope> rope;  // of the queries
  int rope_nodes[2] = {-1, -1};   // operators of their own that turn queries and keys
  std::optional<double> clip;
};

struct FoundRouting {
  int node = -1;  // the operator, or the TopK
  std::optional<int64_t> top_k;
  int top_k_constant = kNoValue;  // where the number lies, unless an attribute holds it
  std::optional<bool> normalize;
};

struct FoundScale {
  double value = 1;
  int constant = kNoValue;  // the value that holds it; kNoValue: there is no such operation
  int node = -1;            // that multiplies or divides
  bool divides = false;
};

struct FoundActivation {
  Activation activation = Activation::kSilu;
  int node = -1;
};

struct FoundLayer {
  // The residual stream before the first half and behind the second; kNoValue: not followed.
  int input = kNoValue, output = kNoValue;
  int foreign = kNoValue;  // what a half is added to instead
  std::optional<FoundAttention> attention;
  bool conv = false;
  FoundScale mixer_residual, mlp_residual;
  bool mixer_joined = false, mlp_joined = false;  // the residual sums were found
  std::optional<FoundActivation> activation;
  std::optional<FoundRouting> routing;
};

struct FoundDecoder {
  std::vector<FoundLayer> layers;
  std::map<WeightId, FoundMatrix> matrices;  // Part::kWeight
  std::map<WeightId, FoundNorm> norms;       // Part::kWeight
  std::map<WeightId, ConstantView> vectors;  // what is neither: router selection bias
  int tokens = kNoValue;                     // the input of token ids
  int embedded = kNoValue;                   // what the table gives, before any scale
  int logits = kNoValue;
  FoundScale embedding_scale;
  FoundScale logit_scale;
  std::optional<double> logit_softcap;
  int softcap_divide = kNoValue, softcap_multiply = kNoValue;  // constants, and who reads them
  int softcap_divide_node = -1, softcap_multiply_node = -1;
  bool head_read = false;  // logit_scale and logit_softcap are what the graph does
  int stream = kNoValue;   // the residual stream before the first layer
  int last = kNoValue;     // and what the final norm reads
  // Nodes whose work a field above tells, or that a half of a layer is made of anyhow. What else
  // computes on the way from the ids to the logits, the model does not have (account.h).
  std::set<int> understood;

  // Some operator rounds what it multiplies to int8.
  bool RoundsToInt8() const;
};

// Where the graph has a weight: one of the two, or neither.
struct WeightPlace {
  const ConstantView* vector = nullptr;
  const StoredMatrix* matrix = nullptr;
  bool known = false;  // the place was found, whether or not something is there
};
WeightPlace PlaceOf(const FoundDecoder& found, const WeightId& id);

// The spec says which roles to look for; the graph decides where they are. `notes`: sentences about
// what could not be followed.
FoundDecoder FindDecoder(const Graph& graph, const ModelSpec& spec,
                         std::vector<std::string>& notes);

// The matrix that a node multiplies by or gathers from.
std::optional<FoundMatrix> MatrixOf(const Graph& graph, int node);

}  // namespace lockstep
