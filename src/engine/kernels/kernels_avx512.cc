#define LS_ISA avx512
#include "engine/kernels/kernels.inc"

namespace lockstep {
namespace {

bool RunsHere() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

extern const KernelTable kKernelsAvx512;
const KernelTable kKernelsAvx512 =
    LS_KERNEL_TABLE("avx512", "AVX-512 F, BW, DQ, VL; int8 products by AVX2's instructions");

}  // namespace lockstep
