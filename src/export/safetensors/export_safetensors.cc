#include "export/safetensors/export_safetensors.h"

#include <algorithm>
#include <system_error>

#include "arch/hf_facts.h"
#include "base/quoted.h"
#include "base/readable_json.h"
#include "export/data_file.h"
#include "export/export.h"
#include "export/output_folder.h"
#include "export/placed_rows.h"
#include "export/read_again.h"
#include "export/safetensors/folder_text.h"
#include "formats/safetensors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Precision {
  std::string_view name, type, dtype;  // dtype: config.json's word
};
constexpr Precision kPrecisions[] = {
    {"keep", "", ""},
    {"f32", "F32", "float32"},
    {"f16", "F16", "float16"},
    {"bf16", "BF16", "bfloat16"},
};

Result<const Precision*> FindPrecision(std::string_view name) {
  const std::string_view wanted = name == "fp32" ? "f32" : name == "fp16" ? "f16" : name;
  for (const Precision& precision : kPrecisions)
    if (precision.name == wanted) return &precision;
  return UsageError("--precision {}: expected keep, f32, f16 or bf16 with --to safetensors",
                    Quoted(name));
}

struct Target {
  const HfArchitecture* architecture = nullptr;
  std::vector<PlacedTensor> placed;
  Json config;
};

// What a GGUF says of the length that llama3's bands were made for.
int64_t OriginalContext(const Model& model) {
  const GgufValue* value = model.checkpoint.gguf.Find(
      fmt::format("{}.rope.scaling.original_context_length", model.spec.architecture));
  return value != nullptr ? value->AsInt().value_or(0) : 0;
}

Result<Target> FindTarget(const Model& model) {
  const std::string place = model.checkpoint.path.string();
  Target target;
  if (model.checkpoint.kind == Checkpoint::Kind::kHuggingFace) {
    target.architecture = FindHfArchitecture(model.spec.architecture);
    LS_CHECK(target.architecture != nullptr, "{}", model.spec.architecture);
    LS_TRY(target.placed, PlaceWeights(model.spec, target.architecture->tensors, place));
    target.config = model.checkpoint.config;
    return target;
  }
  std::optional<Error> why;
  for (const HfArchitecture* row : HfArchitecturesOf(model.spec.architecture)) {
    auto config = StateInHf(model.spec, *row, OriginalContext(model), place);
    auto placed = PlaceWeights(model.spec, row->tensors, place);
    if (config && placed) return Target{row, *std::move(placed), *std::move(config)};
    if (!why) why = !config ? std::move(config).error() : std::move(placed).error();
  }
  if (why) return tl::unexpected(*std::move(why));
  return UnsupportedError("{}: no model type of transformers is known for GGUF's architecture {}",
                          place, Quoted(model.spec.architecture));
}

const WeightView& ViewOf(const Weights& weights, const PlacedWeight& weight) {
  return weights.Get(weight.id.role, weight.id.layer, weight.id.part, weight.id.expert);
}

// The plain type that all of the tensor's weights have.
const TensorType* PlainType(const PlacedTensor& tensor, const Weights& weights) {
  const TensorType* type = nullptr;
  for (const PlacedWeight& weight : tensor.weights) {
    const WeightView& view = ViewOf(weights, weight);
    if (!view.type->plain() || view.type->quantize == nullptr) return nullptr;
    if (type != nullptr && view.type != type) return nullptr;
    type = view.type;
  }
  return type;
}

// Whether `type` holds every element of the tensor's weights, which are vectors.
bool Holds(const PlacedTensor& tensor, const Weights& weights, const TensorType& type) {
  for (const PlacedWeight& weight : tensor.weights) {
    const WeightView& view = ViewOf(weights, weight);
    std::vector<float> values(static_cast<size_t>(view.elements())), back(values.size());
    std::vector<std::byte> stored(values.size() * static_cast<size_t>(type.block_bytes));
    view.ReadRows(0, view.rows, values.data(), view.cols);
    type.quantize(values.data(), view.elements(), stored.data());
    type.dequantize(stored.data(), view.elements(), back.data());
    if (values != back) return false;
  }
  return true;
}

struct Types {
  std::vector<const TensorType*> of;
  std::string_view dtype;  // of most of the model
};

std::string_view DtypeWord(const TensorType& type) {
  for (const Precision& precision : kPrecisions)
    if (precision.type == type.name) return precision.dtype;
  return "float32";
}

// A GGUF keeps vectors as F32 beside matrices of 16 bits; where the 16 bits hold them, they were
// such numbers before.
Types KeptTypes(const Model& model, std::span<const PlacedTensor> placed) {
  const TensorType* f32 = FindTensorType("F32");
  const TensorType* matrices = nullptr;
  bool one_type = true;
  Types types;
  for (const PlacedTensor& tensor : placed) {
    const TensorType* type = PlainType(tensor, model.weights);
    types.of.push_back(type != nullptr ? type : f32);
    if (!tensor.matrix) continue;
    if (matrices != nullptr && types.of.back() != matrices) one_type = false;
    if (matrices == nullptr) matrices = types.of.back();
  }
  types.dtype = one_type && matrices != nullptr ? DtypeWord(*matrices) : "float32";
  const bool gguf = model.checkpoint.kind == Checkpoint::Kind::kGguf;
  if (!gguf || !one_type || matrices == nullptr || matrices->block_bytes != 2) return types;
  for (size_t i = 0; i < placed.size(); ++i)
    if (types.of[i] == f32 && !placed[i].matrix && Holds(placed[i], model.weights, *matrices))
      types.of[i] = matrices;
  return types;
}

Types ChooseTypes(const Precision& precision, const Model& model,
                  std::span<const PlacedTensor> placed) {
  if (precision.type.empty()) return KeptTypes(model, placed);
  Types types;
  types.of.assign(placed.size(), FindTensorType(precision.type));
  types.dtype = precision.dtype;
  return types;
}

// transformers' default for max_shard_size was 5 GB; 1 GB is 10^9 bytes there.
constexpr uint64_t kShardBytes = 5'000'000'000;

struct Shard {
  std::string name;
  std::vector<size_t> tensors;
};

uint64_t BytesOf(const StreamedTensor& tensor) {
  return static_cast<uint64_t>(tensor.rows() * tensor.row_bytes());
}

std::vector<Shard> CutShards(std::span<const StreamedTensor> tensors) {
  std::vector<Shard> shards(1);
  uint64_t size = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes = BytesOf(tensors[i]);
    if (size + bytes > kShardBytes && !shards.back().tensors.empty()) {
      shards.emplace_back();
      size = 0;
    }
    shards.back().tensors.push_back(i);
    size += bytes;
  }
  for (size_t i = 0; i < shards.size(); ++i)
    shards[i].name = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  return shards;
}

Status WriteIndex(const fs::path& folder, std::span<const Shard> shards,
                  std::span<const StreamedTensor> tensors, uint64_t total) {
  std::vector<std::pair<std::string, std::string>> map;
  for (const Shard& shard : shards)
    for (const size_t i : shard.tensors) map.emplace_back(tensors[i].name, shard.name);
  std::sort(map.begin(), map.end());
  std::string text = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total);
  for (size_t i = 0; i < map.size(); ++i)
    text += fmt::format("{}\n    {}: {}", i == 0 ? "" : ",", Json(map[i].first).dump(),
                        Json(map[i].second).dump());
  return WriteSmallFile(folder / "model.safetensors.index.json", text + "\n  }\n}\n");
}

Status WriteWeights(const Model& model, std::span<const PlacedTensor> placed,
                    std::span<const StreamedTensor> tensors, const fs::path& folder,
                    ThreadPool& pool, const WriteProgress& progress) {
  uint64_t total = 0, before = 0;
  for (const StreamedTensor& tensor : tensors) total += BytesOf(tensor);
  const std::vector<Shard> shards = CutShards(tensors);
  for (const Shard& shard : shards) {
    std::vector<StreamedTensor> here;
    uint64_t bytes = 0;
    for (const size_t i : shard.tensors) {
      here.push_back(tensors[i]);
      bytes += BytesOf(tensors[i]);
    }
    const FillRows fill = [&](size_t index, int64_t first, int64_t count, std::byte* out) {
      return FillRowsOf(placed[shard.tensors[index]], model.weights, *here[index].type, first,
                        count, pool, out);
    };
    const WriteProgress shown = [&](uint64_t done, uint64_t) {
      return !progress || progress(before + done, total);
    };
    LS_RETURN_IF_ERROR(
        StreamSafetensors(folder / shard.name, here, fill, shown, {{"format", "pt"}}));
    before += bytes;
  }
  return shards.size() > 1 ? WriteIndex(folder, shards, tensors, total) : Status();
}

// dtype, or torch_dtype where the model's own file says that.
void StateDtype(std::string_view dtype, Json& config) {
  const bool old_word = config.contains("torch_dtype") && !config.contains("dtype");
  config[old_word ? "torch_dtype" : "dtype"] = dtype;
}

Status WriteManifest(const Model& model, const CheckpointExportOptions& options,
                     const CheckpointExportReport& report, const fs::path& folder) {
  const Json manifest = ExportManifest(model, "safetensors", {.precision = options.precision},
                                       {.bytes = report.bytes, .notes = report.notes});
  return WriteSmallFile(folder / kManifestName, ReadableJson(manifest));
}

}  // namespace

Result<CheckpointExportReport> ExportSafetensors(const Model& model, const fs::path& out,
                                                 const CheckpointExportOptions& options) {
  CheckpointExportReport report;
  LS_TRY(const Precision* precision, FindPrecision(options.precision));
  LS_TRY(Target target, FindTarget(model));
  report.architecture = target.architecture->model_type;
  const Types types = ChooseTypes(*precision, model, target.placed);
  std::vector<StreamedTensor> tensors;
  for (size_t i = 0; i < target.placed.size(); ++i) {
    tensors.push_back(
        {.name = target.placed[i].name, .type = types.of[i], .shape = target.placed[i].shape});
    report.bytes += BytesOf(tensors.back());
  }
  report.tensors = tensors.size();
  LS_TRY(OutputFolder folder,
         OutputFolder::Create(out, {.force = options.force, .source = model.checkpoint.path}));
  LS_RETURN_IF_ERROR(folder.CheckRoom(report.bytes));
  ThreadPool pool(std::max(1, options.threads));
  LS_RETURN_IF_ERROR(
      WriteWeights(model, target.placed, tensors, folder.path(), pool, options.progress));
  if (model.checkpoint.kind == Checkpoint::Kind::kGguf || !precision->type.empty())
    StateDtype(types.dtype, target.config);
  LS_RETURN_IF_ERROR(
      WriteSmallFile(folder.path() / "config.json",
                     target.config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  LS_RETURN_IF_ERROR(WriteFolderText(model, folder.path(), report.notes));
  if (options.verify) LS_RETURN_IF_ERROR(ReadAgain(model, model.spec, folder.path(), pool, report));
  LS_RETURN_IF_ERROR(WriteManifest(model, options, report, folder.path()));
  LS_RETURN_IF_ERROR(folder.PutInPlace());
  return report;
}

}  // namespace lockstep
