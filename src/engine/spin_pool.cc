#include "engine/spin_pool.h"

#include "base/error.h"

namespace lockstep {
namespace {

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins for a while, then gives the core away: other programs may need it, and on fewer cores than
// workers the others could never arrive.
template <typename Done>
void SpinUntil(const Done& done) {
  for (int spins = 0; !done(); ++spins) {
    if (spins < 20000)
      Pause();
    else
      std::this_thread::yield();
  }
}

}  // namespace

SpinPool::SpinPool(int num_threads) {
  LS_CHECK(num_threads >= 1, "num_threads {}", num_threads);
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { Loop(i); });
}

SpinPool::~SpinPool() {
  stop_.store(true);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void SpinPool::Run(const std::function<void(int)>& fn) {
  fn_ = &fn;
  running_.store(static_cast<uint32_t>(threads_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  fn(0);
  SpinUntil([&] { return running_.load(std::memory_order_acquire) == 0; });
}

void SpinPool::Barrier() {
  if (threads_.empty()) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_.size()) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  SpinUntil([&] { return phase_.load(std::memory_order_acquire) != phase; });
}

void SpinPool::Loop(int worker) {
  uint32_t seen = 0;
  for (;;) {
    for (int spins = 0; generation_.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins < 50000)
        Pause();
      else
        generation_.wait(seen, std::memory_order_acquire);
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    (*fn_)(worker);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace lockstep
