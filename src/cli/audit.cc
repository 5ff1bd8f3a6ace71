// lockstep audit: what can be told about a candidate without running it.
#include <memory>

#include "cli/audit_text.h"
#include "cli/terminal.h"
#include "cli/verb.h"

namespace lockstep {
namespace {

struct AuditArgs {
  std::string reference, candidate;
  bool json = false, verbose = false;
};

int Run(const AuditArgs& args) {
  const auto pair = AuditPaths(args.reference, args.candidate);
  if (!pair) return Report(pair.error(), args.json);
  if (args.json) {
    PrintJson(AuditJson(pair->report));
  } else {
    Print(fmt::format("reference  {}\ncandidate  {}\n\n{}", args.reference, args.candidate,
                      AuditText(pair->report, args.verbose)));
    PrintNotes(pair->report.notes);
  }
  return pair->report.healthy() ? kExitYes : kExitNo;
}

}  // namespace

void AddAuditVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "audit", "Compare a candidate's weights, constants and configuration, without running it");
  auto args = std::make_shared<AuditArgs>();
  verb->add_option("REFERENCE", args->reference,
                   "What is right: a Hugging Face folder or a GGUF file")
      ->required()
      ->type_name("");
  verb->add_option("CANDIDATE", args->candidate,
                   "What is asked about: an ONNX file, a folder with one, or a checkpoint")
      ->required()
      ->type_name("");
  verb->add_flag("-v,--verbose", args->verbose, "Also a table of every weight");
  verb->add_flag("--json", args->json, "The findings as JSON");
  verb->footer(
      "Exit codes: 0 nothing but quantization was found; 1 something is wrong; 2 wrong usage; 3 a\n"
      "file cannot be used.\n\n"
      "Example: lockstep audit gemma-3-270m gemma-3-270m-onnx");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep
