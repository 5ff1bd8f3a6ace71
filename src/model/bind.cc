#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/quoted.h"
#include "model/weights.h"

namespace lockstep {
namespace {

void ReplaceAll(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at; (at = text.find(what)) != std::string::npos;) text.replace(at, what.size(), with);
}

std::string TensorName(const TensorRule& rule, const WeightId& id) {
  std::string name(rule.name);
  ReplaceAll(name, "{layer}", std::to_string(id.layer));
  ReplaceAll(name, "{expert}", std::to_string(id.expert));
  if (rule.suffix == TensorSuffix::kDotted)
    return name + (id.part == Part::kWeight ? ".weight" : ".bias");
  return id.part == Part::kWeight ? name : name + "_bias";
}

std::vector<int64_t> WithoutOnes(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

// The spec side of a binding: shapes of all slots, so that a part of a fused tensor can tell how
// many outputs come before it.
using SlotShapes = std::map<WeightId, std::pair<int64_t, int64_t>>;

Result<WeightView> BindOne(const WeightSlot& slot, const TensorRule& rule, const TensorInfo& tensor,
                           const SlotShapes& shapes, const Checkpoint& checkpoint) {
  if (!tensor.type->weights)
    return UnsupportedError(
        "{}: tensor {} ({}) is stored as {} ({}), which holds no weights by itself (codes of a "
        "quantization of another tool? use a dequantized checkpoint or a GGUF)",
        checkpoint.path.string(), Quoted(tensor.name), ToString(slot.id), tensor.type->name,
        tensor.type->description);
  const bool is_bias = slot.id.part == Part::kBias;
  // A vector's outputs are its elements; in a fused bias they take the place of rows.
  const int64_t outputs = is_bias ? slot.cols : slot.rows;
  int64_t all_outputs = outputs, before = 0, step = 1;
  if (!rule.fused.empty()) {
    all_outputs = 0;
    for (const Role& role : rule.fused) {
      const auto found = shapes.find({role, slot.id.part, slot.id.layer, slot.id.expert});
      if (found == shapes.end())
        return InputError(
            "{}: tensor {} holds {} together with {}, which the configuration does not have",
            checkpoint.path.string(), Quoted(tensor.name), ToString(slot.id), InfoOf(role).name);
      const int64_t size = is_bias ? found->second.second : found->second.first;
      if (role == slot.id.role)
        before = rule.fused_interleaved ? &role - rule.fused.data() : all_outputs;
      all_outputs += size;
    }
    if (rule.fused_interleaved) step = static_cast<int64_t>(rule.fused.size());
  }
  const int64_t experts = [&] {
    if (!rule.stacked_experts) return int64_t{1};
    int64_t n = 0;
    for (auto it = shapes.lower_bound({slot.id.role, slot.id.part, slot.id.layer, 0});
         it != shapes.end() && it->first.role == slot.id.role && it->first.part == slot.id.part &&
         it->first.layer == slot.id.layer;
         ++it)
      ++n;
    return n;
  }();

  // What the tensor's shape must be, and the view of it.
  WeightView view{.tensor = tensor.name,
                  .type = tensor.type,
                  .data = tensor.data.data(),
                  .rows = slot.rows,
                  .cols = slot.cols,
                  .addend = is_bias ? 0 : rule.addend};
  std::vector<int64_t> expected;
  if (rule.stacked_experts) expected.push_back(experts);
  const int64_t expert = rule.stacked_experts ? slot.id.expert : 0;
  if (is_bias) {
    expected.push_back(all_outputs);
    view.offset = expert * all_outputs + before;
    view.row_stride = all_outputs;
    view.col_stride = step;
  } else if (rule.transposed) {
    expected.insert(expected.end(), {slot.cols, all_outputs});
    view.offset = expert * all_outputs * slot.cols + before;
    view.row_stride = step;
    view.col_stride = all_outputs;
  } else {
    expected.insert(expected.end(), {all_outputs, slot.cols});
    view.offset = (expert * all_outputs + before) * slot.cols;
    view.row_stride = step * slot.cols;
  }
  // A vector and a matrix of one row are the same thing ([H] or [1, H] or [H, 1, K]).
  if (WithoutOnes(tensor.shape) != WithoutOnes(expected)) {
    return InputError(
        "{}: tensor {} has shape [{}], but the configuration needs [{}] for {} (a config.json "
        "of another model?)",
        checkpoint.path.string(), Quoted(tensor.name), fmt::join(tensor.shape, ", "),
        fmt::join(expected, ", "), ToString(slot.id));
  }
  if (rule.row_order == RowOrder::kInterleavedHalves) view.pair_dim = -1;  // set by the caller
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

// Rows of one head of q or k, for undoing llama.cpp's pair order.
int64_t HeadDim(const ModelSpec& spec, const WeightId& id) {
  const auto* attention =
      std::get_if<AttentionSpec>(&spec.layers[static_cast<size_t>(id.layer)].mixer);
  LS_CHECK(attention != nullptr, "{}: pair order outside attention", ToString(id));
  return attention->head_dim;
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
  SlotShapes shapes;
  for (const WeightSlot& slot : slots) shapes[slot.id] = {slot.rows, slot.cols};

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
    LS_TRY(WeightView view, BindOne(slot, *rule, *tensor, shapes, checkpoint));
    if (view.pair_dim != 0) view.pair_dim = HeadDim(spec, slot.id);
    used.insert(tensor->name);
    binding.weights.Set(slot.id, std::move(view));
  }
  for (const TensorInfo& tensor : checkpoint.tensors)
    if (!used.contains(tensor.name)) binding.unused_tensors.push_back(tensor.name);
  return binding;
}

}  // namespace lockstep
