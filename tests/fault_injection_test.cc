// Every known fault, injected into the reference of every architecture it applies to: what it does
// to the logits, over their noise. A fault that no architecture can show is a row that proves
// nothing; a negative control that shows is a false alarm to come.
//
// LOCKSTEP_FAULT_TABLE=FILE writes the whole table, fault by architecture.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "base/thread_pool.h"
#include "faults/catalog.h"
#include "model/apply_edit.h"
#include "model/model.h"
#include "reference/interpreter.h"
#include "verify/compare.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A fault shows when it moves a logit by more than this many times the noise.
constexpr double kPower = kNoiseMultiple;
constexpr int64_t kShort = 8;  // tokens of a first prompt: below every original context
constexpr int64_t kLong = 24;  // and of a second one, also where every fault needs fewer
constexpr int64_t kSteps = 3;  // calls of one token after each
constexpr int64_t kChunk = 4;  // and a last call of several
// Changes of both sides under which faults show that no golden's weights are large enough for.
constexpr const char* kStress[] = {
    "weights: scale layers[*].q_proj.weight by 1e5",
    "weights: scale layers[*].experts[*].gate_proj.weight by 100",
};

std::vector<fs::path> GoldenModels() {
  std::map<std::string, fs::path> models;  // the repository's before the same of the larger set
  for (const fs::path& root : {fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models",
                               fs::path(LOCKSTEP_GOLDENS) / "models"}) {
    std::error_code ignored;
    if (!fs::is_directory(root, ignored)) continue;
    for (const auto& entry : fs::directory_iterator(root))
      if (fs::exists(entry.path() / "config.json"))
        models.emplace(entry.path().filename().string(), entry.path());
  }
  std::vector<fs::path> paths;
  for (const auto& [name, path] : models) paths.push_back(path);
  return paths;
}

std::vector<int32_t> RandomIds(const ModelSpec& spec, int64_t n) {
  std::vector<int32_t> ids;
  uint64_t state = 17;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
    ids.push_back(
        static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(spec.embedding.vocab_size)));
  }
  return ids;
}

// Long enough for every fault that applies, as far as the context goes.
int64_t PromptLength(const ModelSpec& spec) {
  int64_t length = kLong;
  for (const Fault& fault : KnownFaults())
    if (!fault.edits(spec).empty()) length = std::max(length, ShortestPrompt(fault, spec));
  constexpr int64_t kPositionsMoved = 4;  // by faults
  if (const auto limit = ContextLimit(spec))
    length = std::min(length, *limit - kSteps - kChunk - kPositionsMoved);
  return length;
}

// Logits of every position: the prompt in one call, then tokens one by one, then several at once.
template <typename T>
Result<std::vector<T>> RunAll(const ModelSpec& spec, const Weights& weights, const RunSpec& run,
                              std::span<const int32_t> ids, int64_t prompt, ThreadPool& pool) {
  Interpreter<T> interpreter(spec, weights, pool, run);
  auto sequence = interpreter.NewSequence();
  std::vector<T> all;
  std::vector<int64_t> calls = {prompt};
  calls.insert(calls.end(), kSteps, 1);
  calls.push_back(kChunk);
  int64_t begin = 0;
  for (const int64_t count : calls) {
    LS_TRY(const auto logits,
           interpreter.Append(sequence,
                              ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                              LogitsFor::kAll));
    all.insert(all.end(), logits.data, logits.data + logits.rows * logits.cols);
    begin += count;
  }
  return all;
}

template <typename A, typename B>
double Distance(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!std::isfinite(d)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, d);
  }
  return largest;
}

// What one model gave: for each fault or control, each form's distance over the noise.
struct ModelResult {
  std::string name;
  double noise = 0;
  std::map<std::string_view, std::vector<double>> faults, controls;
  std::vector<std::string> silent_forms;  // of faults: a form that does not show
  std::vector<std::string> errors;

  double Largest(std::string_view fault) const {
    const auto found = faults.find(fault);
    if (found == faults.end()) return -1;
    return *std::max_element(found->second.begin(), found->second.end());
  }
};

// The unedited run of a model, and what edits do to it.
class Bench {
 public:
  static Result<Bench> Of(Model model) {
    Bench bench(std::move(model));
    LS_TRY(bench.right_, bench.Logits<float>({}));
    LS_TRY(const auto wide, bench.Logits<double>({}));
    bench.noise_ = Distance(bench.right_, wide);
    return bench;
  }

  Result<double> DistanceOf(const Edit& edit) {
    LS_TRY(const auto wrong, Logits<float>(edit));
    return Distance(right_, wrong);
  }
  double noise() const { return noise_; }
  const Model& model() const { return model_; }

 private:
  explicit Bench(Model model)
      : model_(std::move(model)),
        prompt_(PromptLength(model_.spec)),
        ids_(RandomIds(model_.spec, prompt_ + kSteps + kChunk)),
        pool_(std::make_unique<ThreadPool>(1)) {}

  template <typename T>
  Result<std::vector<T>> Logits(const Edit& edit) {
    LS_TRY(const Model edited, Edited(model_, edit));
    LS_TRY(const RunSpec run, EditedRun({}, edit));
    LS_TRY(std::vector<T> both, RunAll<T>(edited.spec, edited.weights, run, ids_, prompt_, *pool_));
    LS_TRY(const auto brief, RunAll<T>(edited.spec, edited.weights, run, ids_, kShort, *pool_));
    both.insert(both.end(), brief.begin(), brief.end());
    return both;
  }

  Model model_;
  int64_t prompt_;
  std::vector<int32_t> ids_;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<float> right_;
  double noise_ = 0;
};

ModelResult Inject(const fs::path& path) {
  ModelResult result{.name = path.filename().string()};
  auto model = LoadModel(path);
  auto bench = model ? Bench::Of(*std::move(model)) : tl::unexpected(model.error());
  if (!bench) {
    result.errors.push_back(bench.error().message);
    return result;
  }
  result.noise = bench->noise();
  const auto run = [&](std::string_view id, const std::vector<Edit>& edits, auto& into) {
    for (const Edit& edit : edits) {
      const auto distance = bench->DistanceOf(edit);
      if (distance) {
        const double ratio = *distance / (bench->noise() + kToleranceFloor / kNoiseMultiple);
        into[id].push_back(ratio);
        if (FindFault(id) != nullptr && ratio < kPower)
          result.silent_forms.push_back(fmt::format("{}: {}: {:.2g}", id, ToString(edit), ratio));
      } else {
        result.errors.push_back(
            fmt::format("{}: {}: {}", id, ToString(edit), distance.error().message));
      }
      const auto back = ParseEdit(ToString(edit));
      if (!back || *back != edit)
        result.errors.push_back(fmt::format("{}: does not read back: {}", id, ToString(edit)));
    }
  };
  for (const Fault& fault : KnownFaults())
    run(fault.id, fault.edits(bench->model().spec), result.faults);
  for (const NegativeControl& control : NegativeControls())
    run(control.id, control.edits(bench->model().spec), result.controls);
  return result;
}

const std::vector<ModelResult>& Results() {
  static const std::vector<ModelResult> results = [] {
    const std::vector<fs::path> paths = GoldenModels();
    std::vector<ModelResult> all(paths.size());
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i = next++; i < paths.size(); i = next++) all[i] = Inject(paths[i]);
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < std::clamp(std::thread::hardware_concurrency(), 1u, 8u); ++i)
      threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    return all;
  }();
  return results;
}

// Fault by architecture: the largest distance over noise of its forms.
void WriteTable(std::ostream& out) {
  out << "fault";
  for (const ModelResult& model : Results()) out << '\t' << model.name;
  for (const Fault& fault : KnownFaults()) {
    out << '\n' << fault.id;
    for (const ModelResult& model : Results()) {
      const double largest = model.Largest(fault.id);
      out << '\t' << (largest < 0 ? "" : fmt::format("{:.3g}", largest));
    }
  }
  out << '\n';
}

TEST(FaultInjection, EveryFaultThatAppliesCanBeApplied) {
  ASSERT_GT(Results().size(), 30u);
  for (const ModelResult& model : Results()) {
    EXPECT_GT(model.faults.size(), 10u) << model.name;
    for (const std::string& error : model.errors) ADD_FAILURE() << model.name << ": " << error;
  }
}

// Some change of both sides makes the fault show on some model.
std::string StressThatShows(const Fault& fault) {
  for (const char* text : kStress) {
    for (const fs::path& path : GoldenModels()) {
      const auto stress = ParseEdit(text);
      auto model = LoadModel(path);
      if (!stress || !model || fault.edits(model->spec).empty()) continue;
      auto stressed = Edited(*model, *stress);
      if (!stressed) continue;  // this model has no such weight
      auto bench = Bench::Of(*std::move(stressed));
      if (!bench) continue;
      for (const Edit& edit : fault.edits(bench->model().spec))
        if (const auto distance = bench->DistanceOf(edit);
            distance && *distance > kPower * bench->noise() + kToleranceFloor)
          return fmt::format("{} with \"{}\" on both sides", path.filename().string(), text);
    }
  }
  return "";
}

TEST(FaultInjection, EveryFaultShowsInSomeArchitecture) {
  size_t pairs = 0, with_power = 0;
  for (const Fault& fault : KnownFaults()) {
    std::vector<std::string> silent;
    size_t applies = 0;
    double largest = 0;
    for (const ModelResult& model : Results()) {
      const double here = model.Largest(fault.id);
      if (here < 0) continue;
      ++applies;
      largest = std::max(largest, here);
      if (here < kPower) silent.push_back(fmt::format("{} {:.2g}", model.name, here));
    }
    pairs += applies;
    with_power += applies - silent.size();
    EXPECT_GT(applies, 0u) << fault.id << " applies to no architecture";
    std::string note;
    if (applies == silent.size()) {
      note = StressThatShows(fault);
      EXPECT_NE(note, "") << fault.id << " shows in no architecture";
    }
    std::cout << fmt::format("{:32} shows in {:2} of {:2}, at most {:8.2g} noise; silent: {}{}\n",
                             fault.id, applies - silent.size(), applies, largest,
                             fmt::join(silent, ", "), note.empty() ? "" : "; shows in " + note);
  }
  std::cout << "forms that do not show:\n";
  for (const ModelResult& model : Results())
    for (const std::string& form : model.silent_forms)
      std::cout << "  " << model.name << ": " << form << "\n";
  std::cout << fmt::format("{} faults, {} architectures: {} pairs, {} with power\n",
                           KnownFaults().size(), Results().size(), pairs, with_power);
  if (const char* file = std::getenv("LOCKSTEP_FAULT_TABLE")) {
    std::ofstream out(file);
    WriteTable(out);
  }
}

TEST(FaultInjection, NegativeControlsStayWithinTheTolerance) {
  std::map<std::string_view, int> applied;
  for (const ModelResult& model : Results()) {
    for (const auto& [id, forms] : model.controls) {
      ++applied[id];
      for (const double ratio : forms)
        EXPECT_LE(ratio, kNoiseMultiple) << id << " in " << model.name;
    }
  }
  for (const NegativeControl& control : NegativeControls())
    EXPECT_GT(applied[control.id], 0) << control.id << " applies to no architecture";
}

}  // namespace
}  // namespace lockstep
