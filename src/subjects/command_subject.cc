#include "subjects/command_subject.h"

#include <algorithm>

#include "base/mapped_file.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kProbeMark = "{probe}", kTraceMark = "{trace}";
constexpr int64_t kLargestVocabulary = 1 << 21;
constexpr std::chrono::hours kForever{24 * 365};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

}  // namespace

std::string ShellQuoted(std::string_view text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+:@%,=").find(c) != std::string_view::npos;
  });
  if (plain) return std::string(text);
  std::string quoted(text);
  ReplaceAll(quoted, "'", "'\\''");
  return "'" + quoted + "'";
}

Json ProbeFile(const Probe& probe) {
  Json prompt = {{"name", probe.name}};
  if (probe.text) prompt["text"] = *probe.text;
  if (probe.rendered) prompt["rendered"] = *probe.rendered;
  prompt["ids"] = probe.ids;
  prompt["steps"] = probe.steps;
  prompt["all_positions"] = probe.all_positions;
  prompt["hidden"] = probe.hidden;
  if (probe.passage != Passage::kWhole) {
    prompt["passage"] = PassageName(probe.passage);
    if (!probe.parts.empty()) prompt["parts"] = probe.parts;
    if (!probe.other.empty()) prompt["other"] = probe.other;
  }
  prompt["taps"] = Json::array();
  for (const TapPlace& place : probe.taps)
    prompt["taps"].push_back(TapName(place.tap, place.layer));
  return {
      {"format", "lockstep-probe"}, {"version", 1}, {"prompts", Json::array({std::move(prompt)})}};
}

Result<std::unique_ptr<CommandSubject>> CommandSubject::Open(CommandLine line) {
  const bool probe = Contains(line.command, kProbeMark), trace = Contains(line.command, kTraceMark);
  if (line.command.find_first_not_of(" \t\n") == std::string::npos)
    return UsageError("cmd: expected a command line after it, such as cmd:'python3 subject.py'");
  if (probe != trace)
    return UsageError(
        "cmd:{}: has {} but not {}: a program that runs once for each probe needs both, a server "
        "neither",
        OneLine(line.command, 120), probe ? kProbeMark : kTraceMark,
        probe ? kTraceMark : kProbeMark);
  return std::unique_ptr<CommandSubject>(new CommandSubject(std::move(line), probe));
}

std::string CommandSubject::Name() const {
  const std::string name = line_.name.empty() ? "cmd:" + OneLine(line_.command, 160) : line_.name;
  return said_name_.empty() ? name : fmt::format("{} ({})", name, said_name_);
}

std::vector<std::string> CommandSubject::Notes() const {
  std::vector<std::string> notes = {
      "its tokenizer and its chat template were not seen: it is given token ids"};
  std::string unseen;
  for (const Passage passage :
       {Passage::kChunked, Passage::kRewound, Passage::kInterleaved, Passage::kPaddedBatch})
    if (std::ranges::count(passages_, passage) == 0)
      unseen += fmt::format("{}{}", unseen.empty() ? "" : ", ", PassageName(passage));
  if (once_)
    notes.emplace_back(
        "prompts in parts, rewound, in turn with others or in a padded batch were not seen: a "
        "program that runs once for each prompt keeps no cache between calls");
  else if (!unseen.empty())
    notes.push_back(fmt::format(
        "these ways of filling its cache were not seen, since it does not announce them: {}",
        unseen));
  return notes;
}

ChildProcess::Patience CommandSubject::Until(const Progress& progress, std::string_view doing,
                                             uint64_t most_bytes) const {
  const auto start = std::chrono::steady_clock::now();
  const auto wait = std::min<std::chrono::steady_clock::duration>(line_.timeout, kForever);
  return {.deadline = start + wait,
          .go_on = [&progress,
                    doing = std::string(doing)] { return !progress || progress(doing, 0, 0); },
          .check = [this, most_bytes]() -> Status {
            if (scratch_->bytes() <= most_bytes) return {};
            return InputError("wrote more than {} bytes, which no trace of this probe needs",
                              most_bytes);
          }};
}

// Twice the largest trace that answers a probe, in double precision.
uint64_t CommandSubject::MostBytes(const Probe& probe) const {
  const int64_t vocab = vocab_size_ > 0 ? vocab_size_ : kLargestVocabulary;
  const auto rows = static_cast<uint64_t>(probe.steps + 1) +
                    (probe.all_positions ? static_cast<uint64_t>(probe.ids.size()) : 1);
  uint64_t bytes = (uint64_t{4} << 20) + 2 * rows * static_cast<uint64_t>(vocab) * sizeof(double);
  // Hidden states and taps are as wide as the model is, which nobody told us.
  if (probe.hidden || !probe.taps.empty()) bytes += uint64_t{8} << 30;
  return std::min(bytes, uint64_t{16} << 30);
}

Status CommandSubject::Prepare(const Progress& progress) {
  if (broken_) return tl::unexpected(*broken_);
  if (scratch_ && (once_ || server_)) return {};
  Status started = Start(progress);
  if (started || IsInterrupted(started.error())) return started;
  broken_ = std::move(started).error().In(Name());
  return tl::unexpected(*broken_);
}

Status CommandSubject::Start(const Progress& progress) {
  if (!scratch_) {
    LS_TRY(ScratchFolder folder, ScratchFolder::Make());
    scratch_.emplace(std::move(folder));
  }
  if (once_) return {};
  LS_TRY(server_, ChildProcess::Start(line_.command));
  LS_TRY(const Json facts, AskServer({{"facts", true}}, Until(progress, "starting", 1 << 20)));
  // A server without facts answers with an error, and that is well.
  if (const auto found = facts.find("vocab_size");
      found != facts.end() && found->is_number_integer()) {
    const auto vocab = found->get<int64_t>();
    if (vocab <= 0 || vocab > kLargestVocabulary)
      return InputError("says that vocab_size is {}, expected a number from 1 to {}", vocab,
                        kLargestVocabulary);
    vocab_size_ = vocab;
  }
  if (const auto found = facts.find("name"); found != facts.end() && found->is_string())
    said_name_ = OneLine(found->get<std::string>(), 120);
  passages_.clear();
  // Names that we do not know are of a later version's ways.
  if (const auto found = facts.find("passages"); found != facts.end() && found->is_array())
    for (const Json& name : *found)
      if (const auto passage =
              name.is_string() ? PassageNamed(name.get<std::string>()) : std::nullopt;
          passage && *passage != Passage::kWhole && std::ranges::count(passages_, *passage) == 0)
        passages_.push_back(*passage);
  return {};
}

Result<Json> CommandSubject::AskServer(const Json& question,
                                       const ChildProcess::Patience& patience) {
  LS_TRY(const std::string line,
         server_->Ask(question.dump(-1, ' ', true, Json::error_handler_t::replace), patience));
  Result<Json> answer = ParseJson(line, "its answer");
  if (!answer || !answer->is_object())
    return InputError(
        "printed {} where a line of JSON such as {{\"ok\": true}} was expected (print nothing else "
        "on stdout)",
        Quoted(line));
  return answer;
}

Status CommandSubject::RunOnce(const ChildProcess::Patience& patience) {
  std::string command = line_.command;
  const fs::path& folder = scratch_->path();
  ReplaceAll(command, kProbeMark, ShellQuoted((folder / "probe.json").string()));
  ReplaceAll(command, kTraceMark, ShellQuoted((folder / "trace.safetensors").string()));
  LS_TRY(const auto child, ChildProcess::Start(command));
  return child->Finish(patience);
}

Status CommandSubject::AskForTrace(const ChildProcess::Patience& patience) {
  const fs::path& folder = scratch_->path();
  const auto answer = AskServer({{"probe", (folder / "probe.json").string()},
                                 {"trace", (folder / "trace.safetensors").string()}},
                                patience);
  if (!answer) {
    // Out of step, or gone.
    if (!IsInterrupted(answer.error())) broken_ = Error(answer.error()).In(Name());
    server_.reset();
    return tl::unexpected(answer.error());
  }
  const auto ok = answer->find("ok"), error = answer->find("error");
  const auto unsupported = answer->find("unsupported");
  if (error != answer->end())
    return Fail(
        unsupported != answer->end() && *unsupported == true ? ErrorCode::kUnsupported
                                                             : ErrorCode::kInput,
        "{}",
        OneLine(error->is_string() ? error->get<std::string>()
                                   : error->dump(-1, ' ', true, Json::error_handler_t::replace),
                600));
  if (ok == answer->end() || *ok != true)
    return InputError("answered neither {{\"ok\": true}} nor {{\"error\": \"why\"}}");
  return {};
}

Result<PromptTrace> CommandSubject::Run(const Probe& probe, const Progress& progress) {
  LS_RETURN_IF_ERROR(Prepare(progress));
  scratch_->Clear();
  LS_RETURN_IF_ERROR(WriteFileAtomically(
      scratch_->path() / "probe.json",
      ProbeFile(probe).dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  const uint64_t most = MostBytes(probe);
  const ChildProcess::Patience patience = Until(progress, "running", most);
  Status done = once_ ? RunOnce(patience) : AskForTrace(patience);
  if (done) {
    Result<PromptTrace> run = TakeTrace(probe, most);
    scratch_->Clear();
    if (run) return run;
    done = tl::unexpected(std::move(run).error());
  }
  scratch_->Clear();
  if (IsInterrupted(done.error())) return tl::unexpected(std::move(done).error());
  return tl::unexpected(std::move(done).error().In(Name()));
}

// Read from a copy of ours: a program that still runs could cut the file short under our eyes.
Result<PromptTrace> CommandSubject::TakeTrace(const Probe& probe, uint64_t most_bytes) {
  LS_TRY(const ScratchFolder copy, ScratchFolder::Make());
  for (const char* name : {"trace.safetensors", "trace.json"}) {
    const fs::path from = scratch_->path() / name;
    std::error_code error;
    const bool there = fs::is_regular_file(fs::symlink_status(from, error));
    if (!there && name == std::string_view("trace.json")) continue;
    if (!there) return InputError("wrote no trace (expected a file at the path it was given)");
    const uint64_t size = fs::file_size(from, error);
    if (error || size > most_bytes)
      return InputError("wrote {} of {} bytes, which no trace of this probe needs", name, size);
    if (!fs::copy_file(from, copy.path() / name, error))
      return InputError("wrote {}, which cannot be read: {}", name, error.message());
  }
  const std::string place = (copy.path() / "trace").string();
  Result<Trace> trace = ReadTrace(place + ".safetensors");
  if (!trace) {
    std::string message = std::move(trace).error().message;
    ReplaceAll(message, place, "its trace");
    return InputError("{}", message);
  }
  if (trace->prompts.size() != 1)
    return InputError("its trace holds {} prompts, and one was asked for", trace->prompts.size());
  PromptTrace run = std::move(trace->prompts.front());
  LS_RETURN_IF_ERROR(Check(probe, run));
  run.name = probe.name;
  run.text = probe.text;
  run.rendered = probe.rendered;
  return run;
}

Status CommandSubject::Check(const Probe& probe, PromptTrace& run) {
  if (run.ids != probe.ids)
    return InputError(
        "its trace is of other ids: {} of them, and {} were asked for (it must feed "
        "the ids as they are)",
        run.ids.size(), probe.ids.size());
  const auto steps = static_cast<size_t>(probe.steps);
  if (run.greedy.size() < steps)
    return InputError("its trace has {} greedy tokens, and {} were asked for", run.greedy.size(),
                      steps);
  run.greedy.resize(steps);
  std::erase_if(run.steps, [&](const auto& step) { return step.first > probe.steps; });
  const int64_t vocab = run.vocab_size();
  if (vocab_size_ > 0 && vocab != vocab_size_)
    return InputError("its trace has logits for {} tokens, and {} were expected", vocab,
                      vocab_size_);
  vocab_size_ = vocab;
  return {};
}

}  // namespace lockstep
