#include "export/genai/decoder.h"

#include <algorithm>
#include <cmath>

#include "export/genai/layers.h"
#include "export/genai/linear.h"
#include "export/genai/norm.h"
#include "spec/rope_facts.h"

namespace lockstep::genai {
namespace {

// Of a model that does not say how long its sequences are.
constexpr int64_t kUnknownContext = 4096;

std::string Embedded(GraphBuilder& b) {
  const EmbeddingSpec& embedding = b.spec.embedding;
  const std::string x = b.Scaled("/model/embed_tokens", Lookup(b, "input_ids"), embedding.scale);
  if (!embedding.positions) return x;
  const MatrixSource table = SourceOf(b.weights.Get(Role::kEmbedPositions));
  const std::string weight = b.graph.Initializer(
      "model.embed_positions.weight", OnnxType::kFloat, {table.rows, table.cols},
      [&b, table](DataFile& file) { return WriteRows(table, b.weights, b.pool, file); });
  const std::string rows =
      b.graph.Node("/model/embed_positions/Gather", Onnx("Gather"), {weight, b.PositionIds()});
  return b.graph.Node("/model/embed_positions/Add", Onnx("Add"), {x, rows});
}

// x <- the layer's output.
void Layer(GraphBuilder& b, int index, Stream& x) {
  const LayerSpec& layer = b.spec.layers[static_cast<size_t>(index)];
  const std::string name = fmt::format("/model/layers.{}", index);
  const int64_t hidden = b.spec.embedding.hidden_size;
  const auto finished = [&](std::string y, const char* half, const std::optional<NormSpec>& norm,
                            Role role) {
    const std::string at = fmt::format("{}/{}", name, half);
    if (norm) y = Normed(b, at + "_post_norm", y, *norm, role, index, hidden);
    return b.Scaled(at + "_residual", y, layer.residual);
  };
  const std::string mixer_in =
      x.Normed(b, name + "/mixer_pre_norm", layer.mixer_pre_norm, Role::kMixerPreNorm, index);
  const std::string mixed = finished(
      std::visit([&](const auto& mixer) { return Mix(b, mixer, index, mixer_in); }, layer.mixer),
      "mixer", layer.mixer_post_norm, Role::kMixerPostNorm);
  const bool parallel = layer.wiring == Wiring::kParallel;
  if (!parallel) x.Add(b, mixed, name + "/mixer");
  // Parallel wiring without a norm of its own: the MLP reads what the mixer read.
  const std::string mlp_in =
      parallel && !layer.mlp_pre_norm
          ? mixer_in
          : x.Normed(b, name + "/mlp_pre_norm", layer.mlp_pre_norm, Role::kMlpPreNorm, index);
  std::string fed = finished(
      std::visit([&](const auto& mlp) { return FeedForward(b, mlp, index, mlp_in); }, layer.mlp),
      "mlp", layer.mlp_post_norm, Role::kMlpPostNorm);
  if (parallel) fed = b.graph.Node(name + "/parallel/Add", Onnx("Add"), {mixed, fed});
  x.Add(b, fed, name + "/mlp");
}

void Head(GraphBuilder& b, Stream& x) {
  const LmHeadSpec& head = b.spec.lm_head;
  const std::string normed =
      x.Normed(b, "/model/final_norm", b.spec.final_norm, Role::kFinalNorm, -1);
  Bias bias;
  if (head.bias) bias = [&b] { return b.ReadVector(Role::kLmHead, -1, Part::kBias); };
  std::string logits;
  if (head.tied) {
    logits = TiedHead(b, normed);
    if (bias)
      logits =
          b.graph.Node("/lm_head/Add", Onnx("Add"),
                       {logits, b.Floats("lm_head.bias", {b.spec.embedding.vocab_size}, bias)});
  } else {
    logits = Linear(b, "/lm_head", normed, SourceOf(b.weights.Get(Role::kLmHead)), bias);
  }
  logits = b.Scaled("/lm_head/logit_scale", logits, head.logit_scale);
  if (head.logit_softcap) logits = b.SoftCapped("/lm_head", logits, *head.logit_softcap);
  // onnxruntime-genai reads logits as float32 or float16.
  if (b.graph.floats() == OnnxType::kBFloat16)
    b.graph.NodeTo("/lm_head/Cast", Onnx("Cast"), {logits}, {"logits"},
                   {{"to", static_cast<int64_t>(OnnxType::kFloat)}});
  else
    b.graph.NodeTo("/lm_head/Identity", Onnx("Identity"), {logits}, {"logits"});
}

}  // namespace

int64_t ContextLength(const ModelSpec& spec) {
  int64_t length = spec.max_position_embeddings;
  if (length <= 0)
    length = spec.embedding.positions ? spec.embedding.positions->num_positions : kUnknownContext;
  for (const LayerSpec& layer : spec.layers) {
    const RopeSpec* rope = FindRope(layer);
    if (rope == nullptr || !rope->scaling) continue;
    if (const auto* dynamic = std::get_if<DynamicScaling>(&*rope->scaling)) {
      const double reach = std::ceil(
          4 * dynamic->factor * static_cast<double>(dynamic->original_max_position_embeddings));
      length = std::max(length, static_cast<int64_t>(std::min(reach, 0x1p31)));
    }
  }
  return length;
}

int64_t CacheHeadSize(const ModelSpec& spec) {
  int64_t size = 0;
  for (const LayerSpec& layer : spec.layers) size = std::max(size, HeadSize(layer.mixer));
  return (size + kHeadMultiple - 1) / kHeadMultiple * kHeadMultiple;
}

void BuildDecoder(GraphBuilder& b) {
  const OnnxDim batch{{}, "batch_size"}, sequence{{}, "sequence_length"};
  b.graph.Input({"input_ids", OnnxType::kInt64, {{batch, sequence}}});
  b.graph.Input({"attention_mask", OnnxType::kInt64, {{batch, {{}, "total_sequence_length"}}}});
  Stream x(Embedded(b));
  for (size_t i = 0; i < b.spec.layers.size(); ++i) Layer(b, static_cast<int>(i), x);
  Head(b, x);
  for (auto* list : {&b.keys, &b.values, &b.states})
    for (OnnxValueInfo& info : *list) b.graph.Input(info);
  const OnnxValueInfo logits{
      "logits", OnnxType::kFloat, {{batch, sequence, {b.spec.embedding.vocab_size, ""}}}};
  if (b.graph.floats() == OnnxType::kBFloat16)
    b.graph.Float32Output(logits);
  else
    b.graph.Output(logits);
  for (auto* list : {&b.present_keys, &b.present_values, &b.present_states})
    for (OnnxValueInfo& info : *list) b.graph.Output(info);
}

}  // namespace lockstep::genai
