#define LS_ISA avx2
#include "engine/kernels/kernels.inc"

namespace lockstep {
namespace {

bool RunsHere() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

extern const KernelTable kKernelsAvx2;
const KernelTable kKernelsAvx2 = LS_KERNEL_TABLE("avx2", "AVX2, FMA and F16C");

}  // namespace lockstep
