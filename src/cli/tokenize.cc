// lockstep tokenize: text to ids and back. Touches no weight.
#include <unistd.h>

#include "base/mapped_file.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "formats/describe.h"
#include "model/text_model.h"
#include "subjects/text_side.h"

namespace lockstep {
namespace {

struct TokenizeArgs {
  std::string path, text, file, decode;
  bool has_text = false, decoding = false, pieces = false, no_special = false, skip_special = false,
       chat = false, json = false;
};

Result<std::string> Input(const TokenizeArgs& args) {
  if (args.has_text) return args.text;
  if (!args.file.empty() && args.file != "-") return ReadTextFile(args.file, size_t{1} << 30);
  if (StdinIsTerminal() && args.file != "-")
    return UsageError(
        "no text: give it as an argument, with -f FILE, or pipe it in; --decode 1,2,3 goes the "
        "other way");
  return ReadStdin();
}

Status Decode(const TokenizeArgs& args, const TextModel& model) {
  std::string list = args.decode;
  if (list == "-") {
    LS_TRY(list, ReadStdin());
  }
  LS_TRY(const auto ids, ParseIds(list, "--decode"));
  for (const int32_t id : ids)
    if (!model.tokenizer->TokenText(id))
      return UsageError(
          "--decode: the tokenizer has no id {}; it has ids 0 to {}, perhaps with gaps", id,
          model.tokenizer->vocab_size() - 1);
  const std::string text = model.tokenizer->Decode(ids, args.skip_special);
  if (args.json)
    PrintJson({{"ids", ids}, {"text", text}});
  else
    Print(text + "\n");
  return {};
}

Status Encode(const TokenizeArgs& args, const TextModel& model) {
  LS_TRY(std::string text, Input(args));
  LS_RETURN_IF_ERROR(CheckUtf8(text, args.has_text       ? "TEXT"
                                     : args.file.empty() ? std::string("stdin")
                                                         : args.file));
  if (args.chat) {
    LS_TRY(text, RenderUserMessage(model, text));
  }
  LS_TRY(const auto ids, EncodeText(model, text, !args.no_special && !args.chat));
  if (args.json) {
    Json out = {{"ids", ids}, {"count", ids.size()}};
    if (args.chat) out["rendered"] = text;
    if (args.pieces)
      for (const int32_t id : ids) {
        const auto piece = model.tokenizer->TokenText(id);
        out["pieces"].push_back({{"id", id},
                                 {"token", piece ? std::string(*piece) : std::string()},
                                 {"text", model.tokenizer->Decode(std::span(&id, 1))},
                                 {"special", model.tokenizer->IsSpecial(id)}});
      }
    PrintJson(out);
    return {};
  }
  if (!args.pieces) {
    Print(fmt::format("{}\n", fmt::join(ids, ",")));
    return {};
  }
  using enum Table::Align;
  Table table({"id", "token", "text"}, {kRight, kLeft, kLeft});
  for (const int32_t id : ids)
    table.Add({std::to_string(id), Quoted(model.tokenizer->TokenText(id).value_or("")),
               Quoted(model.tokenizer->Decode(std::span(&id, 1)))});
  Print(table.Text());
  return {};
}

// A folder needs only its tokenizer's files: neither config.json nor weights are looked at.
Result<Checkpoint> OpenForText(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_tokenizer_json = path.filename() == "tokenizer.json";
  if (!std::filesystem::is_directory(path, ignored) && !is_tokenizer_json)
    return OpenCheckpoint(path);
  Checkpoint checkpoint;
  checkpoint.kind = Checkpoint::Kind::kHuggingFace;
  checkpoint.path = path;
  return checkpoint;
}

Status Work(const TokenizeArgs& args) {
  LS_TRY(const Checkpoint checkpoint, OpenForText(args.path));
  LS_TRY(const TextModel model, LoadTextModel(checkpoint));
  if (!model.tokenizer)
    return InputError("{}: has no tokenizer{}", args.path,
                      model.notes.empty() ? " (tokenizer.json, or vocab.json with merges.txt)"
                                          : ": " + model.notes.front());
  if (args.decoding) return Decode(args, model);
  return Encode(args, model);
}

int Run(const TokenizeArgs& args) {
  if (const Status status = Work(args); !status) return Report(status.error(), args.json);
  return kExitYes;
}

}  // namespace

void AddTokenizeVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("tokenize", "Text to token ids, and back");
  auto args = std::make_shared<TokenizeArgs>();
  verb->add_option("PATH", args->path,
                   "A folder with tokenizer.json (or vocab.json and merges.txt), or a GGUF file")
      ->required()
      ->type_name("");
  auto* text = verb->add_option("TEXT", args->text, "The text; without it -f or stdin is read")
                   ->type_name("");
  auto* file = verb->add_option("-f,--file", args->file, "Read the text from a file (- for stdin)")
                   ->type_name("FILE")
                   ->excludes(text);
  auto* decode = verb->add_option("--decode", args->decode,
                                  "Ids to turn into text: 1,2,3 (- reads them from stdin)")
                     ->type_name("IDS")
                     ->excludes(text)
                     ->excludes(file);
  verb->add_flag("--pieces", args->pieces, "One line for each token: id, token, text");
  verb->add_flag("--no-special", args->no_special,
                 "Do not add the special tokens that the tokenizer adds by itself");
  verb->add_flag("--skip-special", args->skip_special, "With --decode: leave special tokens out");
  verb->add_flag("--chat", args->chat, "The text is one user message: render the chat template");
  verb->add_flag("--json", args->json, "Ids (and pieces) as JSON");
  verb->footer(
      "Special tokens written in the text are recognised. A newline at the end of piped text "
      "counts.\n\n"
      "Example: lockstep tokenize smollm2.gguf \"Hello, world\" --pieces");
  verb->callback([args, text, decode, &action] {
    args->has_text = text->count() > 0;
    args->decoding = decode->count() > 0;
    action = [args] { return Run(*args); };
  });
}

}  // namespace lockstep
