#include "model/slot_place.h"

#include "base/error.h"

namespace lockstep {
namespace {

void ReplaceAll(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at; (at = text.find(what)) != std::string::npos;) text.replace(at, what.size(), with);
}

int64_t CountExperts(const WeightId& id, const SlotShapes& shapes) {
  int64_t n = 0;
  for (auto it = shapes.lower_bound({id.role, id.part, id.layer, 0});
       it != shapes.end() && it->first.role == id.role && it->first.part == id.part &&
       it->first.layer == id.layer;
       ++it)
    ++n;
  return n;
}

// Rows of one head of q or k, for llama.cpp's pair order.
int64_t HeadDim(const ModelSpec& spec, const WeightId& id) {
  const auto* attention =
      std::get_if<AttentionSpec>(&spec.layers[static_cast<size_t>(id.layer)].mixer);
  LS_CHECK(attention != nullptr, "{}: pair order outside attention", ToString(id));
  return attention->head_dim;
}

}  // namespace

SlotShapes ShapesOf(const std::vector<WeightSlot>& slots) {
  SlotShapes shapes;
  for (const WeightSlot& slot : slots) shapes[slot.id] = {slot.rows, slot.cols};
  return shapes;
}

std::string TensorName(const TensorRule& rule, const WeightId& id) {
  std::string name(rule.name);
  ReplaceAll(name, "{layer}", std::to_string(id.layer));
  ReplaceAll(name, "{expert}", std::to_string(id.expert));
  if (rule.suffix == TensorSuffix::kDotted)
    return name + (id.part == Part::kWeight ? ".weight" : ".bias");
  return id.part == Part::kWeight ? name : name + "_bias";
}

SlotPlace PlaceSlot(const WeightSlot& slot, const TensorRule& rule, const SlotShapes& shapes,
                    const ModelSpec& spec) {
  SlotPlace out;
  const bool is_bias = slot.id.part == Part::kBias;
  // A vector's outputs are its elements; in a fused bias they take the place of rows.
  const int64_t outputs = is_bias ? slot.cols : slot.rows;
  int64_t all_outputs = outputs, before = 0, step = 1;
  if (!rule.fused.empty()) {
    all_outputs = 0;
    for (const Role& role : rule.fused) {
      const auto found = shapes.find({role, slot.id.part, slot.id.layer, slot.id.expert});
      if (found == shapes.end()) {
        out.missing = role;
        return out;
      }
      const int64_t size = is_bias ? found->second.second : found->second.first;
      if (role == slot.id.role)
        before = rule.fused_interleaved ? &role - rule.fused.data() : all_outputs;
      all_outputs += size;
    }
    if (rule.fused_interleaved) step = static_cast<int64_t>(rule.fused.size());
  }
  if (rule.stacked_experts) out.shape.push_back(CountExperts(slot.id, shapes));
  const int64_t expert = rule.stacked_experts ? slot.id.expert : 0;
  if (is_bias) {
    out.shape.push_back(all_outputs);
    out.offset = expert * all_outputs + before;
    out.row_stride = all_outputs;
    out.col_stride = step;
  } else if (rule.transposed) {
    out.shape.insert(out.shape.end(), {slot.cols, all_outputs});
    out.offset = expert * all_outputs * slot.cols + before;
    out.row_stride = step;
    out.col_stride = all_outputs;
  } else {
    out.shape.insert(out.shape.end(), {all_outputs, slot.cols});
    out.offset = (expert * all_outputs + before) * slot.cols;
    out.row_stride = step * slot.cols;
  }
  if (rule.row_order == RowOrder::kInterleavedHalves) out.pair_dim = HeadDim(spec, slot.id);
  return out;
}

int64_t StoredRow(int64_t row, int64_t pair_dim) {
  const int64_t head = row / pair_dim, in_head = row % pair_dim, half = pair_dim / 2;
  return head * pair_dim + 2 * (in_head % half) + in_head / half;
}

int64_t RowStoredAt(int64_t stored, int64_t pair_dim) {
  const int64_t head = stored / pair_dim, in_head = stored % pair_dim, half = pair_dim / 2;
  return head * pair_dim + in_head % 2 * half + in_head / 2;
}

}  // namespace lockstep
