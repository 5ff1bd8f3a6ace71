// lockstep chat: a conversation in the terminal, or from a pipe, one message a line.
#include "cli/answer.h"
#include "cli/decoder_flags.h"
#include "cli/generation_options.h"
#include "cli/line_reader.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "formats/describe.h"
#include "model/text_model.h"
#include "subjects/text_side.h"

namespace lockstep {
namespace {

constexpr std::string_view kHelp =
    "/system TEXT   set the system message and begin anew (without TEXT: none)\n"
    "/reset         begin anew\n"
    "/help          this text\n"
    "/exit          end (so does Ctrl-D)\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on.\n";

struct ChatArgs {
  std::string path, system;
  GenerationOptions generation;
  DecoderFlags decoder;
  bool quiet = false, untrusted = false, json = false;
};

class Conversation {
 public:
  Conversation(const TextModel& text, const GenerationConfig& config, const OpenedDecoder& opened,
               const ChatArgs& args, bool tell_speed)
      : text_(text),
        config_(config),
        opened_(opened),
        decoder_(*opened.decoder),
        trust_(args.untrusted ? Trust::kUntrusted : Trust::kTrusted),
        json_(args.json),
        tell_speed_(tell_speed) {}

  void Begin(const std::string& system) {
    system_ = system;
    messages_ = Json::array();
    if (!system.empty()) messages_.push_back({{"role", "system"}, {"content", system}});
  }
  void Reset() { Begin(system_); }

  // Answers one message. On an error the conversation is as it was before.
  Status Ask(const std::string& message) {
    messages_.push_back({{"role", "user"}, {"content", message}});
    const Status status = AnswerLast();
    if (!status) messages_.erase(messages_.size() - 1);
    return status;
  }

 private:
  Status AnswerLast() {
    LS_RETURN_IF_ERROR(CheckUtf8(messages_.back()["content"].get<std::string>(), "the message"));
    LS_TRY(std::vector<int32_t> ids, EncodeChat(text_, messages_, trust_));
    const int64_t capacity = decoder_.capacity();
    if (capacity > 0 && static_cast<int64_t>(ids.size()) >= capacity)
      return UsageError("the conversation has {} tokens and the model holds {}; /reset begins anew",
                        ids.size(), capacity);
    // What a stopped prefill left behind is dropped by the next question's prefix.
    LS_TRY(const Answer answer, MakeAnswer(decoder_, {.ids = std::move(ids),
                                                      .config = &config_,
                                                      .tokenizer = &*text_.tokenizer,
                                                      .print = !json_}));
    if (json_)
      PrintJsonLine(ToJson(answer));
    else
      Print("\n");
    if (tell_speed_) PrintError("(" + answer.SpeedLine() + opened_.LookupWords() + ")\n");
    // A stopped answer stays in the history as far as it went: the user saw it.
    messages_.push_back({{"role", "assistant"}, {"content", answer.text}});
    return {};
  }

  const TextModel& text_;
  const GenerationConfig& config_;
  const OpenedDecoder& opened_;
  RewindableDecoder& decoder_;
  const Trust trust_;
  const bool json_, tell_speed_;
  std::string system_;
  Json messages_ = Json::array();
};

// Handles a line that begins with a slash; false ends the program.
bool Command(const std::string& line, Conversation& conversation) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
  if (name == "/exit" || name == "/quit") return false;
  if (name == "/reset") {
    conversation.Reset();
    PrintError("(a new conversation)\n");
  } else if (name == "/system") {
    conversation.Begin(rest);
    PrintError(rest.empty() ? "(a new conversation without a system message)\n"
                            : "(a new conversation with this system message)\n");
  } else if (name == "/help") {
    PrintError(kHelp);
  } else {
    PrintError(fmt::format("{} is no command; /help lists them\n", Quoted(name)));
  }
  return true;
}

Result<int> Work(const ChatArgs& args) {
  LS_TRY(const Model model, LoadModel(args.path));
  LS_RETURN_IF_ERROR(args.decoder.Check(model));
  LS_TRY(const ParsedGenerationConfig parsed, args.generation.InForce(model));
  LS_TRY(const TextModel text, LoadTextModel(model.checkpoint));
  if (!text.tokenizer)
    return InputError("{}: has no tokenizer, and a conversation is text{}", args.path,
                      text.notes.empty() ? "" : ": " + text.notes.front());
  if (!text.chat_template)
    return UnsupportedError(
        "{}: has no chat template, so it was not made for conversations; `lockstep run` continues "
        "a text",
        args.path);
  CatchInterrupts();
  ProgressLine line(std::chrono::milliseconds(0));
  auto started = std::chrono::steady_clock::now();
  const auto on_progress = [&](int64_t done, int64_t total) {
    if (done == 0) started = std::chrono::steady_clock::now();
    if (total == 1)
      line.Clear();
    else if (std::chrono::steady_clock::now() - started > std::chrono::seconds(2))
      line.Show("reading the conversation", done, total);
    return !WasInterrupted();
  };
  LS_TRY(const OpenedDecoder opened, args.decoder.Open(model, on_progress));
  const bool interactive = StdinIsTerminal();
  if (!args.quiet) {
    PrintNotes(parsed.warnings);
    PrintNotes(model.notes);
    PrintNotes(text.notes);
    if (!opened.note.empty()) PrintNotes({opened.note});
  }
  Conversation conversation(text, parsed.config, opened, args, !args.quiet && interactive);
  conversation.Begin(args.system);
  if (interactive)
    PrintError(fmt::format("{}: /help lists commands, /exit or Ctrl-D ends\n", args.path));
  LineReader reader;
  int code = kExitYes;
  for (std::string message;;) {
    if (interactive) PrintError("> ");
    const LineReader::End end = reader.Next(message);
    if (end == LineReader::End::kInterrupted) {
      // With a pipe there is no one who would type on.
      if (!interactive) return kExitInterrupted;
      ForgetInterrupt();
      PrintError("\n(/exit or Ctrl-D ends)\n");
      continue;
    }
    if (end == LineReader::End::kEndOfInput) break;
    if (message.find_first_not_of(" \t") == std::string::npos) continue;
    if (message.front() == '/') {
      if (!Command(message, conversation)) return code;
      continue;
    }
    const Status status = conversation.Ask(message);
    line.Clear();
    if (!status && IsInterrupted(status.error())) {
      PrintError("(stopped before it answered)\n");
    } else if (!status) {
      code = Report(status.error(), false);
      if (args.json) PrintJsonLine(ErrorToJson(status.error()));
    }
    if (WasInterrupted() && !interactive) return kExitInterrupted;
    ForgetInterrupt();
  }
  if (interactive) PrintError("\n");
  return code;
}

int Run(const ChatArgs& args) {
  const Result<int> code = Work(args);
  return code ? *code : Report(code.error(), args.json);
}

}  // namespace

void AddChatVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("chat", "A conversation in the terminal");
  auto args = std::make_shared<ChatArgs>();
  verb->add_option("PATH", args->path, "A Hugging Face folder or a GGUF file with a chat template")
      ->required()
      ->type_name("");
  verb->add_option("--system", args->system, "The system message")->type_name("TEXT");
  args->generation.AddTo(*verb);
  args->decoder.AddTo(*verb);
  verb->add_flag("--untrusted", args->untrusted,
                 "Special tokens written in messages are plain text (default, as in transformers: "
                 "they are tokens)");
  verb->add_flag("-q,--quiet", args->quiet, "No line on speed after each answer, no notes");
  verb->add_flag("--json", args->json, "Each answer as one line of JSON, when it is done");
  verb->footer(
      "Commands: /system TEXT, /reset, /help, /exit. Ctrl-C stops an answer, not the program. "
      "With\n"
      "a pipe, each line is a message. What two turns have in common is not computed again.\n\n"
      "Example: lockstep chat smollm2.gguf --system \"Answer in one sentence.\"");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep
