// docs/qmoe.md, written from the policy's own tables.
#include "quant/onnx_repack.h"
#include "quant/qmoe_policy.h"

namespace lockstep {
namespace {

std::string Granularity(int64_t block) {
  return block == 0 ? "channel" : fmt::format("block {}", block);
}

std::string Attribute(const std::pair<std::string, QMoeAttribute>& attribute) {
  return std::visit([&](const auto& value) { return fmt::format("{}={}", attribute.first, value); },
                    attribute.second);
}

// Of a row with a plan: the attributes that the row decides, then shapes in letters.
std::string Written(const QMoePlan& plan) {
  std::string text;
  for (const auto& attribute : plan.attributes)
    if (attribute.first == "block_size" || attribute.first == "weights_prepacked")
      text += fmt::format("{}`{}`", text.empty() ? "" : " ", Attribute(attribute));
  return text;
}

std::string Shapes(const QMoePlan& plan) {
  const bool channel = plan.recipe.block == 0;
  std::string text = channel ? "scales `[E, N]`" : "scales `[E, N, K/block]`";
  if (!plan.fc1_zero_points.empty())
    text += channel ? ", zeros `[E, ceil(N*bits/8)]`" : ", zeros `[E, N, ceil(K/block*bits/8)]`";
  return text;
}

// What the fallback of a row ends in, decided by the policy itself.
std::string EndOf(const QMoePolicyRow& row) {
  const auto end = FallbackRequest(row.request);
  if (!end) return std::string(QMoeFallbackText(row.decision.fallback));
  std::string text = fmt::format("{} bits, {}, {}", end->bits, Granularity(end->block),
                                 end->zeros == ZeroPoints::kNone ? "symmetric" : "zero points");
  if (end->ep != row.request.ep) text += ", on the CPU";
  return text;
}

}  // namespace

std::string QMoePage() {
  std::string out =
      "# Quantized experts\n\n"
      "`lockstep quantize --policies > docs/qmoe.md` writes this page from "
      "`src/quant/qmoe_policy.cc`; a test fails when it is old.\n\n"
      "Experts with codes for weights are one node of ONNX, `QMoE` (com.microsoft), whose meaning "
      "depends on the execution provider. This is the one policy by which Lockstep writes such "
      "nodes "
      "and checks those of others. The CPU's side was measured on ONNX Runtime 1.32 "
      "([onnx_ops.md](onnx_ops.md)); CUDA's is its documentation and source, and nothing here was "
      "run "
      "on a GPU: *proved* says what was.\n\n"
      "## What every node says\n\n"
      "- `weights_prepacked`, 0 (raw codes) or 1 (SM80 tiles), never absent: absent means raw on "
      "the "
      "CPU and tiled on CUDA.\n"
      "- `normalize_routing_weights=1`: the CPU's kernel for raw codes normalizes in any case, the "
      "others do not.\n"
      "- `swiglu_fusion=1` with `activation_type=swiglu`, FC1's rows gate0, up0, gate1, up1, ...; "
      "no "
      "`swiglu_fusion` with another activation.\n"
      "- Scales per output channel of 2 dimensions, `[E, N]`, never `[E, N, 1]`.\n"
      "- Whole blocks: the inter size is filled with zeros (which no activation changes) up to a "
      "multiple of the block, of 8, and of 64 for tiles.\n\n"
      "## The table\n\n"
      "For sizes that fit every rule, swiglu, float activations on the CPU (float16 with 3 bits), "
      "float16 on CUDA. N and K are the rows and columns of FC1 and FC2.\n\n"
      "| bits | scale per | zero points | EP | written | shapes | activations | proved |\n"
      "|--:|---|---|---|---|---|---|---|\n";
  for (const QMoePolicyRow& row : PolicyTable()) {
    const QMoeRequest& r = row.request;
    out += fmt::format("| {} | {} | {} | {} | ", r.bits, Granularity(r.block),
                       r.zeros == ZeroPoints::kNone ? "–" : "yes", ExecutionProviderName(r.ep));
    if (row.decision.plan) {
      const QMoePlan& plan = *row.decision.plan;
      out += fmt::format("{} | {} | {} | {} |\n", Written(plan), Shapes(plan),
                         plan.int8_activations ? "int8 per block" : "as they are", plan.proved);
    } else {
      out += fmt::format("no: {} | | | instead: {} |\n", row.decision.reason, EndOf(row));
    }
  }
  out +=
      "\nOn the CPU 4-bit blocks with `accuracy_level=4` round activations to int8 as 8-bit blocks "
      "always do. bfloat16 activations run on the CPU with 4-bit tiles and with 3 bits only. "
      "Activations that the CPU's QMoE lacks (the erf gelu, geglu, relu2) become plain operators, "
      "hidden sizes that do not fill bytes MoE with float weights, and providers other than these "
      "two "
      "run the experts on the CPU.\n\n"
      "## Dangers\n\n"
      "Combinations that a runtime takes without an error. A node that has one is refused by this "
      "name.\n\n| id | EP | what | what happens | instead |\n|---|---|---|---|---|\n";
  for (const QMoeDanger& danger : QMoeDangers())
    out +=
        fmt::format("| `{}` | {} | {} | {} | {} |\n", danger.id, ExecutionProviderName(danger.ep),
                    danger.what, danger.happens, danger.do_instead);
  out +=
      "\n## Codes of a GGUF file\n\n"
      "Which quantized types become codes of `MatMulNBits` or `QMoE` without being quantized "
      "again. "
      "*Exact*: every weight is the same float, bit for bit. The others keep codes and scales and "
      "take "
      "float zero points, which only `MatMulNBits` has: their weights move by roundings of float, "
      "and "
      "an exporter that promises bits must write them dequantized.\n\n"
      "| type | bits | block | exact | why |\n|---|--:|--:|---|---|\n";
  for (const RepackRule& rule : RepackRules())
    out += fmt::format("| {} | {} | {} | {} | {} |\n", rule.type, rule.bits, rule.block,
                       rule.exact ? "yes" : "no", rule.why);
  return out;
}

}  // namespace lockstep
