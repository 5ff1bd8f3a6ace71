#define LS_ISA neon
#include <sys/auxv.h>

#include "engine/kernels/kernels.inc"

namespace lockstep {
namespace {

// Linux' bits of AT_HWCAP: ASIMDHP, ASIMDDP.
bool RunsHere() {
  const unsigned long has = getauxval(AT_HWCAP);
  return (has >> 10 & 1) != 0 && (has >> 20 & 1) != 0;
}

}  // namespace

extern const KernelTable kKernelsNeon;
const KernelTable kKernelsNeon =
    LS_KERNEL_TABLE("neon", "NEON with dot products: four int8 products in one instruction");

}  // namespace lockstep
