// What the quantizers and the policy for experts write, run by ONNX Runtime itself where there is
// one, against src/onnx_ops: same bytes, same attributes, same numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/dtype.h"
#include "onnx_ops/op.h"
#include "ort/ort_session.h"
#include "quant/onnx_formats.h"
#include "quant/qmoe_policy.h"

namespace lockstep {
namespace {

// The few messages of onnx.proto that one node needs.
std::string Varint(uint64_t x) {
  std::string out;
  for (; x >= 0x80; x >>= 7) out += static_cast<char>(x | 0x80);
  return out + static_cast<char>(x);
}
std::string Number(int field, uint64_t x) {
  return Varint(static_cast<uint64_t>(field) << 3) + Varint(x);
}
std::string Bytes(int field, std::string_view bytes) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(bytes.size()) + std::string(bytes);
}
std::string Attribute(const std::string& name, const OpAttribute& value) {
  std::string out = Bytes(1, name);
  if (const auto* i = std::get_if<int64_t>(&value))
    return out + Number(3, static_cast<uint64_t>(*i)) + Number(20, 2);
  if (const auto* s = std::get_if<std::string>(&value)) return out + Bytes(4, *s) + Number(20, 3);
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &std::get<float>(value), 4);
  return out + Varint(2 << 3 | 5) + bits + Number(20, 1);
}
std::string ValueInfo(const std::string& name, OnnxType type, const std::vector<int64_t>& shape) {
  std::string dims;
  for (const int64_t dim : shape) dims += Bytes(1, Number(1, static_cast<uint64_t>(dim)));
  const std::string tensor = Number(1, static_cast<uint64_t>(type)) + Bytes(2, dims);
  return Bytes(1, name) + Bytes(2, Bytes(1, tensor));
}
std::string Initializer(const std::string& name, const OpTensor& tensor) {
  std::string out;
  for (const int64_t dim : tensor.shape) out += Number(1, static_cast<uint64_t>(dim));
  out += Number(2, static_cast<uint64_t>(tensor.type)) + Bytes(8, name);
  return out + Bytes(9, {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
}
std::string NameOf(size_t slot) { return fmt::format("x{}", slot); }

// A model of this one node; operands that are not constant are its inputs.
std::string ModelOf(const OpCall& call, const OpValue& output) {
  std::string node, initializers, inputs;
  for (size_t slot = 0; slot < call.inputs.size(); ++slot) {
    const auto& operand = call.inputs[slot];
    node += Bytes(1, operand ? NameOf(slot) : "");
    if (!operand) continue;
    if (operand->constant)
      initializers += Bytes(5, Initializer(NameOf(slot), *operand));
    else
      inputs += Bytes(11, ValueInfo(NameOf(slot), operand->type, operand->shape));
  }
  for (size_t slot = 0; slot < call.outputs.size(); ++slot)
    node += Bytes(2, slot == 0 ? "y" : call.outputs[slot] ? fmt::format("y{}", slot) : "");
  node += Bytes(3, "n") + Bytes(4, call.op);
  for (const auto& [name, value] : call.attributes) node += Bytes(5, Attribute(name, value));
  node += Bytes(7, call.domain);
  const std::string graph = Bytes(1, node) + Bytes(2, "g") + initializers + inputs +
                            Bytes(12, ValueInfo("y", output.type, output.shape));
  return Number(1, 10) + Bytes(7, graph) + Bytes(8, Bytes(1, "") + Number(2, 21)) +
         Bytes(8, Bytes(1, call.domain) + Number(2, 1));
}

// max |runtime - RunOp| over max |RunOp|.
Result<double> Disagreement(const std::shared_ptr<const OrtRuntime>& runtime, const OpCall& call) {
  LS_TRY(const auto mine, RunOp(call));
  const OpValue& value = *mine[0];
  const std::string model = ModelOf(call, value);
  LS_TRY(const auto session,
         OrtSession::OpenBytes(runtime, std::as_bytes(std::span(model)), {.threads = 1}));
  std::vector<OrtTensor> tensors;
  std::vector<std::string> names;
  for (size_t slot = 0; slot < call.inputs.size(); ++slot) {
    const auto& operand = call.inputs[slot];
    if (!operand || operand->constant) continue;
    LS_TRY(auto tensor,
           OrtTensor::Create(runtime, static_cast<OrtType>(operand->type), operand->shape));
    std::memcpy(tensor.bytes().data(), operand->bytes.data(), operand->bytes.size());
    tensors.push_back(std::move(tensor));
    names.push_back(NameOf(slot));
  }
  std::vector<OrtSession::Input> inputs;
  for (size_t i = 0; i < tensors.size(); ++i) inputs.push_back({names[i], &tensors[i]});
  const std::vector<std::string> outputs = {"y"};
  LS_TRY(const auto results, session->Run(inputs, outputs));
  const auto theirs = results[0].Floats(0, results[0].elements());
  std::vector<float> ours(theirs.size());
  const DType type = value.type == OnnxType::kFloat     ? DType::kF32
                     : value.type == OnnxType::kFloat16 ? DType::kF16
                                                        : DType::kBF16;
  if (value.bytes.size() != ours.size() * DTypeSize(type)) return INFINITY;
  ConvertToFloat(type, value.bytes.data(), ours.size(), ours.data());
  double most = 0, off = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    most = std::max<double>(most, std::abs(ours[i]));
    off = std::max<double>(off, std::abs(double{ours[i]} - theirs[i]));
  }
  return off / most;
}

double Tolerance(DType type) {
  return type == DType::kF32 ? 3e-6 : type == DType::kF16 ? 2e-3 : 1e-2;
}

std::vector<float> Normal(int64_t n, uint32_t seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

PackedPart Stored(const std::vector<float>& x, DType type, std::vector<int64_t> shape) {
  PackedPart part{.type = type, .shape = std::move(shape), .bytes = {}};
  part.bytes.resize(x.size() * DTypeSize(type));
  for (size_t i = 0; i < x.size(); ++i) {
    const uint16_t half = type == DType::kF16 ? ToFloat16(x[i]).bits : ToBFloat16(x[i]).bits;
    if (type == DType::kF32)
      std::memcpy(part.bytes.data() + 4 * i, &x[i], 4);
    else
      std::memcpy(part.bytes.data() + 2 * i, &half, 2);
  }
  return part;
}

OpTensor Operand(const PackedPart& part, bool constant) {
  return {.type = part.type == DType::kU8     ? OnnxType::kUInt8
                  : part.type == DType::kF16  ? OnnxType::kFloat16
                  : part.type == DType::kBF16 ? OnnxType::kBFloat16
                                              : OnnxType::kFloat,
          .shape = part.shape,
          .bytes = part.bytes,
          .constant = constant};
}

std::shared_ptr<const OrtRuntime> Runtime() {
  auto runtime = OrtRuntime::Load();
  return runtime ? *runtime : nullptr;
}

TEST(OnnxOpsRuntime, EveryRowOfThePolicyRunsAsItsCodesSay) {
  const auto runtime = Runtime();
  if (runtime == nullptr) GTEST_SKIP() << "no ONNX Runtime";
  constexpr int64_t kExperts = 3, kHidden = 128, kInter = 72, kTokens = 4;
  std::vector<QMoeRequest> requests;
  for (const QMoePolicyRow& row : PolicyTable()) requests.push_back(row.request);
  for (const int64_t block : {16, 32, 64, 128})
    requests.push_back({.block = block, .accuracy_level = 4});
  requests.push_back({.activations = DType::kBF16});
  int ran = 0;
  for (QMoeRequest request : requests)
    for (const std::string_view activation : {"swiglu", "silu"}) {
      request.activation = activation;
      request.experts = kExperts;
      request.hidden = kHidden;
      request.inter = kInter;
      const auto plan = PlanQMoe(request);
      if (!plan || plan->proved.find("not run") != std::string::npos) continue;
      const int64_t factor = activation == "swiglu" ? 2 : 1;
      std::vector<std::vector<float>> values;
      for (int64_t e = 0; e < kExperts; ++e) {
        values.push_back(Normal(factor * kInter * kHidden, 10 + static_cast<uint32_t>(e), 0.09f));
        values.push_back(Normal(kHidden * kInter, 20 + static_cast<uint32_t>(e), 0.12f));
      }
      std::vector<RowSource> fc1, fc2;
      for (size_t e = 0; e < static_cast<size_t>(kExperts); ++e) {
        fc1.push_back(
            Padded(RowsOf(values[2 * e], factor * kInter, kHidden), factor * plan->inter, kHidden));
        fc2.push_back(Padded(RowsOf(values[2 * e + 1], kHidden, kInter), kHidden, plan->inter));
      }
      const OnnxFormat& format = *FindOnnxFormat(plan->format);
      const auto w1 = format.pack(fc1, plan->recipe, nullptr);
      const auto w2 = format.pack(fc2, plan->recipe, nullptr);
      ASSERT_TRUE(w1 && w2);
      const PackedPart input =
          Stored(Normal(kTokens * kHidden, 1, 1), request.activations, {kTokens, kHidden});
      const PackedPart router =
          Stored(Normal(kTokens * kExperts, 2, 1), request.activations, {kTokens, kExperts});
      OpCall call{
          .op = "QMoE", .domain = "com.microsoft", .name = "n", .attributes = {}, .inputs = {}};
      call.inputs.resize(13);
      call.inputs[0] = Operand(input, false);
      call.inputs[1] = Operand(router, false);
      call.inputs[2] = Operand(w1->codes, true);
      call.inputs[3] = Operand(w1->scales, true);
      call.inputs[5] = Operand(w2->codes, true);
      call.inputs[6] = Operand(w2->scales, true);
      if (w1->zero_points) call.inputs[11] = Operand(*w1->zero_points, true);
      if (w2->zero_points) call.inputs[12] = Operand(*w2->zero_points, true);
      call.attributes["k"] = int64_t{2};
      for (const auto& [name, value] : plan->attributes)
        call.attributes[name] = std::visit([](const auto& v) { return OpAttribute(v); }, value);
      const auto off = Disagreement(runtime, call);
      const auto what = fmt::format("{} bits, block {}, {}, {}", request.bits, request.block,
                                    ExecutionProviderName(request.ep), activation);
      ASSERT_TRUE(off) << what << ": " << off.error().message;
      EXPECT_LE(*off, Tolerance(request.activations)) << what;
      ++ran;
    }
  EXPECT_GE(ran, 60);
}

TEST(OnnxOpsRuntime, MatMulNBitsOfEveryRecipeRunsAsItsCodesSay) {
  const auto runtime = Runtime();
  if (runtime == nullptr) GTEST_SKIP() << "no ONNX Runtime";
  constexpr int64_t kRows = 40, kTokens = 3;
  int ran = 0;
  for (const int64_t cols : {96, 72, 512})
    for (const int bits : {2, 4, 8})
      for (const int64_t block : {16, 32, 64, 128, 256})
        for (const ZeroPoints zeros : {ZeroPoints::kNone, ZeroPoints::kCodes})
          for (const DType type : {DType::kF32, DType::kF16})
            for (const int64_t accuracy : {0, 4}) {
              const auto values = Normal(kRows * cols, 5, 0.05f);
              const RowSource source = RowsOf(values, kRows, cols);
              const CodeRecipe recipe{
                  .bits = bits, .block = block, .zeros = zeros, .scale_type = type};
              const auto weight = PackMatMulNBits({&source, 1}, recipe, nullptr);
              ASSERT_TRUE(weight) << weight.error().message;
              const PackedPart a = Stored(Normal(kTokens * cols, 6, 1), type, {kTokens, cols});
              OpCall call{.op = "MatMulNBits",
                          .domain = "com.microsoft",
                          .name = "n",
                          .attributes = {{"K", cols},
                                         {"N", kRows},
                                         {"bits", int64_t{bits}},
                                         {"block_size", block},
                                         {"accuracy_level", accuracy}},
                          .inputs = {Operand(a, false), Operand(weight->codes, true),
                                     Operand(weight->scales, true)}};
              if (weight->zero_points)
                call.inputs.emplace_back(Operand(*weight->zero_points, true));
              const auto off = Disagreement(runtime, call);
              const auto what = fmt::format("{} columns, {} bits, block {}, accuracy {}", cols,
                                            bits, block, accuracy);
              ASSERT_TRUE(off) << what << ": " << off.error().message;
              EXPECT_LE(*off, Tolerance(type)) << what;
              ++ran;
            }
  EXPECT_EQ(ran, 360);
}

TEST(OnnxOpsRuntime, RowsOfAnEmbeddingOfEveryRecipeAreWhatItsCodesSay) {
  const auto runtime = Runtime();
  if (runtime == nullptr) GTEST_SKIP() << "no ONNX Runtime";
  constexpr int64_t kRows = 30;
  const std::vector<int64_t> indices = {0, 7, -1, 29, 3, 3};
  int ran = 0;
  for (const int64_t cols : {96, 72})
    for (const int bits : {2, 4, 8})
      for (const int64_t block : {16, 32, 64, 128})
        for (const ZeroPoints zeros : {ZeroPoints::kNone, ZeroPoints::kCodes})
          for (const DType type : {DType::kF32, DType::kF16}) {
            const auto values = Normal(kRows * cols, 5, 0.05f);
            const RowSource source = RowsOf(values, kRows, cols);
            const CodeRecipe recipe{
                .bits = bits, .block = block, .zeros = zeros, .scale_type = type};
            const auto weight = PackGather({&source, 1}, recipe, nullptr);
            ASSERT_TRUE(weight) << weight.error().message;
            OpCall call{.op = "GatherBlockQuantized",
                        .domain = "com.microsoft",
                        .name = "n",
                        .attributes = {{"bits", int64_t{bits}},
                                       {"block_size", block},
                                       {"gather_axis", int64_t{0}},
                                       {"quantize_axis", int64_t{1}}},
                        .inputs = {Operand(weight->codes, true),
                                   OpTensor{.type = OnnxType::kInt64,
                                            .shape = {2, 3},
                                            .bytes = std::as_bytes(std::span(indices))},
                                   Operand(weight->scales, true)}};
            if (weight->zero_points) call.inputs.emplace_back(Operand(*weight->zero_points, true));
            const auto off = Disagreement(runtime, call);
            ASSERT_TRUE(off) << off.error().message;
            EXPECT_LE(*off, Tolerance(type)) << bits << " bits, block " << block;
            ++ran;
          }
  EXPECT_EQ(ran, 96);
}

TEST(OnnxOpsRuntime, ExpertsWithFloatWeightsAgree) {
  const auto runtime = Runtime();
  if (runtime == nullptr) GTEST_SKIP() << "no ONNX Runtime";
  std::mt19937 random(23);
  const auto upto = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int i = 0; i < 60; ++i) {
    const int64_t experts = 1 + upto(6), hidden = 1 + upto(40), inter = 1 + upto(40),
                  tokens = 1 + upto(5);
    const char* kinds[] = {"swiglu", "silu", "gelu", "relu", "identity"};
    const std::string kind = kinds[upto(5)];
    const int64_t rows = inter * (kind == "swiglu" ? 2 : 1);
    OpCall call{.op = "MoE",
                .domain = "com.microsoft",
                .name = "n",
                .attributes = {{"k", 1 + upto(experts)},
                               {"activation_type", kind},
                               {"normalize_routing_weights", upto(2)}},
                .inputs = {}};
    call.inputs.resize(6);
    if (kind == "swiglu") {
      call.attributes["swiglu_fusion"] = int64_t{1};
      call.attributes["activation_alpha"] = 1.0f + 0.5f * static_cast<float>(upto(2));
      call.attributes["activation_beta"] = static_cast<float>(upto(2));
      if (upto(2) == 0) call.attributes["swiglu_limit"] = 0.5f;
    }
    std::vector<PackedPart> parts;
    parts.reserve(6);
    const auto floats = [&](size_t slot, std::vector<int64_t> shape, bool constant) {
      int64_t n = 1;
      for (const int64_t dim : shape) n *= dim;
      parts.push_back(
          Stored(Normal(n, static_cast<uint32_t>(random()), 1), DType::kF32, std::move(shape)));
      call.inputs[slot] = Operand(parts.back(), constant);
    };
    floats(0, {tokens, hidden}, false);
    floats(1, {tokens, experts}, false);
    floats(2, {experts, rows, hidden}, true);
    floats(4, {experts, hidden, inter}, true);
    if (upto(2) == 0) {
      floats(3, {experts, rows}, true);
      floats(5, {experts, hidden}, true);
    }
    const auto off = Disagreement(runtime, call);
    ASSERT_TRUE(off) << off.error().message;
    EXPECT_LE(*off, 3e-6) << kind << " " << experts << " " << hidden << " " << inter;
  }
}

// Attention with whatever its attributes may be: a fresh prompt, a growing cache and a buffer.
TEST(OnnxOpsRuntime, AttentionOfRandomAttributesAgrees) {
  const auto runtime = Runtime();
  if (runtime == nullptr) GTEST_SKIP() << "no ONNX Runtime";
  std::mt19937 random(17);
  const auto upto = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int i = 0; i < 400; ++i) {
    const int64_t kv = 1 + upto(3), heads = kv * (1 + upto(4)), d = 16 * (1 + upto(4));
    const int64_t batch = 1 + upto(2), kind = upto(3);
    const int64_t past = kind == 0 ? 0 : 1 + upto(20);
    const int64_t seq = batch > 1 && past > 0 ? 1 : 1 + upto(6);
    const int64_t total = past + seq, rows = kind == 2 ? total + upto(9) : past;
    const DType type = upto(4) == 0 ? DType::kF16 : DType::kF32;
    OpCall call{.op = "GroupQueryAttention",
                .domain = "com.microsoft",
                .name = "n",
                .attributes = {{"num_heads", heads}, {"kv_num_heads", kv}},
                .inputs = {}};
    call.inputs.resize(12);
    std::vector<PackedPart> parts;
    parts.reserve(12);
    const auto floats = [&](size_t slot, std::vector<int64_t> shape, bool constant = false) {
      int64_t n = 1;
      for (const int64_t dim : shape) n *= dim;
      parts.push_back(
          Stored(Normal(n, static_cast<uint32_t>(random()), 1), type, std::move(shape)));
      call.inputs[slot] = Operand(parts.back(), constant);
    };
    if (upto(3) == 0) {
      floats(0, {batch, seq, (heads + 2 * kv) * d});
    } else {
      floats(0, {batch, seq, heads * d});
      floats(1, {batch, seq, kv * d});
      floats(2, {batch, seq, kv * d});
    }
    if (kind != 0) {
      floats(3, {batch, kv, rows, d});
      floats(4, {batch, kv, rows, d});
    }
    call.outputs = {true, true, true};
    const std::vector<int32_t> last(static_cast<size_t>(batch), static_cast<int32_t>(total - 1));
    const auto tokens = static_cast<int32_t>(total);
    call.inputs[5] = OpTensor{
        .type = OnnxType::kInt32, .shape = {batch}, .bytes = std::as_bytes(std::span(last))};
    call.inputs[6] = OpTensor{
        .type = OnnxType::kInt32, .shape = {}, .bytes = std::as_bytes(std::span(&tokens, 1))};
    if (upto(2) == 0) {
      call.attributes["do_rotary"] = int64_t{1};
      call.attributes["rotary_interleaved"] = upto(2);
      const int64_t half = 8 * (1 + upto(d / 16));
      floats(7, {40, half}, true);
      floats(8, {40, half}, true);
    }
    if (upto(3) == 0) floats(10, {1 + upto(batch), upto(2) == 0 ? 1 : heads, seq, total});
    if (upto(4) == 0) floats(11, {heads});
    if (call.inputs[10] && call.inputs[10]->shape[0] != 1 && call.inputs[10]->shape[0] != batch)
      continue;
    if (upto(3) == 0) call.attributes["softcap"] = 0.5f + static_cast<float>(upto(4));
    if (upto(3) == 0) call.attributes["scale"] = 0.1f + 0.1f * static_cast<float>(upto(4));
    if (upto(4) == 0) call.attributes["smooth_softmax"] = int64_t{1};
    if (upto(3) == 0)
      call.attributes["local_window_size"] = 1 + upto(8);
    else if (upto(5) == 0)
      call.attributes["causal"] = int64_t{0};
    const auto off = Disagreement(runtime, call);
    ASSERT_TRUE(off) << i << ": " << off.error().message;
    EXPECT_LE(*off, type == DType::kF32 ? 3e-6 : 4e-3)
        << i << ": batch " << batch << ", kind " << kind << ", past " << past << ", seq " << seq
        << ", bias " << (call.inputs[10] ? 1 : 0) << ", sink " << (call.inputs[11] ? 1 : 0);
  }
}

}  // namespace
}  // namespace lockstep
