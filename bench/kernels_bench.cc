// The engine's kernels one by one, on one thread, in every table that this processor runs.
//
//   kernels_bench --benchmark_filter='avx512vnni/decode'
//
// decode/KIND    one token against a matrix that no cache holds: GB/s of packed weights, to be held
//                against the read bandwidth of one thread
// prefill/KIND   512 tokens against 64 rows, which stay in the cache: operations per second
// The machine's own peaks (measure/machine_peaks.h) are printed first, as context.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/kernels/kernel_table.h"
#include "engine/sampler.h"
#include "measure/machine_peaks.h"

namespace lockstep {
namespace {

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, Free>;

// 64-byte aligned and filled with bytes that are a small normal number in every format: no NaN,
// and no denormal that would slow a kernel down.
Bytes SomeBytes(size_t size) {
  constexpr size_t kSlack = 4096;  // kernels fetch ahead
  const size_t rounded = (size + kSlack + 63) / 64 * 64;
  Bytes bytes(static_cast<std::byte*>(std::aligned_alloc(64, rounded)));
  if (bytes == nullptr) std::abort();
  std::fill(bytes.get(), bytes.get() + rounded, std::byte{0x11});
  return bytes;
}

std::vector<float> SomeFloats(size_t n) {
  std::vector<float> x(n);
  uint32_t state = 1;
  for (float& v : x) {
    state = state * 1664525 + 1013904223;
    v = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return x;
}

constexpr int64_t kColumns = 1536;
constexpr int64_t kBlocks = kColumns / kBlockColumns;

// Rows of activations in both forms that the kernels read.
struct Inputs {
  std::vector<float> f32;
  std::vector<int8_t> codes;
  std::vector<ActivationBlock> facts;

  Inputs(const KernelTable& table, int64_t tokens)
      : f32(SomeFloats(static_cast<size_t>(tokens * kColumns))),
        codes(f32.size()),
        facts(f32.size() / 32) {
    for (size_t t = 0; t < static_cast<size_t>(tokens); ++t)
      table.quantize(f32.data() + t * kColumns, kColumns, codes.data() + t * kColumns,
                     facts.data() + t * kBlocks);
  }
  QuantizedActivations quantized() const {
    return {.codes = codes.data(), .facts = facts.data(), .blocks = kBlocks};
  }
};

void Count(benchmark::State& state, double bytes, double macs) {
  using benchmark::Counter;
  const auto n = static_cast<double>(state.iterations());
  if (bytes > 0) state.counters["bytes"] = Counter(bytes * n, Counter::kIsRate);
  if (macs > 0) state.counters["ops"] = Counter(2 * macs * n, Counter::kIsRate);
}

void Decode(benchmark::State& state, const KernelTable& table, PackedKind kind) {
  constexpr size_t kMatrix = size_t{96} << 20;
  const size_t tile_bytes = TileBytes(kind, kBlocks);
  const size_t tiles = kMatrix / tile_bytes;
  const Bytes matrix = SomeBytes(tiles * tile_bytes);
  const Inputs inputs(table, 1);
  std::vector<float> y(tiles * kTileRows);
  for (auto _ : state) {
    for (size_t t = 0; t < tiles; ++t) {
      const std::byte* tile = matrix.get() + t * tile_bytes;
      float* out = y.data() + t * kTileRows;
      if (HoldsCodes(kind))
        table.tile_int8(kind, tile, kBlocks, inputs.quantized(), 0, 1, out, kTileRows);
      else
        table.tile_f32(kind, tile, kBlocks, inputs.f32.data(), kColumns, 1, out, kTileRows);
    }
    benchmark::DoNotOptimize(y.data());
  }
  Count(state, static_cast<double>(tiles * tile_bytes),
        static_cast<double>(tiles * kTileRows * kColumns));
}

void Prefill(benchmark::State& state, const KernelTable& table, PackedKind kind) {
  constexpr int64_t kTokens = 512;
  constexpr size_t kTiles = 4;
  const size_t tile_bytes = TileBytes(kind, kBlocks);
  const Bytes matrix = SomeBytes(kTiles * tile_bytes), scratch = SomeBytes(kPanelBytes);
  const Inputs inputs(table, kTokens);
  constexpr int64_t kStride = kTiles * kTileRows;
  std::vector<float> y(static_cast<size_t>(kTokens * kStride));
  for (auto _ : state) {
    for (size_t t = 0; t < kTiles; t += 2) {
      const std::byte* tile = matrix.get() + t * tile_bytes;
      float* out = y.data() + t * kTileRows;
      if (HoldsCodes(kind)) {
        table.pair_int8(kind, tile, tile + tile_bytes, kBlocks, inputs.quantized(), 0, kTokens, out,
                        out + kTileRows, kStride, scratch.get());
      } else {
        for (size_t i = 0; i < 2; ++i)
          table.tile_f32(kind, tile + i * tile_bytes, kBlocks, inputs.f32.data(), kColumns, kTokens,
                         out + i * kTileRows, kStride);
      }
    }
    benchmark::DoNotOptimize(y.data());
  }
  Count(state, 0, static_cast<double>(kTokens * kStride * kColumns));
}

void Quantize(benchmark::State& state, const KernelTable& table) {
  Inputs inputs(table, 1);
  for (auto _ : state) {
    table.quantize(inputs.f32.data(), kColumns, inputs.codes.data(), inputs.facts.data());
    benchmark::DoNotOptimize(inputs.codes.data());
  }
  Count(state, kColumns * 4, 0);
}

void RmsNorm(benchmark::State& state, const KernelTable& table) {
  const auto x = SomeFloats(kColumns), weight = SomeFloats(kColumns);
  std::vector<float> y(kColumns);
  for (auto _ : state) {
    table.rms_norm(x.data(), weight.data(), kColumns, 1e-5f, y.data());
    benchmark::DoNotOptimize(y.data());
  }
  Count(state, kColumns * 8, 0);
}

void SiluMul(benchmark::State& state, const KernelTable& table) {
  const auto up = SomeFloats(kColumns), start = SomeFloats(kColumns);
  std::vector<float> gate = start;
  for (auto _ : state) {
    std::copy(start.begin(), start.end(), gate.begin());
    table.silu_mul(up.data(), kColumns, gate.data());
    benchmark::DoNotOptimize(gate.data());
  }
  Count(state, kColumns * 8, 0);
}

// `queries` queries of three heads that share a key/value head, after 2048 positions.
void Attention(benchmark::State& state, const KernelTable& table, KvType type, int64_t queries) {
  constexpr int64_t kPositions = 2048, kHeads = 3, kDim = 64;
  const KvShape shape{.type = type, .heads = 1, .key_dim = kDim, .value_dim = kDim};
  const size_t pages = kPositions / kPageTokens;
  const Bytes memory = SomeBytes(pages * shape.PageBytes()),
              scratch = SomeBytes(AttentionScratchBytes(shape));
  std::vector<KvPageRef> refs(pages);
  for (size_t p = 0; p < pages; ++p) refs[p].data = memory.get() + p * shape.PageBytes();
  const auto q = SomeFloats(static_cast<size_t>(queries * kHeads * kDim));
  std::vector<float> out(q.size());
  const AttentionCall call{.shape = shape,
                           .pages = refs.data(),
                           .first = kPositions - queries,
                           .queries = queries,
                           .heads = kHeads,
                           .q = q.data(),
                           .q_token_stride = kHeads * kDim,
                           .q_head_stride = kDim,
                           .scale = 0.125f,
                           .out = out.data(),
                           .out_token_stride = kHeads * kDim,
                           .out_head_stride = kDim,
                           .scratch = scratch.get()};
  for (auto _ : state) {
    table.attention(call);
    benchmark::DoNotOptimize(out.data());
  }
  Count(state, static_cast<double>(pages * shape.PageBytes()),
        static_cast<double>(queries * kHeads * kPositions * 2 * kDim));
}

// What follows a decode step: the choice of the next token from a vocabulary.
void GreedyChoice(benchmark::State& state) {
  const auto logits = SomeFloats(static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(Argmax(logits));
  Count(state, static_cast<double>(logits.size() * 4), 0);
}

void RegisterAll() {
  using benchmark::RegisterBenchmark;
  for (const KernelTable* table : KernelTables()) {
    if (!table->runs_here()) continue;
    const auto name = [&](std::string_view what) {
      return fmt::format("{}/{}", table->name, what);
    };
    for (const PackedKindInfo& kind : kPackedKinds) {
      RegisterBenchmark(name(fmt::format("decode/{}", kind.name)).c_str(),
                        [=](benchmark::State& state) { Decode(state, *table, kind.kind); });
      RegisterBenchmark(name(fmt::format("prefill/{}", kind.name)).c_str(),
                        [=](benchmark::State& state) { Prefill(state, *table, kind.kind); });
    }
    RegisterBenchmark(name("quantize").c_str(),
                      [=](benchmark::State& state) { Quantize(state, *table); });
    RegisterBenchmark(name("rms_norm").c_str(),
                      [=](benchmark::State& state) { RmsNorm(state, *table); });
    RegisterBenchmark(name("silu_mul").c_str(),
                      [=](benchmark::State& state) { SiluMul(state, *table); });
    for (const char* type : {"fp32", "fp16", "bf16", "q16", "q8"})
      for (const int64_t queries : {1, 16})
        RegisterBenchmark(name(fmt::format("attention/{}/{}", type, queries)).c_str(),
                          [=](benchmark::State& state) {
                            Attention(state, *table, *KvTypeNamed(type), queries);
                          });
  }
  RegisterBenchmark("greedy_choice", GreedyChoice)->Arg(49152)->Arg(262144);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const lockstep::MachinePeaks peaks = lockstep::MeasureMachinePeaks(1);
  benchmark::AddCustomContext("read_1_thread", fmt::format("{:.1f} GB/s", peaks.read_bytes / 1e9));
  benchmark::AddCustomContext("int8_peak_1_thread",
                              fmt::format("{:.0f} Gop/s", peaks.int8_ops / 1e9));
  benchmark::AddCustomContext("fp32_peak_1_thread",
                              fmt::format("{:.0f} Gop/s", peaks.f32_ops / 1e9));
  lockstep::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
