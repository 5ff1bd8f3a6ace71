// EditMaker: builds one Edit from what a spec holds. Used by the rows of the catalogue.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "faults/edit.h"
#include "spec/model_spec.h"

namespace lockstep {

class EditMaker {
 public:
  explicit EditMaker(const ModelSpec& spec) : spec_(spec) {}

  // A fact of the model ("final_norm.eps"), of a layer ("mixer.rope", layer 3), of the run.
  // Several layers that get the same value become one item.
  EditMaker& Set(std::string path, const Json& value);
  EditMaker& Set(int32_t layer, std::string path, const Json& value);
  EditMaker& Run(std::string path, const Json& value);
  EditMaker& Weight(WeightEdit edit);

  bool empty() const { return facts_.empty() && edit_.empty(); }
  Edit Take() &&;

 private:
  struct Fact {
    std::string path;  // of a layer's: what follows "layers[...]."
    std::string value;
    std::vector<int64_t> layers;  // empty: of the model
  };
  const ModelSpec& spec_;
  std::vector<Fact> facts_;
  Edit edit_;
};

// One edit, or none where nothing was set.
std::vector<Edit> One(EditMaker maker);
// The edits that are not empty.
std::vector<Edit> Several(std::vector<EditMaker> makers);

// A maker on which set(maker, layer, its attention) has been called for each layer of that kind;
// likewise for each RoPE (of either kind of attention), each MLP (path "mlp", "mlp.expert" or
// "mlp.shared_expert.mlp"), each router, and each norm (layer -1: the final one).
EditMaker EachAttention(const ModelSpec& spec,
                        const std::function<void(EditMaker&, int32_t, const AttentionSpec&)>& set);
EditMaker EachRope(const ModelSpec& spec,
                   const std::function<void(EditMaker&, int32_t, const RopeSpec&)>& set);
EditMaker EachMlp(
    const ModelSpec& spec,
    const std::function<void(EditMaker&, int32_t, const std::string&, const MlpSpec&)>& set);
EditMaker EachMoe(const ModelSpec& spec,
                  const std::function<void(EditMaker&, int32_t, const MoeSpec&)>& set);
EditMaker EachNorm(
    const ModelSpec& spec,
    const std::function<void(EditMaker&, int32_t, const std::string&, const NormSpec&)>& set);

// A window for a model that has none: short, so that a short prompt shows it.
int64_t InventedWindow(const ModelSpec& spec);

// The fact at a path, as JSON.
Json FactAt(const ModelSpec& spec, const std::string& path);
Json FactAt(const ModelSpec& spec, int32_t layer, const std::string& path);

// The layers that hold this weight, increasing.
std::vector<int32_t> LayersWith(const ModelSpec& spec, Role role, Part part = Part::kWeight);
// An edit of that weight in each of them: one item, or none.
EditMaker& EditWhereItIs(EditMaker& maker, const ModelSpec& spec, WeightEdit edit);

}  // namespace lockstep
