#include "export/precision.h"

#include <algorithm>

#include "base/quoted.h"

namespace lockstep {
namespace {

constexpr OnnxType kF32 = OnnxType::kFloat, kF16 = OnnxType::kFloat16, kBF16 = OnnxType::kBFloat16;
constexpr std::nullopt_t kNo = std::nullopt;

// The CPU has no attention in bfloat16, and of float16 only what its operators widen.
// clang-format off
constexpr ExportPrecision kPrecisions[] = {
    {"fp32", 0, kF32, kF32, "every number as float32"},
    {"fp16", 0, kNo,  kF16, "every number as float16"},
    {"bf16", 0, kNo,  kBF16, "every number as bfloat16, logits as float32"},
    {"int8", 8, kF32, kF16, "matrices as 8-bit codes in blocks (MatMulNBits, QMoE, GatherBlockQuantized)"},
    {"int4", 4, kF32, kF16, "matrices as 4-bit codes in blocks"},
};
// clang-format on

}  // namespace

std::span<const ExportPrecision> ExportPrecisions() { return kPrecisions; }

const ExportPrecision* FindExportPrecision(std::string_view name) {
  const auto* it = std::find_if(std::begin(kPrecisions), std::end(kPrecisions),
                                [&](const ExportPrecision& p) { return p.name == name; });
  return it == std::end(kPrecisions) ? nullptr : it;
}

Result<OnnxType> TypeOn(const ExportPrecision& precision, std::string_view provider) {
  if (const auto type = provider == "cuda" ? precision.on_cuda : precision.on_cpu) return *type;
  return UnsupportedError(
      "--precision {} --ep {}: this provider has no attention of that type; use --ep cuda, or "
      "fp32, int8 or int4",
      precision.name, provider);
}

}  // namespace lockstep
