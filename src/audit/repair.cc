#include "audit/repair.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/mapped_file.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Bytes that a patch changes take the place of the merged ones.
void Overlay(const OnnxTensor& original, const OnnxPatch::Tensor& from, OnnxPatch::Tensor& to) {
  const size_t n = std::min({original.bytes.size(), from.bytes.size(), to.bytes.size()});
  for (size_t i = 0; i < n; ++i)
    if (from.bytes[i] != original.bytes[i]) to.bytes[i] = from.bytes[i];
}

Status AddPatch(const OnnxModel& model, const OnnxPatch& from, OnnxPatch& to) {
  for (const OnnxPatch::Tensor& tensor : from.tensors) {
    const OnnxTensor* original = model.Tensor(tensor.name);
    if (original == nullptr)
      return InputError("{}: no tensor is called {}", model.path().string(), Quoted(tensor.name));
    const auto at = std::find_if(to.tensors.begin(), to.tensors.end(),
                                 [&](const auto& t) { return t.name == tensor.name; });
    if (at == to.tensors.end())
      to.tensors.push_back(tensor);
    else if (!tensor.dims)
      Overlay(*original, tensor, *at);
  }
  for (const OnnxPatch::Attribute& attribute : from.attributes) {
    std::erase_if(to.attributes, [&](const auto& a) {
      return a.node == attribute.node && a.name == attribute.name;
    });
    to.attributes.push_back(attribute);
  }
  const auto names = [](const std::vector<OnnxPatch::Name>& some,
                        std::vector<OnnxPatch::Name>& all) {
    for (const OnnxPatch::Name& name : some)
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  };
  names(from.inputs, to.inputs);
  names(from.results, to.results);
  for (const OnnxPatch::Node& node : from.nodes) {
    const auto at = std::find_if(to.nodes.begin(), to.nodes.end(),
                                 [&](const auto& n) { return n.outputs == node.outputs; });
    if (at == to.nodes.end()) {
      to.nodes.push_back(node);
    } else if (at->value && node.value && at->value->bytes.size() == node.value->bytes.size()) {
      // Parts of one fused bias: each is zero where the others are not.
      for (size_t i = 0; i < node.value->bytes.size(); ++i)
        at->value->bytes[i] |= node.value->bytes[i];
    }
  }
  return {};
}

Status SetJson(Json& json, const ConfigPatch& patch) {
  const Json::json_pointer at(patch.pointer);
  const Json::json_pointer parent = at.parent_pointer();
  if (!patch.value.is_null() && json.is_object() && !json.contains(parent))
    json[parent] = Json::object();
  if (!json.contains(parent) || !json.at(parent).is_object())
    return InputError("{}: expected an object at {}", patch.file, parent.to_string());
  if (patch.value.is_null())
    json.at(parent).erase(at.back());
  else
    json.at(parent)[at.back()] = patch.value;
  return {};
}

}  // namespace

bool RepairPlan::empty() const { return changes.empty(); }

Result<RepairPlan> PlanRepair(const OnnxModel& candidate, const AuditReport& report) {
  RepairPlan plan;
  std::map<std::string, Json> files;
  for (const Finding& finding : report.findings) {
    if (finding.kind == FindingKind::kQuantized) continue;
    if (!finding.repairable()) {
      plan.left.push_back(fmt::format("{} ({})", finding.sentence,
                                      finding.how_to.empty() ? "export again" : finding.how_to));
      continue;
    }
    LS_RETURN_IF_ERROR(AddPatch(candidate, finding.patch, plan.patch));
    for (const ConfigPatch& patch : finding.config) {
      auto at = files.find(patch.file);
      if (at == files.end()) {
        const fs::path path = candidate.folder() / patch.file;
        LS_TRY(const std::string text, ReadTextFile(path));
        LS_TRY(Json json, ParseJson(text, path.string()));
        at = files.emplace(patch.file, std::move(json)).first;
      }
      LS_RETURN_IF_ERROR(SetJson(at->second, patch));
    }
    plan.changes.push_back(finding.sentence);
  }
  for (const auto& [file, json] : files)
    plan.texts[file] = json.dump(4, ' ', false, Json::error_handler_t::replace) + "\n";
  return plan;
}

Status WriteRepair(const OnnxModel& candidate, const RepairPlan& plan, const fs::path& out) {
  return WriteOnnx(candidate, plan.patch, out, plan.texts);
}

Status RepairInPlace(const OnnxModel& candidate, const RepairPlan& plan) {
  std::error_code error;
  const fs::path folder = fs::canonical(candidate.folder(), error);
  if (error)
    return InputError("{}: cannot be found: {}", candidate.folder().string(), error.message());
  const fs::path fresh = folder / fmt::format(".repaired.{}", getpid());
  LS_RETURN_IF_ERROR(WriteRepair(candidate, plan, fresh));
  // A model that does not open takes nobody's place.
  if (const auto opened = OnnxModel::Open(fresh / candidate.path().filename()); !opened) {
    std::error_code ignored;
    fs::remove_all(fresh, ignored);
    return tl::unexpected(opened.error());
  }
  // Complete; now each file takes the place of its old self. Data before the model that reads them.
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(fresh, error), end; it != end && !error;
       it.increment(error))
    if (it->is_regular_file(error)) files.push_back(it->path().lexically_relative(fresh));
  const fs::path model = candidate.path().filename();
  std::stable_partition(files.begin(), files.end(), [&](const fs::path& f) { return f != model; });
  for (const fs::path& file : files) {
    if (error) break;
    fs::rename(fresh / file, folder / file, error);
  }
  std::error_code ignored;
  fs::remove_all(fresh, ignored);
  if (error)
    return InputError("{}: a file cannot be replaced: {}", folder.string(), error.message());
  return {};
}

}  // namespace lockstep
