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
    if (known.part != part.part || known.types != part.types || known.packed != part.packed)
      continue;
    known.count += part.count;
    known.elements += part.elements;
    known.bytes += part.bytes;
    return;
  }
  parts.push_back(std::move(part));
}

// Of a layer's experts, those that one token reads.
double ExpertShare(const ModelSpec& spec) {
  double chosen = 0, all = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.mlp)) {
      chosen += static_cast<double>(moe->num_experts_per_tok);
      all += static_cast<double>(moe->num_experts);
    }
  }
  return all > 0 ? chosen / all : 1;
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
  const double expert_share = ExpertShare(*plan.spec);
  ForEachProjection(plan, [&](std::string_view name, const Projection& projection) {
    const PackedGroup& group = projection.group;
    PlanPart part{.part = std::string(name),
                  .count = 1,
                  .bytes = static_cast<int64_t>(group.size),
                  .share = name.starts_with("expert ") ? expert_share : 1};
    std::vector<std::string> types, packed, read_with;
    for (size_t i = 0; i < group.matrices.size(); ++i) {
      const PackedMatrix& m = group.matrices[i];
      types.emplace_back(group.views[i]->type->name);
      packed.emplace_back(InfoOf(m.kind).name);
      const InputForm form = FormFor(activations, m.kind);
      read_with.emplace_back(form == InputForm::kInt8   ? "int8"
                             : form == InputForm::kBF16 ? "bf16"
                                                        : "fp32");
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
