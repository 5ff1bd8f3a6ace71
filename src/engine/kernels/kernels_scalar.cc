#define LS_ISA scalar
#include "engine/kernels/kernels.inc"

namespace lockstep {
namespace {

bool RunsHere() { return true; }

}  // namespace

extern const KernelTable kKernelsScalar;
const KernelTable kKernelsScalar =
    LS_KERNEL_TABLE("scalar", "any processor: vectors of 16 floats as the compiler lowers them");

}  // namespace lockstep
