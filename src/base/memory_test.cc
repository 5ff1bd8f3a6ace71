#include "base/memory.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(AvailableMemory, IsMoreThanATestNeedsAndLessThanAnAddressSpace) {
  EXPECT_GT(AvailableMemory(), uint64_t{16} << 20);
  EXPECT_LT(AvailableMemory(), uint64_t{1} << 47);
}

}  // namespace
}  // namespace lockstep
