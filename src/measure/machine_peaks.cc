#include "measure/machine_peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

// Chains of dependent additions that hide an instruction's latency: 4 cycles at 2 a cycle are 8,
// the next multiple that leaves registers free.
constexpr int kChains = 12;

struct PeakLoop {
  double ops_per_round;  // of one round of all chains
  void (*run)(int64_t rounds);
  std::string_view how;
};

// Tells the compiler that `x` changed and is used, so that no round can be left out.
#define LS_OPAQUE(constraint, x) asm volatile("" : "+" constraint(x))

#if defined(__x86_64__)

// Each loop is compiled for its own instruction set, and called only where the processor has it.
// The chains are variables of their own: an array would live in memory.
#define LS_PEAK_LOOP(name, isa, vector, zero, step)                                              \
  __attribute__((target(isa), noinline)) void name(int64_t rounds) {                             \
    vector x = zero, y = zero, s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero, s5 = zero, \
           s6 = zero, s7 = zero, s8 = zero, s9 = zero, s10 = zero, s11 = zero;                   \
    LS_OPAQUE("x", x);                                                                           \
    LS_OPAQUE("x", y);                                                                           \
    const auto chain = [&](vector & s) __attribute__((target(isa), always_inline)) {             \
      s = step;                                                                                  \
      LS_OPAQUE("x", s);                                                                         \
    };                                                                                           \
    for (int64_t i = 0; i < rounds; ++i) {                                                       \
      chain(s0), chain(s1), chain(s2), chain(s3), chain(s4), chain(s5);                          \
      chain(s6), chain(s7), chain(s8), chain(s9), chain(s10), chain(s11);                        \
    }                                                                                            \
  }

LS_PEAK_LOOP(Vnni512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(),
             _mm512_dpbusd_epi32(s, x, y))
LS_PEAK_LOOP(Vnni256, "avx2,avxvnni", __m256i, _mm256_setzero_si256(),
             _mm256_dpbusd_avx_epi32(s, x, y))
LS_PEAK_LOOP(Maddubs512, "avx512f,avx512bw", __m512i, _mm512_setzero_si512(),
             _mm512_add_epi32(s, _mm512_madd_epi16(_mm512_maddubs_epi16(s, y), x)))
LS_PEAK_LOOP(Maddubs256, "avx2", __m256i, _mm256_setzero_si256(),
             _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(s, y), x)))
LS_PEAK_LOOP(Fma512, "avx512f", __m512, _mm512_setzero_ps(), _mm512_fmadd_ps(x, y, s))
LS_PEAK_LOOP(Fma256, "avx2,fma", __m256, _mm256_setzero_ps(), _mm256_fmadd_ps(x, y, s))
LS_PEAK_LOOP(MulAdd128, "sse2", __m128, _mm_setzero_ps(), _mm_add_ps(_mm_mul_ps(x, y), s))
LS_PEAK_LOOP(Madd128, "sse2", __m128i, _mm_setzero_si128(), _mm_add_epi32(s, _mm_madd_epi16(x, y)))

// Pairs of bf16 products into fp32: the registers hold zeros whatever their type.
LS_PEAK_LOOP(Bf16512, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(),
             _mm512_dpbf16_ps(s, (__m512bh)x, (__m512bh)y))

// GCC 12 knows no name for it in __builtin_cpu_supports: leaf 7.1, EAX bit 4.
bool HasAvxVnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
         (a >> 4 & 1) != 0;
}

// The instructions of the engine's kernel tables: a share of a peak shall not pass it.
PeakLoop Int8Loop() {
  if (__builtin_cpu_supports("avx512vnni"))
    return {kChains * 128.0, Vnni512, "AVX-512 VNNI, 64 products in one instruction"};
  if (__builtin_cpu_supports("avx512bw"))
    return {kChains * 128.0, Maddubs512, "AVX-512, 64 products in three instructions"};
  if (HasAvxVnni()) return {kChains * 64.0, Vnni256, "AVX-VNNI, 32 products in one instruction"};
  if (__builtin_cpu_supports("avx2"))
    return {kChains * 64.0, Maddubs256, "AVX2, 32 products in three instructions"};
  return {kChains * 16.0, Madd128, "SSE2, 8 products of 16 bits in two instructions"};
}

PeakLoop Bf16Loop(const PeakLoop& f32) {
  if (__builtin_cpu_supports("avx512bf16"))
    return {kChains * 64.0, Bf16512, "AVX-512 BF16, 32 products in one instruction"};
  return f32;
}

PeakLoop F32Loop() {
  if (__builtin_cpu_supports("avx512f"))
    return {kChains * 32.0, Fma512, "AVX-512 FMA, 16 products in one instruction"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {kChains * 16.0, Fma256, "FMA, 8 products in one instruction"};
  return {kChains * 8.0, MulAdd128, "SSE2, 4 products in two instructions"};
}

#else

typedef float F __attribute__((vector_size(16)));
typedef int16_t S __attribute__((vector_size(16)));

void PlainF32(int64_t rounds) {
  F sum[kChains] = {}, x = {}, y = {};
  LS_OPAQUE("w", x);
  LS_OPAQUE("w", y);
  for (int64_t i = 0; i < rounds; ++i)
    for (int c = 0; c < kChains; ++c) {
      sum[c] += x * y;
      LS_OPAQUE("w", sum[c]);
    }
}
void PlainInt(int64_t rounds) {
  S sum[kChains] = {}, x = {}, y = {};
  LS_OPAQUE("w", x);
  LS_OPAQUE("w", y);
  for (int64_t i = 0; i < rounds; ++i)
    for (int c = 0; c < kChains; ++c) {
      sum[c] += x * y;
      LS_OPAQUE("w", sum[c]);
    }
}

PeakLoop Int8Loop() { return {kChains * 16.0, PlainInt, "8 products of 16 bits, 128-bit vectors"}; }
PeakLoop Bf16Loop(const PeakLoop& f32) { return f32; }
PeakLoop F32Loop() { return {kChains * 8.0, PlainF32, "4 products, 128-bit vectors"}; }

#endif

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds from when all threads stand ready until all have run fn(thread).
double TimeOnAll(int threads, const std::function<void(int)>& fn) {
  std::atomic<int> ready = 0;
  std::atomic<bool> go = false;
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t)
    workers.emplace_back([&, t] {
      ++ready;
      while (!go) std::this_thread::yield();
      fn(t);
    });
  while (ready != threads - 1) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  go = true;
  fn(0);
  for (std::thread& worker : workers) worker.join();
  return SecondsSince(start);
}

double PeakOf(const PeakLoop& loop, int threads) {
  constexpr int kRuns = 8;
  constexpr double kSeconds = 0.03;  // of a run: long against the start of threads
  int64_t rounds = 1 << 14;
  while (true) {
    const double seconds = TimeOnAll(1, [&](int) { loop.run(rounds); });
    if (seconds > kSeconds / 4) {
      rounds = static_cast<int64_t>(static_cast<double>(rounds) * kSeconds / seconds);
      break;
    }
    rounds *= 2;
  }
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const double seconds = TimeOnAll(threads, [&](int) { loop.run(rounds); });
    best = std::max(best, loop.ops_per_round * static_cast<double>(rounds) * threads / seconds);
  }
  return best;
}

// Four streams of 64 bytes a step; sums keep the reads alive.
void ReadAll(const std::byte* data, size_t size) {
  typedef uint64_t V __attribute__((vector_size(64), may_alias));
  const auto* v = reinterpret_cast<const V*>(data);
  V sum[4] = {};
  for (size_t i = 0; i + 4 <= size / sizeof(V); i += 4)
    for (size_t k = 0; k < 4; ++k) sum[k] += v[i + k];
  uint64_t all = 0;
  for (const V& s : sum)
    for (size_t lane = 0; lane < 8; ++lane) all += s[lane];
  LS_OPAQUE("r", all);
}

double ReadBandwidth(int threads) {
  // Larger than the last-level cache's share of any machine that this runs on.
  constexpr size_t kBytes = size_t{512} << 20;
  constexpr int kPasses = 8;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  const std::unique_ptr<std::byte, Free> data(
      static_cast<std::byte*>(std::aligned_alloc(4096, kBytes)));
  if (data == nullptr) return 0;
  const size_t share = kBytes / static_cast<size_t>(threads) / 4096 * 4096;
  // Written by its reader: an untouched page is the one page of zeros, which a cache holds.
  const auto part = [&](int t) { return data.get() + static_cast<size_t>(t) * share; };
  TimeOnAll(threads, [&](int t) { std::fill(part(t), part(t) + share, std::byte{1}); });
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double seconds = TimeOnAll(threads, [&](int t) { ReadAll(part(t), share); });
    best = std::max(best, static_cast<double>(share) * threads / seconds);
  }
  return best;
}

}  // namespace

MachinePeaks MeasureMachinePeaks(int threads) {
  MachinePeaks peaks{.threads = threads};
  const PeakLoop int8 = Int8Loop(), f32 = F32Loop();
  peaks.int8_how = int8.how;
  peaks.f32_how = f32.how;
  peaks.int8_ops = PeakOf(int8, threads);
  peaks.f32_ops = PeakOf(f32, threads);
  const PeakLoop bf16 = Bf16Loop(f32);
  peaks.bf16_how = bf16.how;
  peaks.bf16_ops = bf16.run == f32.run ? peaks.f32_ops : PeakOf(bf16, threads);
  peaks.read_bytes = ReadBandwidth(threads);
  return peaks;
}

}  // namespace lockstep
