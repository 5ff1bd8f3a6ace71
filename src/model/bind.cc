#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/quoted.h"
#include "model/slot_place.h"
#include "model/weights.h"

namespace lockstep {
namespace {

std::vector<int64_t> WithoutOnes(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

Result<WeightView> BindOne(const WeightSlot& slot, const TensorRule& rule, const TensorInfo& tensor,
                           const SlotShapes& shapes, const ModelSpec& spec,
                           const Checkpoint& checkpoint) {
  if (!tensor.type->weights)
    return UnsupportedError(
        "{}: tensor {} ({}) is stored as {} ({}), which holds no weights by itself (codes of a "
        "quantization of another tool? use a dequantized checkpoint or a GGUF)",
        checkpoint.path.string(), Quoted(tensor.name), ToString(slot.id), tensor.type->name,
        tensor.type->description);
  // What the tensor's shape must be, and the view of it.
  const SlotPlace slot_place = PlaceSlot(slot, rule, shapes, spec);
  if (slot_place.missing)
    return InputError(
        "{}: tensor {} holds {} together with {}, which the configuration does not have",
        checkpoint.path.string(), Quoted(tensor.name), ToString(slot.id),
        InfoOf(*slot_place.missing).name);
  const std::vector<int64_t>& expected = slot_place.shape;
  const WeightView view{.tensor = tensor.name,
                        .type = tensor.type,
                        .data = tensor.data.data(),
                        .rows = slot.rows,
                        .cols = slot.cols,
                        .offset = slot_place.offset,
                        .row_stride = slot_place.row_stride,
                        .col_stride = slot_place.col_stride,
                        .pair_dim = slot_place.pair_dim,
                        .addend = slot.id.part == Part::kBias ? 0 : rule.addend};
  // A vector and a matrix of one row are the same thing ([H] or [1, H] or [H, 1, K]).
  if (WithoutOnes(tensor.shape) != WithoutOnes(expected)) {
    return InputError(
        "{}: tensor {} has shape [{}], but the configuration needs [{}] for {} (a config.json "
        "of another model?)",
        checkpoint.path.string(), Quoted(tensor.name), fmt::join(tensor.shape, ", "),
        fmt::join(expected, ", "), ToString(slot.id));
  }
  if (!tensor.type->plain() &&
      (view.col_stride != 1 || view.offset % tensor.type->block_elements != 0 ||
       view.row_stride % tensor.type->block_elements != 0)) {
    return UnsupportedError(
        "{}: tensor {} is stored as {} across the rows of {}; only plain types (F32, F16, BF16) "
        "can be read that way",
        checkpoint.path.string(), Quoted(tensor.name), tensor.type->name, ToString(slot.id));
  }
  return view;
}

}  // namespace

const WeightView& Weights::Get(Role role, int layer, Part part, int expert) const {
  const WeightView* view = Find({role, part, layer, expert});
  LS_CHECK(view != nullptr, "{} is not a weight of this spec",
           ToString(WeightId{role, part, layer, expert}));
  return *view;
}

const WeightView* Weights::Find(const WeightId& id) const {
  const auto found = views_.find(id);
  return found == views_.end() ? nullptr : &found->second;
}

Result<Binding> BindWeights(const ModelSpec& spec, std::span<const TensorRule> rules,
                            const Checkpoint& checkpoint) {
  const std::vector<WeightSlot> slots = RequiredWeights(spec);
  const SlotShapes shapes = ShapesOf(slots);

  std::unordered_map<int, std::vector<const TensorRule*>> rules_of;
  for (const TensorRule& rule : rules) rules_of[static_cast<int>(rule.role)].push_back(&rule);

  Binding binding;
  binding.weights.SetFiles(checkpoint.files);
  std::set<std::string_view> used;
  for (const WeightSlot& slot : slots) {
    std::vector<std::string> tried;
    const TensorInfo* tensor = nullptr;
    const TensorRule* rule = nullptr;
    for (const TensorRule* candidate : rules_of[static_cast<int>(slot.id.role)]) {
      tried.push_back(TensorName(*candidate, slot.id));
      tensor = checkpoint.Find(tried.back());
      if (tensor != nullptr) {
        rule = candidate;
        break;
      }
    }
    if (tensor == nullptr) {
      if (tried.empty())
        return InputError("{}: the architecture {} has no name for {}, which its spec needs",
                          checkpoint.path.string(), Quoted(spec.architecture), ToString(slot.id));
      return InputError(
          "{}: the configuration needs tensor \"{}\" ({}, {} x {}), and the checkpoint's {} "
          "tensors do not have it (an incomplete download, or a config of another model?)",
          checkpoint.path.string(), fmt::join(tried, "\" or \""), ToString(slot.id), slot.rows,
          slot.cols, checkpoint.tensors.size());
    }
    LS_TRY(WeightView view, BindOne(slot, *rule, *tensor, shapes, spec, checkpoint));
    used.insert(tensor->name);
    binding.weights.Set(slot.id, std::move(view));
  }
  for (const TensorInfo& tensor : checkpoint.tensors)
    if (!used.contains(tensor.name)) binding.unused_tensors.push_back(tensor.name);
  return binding;
}

}  // namespace lockstep
