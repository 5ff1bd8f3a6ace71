#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace lockstep {

ThreadPool::ThreadPool(int num_threads) {
  LS_CHECK(num_threads >= 1, "num_threads {}", num_threads);
  // Where the system gives no more threads, those that it gave do the work.
  try {
    workers_.reserve(static_cast<size_t>(num_threads));
    for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { Loop(); });
  } catch (const std::system_error&) {
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Work(const std::function<void(size_t)>& fn, size_t n) {
  try {
    for (size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n;) fn(i);
  } catch (...) {
    next_.store(n, std::memory_order_relaxed);  // nobody starts another
    const std::lock_guard lock(mutex_);
    if (thrown_ == nullptr) thrown_ = std::current_exception();
  }
}

void ThreadPool::For(size_t n, const std::function<void(size_t)>& fn) {
  if (workers_.empty() || n <= 1) {
    for (size_t i = 0; i < n; ++i) fn(i);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    fn_ = &fn;
    n_ = n;
    next_.store(0, std::memory_order_relaxed);
    busy_ = workers_.size();
    ++generation_;
  }
  start_.notify_all();
  Work(fn, n);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void ThreadPool::Loop() {
  uint64_t seen = 0;
  for (;;) {
    std::unique_lock lock(mutex_);
    start_.wait(lock, [&] { return stop_ || generation_ != seen; });
    if (stop_) return;
    seen = generation_;
    const auto& fn = *fn_;
    const size_t n = n_;
    lock.unlock();
    Work(fn, n);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

namespace {

// Whole cores of the control group's quota (cgroup v2: "quota period" or "max period"); a large
// number when there is none.
int QuotaCores() {
  constexpr int kNone = 1 << 20;
  std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "re");
  if (file == nullptr) return kNone;
  long quota = 0, period = 0;
  const bool limited =
      std::fscanf(file, "%ld %ld", &quota, &period) == 2 && quota > 0 && period > 0;
  std::fclose(file);
  return limited ? static_cast<int>(std::max(1L, (quota + period - 1) / period)) : kNone;
}

}  // namespace

int AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, std::min(CPU_COUNT(&set), QuotaCores()));
}

}  // namespace lockstep
