#include "export/safetensors/export_safetensors.h"

#include <algorithm>
#include <atomic>
#include <system_error>

#include "arch/hf_facts.h"
#include "base/quoted.h"
#include "base/readable_json.h"
#include "export/data_file.h"
#include "export/export.h"
#include "export/matrix_source.h"
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

// Whether `type` holds every element of the tensor's weights.
bool Holds(const PlacedTensor& tensor, const Weights& weights, const TensorType& type) {
  constexpr int64_t kElements = int64_t{1} << 18;
  bool all = true;
  for (const PlacedWeight& weight : tensor.weights) {
    const WeightView& view = ViewOf(weights, weight);
    const int64_t step = std::clamp<int64_t>(kElements / view.cols, 1, view.rows);
    const auto most = static_cast<size_t>(step * view.cols);
    std::vector<float> values(most), back(most);
    std::vector<std::byte> stored(most * static_cast<size_t>(type.block_bytes));
    for (int64_t row = 0; all && row < view.rows; row += step) {
      const int64_t rows = std::min(step, view.rows - row);
      const int64_t n = rows * view.cols;
      view.ReadRows(row, rows, values.data(), view.cols);
      type.quantize(values.data(), n, stored.data());
      type.dequantize(stored.data(), n, back.data());
      all = std::equal(values.begin(), values.begin() + n, back.begin());
    }
    ForgetPages(weights, {.views = {&view}});
  }
  return all;
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

// Which of the tensors `type` holds, where it holds all matrices; empty otherwise.
std::vector<bool> HeldBy(const TensorType& type, const Model& model,
                         std::span<const PlacedTensor> placed, ThreadPool& pool) {
  std::vector<char> held(placed.size());
  std::atomic<bool> matrices = true;
  pool.For(placed.size(), [&](size_t i) {
    if (!matrices) return;
    held[i] = Holds(placed[i], model.weights, type);
    if (!held[i] && placed[i].matrix) matrices = false;
  });
  if (!matrices) return {};
  return {held.begin(), held.end()};
}

// A GGUF keeps vectors as F32 beside matrices of 16 bits; where the 16 bits hold them, they were
// such numbers before. Likewise all that comes out of a graph in fp32, whose checkpoint said
// `before`.
Types KeptTypes(const Model& model, std::span<const PlacedTensor> placed, const TensorType* before,
                ThreadPool& pool) {
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
  if (before != nullptr && one_type && matrices == f32) {
    const std::vector<bool> held = HeldBy(*before, model, placed, pool);
    for (size_t i = 0; i < held.size(); ++i)
      if (held[i]) types.of[i] = before;
    if (!held.empty()) types.dtype = DtypeWord(*before);
    return types;
  }
  const bool gguf = model.checkpoint.kind == Checkpoint::Kind::kGguf;
  if (!gguf || !one_type || matrices == nullptr || matrices->block_bytes != 2) return types;
  for (size_t i = 0; i < placed.size(); ++i)
    if (types.of[i] == f32 && !placed[i].matrix && Holds(placed[i], model.weights, *matrices))
      types.of[i] = matrices;
  return types;
}

Types ChooseTypes(const Precision& precision, const Model& model,
                  std::span<const PlacedTensor> placed, const TensorType* before,
                  ThreadPool& pool) {
  if (precision.type.empty()) return KeptTypes(model, placed, before, pool);
  Types types;
  types.of.assign(placed.size(), FindTensorType(precision.type));
  types.dtype = precision.dtype;
  return types;
}

struct Shard {
  std::string name;
  std::vector<size_t> tensors;
};

uint64_t BytesOf(const StreamedTensor& tensor) {
  return static_cast<uint64_t>(tensor.rows() * tensor.row_bytes());
}

std::vector<Shard> CutShards(std::span<const StreamedTensor> tensors, uint64_t shard_bytes) {
  std::vector<Shard> shards(1);
  uint64_t size = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes = BytesOf(tensors[i]);
    if (size + bytes > shard_bytes && !shards.back().tensors.empty()) {
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
                    ThreadPool& pool, const CheckpointExportOptions& options) {
  uint64_t total = 0, before = 0;
  for (const StreamedTensor& tensor : tensors) total += BytesOf(tensor);
  const std::vector<Shard> shards = CutShards(tensors, options.shard_bytes);
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
      return !options.progress || options.progress(before + done, total);
    };
    // One that is there was finished by an export that was killed later (output_folder.h).
    std::error_code ignored;
    if (!fs::exists(folder / shard.name, ignored))
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
  ThreadPool pool(std::max(1, options.threads));
  const Types types = ChooseTypes(*precision, model, target.placed, options.before, pool);
  std::vector<StreamedTensor> tensors;
  for (size_t i = 0; i < target.placed.size(); ++i) {
    tensors.push_back(
        {.name = target.placed[i].name, .type = types.of[i], .shape = target.placed[i].shape});
    report.bytes += BytesOf(tensors.back());
  }
  report.tensors = tensors.size();
  LS_TRY(OutputFolder folder, OutputFolder::Create(out, {.force = options.force,
                                                         .source = model.checkpoint.path,
                                                         .resume_key = options.resume_key}));
  if (options.say && !folder.Resumed().empty()) options.say(folder.Resumed());
  LS_RETURN_IF_ERROR(folder.CheckRoom(report.bytes));
  LS_RETURN_IF_ERROR(WriteWeights(model, target.placed, tensors, folder.path(), pool, options));
  if (model.checkpoint.tensors.empty() || model.checkpoint.kind == Checkpoint::Kind::kGguf ||
      !precision->type.empty())
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
