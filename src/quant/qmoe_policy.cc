#include "quant/qmoe_policy.h"

#include <algorithm>
#include <array>

#include "base/quoted.h"
#include "quant/code_bits.h"
#include "quant/sm80_tiles.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 5> kActivations = {"gelu", "identity", "relu", "silu",
                                                          "swiglu"};
constexpr std::array<int64_t, 4> kBlocks = {16, 32, 64, 128};  // with golden runs

int64_t RoundUp(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

QMoeDecision No(QMoeFallback fallback, std::string reason) {
  return {.plan = {}, .fallback = fallback, .reason = std::move(reason)};
}

using Check = std::optional<QMoeDecision>;

// What no provider takes.
Check CheckRequest(const QMoeRequest& r) {
  if (std::find(kActivations.begin(), kActivations.end(), r.activation) == kActivations.end())
    return No(
        QMoeFallback::kPlainOperators,
        fmt::format("the activation {} is none that QMoE has on the CPU ({}); write the experts "
                    "as plain operators",
                    Quoted(r.activation), fmt::join(kActivations, ", ")));
  if (r.experts < 1 || r.hidden < 1 || r.inter < 1)
    return No(QMoeFallback::kPlainOperators,
              fmt::format("{} experts of hidden size {} and inter size {} are no experts",
                          r.experts, r.hidden, r.inter));
  if (r.ep == ExecutionProvider::kOther)
    return No(
        QMoeFallback::kOtherProvider,
        "QMoE is proved on the CPU and written by the rules of CUDA; of other providers nothing "
        "is known but a report of wrong 4-bit experts on NvTensorRTRTX (onnxruntime #29635); run "
        "the experts on the CPU");
  if (r.bits != 2 && r.bits != 3 && r.bits != 4 && r.bits != 8)
    return No(QMoeFallback::kFourBits,
              fmt::format("QMoE has codes of 2, 3, 4 and 8 bits, not of {}; use 4", r.bits));
  if (r.block != 0 && std::find(kBlocks.begin(), kBlocks.end(), r.block) == kBlocks.end())
    return No(QMoeFallback::kOtherBlock, fmt::format("blocks of {} are not proved; those of {} are",
                                                     r.block, fmt::join(kBlocks, ", ")));
  if (r.hidden * r.bits % 8 != 0) {
    if (r.bits < 4 && r.hidden % 2 == 0)
      return No(
          QMoeFallback::kFourBits,
          fmt::format("a row of {} codes of {} bits does not fill bytes; use 4", r.hidden, r.bits));
    return No(QMoeFallback::kDequantized,
              fmt::format("a row of {} codes of {} bits does not fill bytes; write MoE with float "
                          "weights",
                          r.hidden, r.bits));
  }
  if (r.block > 0 && r.hidden % r.block != 0)
    return No(
        QMoeFallback::kOtherBlock,
        fmt::format("blocks of {} do not divide the hidden size {}, and CUDA's kernels need whole "
                    "blocks; use smaller ones, or one scale per channel",
                    r.block, r.hidden));
  return {};
}

// Whole bytes, CUDA's alignment, whole blocks, whole tiles.
int64_t FilledInter(const QMoeRequest& r, bool tiled) {
  int64_t inter = RoundUp(r.inter, 8);
  if (r.block > 0) inter = RoundUp(inter, r.block);
  if (tiled) inter = RoundUp(inter, 64);
  return r.ep == ExecutionProvider::kCuda ? std::max<int64_t>(inter, 16) : inter;
}

// 3 bits: the raw profile, the same on both providers. 2 bits: what of it is known.
Check CheckFewBits(const QMoeRequest& r) {
  if (r.bits == 3) {
    if (r.activation != "swiglu" || r.activations == DType::kF32)
      return No(QMoeFallback::kFourBits,
                "codes of 3 bits need swiglu and float16 or bfloat16 activations; use 4 bits");
    if (r.block != 32 && r.block != 64 && r.block != 128)
      return No(QMoeFallback::kOtherBlock, "codes of 3 bits need blocks of 32, 64 or 128");
    if (r.zeros != ZeroPoints::kNone)
      return No(QMoeFallback::kSymmetric, "codes of 3 bits have no zero points");
  }
  if (r.bits == 2) {
    if (r.ep == ExecutionProvider::kCuda)
      return No(QMoeFallback::kFourBits,
                "codes of 2 bits are for newer CUDA builds only and not proved; use 4 bits");
    const int64_t inter = FilledInter(r, false);
    const int64_t fc1_rows = inter * (r.activation == "swiglu" ? 2 : 1);
    if (r.block > 0 &&
        ((fc1_rows % 128 == 0 && r.hidden % 32 == 0) || (r.hidden % 128 == 0 && inter % 32 == 0)))
      return No(
          QMoeFallback::kFourBits,
          "with blocks of 2 bits and rows in 128s the CPU takes a look-up kernel, whose rounding "
          "of activations nothing here reproduces; use 4 bits, or 2 bits per channel");
  }
  return {};
}

Check CheckCpu(const QMoeRequest& r) {
  if (r.activations != DType::kBF16 || r.bits == 3) return {};
  const bool tiled = r.bits == 4 && r.activation == "swiglu" && r.zeros == ZeroPoints::kNone &&
                     r.block >= 32 && r.hidden % 64 == 0;
  if (!tiled)
    return No(
        QMoeFallback::kOtherType,
        "the CPU has bfloat16 experts as 4-bit tiles only (swiglu, blocks of 32, 64 or 128, no "
        "zero points, hidden size in 64s); use float16 activations");
  return {};
}

Check CheckCuda(const QMoeRequest& r) {
  if (r.activations == DType::kF32)
    return No(
        QMoeFallback::kOtherType,
        "CUDA's QMoE takes float16 and bfloat16, and a float node runs on the CPU without a word; "
        "use float16 activations");
  if (r.hidden < 16 || r.hidden % 8 != 0)
    return No(
        QMoeFallback::kOtherProvider,
        fmt::format("CUDA's QMoE needs a hidden size in 8s from 16 on, found {}; run the experts "
                    "on the CPU",
                    r.hidden));
  if (r.block == 0 && r.zeros == ZeroPoints::kCodes)
    return No(QMoeFallback::kOtherBlock,
              "CUDA has no zero points per channel; use blocks of 64 or 128 (or no zero points)");
  if (r.block == 16) return No(QMoeFallback::kOtherBlock, "CUDA has no blocks of 16");
  if (r.block == 32 && r.zeros == ZeroPoints::kCodes)
    return No(QMoeFallback::kOtherBlock, "CUDA has zero points for blocks of 64 and 128 only");
  return {};
}

// Tiles where they are asked for and fit, and for bfloat16 on the CPU, which has nothing else.
bool Tiled(const QMoeRequest& r) {
  if (r.ep == ExecutionProvider::kCpu) return r.activations == DType::kBF16 && r.bits == 4;
  return r.tiled && (r.bits == 4 || r.bits == 8) && r.zeros == ZeroPoints::kNone &&
         r.hidden % 64 == 0;
}

std::string ProofOf(const QMoeRequest& r, bool tiled) {
  if (r.ep == ExecutionProvider::kCpu) return tiled ? "on the CPU, tiles included" : "on the CPU";
  if (!tiled) return "by the CPU on the same file; CUDA tiles it at load";
  // The CPU's shared kernel: 4 bits, swiglu, blocks.
  if (r.bits == 4 && r.block >= 32 && r.activation == "swiglu")
    return "by the CPU on the same file, tiles included";
  return "by the bytes of the runtime's own packer; not run: the CPU would read these tiles as raw "
         "codes, or refuses them";
}

QMoePlan Write(const QMoeRequest& r) {
  const bool tiled = Tiled(r);
  QMoePlan plan{
      .format = tiled ? "qmoe_sm80" : "qmoe",
      .recipe = {.bits = r.bits, .block = r.block, .zeros = r.zeros, .scale_type = r.activations}};
  plan.inter = FilledInter(r, tiled);
  plan.attributes = {{"activation_type", std::string(r.activation)},
                     {"expert_weight_bits", int64_t{r.bits}},
                     {"normalize_routing_weights", int64_t{1}},
                     {"weights_prepacked", int64_t{tiled ? 1 : 0}}};
  if (r.block > 0) plan.attributes.emplace_back("block_size", r.block);
  if (r.activation == "swiglu") plan.attributes.emplace_back("swiglu_fusion", int64_t{1});
  if (r.accuracy_level != 0) plan.attributes.emplace_back("accuracy_level", r.accuracy_level);

  const int64_t fc1_rows = plan.inter * (r.activation == "swiglu" ? 2 : 1);
  const auto shapes = [&](int64_t rows, int64_t cols, auto& codes, auto& scales, auto& zeros) {
    codes = {r.experts, rows, PackedBytes(cols, r.bits)};
    scales = {r.experts, rows};
    if (r.block > 0) scales.push_back(cols / r.block);
    if (r.zeros == ZeroPoints::kNone) return;
    if (r.block > 0)
      zeros = {r.experts, rows, PackedBytes(cols / r.block, r.bits)};
    else
      zeros = {r.experts, PackedBytes(rows, r.bits)};
  };
  shapes(fc1_rows, r.hidden, plan.fc1_codes, plan.fc1_scales, plan.fc1_zero_points);
  shapes(r.hidden, plan.inter, plan.fc2_codes, plan.fc2_scales, plan.fc2_zero_points);
  plan.int8_activations =
      !tiled && r.block > 0 && (r.bits == 8 || (r.bits == 4 && r.accuracy_level == 4));
  plan.proved = ProofOf(r, tiled);
  return plan;
}

// The block that takes the place of one that does not do: the largest smaller one that divides the
// hidden size and that the provider takes, then larger ones; else one scale per channel.
int64_t OtherBlock(const QMoeRequest& r) {
  int64_t least = 16;
  if (r.ep == ExecutionProvider::kCuda) least = r.zeros == ZeroPoints::kCodes ? 64 : 32;
  if (r.bits == 3) least = std::max<int64_t>(least, 32);
  std::optional<int64_t> below, above;
  for (const int64_t block : kBlocks) {
    if (block < least || block == r.block || r.hidden % block != 0) continue;
    if (block < r.block)
      below = block;
    else if (!above)
      above = block;
  }
  if (below) return *below;
  return above.value_or(0);
}

}  // namespace

ExecutionProvider ExecutionProviderOf(std::string_view name) {
  if (name == "cpu") return ExecutionProvider::kCpu;
  if (name == "cuda") return ExecutionProvider::kCuda;
  return ExecutionProvider::kOther;
}

std::string_view ExecutionProviderName(ExecutionProvider ep) {
  switch (ep) {
    case ExecutionProvider::kCpu:
      return "cpu";
    case ExecutionProvider::kCuda:
      return "cuda";
    case ExecutionProvider::kOther:
      break;
  }
  return "other";
}

std::string_view QMoeFallbackText(QMoeFallback fallback) {
  switch (fallback) {
    case QMoeFallback::kNone:
      return "none needed";
    case QMoeFallback::kOtherBlock:
      return "another block size";
    case QMoeFallback::kSymmetric:
      return "no zero points";
    case QMoeFallback::kFourBits:
      return "4 bits";
    case QMoeFallback::kOtherType:
      return "float16 activations";
    case QMoeFallback::kOtherProvider:
      return "the experts on the CPU";
    case QMoeFallback::kDequantized:
      return "MoE with float weights";
    case QMoeFallback::kPlainOperators:
      return "plain operators";
  }
  return "";
}

QMoeDecision DecideQMoe(const QMoeRequest& request) {
  if (const auto no = CheckRequest(request)) return *no;
  if (const auto no = CheckFewBits(request)) return *no;
  if (const auto no =
          request.ep == ExecutionProvider::kCpu ? CheckCpu(request) : CheckCuda(request))
    return *no;
  return {.plan = Write(request), .fallback = QMoeFallback::kNone, .reason = ""};
}

Result<QMoePlan> PlanQMoe(const QMoeRequest& request) {
  QMoeDecision decision = DecideQMoe(request);
  if (!decision.plan)
    return UnsupportedError("QMoE: {} (fallback: {})", decision.reason,
                            QMoeFallbackText(decision.fallback));
  return *std::move(decision.plan);
}

std::optional<QMoeRequest> FallbackRequest(const QMoeRequest& request) {
  QMoeRequest next = request;
  // Every turn leaves a rule behind for good; the bound is for a mistake in that.
  for (int turn = 0; turn < 16; ++turn) {
    const QMoeDecision decision = DecideQMoe(next);
    switch (decision.fallback) {
      case QMoeFallback::kNone:
        return next;
      case QMoeFallback::kOtherBlock:
        next.block = OtherBlock(next);
        // One scale per channel is all that is left, and zero points or 3 bits go without.
        if (next.block == 0 && next.ep == ExecutionProvider::kCuda) next.zeros = ZeroPoints::kNone;
        if (next.block == 0 && next.bits == 3) next.bits = 4;
        break;
      case QMoeFallback::kSymmetric:
        next.zeros = ZeroPoints::kNone;
        break;
      case QMoeFallback::kFourBits:
        next.bits = 4;
        break;
      case QMoeFallback::kOtherType:
        next.activations = DType::kF16;
        break;
      case QMoeFallback::kOtherProvider:
        next.ep = ExecutionProvider::kCpu;
        break;
      case QMoeFallback::kDequantized:
      case QMoeFallback::kPlainOperators:
        return {};
    }
  }
  return {};
}

std::vector<QMoePolicyRow> PolicyTable() {
  std::vector<QMoePolicyRow> rows;
  for (const int bits : {2, 3, 4, 8})
    for (const int64_t block : {int64_t{0}, int64_t{16}, int64_t{32}, int64_t{64}, int64_t{128}})
      for (const ZeroPoints zeros : {ZeroPoints::kNone, ZeroPoints::kCodes})
        for (const ExecutionProvider ep : {ExecutionProvider::kCpu, ExecutionProvider::kCuda})
          for (const bool tiled : {false, true}) {
            if (tiled && ep == ExecutionProvider::kCpu) continue;
            QMoePolicyRow row{
                .request = {.bits = bits,
                            .block = block,
                            .zeros = zeros,
                            .ep = ep,
                            .activations = ep == ExecutionProvider::kCpu && bits != 3 ? DType::kF32
                                                                                      : DType::kF16,
                            .experts = 4,
                            .hidden = 128,
                            .inter = 128,
                            .tiled = tiled},
                .decision = {}};
            row.decision = DecideQMoe(row.request);
            // Tiles that do not come to be are no row of their own.
            if (tiled && !(row.decision.plan && row.decision.plan->format == "qmoe_sm80")) continue;
            rows.push_back(std::move(row));
          }
  return rows;
}

}  // namespace lockstep
