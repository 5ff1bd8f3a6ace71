// lockstep bench: how fast a model runs here, and what share of the machine's peaks that is.
#include <algorithm>
#include <chrono>
#include <fstream>

#include "cli/engine_flags.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "engine/kernels/kernel_table.h"
#include "measure/machine_peaks.h"
#include "measure/model_work.h"
#include "measure/speed.h"
#include "model/model.h"

namespace lockstep {
namespace {

const std::vector<int64_t> kPrompts = {512, 32, 128, 2048};  // the first one is the headline
const std::vector<int64_t> kDepths = {0, 512, 2048};
const std::vector<int64_t> kBatches = {1, 4, 16};
constexpr int64_t kMost = 1 << 24;

std::string Default(std::vector<int64_t> sizes) {
  std::ranges::sort(sizes);
  return fmt::format(" (default: {})", fmt::join(sizes, ", "));
}

struct BenchArgs {
  std::string path;
  EngineFlags engine;
  std::vector<int64_t> prompts, depths, batches;
  int64_t steps = 64, rounds = 5;
  bool no_peaks = false, json = false;
};

struct Bench {
  double open_seconds = 0, pack_seconds = 0;
  std::string_view kernels, kv;
  int threads = 0;
  SpeedTable speeds;
  int64_t peak_bytes = 0;
  ModelWork work;
  std::optional<MachinePeaks> peaks;
};

// The most memory that this process ever held, in bytes (VmHWM); 0 where nobody says.
int64_t PeakMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

SpeedRequest RequestOf(const BenchArgs& args) {
  // What is asked for is measured, and nothing else.
  const bool chosen = !args.prompts.empty() || !args.depths.empty() || !args.batches.empty();
  SpeedRequest request{.prompts = args.prompts,
                       .depths = args.depths,
                       .batches = args.batches,
                       .steps = args.steps,
                       .rounds = static_cast<int>(args.rounds)};
  if (!chosen) {
    request.prompts = kPrompts;
    request.depths = kDepths;
    request.batches = kBatches;
  } else if (args.depths.empty()) {
    request.depths = {0};
    if (!args.prompts.empty()) request.depths.push_back(args.prompts.front());
  }
  return request;
}

// The prompt whose speed stands for prefill: the first that was asked for and fits.
const Speed* Headline(const std::vector<int64_t>& prompts, const std::vector<Speed>& measured) {
  for (const int64_t prompt : prompts)
    for (const Speed& speed : measured)
      if (speed.size == prompt) return &speed;
  return nullptr;
}

Result<Bench> Work(const BenchArgs& args, const SpeedRequest& asked) {
  Bench bench;
  auto start = std::chrono::steady_clock::now();
  LS_TRY(const Model model, LoadModel(args.path));
  bench.open_seconds = SecondsSince(start);
  if (!args.json) PrintNotes(model.notes);
  CatchInterrupts();
  const EngineOptions options = args.engine.Options();
  start = std::chrono::steady_clock::now();
  LS_TRY(const auto engine, Engine::Create(model.spec, model.weights, options));
  bench.pack_seconds = SecondsSince(start);
  bench.kernels = engine->kernels().name;
  bench.kv = Name(engine->kv_type());
  bench.threads = engine->threads();
  bench.work = WorkOf(engine->plan(), options.activations);

  ProgressLine line;
  SpeedRequest request = asked;
  request.progress = [&](std::string_view doing, int64_t done, int64_t total) {
    line.Show(doing, done, total);
    return !WasInterrupted();
  };
  LS_TRY(bench.speeds, MeasureSpeed(*engine, model.spec, request));
  bench.peak_bytes = PeakMemory();
  line.Show("measuring the machine", 0, 0);
  if (!args.no_peaks) bench.peaks = MeasureMachinePeaks(bench.threads);
  line.Clear();
  return bench;
}

// What one measurement took of the machine, at its median.
struct Use {
  double ops = 0, ops_share = 0;      // per second; of what the arithmetic peaks allow
  double bytes = 0, bytes_share = 0;  // per second; of the read bandwidth
};
// `tokens` and `logits` of one call, which took `seconds` and read `kv_bytes`.
Use UseOf(const Bench& bench, int64_t tokens, int64_t logits, double kv_bytes, double seconds) {
  const MatrixWork work = bench.work.Of(tokens, logits);
  const MatrixWork once = bench.work.Of(1, 1);
  Use use{.ops = work.ops() / seconds, .bytes = (once.bytes + kv_bytes) / seconds};
  if (bench.peaks) {
    use.ops_share = work.SecondsAtPeak(*bench.peaks) / seconds;
    if (bench.peaks->read_bytes > 0) use.bytes_share = use.bytes / bench.peaks->read_bytes;
  }
  return use;
}

enum class Kind { kPrefill, kDecode, kBatch };

Use UseOf(const Bench& bench, Kind kind, const Speed& speed) {
  const double tps = speed.tokens_per_second.median;
  const auto kv = static_cast<double>(speed.kv_bytes);
  switch (kind) {
    case Kind::kPrefill:
      return UseOf(bench, speed.size, 1, 0, static_cast<double>(speed.size) / tps);
    case Kind::kDecode:
      return UseOf(bench, 1, 1, kv, 1 / tps);
    case Kind::kBatch:
      return UseOf(bench, speed.size, speed.size, kv, static_cast<double>(speed.size) / tps);
  }
  return {};
}

std::string Rate(double x) {
  return x >= 1000 ? fmt::format("{:.0f}", x)
         : x >= 10 ? fmt::format("{:.1f}", x)
                   : fmt::format("{:.2f}", x);
}
std::string Percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string Text(const BenchArgs& args, const Bench& bench) {
  using enum Table::Align;
  std::string out = fmt::format(
      "{}\n  {} thread{}, kernels {}, {} activations, {} keys and values\n"
      "  loaded in {} (opened {}, weights packed or found packed {}); at most {} of memory\n\n",
      args.path, bench.threads, bench.threads == 1 ? "" : "s", bench.kernels,
      args.engine.activations, bench.kv, HumanSeconds(bench.open_seconds + bench.pack_seconds),
      HumanSeconds(bench.open_seconds), HumanSeconds(bench.pack_seconds),
      HumanBytes(static_cast<double>(bench.peak_bytes)));
  Table table({"", "tokens/s", "min - max", "Top/s", "of peak", "GB/s", "of peak"},
              {kLeft, kRight, kRight, kRight, kRight, kRight, kRight});
  const auto add = [&](std::string name, Kind kind, const Speed& speed) {
    const Use use = UseOf(bench, kind, speed);
    const Spread& tps = speed.tokens_per_second;
    // One pass over the weights serves a whole call: GB/s of a prompt says nothing, and which
    // experts a batch reads is not known.
    const bool reads = kind != Kind::kPrefill && !(bench.work.experts && speed.size > 1);
    table.Add({std::move(name), Rate(tps.median), Rate(tps.min) + " - " + Rate(tps.max),
               fmt::format("{:.3f}", use.ops / 1e12), bench.peaks ? Percent(use.ops_share) : "",
               reads ? fmt::format("{:.1f}", use.bytes / 1e9) : "",
               reads && bench.peaks ? Percent(use.bytes_share) : ""});
  };
  for (const Speed& speed : bench.speeds.prefill)
    add(fmt::format("prefill {}", speed.size), Kind::kPrefill, speed);
  for (const Speed& speed : bench.speeds.decode)
    add(fmt::format("decode {} at depth {}", args.steps, speed.size), Kind::kDecode, speed);
  for (const Speed& speed : bench.speeds.batch)
    add(fmt::format("decode {}, batch of {}", args.steps, speed.size), Kind::kBatch, speed);
  out += table.Text(2) + "\n";
  for (const std::string& sentence : bench.speeds.skipped)
    out += fmt::format("skipped: {}\n", sentence);
  if (bench.peaks) {
    out += fmt::format(
        "machine, {} thread{}: reads {:.1f} GB/s; int8 {:.2f} Top/s ({}); bf16 {:.2f} "
        "({}); fp32 {:.2f} ({})\n",
        bench.peaks->threads, bench.peaks->threads == 1 ? "" : "s", bench.peaks->read_bytes / 1e9,
        bench.peaks->int8_ops / 1e12, bench.peaks->int8_how, bench.peaks->bf16_ops / 1e12,
        bench.peaks->bf16_how, bench.peaks->f32_ops / 1e12, bench.peaks->f32_how);
  }
  return out;
}

Json ToJson(const Spread& s) { return {{"median", s.median}, {"min", s.min}, {"max", s.max}}; }

Json List(const Bench& bench, Kind kind, std::string_view size_name,
          const std::vector<Speed>& speeds) {
  Json list = Json::array();
  for (const Speed& speed : speeds) {
    const Use use = UseOf(bench, kind, speed);
    Json entry = {{std::string(size_name), speed.size},
                  {"tps", ToJson(speed.tokens_per_second)},
                  {"ops_per_second", use.ops}};
    if (bench.peaks) entry["share_of_arithmetic_peak"] = use.ops_share;
    if (kind != Kind::kPrefill && !(bench.work.experts && speed.size > 1)) {
      entry["read_bytes_per_second"] = use.bytes;
      if (bench.peaks) entry["share_of_read_peak"] = use.bytes_share;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

// "NAME", "NAME_min", "NAME_max"; null when it was not measured.
void Put(Json& out, const std::string& name, const Speed* speed) {
  const auto value = [&](double x) { return speed != nullptr ? Json(x) : Json(); };
  const Spread spread = speed != nullptr ? speed->tokens_per_second : Spread{};
  out[name] = value(spread.median);
  out[name + "_min"] = value(spread.min);
  out[name + "_max"] = value(spread.max);
}

Json ToJson(const BenchArgs& args, const SpeedRequest& request, const Bench& bench) {
  Json out = {{"model", args.path},
              {"version", LOCKSTEP_VERSION},
              {"threads", bench.threads},
              {"kernels", bench.kernels},
              {"activations", args.engine.activations},
              {"kv", bench.kv},
              {"rounds", args.rounds}};
  const Speed* prefill = Headline(request.prompts, bench.speeds.prefill);
  out["prompt"] = prefill != nullptr ? Json(prefill->size) : Json();
  out["decode"] = args.steps;
  Put(out, "prefill_tps", prefill);
  Put(out, "decode_tps", Headline({0}, bench.speeds.decode));
  std::vector<int64_t> depths;
  if (prefill != nullptr) depths.push_back(prefill->size);
  Put(out, "decode_tps_at_depth", Headline(depths, bench.speeds.decode));
  out["load_ms"] = 1e3 * (bench.open_seconds + bench.pack_seconds);
  out["peak_bytes"] = bench.peak_bytes;
  out["prefills"] = List(bench, Kind::kPrefill, "tokens", bench.speeds.prefill);
  out["decodes"] = List(bench, Kind::kDecode, "depth", bench.speeds.decode);
  out["batches"] = List(bench, Kind::kBatch, "sequences", bench.speeds.batch);
  out["skipped"] = bench.speeds.skipped;
  if (bench.peaks)
    out["machine"] = {{"threads", bench.peaks->threads},
                      {"read_bytes_per_second", bench.peaks->read_bytes},
                      {"int8_ops_per_second", bench.peaks->int8_ops},
                      {"int8_loop", bench.peaks->int8_how},
                      {"bf16_ops_per_second", bench.peaks->bf16_ops},
                      {"bf16_loop", bench.peaks->bf16_how},
                      {"fp32_ops_per_second", bench.peaks->f32_ops},
                      {"fp32_loop", bench.peaks->f32_how}};
  return out;
}

int Run(const BenchArgs& args) {
  const SpeedRequest request = RequestOf(args);
  const Result<Bench> bench = Work(args, request);
  if (!bench) return Report(bench.error(), args.json);
  if (args.json)
    PrintJson(ToJson(args, request, *bench));
  else
    Print(Text(args, *bench));
  return kExitYes;
}

}  // namespace

void AddBenchVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "bench", "How fast a model runs here, and what share of the peaks that is");
  auto args = std::make_shared<BenchArgs>();
  verb->add_option("PATH", args->path, "A Hugging Face folder or a GGUF file")
      ->required()
      ->type_name("");
  const auto list = [&](const char* name, std::vector<int64_t>& into, const std::string& what,
                        int64_t lowest) {
    verb->add_option_function<std::vector<std::string>>(
            name, [&into](const std::vector<std::string>& texts) { into = NumbersIn(texts); }, what)
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->check(WholeNumbers(lowest, kMost))
        ->type_name("N,...");
  };
  list("--prompt", args->prompts, "Read prompts of N tokens" + Default(kPrompts), 1);
  verb->add_option("--decode", args->steps, "Tokens of each decode measurement")
      ->check(WholeNumber(1, kMost))
      ->type_name("N")
      ->capture_default_str();
  list("--depth", args->depths, "Decode after N tokens" + Default(kDepths), 0);
  list("--batch", args->batches, "Decode N sequences at once" + Default(kBatches), 1);
  verb->add_option("--rounds", args->rounds, "Rounds that count; one before them warms up")
      ->check(WholeNumber(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  args->engine.AddTo(*verb);
  verb->add_flag("--no-peaks", args->no_peaks, "Do not measure the machine's peaks (a second)");
  verb->add_flag("--json", args->json, "One JSON object");
  verb->footer(
      "Every round measures each thing once; told are the median, the least and the most of the\n"
      "rounds. Prompts are random ids, read into an empty sequence for the logits of their end.\n"
      "Decoding chooses the most likely token, and that choice is part of the time; depth 0 "
      "starts\n"
      "after one token, as llama-bench's tg. With --prompt, --depth or --batch only these are\n"
      "measured: --prompt N also decodes at depth 0 and N. What does not fit into the model's "
      "context\n"
      "is skipped, and told.\n\n"
      "Top/s counts two for each product of a token with the matrices, GB/s the packed matrices "
      "and\n"
      "the keys and values that one step reads; attention's own products are not counted. The "
      "machine's peaks are measured by\n"
      "summing a buffer of 512 MiB, and by loops of the processor's best int8, bf16 and fp32\n"
      "instruction alone (bf16 where there is none: fp32's); their share of `Top/s` is the\n"
      "least time that these allow over the time taken.\n\n"
      "JSON: prefill_tps is the first of --prompt (512 without), decode_tps depth 0,\n"
      "decode_tps_at_depth after that prompt, each with _min and _max.\n\n"
      "Example: lockstep bench smollm2.gguf --threads 2 --prompt 512 --decode 64 --json");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep
