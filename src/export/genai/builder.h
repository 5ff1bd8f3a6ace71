// GraphBuilder: what the parts of an exported decoder share while its graph is put together: the
// model, the graph, the values that every layer reads (lengths, positions), names, and notes of
// what could not be written as one fused operator. Made by decoder.cc; every other file of this
// folder adds one kind of part to it.
//
// Shapes: B sequences, S new tokens, T positions with the new ones, H hidden_size. A value "x" of a
// layer is [B, S, H].
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "export/export.h"
#include "export/matrix_source.h"
#include "export/onnx_graph.h"
#include "export/precision.h"
#include "model/model.h"

namespace lockstep::genai {

// Tables of cosines and sines, and which of their rows a token takes.
struct RopeValues {
  std::string cos, sin;      // [rows, rotary_dim / 2]
  std::string rows;          // [B, S] int64; empty: the token's position
  bool made_by_run = false;  // the tables hold this run's tokens alone
};

class GraphBuilder {
 public:
  // All must outlive the graph's writing.
  GraphBuilder(const ModelSpec& spec, const Weights& weights, const ExportOptions& options,
               const ExportPrecision& precision, OnnxType floats, ThreadPool& pool,
               int64_t context_length, int64_t cache_head_size)
      : spec(spec),
        weights(weights),
        options(options),
        precision(precision),
        pool(pool),
        context_length(context_length),
        cache_head_size(cache_head_size),
        graph(floats) {}

  const ModelSpec& spec;
  const Weights& weights;
  const ExportOptions& options;
  const ExportPrecision& precision;  // how linear.cc writes a matrix
  ThreadPool& pool;
  const int64_t context_length;   // positions that tables have rows for
  const int64_t cache_head_size;  // of every layer's cached keys and values
  OnnxGraph graph;
  std::vector<std::string> notes;  // sentences
  // Matrices that keep the file's codes, and those whose codes are quantized again, by the type of
  // the file.
  std::map<std::string, int64_t> kept, coded_again;
  // The cache inputs and outputs, keys of all layers before values of all layers, states last.
  std::vector<OnnxValueInfo> keys, values, states, present_keys, present_values, present_states;
  std::vector<std::pair<RopeSpec, RopeValues>> ropes;  // each once

  void Note(std::string sentence);  // each once

  // Graph inputs' derivatives, made when first asked for.
  std::string KeyCounts();      // [B] int32: positions of each sequence, less one
  std::string TotalLength();    // int32 scalar: T
  std::string TotalLength64();  // int64 scalar: T
  std::string PositionIds();    // [B, S] int64

  // "/model/layers.3/attn": of nodes; "model.layers.3.attn": of weights.
  static std::string WeightName(const std::string& node_name);

  // A small fp32 initializer, made when it is written.
  std::string Floats(const std::string& name, std::vector<int64_t> dims,
                     std::function<std::vector<float>()> make);
  std::vector<float> ReadVector(Role role, int layer, Part part = Part::kWeight,
                                int expert = -1) const;

  std::string Reshape(const std::string& name, const std::string& x,
                      const std::vector<int64_t>& shape);
  // Parts along the last axis.
  std::vector<std::string> Split(const std::string& name, const std::string& x,
                                 const std::vector<int64_t>& sizes, int64_t axis = -1);
  std::string Scaled(const std::string& name, const std::string& x, const Scale& scale);
  std::string SoftCapped(const std::string& name, const std::string& x, double cap);
  std::string Cast(const std::string& name, const std::string& x, OnnxType type);

  // [B, S, heads * size] with zeros after each head so that it has `to` elements, and back.
  std::string PadHeads(const std::string& name, const std::string& x, int64_t heads, int64_t size,
                       int64_t to);
  std::string CutHeads(const std::string& name, const std::string& x, int64_t heads, int64_t size,
                       int64_t to);

 private:
  std::string key_counts_, total_, total64_, position_ids_, lengths_;
  std::string Lengths();  // [B, 1] int64
};

// value as a double, rounded as a fact says; halves to even.
double RoundedTo(double value, Rounding rounding);
// The factor that a scale is: 1 / value where it divides.
double FactorOf(const Scale& scale);

}  // namespace lockstep::genai
