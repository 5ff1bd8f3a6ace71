#include "subjects/onnx_contract.h"

#include <algorithm>
#include <set>

#include "base/quoted.h"

namespace lockstep {
namespace {

constexpr int64_t kCpuSlack = 16;              // rows that GenAI adds to a window on a CPU
constexpr int64_t kMaxDim = int64_t{1} << 31;  // of a cache; more is no cache

using What = OnnxFed::What;

// Names that exporters give to what is computed each step (genai 0.18, optimum, mobius).
struct FedRow {
  std::string_view name;
  What what;
};
constexpr FedRow kFed[] = {
    {"attention_mask", What::kMask},
    {"cache_position", What::kCachePosition},
    {"input_ids", What::kIds},
    {"num_logits_to_keep", What::kLogitsToKeep},
    {"past_sequence_length", What::kPastLength},
    {"position_ids", What::kPositions},
    {"total_sequence_length", What::kTotalLength},
};

OrtType ToOrt(OnnxType type) { return static_cast<OrtType>(static_cast<int>(type)); }

bool IsFloat(OnnxType type) {
  return type == OnnxType::kFloat || type == OnnxType::kFloat16 || type == OnnxType::kBFloat16;
}

std::optional<int64_t> ValueAt(const OnnxValueInfo& info, size_t axis) {
  return info.dims && axis < info.dims->size() ? (*info.dims)[axis].value : std::nullopt;
}

// past_key_values.0.key -> present.0.key, and other builders' habits.
std::string PresentName(const OnnxModel& model, const std::string& past) {
  static constexpr std::pair<std::string_view, std::string_view> kReplacements[] = {
      {"past_key_values", "present"},
      {"past_key_values", "present_key_values"},
      {"past", "present"},
      {"past_", "present_"},
      {"_in", "_out"},
  };
  for (const auto& [from, to] : kReplacements) {
    const size_t at = past.find(from);
    if (at == std::string::npos) continue;
    const std::string name = std::string(past).replace(at, from.size(), to);
    if (model.Output(name) != nullptr) return name;
  }
  return "";
}

std::string PresentOfConfig(const OnnxModel& model, const GenAiConfig& config,
                            const std::string& past) {
  const std::pair<const std::string&, const std::string&> patterns[] = {
      {config.past_key, config.present_key},
      {config.past_value, config.present_value},
      {config.past_conv, config.present_conv},
  };
  for (const auto& [from, to] : patterns)
    if (const auto layer = MatchPattern(from, past))
      if (std::string name = FillPattern(to, *layer); model.Output(name) != nullptr) return name;
  return "";
}

// The attention that reads a cache; nullptr when it is not one of GenAI's.
const OnnxNode* GroupQueryAttentionOf(const OnnxModel& model, const std::string& past) {
  for (const OnnxNode* node : model.ConsumersOf(past))
    if (node->op_type == "GroupQueryAttention") return node;
  return nullptr;
}

// By the output projection: its rows are all heads'.
std::optional<int64_t> HeadSizeFromGraph(const OnnxModel& model, const std::string& past) {
  for (const OnnxNode* node : model.ConsumersOf(past)) {
    const auto heads = node->Int("num_heads");
    if (!heads || *heads <= 0 || node->outputs.empty()) continue;
    for (const OnnxNode* next : model.ConsumersOf(node->outputs[0])) {
      std::optional<int64_t> rows = next->Int("K");  // MatMulNBits
      if (const OnnxTensor* weight = model.Tensor(next->Input(1));
          !rows && weight != nullptr && weight->dims.size() == 2)
        rows = weight->dims[0];
      if (rows && *rows % *heads == 0) return *rows / *heads;
    }
  }
  return std::nullopt;
}

class ContractReader {
 public:
  ContractReader(const OnnxModel& model, const std::optional<GenAiConfig>& config)
      : model_(model), config_(config), place_(model.path().string()) {}

  Result<OnnxContract> Read() {
    LS_RETURN_IF_ERROR(ReadLogits());
    std::vector<const OnnxValueInfo*> rest;
    for (const OnnxValueInfo& input : model_.inputs()) {
      if (const auto what = WhatIs(input.name)) {
        LS_RETURN_IF_ERROR(AddFed(input, *what));
      } else if (IsFloat(input.type)) {
        rest.push_back(&input);
      } else {
        return UnsupportedError(
            "{}: the graph has an input {} ({}), expected ids, a mask, positions and caches",
            place_, Quoted(input.name), OnnxTypeName(input.type));
      }
    }
    if (std::ranges::none_of(out_.fed, [](const auto& f) { return f.what == What::kIds; }))
      return UnsupportedError("{}: the graph has no input {} (its inputs are {})", place_,
                              Quoted(config_ ? config_->input_ids : "input_ids"),
                              QuotedList(InputNames(), 6));
    LS_RETURN_IF_ERROR(Pair(rest));
    if (config_) out_.context_length = config_->context_length;
    out_.free_batch = free_rows_ && std::ranges::all_of(out_.caches, [](const OnnxCache& cache) {
                        return cache.batch_axis.has_value();
                      });
    return std::move(out_);
  }

 private:
  std::vector<std::string> InputNames() const {
    std::vector<std::string> names;
    for (const OnnxValueInfo& input : model_.inputs()) names.push_back(input.name);
    return names;
  }

  std::optional<What> WhatIs(const std::string& name) const {
    if (config_) {
      if (name == config_->input_ids) return What::kIds;
      if (name == config_->attention_mask) return What::kMask;
      if (name == config_->position_ids) return What::kPositions;
    }
    for (const FedRow& row : kFed)
      if (row.name == name) return row.what;
    return std::nullopt;
  }

  Status AddFed(const OnnxValueInfo& input, What what) {
    OnnxFed fed{.what = what, .name = input.name, .type = ToOrt(input.type)};
    if (fed.type != OrtType::kInt64 && fed.type != OrtType::kInt32)
      return UnsupportedError("{}: the input {} is {}, expected int64 or int32", place_,
                              Quoted(input.name), OnnxTypeName(input.type));
    if (input.dims) fed.rank = input.dims->size();
    const bool is_row = what == What::kIds || what == What::kMask || what == What::kPositions;
    if (is_row && fed.rank != 2)
      return UnsupportedError("{}: the input {} has {} dimensions, expected 2", place_,
                              Quoted(input.name), fed.rank);
    if (fed.rank > 2)
      return UnsupportedError("{}: the input {} has {} dimensions, expected at most 2", place_,
                              Quoted(input.name), fed.rank);
    const auto batch = is_row ? ValueAt(input, 0) : std::nullopt;
    if (batch && *batch != 1)
      return UnsupportedError("{}: the input {} takes {} sequences at once, expected 1", place_,
                              Quoted(input.name), *batch);
    free_rows_ = free_rows_ && !(is_row && batch);
    if (what == What::kMask) fed.fixed_length = ValueAt(input, 1).value_or(0);
    out_.fed.push_back(std::move(fed));
    return {};
  }

  Status ReadLogits() {
    const OnnxValueInfo* logits = model_.Output(config_ ? config_->logits : "logits");
    if (logits == nullptr && !config_ && !model_.outputs().empty()) logits = &model_.outputs()[0];
    if (logits == nullptr)
      return UnsupportedError("{}: the graph has no output {}", place_,
                              Quoted(config_ ? config_->logits : "logits"));
    if (logits->type != OnnxType::kUndefined && !IsFloat(logits->type))
      return UnsupportedError("{}: the output {} is {}, expected float, float16 or bfloat16",
                              place_, Quoted(logits->name), OnnxTypeName(logits->type));
    out_.logits = logits->name;
    out_.logits_type = ToOrt(logits->type);
    if (logits->dims && !logits->dims->empty()) {
      out_.vocab_size = logits->dims->back().value;
      out_.pruned_head =
          logits->dims->size() == 2 || (logits->dims->size() == 3 && ValueAt(*logits, 1) == 1);
    }
    if (!out_.vocab_size && config_) out_.vocab_size = config_->vocab_size;
    if (out_.vocab_size && *out_.vocab_size <= 0) out_.vocab_size.reset();
    return {};
  }

  // Every cache with its output: by genai_config's names, by habit, or by their order.
  Status Pair(const std::vector<const OnnxValueInfo*>& pasts) {
    std::set<std::string> taken = {out_.logits};
    std::vector<std::string> presents;
    for (const OnnxValueInfo* past : pasts) {
      std::string present = config_ ? PresentOfConfig(model_, *config_, past->name) : "";
      if (present.empty()) present = PresentName(model_, past->name);
      if (!present.empty() && !taken.insert(present).second)
        return UnsupportedError("{}: two caches lead to the output {}", place_, Quoted(present));
      presents.push_back(std::move(present));
    }
    std::vector<std::string> left;
    for (const OnnxValueInfo& output : model_.outputs())
      if (!taken.contains(output.name)) left.push_back(output.name);
    const auto unpaired = static_cast<size_t>(std::ranges::count(presents, ""));
    if (unpaired > left.size())
      return UnsupportedError(
          "{}: the cache {} has no output that replaces it (outputs that nothing reads: {})",
          place_, Quoted(pasts[FirstEmpty(presents)]->name),
          left.empty() ? "none" : QuotedList(left, 4));
    size_t next = 0;
    for (size_t i = 0; i < pasts.size(); ++i) {
      if (presents[i].empty()) presents[i] = left[next++];
      LS_RETURN_IF_ERROR(AddCache(*pasts[i], *model_.Output(presents[i])));
    }
    return {};
  }

  static size_t FirstEmpty(const std::vector<std::string>& names) {
    return static_cast<size_t>(std::ranges::find(names, "") - names.begin());
  }

  // Where positions lie: the dimension that past and present name differently.
  std::optional<size_t> RowAxis(const OnnxValueInfo& past, const OnnxValueInfo& present) const {
    const auto& dims = *past.dims;
    if (present.dims && present.dims->size() == dims.size())
      for (size_t axis = 1; axis < dims.size(); ++axis)
        if (!dims[axis].value && dims[axis].symbol != (*present.dims)[axis].symbol) return axis;
    if (dims.size() == 4) return 2;  // [batch, heads, rows, head size]
    if (dims.size() == 5) return 3;  // keys and values in one
    return std::nullopt;
  }

  Status AddCache(const OnnxValueInfo& past, const OnnxValueInfo& present) {
    OnnxCache cache{.past = past.name, .present = present.name, .type = ToOrt(past.type)};
    if (!past.dims || past.dims->empty())
      return UnsupportedError("{}: the shape of the cache {} is not said", place_,
                              Quoted(past.name));
    const auto axis = RowAxis(past, present);
    const auto& dims = *past.dims;
    bool batch_seen = false;
    for (size_t i = 0; i < dims.size(); ++i) {
      std::optional<int64_t> value = dims[i].value;
      const bool is_batch = !batch_seen && i != axis && (i == 0 || (i == 1 && dims.size() == 5));
      if (!value && is_batch) {
        value = 1;
        if (!batch_seen) cache.batch_axis = i;
      }
      if (is_batch && value == 1) batch_seen = true;
      if (!value && i == axis) value = 0;
      if (!value && i + 1 == dims.size()) {
        if (config_) value = config_->head_size;
        if (!value) value = HeadSizeFromGraph(model_, past.name);
      }
      if (!value || *value < 0 || *value > kMaxDim)
        return UnsupportedError("{}: dimension {} ({}) of the cache {} is not known", place_, i,
                                Quoted(dims[i].symbol), Quoted(past.name));
      cache.shape.push_back(*value);
    }
    cache.kind = OnnxCache::Kind::kState;
    if (axis) {
      cache.axis = *axis;
      cache.kind = cache.shape[*axis] == 0 ? OnnxCache::Kind::kGrowing : OnnxCache::Kind::kBuffer;
      LS_RETURN_IF_ERROR(FitAttention(cache));
    }
    out_.caches.push_back(std::move(cache));
    return {};
  }

  // What the operator that reads the cache, and GenAI's settings, make of it.
  Status FitAttention(OnnxCache& cache) {
    const OnnxNode* attention = GroupQueryAttentionOf(model_, cache.past);
    if (attention == nullptr || cache.kind != OnnxCache::Kind::kGrowing) return {};
    if (attention->Int("sliding_window_cache").value_or(0) == 0) {
      if (config_ && config_->past_present_share_buffer) cache.kind = OnnxCache::Kind::kBuffer;
      return {};
    }
    // Without a section, or for layers that it leaves out, GenAI allocates the whole length.
    cache.kind = OnnxCache::Kind::kBuffer;
    cache.least_rows = attention->Int("local_window_size").value_or(0);
    if (cache.least_rows > kMaxDim)
      return UnsupportedError("{}: a window of {} positions", place_, cache.least_rows);
    if (!config_ || !config_->sliding_window) return {};
    const GenAiConfig::SlidingWindow& window = *config_->sliding_window;
    auto layer = MatchPattern(config_->past_key, cache.past);
    if (!layer) layer = MatchPattern(config_->past_value, cache.past);
    if (!window.layers.empty() && layer && std::ranges::count(window.layers, *layer) == 0)
      return {};
    cache.kind = OnnxCache::Kind::kWindow;
    cache.shape[cache.axis] =
        window.window_size + (window.cache_slack > 0 ? window.cache_slack : kCpuSlack);
    if (cache.shape[cache.axis] > kMaxDim)
      return UnsupportedError("{}: a window of {} positions", place_, window.window_size);
    return {};
  }

  const OnnxModel& model_;
  const std::optional<GenAiConfig>& config_;
  const std::string place_;
  bool free_rows_ = true;  // no input fixes how many sequences there are
  OnnxContract out_;
};

}  // namespace

Result<OnnxContract> ReadOnnxContract(const OnnxModel& model,
                                      const std::optional<GenAiConfig>& config) {
  return ContractReader(model, config).Read();
}

}  // namespace lockstep
