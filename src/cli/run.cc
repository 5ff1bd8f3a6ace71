// lockstep run: continues a text, or answers one message.
#include "base/mapped_file.h"
#include "cli/answer.h"
#include "cli/decoder_flags.h"
#include "cli/generation_options.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "model/text_model.h"
#include "subjects/text_side.h"

namespace lockstep {
namespace {

struct RunArgs {
  std::string path, prompt, file, ids, system;
  GenerationOptions generation;
  DecoderFlags decoder;
  bool has_prompt = false, has_ids = false, chat = false, untrusted = false, raw = false,
       quiet = false, json = false, print_config = false;
};

// One newline at the end of a file or a pipe belongs to the editor or to echo, not to the prompt.
std::string WithoutFinalNewline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

Result<std::string> PromptText(const RunArgs& args) {
  std::string text, place = "--prompt";
  if (args.has_prompt) {
    text = args.prompt;
  } else if (!args.file.empty() && args.file != "-") {
    LS_TRY(text, ReadTextFile(args.file));
    text = WithoutFinalNewline(std::move(text));
    place = args.file;
  } else {
    if (StdinIsTerminal() && args.file != "-")
      return UsageError(
          "run: there is no prompt; give -p TEXT or -f FILE, or pipe text in (for a conversation: "
          "`lockstep chat {}`)",
          args.path);
    LS_TRY(text, ReadStdin());
    text = WithoutFinalNewline(std::move(text));
    place = "stdin";
  }
  LS_RETURN_IF_ERROR(CheckUtf8(text, place));
  return text;
}

Result<std::vector<int32_t>> PromptIds(const RunArgs& args, const TextModel& text) {
  if (args.has_ids) return ParseIds(args.ids, "--ids");
  LS_TRY(const std::string prompt, PromptText(args));
  const bool chat = args.chat || !args.system.empty() || (!args.raw && text.chat_template);
  const Trust trust = args.untrusted ? Trust::kUntrusted : Trust::kTrusted;
  if (!chat) return EncodeText(text, prompt, true, trust);
  Json messages = Json::array();
  if (!args.system.empty()) messages.push_back({{"role", "system"}, {"content", args.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return EncodeChat(text, messages, trust);
}

Json ToJson(const RunArgs& args, const std::vector<int32_t>& prompt, const Answer& answer,
            const OpenedDecoder& decoder) {
  Json out = {{"model", args.path}, {"computed_by", decoder.name}, {"prompt_ids", prompt}};
  out.update(ToJson(answer));
  if (decoder.lookup != nullptr) {
    out["drafted_tokens"] = decoder.lookup->counts().proposed;
    out["accepted_tokens"] = decoder.lookup->counts().accepted;
  }
  return out;
}

// The exit code.
Result<int> Work(const RunArgs& args) {
  LS_TRY(const Model model, LoadModel(args.path));
  LS_RETURN_IF_ERROR(args.decoder.Check(model));
  LS_TRY(const ParsedGenerationConfig parsed, args.generation.InForce(model));
  if (args.print_config) {
    PrintJson(parsed.config.ToJson());
    return kExitYes;
  }
  // Ids need no tokenizer: one that is broken is a note, and the answer is ids.
  const TextModel text = LoadTextModelOrNote(model.checkpoint);
  if (!text.tokenizer && !parsed.config.stop_strings.empty())
    return UsageError("{}: has no tokenizer, so stop strings cannot be found", args.path);
  LS_TRY(const auto ids, PromptIds(args, text));
  if (!args.quiet) {
    PrintNotes(parsed.warnings);
    PrintNotes(model.notes);
    PrintNotes(text.notes);
  }

  CatchInterrupts();
  ProgressLine line(std::chrono::seconds(2));
  const auto on_progress = [&](int64_t done, int64_t total) {
    if (total > 1) line.Show("reading the prompt", done, total);
    if (done == 0 && total == 1) line.Clear();
    return !WasInterrupted();
  };
  LS_TRY(const OpenedDecoder opened, args.decoder.Open(model, on_progress));
  if (!args.quiet && !opened.note.empty()) PrintNotes({opened.note});
  AnswerRequest request{.ids = ids, .config = &parsed.config};
  if (text.tokenizer) request.tokenizer = &*text.tokenizer;
  request.print = !args.json;
  LS_TRY(const Answer answer, MakeAnswer(*opened.decoder, request));
  line.Clear();
  if (args.json)
    PrintJson(ToJson(args, ids, answer, opened));
  else
    Print("\n");
  if (!args.quiet) {
    std::string speed = answer.SpeedLine() + opened.LookupWords();
    if (parsed.config.do_sample) speed += fmt::format("; seed {}", answer.seed);
    PrintError(speed + "\n");
  }
  return answer.interrupted ? kExitInterrupted : kExitYes;
}

int Run(const RunArgs& args) {
  const Result<int> code = Work(args);
  return code ? *code : Report(code.error(), args.json);
}

}  // namespace

void AddRunVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("run", "Answer a message, or continue a text");
  auto args = std::make_shared<RunArgs>();
  verb->add_option("PATH", args->path, "A Hugging Face folder or a GGUF file")
      ->required()
      ->type_name("");
  auto* prompt = verb->add_option("-p,--prompt", args->prompt, "The prompt")->type_name("TEXT");
  auto* file =
      verb->add_option("-f,--file", args->file, "Read the prompt from a file (- for stdin)")
          ->excludes(prompt)
          ->type_name("FILE");
  auto* ids = verb->add_option("--ids", args->ids, "The prompt as token ids, 1,2,3")
                  ->excludes(prompt)
                  ->excludes(file)
                  ->type_name("IDS");
  auto* chat = verb->add_flag("--chat", args->chat,
                              "The prompt is one user message (default with a chat template)");
  auto* raw = verb->add_flag("--raw", args->raw, "The prompt is text to continue, as it is")
                  ->excludes(chat);
  verb->add_option("--system", args->system, "A system message before it")
      ->excludes(raw)
      ->type_name("TEXT");
  verb->add_flag(
      "--untrusted", args->untrusted,
      "Special tokens written in the prompt are plain text (default, as in transformers: "
      "they are tokens)");
  args->decoder.AddTo(*verb);
  args->generation.AddTo(*verb);
  verb->add_flag("--print-generation-config", args->print_config,
                 "Print every value in force, and run nothing");
  verb->add_flag("-q,--quiet", args->quiet, "No line on speed, no notes");
  verb->add_flag("--json", args->json, "Ids, text and numbers as JSON, at the end");
  verb->footer(
      "Without -p, -f or --ids the prompt is read from stdin; one newline at its end is dropped. "
      "A\n"
      "model with a chat template gets the prompt as one user message, --raw turns that off. The\n"
      "text goes to stdout, the line on speed to stderr.\n\n"
      "Example: lockstep run smollm2.gguf -p \"Why is the sky blue?\" -n 60");
  verb->callback([args, prompt, ids, &action] {
    args->has_prompt = prompt->count() > 0;
    args->has_ids = ids->count() > 0;
    action = [args] { return Run(*args); };
  });
}

}  // namespace lockstep
