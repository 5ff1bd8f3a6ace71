// Collector: findings as they are made, one layer at a time, and joined: what is the same in
// several layers, or of several weights, is told once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "audit/graph.h"

namespace lockstep {

struct RawFinding {
  FindingKind kind = FindingKind::kWeight;
  int layer = -1;
  std::string path;  // within the layer when there is one: "mixer.sliding_window"
  std::string what;  // begins the sentence: "the window is lost". Equal ones are joined
  std::string expected, found;
  std::optional<std::string> edit_json;   // the field at `path` of an edit
  std::optional<std::string> edit_path;   // where that is not `path`
  std::optional<WeightEdit> weight_edit;  // layers are filled in
  std::optional<Edit> edit;               // or, of this one alone, the whole edit
  OnnxPatch patch;
  std::vector<ConfigPatch> config;
  std::string how_to;
};

class Collector {
 public:
  void Add(RawFinding finding) { raw_.push_back(std::move(finding)); }
  std::vector<Finding> Join() &&;

 private:
  std::vector<RawFinding> raw_;
};

// The parts of an audit. Each appends to the collector; results and notes go to the report.
void CompareWeights(const Model& reference, const Graph& graph, AuditReport& report,
                    Collector& out);
void CompareFacts(const Model& reference, const Graph& graph, AuditReport& report, Collector& out);
void CompareRopes(const ModelSpec& spec, const Graph& graph, AuditReport& report, Collector& out);
// genai_config.json beside the model; absent where there is none, or (a note) none that can be
// read.
std::optional<Json> ReadGenaiConfig(const OnnxModel& candidate, std::vector<std::string>& notes);
void CompareGenai(const Model& reference, const OnnxModel& candidate, const Graph& graph,
                  const Json& config, AuditReport& report, Collector& out);
// Tokenizer and chat template.
void CompareTextFiles(const Model& reference, const OnnxModel& candidate, Collector& out);
// Caches, masks and positions, layer against layer.
void CompareWiring(const ModelSpec& spec, const Graph& graph, AuditReport& report, Collector& out);
// What is done to token ids and positions before they choose rows of tables.
void CompareIndices(const Model& reference, const Graph& graph, AuditReport& report,
                    Collector& out);
// How far the positions of the graph reach: rows of tables, bounds on position ids. `genai`: the
// folder's genai_config.json; nullptr: none.
void CompareReach(const Model& reference, const OnnxModel& candidate, const Graph& graph,
                  const Json* genai, AuditReport& report, Collector& out);

// EncodeNumbers for a repair: absent where a number is not finite, or would not be in this type.
std::optional<std::vector<std::byte>> EncodeFinite(std::span<const double> numbers, OnnxType type);

// Another number in a scalar's place: the constant is overwritten where only `node` reads it, else
// the node reads a new one.
bool SetScalar(const Graph& graph, int constant, int node, double value, OnnxPatch& patch);
// value becomes `value op number`, for whoever reads it.
bool InsertScalar(const Graph& graph, int value, std::string_view op, double number,
                  OnnxPatch& patch);

// Bytes for the tensor that a view shows, with the view's elements set to `values` (row-major) and
// every other element as it is. Absent where the type holds no plain numbers, or not these: NaN and
// infinities are never written.
std::optional<OnnxPatch::Tensor> PatchOf(const Graph& graph, const ConstantView& view,
                                         std::span<const float> values);

}  // namespace lockstep
