#include "engine/kernels/kernel_table.h"

namespace lockstep {

#if defined(__x86_64__)
extern const KernelTable kKernelsAvx512Bf16, kKernelsAvx512Vnni, kKernelsAvx512, kKernelsAvxVnni,
    kKernelsAvx2;
#elif defined(__aarch64__)
extern const KernelTable kKernelsNeon;
#endif
extern const KernelTable kKernelsScalar;

namespace {
constexpr const KernelTable* kTables[] = {
#if defined(__x86_64__)
    &kKernelsAvx512Bf16, &kKernelsAvx512Vnni, &kKernelsAvx512, &kKernelsAvxVnni, &kKernelsAvx2,
#elif defined(__aarch64__)
    &kKernelsNeon,
#endif
    &kKernelsScalar,
};
}  // namespace

std::span<const KernelTable* const> KernelTables() { return kTables; }

const KernelTable& ChooseKernels(std::string_view wanted, std::string_view& problem) {
  problem = {};
  for (const KernelTable* table : kTables) {
    if (wanted.empty() ? table->runs_here() : table->name == wanted) {
      if (!table->runs_here()) problem = "this processor cannot run those kernels";
      return *table;
    }
  }
  problem = "no kernels have that name";
  return kKernelsScalar;
}

}  // namespace lockstep
