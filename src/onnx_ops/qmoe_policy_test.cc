// The policy for quantized experts, row by row: what is written by it computes what its codes say.
#include "quant/qmoe_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "base/mapped_file.h"
#include "onnx_ops/op.h"
#include "quant/sm80_tiles.h"

namespace lockstep {
namespace {

constexpr int64_t kTokens = 3, kExperts = 3, kHidden = 128, kInter = 72, kChosen = 2;

std::string NameOf(const QMoeRequest& r) {
  return fmt::format("{} bits, block {}, {}, {}, {}{}", r.bits, r.block,
                     r.zeros == ZeroPoints::kNone ? "symmetric" : "zero points",
                     ExecutionProviderName(r.ep), r.activation, r.tiled ? ", tiled" : "");
}

std::vector<float> Normal(size_t n, uint32_t seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

// Rows and blocks of very different sizes, so that no scale can stand for another.
std::vector<float> UnevenMatrix(int64_t rows, int64_t cols, uint32_t seed) {
  std::vector<float> w =
      Normal(static_cast<size_t>(rows * cols), seed, 1.0f / std::sqrt(static_cast<float>(cols)));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      w[static_cast<size_t>(r * cols + c)] *=
          std::exp2(static_cast<float>(r % 5 - 2) + static_cast<float>(c / 16 % 3 - 1));
  return w;
}

OnnxType TypeOf(DType type) {
  return type == DType::kF16    ? OnnxType::kFloat16
         : type == DType::kBF16 ? OnnxType::kBFloat16
         : type == DType::kU8   ? OnnxType::kUInt8
                                : OnnxType::kFloat;
}

// A layer of experts written by a plan, and its node.
class Layer {
 public:
  Layer(const QMoeRequest& request, const QMoePlan& plan) : request_(request), plan_(plan) {
    const OnnxFormat& format = *FindOnnxFormat(plan.format);
    rows_[0] = plan.inter * (request.activation == "swiglu" ? 2 : 1);
    cols_[0] = rows_[1] = request.hidden;
    cols_[1] = plan.inter;
    const int64_t fc1 = request.inter * (request.activation == "swiglu" ? 2 : 1);
    std::vector<RowSource> sources[2];
    for (int64_t e = 0; e < request.experts; ++e) {
      values_.push_back(UnevenMatrix(fc1, request.hidden, 100 + static_cast<uint32_t>(e)));
      values_.push_back(
          UnevenMatrix(request.hidden, request.inter, 200 + static_cast<uint32_t>(e)));
    }
    for (int64_t e = 0; e < request.experts; ++e) {
      const auto at = static_cast<size_t>(2 * e);
      sources[0].push_back(Padded(RowsOf(values_[at], fc1, request.hidden), rows_[0], cols_[0]));
      sources[1].push_back(
          Padded(RowsOf(values_[at + 1], request.hidden, request.inter), rows_[1], cols_[1]));
    }
    for (int m = 0; m < 2; ++m) {
      auto weight = format.pack(sources[m], plan.recipe, nullptr);
      EXPECT_TRUE(weight) << weight.error().message;
      weights_[m] = *std::move(weight);
    }
    EXPECT_EQ(weights_[0].codes.shape, plan.fc1_codes);
    EXPECT_EQ(weights_[0].scales.shape, plan.fc1_scales);
    EXPECT_EQ(weights_[1].codes.shape, plan.fc2_codes);
    EXPECT_EQ(weights_[1].scales.shape, plan.fc2_scales);
    EXPECT_EQ(weights_[0].zero_points.has_value(), !plan.fc1_zero_points.empty());
    if (weights_[0].zero_points) {
      EXPECT_EQ(weights_[0].zero_points->shape, plan.fc1_zero_points);
      EXPECT_EQ(weights_[1].zero_points->shape, plan.fc2_zero_points);
    }
    const auto store = [&](const std::vector<float>& x) {
      PackedPart part{.type = request.activations, .shape = {}, .bytes = {}};
      part.bytes.resize(x.size() * DTypeSize(part.type));
      for (size_t i = 0; i < x.size(); ++i) {
        if (part.type == DType::kF32) {
          std::memcpy(part.bytes.data() + 4 * i, &x[i], 4);
        } else {
          const uint16_t h =
              part.type == DType::kF16 ? ToFloat16(x[i]).bits : ToBFloat16(x[i]).bits;
          std::memcpy(part.bytes.data() + 2 * i, &h, 2);
        }
      }
      return part;
    };
    input_ = store(Normal(static_cast<size_t>(kTokens * request.hidden), 1, 1));
    input_.shape = {kTokens, request.hidden};
    router_ = store(Normal(static_cast<size_t>(kTokens * request.experts), 2, 1));
    router_.shape = {kTokens, request.experts};
  }

  OpCall Node() const {
    OpCall call{
        .op = "QMoE", .domain = "com.microsoft", .name = "moe", .attributes = {}, .inputs = {}};
    call.inputs.resize(13);
    const auto operand = [](const PackedPart& part, bool constant) {
      return OpTensor{.type = TypeOf(part.type),
                      .shape = part.shape,
                      .bytes = part.bytes,
                      .constant = constant};
    };
    call.inputs[0] = operand(input_, false);
    call.inputs[1] = operand(router_, false);
    for (size_t m = 0; m < 2; ++m) {
      call.inputs[2 + 3 * m] = operand(weights_[m].codes, true);
      call.inputs[3 + 3 * m] = operand(weights_[m].scales, true);
      if (weights_[m].zero_points) call.inputs[11 + m] = operand(*weights_[m].zero_points, true);
    }
    call.attributes["k"] = kChosen;
    for (const auto& [name, value] : plan_.attributes)
      call.attributes[name] = std::visit([](const auto& v) { return OpAttribute(v); }, value);
    return call;
  }

  // What the node gives, or why it gives nothing.
  Result<std::vector<double>> Run() const {
    LS_TRY(const auto results, RunOp(Node(), {.int8_activations = false}));
    return Numbers({.type = request_.activations, .shape = {}, .bytes = results[0]->bytes});
  }

  // The definition in double: dequantized weights, softmax over the chosen experts.
  // wrong: 0 as it is, 1 one scale for the whole tensor, 2 the scales along the inputs.
  std::vector<double> PlainMath(int wrong = 0) const {
    const auto x = Numbers(input_), logits = Numbers(router_);
    const std::vector<double> w1 = Dequantized(0, wrong), w2 = Dequantized(1, wrong);
    std::vector<double> y(x.size(), 0.0);
    for (int64_t t = 0; t < kTokens; ++t) {
      std::vector<int64_t> order;
      for (int64_t e = 0; e < request_.experts; ++e) order.push_back(e);
      const double* row = logits.data() + t * request_.experts;
      std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return row[a] > row[b]; });
      double sum = 0;
      for (int64_t i = 0; i < kChosen; ++i) sum += std::exp(row[order[static_cast<size_t>(i)]]);
      for (int64_t i = 0; i < kChosen; ++i) {
        const int64_t e = order[static_cast<size_t>(i)];
        std::vector<double> h(static_cast<size_t>(rows_[0]));
        for (int64_t n = 0; n < rows_[0]; ++n)
          for (int64_t k = 0; k < cols_[0]; ++k)
            h[static_cast<size_t>(n)] +=
                w1[static_cast<size_t>((e * rows_[0] + n) * cols_[0] + k)] *
                x[static_cast<size_t>(t * cols_[0] + k)];
        for (int64_t n = 0; n < rows_[1]; ++n)
          for (int64_t k = 0; k < cols_[1]; ++k)
            y[static_cast<size_t>(t * rows_[1] + n)] +=
                std::exp(row[e]) / sum *
                w2[static_cast<size_t>((e * rows_[1] + n) * cols_[1] + k)] * Activated(h, k);
      }
    }
    return y;
  }

  PackedWeight& weight(int m) { return weights_[m]; }
  const QMoePlan& plan() const { return plan_; }

  static std::vector<double> Numbers(const PackedPart& part) {
    std::vector<double> x(part.bytes.size() / DTypeSize(part.type));
    ConvertToDouble(part.type, part.bytes.data(), x.size(), x.data());
    return x;
  }

 private:
  double Activated(const std::vector<double>& h, int64_t k) const {
    const auto i = static_cast<size_t>(k);
    const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
    if (request_.activation == "swiglu") return silu(h[2 * i]) * h[2 * i + 1];
    if (request_.activation == "silu") return silu(h[i]);
    if (request_.activation == "relu") return std::max(h[i], 0.0);
    if (request_.activation == "gelu")
      return 0.5 * h[i] * (1 + std::tanh(0.7978845608 * (h[i] + 0.044715 * h[i] * h[i] * h[i])));
    return h[i];
  }

  std::vector<double> Dequantized(int m, int wrong) const {
    const OnnxFormat& format = *FindOnnxFormat(plan_.format);
    PackedWeight weight = weights_[m];
    const auto scales = Numbers(weight.scales);
    // With all scales 1 the reader gives code - zero.
    for (size_t i = 0; i < scales.size(); ++i) {
      const uint16_t one = plan_.recipe.scale_type == DType::kF16 ? 0x3c00 : 0x3f80;
      const float single = 1;
      if (plan_.recipe.scale_type == DType::kF32)
        std::memcpy(weight.scales.bytes.data() + 4 * i, &single, 4);
      else
        std::memcpy(weight.scales.bytes.data() + 2 * i, &one, 2);
    }
    double mean = 0;
    for (const double s : scales) mean += s / static_cast<double>(scales.size());
    const int64_t n_rows = rows_[m], n_cols = cols_[m];
    const int64_t block = plan_.recipe.block > 0 ? plan_.recipe.block : n_cols;
    const int64_t blocks = n_cols / block;
    std::vector<double> out;
    std::vector<float> row(static_cast<size_t>(n_cols));
    for (int64_t e = 0; e < request_.experts; ++e)
      for (int64_t r = 0; r < n_rows; ++r) {
        format.unpack(weight, plan_.recipe, e, n_rows, n_cols, r, row.data());
        for (int64_t c = 0; c < n_cols; ++c) {
          const int64_t channel = wrong == 2 ? c % n_rows : r;
          const double scale =
              wrong == 1 ? mean
                         : scales[static_cast<size_t>((e * n_rows + channel) * blocks + c / block)];
          out.push_back(row[static_cast<size_t>(c)] * scale);
        }
      }
    return out;
  }

  QMoeRequest request_;
  QMoePlan plan_;
  int64_t rows_[2], cols_[2];
  std::vector<std::vector<float>> values_;
  PackedWeight weights_[2];
  PackedPart input_, router_;
};

double Largest(const std::vector<double>& a) {
  double most = 0;
  for (const double x : a) most = std::max(most, std::abs(x));
  return most;
}
double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// The table's rows at sizes of this test; those of the CPU without zero points with every
// activation.
std::vector<std::pair<QMoeRequest, QMoeDecision>> Rows() {
  std::vector<std::pair<QMoeRequest, QMoeDecision>> rows;
  for (const QMoePolicyRow& row : PolicyTable())
    for (const std::string_view activation : {"swiglu", "silu", "relu", "gelu", "identity"}) {
      QMoeRequest r = row.request;
      if (activation != "swiglu" &&
          (r.ep != ExecutionProvider::kCpu || r.zeros != ZeroPoints::kNone))
        continue;
      r.activation = activation;
      r.experts = kExperts;
      r.hidden = kHidden;
      r.inter = kInter;
      rows.emplace_back(r, DecideQMoe(r));
    }
  // What the CPU has for bfloat16.
  QMoeRequest bf16{
      .activations = DType::kBF16, .experts = kExperts, .hidden = kHidden, .inter = kInter};
  rows.emplace_back(bf16, DecideQMoe(bf16));
  EXPECT_TRUE(rows.back().second.plan);
  return rows;
}

// Roundings of the activations' type; the sums are double on both sides.
double Tolerance(const QMoeRequest& r, double magnitude) {
  return magnitude * (r.activations == DType::kF32   ? 2e-6
                      : r.activations == DType::kF16 ? 1e-3
                                                     : 8e-3);
}

TEST(QMoePolicy, WhatEveryRowWritesIsPlainMathOnItsCodesAndNothingElseIs) {
  int planned = 0, unreadable = 0;
  for (const auto& [request, decision] : Rows()) {
    if (!decision.plan) continue;
    const Layer layer(request, *decision.plan);
    const auto y = layer.Run();
    const std::vector<double> plain = layer.PlainMath();
    if (!y) {
      // Tiles that only CUDA reads; the plan says so.
      EXPECT_EQ(decision.plan->format, "qmoe_sm80") << NameOf(request);
      EXPECT_NE(decision.plan->proved.find("not run"), std::string::npos)
          << NameOf(request) << y.error().message;
      ++unreadable;
      continue;
    }
    EXPECT_EQ(decision.plan->proved.find("not run"), std::string::npos) << NameOf(request);
    const double tolerance = Tolerance(request, Largest(plain));
    EXPECT_LE(Distance(*y, plain), tolerance) << NameOf(request);
    // A scale for the whole tensor, and scales of the inputs instead of the outputs, are far off.
    EXPECT_GE(Distance(*y, layer.PlainMath(1)), 20 * tolerance) << NameOf(request);
    EXPECT_GE(Distance(*y, layer.PlainMath(2)), 20 * tolerance) << NameOf(request);
    ++planned;
  }
  EXPECT_GE(planned, 50);
  EXPECT_GE(unreadable, 1);
}

TEST(QMoePolicy, AScaleBelongsToItsOutputChannelAlone) {
  for (const auto& [request, decision] : Rows()) {
    if (!decision.plan) continue;
    Layer layer(request, *decision.plan);
    const auto before = layer.Run();
    if (!before) continue;
    // Every scale of output channel 7 of FC2, of every expert, is doubled (an exponent's bit).
    PackedPart& scales = layer.weight(1).scales;
    const int64_t rows = scales.shape[1], blocks = scales.shape.size() == 3 ? scales.shape[2] : 1;
    for (int64_t e = 0; e < kExperts; ++e)
      for (int64_t b = 0; b < blocks; ++b) {
        const auto at = static_cast<size_t>((e * rows + 7) * blocks + b);
        if (scales.type == DType::kF32) {
          float s;
          std::memcpy(&s, scales.bytes.data() + 4 * at, 4);
          s *= 2;
          std::memcpy(scales.bytes.data() + 4 * at, &s, 4);
        } else {
          float s;
          ConvertToFloat(scales.type, scales.bytes.data() + 2 * at, 1, &s);
          const uint16_t h =
              scales.type == DType::kF16 ? ToFloat16(2 * s).bits : ToBFloat16(2 * s).bits;
          std::memcpy(scales.bytes.data() + 2 * at, &h, 2);
        }
      }
    const auto after = layer.Run();
    ASSERT_TRUE(after);
    for (size_t i = 0; i < after->size(); ++i) {
      const double expected = i % kHidden == 7 ? 2 * (*before)[i] : (*before)[i];
      EXPECT_NEAR((*after)[i], expected, 1e-6 + std::abs(expected) * 1e-2 * (i % kHidden == 7))
          << NameOf(request) << " " << i;
    }
  }
}

TEST(QMoePolicy, ZerosThatFillTheInterSizeChangeNothing) {
  QMoeRequest request{.block = 32, .experts = kExperts, .hidden = kHidden, .inter = 40};
  const auto plan = PlanQMoe(request);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->inter, 64);
  request.block = 0;
  const auto channel = PlanQMoe(request);
  ASSERT_TRUE(channel);
  EXPECT_EQ(channel->inter, 40);
  // The rows of padding hold zeros, not the nearest code to them.
  request.block = 32;
  const Layer layer(request, *plan);
  std::vector<float> row(static_cast<size_t>(kHidden));
  for (int64_t r = 80; r < 128; ++r) {
    FindOnnxFormat("qmoe")->unpack(const_cast<Layer&>(layer).weight(0), plan->recipe, 1, 128,
                                   kHidden, r, row.data());
    for (const float w : row) EXPECT_EQ(w, 0.0f);
  }
}

// Seen under ONNX Runtime: 72 filled up to 96 brought FC2 to the look-up kernel.
TEST(QMoePolicy, TheLookUpKernelIsKeptFromTheSizesThatAreWritten) {
  const QMoeRequest request{
      .bits = 2, .block = 32, .experts = kExperts, .hidden = kHidden, .inter = kInter};
  EXPECT_EQ(DecideQMoe(request).fallback, QMoeFallback::kFourBits);
  QMoeRequest small = request;
  small.hidden = 96;
  EXPECT_TRUE(DecideQMoe(small).plan);
}

TEST(QMoePolicy, EveryFallbackEndsInAPlanOrNamesAnotherOperator) {
  std::mt19937 random(3);
  const auto pick = [&]<typename T>(std::initializer_list<T> options) {
    return *(options.begin() + random() % options.size());
  };
  for (const QMoePolicyRow& row : PolicyTable())
    if (!row.decision.plan) {
      EXPECT_FALSE(row.decision.reason.empty());
      EXPECT_NE(row.decision.fallback, QMoeFallback::kNone);
      const auto end = FallbackRequest(row.request);
      ASSERT_TRUE(end) << NameOf(row.request);
      EXPECT_TRUE(DecideQMoe(*end).plan) << NameOf(row.request);
    }
  for (int i = 0; i < 5000; ++i) {
    const QMoeRequest request{
        .bits = pick({2, 3, 4, 5, 8}),
        .block = pick({int64_t{0}, int64_t{16}, int64_t{24}, int64_t{32}, int64_t{64}, int64_t{128},
                       int64_t{256}}),
        .zeros = pick({ZeroPoints::kNone, ZeroPoints::kCodes}),
        .ep = pick({ExecutionProvider::kCpu, ExecutionProvider::kCuda, ExecutionProvider::kOther}),
        .activations = pick({DType::kF32, DType::kF16, DType::kBF16}),
        .activation =
            pick({std::string_view("swiglu"), std::string_view("silu"), std::string_view("geglu")}),
        .experts = pick({int64_t{1}, int64_t{8}}),
        .hidden = pick({int64_t{1}, int64_t{12}, int64_t{48}, int64_t{63}, int64_t{80}, int64_t{96},
                        int64_t{100}, int64_t{2048}, int64_t{2880}}),
        .inter = pick({int64_t{1}, int64_t{40}, int64_t{63}, int64_t{1408}, int64_t{2880}}),
        .tiled = pick({false, true})};
    const QMoeDecision decision = DecideQMoe(request);
    EXPECT_EQ(decision.plan.has_value(), decision.fallback == QMoeFallback::kNone);
    const auto end = FallbackRequest(request);
    const bool other_operator = request.activation == "geglu" || request.hidden % 2 != 0;
    if (other_operator && !end) continue;
    ASSERT_TRUE(end) << NameOf(request) << " hidden " << request.hidden;
    EXPECT_TRUE(DecideQMoe(*end).plan) << NameOf(request);
  }
}

// Whatever the policy writes has none of the dangers, on its own provider or on the CPU.
TEST(QMoePolicy, NoRowWritesADanger) {
  for (const auto& [request, decision] : Rows()) {
    if (!decision.plan) continue;
    QMoeNode node{.bits = request.bits,
                  .activation = std::string(request.activation),
                  .activations = request.activations,
                  .fc1_scale_rank = decision.plan->fc1_scales.size(),
                  .fc2_scale_rank = decision.plan->fc2_scales.size(),
                  .zero_points = !decision.plan->fc1_zero_points.empty(),
                  .hidden = request.hidden,
                  .inter = decision.plan->inter};
    for (const auto& [name, value] : decision.plan->attributes) {
      if (name == "block_size") node.block_size = std::get<int64_t>(value);
      if (name == "weights_prepacked") node.weights_prepacked = std::get<int64_t>(value);
      if (name == "normalize_routing_weights")
        node.normalize_routing_weights = std::get<int64_t>(value);
      if (name == "swiglu_fusion") node.swiglu_fusion = std::get<int64_t>(value);
    }
    EXPECT_TRUE(node.weights_prepacked.has_value()) << NameOf(request);
    const auto status = CheckQMoeNode(node, request.ep, "node");
    EXPECT_TRUE(status) << NameOf(request) << ": " << status.error().message;
  }
}

TEST(QMoePolicy, EveryDangerIsFoundInANodeThatHasItAndNotInASoundOne) {
  const QMoeNode sound{.block_size = 64,
                       .weights_prepacked = 0,
                       .normalize_routing_weights = 1,
                       .swiglu_fusion = 1,
                       .activation = "swiglu",
                       .activations = DType::kF16,
                       .fc1_scale_rank = 3,
                       .fc2_scale_rank = 3,
                       .hidden = 128,
                       .inter = 128};
  EXPECT_TRUE(CheckQMoeNode(sound, ExecutionProvider::kCpu, "n"));
  EXPECT_TRUE(CheckQMoeNode(sound, ExecutionProvider::kCuda, "n"));
  const std::map<std::string_view, std::function<void(QMoeNode&)>> make = {
      {"scale-rank-3-with-zero-points",
       [](QMoeNode& n) {
         n.block_size.reset();
         n.zero_points = true;
       }},
      {"no-scales", [](QMoeNode& n) { n.fc2_scale_rank.reset(); }},
      {"rank-2-weights", [](QMoeNode& n) { n.fc1_rank = 2; }},
      {"fusion-without-swiglu", [](QMoeNode& n) { n.activation = "silu"; }},
      {"unknown-quant-type", [](QMoeNode& n) { n.quant_type = "anything"; }},
      {"normalize-not-said", [](QMoeNode& n) { n.normalize_routing_weights.reset(); }},
      {"normalize-not-said-cuda", [](QMoeNode& n) { n.normalize_routing_weights = 0; }},
      {"tiled-8-bit",
       [](QMoeNode& n) {
         n.bits = 8;
         n.weights_prepacked = 1;
       }},
      {"prepacked-not-said", [](QMoeNode& n) { n.weights_prepacked.reset(); }},
      {"float-on-cuda", [](QMoeNode& n) { n.activations = DType::kF32; }},
      {"channel-zero-points",
       [](QMoeNode& n) {
         n.block_size.reset();
         n.zero_points = true;
       }},
      {"small-block-zero-points",
       [](QMoeNode& n) {
         n.block_size = 32;
         n.zero_points = true;
       }},
      {"small-block", [](QMoeNode& n) { n.block_size = 16; }},
      {"partial-blocks", [](QMoeNode& n) { n.inter = 80; }},
      {"unaligned", [](QMoeNode& n) { n.inter = 100; }},
  };
  for (const QMoeDanger& danger : QMoeDangers()) {
    ASSERT_TRUE(make.contains(danger.id)) << danger.id;
    QMoeNode node = sound;
    make.at(danger.id)(node);
    const auto found = QMoeDangersOf(node, danger.ep);
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const auto* d) {
      return d->id == danger.id;
    })) << danger.id;
    const auto status = CheckQMoeNode(node, danger.ep, "model.onnx: node \"moe\"");
    ASSERT_FALSE(status) << danger.id;
    EXPECT_EQ(status.error().message.find("model.onnx"), 0u);
  }
  EXPECT_EQ(make.size(), QMoeDangers().size());
}

TEST(QMoePolicy, ThePageIsTheTable) {
  const auto page = ReadTextFile(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/qmoe.md");
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_EQ(*page, QMoePage()) << "lockstep quantize --policies > docs/qmoe.md writes it anew";
}

}  // namespace
}  // namespace lockstep
