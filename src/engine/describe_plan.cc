#include "engine/describe_plan.h"

#include <algorithm>
#include <cstdlib>

#include "engine/kernels/kernel_table.h"

namespace lockstep {
namespace {

// "a" when all are a, else "a, b, a".
std::string Joined(const std::vector<std::string>& names) {
  if (std::adjacent_find(names.begin(), names.end(), std::not_equal_to<>()) == names.end())
    return names.front();
  return fmt::format("{}", fmt::join(names, ", "));
}

void Add(std::vector<PlanPart>& parts, PlanPart part) {
  for (PlanPart& known : parts) {
    if (known.part != part.part || known.types != part.types || known.packed != part.packed ||
        known.share != part.share)
      continue;
    known.count += part.count;
    known.elements += part.elements;
    known.bytes += part.bytes;
    return;
  }
  parts.push_back(std::move(part));
}

PlanPart RowByRow(std::string name, const WeightView& view) {
  const int64_t bytes = view.elements() / view.type->block_elements * view.type->block_bytes;
  return {.part = std::move(name),
          .types = std::string(view.type->name),
          .packed = "as stored",
          .read_with = "",
          .count = 1,
          .elements = view.elements(),
          .bytes = bytes,
          .share = 1 / static_cast<double>(view.rows)};
}

}  // namespace

std::vector<PlanPart> PlanParts(const ExecutionPlan& plan, Activations activations) {
  std::vector<PlanPart> parts;
  parts.push_back(RowByRow("embedding", *plan.embedding));
  if (plan.positions != nullptr) parts.push_back(RowByRow("positions", *plan.positions));
  ForEachProjection(plan, [&](std::string_view name, const Projection& projection, double share) {
    const PackedGroup& group = projection.group;
    PlanPart part{.part = std::string(name),
                  .count = 1,
                  .bytes = static_cast<int64_t>(group.size),
                  .share = share};
    std::vector<std::string> types, packed, read_with;
    for (size_t i = 0; i < group.matrices.size(); ++i) {
      const PackedMatrix& m = group.matrices[i];
      types.emplace_back(group.views[i]->type->name);
      packed.emplace_back(InfoOf(m.kind).name);
      read_with.emplace_back(Name(FormFor(activations, m.kind)));
      part.elements += m.rows * m.cols;
    }
    part.types = Joined(types);
    part.packed = Joined(packed);
    part.read_with = Joined(read_with);
    Add(parts, std::move(part));
  });
  return parts;
}

}  // namespace lockstep
