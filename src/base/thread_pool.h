// ThreadPool: a fixed set of threads that split a range of work. Which thread does which piece
// never changes a result: callers give each index its own output.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

class ThreadPool {
 public:
  // >= 1; the caller's thread is one of them. Fewer where the system refuses to start them.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(i) for every i in [0, n), each once, and returns when all are done.
  // Not re-entrant: fn must not call For on the same pool. An exception of fn (bad_alloc) stops the
  // rest and is thrown again here, once no thread runs fn any more.
  void For(size_t n, const std::function<void(size_t)>& fn);

 private:
  void Work(const std::function<void(size_t)>& fn, size_t n);
  void Loop();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  const std::function<void(size_t)>* fn_ = nullptr;
  size_t n_ = 0;
  std::atomic<size_t> next_ = 0;
  std::exception_ptr thrown_;  // guarded by mutex_
  size_t busy_ = 0;
  uint64_t generation_ = 0;
  bool stop_ = false;
};

// The number of cores this process may use: its affinity mask, and the quota of its control group
// (a container with two cores' time on a large machine gets 2). At least 1.
int AvailableCores();

}  // namespace lockstep
