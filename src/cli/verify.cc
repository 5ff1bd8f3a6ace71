// lockstep verify: is the candidate the same model as the reference?
#include "verify/verify.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/mapped_file.h"
#include "cli/audit_text.h"
#include "cli/diagnosis_text.h"
#include "cli/engine_flags.h"
#include "cli/examine.h"
#include "cli/export_record.h"
#include "cli/options.h"
#include "cli/power.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "cli/verification_text.h"
#include "subjects/open_subject.h"
#include "subjects/reference_subject.h"
#include "subjects/trace_subject.h"
#include "verify/caching_subject.h"
#include "verify/report.h"
#include "verify/report_html.h"
#include "verify/report_junit.h"

namespace lockstep {
namespace {

struct VerifyArgs {
  std::string reference, edit;
  std::vector<std::string> candidates;
  PromptOptions prompts;
  int64_t steps = 20, longest = kLongestProbe;
  int64_t timeout = 600;  // seconds
  double seconds = 60;    // of a diagnosis; 0: none
  std::string junit, html;
  EngineFlags engine;
  bool json = false, power = false;
  bool verbose = false;

  // What is asked about, as it was named: an export that is compared with its own record is both.
  const std::string& Candidate(size_t i) const {
    return candidates.empty() ? reference : candidates[i];
  }
};

Result<std::unique_ptr<Subject>> OpenReference(const VerifyArgs& args, ThreadPool& pool) {
  LS_TRY(const Edit edit, ParseEdit(args.edit));
  if (edit.empty())
    return OpenSubject(args.reference, pool, args.engine.Options(),
                       std::chrono::seconds(args.timeout));
  if (NamesEngine(args.reference))
    return UsageError("--edit-reference edits what the reference runs: leave \"engine:\" out");
  LS_TRY(auto subject, ReferenceSubject::Open(WithoutPrefix(args.reference), pool,
                                              ReferenceSubject::Precision::kFloat, edit));
  return std::unique_ptr<Subject>(std::move(subject));
}

// What stands in a report for a side that cannot be used; a command line that makes no sense is no
// verdict, and neither is Ctrl-C.
bool IsVerdict(const Error& error) {
  return error.code == ErrorCode::kInput || error.code == ErrorCode::kUnsupported;
}

// Before minutes of work: a place to write to.
Status CheckFolder(std::string_view flag, const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored))
    return UsageError("{} {}: is no ordinary file; name one that is, or that does not exist", flag,
                      file);
  if (folder.empty() || std::filesystem::is_directory(folder, ignored)) return {};
  return UsageError("{} {}: there is no folder {}", flag, file, folder.string());
}

struct Answers {
  std::vector<Examination> examinations;  // one for each candidate
  std::optional<ModelPower> power;
};

// An export against what its own manifest says: its files, and what it answered when it was proved.
Result<Answers> WorkOnRecord(const VerifyArgs& args, const ExamineOptions& options) {
  if (args.power || !args.edit.empty())
    return UsageError("{} needs a reference: lockstep verify CHECKPOINT {}",
                      args.power ? "--power" : "--edit-reference", args.reference);
  const std::filesystem::path folder = WithoutPrefix(args.reference);
  LS_TRY(ExportRecord record, ReadExportRecord(folder));
  Examination out;
  std::vector<std::string> added;
  LS_TRY(out.changed, ChangedFiles(record, folder, added));
  CatchInterrupts();
  ThreadPool pool(ThreadCount(args.engine.threads));
  if (record.answers.prompts.empty()) {
    out.verification.reference = record.answers.source;
    out.verification.candidate = args.reference;
    out.verification.verdict = Verdict::kNotComparable;
    out.verification.sentence = fmt::format(
        "{}: {}; no answers were recorded when it was written (no ONNX Runtime, or --no-verify), "
        "so "
        "none were compared",
        record.answers.source,
        out.changed.empty()
            ? fmt::format("its {} files are those that were written", record.files.size())
            : "some of its files are not those that were written");
  } else {
    TraceSubject then(std::move(record.answers));
    LS_TRY(const auto now, OpenSubject(args.reference, pool, args.engine.Options(),
                                       std::chrono::seconds(args.timeout)));
    ProgressLine line;
    LS_TRY(out.verification, Verify(then, *now, options.verify,
                                    [&](std::string_view doing, int64_t done, int64_t total) {
                                      line.Show(std::string(doing), done, total);
                                      return !WasInterrupted();
                                    }));
  }
  Verification& v = out.verification;
  if (out.changed.empty())
    v.notes.push_back(fmt::format("its {} files are those that were written", record.files.size()));
  if (!added.empty())
    v.notes.push_back(fmt::format("files that were added since: {}", fmt::join(added, ", ")));
  if (!record.proof.empty()) v.notes.push_back("when it was written: " + record.proof);
  Answers answers;
  answers.examinations.push_back(std::move(out));
  return answers;
}

Result<Answers> Work(const VerifyArgs& args) {
  ExamineOptions options;
  LS_TRY(options.verify.prompts, args.prompts.Prompts());
  options.verify.chat = args.prompts.Chat();
  options.verify.steps = args.steps;
  options.verify.longest = args.longest;
  options.verify.hidden = !args.html.empty();
  options.diagnoses = args.seconds > 0;
  options.diagnose.seconds = args.seconds;
  LS_RETURN_IF_ERROR(CheckFolder("--junit", args.junit));
  LS_RETURN_IF_ERROR(CheckFolder("--report", args.html));
  std::vector<std::string> sides = args.candidates;
  sides.push_back(args.reference);
  for (const std::string& file : {args.junit, args.html})
    if (!file.empty() &&
        (std::find(sides.begin(), sides.end(), file) != sides.end() || args.junit == args.html))
      return UsageError("{}: is written and something else as well; name another file", file);
  if (args.candidates.empty()) return WorkOnRecord(args, options);
  const bool several = args.candidates.size() > 1;
  if (const std::string given = args.engine.FirstGiven();
      !given.empty() && !NamesEngine(args.reference) &&
      std::none_of(args.candidates.begin(), args.candidates.end(),
                   [](const std::string& name) { return NamesEngine(name); }))
    return UsageError("{} is the engine's, and {} is; write engine:PATH, or leave it out", given,
                      several ? "none of them" : "neither side");
  ThreadPool pool(ThreadCount(args.engine.threads));
  const auto open = [&](const std::string& name) {
    return OpenSubject(name, pool, args.engine.Options(), std::chrono::seconds(args.timeout));
  };
  LS_TRY(auto reference, OpenReference(args, pool));
  const auto* const checkpoint = dynamic_cast<const ReferenceSubject*>(reference.get());
  if (args.power && checkpoint == nullptr)
    return UsageError(
        "{}: --power puts faults into the reference: give a Hugging Face folder or a GGUF file",
        args.reference);
  if (several) reference = std::make_unique<CachingSubject>(std::move(reference));
  CatchInterrupts();
  Answers out;
  for (const std::string& name : args.candidates) {
    ProgressLine line;
    const auto examine = [&]() -> Result<Examination> {
      const auto opened = open(name);
      if (!opened && checkpoint != nullptr && IsVerdict(opened.error()))
        if (auto audited = AuditedAlone(*reference, *checkpoint, name, opened.error()))
          return *std::move(audited);
      if (!opened) return tl::unexpected(opened.error());
      return Examine(*reference, checkpoint, **opened, options, pool,
                     [&](std::string_view doing, int64_t done, int64_t total) {
                       line.Show(several ? fmt::format("{}: {}", name, doing) : std::string(doing),
                                 done, total);
                       return !WasInterrupted();
                     });
    };
    Result<Examination> examination = examine();
    // One of several that cannot be used does not keep the others from their answers.
    if (!examination && several && IsVerdict(examination.error()))
      examination = Examination{
          .verification = FailedVerification(reference->Name(), name, examination.error())};
    if (!examination) return tl::unexpected(std::move(examination).error());
    out.examinations.push_back(*std::move(examination));
  }
  if (args.power) {
    ProgressLine line;
    LS_TRY(out.power, MeasureModelPower(checkpoint->model(), *reference, options.verify, pool,
                                        [&](std::string_view doing, int64_t done, int64_t total) {
                                          line.Show(doing, done, total);
                                          return !WasInterrupted();
                                        }));
  }
  return out;
}

std::vector<ReportSection> Sections(const Examination& e, const std::string& reference,
                                    const std::string& candidate) {
  std::vector<ReportSection> out;
  if (e.diagnosis) out.push_back(DiagnosisSection(*e.diagnosis, reference, candidate, e.base));
  if (e.audit)
    out.push_back({.title = "Weights, constants and configuration",
                   .content = {ReportPreformatted{AuditText(*e.audit, false)}}});
  return out;
}

Status WriteReports(const VerifyArgs& args, const std::vector<Examination>& examinations) {
  if (!args.junit.empty()) {
    std::vector<Verification> verifications;
    for (const Examination& e : examinations) verifications.push_back(e.verification);
    LS_RETURN_IF_ERROR(WriteFileAtomically(args.junit, JUnitReport(verifications)));
  }
  if (!args.html.empty()) {
    std::vector<Reported> candidates;
    for (size_t i = 0; i < examinations.size(); ++i)
      candidates.push_back({examinations[i].verification,
                            Sections(examinations[i], args.reference, args.Candidate(i))});
    LS_RETURN_IF_ERROR(WriteFileAtomically(args.html, HtmlReport(candidates)));
  }
  return {};
}

std::string Summary(const std::vector<Examination>& examinations) {
  using enum Table::Align;
  Table table({"candidate", "verdict"}, {kLeft, kLeft});
  for (const Examination& e : examinations)
    table.Add({e.verification.candidate, std::string(VerdictName(e.verification.verdict))});
  return table.Text();
}

// The free checks first: of a healthy candidate nothing but that it is.
std::string AuditLines(const AuditReport& report) {
  std::string out;
  for (const Finding& finding : report.findings)
    out += fmt::format("found: {}\n", finding.sentence);
  return out;
}

std::string Text(const Examination& e, const VerifyArgs& args, size_t i) {
  std::string out = e.audit ? AuditLines(*e.audit) : "";
  for (const std::string& sentence : e.changed) out += fmt::format("found: {}\n", sentence);
  if (!out.empty()) out += '\n';
  out += VerificationText(e.verification, args.verbose);
  if (e.diagnosis)
    out += fmt::format("\nwhy{}\n{}", e.base.empty() ? "" : fmt::format(", {}", e.base),
                       DiagnosisText(*e.diagnosis, args.reference, args.Candidate(i), e.base));
  return out;
}

Json ToJson(const Examination& e) {
  Json json = lockstep::ToJson(e.verification);
  if (!e.base.empty()) json["base"] = e.base;
  if (e.own_codes) json["own_codes"] = lockstep::ToJson(*e.own_codes);
  if (!e.changed.empty()) json["changed_files"] = e.changed;
  if (e.audit) json["audit"] = AuditJson(*e.audit);
  if (e.diagnosis) json["diagnosis"] = lockstep::ToJson(*e.diagnosis);
  return json;
}

int Run(const VerifyArgs& args) {
  Result<Answers> answers = Work(args);
  if (!answers && !IsVerdict(answers.error())) return Report(answers.error(), args.json);
  const Status written = WriteReports(
      args,
      answers ? answers->examinations
              : std::vector{Examination{.verification = FailedVerification(
                                            args.reference, args.Candidate(0), answers.error())}});
  if (!answers) return Report(answers.error(), args.json);
  const std::vector<Examination>& done = answers->examinations;
  if (args.json) {
    Json list = Json::array();
    for (const Examination& e : done) list.push_back(ToJson(e));
    if (answers->power) list.front()["power"] = lockstep::ToJson(*answers->power);
    PrintJson(list.size() == 1 ? list.front() : list);
  } else {
    for (size_t i = 0; i < done.size(); ++i)
      Print(Text(done[i], args, i) + (done.size() > 1 ? "\n" : ""));
    if (done.size() > 1) Print(Summary(done));
    if (answers->power) Print("\npower\n" + PowerText(*answers->power));
  }
  if (!written) return Report(written.error(), false);
  ExitCode worst = kExitYes;
  for (const Examination& e : done) worst = std::max(worst, ExitCodeOf(e));
  return worst;
}

}  // namespace

void AddVerifyVerb(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("verify", "Is the candidate the same model as the reference?");
  auto args = std::make_shared<VerifyArgs>();
  verb->add_option("REFERENCE", args->reference,
                   "What is right: a Hugging Face folder or a GGUF file, run by the reference\n"
                   "(engine:PATH: by the engine); an exported decoder (a GenAI folder or a\n"
                   "model.onnx), run by ONNX Runtime (onnx:PATH where the folder holds both);\n"
                   "genai:FOLDER (ONNX Runtime GenAI); a recorded trace; cmd:COMMAND LINE (a\n"
                   "program, docs/formats/probe.md); or http://HOST/v1 (a server with OpenAI's\n"
                   "API; LOCKSTEP_API_KEY is its key)")
      ->required()
      ->type_name("");
  verb->add_option(
          "CANDIDATE", args->candidates,
          "What is asked about, one or several: likewise. None: the reference is a folder\n"
          "that lockstep export wrote, and is compared with the record in its lockstep.json")
      ->type_name("");
  args->prompts.AddTo(*verb);
  AddLongest(*verb, args->longest);
  verb->add_option("--steps", args->steps, "Greedy tokens to compare after each prompt")
      ->check(WholeNumber(0, 100000))
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--edit-reference", args->edit,
                   "Edit the reference first: a candidate that then matches has this fault")
      ->type_name("EDIT");
  verb->add_option("--diagnose", args->seconds,
                   "Where the two differ, look for the cause for so long; 0: do not")
      ->check(RealNumber(0, 1e6))
      ->type_name("SECONDS")
      ->capture_default_str();
  verb->add_option("--timeout", args->timeout,
                   "How long a program, a server or ONNX Runtime may take for one answer")
      ->check(WholeNumber(1, 7 * 24 * 3600))
      ->type_name("SECONDS")
      ->capture_default_str();
  verb->add_option("--junit", args->junit, "Also write the verdicts as JUnit XML")
      ->type_name("FILE");
  verb->add_option("--report", args->html, "Also write a page with plots, all in one file")
      ->type_name("FILE.html");
  args->engine.AddTo(*verb);
  verb->add_flag("--power", args->power,
                 "Also which known faults these prompts could have shown (lockstep power)");
  verb->add_flag("-v,--verbose", args->verbose, "Also a table of every step");
  verb->add_flag("--json", args->json,
                 "The verdict and all numbers as JSON; of several candidates a list");
  verb->footer(
      "Both run by themselves, greedily and without penalties; their logits are compared while "
      "they\n"
      "choose the same tokens. The tolerance is a multiple of the rounding noise, measured on "
      "each\n"
      "prompt. A recorded trace brings its own prompts. The engine rounds more, unless\n"
      "--activations fp32 --kv fp32: what is beyond the tolerance and within what that rounding "
      "does\n"
      "to the reference, measured too, is the verdict \"precision\" or \"quantized activations\".\n"
      "Of an ONNX model or a checkpoint the weights, constants and configuration are compared as\n"
      "well; where quantized weights explain a difference, the verdict says so, and where nothing\n"
      "of the kind does, the cause is looked for (lockstep diagnose).\n"
      "One or two prompts are also put to the candidate by other ways, where it can take them: in\n"
      "parts, cut back after other tokens, in turn with another sequence, padded in a batch\n"
      "(\"passages\" of --json; a difference by one of them alone differs).\n"
      "Exit codes: 0 match, precision, quantized weights or activations; 1 differs or different "
      "tokens; "
      "2 wrong\n"
      "usage; 3 a side is unusable, or the two have nothing in common to compare; of several\n"
      "candidates the highest.\n\n"
      "Example: lockstep verify smollm2.gguf smollm2-trace.safetensors");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep
