// Every kernel against its plain twin (engine/kernel_checks.h): the input's first byte chooses the
// table and the check, the others the shapes and the numbers.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "engine/kernel_checks.h"

namespace lockstep {
namespace {

Problem Check(const KernelTable& table, uint8_t which, Source& source) {
  const auto& kind = kPackedKinds[static_cast<size_t>(source.Below(std::size(kPackedKinds)))];
  switch (which % 8) {
    case 0:
      return kind.codes ? CheckInt8(table, kind.kind, source) : Problem();
    case 1:
      return CheckF32(table, kind.kind, source);
    case 2:
      return CheckBF16(table, source);
    case 3:
      return CheckQuantize(table, source);
    case 4:
      return CheckRows(table, source);
    case 5:
      return CheckNotFinite(table, source);
    default:
      break;
  }
  const AttentionCase drawn = DrawAttention(source);
  return which % 8 == 6 ? CheckAttention(table, drawn, source)
                        : CheckAttentionNotFinite(table, drawn, source);
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto tables = lockstep::KernelTables();
  const lockstep::KernelTable& table = *tables[data[0] / 8 % tables.size()];
  if (!table.runs_here()) return 0;
  lockstep::Source source(std::span(data + 1, size - 1));
  if (const lockstep::Problem problem = lockstep::Check(table, data[0], source)) {
    std::fprintf(stderr, "%s\n", problem->c_str());
    std::abort();
  }
  return 0;
}
