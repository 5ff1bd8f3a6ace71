// Verb: one subcommand of the program. A verb file adds its options to the app and, when the user
// chose it, leaves the work to do in `action`; main.cc runs it. Parsing touches no file.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep {

using Action = std::function<int()>;  // returns an ExitCode

void AddInspectVerb(CLI::App& app, Action& action);
void AddRunVerb(CLI::App& app, Action& action);
void AddChatVerb(CLI::App& app, Action& action);
void AddTokenizeVerb(CLI::App& app, Action& action);
void AddTraceVerb(CLI::App& app, Action& action);
void AddVerifyVerb(CLI::App& app, Action& action);
void AddDiagnoseVerb(CLI::App& app, Action& action);
void AddPowerVerb(CLI::App& app, Action& action);
void AddAuditVerb(CLI::App& app, Action& action);
void AddRepairVerb(CLI::App& app, Action& action);
void AddExportVerb(CLI::App& app, Action& action);
void AddBenchVerb(CLI::App& app, Action& action);
void AddPerplexityVerb(CLI::App& app, Action& action);
void AddQuantizeVerb(CLI::App& app, Action& action);

}  // namespace lockstep
