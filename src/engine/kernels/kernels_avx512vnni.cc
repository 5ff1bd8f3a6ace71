#define LS_ISA avx512vnni
#include "engine/kernels/kernels.inc"

namespace lockstep {
namespace {

bool RunsHere() {
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

extern const KernelTable kKernelsAvx512Vnni;
const KernelTable kKernelsAvx512Vnni =
    LS_KERNEL_TABLE("avx512vnni", "AVX-512 with VNNI: four int8 products in one instruction");

}  // namespace lockstep
