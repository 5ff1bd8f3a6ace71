// conformance: does the reference compute what transformers computed?
//
// usage: conformance GOLDENS [--models FOLDER] [--only TEXT] [--expect N]
//
// Replays every case of GOLDENS/models, GOLDENS/gguf and (with the two real models in FOLDER, or in
// the folder that LOCKSTEP_MODELS names) GOLDENS/real. Bounds, each on every prompt
// (docs/numerics.md):
//   logits     max |fp32 - golden| <= 8 * noise + 1e-6, over all positions
//   hidden     the same bound, times max(1, max |hidden| / max |logits|)
//   decode     the logits of each greedy step, with a cache and fed the golden's tokens: as logits
//   greedy     the same token wherever the golden's two best logits are further apart than noise
//   fp64       max |fp64 - golden| <= 4 * noise + 1e-6
//   engine     max |engine, fp32 activations and cache - golden| <= 2e-4 * max(1, max |golden|),
//   the
//              prompt at once and every greedy step, by every kernel table that this processor runs
// noise is the golden's own |fp32 - fp64|. gguf/ records none: there it is measured here, |our fp32
// - our fp64|, and taken twice, because the golden's rounding is as large and independent. Prints
// one line a case, then a table of how much of each bound was used. Exit code 1 on any miss, and
// when fewer than N cases ran; a folder that is not there is said.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/kernels/kernel_table.h"
#include "formats/safetensors.h"
#include "model/model.h"
#include "reference/interpreter.h"
#include "subjects/reference_decoder.h"
#include "subjects/reference_subject.h"
#include "trace/trace.h"
#include "verify/compare.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The larger; a NaN is worse than every number (std::max(x, NaN) would lose it).
double Worse(double a, double b) { return std::isnan(b) || b > a ? b : a; }

// What one case gave: each check's worst value as a share of its bound, and the first miss.
struct CaseResult {
  std::string name;
  std::map<std::string, double> shares;  // "logits" -> worst value / bound
  int64_t greedy_equal = 0, greedy_near_ties = 0, greedy_total = 0;
  std::string miss;  // empty: passed
  double noise = 0;  // the largest of its prompts
  double seconds = 0;

  void Check(const std::string& what, double value, double bound, const std::string& where) {
    double& share = shares[what];
    share = Worse(share, value / bound);
    if (!(value <= bound) && miss.empty())
      miss = fmt::format("{}: {} is {:.3e}, allowed {:.3e}", where, what, value, bound);
  }
  void Require(bool holds, const std::string& what) {
    if (!holds && miss.empty()) miss = what;
  }
};

// Hidden states as transformers lists them.
template <typename T>
class HiddenSink : public TapSink<T> {
 public:
  explicit HiddenSink(int num_layers) : rows_(static_cast<size_t>(num_layers) + 1) {}
  bool Wants(Tap tap, int layer) const override { return Slot(tap, layer) >= 0; }
  void Put(Tap tap, int layer, int64_t, MatrixView<const T> rows) override {
    auto& out = rows_[static_cast<size_t>(Slot(tap, layer))];
    for (size_t r = 0; r < rows.rows; ++r)
      out.insert(out.end(), rows.row(r).begin(), rows.row(r).end());
  }
  const std::vector<std::vector<double>>& rows() const { return rows_; }

 private:
  int Slot(Tap tap, int layer) const {
    const int last = static_cast<int>(rows_.size()) - 1;
    if (tap == Tap::kEmbedding) return 0;
    if (tap == Tap::kFinalNorm) return last;
    return tap == Tap::kOutput && layer + 1 < last ? layer + 1 : -1;
  }
  std::vector<std::vector<double>> rows_;
};

std::vector<double> AllValues(const TraceTensor& tensor) {
  return std::visit(
      [](const auto& values) { return std::vector<double>(values.begin(), values.end()); },
      tensor.values);
}

double MaxAbs(std::span<const double> values) {
  double most = 0;
  for (const double x : values) most = Worse(most, std::abs(x));
  return most;
}

template <typename T>
Result<std::vector<double>> Forward(Interpreter<T>& interpreter, std::span<const int32_t> ids,
                                    TapSink<T>* sink) {
  Sequence<T> sequence = interpreter.NewSequence();
  LS_TRY(const auto logits, interpreter.Append(sequence, ids, LogitsFor::kAll, sink));
  return std::vector<double>(logits.data, logits.data + logits.rows * logits.cols);
}

// The logits of every greedy step, fed `greedy`, one token a call.
Result<std::vector<std::vector<double>>> Decode(Interpreter<float>& interpreter,
                                                std::span<const int32_t> ids,
                                                std::span<const int32_t> greedy) {
  Sequence<float> sequence = interpreter.NewSequence();
  std::vector<std::vector<double>> rows;
  std::span<const int32_t> next = ids;
  for (size_t k = 0; k < greedy.size(); ++k) {
    LS_TRY(const auto logits, interpreter.Append(sequence, next));
    rows.emplace_back(logits.row(0).begin(), logits.row(0).end());
    next = greedy.subspan(k, 1);
  }
  return rows;
}

void CheckGreedy(const PromptTrace& golden, const std::vector<std::vector<double>>& rows,
                 double noise, double bound, const std::string& where, CaseResult& out) {
  for (size_t k = 0; k < rows.size(); ++k) {
    const std::vector<double> expected = golden.StepLogits(static_cast<int64_t>(k));
    ++out.greedy_total;
    const TopTwo ours = FindTopTwo(rows[k]);
    const bool equal = ours.first == golden.greedy[k];
    out.greedy_equal += equal;
    if (!expected.empty())
      out.Check("decode", MaxAbsDifference(expected, rows[k]), bound,
                fmt::format("{}, greedy step {}", where, k));
    if (equal) continue;
    const double gap =
        expected.empty() ? golden.min_top2_gap.value_or(0) : FindTopTwo(expected).gap;
    ++out.greedy_near_ties;
    out.Require(gap <= noise, fmt::format("{}: greedy token {} is {} and should be {} (gap {:.1e})",
                                          where, k, ours.first, golden.greedy[k], gap));
  }
}

constexpr double kEngineBound = 2e-4;

// The engine at its most exact.
Status CheckEngine(const Model& model, const PromptTrace& golden, const std::string& where,
                   CaseResult& out) {
  const std::vector<double> expected = AllValues(*golden.logits);
  const double bound = kEngineBound * std::max(1.0, MaxAbs(expected));
  for (const KernelTable* table : KernelTables()) {
    if (!table->runs_here()) continue;
    LS_TRY(
        const auto engine,
        Engine::Create(model.spec, model.weights,
                       {.threads = 1, .activations = Activations::kF32, .kernels = table->name}));
    const std::string place = fmt::format("{}, kernels {}", where, table->name);
    KvSequence sequence = engine->NewSequence();
    LS_TRY(const auto logits, engine->Append(sequence, golden.ids, Engine::Logits::kAll));
    std::vector<double> found;
    for (size_t t = 0; t < logits.rows; ++t)
      found.insert(found.end(), logits.row(t).begin(), logits.row(t).end());
    out.Check("engine", MaxAbsDifference(expected, found), bound, place);
    for (size_t k = 1; k < golden.greedy.size(); ++k) {
      LS_TRY(const auto step, engine->Append(sequence, {&golden.greedy[k - 1], 1}));
      const std::vector<double> wanted = golden.StepLogits(static_cast<int64_t>(k));
      if (wanted.empty()) continue;
      const std::vector<double> row(step.row(0).begin(), step.row(0).end());
      out.Check("engine", MaxAbsDifference(wanted, row), bound,
                fmt::format("{}, greedy step {}", place, k));
    }
  }
  return {};
}

// One prompt whose golden holds logits of all positions.
Status CheckPrompt(const Model& model, ThreadPool& pool, const PromptTrace& golden,
                   std::optional<double> recorded_noise, const std::string& where,
                   CaseResult& out) {
  Interpreter<float> single(model.spec, model.weights, pool);
  Interpreter<double> wide(model.spec, model.weights, pool);
  HiddenSink<float> hidden(static_cast<int>(model.spec.layers.size()));
  LS_TRY(const auto logits, Forward<float>(single, golden.ids, golden.hidden ? &hidden : nullptr));
  LS_TRY(const auto logits64, Forward<double>(wide, golden.ids, nullptr));
  const std::vector<double> expected = AllValues(*golden.logits);
  out.Require(expected.size() == logits.size(),
              fmt::format("{}: {} logits, expected {}", where, logits.size(), expected.size()));
  if (!out.miss.empty()) return {};
  const double noise = recorded_noise.value_or(MaxAbsDifference(logits, logits64));
  out.noise = std::max(out.noise, noise);
  const double bound = Tolerance(noise);
  out.Check("logits", MaxAbsDifference(expected, logits), bound, where);
  out.Check("fp64", MaxAbsDifference(expected, logits64), kFp64Multiple * noise + kToleranceFloor,
            where);
  if (golden.hidden) {
    const double magnitude = MaxAbs(AllValues(*golden.hidden)) / MaxAbs(expected);
    const auto& shape = golden.hidden->shape;
    out.Require(shape[0] == static_cast<int64_t>(hidden.rows().size()),
                fmt::format("{}: hidden states of {} layers", where, shape[0]));
    for (int64_t layer = 0; layer < shape[0] && out.miss.empty(); ++layer) {
      std::vector<double> rows;
      for (int64_t t = 0; t < shape[1]; ++t) {
        const auto row = golden.hidden->Row(layer * shape[1] + t);
        rows.insert(rows.end(), row.begin(), row.end());
      }
      const auto& ours = hidden.rows()[static_cast<size_t>(layer)];
      out.Require(rows.size() == ours.size(),
                  fmt::format("{}: hidden state {} has {} values", where, layer, ours.size()));
      if (!out.miss.empty()) break;
      out.Check("hidden", MaxAbsDifference(rows, ours), bound * std::max(1.0, magnitude),
                fmt::format("{}, hidden state {}", where, layer));
    }
  }
  LS_TRY(const auto rows, Decode(single, golden.ids, golden.greedy));
  CheckGreedy(golden, rows, noise, bound, where, out);
  return CheckEngine(model, golden, where, out);
}

// The same of a recording that holds some steps alone.
Status CheckEngineSteps(const Model& model, const PromptTrace& golden, CaseResult& out) {
  LS_TRY(const auto engine, Engine::Create(model.spec, model.weights,
                                           {.threads = 1, .activations = Activations::kF32}));
  KvSequence sequence = engine->NewSequence();
  std::span<const int32_t> next = golden.ids;
  for (size_t k = 0; k < golden.greedy.size(); ++k) {
    LS_TRY(const auto logits, engine->Append(sequence, next));
    next = std::span(golden.greedy).subspan(k, 1);
    const std::vector<double> wanted = golden.StepLogits(static_cast<int64_t>(k));
    if (wanted.empty()) continue;
    const std::vector<double> row(logits.row(0).begin(), logits.row(0).end());
    out.Check("engine", MaxAbsDifference(wanted, row), kEngineBound * std::max(1.0, MaxAbs(wanted)),
              fmt::format("{}, greedy step {}", golden.name, k));
  }
  return {};
}

// What generate() gives under the checkpoint's own generation_config, where the golden has it.
Status CheckGenerationConfig(const fs::path& folder, const Model& model, ThreadPool& pool,
                             const Trace& trace, CaseResult& out) {
  LS_TRY(const std::string text, ReadTextFile(folder / "golden.json"));
  LS_TRY(const Json golden, ParseJson(text, (folder / "golden.json").string()));
  for (size_t i = 0; i < trace.prompts.size(); ++i) {
    const Json& entry = golden["prompts"][i];
    if (!entry.contains("greedy_with_generation_config")) continue;
    const auto expected = entry["greedy_with_generation_config"].get<std::vector<int32_t>>();
    for (const bool with_config : {true, false}) {
      // transformers ran without an end token, so that all tokens are there to compare.
      GenerationConfig config;
      if (with_config) {
        LS_TRY(const ParsedGenerationConfig parsed,
               ParseGenerationConfig(model.checkpoint.generation_config, "generation_config.json"));
        config = parsed.config;
      }
      config.eos_token_id.clear();
      config.do_sample = false;
      config.max_new_tokens = static_cast<int64_t>(expected.size());
      ReferenceDecoder decoder(model, pool);
      LS_TRY(const GenerateResult result, Generate(decoder, trace.prompts[i].ids, config));
      out.Require(result.ids == (with_config ? expected : trace.prompts[i].greedy),
                  fmt::format("prompt {}: {} generation_config: other tokens than transformers", i,
                              with_config ? "with" : "without"));
    }
  }
  return {};
}

Status RunModelCase(const fs::path& folder, CaseResult& out) {
  ThreadPool pool(1);
  LS_TRY(const Model model, LoadModel(folder));
  LS_TRY(const Trace trace, ReadTrace(folder / "golden.safetensors"));
  for (size_t i = 0; i < trace.prompts.size(); ++i) {
    const std::string where = fmt::format("prompt {}", i);
    if (!trace.prompts[i].noise) return InputError("{}: golden.json records no noise", where);
    LS_RETURN_IF_ERROR(
        CheckPrompt(model, pool, trace.prompts[i], trace.prompts[i].noise, where, out));
  }
  return CheckGenerationConfig(folder, model, pool, trace, out);
}

// Dequantized rows to one unit in the last place, and sums that no other values could have.
Status CheckDequantized(const Model& model, const fs::path& golden_path, CaseResult& out) {
  LS_TRY(const SafetensorsFile golden, OpenSafetensors(golden_path));
  for (const TensorInfo& expected : golden.tensors) {
    const std::string_view name = expected.name;
    const bool rows = name.starts_with("dequant."), sums = name.starts_with("dequant_sum.");
    if (!rows && !sums) continue;
    const std::string stored_name(name.substr(name.find('.') + 1));
    const TensorInfo* stored = model.checkpoint.Find(stored_name);
    if (stored == nullptr) return InputError("tensor {} is missing", stored_name);
    const int64_t n = rows ? expected.elements() : stored->elements();
    std::vector<float> ours(static_cast<size_t>(n));
    stored->type->dequantize(stored->data.data(), n, ours.data());
    std::vector<double> values(static_cast<size_t>(expected.elements()));
    ConvertToDouble(*DTypeFromName(expected.type->name), expected.data.data(), values.size(),
                    values.data());
    if (rows) {
      double worst = 0;  // in units of the last place
      for (size_t i = 0; i < values.size(); ++i) {
        const auto e = static_cast<float>(values[i]);
        const double ulp = std::nextafter(std::abs(e), INFINITY) - std::abs(e);
        worst = Worse(worst, std::abs(static_cast<double>(ours[i]) - values[i]) / ulp);
      }
      out.Check("rows (ulp)", worst, 1, stored_name);
    } else {
      double sum = 0, squares = 0;
      for (const float x : ours) {
        sum += x;
        squares += static_cast<double>(x) * x;
      }
      // Each element may be off by one unit: |error| <= 2^-23 * sum |x| <= 2^-23 sqrt(n sum x^2).
      out.Check("sums", std::abs(sum - values[0]),
                0x1p-23 * std::sqrt(static_cast<double>(n) * values[1]), stored_name);
      out.Check("sums", std::abs(squares - values[1]), 0x1p-22 * values[1], stored_name);
    }
  }
  return {};
}

Status RunGgufCase(const fs::path& path, CaseResult& out) {
  ThreadPool pool(1);
  fs::path golden_path = path;
  golden_path.replace_extension(".safetensors");
  LS_TRY(const Model model, LoadModel(path));
  LS_RETURN_IF_ERROR(CheckDequantized(model, golden_path, out));
  LS_TRY(const Trace trace, ReadTrace(golden_path));
  return CheckPrompt(model, pool, trace.prompts.front(), std::nullopt, "prompt 0", out);
}

Status RunRealCase(const fs::path& model_path, const fs::path& golden_path, CaseResult& out) {
  ThreadPool pool(AvailableCores());
  LS_TRY(const auto subject, ReferenceSubject::Open(model_path, pool));
  LS_TRY(const Trace trace, ReadTrace(golden_path));
  const Progress quiet = [](std::string_view, int64_t, int64_t) { return true; };
  for (const PromptTrace& golden : trace.prompts) {
    const std::string& text = *golden.text;
    const bool chat = *golden.rendered != text;
    if (chat) {
      LS_TRY(const std::string rendered, subject->RenderChat(text));
      out.Require(rendered == *golden.rendered, golden.name + ": the template renders otherwise");
    }
    LS_TRY(const auto ids, subject->Tokenize({*golden.rendered, chat}));
    out.Require(ids == golden.ids, golden.name + ": other ids than transformers");
    Probe probe{.name = golden.name, .ids = golden.ids};
    probe.steps = static_cast<int64_t>(golden.greedy.size());
    probe.hidden = golden.hidden_last.has_value();
    LS_TRY(const PromptTrace run, subject->Run(probe, quiet));
    out.greedy_total += probe.steps;
    for (size_t k = 0; k < golden.greedy.size(); ++k)
      out.greedy_equal += k < run.greedy.size() && run.greedy[k] == golden.greedy[k];
    out.Require(run.greedy == golden.greedy, golden.name + ": other greedy tokens");
    out.Require(run.greedy_text == golden.greedy_text, golden.name + ": other greedy text");
    if (!out.miss.empty()) continue;
    double magnitude = 0;
    for (const auto& [step, row] : golden.steps) {
      const auto expected = row.Row(0);
      magnitude = Worse(magnitude, MaxAbs(expected));
      out.Check("decode", MaxAbsDifference(expected, run.StepLogits(step)), kRealBound,
                fmt::format("{}, greedy step {}", golden.name, step));
    }
    out.noise = std::max(out.noise, golden.noise.value_or(0));
    LS_RETURN_IF_ERROR(CheckEngineSteps(subject->model(), golden, out));
    if (!golden.hidden_last) continue;
    const double scale = std::max(1.0, MaxAbs(AllValues(*golden.hidden_last)) / magnitude);
    const int64_t tokens = run.hidden->shape[1];
    for (int64_t layer = 0; layer < golden.hidden_last->num_rows(); ++layer)
      out.Check("hidden",
                MaxAbsDifference(golden.hidden_last->Row(layer),
                                 run.hidden->Row(layer * tokens + tokens - 1)),
                kRealBound * scale, fmt::format("{}, hidden state {}", golden.name, layer));
  }
  return {};
}

struct Case {
  std::string name;
  std::function<Status(CaseResult&)> run;
};

std::vector<fs::path> Sorted(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    paths.push_back(it->path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

void AddCases(const fs::path& goldens, const fs::path& models, std::vector<Case>& small,
              std::vector<Case>& real) {
  for (const fs::path& folder : Sorted(goldens / "models"))
    if (fs::exists(folder / "golden.safetensors"))
      small.push_back({"models/" + folder.filename().string(),
                       [folder](CaseResult& out) { return RunModelCase(folder, out); }});
  for (const fs::path& path : Sorted(goldens / "gguf"))
    if (path.extension() == ".gguf" && fs::exists(fs::path(path).replace_extension(".safetensors")))
      small.push_back({"gguf/" + path.filename().string(),
                       [path](CaseResult& out) { return RunGgufCase(path, out); }});
  if (models.empty()) return;
  for (const auto& [golden, file] : {std::pair{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"},
                                     {"gemma3", "gemma-3-270m-q4_k_m.gguf"}}) {
    const fs::path golden_path = goldens / "real" / (std::string(golden) + ".safetensors");
    const fs::path model_path = models / file;
    if (fs::exists(golden_path) && fs::exists(model_path))
      real.push_back({fmt::format("real/{}", golden),
                      [=](CaseResult& out) { return RunRealCase(model_path, golden_path, out); }});
  }
}

CaseResult RunCase(const Case& one) {
  const auto start = std::chrono::steady_clock::now();
  CaseResult out;
  out.name = one.name;
  if (const Status status = one.run(out); !status) out.Require(false, status.error().message);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} {}  noise {:.1e}  {:.1f} s{}\n", out.miss.empty() ? "ok  " : "MISS", out.name,
             out.noise, out.seconds, out.miss.empty() ? "" : "  " + out.miss);
  std::fflush(stdout);
  return out;
}

void PrintTable(const std::vector<CaseResult>& results) {
  static constexpr const char* kChecks[] = {"logits",     "hidden", "decode", "fp64",
                                            "rows (ulp)", "sums",   "engine"};
  fmt::print("\nshare of each bound that was used (1 is the bound)\n{:38}", "case");
  for (const char* check : kChecks) fmt::print("{:>11}", check);
  fmt::print("{:>10}\n", "greedy");
  for (const CaseResult& result : results) {
    fmt::print("{:38}", result.name);
    for (const char* check : kChecks) {
      const auto share = result.shares.find(check);
      fmt::print("{:>11}",
                 share == result.shares.end() ? "" : fmt::format("{:.3f}", share->second));
    }
    fmt::print(
        "{:>10}{}{}\n", fmt::format("{}/{}", result.greedy_equal, result.greedy_total),
        result.greedy_near_ties > 0 ? fmt::format("  {} near tie", result.greedy_near_ties) : "",
        result.miss.empty() ? "" : "  MISS " + result.miss);
  }
}

int Main(int argc, char** argv) {
  fs::path goldens, models;
  std::string only;
  int64_t expected = 1;
  if (const char* folder = std::getenv("LOCKSTEP_MODELS")) models = folder;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--models" && i + 1 < argc)
      models = argv[++i];
    else if (arg == "--only" && i + 1 < argc)
      only = argv[++i];
    else if (arg == "--expect" && i + 1 < argc)
      expected = std::atoll(argv[++i]);
    else if (goldens.empty() && !arg.starts_with("-"))
      goldens = arg;
    else
      goldens.clear(), i = argc;
  }
  if (goldens.empty()) {
    fmt::print(stderr, "usage: conformance GOLDENS [--models FOLDER] [--only TEXT] [--expect N]\n");
    return 2;
  }
  for (const char* folder : {"models", "gguf", "real"})
    if (std::error_code ignored; !fs::is_directory(goldens / folder, ignored))
      fmt::print("note: {} has no folder {}: none of its cases runs\n", goldens.string(), folder);
  if (models.empty()) fmt::print("note: no --models folder: the real models do not run\n");
  std::vector<Case> small, real;
  AddCases(goldens, models, small, real);
  for (auto* cases : {&small, &real})
    std::erase_if(*cases, [&](const Case& c) { return c.name.find(only) == std::string::npos; });
  if (small.empty() && real.empty()) {
    fmt::print(stderr, "{}: no cases (expected folders models, gguf or real)\n", goldens.string());
    return 2;
  }
  // Small cases side by side, each on one thread; real ones one after another, on all.
  std::vector<CaseResult> results(small.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> workers;
  for (int i = 0; i < AvailableCores(); ++i)
    workers.emplace_back([&] {
      for (size_t k; (k = next++) < small.size();) results[k] = RunCase(small[k]);
    });
  for (std::thread& worker : workers) worker.join();
  for (const Case& one : real) results.push_back(RunCase(one));
  PrintTable(results);
  const auto failed = std::count_if(results.begin(), results.end(),
                                    [](const CaseResult& r) { return !r.miss.empty(); });
  fmt::print("{} passed, {} failed\n", static_cast<int64_t>(results.size()) - failed, failed);
  if (static_cast<int64_t>(results.size()) < expected) {
    fmt::print("{} cases ran, at least {} were expected\n", results.size(), expected);
    return 1;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
