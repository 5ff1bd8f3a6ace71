// SpinPool: threads that walk through one computation together, phase by phase. A decode step has
// some hundred phases of ten microseconds each: workers spin at a barrier for about that long
// before they sleep, and so between two computations.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

class SpinPool {
 public:
  // >= 1, the caller's thread is worker 0. Fewer where the system refuses to start them.
  explicit SpinPool(int num_threads);
  ~SpinPool();
  SpinPool(const SpinPool&) = delete;
  SpinPool& operator=(const SpinPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  // Inside Run: the workers of this one.
  int num_threads() const { return active_; }

  // Calls fn(worker) once on every worker and returns when all have returned. Inside, results that
  // would be denormal are zero, where the processor has a switch for it.
  // alone: on the caller's thread only.
  template <typename Fn>
  void Run(const Fn& fn, bool alone = false) {
    RunCall([](const void* f, int worker) { (*static_cast<const Fn*>(f))(worker); }, &fn, alone);
  }
  // Of the last Run: how often a worker waited longer than phases take.
  uint32_t long_waits() const { return long_waits_.load(std::memory_order_relaxed); }

  // Inside Run: no worker passes before all have come.
  void Barrier();

 private:
  using Call = void (*)(const void* fn, int worker);
  void RunCall(Call call, const void* fn, bool alone);
  void WaitWhile(const std::atomic<uint32_t>& value, uint32_t old);
  void Loop(int worker);

  std::vector<std::thread> threads_;
  int active_ = 1;
  Call call_ = nullptr;
  const void* fn_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_ = 0;  // of Run
  alignas(64) std::atomic<uint32_t> arrived_ = 0;     // at the barrier
  alignas(64) std::atomic<uint32_t> phase_ = 0;       // barriers passed
  alignas(64) std::atomic<uint32_t> running_ = 0;
  alignas(64) std::atomic<uint32_t> long_waits_ = 0;
  std::atomic<bool> stop_ = false;
};

// Worker `worker` of `workers` takes [first, second) of n, in whole multiples of `grain`.
inline std::pair<int64_t, int64_t> Share(int64_t n, int worker, int workers, int64_t grain = 1) {
  const int64_t units = (n + grain - 1) / grain;
  const int64_t begin = units * worker / workers * grain,
                end = units * (worker + 1) / workers * grain;
  return {begin < n ? begin : n, end < n ? end : n};
}

}  // namespace lockstep
