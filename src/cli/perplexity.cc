// lockstep perplexity: how well a model foretells a text, and how far it is from another model
// there.
#include "measure/perplexity.h"

#include <algorithm>

#include "base/mapped_file.h"
#include "cli/engine_flags.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "formats/describe.h"
#include "measure/recorded_logits.h"
#include "model/text_model.h"

namespace lockstep {
namespace {

constexpr int64_t kDefaultContext = 512;  // llama.cpp's

struct PerplexityArgs {
  std::string path, file, against, against_by = "reference";
  EngineFlags engine;
  int64_t context = 0, stride = 0;
  bool reference = false, json = false;
};

Result<std::string> ReadText(const std::string& file) {
  LS_TRY(std::string text, file == "-" ? ReadStdin() : ReadTextFile(file, size_t{1} << 30));
  const std::string place = file == "-" ? "stdin" : file;
  if (text.empty()) return UsageError("{}: is empty; perplexity needs a text", place);
  LS_RETURN_IF_ERROR(CheckUtf8(text, place));
  return text;
}

struct Side {
  Model model;
  TextModel text;

  static Result<Side> Load(const std::string& path) {
    LS_TRY(Model model, LoadModel(path));
    LS_TRY(TextModel text, LoadTextModel(model.checkpoint));
    return Side{std::move(model), std::move(text)};
  }
  int64_t vocab_size() const { return model.spec.embedding.vocab_size; }
};

Result<std::unique_ptr<LogitsSource>> Open(const Side& side, bool reference,
                                           const PerplexityArgs& args, ThreadPool& pool) {
  if (reference) return ReferenceLogits(side.model, pool);
  return EngineLogits(side.model, args.engine.Options());
}

// The two must mean the same by an id.
Status CheckSameVocabulary(const Side& a, const Side& b, const PerplexityArgs& args,
                           std::string_view text, const TextIds& ids) {
  const auto differ = [&](std::string what) {
    return UsageError("{} and {}: {}, so that their distributions cannot be compared", args.path,
                      args.against, what);
  };
  if (a.vocab_size() != b.vocab_size())
    return differ(fmt::format("their vocabularies have {} and {} ids", WithCommas(a.vocab_size()),
                              WithCommas(b.vocab_size())));
  if (!b.text.tokenizer) return {};  // the ids are ours
  for (int64_t id = 0; id < a.vocab_size(); ++id) {
    const auto ours = a.text.tokenizer->TokenText(id), theirs = b.text.tokenizer->TokenText(id);
    if (ours && theirs && *ours != *theirs)
      return differ(fmt::format("id {} is {} in one and {} in the other", id,
                                Quoted(std::string(*ours)), Quoted(std::string(*theirs))));
  }
  LS_TRY(const TextIds other,
         EncodeForPerplexity(*b.text.tokenizer, text, b.model.spec.tokens.bos));
  if (other.ids != ids.ids) return differ("their tokenizers give other ids for the text");
  return {};
}

Result<int64_t> Context(const PerplexityArgs& args, const LogitsSource& model,
                        const LogitsSource* against) {
  std::optional<int64_t> limit = model.limit();
  if (against != nullptr && against->limit())
    limit = std::min(limit.value_or(*against->limit()), *against->limit());
  if (args.context == 0) return std::min(kDefaultContext, limit.value_or(kDefaultContext));
  if (limit && args.context > *limit)
    return UsageError("--ctx {}: the model's context has {} positions", args.context, *limit);
  return args.context;
}

Json ToJson(const Mean& mean) { return {{"mean", mean.mean}, {"error", mean.error}}; }

Json ToJson(const Perplexity& p) {
  return {{"arithmetic", p.arithmetic},     {"perplexity", p.perplexity()},
          {"perplexity_error", p.error()},  {"mean_nll", p.loss.mean},
          {"mean_nll_error", p.loss.error}, {"bits_per_byte", p.bits_per_byte}};
}

Json ToJson(const PerplexityArgs& args, int64_t tokens, int64_t context, const TextScore& score) {
  Json out = {{"model", args.path}};
  out.update(ToJson(score.model));
  out.update(Json{{"text", args.file},
                  {"tokens", tokens},
                  {"ctx", context},
                  {"stride", args.stride > 0 ? Json(args.stride) : Json()},
                  {"windows", score.windows},
                  {"counted_tokens", score.counted},
                  {"counted_bytes", score.bytes}});
  if (!score.divergence) return out;
  const Divergence& d = *score.divergence;
  Json against = {{"model", args.against}};
  against.update(ToJson(*score.against));
  out["against"] = std::move(against);
  out["kl"] = {{"mean", d.kl.mean},
               {"error", d.kl.error},
               {"median", d.median_kl},
               {"p99", d.p99_kl},
               {"max", d.max_kl}};
  out["same_top1"] = ToJson(d.same_top1);
  out["max_logit_difference"] = d.max_logit_difference ? Json(*d.max_logit_difference) : Json();
  out["delta_log_p"] = ToJson(d.log_probability);
  return out;
}

std::string Line(std::string_view name, const Perplexity& p) {
  return fmt::format("{:<12}{:.4f} +/- {:.4f}   {:.4f} bits per byte   ({})\n", name,
                     p.perplexity(), p.error(), p.bits_per_byte, p.arithmetic);
}

std::string Count(int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", WithCommas(n), what, n == 1 ? "" : "s");
}

std::string Text(const PerplexityArgs& args, int64_t tokens, int64_t context,
                 const TextScore& score) {
  std::string out =
      fmt::format("{}\n  {}: {} in {} of {}{}; of these count {} ({})\n\n", args.path, args.file,
                  Count(tokens, "token"), Count(score.windows, "window"), WithCommas(context),
                  args.stride > 0 ? fmt::format(", one every {}", WithCommas(args.stride)) : "",
                  WithCommas(score.counted), Count(score.bytes, "byte"));
  out += Line("perplexity", score.model);
  if (!score.divergence) return out;
  const Divergence& d = *score.divergence;
  out += Line("against", *score.against) + fmt::format("  {}\n\n", args.against);
  using enum Table::Align;
  Table table({}, {kLeft, kRight, kLeft});
  table.Add({"KL(against || model), mean", Scientific(d.kl.mean),
             fmt::format("+/- {} nats", Scientific(d.kl.error))});
  table.Add({"  median", Scientific(d.median_kl), ""});
  table.Add({"  99 %", Scientific(d.p99_kl), ""});
  table.Add({"  max", Scientific(d.max_kl), ""});
  table.Add({"same most likely token", fmt::format("{:.3f}", 100 * d.same_top1.mean),
             fmt::format("+/- {:.3f} %", 100 * d.same_top1.error)});
  if (d.max_logit_difference)
    table.Add({"max |difference of logits|", Scientific(*d.max_logit_difference), ""});
  table.Add({"mean log p(model) - log p(against)", Scientific(d.log_probability.mean),
             fmt::format("+/- {} nats", Scientific(d.log_probability.error))});
  return out + table.Text();
}

Status Work(const PerplexityArgs& args) {
  if (args.stride > 0 && args.context > 0 && args.stride >= args.context)
    return UsageError("--stride {}: must be below --ctx ({}), so that windows overlap", args.stride,
                      args.context);
  LS_TRY(const std::string text, ReadText(args.file));
  LS_TRY(const Side side, Side::Load(args.path));
  if (!side.text.tokenizer)
    return InputError("{}: has no tokenizer, so no text can be read with it", args.path);
  LS_TRY(const TextIds ids,
         EncodeForPerplexity(*side.text.tokenizer, text, side.model.spec.tokens.bos));
  for (const int32_t id : ids.ids)
    if (id >= side.vocab_size())
      return InputError("{}: the tokenizer gives id {}, the model's vocabulary has ids 0 to {}",
                        args.path, id, side.vocab_size() - 1);
  std::optional<Side> other;
  const bool recorded = !args.against.empty() && IsRecordedLogits(args.against);
  if (!args.against.empty() && !recorded) {
    LS_TRY(other, Side::Load(args.against));
    LS_RETURN_IF_ERROR(CheckSameVocabulary(side, *other, args, text, ids));
  }
  if (!args.json) {
    PrintNotes(side.model.notes);
    PrintNotes(side.text.notes);
  }

  CatchInterrupts();
  ThreadPool pool(ThreadCount(args.engine.threads));
  LS_TRY(const auto model, Open(side, args.reference, args, pool));
  std::unique_ptr<LogitsSource> against;
  if (recorded) {
    LS_TRY(against, OpenRecordedLogits(args.against));
    if (against->vocab_size() != side.vocab_size())
      return UsageError("{}: was recorded with a vocabulary of {} ids, {} has {}", args.against,
                        against->vocab_size(), args.path, side.vocab_size());
  } else if (other) {
    LS_TRY(against, Open(*other, args.against_by == "reference", args, pool));
  }
  LS_TRY(const int64_t context, Context(args, *model, against.get()));
  if (args.stride >= context)
    return UsageError("--stride {}: must be below the window of {} tokens", args.stride, context);
  const auto tokens = static_cast<int64_t>(ids.ids.size());
  auto windows = CutIntoWindows(tokens, context, args.stride);
  if (!windows) return tl::unexpected(std::move(windows).error().In(args.file));

  ProgressLine line(std::chrono::seconds(1));
  LS_TRY(const TextScore score, ScoreText(*model, against.get(), ids, *windows, pool,
                                          [&](int64_t done, int64_t total, double perplexity) {
                                            line.Show(fmt::format("perplexity {:.3f};", perplexity),
                                                      done, total);
                                            return !WasInterrupted();
                                          }));
  line.Clear();
  if (args.json)
    PrintJson(ToJson(args, tokens, context, score));
  else
    Print(Text(args, tokens, context, score));
  return {};
}

int Run(const PerplexityArgs& args) {
  const Status status = Work(args);
  return status ? kExitYes : Report(status.error(), args.json);
}

}  // namespace

void AddPerplexityVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "perplexity", "How well a model foretells a text, and how far it is from another there");
  auto args = std::make_shared<PerplexityArgs>();
  verb->add_option("PATH", args->path, "A Hugging Face folder or a GGUF file")
      ->required()
      ->type_name("");
  verb->add_option("-f,--file", args->file, "The text (- for stdin)")
      ->required()
      ->type_name("FILE");
  verb->add_option("--ctx", args->context,
                   "Tokens of a window (default: 512, or the model's context when that is less)")
      ->check(WholeNumber(2, 1 << 24))
      ->type_name("N");
  verb->add_option("--stride", args->stride,
                   "Windows begin every N tokens, and every token counts once")
      ->check(WholeNumber(1, 1 << 24))
      ->type_name("N");
  verb->add_flag("--reference", args->reference, "Compute with the reference, not the engine");
  args->engine.AddTo(*verb);
  auto* against =
      verb->add_option("--kl-against", args->against,
                       "Also the distance from the distributions of this model, or from\n"
                       "what llama-perplexity --kl-divergence-base wrote")
          ->type_name("PATH2");
  verb->add_option("--against-by", args->against_by, "What computes PATH2")
      ->check(CLI::IsMember({"reference", "engine"}))
      ->needs(against)
      ->type_name("reference|engine")
      ->capture_default_str();
  verb->add_flag("--json", args->json, "All numbers as JSON");
  verb->footer(
      "The text's tokens are cut into windows of --ctx; each is read into an empty sequence. Of a\n"
      "window the tokens of its second half count, from ctx/2 + 1 on, each foretold by all before\n"
      "it: as llama.cpp's llama-perplexity, so that the numbers can be held against each other. A\n"
      "rest shorter than a window is left out. With --stride windows overlap, each counts what no\n"
      "window before it did, and every token but the first counts once. Where the tokenizer puts "
      "a\n"
      "begin-of-text token in front of a text, every window's first token becomes that token.\n"
      "Special tokens written in the text are plain text.\n\n"
      "+/- is one standard error, tokens taken as independent. KL is KL(PATH2 || PATH) in nats, "
      "of\n"
      "the whole distribution at each token that counts. Bits per byte: the loss of the tokens "
      "that\n"
      "count over the bytes of the text that they cover.\n\n"
      "Example: lockstep perplexity smollm2.gguf -f text.txt --kl-against smollm2.gguf");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep
