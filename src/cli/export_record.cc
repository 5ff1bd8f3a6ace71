#include "cli/export_record.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/mapped_file.h"
#include "base/quoted.h"
#include "engine/content_hash.h"
#include "export/export.h"
#include "verify/compare.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShownIds = 20;  // of each step, as servers show them

// One that reads "../x" or "/etc/passwd" in a manifest must not be followed.
bool StaysInside(const fs::path& name) {
  return !name.empty() && name.is_relative() &&
         std::none_of(name.begin(), name.end(), [](const fs::path& part) { return part == ".."; });
}

std::vector<int32_t> LargestIds(const std::vector<double>& logits) {
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const size_t kept = std::min(kShownIds, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<int64_t>(kept), ids.end(),
                    [&](int32_t a, int32_t b) {
                      const double x = logits[static_cast<size_t>(a)];
                      const double y = logits[static_cast<size_t>(b)];
                      return x > y || (x == y && a < b);
                    });
  ids.resize(kept);
  return ids;
}

Result<std::vector<RecordedFile>> FilesOf(const Json& manifest, const std::string& place) {
  const auto list = manifest.find("files");
  if (list == manifest.end() || !list->is_array())
    return UsageError(
        "{}: keeps no record of the folder's files: export it again, or name the checkpoint that "
        "it is to be compared with (lockstep verify CHECKPOINT FOLDER)",
        place);
  std::vector<RecordedFile> files;
  for (const Json& entry : *list) {
    const auto has = [&](const char* key, auto is) {
      return entry.is_object() && entry.contains(key) && is(entry[key]);
    };
    const auto text = [](const Json& value) { return value.is_string(); };
    if (!has("name", text) || !has("xxh3_128_of_4mib_pieces", text) ||
        !has("bytes", [](const Json& value) { return value.is_number_unsigned(); }) ||
        !StaysInside(entry["name"].get<std::string>()))
      return InputError(
          "{}: \"files\": expected objects with a name inside the folder, bytes and a hash, found "
          "{}",
          place, Quoted(entry.dump(-1, ' ', true, Json::error_handler_t::replace)));
    files.push_back({entry["name"].get<std::string>(), entry["bytes"].get<uint64_t>(),
                     entry["xxh3_128_of_4mib_pieces"].get<std::string>()});
  }
  return files;
}

}  // namespace

Result<std::vector<RecordedFile>> RecordFiles(const fs::path& folder) {
  std::vector<RecordedFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().lexically_relative(folder).generic_string();
    if (!at->is_regular_file(error) || name == kManifestName) continue;
    LS_TRY(const ContentHash hash, HashOfFile(at->path()));
    files.push_back({name, at->file_size(error), Hex(hash)});
  }
  if (error) return InputError("{}: cannot be listed: {}", folder.string(), error.message());
  std::sort(files.begin(), files.end(),
            [](const RecordedFile& a, const RecordedFile& b) { return a.name < b.name; });
  return files;
}

std::vector<PromptTrace> ShortAnswers(const std::vector<PromptTrace>& runs) {
  std::vector<PromptTrace> out;
  for (const PromptTrace& run : runs) {
    PromptTrace& kept = out.emplace_back();
    kept.name = run.name;
    kept.text = run.text;
    kept.rendered = run.rendered;
    kept.ids = run.ids;
    kept.greedy = run.greedy;
    kept.noise = run.noise;
    for (int64_t step = 0; step < std::max<int64_t>(1, static_cast<int64_t>(run.greedy.size()));
         ++step) {
      const std::vector<double> logits = run.StepLogits(step);
      if (!logits.empty()) kept.shown.emplace(step, ShownOf(logits, LargestIds(logits)));
    }
  }
  return out;
}

Json FilesJson(const std::vector<RecordedFile>& files) {
  Json list = Json::array();
  for (const RecordedFile& file : files)
    list.push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128_of_4mib_pieces", file.hash}});
  return list;
}

Result<ExportRecord> ReadExportRecord(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  const std::string place = path.string();
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored))
    return UsageError(
        "{}: stands alone, and no {} of an export lies in it to compare it with; name a reference "
        "and "
        "a candidate: lockstep verify {} CANDIDATE",
        folder.string(), kManifestName, folder.string());
  LS_TRY(const std::string text, ReadTextFile(path));
  LS_TRY(const Json manifest, ParseJson(text, place));
  if (!manifest.is_object())
    return InputError("{}: expected an object, found {}", place, manifest.type_name());
  if (const auto version = manifest.find("format_version");
      version != manifest.end() && *version != Json(1))
    return InputError("{}: \"format_version\": expected 1, found {}; a later lockstep wrote it",
                      place, Quoted(version->dump(-1, ' ', true, Json::error_handler_t::replace)));
  ExportRecord record;
  LS_TRY(record.files, FilesOf(manifest, place));
  const auto verification = manifest.find("verification");
  if (verification != manifest.end() && verification->is_object()) {
    const auto sentence = verification->find("sentence");
    if (sentence != verification->end() && sentence->is_string())
      record.proof = OneLine(sentence->get<std::string>(), 2000);
  }
  record.answers.source = place;
  const auto answers = manifest.find("answers");
  if (answers != manifest.end() && !answers->is_null()) {
    LS_TRY(record.answers.prompts, ReadPromptsJson(*answers, place + ": \"answers\""));
  }
  return record;
}

Result<std::vector<std::string>> ChangedFiles(const ExportRecord& record, const fs::path& folder,
                                              std::vector<std::string>& added) {
  LS_TRY(const std::vector<RecordedFile> now, RecordFiles(folder));
  const auto named = [](const std::vector<RecordedFile>& files, const std::string& name) {
    return std::find_if(files.begin(), files.end(),
                        [&](const RecordedFile& file) { return file.name == name; });
  };
  std::vector<std::string> changed;
  for (const RecordedFile& then : record.files) {
    const std::string shown = OneLine(then.name, 200);
    const auto found = named(now, then.name);
    if (found == now.end())
      changed.push_back(
          fmt::format("{}: was written ({} bytes) and is not there any more", shown, then.bytes));
    else if (found->bytes != then.bytes)
      changed.push_back(fmt::format("{}: is not the file that was written: {} bytes, then {}",
                                    shown, found->bytes, then.bytes));
    else if (found->hash != then.hash)
      changed.push_back(
          fmt::format("{}: is not the file that was written: as long, and other bytes", shown));
  }
  for (const RecordedFile& file : now)
    if (named(record.files, file.name) == record.files.end())
      added.push_back(OneLine(file.name, 200));
  return changed;
}

}  // namespace lockstep
