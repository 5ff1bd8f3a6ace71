#include "export/genai/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::genai {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

// The exponents 2i / d, as fp32 numbers: torch divides fp32 by fp32.
std::vector<double> Exponents(int64_t rotary_dim) {
  std::vector<double> out;
  for (int64_t i = 0; i < rotary_dim; i += 2)
    out.push_back(double{static_cast<float>(i) / static_cast<float>(rotary_dim)});
  return out;
}

// Which number of turns over `original` positions a dimension makes: modeling_rope_utils.py,
// _compute_yarn_parameters, find_correction_dim.
double YarnDimension(const YarnScaling& yarn, const RopeSpec& rope, double turns) {
  return static_cast<double>(rope.rotary_dim) *
         std::log(static_cast<double>(yarn.original_max_position_embeddings) /
                  (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

double AttentionFactor(const RopeSpec& rope) {
  if (!rope.scaling) return 1;
  return std::visit(
      Overloaded{[](const YarnScaling& yarn) { return yarn.attention_factor; },
                 [](const LongRopeScaling& longrope) { return longrope.attention_factor; },
                 [](const auto&) { return 1.0; }},
      *rope.scaling);
}

// One pair's frequency, in double; `plain` is 1 / theta^(2i/d) as fp32, `power` theta^(2i/d).
struct Pair {
  size_t i;
  double plain, power;
};

double Scaled(const RopeSpec& rope, const Pair& pair, bool beyond_original) {
  const auto divided = [&](const std::vector<double>& factors) {
    return 1 / (factors[pair.i] * pair.power);
  };
  return std::visit(
      Overloaded{
          [&](const LinearScaling& linear) { return pair.plain / linear.factor; },
          [&](const DynamicScaling&) { return pair.plain; },
          // _compute_llama3_parameters
          [&](const Llama3Scaling& llama3) {
            const auto original = static_cast<double>(llama3.original_max_position_embeddings);
            const double wavelength = 2 * std::numbers::pi / pair.plain;
            if (wavelength > original / llama3.low_freq_factor) return pair.plain / llama3.factor;
            if (wavelength < original / llama3.high_freq_factor) return pair.plain;
            const double smooth = (original / wavelength - llama3.low_freq_factor) /
                                  (llama3.high_freq_factor - llama3.low_freq_factor);
            return (1 - smooth) * pair.plain / llama3.factor + smooth * pair.plain;
          },
          [&](const YarnScaling& yarn) {
            double low = YarnDimension(yarn, rope, yarn.beta_fast);
            double high = YarnDimension(yarn, rope, yarn.beta_slow);
            if (yarn.truncate) {
              low = std::floor(low);
              high = std::ceil(high);
            }
            low = std::max(low, 0.0);
            high = std::min(high, static_cast<double>(rope.rotary_dim - 1));
            if (low == high) high += 0.001;
            const double ramp =
                std::clamp((static_cast<double>(pair.i) - low) / (high - low), 0.0, 1.0);
            return ramp / (yarn.factor * pair.power) + (1 - ramp) / pair.power;
          },
          [&](const LongRopeScaling& longrope) {
            return divided(beyond_original ? longrope.long_factor : longrope.short_factor);
          },
          [&](const FrequencyFactors& factors) { return divided(factors.factors); },
      },
      *rope.scaling);
}

// Rows [0, rows) of one table. The fp32 product of position and frequency is the definition (as in
// transformers); its cosine is taken in double and rounded once.
Status WriteTable(const std::vector<float>& frequencies, int64_t rows, double attention_factor,
                  bool cosines, ThreadPool& pool, DataFile& file) {
  const size_t half = frequencies.size();
  const auto factor = static_cast<float>(attention_factor);
  constexpr int64_t kBlock = 4096, kPanel = 256;
  std::vector<float> values(static_cast<size_t>(std::min(rows, kBlock)) * half);
  for (int64_t first = 0; first < rows; first += kBlock) {
    const int64_t count = std::min(kBlock, rows - first);
    pool.For(static_cast<size_t>((count + kPanel - 1) / kPanel), [&](size_t panel) {
      const int64_t begin = static_cast<int64_t>(panel) * kPanel;
      for (int64_t p = begin; p < std::min(begin + kPanel, count); ++p)
        for (size_t i = 0; i < half; ++i) {
          const double angle = double{static_cast<float>(first + p) * frequencies[i]};
          values[static_cast<size_t>(p) * half + i] =
              static_cast<float>(cosines ? std::cos(angle) : std::sin(angle)) * factor;
        }
    });
    LS_RETURN_IF_ERROR(
        file.AppendValues(std::span<const float>(values).first(static_cast<size_t>(count) * half)));
  }
  return {};
}

// theta grows with the length (_compute_dynamic_ntk_parameters): the tables of this run's tokens
// are computed in the graph, in double where a rounding would show.
RopeValues DynamicTables(GraphBuilder& b, const RopeSpec& rope, const DynamicScaling& dynamic,
                         const std::string& suffix) {
  const std::string base = "/model/rotary_emb" + suffix;
  OnnxGraph& g = b.graph;
  const auto d = static_cast<double>(rope.rotary_dim);
  const auto original = static_cast<double>(dynamic.original_max_position_embeddings);
  const std::string length =
      g.Node(base + "/Max", Onnx("Max"),
             {b.TotalLength64(), g.Int(dynamic.original_max_position_embeddings)});
  const std::string reach = b.Cast(base + "/Max/Cast", length, OnnxType::kDouble);
  const std::string stretched =
      g.Node(base + "/Mul", Onnx("Mul"), {reach, g.Double(dynamic.factor / original)});
  const std::string less =
      g.Node(base + "/Sub", Onnx("Sub"), {stretched, g.Double(dynamic.factor - 1)});
  const std::string grown = g.Node(base + "/Pow", Onnx("Pow"), {less, g.Double(d / (d - 2))});
  const std::string theta = g.Node(base + "/theta/Mul", Onnx("Mul"), {grown, g.Double(rope.theta)});
  const std::string exponents = g.Doubles(base + "/exponents", Exponents(rope.rotary_dim));
  const std::string powers =
      b.Cast(base + "/powers/Cast", g.Node(base + "/powers", Onnx("Pow"), {theta, exponents}),
             OnnxType::kFloat);
  const std::string inverse = g.Node(base + "/inv_freq/Div", Onnx("Div"), {g.Float32(1), powers});
  const std::string positions =
      b.Cast(base + "/positions/Cast", b.Reshape(base + "/positions", b.PositionIds(), {-1, 1}),
             OnnxType::kFloat);
  const std::string angles =
      b.Cast(base + "/angles/Cast", g.Node(base + "/angles/Mul", Onnx("Mul"), {positions, inverse}),
             OnnxType::kDouble);
  RopeValues out{.made_by_run = true};
  out.cos = b.Cast(base + "/Cos/Cast", g.Node(base + "/Cos", Onnx("Cos"), {angles}), g.floats());
  out.sin = b.Cast(base + "/Sin/Cast", g.Node(base + "/Sin", Onnx("Sin"), {angles}), g.floats());
  const std::string shape = g.Node(base + "/rows/Shape", Onnx("Shape"), {"input_ids"});
  const std::string count = g.Node(base + "/rows/Size", Onnx("Size"), {"input_ids"});
  const std::string range =
      g.Node(base + "/rows/Range", Onnx("Range"), {g.Int(0), count, g.Int(1)});
  out.rows = g.Node(base + "/rows/Reshape", Onnx("Reshape"), {range, shape});
  return out;
}

// Rows for the original length with the short factors, then a row for each position with the long
// ones: a token takes its own row, moved by so many once the length passes the original.
std::string LongRopeRows(GraphBuilder& b, const LongRopeScaling& longrope,
                         const std::string& suffix) {
  const std::string base = "/model/rotary_emb" + suffix;
  const std::string original = b.graph.Int(longrope.original_max_position_embeddings);
  const std::string beyond =
      b.graph.Node(base + "/Greater", Onnx("Greater"), {b.TotalLength64(), original});
  const std::string flag = b.Cast(base + "/Cast", beyond, OnnxType::kInt64);
  const std::string offset = b.graph.Node(base + "/Mul", Onnx("Mul"), {flag, original});
  return b.graph.Node(base + "/Add", Onnx("Add"), {b.PositionIds(), offset});
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeSpec& rope, bool beyond_original) {
  std::vector<float> out;
  for (const double exponent : Exponents(rope.rotary_dim)) {
    const auto power = static_cast<float>(std::pow(rope.theta, exponent));
    const float plain = 1.0f / power;
    out.push_back(
        rope.scaling ? static_cast<float>(Scaled(rope, {out.size(), plain, power}, beyond_original))
                     : plain);
  }
  return out;
}

RopeValues RopeTables(GraphBuilder& b, const RopeSpec& rope) {
  for (const auto& [known, values] : b.ropes)
    if (known == rope) return values;
  const std::string suffix = b.ropes.empty() ? "" : fmt::format("_{}", b.ropes.size());
  RopeValues out;
  if (const auto* dynamic = rope.scaling ? std::get_if<DynamicScaling>(&*rope.scaling) : nullptr) {
    out = DynamicTables(b, rope, *dynamic, suffix);
  } else {
    const auto* longrope = rope.scaling ? std::get_if<LongRopeScaling>(&*rope.scaling) : nullptr;
    const int64_t original = longrope != nullptr ? longrope->original_max_position_embeddings : 0;
    const auto table = [&](const char* name, bool cosines) {
      return b.graph.Initializer(
          name + suffix, OnnxType::kFloat, {original + b.context_length, rope.rotary_dim / 2},
          [&b, rope, original, cosines](DataFile& file) -> Status {
            const double factor = AttentionFactor(rope);
            LS_RETURN_IF_ERROR(
                WriteTable(RopeFrequencies(rope, false), original, factor, cosines, b.pool, file));
            return WriteTable(RopeFrequencies(rope, original > 0), b.context_length, factor,
                              cosines, b.pool, file);
          });
    };
    out.cos = table("cos_cache", true);
    out.sin = table("sin_cache", false);
    if (longrope != nullptr) out.rows = LongRopeRows(b, *longrope, suffix);
  }
  b.ropes.emplace_back(rope, out);
  return out;
}

std::string Rotated(GraphBuilder& b, const std::string& name, const std::string& x,
                    const RopeSpec& rope, int64_t heads, int64_t size) {
  const RopeValues tables = RopeTables(b, rope);
  return b.graph.Node(
      name + "/RotaryEmbedding", Microsoft("RotaryEmbedding"),
      {x, tables.rows.empty() ? b.PositionIds() : tables.rows, tables.cos, tables.sin},
      {{"interleaved", int64_t{rope.layout == RopeLayout::kInterleaved}},
       {"num_heads", heads},
       {"rotary_embedding_dim", rope.rotary_dim < size ? rope.rotary_dim : 0}});
}

}  // namespace lockstep::genai
