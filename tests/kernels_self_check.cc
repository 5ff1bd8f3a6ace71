// A program for processors that only an emulator has here (tools/check_aarch64.sh): some of what
// src/engine/kernels_test.cc checks, without a test library.
#include <cstdio>

#include "engine/kernel_checks.h"

namespace lockstep {
namespace {

Problem CheckAll(const KernelTable& table, uint64_t seed) {
  Source source(seed);
  for (const PackedKindInfo& kind : kPackedKinds) {
    if (kind.codes)
      if (Problem problem = CheckInt8(table, kind.kind, source)) return problem;
    if (Problem problem = CheckF32(table, kind.kind, source)) return problem;
  }
  for (const auto check : {CheckBF16, CheckQuantize, CheckRows, CheckNotFinite})
    if (Problem problem = check(table, source)) return problem;
  for (int i = 0; i < 20; ++i) {
    const AttentionCase drawn = DrawAttention(source);
    if (Problem problem = CheckAttention(table, drawn, source)) return problem;
    if (Problem problem = CheckAttentionNotFinite(table, drawn, source)) return problem;
  }
  return {};
}

int Main() {
  int tables = 0;
  for (const KernelTable* table : KernelTables()) {
    if (!table->runs_here()) continue;
    ++tables;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      if (const Problem problem = CheckAll(*table, seed)) {
        std::printf("seed %d: %s\n", static_cast<int>(seed), problem->c_str());
        return 1;
      }
    }
    std::printf("%s: equal to its twins\n", std::string(table->name).c_str());
  }
  if (tables < 2) std::printf("expected two tables to run here, found %d\n", tables);
  return tables < 2 ? 1 : 0;
}

}  // namespace
}  // namespace lockstep

int main() { return lockstep::Main(); }
