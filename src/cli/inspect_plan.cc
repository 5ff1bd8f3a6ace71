#include "cli/inspect_plan.h"

#include <algorithm>

#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "engine/describe_plan.h"
#include "engine/kernels/kernel_table.h"
#include "model/model.h"

namespace lockstep {
namespace {

double BitsOf(const PlanPart& part) {
  return 8 * static_cast<double>(part.bytes) / static_cast<double>(part.elements);
}

// Of one input: the head's second row holds what the codes of the first left over (walk.cc).
int CodeRows(const PlanPart& part) {
  if (part.read_with != Name(Activations::kInt8)) return 0;
  return part.part == "head" ? 2 : 1;
}

Result<int> Work(const std::string& path, const std::string& activations, bool json) {
  LS_TRY(const KernelTable* kernels, FindKernels());
  LS_TRY(const Model model, LoadModel(path));
  const ExecutionPlan plan = PlanLayout(model.spec, model.weights);
  const Activations precision = *ActivationsNamed(activations);
  const std::vector<PlanPart> parts = PlanParts(plan, precision);
  const std::string_view kv = Name(ChooseKvType(plan, precision));
  double step = 0;
  int64_t packed = 0;
  for (const PlanPart& part : parts) {
    step += part.share * static_cast<double>(part.bytes);
    if (part.packed != "as stored") packed += part.bytes;
  }
  const std::optional<std::filesystem::path> folder = PackCacheFolder();
  if (json) {
    Json list = Json::array();
    for (const PlanPart& part : parts)
      list.push_back({{"part", part.part},
                      {"count", part.count},
                      {"types", part.types},
                      {"packed", part.packed},
                      {"bits", BitsOf(part)},
                      {"elements", part.elements},
                      {"bytes", part.bytes},
                      {"read_with", part.read_with},
                      {"code_rows", CodeRows(part)}});
    PrintJson({{"path", path},
               {"kernels", {{"name", kernels->name}, {"description", kernels->description}}},
               {"activations", activations},
               {"kv", kv},
               {"parts", std::move(list)},
               {"packed_bytes", packed},
               {"decode_bytes", step},
               {"cache", folder ? Json(folder->string()) : Json()}});
    return kExitYes;
  }
  const std::string kept = !folder ? "not kept (LOCKSTEP_CACHE is off)"
                           : static_cast<size_t>(packed) < PackCache::kLeastBytes
                               ? "not kept: there are too few"
                               : "kept in " + folder->string();
  using enum Table::Align;
  Table table({"part", "", "stored", "packed", "bits", "bytes", "read with"},
              {kLeft, kRight, kLeft, kLeft, kRight, kRight, kLeft});
  for (const PlanPart& part : parts)
    table.Add({part.part, fmt::format("{} x", WithCommas(part.count)), part.types, part.packed,
               fmt::format("{:.2f}", BitsOf(part)), WithCommas(part.bytes), part.read_with});
  const bool twice = std::ranges::any_of(parts, [](const auto& p) { return CodeRows(p) == 2; });
  Print(
      fmt::format("{}\n  kernels: {} ({})\n\n{}\n  {} packed; one token's step reads {} of "
                  "weights\n{}  keys and values are kept as {} unless run --kv says otherwise\n"
                  "  packed weights are {}\n",
                  path, kernels->name, kernels->description, table.Text(2),
                  HumanBytes(static_cast<double>(packed)), HumanBytes(step),
                  twice ? "  the head reads two rows of codes, the second holding what the first "
                          "left over\n"
                        : "",
                  kv, kept));
  return kExitYes;
}

}  // namespace

int InspectPlan(const std::string& path, const std::string& activations, bool json) {
  const Result<int> code = Work(path, activations, json);
  return code ? *code : Report(code.error(), json);
}

}  // namespace lockstep
