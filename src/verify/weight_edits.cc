#include "verify/weight_edits.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "spec/weights.h"

namespace lockstep {
namespace {

// Weights that exporters take for each other. Those of other shapes are left alone.
constexpr std::pair<Role, Role> kTwins[] = {
    {Role::kGateProj, Role::kUpProj},
    {Role::kKProj, Role::kVProj},
    {Role::kQProj, Role::kKProj},
    {Role::kQProj, Role::kVProj},
    {Role::kQProj, Role::kOProj},
    {Role::kQNorm, Role::kKNorm},
    {Role::kMixerPreNorm, Role::kMlpPreNorm},
    {Role::kMixerPreNorm, Role::kMixerPostNorm},
    {Role::kMixerPostNorm, Role::kMlpPostNorm},
    {Role::kMixerPostNorm, Role::kMlpPreNorm},
    {Role::kMlpPreNorm, Role::kMlpPostNorm},
    {Role::kExpertGateProj, Role::kExpertUpProj},
    {Role::kSharedGateProj, Role::kSharedUpProj},
};

// What the layers have of one role and part.
struct Place {
  std::vector<int32_t> layers;  // one entry per layer; empty outside the layers
  int64_t rows = 0, cols = 0;
  bool one_shape = true;
};

}  // namespace

std::vector<WeightHypothesis> WeightEdits(const ModelSpec& spec) {
  // Biases first: they are what exporters drop.
  std::map<std::pair<int, Role>, Place> places;
  for (const WeightSlot& slot : RequiredWeights(spec)) {
    Place& place = places[{slot.id.part == Part::kBias ? 0 : 1, slot.id.role}];
    if (place.cols == 0) place.rows = slot.rows, place.cols = slot.cols;
    place.one_shape &= place.rows == slot.rows && place.cols == slot.cols;
    if (slot.id.layer >= 0 && (place.layers.empty() || place.layers.back() != slot.id.layer))
      place.layers.push_back(slot.id.layer);
  }
  std::vector<WeightHypothesis> out;
  const auto add = [&](const std::pair<int, Role>& key, const Place& place, WeightEdit edit,
                       const std::string& sentence) {
    edit.role = key.second;
    edit.part = key.first == 0 ? Part::kBias : Part::kWeight;
    edit.layers = place.layers;
    out.push_back({{edit}, false, sentence});
    if (place.layers.size() < 2) return;
    for (const int32_t layer : place.layers) {
      edit.layers = {layer};
      out.push_back({{edit}, true, sentence + ", in one layer"});
    }
  };
  for (const auto& [key, place] : places) {
    add(key, place, {.change = WeightChange::kZero}, "a weight is zeros");
    if (place.rows == place.cols && place.one_shape && place.cols > 1)
      add(key, place, {.change = WeightChange::kTranspose}, "a square weight is transposed");
    for (const auto& [a, b] : kTwins) {
      if (key.second != a) continue;
      const auto twin = places.find({key.first, b});
      if (twin == places.end() || !place.one_shape || !twin->second.one_shape ||
          twin->second.layers != place.layers || twin->second.rows != place.rows ||
          twin->second.cols != place.cols)
        continue;
      add(key, place, {.change = WeightChange::kSwap, .other_role = b}, "two weights are swapped");
    }
    // Another layer's: in one layer at a time.
    if (!place.one_shape) continue;
    for (size_t i = 0; i + 1 < place.layers.size(); ++i) {
      WeightEdit edit{.change = WeightChange::kTake, .role = key.second};
      edit.part = key.first == 0 ? Part::kBias : Part::kWeight;
      edit.layers = {place.layers[i + 1]};
      edit.other_layer = place.layers[i];
      out.push_back({{edit}, true, "a weight is the layer's before it"});
      std::swap(edit.layers[0], edit.other_layer);
      out.push_back({{edit}, true, "a weight is the layer's after it"});
      edit.change = WeightChange::kSwap;
      out.push_back({{edit}, true, "two layers' weights are swapped"});
    }
  }
  return out;
}

}  // namespace lockstep
