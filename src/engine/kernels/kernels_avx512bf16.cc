#define LS_ISA avx512bf16
#include "engine/kernels/kernels.inc"

namespace lockstep {
namespace {

bool RunsHere() {
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bf16");
}

}  // namespace

extern const KernelTable kKernelsAvx512Bf16;
const KernelTable kKernelsAvx512Bf16 =
    LS_KERNEL_TABLE("avx512bf16", "AVX-512 with VNNI and BF16: also two bf16 products in one");

}  // namespace lockstep
