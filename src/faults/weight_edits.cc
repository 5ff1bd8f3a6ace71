#include <algorithm>

#include "faults/edit_maker.h"
#include "faults/fault_edits.h"

namespace lockstep::fault_edits {
namespace {

constexpr int64_t kBlock = 32;  // columns that share a scale: the usual size of 4-bit formats

// The matrices that exporters quantize.
constexpr Role kMatrices[] = {
    Role::kQProj,          Role::kKProj,          Role::kVProj,          Role::kOProj,
    Role::kQAProj,         Role::kQBProj,         Role::kKvAProj,        Role::kKvBProj,
    Role::kConvInProj,     Role::kConvOutProj,    Role::kGateProj,       Role::kUpProj,
    Role::kDownProj,       Role::kExpertGateProj, Role::kExpertUpProj,   Role::kExpertDownProj,
    Role::kSharedGateProj, Role::kSharedUpProj,   Role::kSharedDownProj,
};

Edits OfMatrices(const ModelSpec& spec, const WeightEdit& change) {
  EditMaker maker(spec);
  for (const Role role : kMatrices) {
    WeightEdit edit = change;
    edit.role = role;
    EditWhereItIs(maker, spec, std::move(edit));
  }
  return One(std::move(maker));
}

// Two neighbouring layers that need the same weights; the second, or -1.
int32_t TwinOfPrevious(const ModelSpec& spec) {
  const auto shapes = [&](int32_t layer) {
    std::vector<std::pair<WeightId, std::pair<int64_t, int64_t>>> list;
    for (WeightSlot slot : RequiredWeights(spec)) {
      if (slot.id.layer != layer) continue;
      slot.id.layer = 0;
      list.push_back({slot.id, {slot.rows, slot.cols}});
    }
    return list;
  };
  for (int32_t i = 1; i < static_cast<int32_t>(spec.layers.size()); ++i)
    if (shapes(i) == shapes(i - 1)) return i;
  return -1;
}

// The first layer that has the weight, or -1.
int32_t FirstWith(const ModelSpec& spec, Role role) {
  const std::vector<int32_t> layers = LayersWith(spec, role);
  return layers.empty() ? -1 : layers.front();
}

}  // namespace

Edits ScaleAxis(const ModelSpec& spec) {
  return OfMatrices(spec, {.change = WeightChange::kOneBlockScale, .count = kBlock});
}
Edits NibbleOrder(const ModelSpec& spec) {
  return OfMatrices(spec, {.change = WeightChange::kSwapPairs});
}
Edits TailBlock(const ModelSpec& spec) {
  return OfMatrices(spec, {.change = WeightChange::kZeroTail, .count = kBlock / 2});
}
Edits ZeroPointAbsent(const ModelSpec& spec) {  // 8 codes of a scale of (largest / 8)
  return OfMatrices(spec, {.change = WeightChange::kShiftBlocks, .value = 1, .count = kBlock});
}
Edits ZeroPointOffByOne(const ModelSpec& spec) {
  Edits edits =
      OfMatrices(spec, {.change = WeightChange::kShiftBlocks, .value = 1.0 / 128, .count = kBlock});
  const Edits four_bits =
      OfMatrices(spec, {.change = WeightChange::kShiftBlocks, .value = 1.0 / 8, .count = kBlock});
  edits.insert(edits.end(), four_bits.begin(), four_bits.end());
  return edits;
}

Edits HeadUntied(const ModelSpec& spec) {
  EditMaker maker(spec);
  if (spec.lm_head.tied)
    maker.Set("lm_head.tied", false).Weight({.change = WeightChange::kZero, .role = Role::kLmHead});
  return One(std::move(maker));
}

Edits HeadTied(const ModelSpec& spec) {
  EditMaker maker(spec);
  if (!spec.lm_head.tied) maker.Set("lm_head.tied", true);
  return One(std::move(maker));
}

Edits TensorZeroed(const ModelSpec& spec) {
  std::vector<EditMaker> makers;
  for (const Role role :
       {Role::kOProj, Role::kKProj, Role::kDownProj, Role::kConvOutProj, Role::kSharedDownProj}) {
    EditMaker& maker = makers.emplace_back(spec);
    const int32_t layer = FirstWith(spec, role);
    if (layer >= 0) maker.Weight({.change = WeightChange::kZero, .role = role, .layers = {layer}});
  }
  EditMaker& expert = makers.emplace_back(spec);
  if (const int32_t layer = FirstWith(spec, Role::kExpertDownProj); layer >= 0)
    expert.Weight({.change = WeightChange::kZero,
                   .role = Role::kExpertDownProj,
                   .layers = {layer},
                   .expert = 0});
  return Several(std::move(makers));
}

Edits TensorOfOtherLayer(const ModelSpec& spec) {
  std::vector<EditMaker> makers;
  const int32_t twin = TwinOfPrevious(spec);
  if (twin < 0) return {};
  for (const Role role :
       {Role::kMixerPreNorm, Role::kMlpPreNorm, Role::kVProj, Role::kOProj, Role::kDownProj}) {
    const std::vector<int32_t> layers = LayersWith(spec, role);
    EditMaker& maker = makers.emplace_back(spec);
    if (std::binary_search(layers.begin(), layers.end(), twin))
      maker.Weight(
          {.change = WeightChange::kTake, .role = role, .layers = {twin}, .other_layer = twin - 1});
  }
  return Several(std::move(makers));
}

Edits LayersSwapped(const ModelSpec& spec) {
  EditMaker maker(spec);
  if (const int32_t twin = TwinOfPrevious(spec); twin >= 0)
    maker.Weight({.change = WeightChange::kSwap, .layers = {twin}, .other_layer = twin - 1});
  return One(std::move(maker));
}

Edits QkvOrder(const ModelSpec& spec) {
  bool square = !spec.layers.empty();
  for (const LayerSpec& layer : spec.layers) {
    const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
    square = square && a != nullptr && a->num_attention_heads == a->num_key_value_heads &&
             a->q_bias == a->k_bias && a->k_bias == a->v_bias;
  }
  if (!square) return {};
  std::vector<EditMaker> makers;
  for (const auto& [one, other] : {std::pair{Role::kQProj, Role::kVProj},
                                   {Role::kQProj, Role::kKProj},
                                   {Role::kKProj, Role::kVProj}}) {
    EditMaker& maker = makers.emplace_back(spec);
    for (const Part part : {Part::kWeight, Part::kBias})
      EditWhereItIs(
          maker, spec,
          {.change = WeightChange::kSwap, .role = one, .part = part, .other_role = other});
  }
  return Several(std::move(makers));
}

Edits NotTransposed(const ModelSpec& spec) {
  if (!spec.embedding.positions) return {};  // Conv1D is GPT-2's, and so are learned positions
  std::vector<EditMaker> makers;
  EditMaker& attention = makers.emplace_back(spec);
  for (const Role role : {Role::kQProj, Role::kKProj, Role::kVProj})
    EditWhereItIs(attention, spec, {.change = WeightChange::kTranspose, .role = role});
  EditMaker& output = makers.emplace_back(spec);
  EditWhereItIs(output, spec, {.change = WeightChange::kTranspose, .role = Role::kOProj});
  EditMaker& mlp = makers.emplace_back(spec);
  for (const Role role : {Role::kUpProj, Role::kDownProj})
    EditWhereItIs(mlp, spec, {.change = WeightChange::kTranspose, .role = role});
  return Several(std::move(makers));
}

Edits ScaleInWeights(const ModelSpec& spec) {
  double factor = 0;  // one for every layer, or the control does not apply
  for (const LayerSpec& layer : spec.layers) {
    const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
    if (a == nullptr || a->q_norm || a->clip_qkv || a->query_scale.divide ||
        a->query_scale.rounding != Rounding::kNone ||
        (factor != 0 && factor != a->query_scale.value))
      return {};
    factor = a->query_scale.value;
  }
  EditMaker maker = EachAttention(spec, [](EditMaker& m, int32_t i, const AttentionSpec&) {
    m.Set(i, "mixer.query_scale.value", 1.0);
  });
  for (const Part part : {Part::kWeight, Part::kBias})
    EditWhereItIs(
        maker, spec,
        {.change = WeightChange::kScale, .role = Role::kQProj, .part = part, .value = factor});
  return One(std::move(maker));
}

}  // namespace lockstep::fault_edits
