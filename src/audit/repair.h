// Repair: a copy of a candidate's folder with every finding mended that its graph and its files
// have a place for. What no finding concerns stays byte-identical (formats/onnx_write.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "audit/audit.h"

namespace lockstep {

struct RepairPlan {
  OnnxPatch patch;
  std::map<std::string, std::string> texts;  // file -> new content
  std::vector<std::string> changes;          // a sentence for each finding that is mended
  std::vector<std::string> left;             // a sentence for each that is not, and what to do

  bool empty() const;
};

// Patches of several findings that meet in one tensor become one where each changes numbers of its
// own. Where two want different numbers in one place, the second is left, and said to be.
Result<RepairPlan> PlanRepair(const OnnxModel& candidate, const AuditReport& report);

// Writes the mended folder, whole or not at all. `out` must not exist.
Status WriteRepair(const OnnxModel& candidate, const RepairPlan& plan,
                   const std::filesystem::path& out);

// The same in the candidate's place: every new file is complete before the first takes the place of
// its old self.
Status RepairInPlace(const OnnxModel& candidate, const RepairPlan& plan);

}  // namespace lockstep
