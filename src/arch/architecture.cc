#include "arch/architecture.h"

#include <algorithm>

namespace lockstep {
namespace {

// Family objects register themselves before main, in no particular order: hence a function-local
// static, which exists when the first of them arrives.
struct Registry {
  std::vector<const HfArchitecture*> hf;
  std::vector<const GgufArchitecture*> gguf;
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

}  // namespace

ArchitectureFamily::ArchitectureFamily(std::span<const HfArchitecture> hf,
                                       std::span<const GgufArchitecture> gguf) {
  for (const HfArchitecture& row : hf) {
    LS_CHECK(FindHfArchitecture(row.model_type) == nullptr, "model_type {} has two rows",
             row.model_type);
    TheRegistry().hf.push_back(&row);
  }
  for (const GgufArchitecture& row : gguf) {
    LS_CHECK(FindGgufArchitecture(row.architecture) == nullptr,
             "general.architecture {} has two rows", row.architecture);
    TheRegistry().gguf.push_back(&row);
  }
}

const HfArchitecture* FindHfArchitecture(std::string_view model_type) {
  for (const HfArchitecture* row : TheRegistry().hf)
    if (row->model_type == model_type) return row;
  return nullptr;
}

const GgufArchitecture* FindGgufArchitecture(std::string_view architecture) {
  for (const GgufArchitecture* row : TheRegistry().gguf)
    if (row->architecture == architecture) return row;
  return nullptr;
}

std::vector<const HfArchitecture*> HfArchitecturesOf(std::string_view gguf) {
  std::vector<const HfArchitecture*> rows;
  for (const HfArchitecture* row : TheRegistry().hf)
    if (row->gguf == gguf) rows.push_back(row);
  std::sort(rows.begin(), rows.end(), [](const HfArchitecture* a, const HfArchitecture* b) {
    return a->model_type < b->model_type;
  });
  return rows;
}

std::vector<std::string> KnownHfArchitectures() {
  std::vector<std::string> names;
  for (const HfArchitecture* row : TheRegistry().hf) names.emplace_back(row->model_type);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> KnownGgufArchitectures() {
  std::vector<std::string> names;
  for (const GgufArchitecture* row : TheRegistry().gguf) names.emplace_back(row->architecture);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace lockstep
