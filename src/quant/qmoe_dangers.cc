// QMoE nodes that ONNX Runtime 1.32 takes and gets wrong, or that mean something else on another
// provider. Measured on the CPU, one by one (the goldens under tests/golden/ort-ops); CUDA's side
// is its documentation and source.
#include <algorithm>

#include "base/quoted.h"
#include "quant/qmoe_policy.h"

namespace lockstep {
namespace {

bool PerChannel(const QMoeNode& node) { return node.block_size.value_or(0) <= 0; }
bool ScaleRank(const QMoeNode& node, size_t rank) {
  return node.fc1_scale_rank == rank || node.fc2_scale_rank == rank;
}

constexpr ExecutionProvider kCpu = ExecutionProvider::kCpu, kCuda = ExecutionProvider::kCuda;

constexpr QMoeDanger kDangers[] = {
    {"scale-rank-3-with-zero-points", kCpu,
     "constant 4-bit weights per channel with zero points and scales of the shape [E, N, 1]",
     "zero points are read with a wrong stride: wrong output, it differs from run to run",
     "write the scales as [E, N]", true,
     [](const QMoeNode& n) {
       return n.bits == 4 && PerChannel(n) && n.zero_points && n.constant_weights &&
              ScaleRank(n, 3);
     }},
    {"no-scales", kCpu, "an input of scales left out, as the schema allows", "crash (SIGSEGV)",
     "give the scales", true,
     [](const QMoeNode& n) { return !n.fc1_scale_rank || !n.fc2_scale_rank; }},
    {"rank-2-weights", kCpu, "constant weights of 2 dimensions",
     "crash (SIGABRT) when they are "
     "prepacked",
     "write them as [E, N, K*bits/8]", true,
     [](const QMoeNode& n) { return n.constant_weights && (n.fc1_rank != 3 || n.fc2_rank != 3); }},
    {"fusion-without-swiglu", kCpu, "swiglu_fusion with another activation than swiglu",
     "FC1 counts as twice as wide, and memory past the weights is read: garbage or NaN",
     "leave swiglu_fusion out", true,
     [](const QMoeNode& n) {
       return n.activation != "swiglu" && n.swiglu_fusion.value_or(0) != 0;
     }},
    {"unknown-quant-type", kCpu, "a quant_type other than \"int\"",
     "it is ignored, and integers are read: wrong values", "write \"int\", or leave it out", true,
     [](const QMoeNode& n) { return n.quant_type != "int"; }},
    {"normalize-not-said", kCpu, "normalize_routing_weights absent or 0, without router_weights",
     "the CPU normalizes all the same where codes are raw, and CUDA and tiled codes do not: other "
     "mixing weights",
     "write normalize_routing_weights=1, or give router_weights", false,
     [](const QMoeNode& n) {
       return n.normalize_routing_weights.value_or(0) == 0 && !n.router_weights;
     }},
    {"normalize-not-said-cuda", kCuda,
     "normalize_routing_weights absent or 0, without router_weights",
     "CUDA keeps the softmax over all experts, the CPU's raw kernel divides by the chosen ones' "
     "sum: "
     "other mixing weights",
     "write normalize_routing_weights=1, or give router_weights", false,
     [](const QMoeNode& n) {
       return n.normalize_routing_weights.value_or(0) == 0 && !n.router_weights;
     }},
    {"tiled-8-bit", kCpu, "weights_prepacked=1 with codes of another width than 4 bits",
     "the tiled bytes are read as raw ones: garbage of plausible size",
     "write raw codes and weights_prepacked=0", true,
     [](const QMoeNode& n) { return n.weights_prepacked == 1 && n.bits != 4; }},
    {"prepacked-not-said", kCuda, "weights_prepacked absent or -1",
     "CUDA reads the bytes as SM80 tiles, the CPU as raw codes: garbage of plausible size on one "
     "of "
     "them (the symptom of onnxruntime #29138)",
     "write weights_prepacked=0 with raw codes, or 1 with tiles", false,
     [](const QMoeNode& n) { return n.weights_prepacked.value_or(-1) == -1; }},
    {"float-on-cuda", kCuda, "float activations", "the node runs on the CPU without a word",
     "use float16 or bfloat16", false,
     [](const QMoeNode& n) { return n.activations == DType::kF32; }},
    {"channel-zero-points", kCuda, "zero points without blocks", "not supported by CUDA's kernels",
     "use blocks of 64 or 128, or no zero points", true,
     [](const QMoeNode& n) { return n.zero_points && PerChannel(n); }},
    {"small-block-zero-points", kCuda, "zero points with blocks below 64",
     "not supported by CUDA's kernels", "use blocks of 64 or 128, or no zero points", true,
     [](const QMoeNode& n) { return n.zero_points && !PerChannel(n) && *n.block_size < 64; }},
    {"small-block", kCuda, "blocks other than 32, 64 and 128", "not supported by CUDA's kernels",
     "use one of these, or one scale per channel", true,
     [](const QMoeNode& n) {
       return !PerChannel(n) && n.block_size != 32 && n.block_size != 64 && n.block_size != 128;
     }},
    {"partial-blocks", kCuda, "a hidden or inter size that blocks do not divide",
     "the CPU computes it, CUDA's grouped kernels need whole blocks",
     "use smaller blocks, or fill the inter size with zeros", true,
     [](const QMoeNode& n) {
       return !PerChannel(n) && (n.hidden % *n.block_size != 0 || n.inter % *n.block_size != 0);
     }},
    {"unaligned", kCuda, "a hidden or inter size that is no multiple of 8",
     "CUDA's kernels read 16 bytes at a time",
     "fill the inter size with zeros, or run the experts on the CPU", true,
     [](const QMoeNode& n) { return n.hidden % 8 != 0 || n.inter % 8 != 0; }},
};

}  // namespace

std::span<const QMoeDanger> QMoeDangers() { return kDangers; }

std::vector<const QMoeDanger*> QMoeDangersOf(const QMoeNode& node, ExecutionProvider ep) {
  std::vector<const QMoeDanger*> found;
  for (const QMoeDanger& danger : kDangers)
    if (danger.ep == ep && danger.in(node)) found.push_back(&danger);
  return found;
}

Status CheckQMoeNode(const QMoeNode& node, ExecutionProvider ep, std::string_view place) {
  const auto dangers = QMoeDangersOf(node, ep);
  if (dangers.empty()) return {};
  const QMoeDanger& first = *dangers.front();
  return InputError("{}: {} on {} ({}): {}; {}{}", OneLine(place, 200), first.what,
                    ExecutionProviderName(ep), first.id, first.happens, first.do_instead,
                    dangers.size() == 1 ? "" : fmt::format(" (and {} more)", dangers.size() - 1));
}

}  // namespace lockstep
