// The program: parses the command line and runs one verb.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>

#include "base/map_guard.h"
#include "base/nearest.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "formats/describe.h"

namespace lockstep {
namespace {

// What CLI11 found wrong, as one sentence with a way on.
std::string UsageSentence(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  const std::string verb = chosen.empty() ? "" : chosen.front()->get_name();
  const std::string program = verb.empty() ? "lockstep" : "lockstep " + verb;
  const std::string help = fmt::format("`{} --help` shows how to use it", program);
  const auto extras = chosen.empty() ? app.remaining() : chosen.front()->remaining();
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  // A misspelt verb is reported as a missing one.
  if (!extras.empty() && (code == CLI::ExitCodes::ExtrasError || verb.empty())) {
    // CLI11 may give an unknown option's value first.
    const auto option = std::find_if(extras.begin(), extras.end(),
                                     [](const std::string& x) { return x.starts_with("-"); });
    const std::string& extra = option != extras.end() ? *option : extras.front();
    std::vector<std::string> known;
    if (verb.empty() && !extra.starts_with("-")) {
      for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
        known.push_back(sub->get_name());
    } else {
      for (const CLI::Option* one : (chosen.empty() ? &app : chosen.front())->get_options())
        for (const std::string& name : one->get_lnames()) known.push_back("--" + name);
    }
    const std::string nearest = NearestName(extra, known);
    return fmt::format("{}: does not know {}{}; {}", program, Quoted(extra),
                       nearest.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", nearest),
                       help);
  }
  if (verb.empty()) return fmt::format("lockstep: which verb? {}", help);
  std::string what = error.what();
  while (what.ends_with('.') || what.ends_with('\n')) what.pop_back();
  return fmt::format("{}: {}; {}", program, what, help);
}

int Main(int argc, char** argv) {
  OpenStandardStreams();
  CLI::App app{
      "Lockstep runs language models and proves that what runs elsewhere is the same model."};
  app.name("lockstep");
  app.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION);
  app.set_help_flag("-h,--help", "This text");
  app.require_subcommand(1);
  app.footer(
      "Every verb has a --help of its own. Exit codes: 0 done, or yes; 1 the answer is no; 2 the\n"
      "command line makes no sense; 3 a file or a model cannot be used; 130 Ctrl-C.\n\n"
      "Example: lockstep run smollm2.gguf -p \"Why is the sky blue?\"");
  Action action;
  for (const auto add : {AddInspectVerb, AddRunVerb, AddChatVerb, AddTokenizeVerb, AddTraceVerb,
                         AddVerifyVerb, AddDiagnoseVerb, AddPowerVerb, AddAuditVerb, AddRepairVerb,
                         AddExportVerb, AddBenchVerb, AddPerplexityVerb, AddQuantizeVerb})
    add(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are reported this way as well.
    if (error.get_exit_code() == 0) {
      const auto chosen = app.get_subcommands();
      const bool help = error.get_name() == "CallForHelp";
      std::string text = !help            ? app.version()
                         : chosen.empty() ? app.help()
                                          : chosen.front()->help("lockstep");
      if (!text.ends_with('\n')) text += '\n';
      Print(text);
      return kExitYes;
    }
    if (argc == 1) {
      PrintError(app.help());
      return kExitUsage;
    }
    PrintError(UsageSentence(app, error) + "\n");
    return kExitUsage;
  }
  return action();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` is then an error like others
  lockstep::ExitWhenAMappedFileFails(lockstep::kExitUnusable);
  try {
    return lockstep::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("lockstep: out of memory\n", stderr);
    return lockstep::kExitUnusable;
  }
}
