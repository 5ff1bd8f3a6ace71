// The one policy for quantized experts: from what is wanted (bits, granularity, zero points,
// execution provider, sizes, activation) to how a QMoE node must be written, or to what takes its
// place. Exporters ask PlanQMoe before they write, checkers ask QMoeDangersOf about what others
// wrote; the whole table is printed by `lockstep quantize --policies` and is docs/qmoe.md.
//
// Why there must be one: an absent weights_prepacked means raw codes on the CPU and CUTLASS tiles
// on CUDA, and neither notices; normalize_routing_weights is ignored by one of the CPU's two
// kernels; scales of one shape too many make the CPU read zero points wrong. The rules were
// measured on ONNX Runtime 1.32's CPU; what is said of CUDA is its documentation and source, and is
// proved as far as a CPU can: it runs the same file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "quant/grid.h"
#include "quant/onnx_formats.h"

namespace lockstep {

enum class ExecutionProvider : uint8_t { kCpu, kCuda, kOther };
// "cpu", "cuda"; all others (webgpu, dml, NvTensorRtRtx, ...) are kOther.
ExecutionProvider ExecutionProviderOf(std::string_view name);
std::string_view ExecutionProviderName(ExecutionProvider ep);

struct QMoeRequest {
  int bits = 4;
  int64_t block = 32;  // 0: one scale per output channel
  ZeroPoints zeros = ZeroPoints::kNone;
  ExecutionProvider ep = ExecutionProvider::kCpu;
  // Of the node's input, output and scales.
  DType activations = DType::kF32;
  std::string_view activation = "swiglu";  // relu, silu, gelu (tanh form), identity, swiglu
  int64_t experts = 0, hidden = 0, inter = 0;
  // CUDA: store SM80 tiles (weights_prepacked=1) rather than raw codes that are tiled at load (0).
  bool tiled = false;
  // 4 lets the CPU round activations to int8 with 4-bit blocks, which is faster; 0 does not.
  int64_t accuracy_level = 0;
};

using QMoeAttribute = std::variant<int64_t, float, std::string>;

// How the node is written. [E, N, ...] with N the rows of FC1 (inter, twice for swiglu) and FC2
// (hidden).
struct QMoePlan {
  std::string_view format;  // OnnxFormat::name: "qmoe", "qmoe_sm80"
  CodeRecipe recipe;
  // Rows of FC1 and columns of FC2 are filled with zeros up to here, so that blocks divide them:
  // every activation maps 0 to 0, so no output changes. Gate and up each have this many rows.
  int64_t inter = 0;
  // All that the policy decides; k and the activation's numbers are the model's.
  std::vector<std::pair<std::string, QMoeAttribute>> attributes;
  std::vector<int64_t> fc1_codes, fc1_scales, fc2_codes, fc2_scales;
  std::vector<int64_t> fc1_zero_points, fc2_zero_points;  // empty: no such input
  // The CPU rounds the activations of both matrices to int8, block by block, whatever is asked.
  bool int8_activations = false;
  std::string proved;  // on what, in words
};

// What to do where there is no plan.
enum class QMoeFallback : uint8_t {
  kNone,           // there is a plan
  kOtherBlock,     // block-wise with another block size
  kSymmetric,      // the same without zero points
  kFourBits,       // the same with 4 bits
  kOtherType,      // float16 activations
  kOtherProvider,  // the experts on the CPU
  kDequantized,    // MoE with float weights
  kPlainOperators  // MatMulNBits per expert, or float matrices
};
std::string_view QMoeFallbackText(QMoeFallback fallback);

struct QMoeDecision {
  std::optional<QMoePlan> plan;
  QMoeFallback fallback = QMoeFallback::kNone;
  std::string reason;  // a sentence: why there is no plan, and what to do
};

QMoeDecision DecideQMoe(const QMoeRequest& request);
// The plan, or the reason as an error.
Result<QMoePlan> PlanQMoe(const QMoeRequest& request);
// The request that a fallback makes of it, decided in turn, until there is a plan; nothing where it
// ends at another operator.
std::optional<QMoeRequest> FallbackRequest(const QMoeRequest& request);

// --- The table ---

struct QMoePolicyRow {
  QMoeRequest request;    // without sizes
  QMoeDecision decision;  // for sizes that fit every rule
};
// Bits x granularity x zero points x provider, in the order in which it is printed.
std::vector<QMoePolicyRow> PolicyTable();
// The page docs/qmoe.md.
std::string QMoePage();

// --- Nodes that somebody else wrote ---

// What a checker knows of a node; absent: the attribute is not there.
struct QMoeNode {
  int64_t bits = 4;
  std::optional<int64_t> block_size, weights_prepacked, normalize_routing_weights, swiglu_fusion;
  std::string activation = "relu", quant_type = "int";
  DType activations = DType::kF32;
  bool constant_weights = true;
  bool router_weights = false;
  size_t fc1_rank = 3, fc2_rank = 3;
  std::optional<size_t> fc1_scale_rank, fc2_scale_rank;  // absent: no scales
  bool zero_points = false;
  int64_t hidden = 0, inter = 0;  // 0: not known
};

struct QMoeDanger {
  std::string_view id;
  ExecutionProvider ep;         // on which it strikes
  std::string_view what;        // the combination
  std::string_view happens;     // what the runtime makes of it
  std::string_view do_instead;  // and what to write
  // The node is never right on this provider. Else it means something else on another.
  bool broken = true;
  bool (*in)(const QMoeNode& node) = nullptr;
};
std::span<const QMoeDanger> QMoeDangers();
// Those in this node on this provider.
std::vector<const QMoeDanger*> QMoeDangersOf(const QMoeNode& node, ExecutionProvider ep);
// The first as an error: `place: what (id): happens; do_instead`.
Status CheckQMoeNode(const QMoeNode& node, ExecutionProvider ep, std::string_view place);

}  // namespace lockstep
