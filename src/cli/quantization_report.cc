#include "cli/quantization_report.h"

#include <algorithm>
#include <cmath>

#include "audit/candidate_weights.h"
#include "cli/calibration_texts.h"
#include "cli/table.h"
#include "model/text_model.h"
#include "reference/interpreter.h"
#include "subjects/open_subject.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kContext = 256;

uint64_t BytesAt(const fs::path& path) {
  std::error_code failed;
  if (fs::is_regular_file(path, failed)) return fs::file_size(path, failed);
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(path, failed))
    if (entry.is_regular_file(failed)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".onnx") || name.ends_with(".onnx.data") || name.ends_with(".gguf") ||
          name.ends_with(".safetensors"))
        bytes += entry.file_size(failed);
    }
  return bytes;
}

// The model of a file: a checkpoint's own, or this one with the weights of a graph.
Result<Model> Opened(const Model& model, const fs::path& path) {
  if (!HoldsOnnx(path)) return LoadModel(path);
  LS_TRY(const OnnxModel onnx, OnnxModel::Open(path));
  LS_TRY(const AuditReport audit, Audit(model, onnx));
  LS_TRY(CandidateWeights weights, WithWeightsOf(model, onnx, audit));
  return std::move(weights.model);
}

struct Squares {
  double error = 0, norm = 0;
  double Root() const { return norm > 0 ? std::sqrt(error / norm) : 0; }
};

void CompareWeights(const Model& model, const Model& other, ThreadPool& pool, QuantizedSide& out) {
  std::vector<Squares> layers(model.spec.layers.size());
  Squares table, all;
  for (const auto& [id, own] : model.weights.all()) {
    const WeightView& view = own;  // a binding cannot be captured
    const WeightView* coded = other.weights.Find(id);
    if (id.part != Part::kWeight || view.rows == 1 || coded == nullptr ||
        coded->rows != view.rows || coded->cols != view.cols)
      continue;
    std::vector<Squares> rows(static_cast<size_t>(view.rows));
    pool.For(rows.size(), [&](size_t r) {
      std::vector<float> a(static_cast<size_t>(view.cols)), b(a.size());
      view.ReadRows(static_cast<int64_t>(r), 1, a.data(), view.cols);
      coded->ReadRows(static_cast<int64_t>(r), 1, b.data(), view.cols);
      for (size_t i = 0; i < a.size(); ++i) {
        const double d = double{a[i]} - b[i];
        rows[r].error += d * d;
        rows[r].norm += double{a[i]} * a[i];
      }
    });
    Squares& to = id.layer >= 0 ? layers[static_cast<size_t>(id.layer)] : table;
    for (const Squares& row : rows)
      for (Squares* sum : {&to, &all}) {
        sum->error += row.error;
        sum->norm += row.norm;
      }
  }
  for (const Squares& layer : layers) out.layer_errors.push_back(layer.Root());
  out.table_error = table.Root();
  out.error = all.Root();
}

Result<QuantizedSide> Measure(const Model& model, const fs::path& path, const TextIds& text,
                              std::span<const TextWindow> windows, ThreadPool& pool,
                              const ExportProgress& progress) {
  QuantizedSide out{.path = path.string(), .bytes = BytesAt(path), .score = {}};
  LS_TRY(const Model other, Opened(model, path));
  if (other.spec.embedding.vocab_size != model.spec.embedding.vocab_size)
    return UsageError(
        "{}: has a vocabulary of {} ids, the model of {}: their outputs cannot be "
        "compared",
        path.string(), other.spec.embedding.vocab_size, model.spec.embedding.vocab_size);
  CompareWeights(model, other, pool, out);
  const auto candidate = ReferenceLogits(other, pool), truth = ReferenceLogits(model, pool);
  LS_TRY(out.score, ScoreText(*candidate, truth.get(), text, windows, pool,
                              [&](int64_t done, int64_t total, double) {
                                return progress("measuring", done, total);
                              }));
  return out;
}

std::string WithError(double value, double error) {
  return fmt::format("{:.4f} +/- {:.4f}", value, error);
}

Json SideJson(const QuantizedSide& side) {
  const Divergence& d = *side.score.divergence;
  return {{"path", side.path},
          {"bytes", side.bytes},
          {"weight_error", side.error},
          {"table_error", side.table_error},
          {"layer_errors", side.layer_errors},
          {"kl", {{"mean", d.kl.mean}, {"error", d.kl.error}, {"median", d.median_kl}}},
          {"perplexity",
           {{"value", side.score.model.perplexity()}, {"error", side.score.model.error()}}},
          {"greedy_agreement", {{"mean", d.same_top1.mean}, {"error", d.same_top1.error}}}};
}

}  // namespace

Result<QuantizationReport> ReportQuantization(const Model& model, const fs::path& quantized,
                                              const fs::path& rival, std::string_view text,
                                              ThreadPool& pool, const ExportProgress& progress) {
  LS_TRY(const TextModel side, LoadTextModel(model.checkpoint));
  if (!side.tokenizer)
    return InputError("the model has no tokenizer, so that no text can be read by it");
  std::string built_in;
  for (const std::string_view one : HeldOutTexts()) built_in.append(one).append("\n\n");
  LS_TRY(const TextIds ids, EncodeForPerplexity(*side.tokenizer, text.empty() ? built_in : text,
                                                model.spec.tokens.bos));
  const auto limit = ContextLimit(model.spec);
  const int64_t context = std::min(kContext, limit.value_or(kContext));
  LS_TRY(const auto windows, CutIntoWindows(static_cast<int64_t>(ids.ids.size()), context, 0));
  QuantizationReport out{.bytes = BytesAt(model.checkpoint.path), .model = {}, .rival = {}};
  LS_TRY(out.model, Measure(model, quantized, ids, windows, pool, progress));
  out.tokens = out.model.score.counted;
  if (!rival.empty()) {
    LS_TRY(out.rival, Measure(model, rival, ids, windows, pool, progress));
  }
  return out;
}

std::string QuantizationText(const QuantizationReport& report) {
  using enum Table::Align;
  std::vector<std::string> names = {"", "this", "fp32"};
  std::vector<const QuantizedSide*> sides = {&report.model};
  if (report.rival) {
    names.insert(names.begin() + 2, "rival");
    sides.push_back(&*report.rival);
  }
  Table table(names, std::vector(names.size(), kRight));
  const auto add = [&](std::string name, const auto& of, std::string own) {
    std::vector<std::string> row = {std::move(name)};
    for (const QuantizedSide* side : sides) row.push_back(of(*side));
    row.push_back(std::move(own));
    table.Add(std::move(row));
  };
  const Perplexity& truth = *report.model.score.against;
  add(
      "bytes", [](const auto& s) { return WithCommas(static_cast<int64_t>(s.bytes)); },
      WithCommas(static_cast<int64_t>(report.bytes)));
  add(
      "KL from fp32",
      [](const auto& s) {
        return WithError(s.score.divergence->kl.mean, s.score.divergence->kl.error);
      },
      "0");
  add(
      "perplexity",
      [](const auto& s) { return WithError(s.score.model.perplexity(), s.score.model.error()); },
      WithError(truth.perplexity(), truth.error()));
  add(
      "greedy agreement, %",
      [](const auto& s) {
        return fmt::format("{:.2f} +/- {:.2f}", 100 * s.score.divergence->same_top1.mean,
                           100 * s.score.divergence->same_top1.error);
      },
      "100");
  const auto error = [](double x) { return fmt::format("{:.4f}", x); };
  add(
      "weight error, all", [&](const auto& s) { return error(s.error); }, "0");
  add(
      "embedding and head", [&](const auto& s) { return error(s.table_error); }, "0");
  for (size_t i = 0; i < report.model.layer_errors.size(); ++i)
    add(
        fmt::format("layer {}", i),
        [&](const auto& s) {
          return i < s.layer_errors.size() ? error(s.layer_errors[i]) : std::string();
        },
        "0");
  return fmt::format(
             "\nmeasured on {} tokens that nothing was chosen by, by the reference on the codes; "
             "+/- is one standard error\n",
             WithCommas(report.tokens)) +
         table.Text(2);
}

Json ToJson(const QuantizationReport& report) {
  const Perplexity& truth = *report.model.score.against;
  Json json = {{"tokens", report.tokens},
               {"fp32",
                {{"bytes", report.bytes},
                 {"perplexity", {{"value", truth.perplexity()}, {"error", truth.error()}}}}},
               {"model", SideJson(report.model)}};
  if (report.rival) json["rival"] = SideJson(*report.rival);
  return json;
}

}  // namespace lockstep
