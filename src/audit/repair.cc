#include "audit/repair.h"

#include <fmt/format.h>

#include <algorithm>

#include "audit/merge_patch.h"
#include "base/mapped_file.h"
#include "base/quoted.h"
#include "base/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// What goes into a file: each key that is there is an object on the way to the last.
Status SetJson(Json& json, const ConfigPatch& patch) {
  Json* at = &json;
  Json::json_pointer pointer(patch.pointer);
  if (pointer.empty()) return InputError("{}: expected a key, found none", patch.file);
  std::vector<std::string> keys;
  for (; !pointer.empty(); pointer.pop_back()) keys.insert(keys.begin(), pointer.back());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!at->is_object())
      return InputError("{}: expected an object before {} of {}, found {}", patch.file,
                        Quoted(keys[i]), patch.pointer, at->type_name());
    const bool last = i + 1 == keys.size();
    if (patch.value.is_null() && (last || !at->contains(keys[i]))) {
      at->erase(keys[i]);
      return {};
    }
    if (!last && !at->contains(keys[i])) (*at)[keys[i]] = Json::object();
    at = &(*at)[keys[i]];
  }
  *at = patch.value;
  return {};
}

// All that the planned repairs want of the files beside the model.
class Files {
 public:
  explicit Files(fs::path folder) : folder_(std::move(folder)) {}

  // Absent: done. Else why not, and the files are to be thrown away.
  std::optional<std::string> Add(const std::vector<ConfigPatch>& patches) {
    for (const ConfigPatch& patch : patches) {
      const auto [place, fresh] =
          wanted_.emplace(std::pair(patch.file, patch.pointer), patch.value);
      if (!fresh && place->second != patch.value)
        return fmt::format("another finding wants another value of {} in {}", patch.pointer,
                           patch.file);
      if (!json_.contains(patch.file)) {
        const fs::path path = folder_ / patch.file;
        const auto text = ReadTextFile(path);
        if (!text) return text.error().message;
        auto json = ParseJson(*text, path.string());
        if (!json) return json.error().message;
        json_.emplace(patch.file, *std::move(json));
      }
      if (const Status set = SetJson(json_.at(patch.file), patch); !set) return set.error().message;
    }
    return std::nullopt;
  }

  std::map<std::string, std::string> Texts() const {
    std::map<std::string, std::string> texts;
    for (const auto& [file, json] : json_)
      texts[file] = json.dump(4, ' ', false, Json::error_handler_t::replace) + "\n";
    return texts;
  }

 private:
  fs::path folder_;
  std::map<std::string, Json> json_;
  std::map<std::pair<std::string, std::string>, Json> wanted_;
};

}  // namespace

bool RepairPlan::empty() const { return changes.empty(); }

Result<RepairPlan> PlanRepair(const OnnxModel& candidate, const AuditReport& report) {
  RepairPlan plan;
  Files files(candidate.folder());
  const auto leave = [&](const Finding& finding, std::string_view why) {
    plan.left.push_back(fmt::format("{} ({})", finding.sentence, why));
  };
  for (const Finding& finding : report.findings) {
    if (finding.kind == FindingKind::kQuantized) continue;
    if (!finding.repairable()) {
      leave(finding, finding.how_to.empty() ? "export again" : finding.how_to);
      continue;
    }
    // First by itself: its layers may meet in one tensor as well.
    OnnxPatch own;
    if (const auto place = MergePatch(candidate, finding.patch, own)) {
      leave(finding, fmt::format("export again: its layers want different things of {}", *place));
      continue;
    }
    Files with = files;
    if (const auto why = with.Add(finding.config)) {
      leave(finding, *why);
      continue;
    }
    if (const auto place = MergePatch(candidate, own, plan.patch)) {
      leave(finding, fmt::format("export again: another repair wants {} otherwise", *place));
      continue;
    }
    files = std::move(with);
    plan.changes.push_back(finding.sentence);
  }
  plan.texts = files.Texts();
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
  // One name whoever repairs, so that the next repair removes what one that was killed has left.
  const auto room = TemporaryFolder::Make(folder, "repaired");
  if (!room)
    return InputError("{}: cannot be written to: {}", folder.string(), room.error().message);
  const fs::path fresh = room->path() / "model";
  // Files that no repair concerns stay where they are.
  LS_RETURN_IF_ERROR(WriteOnnx(candidate, plan.patch, fresh, plan.texts, false));
  // A model that does not open takes nobody's place.
  if (const auto opened = OnnxModel::Open(fresh / candidate.path().filename()); !opened)
    return tl::unexpected(opened.error());
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
  if (error)
    return InputError("{}: a file cannot be replaced: {}", folder.string(), error.message());
  return {};
}

}  // namespace lockstep
