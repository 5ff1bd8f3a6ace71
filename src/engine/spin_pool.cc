#include "engine/spin_pool.h"

#include <system_error>

#include "base/error.h"

namespace lockstep {
namespace {

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// While it lives, results that would be denormal are zero: on some processors each costs more than
// a hundred others. Operands stay as they are, since half-precision scales are widened by way of
// denormals, and weights may be some. Where there is no such switch for results alone, denormals
// cost little.
class FlushDenormals {
 public:
#if defined(__SSE__)
  FlushDenormals() : before_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(before_ | 0x8000); }
  ~FlushDenormals() { __builtin_ia32_ldmxcsr(before_); }

 private:
  unsigned before_;
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
};

}  // namespace

// Waits until `value` is no longer `old`: spins for some tens of microseconds, as long as a phase
// lasts, and then sleeps. Where other programs want the cores, a worker that spun on would keep the
// one it waits for from running.
void SpinPool::WaitWhile(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int spins = 0; spins < 4000; ++spins) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  long_waits_.fetch_add(1, std::memory_order_relaxed);
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

SpinPool::SpinPool(int num_threads) {
  LS_CHECK(num_threads >= 1, "num_threads {}", num_threads);
  // Where the system gives no more threads, those that it gave do the work.
  try {
    threads_.reserve(static_cast<size_t>(num_threads));
    for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { Loop(i); });
  } catch (const std::system_error&) {
  }
}

SpinPool::~SpinPool() {
  stop_.store(true);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void SpinPool::RunCall(Call call, const void* fn, bool alone) {
  long_waits_.store(0, std::memory_order_relaxed);
  active_ = alone ? 1 : static_cast<int>(threads_.size()) + 1;
  if (active_ == 1) {
    const FlushDenormals flush;
    call(fn, 0);
    return;
  }
  call_ = call;
  fn_ = fn;
  running_.store(static_cast<uint32_t>(threads_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  {
    const FlushDenormals flush;
    call(fn, 0);
  }
  for (uint32_t left; (left = running_.load(std::memory_order_acquire)) != 0;)
    WaitWhile(running_, left);
}

void SpinPool::Barrier() {
  if (active_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_.size()) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  WaitWhile(phase_, phase);
}

void SpinPool::Loop(int worker) {
  const FlushDenormals flush;
  uint32_t seen = 0;
  for (;;) {
    WaitWhile(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    call_(fn_, worker);
    running_.fetch_sub(1, std::memory_order_release);
    running_.notify_one();
  }
}

}  // namespace lockstep
