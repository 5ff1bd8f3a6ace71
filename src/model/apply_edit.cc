#include "model/apply_edit.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "faults/weight_place.h"
#include "model/weight_changes.h"

namespace lockstep {
namespace {

using Views = std::map<WeightId, WeightView>;

class Editor {
 public:
  Editor(const ModelSpec& spec, const Weights& weights) : spec_(spec), views_(weights.all()) {
    for (const WeightSlot& slot : RequiredWeights(spec)) slots_.emplace(slot.id, slot);
  }

  Status Apply(const WeightEdit& edit) {
    const std::vector<WeightId> ids = Named(edit);
    if (ids.empty()) return UsageError("{}: the edited model has no such weight", ToString(edit));
    Views made;  // every change of one item reads what was there before it
    for (const WeightId& id : ids) LS_RETURN_IF_ERROR(Make(edit, id, made));
    for (auto& [id, view] : made) views_[id] = std::move(view);
    return {};
  }

  Result<Weights> Finish() && {
    Weights weights;
    for (const auto& [id, slot] : slots_) {
      const auto found = views_.find(id);
      if (found == views_.end())
        return UsageError(
            "the edited model needs {} [{}, {}], and the model has no such weight; add \"weights: "
            "zero {}\" or take it from another",
            ToString(id), slot.rows, slot.cols, PlaceOf(id));
      WeightView& view = found->second;
      if (view.rows != slot.rows || view.cols != slot.cols)
        return UsageError(
            "the edited model needs {} as [{}, {}], but it is [{}, {}]; \"weights: fit {}\" makes "
            "it so",
            ToString(id), slot.rows, slot.cols, view.rows, view.cols, PlaceOf(id));
      weights.Set(id, std::move(view));
    }
    for (auto& values : owned_) weights.Keep(std::move(values));
    return weights;
  }

 private:
  static std::string PlaceOf(const WeightId& id) {
    WeightEdit edit{.role = id.role, .part = id.part, .expert = id.expert};
    if (id.layer >= 0) edit.layers = {id.layer};
    return PlaceText(edit);
  }

  static bool Names(const WeightEdit& edit, const WeightId& id) {
    if (edit.role ? id.role != *edit.role || id.part != edit.part : id.layer < 0) return false;
    if (edit.expert >= 0 && id.expert != edit.expert) return false;
    return edit.layers.empty() || id.layer < 0 ||
           std::binary_search(edit.layers.begin(), edit.layers.end(), id.layer);
  }

  std::vector<WeightId> Named(const WeightEdit& edit) const {
    std::vector<WeightId> ids;
    for (const auto& [id, slot] : slots_)
      if (Names(edit, id)) ids.push_back(id);
    return ids;
  }

  WeightId OtherOf(const WeightEdit& edit, WeightId id) const {
    if (edit.other_role) id.role = *edit.other_role;
    if (edit.other_layer >= 0) id.layer = edit.other_layer;
    if (edit.other_expert >= 0) id.expert = edit.other_expert;
    return id;
  }

  Result<const WeightView*> Find(const WeightEdit& edit, const WeightId& id) const {
    const auto found = views_.find(id);
    if (found != views_.end()) return &found->second;
    return UsageError("{}: the model has no {}", ToString(edit), ToString(id));
  }

  static Dense Read(const WeightView& view) {
    Dense dense{view.rows, view.cols,
                std::vector<float>(static_cast<size_t>(view.rows * view.cols))};
    view.ReadRows(0, view.rows, dense.values.data(), view.cols);
    return dense;
  }

  WeightView Own(const WeightId& id, Dense dense, int64_t row_stride) {
    auto values = std::make_shared<const std::vector<float>>(std::move(dense.values));
    WeightView view{.tensor = ToString(id) + " (edited)",
                    .type = FindTensorType("F32"),
                    .data = reinterpret_cast<const std::byte*>(values->data()),
                    .rows = dense.rows,
                    .cols = dense.cols,
                    .row_stride = row_stride};
    owned_.push_back(std::move(values));
    return view;
  }
  WeightView Own(const WeightId& id, Dense dense) {
    const int64_t cols = dense.cols;
    return Own(id, std::move(dense), cols);
  }

  Status Make(const WeightEdit& edit, const WeightId& id, Views& made) {
    const WeightSlot& slot = slots_.at(id);
    switch (edit.change) {
      case WeightChange::kZero: {  // one row of zeros is every row
        Dense zeros{slot.rows, slot.cols, std::vector<float>(static_cast<size_t>(slot.cols))};
        made[id] = Own(id, std::move(zeros), 0);
        return {};
      }
      case WeightChange::kTake: {
        LS_TRY(const WeightView* other, Find(edit, OtherOf(edit, id)));
        made[id] = *other;
        return {};
      }
      case WeightChange::kSwap: {
        LS_TRY(const WeightView* one, Find(edit, id));
        LS_TRY(const WeightView* other, Find(edit, OtherOf(edit, id)));
        made[OtherOf(edit, id)] = *one;
        made[id] = *other;
        return {};
      }
      case WeightChange::kInterleave:
      case WeightChange::kDeinterleave: {
        const WeightId other_id = OtherOf(edit, id);
        LS_TRY(const WeightView* one, Find(edit, id));
        LS_TRY(const WeightView* other, Find(edit, other_id));
        if (one->rows != other->rows || one->cols != other->cols)
          return UsageError(
              "{}: expected two weights of one shape, found {} [{}, {}] and {} [{}, "
              "{}]",
              ToString(edit), ToString(id), one->rows, one->cols, ToString(other_id), other->rows,
              other->cols);
        Dense a = Read(*one), b = Read(*other);
        edit.change == WeightChange::kInterleave ? Interleave(a, b) : Deinterleave(a, b);
        made[id] = Own(id, std::move(a));
        made[other_id] = Own(other_id, std::move(b));
        return {};
      }
      case WeightChange::kFit: {
        LS_TRY(const WeightView* view, Find(edit, id));
        constexpr int64_t kMostRepeats = 1024;  // heads of a projection are fewer
        if (slot.rows * slot.cols / kMostRepeats > view->elements())
          return UsageError("{}: {} elements cannot be made of the {} of {}", ToString(edit),
                            slot.rows * slot.cols, view->elements(), ToString(id));
        made[id] = Own(id, Fitted(Read(*view), slot.rows, slot.cols));
        return {};
      }
      default: {
        LS_TRY(const WeightView* view, Find(edit, id));
        Dense dense = Read(*view);
        Change(edit, id.layer < 0 ? nullptr : &spec_.layers[static_cast<size_t>(id.layer)], dense);
        made[id] = Own(id, std::move(dense));
        return {};
      }
    }
  }

  const ModelSpec& spec_;
  std::map<WeightId, WeightSlot> slots_;
  Views views_;
  std::vector<std::shared_ptr<const std::vector<float>>> owned_;
};

}  // namespace

Result<Weights> EditedWeights(const ModelSpec& edited, const Weights& weights,
                              std::span<const WeightEdit> edits) {
  Editor editor(edited, weights);
  for (const WeightEdit& edit : edits) LS_RETURN_IF_ERROR(editor.Apply(edit));
  return std::move(editor).Finish();
}

Result<Model> Edited(const Model& model, const Edit& edit) {
  LS_TRY(ModelSpec spec, EditedSpec(model.spec, edit));
  LS_TRY(Weights weights, EditedWeights(spec, model.weights, edit.weights));
  return Model{model.checkpoint, std::move(spec), std::move(weights), model.notes};
}

}  // namespace lockstep
