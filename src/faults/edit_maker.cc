#include "faults/edit_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "faults/weight_place.h"
#include "spec/fields.h"
#include "spec/rope_facts.h"

namespace lockstep {

EditMaker& EditMaker::Set(std::string path, const Json& value) {
  facts_.push_back({std::move(path), value.dump(), {}});
  return *this;
}

EditMaker& EditMaker::Set(int32_t layer, std::string path, const Json& value) {
  if (layer < 0) return Set(std::move(path), value);
  const std::string text = value.dump();
  const auto same = std::find_if(facts_.begin(), facts_.end(), [&](const Fact& fact) {
    return !fact.layers.empty() && fact.path == path && fact.value == text;
  });
  if (same != facts_.end()) {
    same->layers.push_back(layer);
  } else {
    facts_.push_back({std::move(path), text, {layer}});
  }
  return *this;
}

EditMaker& EditMaker::Run(std::string path, const Json& value) {
  edit_.run.push_back({std::move(path), value.dump()});
  return *this;
}

EditMaker& EditMaker::Weight(WeightEdit edit) {
  edit_.weights.push_back(std::move(edit));
  return *this;
}

Edit EditMaker::Take() && {
  for (Fact& fact : facts_) {
    if (!fact.layers.empty()) {
      const bool all = fact.layers.size() == spec_.layers.size();
      fact.path = fmt::format("layers[{}].{}", all ? "*" : JoinNumbers(fact.layers), fact.path);
    }
    edit_.spec.push_back({std::move(fact.path), std::move(fact.value)});
  }
  return std::move(edit_);
}

std::vector<Edit> One(EditMaker maker) {
  std::vector<EditMaker> makers;
  makers.push_back(std::move(maker));
  return Several(std::move(makers));
}

std::vector<Edit> Several(std::vector<EditMaker> makers) {
  std::vector<Edit> edits;
  for (EditMaker& maker : makers)
    if (!maker.empty()) edits.push_back(std::move(maker).Take());
  return edits;
}

namespace {

// visit(layer number, layer) for each.
template <typename Visit>
EditMaker EachLayer(const ModelSpec& spec, const Visit& visit) {
  EditMaker maker(spec);
  for (size_t i = 0; i < spec.layers.size(); ++i)
    visit(maker, static_cast<int32_t>(i), spec.layers[i]);
  return maker;
}

}  // namespace

EditMaker EachAttention(const ModelSpec& spec,
                        const std::function<void(EditMaker&, int32_t, const AttentionSpec&)>& set) {
  return EachLayer(spec, [&](EditMaker& maker, int32_t i, const LayerSpec& layer) {
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer)) set(maker, i, *a);
  });
}

EditMaker EachRope(const ModelSpec& spec,
                   const std::function<void(EditMaker&, int32_t, const RopeSpec&)>& set) {
  return EachLayer(spec, [&](EditMaker& maker, int32_t i, const LayerSpec& layer) {
    if (const RopeSpec* rope = FindRope(layer)) set(maker, i, *rope);
  });
}

EditMaker EachMlp(
    const ModelSpec& spec,
    const std::function<void(EditMaker&, int32_t, const std::string&, const MlpSpec&)>& set) {
  return EachLayer(spec, [&](EditMaker& maker, int32_t i, const LayerSpec& layer) {
    if (const auto* mlp = std::get_if<MlpSpec>(&layer.mlp)) set(maker, i, "mlp", *mlp);
    if (const auto* moe = std::get_if<MoeSpec>(&layer.mlp)) {
      set(maker, i, "mlp.expert", moe->expert);
      if (moe->shared_expert) set(maker, i, "mlp.shared_expert.mlp", moe->shared_expert->mlp);
    }
  });
}

EditMaker EachMoe(const ModelSpec& spec,
                  const std::function<void(EditMaker&, int32_t, const MoeSpec&)>& set) {
  return EachLayer(spec, [&](EditMaker& maker, int32_t i, const LayerSpec& layer) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.mlp)) set(maker, i, *moe);
  });
}

EditMaker EachNorm(
    const ModelSpec& spec,
    const std::function<void(EditMaker&, int32_t, const std::string&, const NormSpec&)>& set) {
  EditMaker maker = EachLayer(spec, [&](EditMaker& m, int32_t i, const LayerSpec& layer) {
    const auto visit = [&](const std::string& path, const std::optional<NormSpec>& norm) {
      if (norm) set(m, i, path, *norm);
    };
    visit("mixer_pre_norm", layer.mixer_pre_norm);
    visit("mixer_post_norm", layer.mixer_post_norm);
    visit("mlp_pre_norm", layer.mlp_pre_norm);
    visit("mlp_post_norm", layer.mlp_post_norm);
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer)) {
      visit("mixer.q_norm", a->q_norm);
      visit("mixer.k_norm", a->k_norm);
    }
    if (const auto* a = std::get_if<MlaSpec>(&layer.mixer)) {
      visit("mixer.q_a_norm", a->q_a_norm);
      visit("mixer.kv_a_norm", a->kv_a_norm);
    }
  });
  set(maker, -1, "final_norm", spec.final_norm);
  return maker;
}

int64_t InventedWindow(const ModelSpec& spec) {
  return std::clamp<int64_t>(spec.max_position_embeddings / 4, 1, 16);
}

Json FactAt(const ModelSpec& spec, const std::string& path) {
  auto json = GetField(spec, path);
  LS_CHECK(json.has_value(), "{}", path);
  return *std::move(json);
}

Json FactAt(const ModelSpec& spec, int32_t layer, const std::string& path) {
  return FactAt(spec, layer < 0 ? path : fmt::format("layers[{}].{}", layer, path));
}

std::vector<int32_t> LayersWith(const ModelSpec& spec, Role role, Part part) {
  std::set<int32_t> layers;
  for (const WeightSlot& slot : RequiredWeights(spec))
    if (slot.id.role == role && slot.id.part == part) layers.insert(slot.id.layer);
  return {layers.begin(), layers.end()};
}

EditMaker& EditWhereItIs(EditMaker& maker, const ModelSpec& spec, WeightEdit edit) {
  std::vector<int32_t> layers = LayersWith(spec, *edit.role, edit.part);
  if (layers.empty()) return maker;
  const bool everywhere = IsModelRole(*edit.role) || layers.size() == spec.layers.size();
  edit.layers = everywhere ? std::vector<int32_t>{} : std::move(layers);
  return maker.Weight(std::move(edit));
}

}  // namespace lockstep
