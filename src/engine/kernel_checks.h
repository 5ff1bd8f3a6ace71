// Checks of one kernel of one table against its plain twin (kernel_twins.h), over shapes and
// numbers drawn from a Source. Each returns what does not hold, or nothing. Unit tests
// (kernels_test.cc) draw from fixed seeds, the fuzz target (fuzz/kernels_fuzz.cc) from its input.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/kernel_twins.h"
#include "engine/kernels/kernel_table.h"

namespace lockstep {

using Problem = std::optional<std::string>;

// NaNs with other signs and payloads: what a kernel does to their bits must leave them NaNs.
inline constexpr uint32_t kNaNs[] = {0x7fc00000, 0xffc00000, 0x7fc00001, 0x7fffffff, 0xff800001};

// --- Packed tiles ---

// Where a kind keeps fp16 numbers: in a block and in a super block.
struct Field {
  int begin, end;
};
inline Field HalvesInBlock(PackedKind kind) {
  switch (kind) {
    case PackedKind::kQ4:
      return {256, 320};
    case PackedKind::kQ4S:
    case PackedKind::kIQ4NL:
      return {256, 288};
    case PackedKind::kQ5:
      return {320, 384};
    case PackedKind::kQ5S:
      return {320, 352};
    case PackedKind::kQ8:
      return {512, 544};
    case PackedKind::kNVFP4:
      return {256, 320};
    case PackedKind::kF16:
      return {0, 1024};
    default:
      return {0, 0};
  }
}
inline Field HalvesInSuper(PackedKind kind) {
  return {0, HoldsCodes(kind) && kind != PackedKind::kGrid ? InfoOf(kind).super_bytes : 0};
}

// Random codes and finite scales in every field. `tiny`: scales are subnormal halves or zero.
inline void FillTile(PackedKind kind, int64_t blocks, bool tiny, Source& source, std::byte* tile) {
  const PackedKindInfo& info = InfoOf(kind);
  const auto fill = [&](std::byte* at, int bytes) {
    for (int i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(source.Bits());
  };
  const auto halves = [&](std::byte* at, Field field) {
    for (int i = field.begin; i < field.end; i += 2) {
      const uint64_t bits = source.Bits();
      const auto half = static_cast<uint16_t>(tiny ? bits & 0x83ff : 0x1c00 | (bits & 0x87ff));
      std::memcpy(at + i, &half, 2);
    }
  };
  for (int64_t b = 0; b < blocks; ++b) {
    if (b % 8 == 0 && info.super_bytes > 0) {
      fill(tile, info.super_bytes);
      halves(tile, HalvesInSuper(kind));
      if (kind == PackedKind::kGrid) {
        for (int i = 0; i < 64; ++i) tile[i] = i < 16 ? tile[i] & std::byte{127} : tile[i - 16];
        for (int i = 0; i < 16; ++i) {
          const float d = source.Number(tiny ? Style::kTiny : Style::kOrdinary) / 256;
          std::memcpy(tile + 64 + 4 * i, &d, 4);
        }
      }
      tile += info.super_bytes;
    }
    fill(tile, info.block_bytes);
    halves(tile, HalvesInBlock(kind));
    if (kind == PackedKind::kMXFP4)
      for (int i = 256; i < 272; ++i)
        tile[i] = static_cast<std::byte>(tiny ? source.Below(4) : source.Between(112, 130));
    if (kind == PackedKind::kF32)
      for (int i = 0; i < info.block_bytes; i += 4) {
        const float x = source.Number(tiny ? Style::kTiny : Style::kOrdinary);
        std::memcpy(tile + i, &x, 4);
      }
    if (kind == PackedKind::kBF16)
      for (int i = 0; i < info.block_bytes; i += 2) {
        const bfloat16 x = ToBFloat16(source.Number(tiny ? Style::kTiny : Style::kOrdinary));
        std::memcpy(tile + i, &x.bits, 2);
      }
    tile += info.block_bytes;
  }
}

// A tile's values [column][row], by the identity through `table`; that each is the stored one is
// in pack_test.cc.
inline std::vector<float> TileValues(const KernelTable& table, PackedKind kind,
                                     const std::byte* tile, int64_t blocks) {
  std::vector<float> values(static_cast<size_t>(blocks * 32 * kTileRows));
  std::vector<float> x(static_cast<size_t>(blocks * 32));
  for (size_t c = 0; c < x.size(); ++c) {
    x[c] = 1;
    table.tile_f32(kind, tile, blocks, x.data(), blocks * 32, 1, &values[c * kTileRows], kTileRows);
    x[c] = 0;
  }
  return values;
}

// Quantized rows.
struct Codes {
  Aligned<int8_t> codes;
  std::vector<ActivationBlock> facts;
  int64_t blocks;
  Codes(const KernelTable& table, std::span<const float> x, int64_t block_count)
      : codes(static_cast<int64_t>(x.size())), facts(x.size() / 32), blocks(block_count) {
    table.quantize(x.data(), static_cast<int64_t>(x.size()), codes.data(), facts.data());
  }
  QuantizedActivations view() { return {codes.data(), facts.data(), blocks}; }
};

// Any number of tokens, one tile or two: the same bits; and the numbers of the twin.
inline Problem CheckInt8(const KernelTable& table, PackedKind kind, Source& source) {
  const int64_t blocks = source.Between(1, 53), tokens = source.Between(1, 15);
  const bool tiny = source.Below(5) == 0;
  const auto style = static_cast<Style>(source.Below(kStyles));
  const auto bytes = static_cast<int64_t>(TileBytes(kind, blocks));
  Aligned<std::byte> tiles(2 * bytes + 4096), scratch(kPanelBytes);
  for (int i = 0; i < 2; ++i) FillTile(kind, blocks, tiny, source, tiles.data() + i * bytes);
  const std::vector<float> x = source.Numbers(tokens * blocks * 32, style);
  Codes codes(table, x, blocks);
  const int64_t stride = 2 * kTileRows + 3;
  const auto all = [&](float mark) {
    return std::vector<float>(static_cast<size_t>(tokens * stride), mark);
  };
  const auto where = [&](const char* what, int64_t t, int64_t r) {
    return fmt::format("{} of {}, {} blocks, {} tokens, style {}{}: {}, token {}, row {}",
                       InfoOf(kind).name, table.name, blocks, tokens, static_cast<int>(style),
                       tiny ? ", tiny scales" : "", what, t, r);
  };
  std::vector<float> many = all(-7), pair = all(-7);
  for (int i = 0; i < 2; ++i)
    table.tile_int8(kind, tiles.data() + i * bytes, blocks, codes.view(), 0, tokens,
                    many.data() + i * kTileRows, stride);
  table.pair_int8(kind, tiles.data(), tiles.data() + bytes, blocks, codes.view(), 0, tokens,
                  pair.data(), pair.data() + kTileRows, stride, scratch.data());
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<float> alone = all(-7);
    for (int i = 0; i < 2; ++i)
      table.tile_int8(kind, tiles.data() + i * bytes, blocks, codes.view(), t, 1,
                      alone.data() + i * kTileRows, stride);
    for (int64_t r = 0; r < stride; ++r) {
      const auto at = static_cast<size_t>(t * stride + r);
      if (!Same(many[at], alone[static_cast<size_t>(r)])) return where("many tokens differ", t, r);
      if (!Same(pair[at], alone[static_cast<size_t>(r)])) return where("a pair differs", t, r);
    }
  }
  const std::vector<float> w = TileValues(table, kind, tiles.data(), blocks);
  double largest = 0;
  for (const float v : w) largest = std::max(largest, std::abs(double{v}));
  // A grid's values are differences from 64, and a minimum may cancel a whole column.
  if (kind == PackedKind::kGrid) largest *= 64;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < kTileRows; ++r) {
      double sum = 0, size = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        const double scale = codes.facts[static_cast<size_t>(t * blocks + b)].scale;
        for (int64_t c = 32 * b; c < 32 * (b + 1); ++c) {
          const double code = codes.codes[t * blocks * 32 + c];
          sum += scale * code * w[static_cast<size_t>(c * kTileRows + r)];
          size += scale * std::abs(code) * largest;
        }
      }
      const float y = many[static_cast<size_t>(t * stride + r)];
      // Beyond fp32 the result is infinite, or NaN.
      if (size > 1e38 && !std::isfinite(y)) continue;
      const double bound = 0x1p-19 * size + 1e-36 * static_cast<double>(blocks);
      if (!(std::abs(y - sum) <= bound))
        return where("not its twin's", t, r) + fmt::format(": {} for {} +- {}", y, sum, bound);
    }
  }
  return {};
}

inline Problem CheckF32(const KernelTable& table, PackedKind kind, Source& source) {
  const int64_t blocks = source.Between(1, 19), tokens = source.Between(1, 27);
  const bool tiny = source.Below(5) == 0;
  const auto style = static_cast<Style>(source.Below(kStyles));
  Aligned<std::byte> tile(static_cast<int64_t>(TileBytes(kind, blocks)) + 4096);
  FillTile(kind, blocks, tiny, source, tile.data());
  const int64_t x_stride = blocks * 32 + source.Below(3), stride = kTileRows + source.Below(3);
  const std::vector<float> x = source.Numbers(tokens * x_stride, style);
  std::vector<float> y(static_cast<size_t>(tokens * stride), -7);
  table.tile_f32(kind, tile.data(), blocks, x.data(), x_stride, tokens, y.data(), stride);
  const std::vector<float> w = TileValues(table, kind, tile.data(), blocks);
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<float> alone(static_cast<size_t>(stride), -7);
    table.tile_f32(kind, tile.data(), blocks, x.data() + t * x_stride, x_stride, 1, alone.data(),
                   stride);
    for (int64_t r = 0; r < stride; ++r) {
      const float got = y[static_cast<size_t>(t * stride + r)];
      const auto where = [&](const char* what) {
        return fmt::format("f32 x {} of {}, {} blocks, {} tokens, style {}: {}, token {}, row {}",
                           InfoOf(kind).name, table.name, blocks, tokens, static_cast<int>(style),
                           what, t, r);
      };
      if (!Same(got, alone[static_cast<size_t>(r)])) return where("many tokens differ");
      if (r >= kTileRows) continue;
      double sum = 0, size = 0;
      for (int64_t c = 0; c < blocks * 32; ++c) {
        const double term = double{x[static_cast<size_t>(t * x_stride + c)]} *
                            w[static_cast<size_t>(c * kTileRows + r)];
        sum += term;
        size += std::abs(term);
      }
      if (size > 1e38 && !std::isfinite(got)) continue;
      const double bound = 0x1p-24 * static_cast<double>(blocks * 32) * size + 1e-36;
      if (!(std::abs(got - sum) <= bound))
        return where("not its twin's") + fmt::format(": {} for {} +- {}", got, sum, bound);
    }
  }
  return {};
}

inline Problem CheckBF16(const KernelTable& table, Source& source) {
  const int64_t blocks = source.Between(1, 19), tokens = source.Between(1, 15), n = blocks * 32;
  const auto style = static_cast<Style>(source.Below(kStyles));
  const auto bytes = static_cast<int64_t>(TileBytes(PackedKind::kBF16, blocks));
  Aligned<std::byte> tiles(2 * bytes + 4096);
  for (int i = 0; i < 2; ++i)
    FillTile(PackedKind::kBF16, blocks, false, source, tiles.data() + i * bytes);
  const std::vector<float> x = source.Numbers(tokens * n, style);
  Aligned<uint16_t> rounded(tokens * n);
  table.round_to_bf16(x.data(), tokens * n, rounded.data());
  const auto problem = [&](const char* what, int64_t t, int64_t r) {
    return fmt::format("bf16 of {}, {} blocks, {} tokens, style {}: {}, token {}, row {}",
                       table.name, blocks, tokens, static_cast<int>(style), what, t, r);
  };
  for (int64_t i = 0; i < tokens * n; ++i) {
    const float value = x[static_cast<size_t>(i)];
    // The processor's own conversion has no denormals.
    const bool flushed = std::abs(value) < 0x1p-126f && (rounded[i] & 0x7fff) == 0;
    if (rounded[i] != ToBFloat16(value).bits && !flushed)
      return problem("a value is not the nearest bf16", i / n, i % n);
  }
  const int64_t stride = 2 * kTileRows + 1;
  std::vector<float> y(static_cast<size_t>(tokens * stride), -7), one = y;
  table.pair_bf16(tiles.data(), tiles.data() + bytes, blocks, rounded.data(), n, tokens, y.data(),
                  y.data() + kTileRows, stride);
  for (int i = 0; i < 2; ++i)
    table.pair_bf16(tiles.data() + i * bytes, nullptr, blocks, rounded.data(), n, tokens,
                    one.data() + i * kTileRows, nullptr, stride);
  for (int i = 0; i < 2; ++i) {
    const std::vector<float> w =
        TileValues(table, PackedKind::kBF16, tiles.data() + i * bytes, blocks);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<float> alone(static_cast<size_t>(stride), -7);
      table.pair_bf16(tiles.data() + i * bytes, nullptr, blocks, rounded.data() + t * n, n, 1,
                      alone.data(), nullptr, stride);
      for (int64_t r = 0; r < kTileRows; ++r) {
        const auto at = static_cast<size_t>(t * stride + i * kTileRows + r);
        if (!Same(y[at], one[at]) || !Same(y[at], alone[static_cast<size_t>(r)]))
          return problem("many tokens or a pair differ", t, r);
        double sum = 0, size = 0;
        for (int64_t c = 0; c < n; ++c) {
          const double term = double{ToFloat(bfloat16{rounded[t * n + c]})} *
                              w[static_cast<size_t>(c * kTileRows + r)];
          sum += term;
          size += std::abs(term);
        }
        if (size > 1e38 && !std::isfinite(y[at])) continue;
        if (!(std::abs(y[at] - sum) <=
              0x1p-24 * static_cast<double>(n) * size + 1e-36 * static_cast<double>(n)))
          return problem("not its twin's", t, r) + fmt::format(": {} for {}", y[at], sum);
      }
    }
  }
  for (int64_t t = 0; t < tokens; ++t)
    if (y[static_cast<size_t>(t * stride + stride - 1)] != -7)
      return problem("wrote beyond its rows", t, stride - 1);
  return {};
}

// --- Rows ---

inline Problem CheckQuantize(const KernelTable& table, Source& source) {
  const int64_t n = 32 * source.Between(1, 9);
  std::vector<float> x;
  for (int64_t b = 0; b < n / 32; ++b) {  // blocks of their own kind
    const std::vector<float> block = source.Numbers(32, static_cast<Style>(source.Below(kStyles)));
    x.insert(x.end(), block.begin(), block.end());
  }
  Codes got(table, x, n / 32), scalar(*KernelTables().back(), x, n / 32);
  for (int64_t b = 0; b < n / 32; ++b) {
    const ActivationBlock& fact = got.facts[static_cast<size_t>(b)];
    const auto problem = [&](const char* what) {
      return fmt::format("quantize of {}, block {} of {}: {}", table.name, b, n / 32, what);
    };
    if (std::memcmp(&fact, &scalar.facts[static_cast<size_t>(b)], sizeof fact) != 0 ||
        std::memcmp(&got.codes[32 * b], &scalar.codes[32 * b], 32) != 0)
      return problem("another table has other codes");
    int32_t sums[2] = {};
    for (int64_t i = 0; i < 32; ++i) {
      const int8_t code = got.codes[32 * b + i];
      sums[i / 16] += code;
      const double error = std::abs(double{fact.scale} * code - x[static_cast<size_t>(32 * b + i)]);
      if (code < -127 || !(error <= 0.50001 * fact.scale + 1e-36))
        return problem("a code is not the nearest");
    }
    if (fact.minus_codes != -(sums[0] + sums[1]) || fact.minus_half_codes[0] != -sums[0] ||
        fact.minus_half_codes[1] != -sums[1] ||
        fact.sum != fact.scale * static_cast<float>(sums[0] + sums[1]))
      return problem("the sums are not those of the codes");
  }
  return {};
}

// Every kernel over one row.
inline Problem CheckRows(const KernelTable& table, Source& source) {
  const int64_t n = source.Between(1, 150);
  const auto style = static_cast<Style>(source.Below(kStyles));
  const std::vector<float> x = source.Numbers(n, style);
  std::vector<float> other = source.Numbers(n, Style::kOrdinary);
  const auto problem = [&](const char* kernel, int64_t i, double got, double expected) {
    return fmt::format("{} of {}, {} numbers of style {}: number {} is {}, not {}", kernel,
                       table.name, n, static_cast<int>(style), i, got, expected);
  };
  const auto padded = [&](const std::vector<float>& from) {
    std::vector<float> to = from;
    to.push_back(-7);  // what no kernel may write
    return to;
  };
  const float eps = source.Below(2) == 0 ? 1e-6f : 1e-5f;
  std::vector<float> y = padded(x);
  table.rms_norm(y.data(), other.data(), n, eps, y.data());
  const std::vector<double> norm = RmsNormTwin(x, other, eps);
  for (int64_t i = 0; i < n; ++i) {
    const double expected = norm[static_cast<size_t>(i)], got = y[static_cast<size_t>(i)];
    if (!(std::abs(got - expected) <= 1e-6 * std::abs(expected) + 1e-37))
      return problem("rms_norm", i, got, expected);
  }
  if (y.back() != -7) return problem("rms_norm", n, y.back(), -7);

  y = padded(x);
  table.add(other.data(), n, y.data());
  for (int64_t i = 0; i < n; ++i) {
    const float expected = x[static_cast<size_t>(i)] + other[static_cast<size_t>(i)];
    if (!Same(y[static_cast<size_t>(i)], expected))
      return problem("add", i, y[static_cast<size_t>(i)], expected);
  }
  if (y.back() != -7) return problem("add", n, y.back(), -7);

  for (const bool gelu : {false, true}) {
    const auto kernel = gelu ? table.gelu_tanh_mul : table.silu_mul;
    y = padded(x);
    kernel(other.data(), n, y.data());
    for (int64_t i = 0; i < n; ++i) {
      const double g = x[static_cast<size_t>(i)], up = other[static_cast<size_t>(i)];
      const double expected = (gelu ? GeluTanhTwin(g) : SiluTwin(g)) * up;
      const double got = y[static_cast<size_t>(i)];
      // What exp rounds off its argument; and it ends at 2^127.5: |g| times 2^-127 stays of what
      // is zero.
      const double size = std::abs(g * up) * (1 + (gelu ? std::min(g * g, 100.0) : 0));
      if (!(std::abs(got - expected) <= 1e-6 * size + 1e-37))
        return problem(gelu ? "gelu_tanh_mul" : "silu_mul", i, got, expected);
    }
    if (y.back() != -7) return problem(gelu ? "gelu_tanh_mul" : "silu_mul", n, y.back(), -7);
  }

  const std::vector<float> head = source.Numbers(2 * n, style);
  std::vector<float> cos, sin;
  for (int64_t i = 0; i < n; ++i) {
    const double angle = 3 * double{other[static_cast<size_t>(i)]};
    cos.push_back(static_cast<float>(std::cos(angle)));
    sin.push_back(static_cast<float>(std::sin(angle)));
  }
  y = padded(head);
  table.rotate(cos.data(), sin.data(), n, y.data());
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i), far = static_cast<size_t>(n + i);
    const double a = head[at], b = head[far];
    const double low = a * cos[at] - b * sin[at], high = b * cos[at] + a * sin[at];
    const double bound = 1e-6 * (std::abs(a) + std::abs(b)) + 1e-37;
    if (!(std::abs(y[at] - low) <= bound)) return problem("rotate", i, y[at], low);
    if (!(std::abs(y[far] - high) <= bound)) return problem("rotate", n + i, y[far], high);
  }
  if (y.back() != -7) return problem("rotate", 2 * n, y.back(), -7);
  return {};
}

// --- Attention ---

struct AttentionCase {
  KvShape shape;
  int64_t first = 0, queries = 1, heads = 1, kv_head = 0;
  float scale = 1;
  int64_t window = 0;
  float softcap = 0;
  bool sinks = false;
  Style style = Style::kOrdinary;

  std::string Name() const {
    return fmt::format(
        "attention: type {}, {} kv heads of {} and {}, {} queries from {}, {} heads, window {}, "
        "cap {}, sinks {}, style {}",
        static_cast<int>(shape.type), shape.heads, shape.key_dim, shape.value_dim, queries, first,
        heads, window, softcap, sinks, static_cast<int>(style));
  }
};

inline AttentionCase DrawAttention(Source& source) {
  constexpr int64_t kDims[] = {1, 5, 8, 16, 24, 32, 33, 64, 80, 96, 128, 256};
  constexpr int64_t kFirsts[] = {0, 1, 15, 31, 32, 62, 63, 64, 65, 127, 128, 190};
  constexpr int64_t kWindows[] = {0, 0, 1, 5, 63, 64, 65, 100};
  const auto pick = [&](const auto& from) {
    return from[static_cast<size_t>(source.Below(static_cast<int64_t>(std::size(from))))];
  };
  AttentionCase c;
  c.shape = {static_cast<KvType>(source.Below(5)), source.Between(1, 2), pick(kDims), pick(kDims)};
  c.kv_head = source.Below(c.shape.heads);
  c.first = pick(kFirsts);
  c.heads = source.Below(8) == 0 ? kAttentionRows : source.Between(1, 9);
  c.queries = source.Between(1, kAttentionRows / c.heads);
  c.scale =
      1 / std::sqrt(static_cast<float>(c.shape.key_dim)) * (source.Below(4) == 0 ? 30.0f : 1.0f);
  c.window = pick(kWindows);
  c.softcap = source.Below(3) == 0 ? 20.0f : 0.0f;
  c.sinks = source.Below(3) == 0;
  constexpr Style kThese[] = {Style::kOrdinary, Style::kMixed, Style::kTiny, Style::kZero};
  c.style = pick(kThese);
  return c;
}

// A case with its numbers, in pages.
struct AttentionData {
  AttentionData(const AttentionCase& attention, Source& source)
      : c(attention),
        length(c.first + c.queries),
        q_stride(c.heads * c.shape.key_dim + 3),
        out_stride(c.heads * c.shape.value_dim + 2),
        q(source.Numbers(c.queries * q_stride, c.style)),
        sinks(source.Numbers(c.heads, Style::kOrdinary)),
        keys(static_cast<size_t>(length)),
        values(static_cast<size_t>(length)),
        pages(static_cast<int64_t>(c.shape.PageBytes()) *
              ((length + kPageTokens - 1) / kPageTokens)),
        scratch(static_cast<int64_t>(AttentionScratchBytes(c.shape))) {
    for (auto& key : keys) key = source.Numbers(c.shape.key_dim, c.style);
    for (auto& value : values) value = source.Numbers(c.shape.value_dim, c.style);
  }
  void Write(const KernelTable& table) {
    const int64_t oldest = c.window > 0 ? std::max<int64_t>(0, c.first + 1 - c.window) : 0;
    table_of_pages.clear();
    for (int64_t p = 0; p * kPageTokens < length; ++p) {
      std::byte* page = pages.data() + p * static_cast<int64_t>(c.shape.PageBytes());
      std::memset(page, 0, c.shape.PageBytes());
      table_of_pages.push_back({(p + 1) * kPageTokens <= oldest ? nullptr : page, nullptr});
      for (int64_t i = p * kPageTokens; i < std::min(length, (p + 1) * kPageTokens); ++i)
        for (int64_t h = 0; h < c.shape.heads; ++h)
          table.store_kv(c.shape, page, h, i % kPageTokens, keys[static_cast<size_t>(i)].data(),
                         values[static_cast<size_t>(i)].data());
    }
  }
  // Queries [from, from + n), heads [head, head + heads).
  std::vector<float> Run(const KernelTable& table, int64_t from, int64_t n, int64_t head,
                         int64_t heads) {
    std::vector<float> out(static_cast<size_t>(c.queries * out_stride), -7);
    table.attention({.shape = c.shape,
                     .pages = table_of_pages.data(),
                     .kv_head = c.kv_head,
                     .first = c.first + from,
                     .queries = n,
                     .heads = heads,
                     .q = q.data() + from * q_stride + head * c.shape.key_dim,
                     .q_token_stride = q_stride,
                     .q_head_stride = c.shape.key_dim,
                     .scale = c.scale,
                     .window = c.window,
                     .softcap = c.softcap,
                     .sinks = c.sinks ? sinks.data() + head : nullptr,
                     .out = out.data() + from * out_stride + head * c.shape.value_dim,
                     .out_token_stride = out_stride,
                     .out_head_stride = c.shape.value_dim,
                     .scratch = scratch.data()});
    return out;
  }

  AttentionCase c;
  int64_t length, q_stride, out_stride;
  std::vector<float> q, sinks;
  std::vector<std::vector<float>> keys, values;
  Aligned<std::byte> pages, scratch;
  std::vector<KvPageRef> table_of_pages;
};

inline Problem CheckAttention(const KernelTable& table, const AttentionCase& c, Source& source) {
  AttentionData data(c, source);
  data.Write(table);
  const std::vector<float> all = data.Run(table, 0, c.queries, 0, c.heads);
  const auto problem = [&](const char* what, int64_t t, int64_t h, int64_t d) {
    return fmt::format("{} of {}: {}, query {}, head {}, element {}", c.Name(), table.name, what, t,
                       h, d);
  };
  std::vector<std::vector<float>> keys, values;
  for (const auto& key : data.keys) keys.push_back(StoredKey(c.shape.type, key));
  for (const auto& value : data.values) values.push_back(StoredValue(c.shape.type, value));
  const bool pairs = c.shape.type == KvType::kBF16 || c.shape.type == KvType::kQ16;
  const double log2e = 1.4426950408889634, factor = c.softcap != 0 ? 1 : log2e;
  for (int64_t t = 0; t < c.queries; ++t) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const std::vector<float> alone = data.Run(table, t, 1, h, 1);
      const auto at = static_cast<size_t>(t * data.out_stride + h * c.shape.value_dim);
      for (int64_t d = 0; d < c.shape.value_dim; ++d)
        if (!Same(all[at + static_cast<size_t>(d)], alone[at + static_cast<size_t>(d)]))
          return problem("a block differs from one query", t, h, d);
      // The query as the kernel takes it: scaled, and in the key's form.
      std::vector<float> q(static_cast<size_t>(c.shape.key_dim));
      for (size_t d = 0; d < q.size(); ++d)
        q[d] = static_cast<float>(
            data.q[static_cast<size_t>(t * data.q_stride + h * c.shape.key_dim) + d] *
            static_cast<float>(c.scale * factor));
      if (c.shape.type == KvType::kQ16) ThroughCodes(8191, q);
      if (c.shape.type == KvType::kBF16)
        for (float& x : q) x = Stored(c.shape.type, x);
      const AttentionTwin twin =
          AttendTwin(q, keys, values, c.first + t, 1 / factor, c.window, c.softcap,
                     c.sinks ? &data.sinks[static_cast<size_t>(h)] : nullptr);
      // fp32 sums of scores, an exponential, fp32 sums; with pairs, weights rounded to bf16. The
      // twin's codes may be the kernel's neighbours where one lies half-way.
      const double score_error =
          (c.shape.type == KvType::kQ16 ? 1.0 / 8191 / 8 : 0x1p-20) * twin.score_size +
          1e-6 * (1 + c.softcap);
      const double relative = 2 * score_error + (pairs ? 0x1p-8 : 0) + 0x1p-19;
      for (int64_t d = 0; d < c.shape.value_dim; ++d) {
        const double expected = twin.out[static_cast<size_t>(d)];
        const double got = all[at + static_cast<size_t>(d)];
        const double bound = relative * twin.magnitude[static_cast<size_t>(d)] + 1e-35;
        if (!(std::abs(got - expected) <= bound))
          return problem("not its twin's", t, h, d) +
                 fmt::format(": {} for {} +- {}", got, expected, bound);
      }
    }
    for (int64_t d = c.heads * c.shape.value_dim; d < data.out_stride; ++d)
      if (all[static_cast<size_t>(t * data.out_stride + d)] != -7)
        return problem("wrote beyond its heads", t, c.heads, d);
  }
  return {};
}

// --- Not a number ---

// One NaN (of any bits) or infinity among the inputs: outputs that it has a part in are no finite
// numbers.
inline Problem CheckNotFinite(const KernelTable& table, Source& source) {
  const bool infinite = source.Below(2) == 0;
  const float bad =
      infinite ? (source.Below(2) == 0 ? 1.0f : -1.0f) * std::numeric_limits<float>::infinity()
               : FromBits(kNaNs[source.Below(std::size(kNaNs))]);
  const auto problem = [&](std::string_view what) {
    return fmt::format("{}: a finite number from {:08x} in {}", table.name, BitsOf(bad), what);
  };
  const int64_t blocks = source.Between(1, 5), n = blocks * 32;
  std::vector<float> x = source.Numbers(n, Style::kOrdinary);
  const int64_t where = source.Below(n);
  x[static_cast<size_t>(where)] = bad;
  for (const PackedKindInfo& kind : kPackedKinds) {
    Aligned<std::byte> tile(static_cast<int64_t>(TileBytes(kind.kind, blocks)) + 4096);
    FillTile(kind.kind, blocks, false, source, tile.data());
    float y[2 * kTileRows];
    table.tile_f32(kind.kind, tile.data(), blocks, x.data(), n, 1, y, kTileRows);
    for (int r = 0; r < kTileRows; ++r)
      if (std::isfinite(y[r]))
        return problem(fmt::format("activations of tile_f32, {}", kind.name));
    if (kind.codes) {
      Codes codes(table, x, blocks);
      Aligned<std::byte> scratch(kPanelBytes);
      table.tile_int8(kind.kind, tile.data(), blocks, codes.view(), 0, 1, y, kTileRows);
      for (int r = 0; r < kTileRows; ++r)
        if (std::isfinite(y[r]))
          return problem(fmt::format("activations of tile_int8, {}", kind.name));
      table.pair_int8(kind.kind, tile.data(), tile.data(), blocks, codes.view(), 0, 1, y,
                      y + kTileRows, 2 * kTileRows, scratch.data());
      for (const float value : y)
        if (std::isfinite(value))
          return problem(fmt::format("activations of pair_int8, {}", kind.name));
    }
    // A weight, or the scale of a row.
    const Field field = HalvesInBlock(kind.kind), super = HalvesInSuper(kind.kind);
    int row = -1;
    if (kind.kind == PackedKind::kF32) {
      row = static_cast<int>(where % kTileRows);
      std::memcpy(tile.data() + 4 * where, &bad, 4);
    } else if (kind.kind == PackedKind::kBF16) {
      const uint16_t half = ToBFloat16(bad).bits;
      row = static_cast<int>(where % (2 * kTileRows) / 2);
      std::memcpy(tile.data() + 2 * where, &half, 2);
    } else if (field.end > 0 || super.end > 0) {
      const Field& at = super.end > 0 ? super : field;
      const uint16_t half = infinite ? 0x7c00 : 0x7e01;
      row = static_cast<int>(where % kTileRows);
      std::memcpy(tile.data() + at.begin + 2 * row, &half, 2);
    }
    if (row < 0) continue;
    const std::vector<float> ones(static_cast<size_t>(n), 1);
    table.tile_f32(kind.kind, tile.data(), blocks, ones.data(), n, 1, y, kTileRows);
    if (std::isfinite(y[row])) return problem(fmt::format("weights of tile_f32, {}", kind.name));
    if (kind.codes) {
      Codes codes(table, ones, blocks);
      table.tile_int8(kind.kind, tile.data(), blocks, codes.view(), 0, 1, y, kTileRows);
      if (std::isfinite(y[row])) return problem(fmt::format("weights of tile_int8, {}", kind.name));
    }
  }
  {
    Aligned<std::byte> tile(static_cast<int64_t>(TileBytes(PackedKind::kBF16, blocks)) + 4096);
    FillTile(PackedKind::kBF16, blocks, false, source, tile.data());
    Aligned<uint16_t> rounded(n);
    table.round_to_bf16(x.data(), n, rounded.data());
    float y[kTileRows];
    table.pair_bf16(tile.data(), nullptr, blocks, rounded.data(), n, 1, y, nullptr, kTileRows);
    for (const float value : y)
      if (std::isfinite(value)) return problem("activations of pair_bf16");
  }
  const std::vector<float> ones(static_cast<size_t>(n), 1);
  std::vector<float> y = x;
  table.rms_norm(y.data(), ones.data(), n, 1e-6f, y.data());
  if (std::isfinite(y[static_cast<size_t>(where)])) return problem("rms_norm");
  y = x;
  table.add(ones.data(), n, y.data());
  if (std::isfinite(y[static_cast<size_t>(where)])) return problem("add");
  for (const auto kernel : {table.silu_mul, table.gelu_tanh_mul}) {
    y = x;
    kernel(ones.data(), n, y.data());
    // silu and gelu of -infinity are 0 in the limit.
    if (std::isfinite(y[static_cast<size_t>(where)]) && !(bad < 0)) return problem("gate");
    y = ones;
    kernel(x.data(), n, y.data());
    if (std::isfinite(y[static_cast<size_t>(where)])) return problem("up");
  }
  return {};
}

// A NaN in a query, a key or a value: no finite number where it is seen.
inline Problem CheckAttentionNotFinite(const KernelTable& table, AttentionCase c, Source& source) {
  c.style = Style::kOrdinary;
  AttentionData data(c, source);
  const float nan = FromBits(kNaNs[source.Below(std::size(kNaNs))]);
  const int64_t kind = source.Below(3), query = source.Below(c.queries),
                head = source.Below(c.heads);
  // A position that the query sees.
  const int64_t last = c.first + query;
  const int64_t oldest = c.window > 0 ? std::max<int64_t>(0, last + 1 - c.window) : 0;
  const auto position = static_cast<size_t>(source.Between(oldest, last));
  const int64_t key = source.Below(c.shape.key_dim), value = source.Below(c.shape.value_dim);
  if (kind == 0)
    data.q[static_cast<size_t>(query * data.q_stride + head * c.shape.key_dim + key)] = nan;
  if (kind == 1) data.keys[position][static_cast<size_t>(key)] = nan;
  if (kind == 2) data.values[position][static_cast<size_t>(value)] = nan;
  data.Write(table);
  const std::vector<float> out = data.Run(table, 0, c.queries, 0, c.heads);
  for (int64_t d = 0; d < c.shape.value_dim; ++d) {
    if (kind == 2 && d != value) continue;
    const auto at = static_cast<size_t>(query * data.out_stride + head * c.shape.value_dim + d);
    if (std::isfinite(out[at]))
      return fmt::format("{} of {}: a finite number from {:08x} in a {}, query {}, element {}",
                         c.Name(), table.name, BitsOf(nan),
                         kind == 0   ? "query"
                         : kind == 1 ? "key"
                                     : "value",
                         query, d);
  }
  return {};
}

}  // namespace lockstep
