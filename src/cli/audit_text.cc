#include "cli/audit_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "cli/table.h"
#include "subjects/open_subject.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::map<WeightState, int64_t> Count(const AuditReport& report) {
  std::map<WeightState, int64_t> counts;
  for (const auto& [id, result] : report.weights) ++counts[result.state];
  return counts;
}

// What was compared, and what was not: a place that is not known is no number that is right.
std::string NothingFound(const AuditReport& report) {
  auto counts = Count(report);
  const int64_t lost = counts[WeightState::kNotFound];
  const auto all = static_cast<int64_t>(report.weights.size());
  std::string text =
      fmt::format("nothing found: {} of {} weights were compared and are right", all - lost, all);
  if (lost > 0)
    text += fmt::format("; {} were not compared: where the graph keeps them is not known", lost);
  if (report.strangers > 0)
    text += fmt::format("; {} operators were not understood, and what they do was not compared",
                        report.strangers);
  if (!report.notes.empty())
    text += fmt::format("; {} below", report.notes.size() == 1
                                          ? "one note"
                                          : fmt::format("{} notes", report.notes.size()));
  return text;
}

}  // namespace

Result<AuditedPair> AuditPaths(const fs::path& reference, const fs::path& candidate) {
  AuditedPair pair;
  LS_TRY(pair.reference, LoadModel(reference));
  if (HoldsOnnx(candidate)) {
    LS_TRY(pair.onnx, OnnxModel::Open(candidate));
    LS_TRY(pair.report, Audit(pair.reference, *pair.onnx));
  } else {
    LS_TRY(pair.checkpoint, LoadModel(candidate));
    LS_TRY(pair.report, Audit(pair.reference, *pair.checkpoint));
  }
  return pair;
}

std::string AuditText(const AuditReport& report, bool verbose) {
  std::string out = fmt::format("weights: {}", report.weights.size());
  for (const auto& [state, n] : Count(report))
    out += fmt::format(", {} {}", n, WeightStateName(state));
  out += '\n';
  size_t number = 0;
  for (const Finding& finding : report.findings) {
    out +=
        fmt::format("\n{}. [{}] {}\n", ++number, FindingKindName(finding.kind), finding.sentence);
    if (finding.edit) out += fmt::format("   as an edit: {}\n", ToString(*finding.edit));
    out += finding.repairable()     ? "   repair: can be mended in the folder\n"
           : finding.how_to.empty() ? ""
                                    : fmt::format("   repair: {}\n", finding.how_to);
  }
  if (report.findings.empty()) out += "\n" + NothingFound(report) + "\n";
  if (!report.not_compared.empty())
    out += fmt::format("\nnot compared: {}\n", fmt::join(report.not_compared, "; "));
  if (verbose) {
    using enum Table::Align;
    Table table({"weight", "is", "max |Δ|", "correlation"}, {kLeft, kLeft, kRight, kRight});
    for (const auto& [id, result] : report.weights)
      table.Add({ToString(id), std::string(WeightStateName(result.state)),
                 Scientific(result.max_abs), fmt::format("{:.6f}", result.correlation)});
    out += "\n" + table.Text();
  }
  return out;
}

Json AuditJson(const AuditReport& report) {
  Json out = Json::object();
  out["healthy"] = report.healthy();
  Json counts = Json::object();
  for (const auto& [state, n] : Count(report)) counts[std::string(WeightStateName(state))] = n;
  out["weights"] = std::move(counts);
  Json findings = Json::array();
  for (const Finding& finding : report.findings) {
    Json one = Json::object();
    one["kind"] = FindingKindName(finding.kind);
    one["where"] = finding.where;
    one["expected"] = finding.expected;
    one["found"] = finding.found;
    one["sentence"] = finding.sentence;
    one["edit"] = finding.edit ? Json(ToString(*finding.edit)) : Json(nullptr);
    one["repairable"] = finding.repairable();
    one["how_to"] = finding.how_to;
    findings.push_back(std::move(one));
  }
  out["findings"] = std::move(findings);
  out["notes"] = report.notes;
  out["not_compared"] = report.not_compared;
  return out;
}

}  // namespace lockstep
