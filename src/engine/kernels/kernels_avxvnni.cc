#define LS_ISA avxvnni
#include <cpuid.h>

#include "engine/kernels/kernels.inc"

namespace lockstep {
namespace {

// GCC 12 knows no name for it in __builtin_cpu_supports: leaf 7.1, EAX bit 4.
bool RunsHere() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}

}  // namespace

extern const KernelTable kKernelsAvxVnni;
const KernelTable kKernelsAvxVnni =
    LS_KERNEL_TABLE("avxvnni", "AVX2 with VNNI: four int8 products in one instruction");

}  // namespace lockstep
