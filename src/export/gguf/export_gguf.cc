#include "export/gguf/export_gguf.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "arch/gguf_facts.h"
#include "arch/spec_facts.h"
#include "base/disk_error.h"
#include "base/quoted.h"
#include "base/temporary_folder.h"
#include "export/gguf/tokenizer_keys.h"
#include "export/gguf/types.h"
#include "export/placed_rows.h"
#include "export/read_again.h"
#include "formats/gguf_write.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kQuantizationVersion = 2;  // GGML_QNT_VERSION

Result<const GgufArchitecture*> ArchitectureFor(const Model& model) {
  const std::string place = model.checkpoint.path.string();
  std::string_view name = model.spec.architecture;
  if (model.checkpoint.kind == Checkpoint::Kind::kHuggingFace) {
    const HfArchitecture* source = FindHfArchitecture(name);
    LS_CHECK(source != nullptr, "{}", name);
    name = source->gguf;
    if (name.empty())
      return UnsupportedError("{}: no GGUF architecture holds models of the type {}", place,
                              Quoted(source->model_type));
  }
  const GgufArchitecture* target = FindGgufArchitecture(name);
  LS_CHECK(target != nullptr, "{}", name);
  return target;
}

// Ids that no token has never occur, and GGUF has no place for them.
ModelSpec WithoutUnusedIds(const ModelSpec& spec, std::vector<std::string>& notes) {
  ModelSpec out = spec;
  const int64_t rows = spec.embedding.vocab_size;
  const auto drop = [&](std::string_view name, int64_t id) {
    if (id < rows) return false;
    notes.push_back(
        fmt::format("the {} id {} is left out: the vocabulary has {} rows", name, id, rows));
    return true;
  };
  if (out.tokens.bos && drop("bos", *out.tokens.bos)) out.tokens.bos.reset();
  if (out.tokens.pad && drop("pad", *out.tokens.pad)) out.tokens.pad.reset();
  std::erase_if(out.tokens.eos, [&](int64_t id) { return drop("eos", id); });
  return out;
}

// What is added to a weight where GGUF folds a norm's offset into it is rounded there for good.
void NoteRoundedNorms(const Model& model, std::span<const PlacedTensor> tensors,
                      std::vector<std::string>& out) {
  int64_t rounded = 0, all = 0;
  double largest = 0;
  for (const PlacedTensor& tensor : tensors) {
    for (const PlacedWeight& weight : tensor.weights) {
      if (weight.addend == 0) continue;
      const WeightView& view =
          model.weights.Get(weight.id.role, weight.id.layer, weight.id.part, weight.id.expert);
      if (view.addend == weight.addend || weight.rows != 1) continue;
      std::vector<float> values(static_cast<size_t>(weight.cols));
      view.ReadRows(0, 1, values.data(), weight.cols);
      for (const float value : values) {
        const float stored = value - static_cast<float>(weight.addend);
        const float back = stored + static_cast<float>(weight.addend);
        ++all;
        if (back == value) continue;
        ++rounded;
        largest = std::max(largest, std::abs(static_cast<double>(back) - value));
      }
    }
  }
  if (rounded > 0)
    out.push_back(fmt::format(
        "{} of {} norm weights are rounded, by at most {:.3g}: GGUF stores 1 + w of these norms",
        rounded, all, largest));
}

struct Plan {
  std::vector<PlacedTensor> placed;
  std::vector<FactTensor> facts;
  std::vector<StreamedTensor> tensors;  // the weights, then the facts
  GgufValues values;
};

void AddGeneralKeys(const Model& model, const GgufPrecision& precision, const Plan& plan,
                    GgufValues& values) {
  values.SetString("general.type", "model");
  int file_type = precision.file_type;
  if (precision.type.empty() && model.checkpoint.kind == Checkpoint::Kind::kGguf) {
    const GgufValue* stated = model.checkpoint.gguf.Find("general.file_type");
    if (stated != nullptr) file_type = static_cast<int>(stated->AsInt().value_or(0));
  } else if (precision.type.empty()) {
    for (const StreamedTensor& tensor : plan.tensors)
      for (const GgufPrecision& row : GgufPrecisions())
        if (tensor.type->name != "F32" && row.type == tensor.type->name) file_type = row.file_type;
  }
  values.SetInteger("general.file_type", static_cast<uint32_t>(file_type));
  const bool blocks = std::any_of(plan.tensors.begin(), plan.tensors.end(),
                                  [](const StreamedTensor& t) { return !t.type->plain(); });
  if (blocks) values.SetInteger("general.quantization_version", kQuantizationVersion);
}

// What a GGUF says beside its facts goes into the new one as it is.
void CopyOtherKeys(const Model& model, GgufValues& values) {
  const GgufMetadata stated = values.View();
  for (const auto& [key, value] : model.checkpoint.gguf.values()) {
    const bool of_one_file = key == "general.alignment" || key.starts_with("split.") ||
                             key == "general.quantization_version";
    if (!of_one_file && stated.Find(key) == nullptr) values.Copy(key, value);
  }
}

Result<Plan> MakePlan(const Model& model, const CheckpointExportOptions& options,
                      CheckpointExportReport& report) {
  const std::string place = model.checkpoint.path.string();
  LS_TRY(const GgufPrecision* precision, FindGgufPrecision(options.precision));
  LS_TRY(const GgufArchitecture* architecture, ArchitectureFor(model));
  report.architecture = architecture->architecture;
  const ModelSpec spec = WithoutUnusedIds(model.spec, report.notes);
  Plan plan;
  LS_TRY(plan.placed, PlaceWeights(spec, architecture->tensors, place));
  const std::vector<TypeChoice> types = ChooseTypes(*precision, spec, plan.placed, model.weights);
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < plan.placed.size(); ++i) {
    const PlacedTensor& tensor = plan.placed[i];
    if (!types[i].substitution.empty()) report.substitutions.push_back(types[i].substitution);
    plan.tensors.push_back({.name = tensor.name, .type = types[i].type, .shape = tensor.shape});
    infos.push_back({.name = tensor.name, .shape = tensor.shape, .type = types[i].type});
  }
  LS_TRY(GgufFacts facts, StateInGguf(spec, *architecture, infos, place));
  NoteRoundedNorms(model, plan.placed, report.notes);
  if (!architecture->llama_cpp_differs.empty())
    report.notes.emplace_back(architecture->llama_cpp_differs);
  if (options.strict && !report.substitutions.empty())
    return UnsupportedError("{}: --strict, and {} tensors would not be {}: {}", place,
                            report.substitutions.size(), options.precision,
                            report.substitutions.front());
  plan.values.SetString("general.architecture", architecture->architecture);
  for (const FactTensor& tensor : facts.tensors)
    plan.tensors.push_back({.name = tensor.name,
                            .type = FindTensorType("F32"),
                            .shape = {static_cast<int64_t>(tensor.values.size())}});
  AddGeneralKeys(model, *precision, plan, plan.values);
  for (const GgufValues::Entry& entry : facts.values.entries()) {
    GgufValue value = entry.value;
    value.bytes = std::as_bytes(std::span(entry.bytes));
    plan.values.Copy(entry.key, value);
  }
  plan.facts = std::move(facts.tensors);
  LS_RETURN_IF_ERROR(AddTokenizerKeys(model, plan.values, report.notes));
  CopyOtherKeys(model, plan.values);
  return plan;
}

Status CheckTarget(const Model& model, const fs::path& out, bool force) {
  std::error_code error;
  if (!fs::exists(out, error)) return {};
  if (fs::is_directory(out, error))
    return UsageError("{}: is a folder, expected the name of a .gguf file to write", out.string());
  if (fs::is_symlink(out, error) || !fs::is_regular_file(out, error))
    return UsageError("{}: is no ordinary file, expected the name of a .gguf file to write",
                      out.string());
  if (!force) return UsageError("{}: is there already (--force replaces it)", out.string());
  for (const auto& file : model.checkpoint.files)
    if (fs::equivalent(file->path(), out, error))
      return UsageError("{}: is the model that is being exported", out.string());
  return {};
}

uint64_t BytesOf(const Plan& plan) {
  uint64_t bytes = 0;
  for (const StreamedTensor& tensor : plan.tensors)
    bytes += static_cast<uint64_t>(tensor.rows() * tensor.row_bytes());
  return bytes;
}

}  // namespace

Result<CheckpointExportReport> ExportGguf(const Model& model, const fs::path& out,
                                          const CheckpointExportOptions& options) {
  CheckpointExportReport report;
  LS_RETURN_IF_ERROR(CheckTarget(model, out, options.force));
  LS_TRY(const Plan plan, MakePlan(model, options, report));
  ThreadPool pool(std::max(1, options.threads));
  const FillRows fill = [&](size_t index, int64_t first, int64_t count, std::byte* to) -> Status {
    if (index >= plan.placed.size()) {
      const FactTensor& fact = plan.facts[index - plan.placed.size()];
      std::memcpy(to, fact.values.data(), fact.values.size() * sizeof(float));
      return {};
    }
    return FillRowsOf(plan.placed[index], model.weights, *plan.tensors[index].type, first, count,
                      pool, to);
  };
  // Written and read again in a hidden folder beside it, and named at the end.
  const fs::path parent = out.has_parent_path() ? out.parent_path() : fs::path(".");
  const auto temporary = TemporaryFolder::Make(parent, out.filename().string());
  if (!temporary)
    return InputError("{}: a file cannot be created there: {}", out.string(),
                      temporary.error().message);
  const fs::path written = temporary->path() / out.filename();
  LS_RETURN_IF_ERROR(CheckRoom(temporary->path(), BytesOf(plan), out));
  LS_RETURN_IF_ERROR(WriteGguf(written, plan.values, plan.tensors, fill, options.progress));
  report.tensors = plan.tensors.size();
  std::error_code error;
  report.bytes = fs::file_size(written, error);
  if (options.verify) {
    std::vector<std::string> ignored;
    LS_RETURN_IF_ERROR(
        ReadAgain(model, WithoutUnusedIds(model.spec, ignored), written, pool, report));
  }
  // link() and not rename() where nothing may be replaced: one may have appeared meanwhile.
  if (!options.force && link(written.c_str(), out.c_str()) == 0) return report;
  if (!options.force && errno == EEXIST)
    return UsageError("{}: is there already (--force replaces it)", out.string());
  if (rename(written.c_str(), out.c_str()) != 0)
    return InputError("{}: cannot be put in place: {}", out.string(), strerror(errno));
  return report;
}

}  // namespace lockstep
