// BitBudget: which matrix gets how many bits, by what its codes do to the output: each group of
// matrices is coded alone, and the KL of the logits on a text is measured. Effects are small and
// nearly add up, so that the best choice for every size follows from them: along the convex hull of
// each group's sizes and effects, always the step that gains the most KL per byte. Read by
// `lockstep quantize`, which measures the sum again; handed to the exporter as a CodePlan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "export/export.h"
#include "model/model.h"

namespace lockstep {

// One way of coding a group.
struct GroupOption {
  CodeChoice choice;
  double bytes = 0;
  double error = 0;       // of the weights: root of the squared error over their squares
  double effect = 0;      // KL of the output in nats
  bool measured = false;  // or follows from a measured option by the squares of the errors
};

// Matrices that one operator may hold, and share their bits.
struct BitGroup {
  std::string name;  // "layers.3.qkv"
  std::vector<WeightId> weights;
  int64_t elements = 0;
  std::vector<GroupOption> options;  // bytes ascend
  size_t chosen = 0;
};

struct FrontierPoint {
  double bytes = 0, effect = 0;  // of all groups; the sum of their effects
  size_t group = 0, option = 0;  // what was raised to get there (of the first: nothing)
};

// From all groups at their smallest to all at their largest: bytes ascend, effects fall.
std::vector<FrontierPoint> FrontierOf(const std::vector<BitGroup>& groups);
// Sets `chosen` as at frontier[0 .. last].
void ChooseAt(std::vector<BitGroup>& groups, const std::vector<FrontierPoint>& frontier,
              size_t last);

struct BitTarget {
  std::optional<double> bits_per_weight, kl;
};
struct BitBudget {
  std::vector<BitGroup> groups;
  std::vector<FrontierPoint> frontier;
  size_t point = 0;      // of the frontier, that was chosen
  double measured = 0;   // KL of all chosen codes together
  int64_t elements = 0;  // of all groups
  int64_t tokens = 0;    // of the text
  double BitsPerWeight(const FrontierPoint& point) const {
    return 8 * point.bytes / static_cast<double>(elements);
  }
  CodePlan Plan(const Model& model) const;
};

// "4.25bpw" or "4.25": bits per weight, from 2 to 16.
Result<double> ParseBudget(std::string_view text);

// A target that no choice reaches is an error that names the nearest.
Result<BitBudget> MeasureBitBudget(const Model& model, const BitTarget& target,
                                   std::span<const int32_t> ids, ThreadPool& pool,
                                   const ExportProgress& progress);

std::string BitBudgetText(const BitBudget& budget);
Json ToJson(const BitBudget& budget);
// A page that needs nothing else; the plot alone.
std::string BitBudgetHtml(const BitBudget& budget, std::string_view model);
std::string FrontierSvg(const BitBudget& budget, bool alone);

}  // namespace lockstep
