#include "export/gguf/export_gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <system_error>

#include "arch/gguf_facts.h"
#include "arch/spec_facts.h"
#include "base/quoted.h"
#include "base/thread_pool.h"
#include "export/gguf/tokenizer_keys.h"
#include "export/gguf/types.h"
#include "formats/gguf_write.h"
#include "model/place_weights.h"

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

// Rows in pieces, so that every thread has some.
Status FillParallel(const PlacedTensor& tensor, const Weights& weights, const TensorType& type,
                    int64_t first, int64_t count, ThreadPool& pool, std::byte* out) {
  const int64_t row_bytes = tensor.row_elements() / type.block_elements * type.block_bytes;
  const int64_t pieces = std::min<int64_t>(count, int64_t{pool.num_threads()} * 8);
  std::vector<Status> results(static_cast<size_t>(pieces));
  pool.For(static_cast<size_t>(pieces), [&](size_t piece) {
    const int64_t begin = count * static_cast<int64_t>(piece) / pieces;
    const int64_t end = count * (static_cast<int64_t>(piece) + 1) / pieces;
    results[piece] =
        FillPlacedRows(tensor, weights, type, first + begin, end - begin, out + begin * row_bytes);
  });
  for (Status& result : results) LS_RETURN_IF_ERROR(std::move(result));
  return {};
}

Status CheckTarget(const Model& model, const fs::path& out, bool force) {
  std::error_code error;
  if (!fs::exists(out, error)) return {};
  if (fs::is_directory(out, error))
    return UsageError("{}: is a folder, expected the name of a .gguf file to write", out.string());
  if (!force) return UsageError("{}: is there already (--force replaces it)", out.string());
  for (const auto& file : model.checkpoint.files)
    if (fs::equivalent(file->path(), out, error))
      return UsageError("{}: is the model that is being exported", out.string());
  return {};
}

// The sums behind a relative error.
struct Compared {
  int64_t exact = 0, rounded = 0;
  double error = 0, magnitude = 0;
};

Result<Compared> CompareWeights(const Model& model, const Model& written, ThreadPool& pool) {
  std::vector<std::pair<const WeightView*, const WeightView*>> pairs;
  for (const auto& [id, view] : model.weights.all()) {
    const WeightView* other = written.weights.Find(id);
    if (other == nullptr) return InputError("{} is not in the written file", ToString(id));
    pairs.emplace_back(&view, other);
  }
  std::vector<Compared> sums(pairs.size());
  pool.For(pairs.size(), [&](size_t i) {
    const auto& [a, b] = pairs[i];
    const int64_t step = std::max<int64_t>(1, (int64_t{1} << 18) / std::max<int64_t>(a->cols, 1));
    const auto size = static_cast<size_t>(std::min(step, a->rows) * a->cols);
    std::vector<float> x(size), y(size);
    for (int64_t r = 0; r < a->rows; r += step) {
      const int64_t n = std::min(step, a->rows - r);
      a->ReadRows(r, n, x.data(), a->cols);
      b->ReadRows(r, n, y.data(), a->cols);
      for (size_t k = 0; k < static_cast<size_t>(n * a->cols); ++k) {
        if (std::memcmp(&x[k], &y[k], sizeof(float)) == 0) {
          ++sums[i].exact;
          continue;
        }
        ++sums[i].rounded;
        sums[i].error += (double{x[k]} - y[k]) * (double{x[k]} - y[k]);
        sums[i].magnitude += double{x[k]} * x[k];
      }
    }
  });
  Compared total;
  for (const Compared& one : sums) {
    total.exact += one.exact;
    total.rounded += one.rounded;
    total.error += one.error;
    total.magnitude += one.magnitude;
  }
  return total;
}

Status Verify(const Model& model, const fs::path& out, ThreadPool& pool,
              CheckpointExportReport& report) {
  LS_TRY(const Model written, LoadModel(out));
  std::vector<std::string> ignored;
  if (const auto differences = FactsThatDiffer(WithoutUnusedIds(model.spec, ignored), written.spec);
      !differences.empty())
    return InputError("{}: the written file states other facts: {}", out.string(),
                      fmt::join(differences, "; "));
  LS_TRY(const Compared compared, CompareWeights(model, written, pool));
  report.exact_weights = compared.exact;
  report.rounded_weights = compared.rounded;
  if (compared.magnitude > 0)
    report.relative_error = std::sqrt(compared.error / compared.magnitude);
  return {};
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
    return FillParallel(plan.placed[index], model.weights, *plan.tensors[index].type, first, count,
                        pool, to);
  };
  LS_RETURN_IF_ERROR(WriteGguf(out, plan.values, plan.tensors, fill, options.progress));
  report.tensors = plan.tensors.size();
  std::error_code error;
  report.bytes = fs::file_size(out, error);
  if (options.verify) LS_RETURN_IF_ERROR(Verify(model, out, pool, report));
  return report;
}

}  // namespace lockstep
