#include "audit/findings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "audit/graph.h"
#include "base/dtype.h"
#include "spec/fields.h"

namespace lockstep {

std::string_view FindingKindName(FindingKind kind) {
  switch (kind) {
    case FindingKind::kQuantized:
      return "quantized";
    case FindingKind::kWeight:
      return "weight";
    case FindingKind::kNorm:
      return "norm";
    case FindingKind::kRope:
      return "rope";
    case FindingKind::kAttention:
      return "attention";
    case FindingKind::kScale:
      return "scale";
    case FindingKind::kActivation:
      return "activation";
    case FindingKind::kRouting:
      return "routing";
    case FindingKind::kStructure:
      return "structure";
    case FindingKind::kGeneration:
      return "generation";
    case FindingKind::kTokenizer:
      return "tokenizer";
  }
  return "unknown";
}

std::string_view WeightStateName(WeightState state) {
  switch (state) {
    case WeightState::kEqual:
      return "equal";
    case WeightState::kRounded:
      return "rounded";
    case WeightState::kQuantized:
      return "quantized";
    case WeightState::kScaled:
      return "scaled";
    case WeightState::kOffset:
      return "offset";
    case WeightState::kZeroed:
      return "zeroed";
    case WeightState::kOther:
      return "another weight";
    case WeightState::kTransposed:
      return "transposed";
    case WeightState::kPairs:
      return "pairs";
    case WeightState::kHalves:
      return "halves";
    case WeightState::kEquivalent:
      return "equivalent";
    case WeightState::kZeroPoints:
      return "zero points";
    case WeightState::kDiffers:
      return "differs";
    case WeightState::kMissing:
      return "missing";
    case WeightState::kNotFound:
      return "not found";
  }
  return "unknown";
}

bool AuditReport::healthy() const {
  return std::all_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.kind == FindingKind::kQuantized;
  });
}

namespace {

std::string PathOf(const std::vector<int64_t>& layers, const std::string& path) {
  return layers.empty() ? path : fmt::format("layers[{}].{}", JoinNumbers(layers), path);
}

void Append(OnnxPatch& to, const OnnxPatch& from) {
  to.tensors.insert(to.tensors.end(), from.tensors.begin(), from.tensors.end());
  to.attributes.insert(to.attributes.end(), from.attributes.begin(), from.attributes.end());
  to.inputs.insert(to.inputs.end(), from.inputs.begin(), from.inputs.end());
  to.results.insert(to.results.end(), from.results.begin(), from.results.end());
  to.nodes.insert(to.nodes.end(), from.nodes.begin(), from.nodes.end());
}

Finding JoinOne(const std::vector<const RawFinding*>& same) {
  const RawFinding& first = *same.front();
  Finding out{
      .kind = first.kind, .expected = first.expected, .found = first.found, .how_to = first.how_to};
  // One item per path, with all its layers.
  // Paths that are edited differently are two.
  std::vector<std::pair<std::string, std::vector<const RawFinding*>>> paths;
  for (const RawFinding* raw : same) {
    auto at = std::find_if(paths.begin(), paths.end(), [&](const auto& p) {
      return p.first == raw->path && p.second.front()->edit_json == raw->edit_json;
    });
    if (at == paths.end()) at = paths.insert(at, {raw->path, {}});
    at->second.push_back(raw);
  }
  std::vector<std::string> where;
  Edit edit;
  bool whole = true;
  for (const auto& [path, raws] : paths) {
    std::vector<int64_t> layers;
    for (const RawFinding* raw : raws) {
      if (raw->layer >= 0 && std::find(layers.begin(), layers.end(), raw->layer) == layers.end())
        layers.push_back(raw->layer);
      Append(out.patch, raw->patch);
      for (const ConfigPatch& patch : raw->config)
        if (std::find(out.config.begin(), out.config.end(), patch) == out.config.end())
          out.config.push_back(patch);
      // A patch of some of them repairs nothing.
      if (out.how_to.empty()) out.how_to = raw->how_to;
    }
    std::sort(layers.begin(), layers.end());
    where.push_back(PathOf(layers, path));
    const RawFinding& raw = *raws.front();
    if (raw.edit) {
      for (const RawFinding* one : raws)
        if (one->edit) edit = Joined(edit, *one->edit);
    } else if (raw.edit_json) {
      edit.spec.push_back({PathOf(layers, raw.edit_path.value_or(path)), *raw.edit_json});
    } else if (raw.weight_edit) {
      WeightEdit weight = *raw.weight_edit;
      for (const int64_t layer : layers) weight.layers.push_back(static_cast<int32_t>(layer));
      edit.weights.push_back(weight);
    } else {
      whole = false;
    }
  }
  constexpr size_t kShown = 8;
  const size_t more = where.size() > kShown ? where.size() - kShown : 0;
  const std::vector<std::string> shown(where.begin(),
                                       where.begin() + static_cast<long>(where.size() - more));
  out.where = fmt::format("{}", fmt::join(shown, ", "));
  if (more > 0) out.where += fmt::format(" and {} more", more);
  out.sentence = fmt::format("{}: {}", out.where, first.what);
  if (!out.expected.empty() || !out.found.empty())
    out.sentence += fmt::format("; expected {}, found {}", out.expected, out.found);
  if (whole && !edit.empty()) out.edit = std::move(edit);
  return out;
}

}  // namespace

std::vector<Finding> Collector::Join() && {
  using Key = std::tuple<FindingKind, std::string, std::string, std::string, bool>;
  std::map<Key, std::vector<const RawFinding*>> groups;
  std::vector<Key> order;
  for (const RawFinding& raw : raw_) {
    // What can be repaired and what cannot are two findings.
    Key key{raw.kind, raw.what, raw.expected, raw.found, raw.how_to.empty()};
    auto& group = groups[key];
    if (group.empty()) order.push_back(key);
    group.push_back(&raw);
  }
  std::vector<Finding> out;
  out.reserve(order.size());
  for (const Key& key : order) out.push_back(JoinOne(groups[key]));
  std::stable_sort(out.begin(), out.end(),
                   [](const Finding& a, const Finding& b) { return a.kind < b.kind; });
  return out;
}

std::optional<OnnxPatch::Tensor> PatchOf(const Graph& graph, const ConstantView& view,
                                         std::span<const float> values) {
  const OnnxTensor& tensor = graph.model().tensors()[static_cast<size_t>(view.tensor)];
  size_t size = 0;
  switch (tensor.type) {
    case OnnxType::kFloat:
      size = 4;
      break;
    case OnnxType::kFloat16:
    case OnnxType::kBFloat16:
      size = 2;
      break;
    case OnnxType::kDouble:
    case OnnxType::kInt64:
      size = 8;
      break;
    default:
      return std::nullopt;
  }
  if (static_cast<int64_t>(values.size()) != view.elements() || view.factor == 0)
    return std::nullopt;
  OnnxPatch::Tensor out{.name = tensor.name, .bytes = {tensor.bytes.begin(), tensor.bytes.end()}};
  // What the graph makes of it gives the value: (stored * factor) + addend.
  std::vector<double> stored(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    stored[i] = (double{values[i]} - double{view.addend}) / double{view.factor};
  const auto encoded = EncodeFinite(stored, tensor.type);
  if (!encoded) return std::nullopt;
  std::vector<int64_t> at(view.shape.size(), 0);
  for (size_t n = 0; n < values.size(); ++n) {
    int64_t offset = view.offset;
    for (size_t i = 0; i < at.size(); ++i) offset += at[i] * view.strides[i];
    if (offset < 0 || static_cast<size_t>(offset + 1) * size > out.bytes.size())
      return std::nullopt;
    std::memcpy(out.bytes.data() + static_cast<size_t>(offset) * size, encoded->data() + n * size,
                size);
    for (size_t i = at.size(); i-- > 0;) {
      if (++at[i] < view.shape[i]) break;
      at[i] = 0;
    }
  }
  return out;
}

}  // namespace lockstep
