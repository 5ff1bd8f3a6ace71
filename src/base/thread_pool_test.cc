#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <vector>

namespace lockstep {
namespace {

TEST(ThreadPool, RunsEachIndexOnce) {
  ThreadPool pool(3);
  for (const size_t n : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> calls(n);
    pool.For(n, [&](size_t i) { ++calls[i]; });
    for (const auto& count : calls) EXPECT_EQ(count, 1);
  }
}

TEST(ThreadPool, AnExceptionComesOutWhereForWasCalledAndThePoolStaysUsable) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.For(100,
                          [](size_t i) {
                            if (i % 7 == 3) throw std::bad_alloc();
                          }),
                 std::bad_alloc);
  }
  std::atomic<int> calls = 0;
  pool.For(100, [&](size_t) { ++calls; });
  EXPECT_EQ(calls, 100);
}

TEST(AvailableCores, IsAtLeastOne) { EXPECT_GE(AvailableCores(), 1); }

}  // namespace
}  // namespace lockstep
