#include "cli/onnx_taps.h"

#include <algorithm>
#include <set>

#include "audit/taps_of.h"
#include "verify/bisect.h"

namespace lockstep {
namespace {

// Numbers of all taps together: the comparison holds each four times, thrice as a double.
constexpr int64_t kMostNumbers = int64_t{24} << 20;

// What the graph computes is no longer what a reference in fp32 computes, number by number, nor one
// that rounds what matrices multiply.
bool IsNarrow(const OnnxModel& model) {
  const auto narrow = [](OnnxType type) {
    return type == OnnxType::kFloat16 || type == OnnxType::kBFloat16;
  };
  for (const OnnxValueInfo& input : model.inputs())
    if (narrow(input.type)) return true;
  for (const OnnxValueInfo& output : model.outputs())
    if (narrow(output.type)) return true;
  for (const OnnxNode& node : model.nodes()) {
    if (node.op_type == "QMoE") return true;
    if (node.op_type == "Cast" && narrow(static_cast<OnnxType>(node.Int("to").value_or(0))))
      return true;
  }
  return false;
}

// The widest tap inside a layer.
int64_t Width(const ModelSpec& spec) {
  int64_t width = spec.embedding.hidden_size;
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer))
      width = std::max(width, a->num_attention_heads * a->head_dim);
    if (const auto* mlp = std::get_if<MlpSpec>(&layer.mlp))
      width = std::max(width, mlp->intermediate_size);
  }
  return width;
}

bool IsStream(const TapPlace& place) {
  return place.tap == Tap::kEmbedding || place.tap == Tap::kOutput || place.tap == Tap::kFinalNorm;
}

template <typename T>
std::vector<T> HeadsBehindTokens(const std::vector<T>& in, size_t heads, size_t ids) {
  std::vector<T> out(in.size());
  const size_t dim = in.size() / (heads * ids);
  for (size_t h = 0; h < heads; ++h)
    for (size_t t = 0; t < ids; ++t)
      std::copy_n(in.begin() + static_cast<std::ptrdiff_t>((h * ids + t) * dim), dim,
                  out.begin() + static_cast<std::ptrdiff_t>((t * heads + h) * dim));
  return out;
}

}  // namespace

std::optional<TraceTensor> RowsOfTokens(const TraceTensor& value, int64_t ids) {
  std::vector<int64_t> shape = value.shape;
  while (!shape.empty() && shape.front() == 1) shape.erase(shape.begin());
  const int64_t elements = value.elements();
  if (ids < 1 || elements < 1 || elements % ids != 0) return std::nullopt;
  TraceTensor rows{{ids, elements / ids}, value.values};
  if (ids == 1) return rows;
  if (shape.size() == 3 && shape[1] == ids) {
    if (shape[0] == ids) return std::nullopt;
    std::visit(
        [&](auto& x) {
          x = HeadsBehindTokens(x, static_cast<size_t>(shape[0]), static_cast<size_t>(ids));
        },
        rows.values);
    return rows;
  }
  const bool fits =
      (shape.size() == 3 && shape[0] == ids) || (shape.size() == 2 && shape[0] % ids == 0);
  return fits ? std::optional(std::move(rows)) : std::nullopt;
}

OnnxTaps::OnnxTaps(OnnxSubject& candidate, const FoundDecoder& decoder)
    : candidate_(candidate),
      values_(TapsOf(candidate.model(), decoder)),
      narrow_(IsNarrow(candidate.model())),
      int8_(decoder.RoundsToInt8()) {}

template <typename Wanted>
Result<std::map<std::string, TraceTensor>> OnnxTaps::Read(const PromptTrace& run, size_t prompt,
                                                          const Wanted& wanted,
                                                          const Progress& progress) {
  std::vector<std::string> names;
  for (const auto& [tap, value] : values_) {
    const auto place = ParseTapName(tap);
    // What the graph gives anyway is in the run.
    if (!place || !wanted(*place) || candidate_.model().Output(value) != nullptr) continue;
    if (std::find(names.begin(), names.end(), value) == names.end()) names.push_back(value);
  }
  std::map<std::string, TraceTensor> taps;
  if (names.empty()) return taps;
  LS_TRY(const auto session, candidate_.OpenWithOutputs(names));
  std::map<std::string, TraceRows<float>> read;  // by value
  std::set<std::string> lost;                    // without the shape of a tap, in some call
  const auto take = [&](int64_t first, const OnnxRun& call) -> Status {
    // Without a cache a call begins anew: of what it repeats nothing is taken.
    const int64_t repeated = candidate_.contract().caches.empty() ? first : 0;
    const int64_t count = call.length() - first + repeated;
    for (size_t i = 0; i < names.size(); ++i) {
      const OrtTensor& value = call.extras()[i];
      const auto rows = RowsOfTokens({value.shape(), value.Floats(0, value.elements())}, count);
      if (!rows) {
        lost.insert(names[i]);
        continue;
      }
      const auto& numbers = std::get<std::vector<float>>(rows->values);
      const auto columns = static_cast<size_t>(rows->shape.back());
      read[names[i]].Append(numbers.data() + static_cast<size_t>(repeated) * columns,
                            static_cast<size_t>(count - repeated), columns);
    }
    return {};
  };
  const std::span<const int32_t> ids(run.ids);
  LS_RETURN_IF_ERROR(
      candidate_.Along(*session, ids.first(prompt), ids.subspan(prompt), names, take, progress));
  std::map<std::string, TraceTensor> tensors;
  for (auto& [value, rows] : read)
    if (!lost.contains(value) && rows.rows() == run.ids.size())
      tensors[value] = std::move(rows).Take();
  for (const auto& [tap, value] : values_) {
    const auto place = ParseTapName(tap);
    const auto at = tensors.find(value);
    if (place && wanted(*place) && at != tensors.end()) taps[tap] = at->second;
  }
  return taps;
}

Result<std::optional<PromptTrace>> OnnxTaps::Decoding(const PromptTrace& run,
                                                      const Model& reference, ThreadPool& pool,
                                                      const Progress& progress,
                                                      const RounderFor& rounder,
                                                      double least_tolerance) {
  if (run.greedy.size() < 2) return std::nullopt;
  PromptTrace steps{.name = run.name};
  steps.ids = run.ids;
  // The last token is not fed.
  steps.ids.insert(steps.ids.end(), run.greedy.begin(), run.greedy.end() - 1);
  const auto last = static_cast<int64_t>(run.greedy.size()) - 1;
  if (std::vector<double> logits = run.StepLogits(last); !logits.empty())
    steps.steps[0] = TraceTensor{{static_cast<int64_t>(logits.size())}, std::move(logits)};
  LS_RETURN_IF_ERROR(
      AddTo(steps, run.ids.size(), reference, pool, progress, rounder, least_tolerance));
  if (steps.taps.empty()) return std::nullopt;
  return steps;
}

Status OnnxTaps::AddTo(PromptTrace& run, const Model& reference, ThreadPool& pool,
                       const Progress& progress, const RounderFor& rounder,
                       double least_tolerance) {
  return AddTo(run, run.ids.size(), reference, pool, progress, rounder, least_tolerance);
}

Status OnnxTaps::AddTo(PromptTrace& run, size_t prompt, const Model& reference, ThreadPool& pool,
                       const Progress& progress, const RounderFor& rounder,
                       double least_tolerance) {
  if (values_.empty()) return {};
  if (narrow_ || (int8_ && !rounder)) {
    notes_.emplace_back(
        "the graph computes in fewer bits than fp32: where inside it the two part was not looked "
        "for");
    return {};
  }
  const auto numbers = [&](int64_t taps, int64_t width) {
    return taps * width * static_cast<int64_t>(run.ids.size());
  };
  const auto read = [&](const auto& wanted) -> Status {
    auto taps = Read(run, prompt, wanted, progress);
    if (!taps) {
      if (IsInterrupted(taps.error())) return tl::unexpected(std::move(taps).error());
      notes_.push_back(fmt::format("no values inside the graph: {}", taps.error().message));
      return {};
    }
    run.taps.merge(*taps);
    return {};
  };
  const int64_t width = Width(reference.spec);
  if (numbers(static_cast<int64_t>(values_.size()), width) <= kMostNumbers)
    return read([](const TapPlace&) { return true; });
  if (numbers(static_cast<int64_t>(reference.spec.layers.size()) + 2,
              reference.spec.embedding.hidden_size) > kMostNumbers) {
    notes_.push_back(fmt::format(
        "a prompt of {} tokens is too long to look inside the graph with it", run.ids.size()));
    return {};
  }
  LS_RETURN_IF_ERROR(read(IsStream));
  const auto first = FirstDifferentTap(reference, std::span(&run, 1), pool, std::span(&rounder, 1),
                                       least_tolerance);
  if (!first) {
    notes_.push_back(fmt::format("no place inside the graph: {}", first.error().message));
    return {};
  }
  const std::optional<TapPlace> at = *first;
  if (!at || !InfoOf(at->tap).per_layer) return {};
  return read([&](const TapPlace& place) { return place.layer == at->layer && !IsStream(place); });
}

std::string OnnxTaps::OperationAt(const TapPlace& place) const {
  const auto value = values_.find(TapName(place.tap, place.layer));
  return value == values_.end() ? "" : OperationMaking(candidate_.model(), value->second);
}

}  // namespace lockstep
