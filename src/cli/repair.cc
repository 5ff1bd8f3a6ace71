// lockstep repair: a copy of an exported folder with what the audit found mended.
#include "audit/repair.h"

#include <memory>

#include "base/quoted.h"
#include "cli/audit_text.h"
#include "cli/terminal.h"
#include "cli/verb.h"

namespace lockstep {
namespace {

struct RepairArgs {
  std::string folder, reference, out;
  bool in_place = false, json = false;
};

struct Repaired {
  RepairPlan plan;
  std::string where;
  AuditReport after;
};

Result<Repaired> Work(const RepairArgs& args) {
  if (args.out.empty() != args.in_place)
    return UsageError("lockstep repair: say either --out NEW or --in-place");
  LS_TRY(const AuditedPair pair, AuditPaths(args.reference, args.folder));
  if (!pair.onnx)
    return UsageError("{}: only an ONNX folder can be repaired; convert a checkpoint again",
                      Quoted(args.folder));
  Repaired out;
  LS_TRY(out.plan, PlanRepair(*pair.onnx, pair.report));
  out.where = args.in_place ? args.folder : args.out;
  if (out.plan.empty()) {
    out.after = pair.report;
    return out;
  }
  LS_RETURN_IF_ERROR(args.in_place ? RepairInPlace(*pair.onnx, out.plan)
                                   : WriteRepair(*pair.onnx, out.plan, args.out));
  const std::filesystem::path model =
      args.in_place ? pair.onnx->path()
                    : std::filesystem::path(args.out) / pair.onnx->path().filename();
  LS_TRY(const OnnxModel mended, OnnxModel::Open(model));
  LS_TRY(out.after, Audit(pair.reference, mended));
  return out;
}

std::string Text(const Repaired& repaired) {
  std::string out;
  if (repaired.plan.empty())
    out += "nothing to mend\n";
  else
    out += fmt::format("written: {}\n", repaired.where);
  if (!repaired.plan.changes.empty()) out += "\nmended\n";
  for (const std::string& change : repaired.plan.changes) out += fmt::format("  {}\n", change);
  if (!repaired.plan.left.empty()) out += "\nleft as it is\n";
  for (const std::string& left : repaired.plan.left) out += fmt::format("  {}\n", left);
  out += "\naudited again\n" + AuditText(repaired.after, false);
  return out;
}

int Run(const RepairArgs& args) {
  const Result<Repaired> repaired = Work(args);
  if (!repaired) return Report(repaired.error(), args.json);
  if (args.json) {
    Json json = Json::object();
    json["written"] = repaired->plan.empty() ? Json(nullptr) : Json(repaired->where);
    json["mended"] = repaired->plan.changes;
    json["left"] = repaired->plan.left;
    json["after"] = AuditJson(repaired->after);
    PrintJson(json);
  } else {
    Print(Text(*repaired));
  }
  return repaired->after.healthy() ? kExitYes : kExitNo;
}

}  // namespace

void AddRepairVerb(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("repair", "Mend an exported ONNX folder by the checkpoint it was made of");
  auto args = std::make_shared<RepairArgs>();
  verb->add_option("FOLDER", args->folder, "The folder with the ONNX model")
      ->required()
      ->type_name("");
  verb->add_option("--reference", args->reference,
                   "The checkpoint: a Hugging Face folder or a GGUF file")
      ->required()
      ->type_name("PATH");
  verb->add_option("--out", args->out, "The new folder; it must not exist")->type_name("NEW");
  verb->add_flag("--in-place", args->in_place, "Write over FOLDER instead");
  verb->add_flag("--json", args->json, "What was done as JSON");
  verb->footer(
      "Everything that nothing was found about stays byte-identical. The new folder is audited "
      "again.\n"
      "Exit codes: 0 nothing but quantization is left; 1 something is left that must be exported\n"
      "again; 2 wrong usage; 3 a file cannot be used.\n\n"
      "Example: lockstep repair gemma-onnx --reference gemma-3-270m --out gemma-onnx-fixed");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep
