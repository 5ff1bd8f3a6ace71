#include "export/gguf/types.h"

#include <algorithm>

#include "base/nearest.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

// clang-format off
constexpr GgufPrecision kPrecisions[] = {
    {.name = "keep",   .type = "",       .file_type = 0,  .description = "every tensor as the model stores it"},
    {.name = "f32",    .type = "F32",    .file_type = 0,  .description = "32-bit floats"},
    {.name = "f16",    .type = "F16",    .file_type = 1,  .description = "matrices as 16-bit floats"},
    {.name = "bf16",   .type = "BF16",   .file_type = 32, .description = "matrices as bfloat16"},
    {.name = "q8_0",   .type = "Q8_0",   .file_type = 7,  .description = "every matrix Q8_0"},
    {.name = "q6_k",   .type = "Q6_K",   .file_type = 18, .description = "every matrix Q6_K"},
    {.name = "q5_k",   .type = "Q5_K",   .file_type = 16, .description = "every matrix Q5_K"},
    {.name = "q5_k_s", .type = "Q5_K",   .file_type = 16, .mixture = true, .description = "Q5_K, the head Q6_K"},
    {.name = "q5_k_m", .type = "Q5_K",   .file_type = 17, .mixture = true, .description = "Q5_K, half of v and down Q6_K"},
    {.name = "q5_1",   .type = "Q5_1",   .file_type = 9,  .description = "every matrix Q5_1"},
    {.name = "q5_0",   .type = "Q5_0",   .file_type = 8,  .description = "every matrix Q5_0"},
    {.name = "q4_k",   .type = "Q4_K",   .file_type = 14, .description = "every matrix Q4_K"},
    {.name = "q4_k_s", .type = "Q4_K",   .file_type = 14, .mixture = true, .description = "Q4_K, some v and down Q5_K"},
    {.name = "q4_k_m", .type = "Q4_K",   .file_type = 15, .mixture = true, .description = "Q4_K, half of v and down Q6_K"},
    {.name = "iq4_nl", .type = "IQ4_NL", .file_type = 25, .description = "every matrix IQ4_NL"},
    {.name = "iq4_xs", .type = "IQ4_XS", .file_type = 30, .description = "every matrix IQ4_XS"},
    {.name = "mxfp4",  .type = "MXFP4",  .file_type = 38, .description = "every matrix MXFP4"},
    {.name = "q4_1",   .type = "Q4_1",   .file_type = 3,  .description = "every matrix Q4_1"},
    {.name = "q4_0",   .type = "Q4_0",   .file_type = 2,  .description = "every matrix Q4_0"},
    {.name = "q3_k",   .type = "Q3_K",   .file_type = 11, .description = "every matrix Q3_K"},
    {.name = "q3_k_s", .type = "Q3_K",   .file_type = 11, .mixture = true, .description = "Q3_K, the head Q6_K"},
    {.name = "q3_k_m", .type = "Q3_K",   .file_type = 12, .mixture = true, .description = "Q3_K, v, o and down Q4_K"},
    {.name = "q3_k_l", .type = "Q3_K",   .file_type = 13, .mixture = true, .description = "Q3_K, v, o and down Q5_K"},
    {.name = "q2_k",   .type = "Q2_K",   .file_type = 10, .description = "every matrix Q2_K"},
};

// Where a row is no whole number of blocks: llama-quant.cpp's tensor_type_fallback.
struct Fallback { std::string_view type, smaller; };
constexpr Fallback kFallbacks[] = {
    {"Q2_K", "Q4_0"}, {"Q3_K", "Q4_0"}, {"Q4_K", "Q5_0"}, {"Q5_K", "Q5_1"}, {"Q6_K", "Q8_0"}, {"IQ4_XS", "IQ4_NL"},
};
// clang-format on

bool IsQuantizable(const PlacedTensor& tensor) {
  return tensor.matrix && tensor.role != Role::kRouter && tensor.role != Role::kConv &&
         tensor.role != Role::kEmbedPositions && tensor.role != Role::kSharedExpertGate;
}

const TensorType* Fitting(const TensorType& wanted, int64_t row) {
  if (row % wanted.block_elements == 0) return &wanted;
  for (const Fallback& fallback : kFallbacks) {
    if (fallback.type != wanted.name) continue;
    const TensorType* smaller = FindTensorType(fallback.smaller);
    if (row % smaller->block_elements == 0) return smaller;
  }
  return FindTensorType("F16");
}

// What a mixture asks about a tensor. `index` of `count` counts the tensors of its kind, as
// llama.cpp does; of experts, their layers.
struct Place {
  const ModelSpec* spec = nullptr;
  const PlacedTensor* tensor = nullptr;
  int64_t num_experts = 0, heads_per_kv = 1;
  int64_t index = 0, count = 0;
};

bool UseMoreBits(const Place& at) {
  return at.index < at.count / 8 || at.index >= 7 * at.count / 8 ||
         (at.index - at.count / 8) % 3 == 2;
}

bool IsFusedQkv(const PlacedTensor& tensor) {
  return tensor.role == Role::kQProj && tensor.weights.size() > 1;
}

std::string_view MixedType(std::string_view mixture, std::string_view base, const Place& at) {
  const Role role = at.tensor->role;
  const bool head = role == Role::kLmHead || (role == Role::kEmbedTokens && at.spec->lm_head.tied);
  if (head) return "Q6_K";
  std::string_view type = base;
  if (role == Role::kVProj || role == Role::kKvBProj || IsFusedQkv(*at.tensor)) {
    if (mixture == "q3_k_m") type = at.index < 2 ? "Q5_K" : "Q4_K";
    if (mixture == "q3_k_l") type = "Q5_K";
    if ((mixture == "q4_k_m" || mixture == "q5_k_m") && UseMoreBits(at)) type = "Q6_K";
    if (mixture == "q4_k_s" && at.index < 4) type = "Q5_K";
    return at.num_experts == 8 ? "Q8_0" : type;
  }
  if (role == Role::kKProj && at.num_experts == 8) return "Q8_0";
  if (role == Role::kDownProj || role == Role::kExpertDownProj || role == Role::kSharedDownProj) {
    if (mixture == "q3_k_m") return at.index < at.count / 16 ? "Q5_K" : "Q4_K";
    if (mixture == "q3_k_l") return "Q5_K";
    if ((mixture == "q4_k_m" || mixture == "q5_k_m") && UseMoreBits(at)) return "Q6_K";
    if (mixture == "q4_k_s" && at.index < at.count / 8) return "Q5_K";
  }
  if (role == Role::kOProj) {
    if (at.num_experts == 8)
      return mixture.starts_with("q3_k_s") || mixture == "q3_k_m" || mixture.starts_with("q4_k")
                 ? "Q5_K"
                 : type;
    if (mixture == "q3_k_m") return "Q4_K";
    if (mixture == "q3_k_l") return "Q5_K";
  }
  return type;
}

// v and fused q, k, v count together, all ways down count together.
int KindOf(const PlacedTensor& tensor) {
  if (tensor.role == Role::kVProj || tensor.role == Role::kKvBProj || IsFusedQkv(tensor)) return 1;
  if (tensor.role == Role::kDownProj || tensor.role == Role::kExpertDownProj ||
      tensor.role == Role::kSharedDownProj)
    return 2;
  return 0;
}

std::vector<std::string_view> MixedTypes(const GgufPrecision& precision, const ModelSpec& spec,
                                         std::span<const PlacedTensor> tensors) {
  int64_t count[3] = {}, seen[3] = {};
  for (const PlacedTensor& tensor : tensors)
    if (IsQuantizable(tensor)) ++count[KindOf(tensor)];
  Place at{.spec = &spec};
  for (const LayerSpec& layer : spec.layers)
    if (const auto* moe = std::get_if<MoeSpec>(&layer.mlp)) at.num_experts = moe->num_experts;
  std::vector<std::string_view> types;
  for (const PlacedTensor& tensor : tensors) {
    types.push_back(precision.type);
    if (!IsQuantizable(tensor)) continue;
    const int kind = KindOf(tensor);
    at.tensor = &tensor;
    at.index = seen[kind]++;
    at.count = count[kind];
    if (kind == 2 && at.num_experts > 1) {
      at.index = tensor.weights.front().id.layer;
      at.count = static_cast<int64_t>(spec.layers.size());
    }
    types.back() = MixedType(precision.name, precision.type, at);
  }
  return types;
}

// The type of all of the tensor's weights, where they have one and its codes can be copied.
const TensorType* StoredType(const PlacedTensor& tensor, const Weights& weights) {
  const TensorType* type = nullptr;
  for (const PlacedWeight& weight : tensor.weights) {
    const WeightView& view =
        weights.Get(weight.id.role, weight.id.layer, weight.id.part, weight.id.expert);
    if (type != nullptr && view.type != type) return nullptr;
    type = view.type;
    if (!type->plain() && (view.col_stride != 1 || weight.col_stride != 1 ||
                           view.addend != weight.addend || weight.cols != tensor.row_elements()))
      return nullptr;
  }
  return type;
}

TypeChoice KeptType(const PlacedTensor& tensor, const Weights& weights) {
  if (!IsQuantizable(tensor)) return {FindTensorType("F32"), ""};
  const TensorType* stored = StoredType(tensor, weights);
  if (stored != nullptr && stored->ggml_type) return {stored, ""};
  // Every 8-bit float is a half.
  const bool small = stored != nullptr && stored->name.starts_with("F8");
  const TensorType* type = FindTensorType(small ? "F16" : "F32");
  return {type, fmt::format("{}: {} instead of {}", tensor.name, type->name,
                            stored == nullptr ? "several types" : stored->name)};
}

}  // namespace

std::span<const GgufPrecision> GgufPrecisions() { return kPrecisions; }

Result<const GgufPrecision*> FindGgufPrecision(std::string_view name) {
  // The words of other targets.
  if (name == "fp32") name = "f32";
  if (name == "fp16") name = "f16";
  std::vector<std::string> known;
  for (const GgufPrecision& precision : kPrecisions) {
    if (precision.name == name) return &precision;
    known.emplace_back(precision.name);
  }
  const std::string nearest = NearestName(name, known);
  return UsageError(
      "--precision {}: GGUF has no such precision here{}; known are: {}", Quoted(name),
      nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest), fmt::join(known, ", "));
}

std::vector<TypeChoice> ChooseTypes(const GgufPrecision& precision, const ModelSpec& spec,
                                    std::span<const PlacedTensor> tensors, const Weights& weights) {
  std::vector<TypeChoice> choices;
  std::vector<std::string_view> wanted(tensors.size(), precision.type);
  if (precision.mixture) wanted = MixedTypes(precision, spec, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const PlacedTensor& tensor = tensors[i];
    if (precision.type.empty()) {
      choices.push_back(KeptType(tensor, weights));
      continue;
    }
    if (!IsQuantizable(tensor)) {
      choices.push_back({FindTensorType("F32"), ""});
      continue;
    }
    const TensorType* type = FindTensorType(wanted[i]);
    LS_CHECK(type != nullptr && type->quantize != nullptr, "{}", wanted[i]);
    TypeChoice choice{Fitting(*type, tensor.row_elements()), ""};
    if (choice.type != type)
      choice.substitution = fmt::format(
          "{}: {} instead of {} (its rows have {} elements, no multiple of {})", tensor.name,
          choice.type->name, type->name, tensor.row_elements(), type->block_elements);
    choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace lockstep
