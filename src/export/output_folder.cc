#include "export/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/disk_error.h"
#include "base/mapped_file.h"
#include "base/quoted.h"
#include "export/data_file.h"
#include "export/export.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// What an export leaves in its folder: --force replaces nothing else.
constexpr std::array<std::string_view, 3> kMarks = {kManifestName, "genai_config.json",
                                                    "model.onnx"};

bool IsInside(const fs::path& inner, const fs::path& outer) {
  const auto [a, b] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return a == outer.end();
}

// Absolute, links followed as far as the path exists, without a slash at the end.
fs::path Canonical(const fs::path& path) {
  if (path.empty()) return {};
  std::error_code error;
  fs::path whole = fs::absolute(path, error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  fs::path followed = fs::weakly_canonical(whole, error);
  return error || followed.empty() ? whole : followed;
}

Status CheckReplaceable(const fs::path& out) {
  std::error_code error;
  if (fs::is_symlink(out, error) || !fs::is_directory(out, error))
    return UsageError("{}: exists and is no folder; --force replaces only an earlier export",
                      out.string());
  const bool empty = fs::is_empty(out, error);
  if (error) return InputError("{}: cannot be read: {}", out.string(), error.message());
  const bool marked = std::any_of(kMarks.begin(), kMarks.end(), [&](std::string_view mark) {
    std::error_code ignored;
    return fs::exists(out / mark, ignored);
  });
  if (empty || marked) return {};
  return UsageError(
      "{}: exists and is no earlier export (it has no genai_config.json); --force "
      "would lose what it holds, so name another folder",
      out.string());
}

bool HasResumeKey(const fs::path& folder, const std::string& key) {
  std::error_code error;
  const fs::path path = folder / kResumeName;
  if (key.empty() || fs::file_size(path, error) != key.size() || error) return false;
  const auto text = ReadTextFile(path);
  return text && *text == key;
}

// Only what is written whole, or says how far it is.
bool MayStay(const std::string& name, bool data) {
  return name == kResumeName || name.ends_with(".safetensors") ||
         (data && (name == kResumeDataName || name.ends_with(".onnx.data")));
}

Status SyncFolder(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  // Some file systems have no fsync of folders.
  if (synced || error == EINVAL || error == EROFS) return {};
  return InputError("{}: cannot be written to the disk: {}", folder.string(), strerror(error));
}

}  // namespace

Result<OutputFolder> OutputFolder::Create(const fs::path& out, const Options& options) {
  std::error_code error;
  if (out.empty()) return UsageError("the folder to write has no name");
  const fs::path clean = Canonical(out), source = Canonical(options.source);
  if (!source.empty() && (IsInside(clean, source) || IsInside(source, clean)))
    return UsageError(
        "{}: is the model that is exported, holds it or lies in it; name a folder "
        "elsewhere",
        out.string());
  const bool exists = fs::exists(fs::symlink_status(out, error));
  if (exists && !options.force)
    return UsageError("{}: exists already; name a folder that does not, or say --force",
                      out.string());
  if (exists) LS_RETURN_IF_ERROR(CheckReplaceable(out));
  const fs::path parent = clean.parent_path();
  if (!fs::is_directory(parent, error))
    return UsageError("{}: there is no folder {}; create it first", out.string(), parent.string());
  auto temporary = TemporaryFolder::Make(
      parent, clean.filename().string(),
      [&](const fs::path& orphan) { return HasResumeKey(orphan, options.resume_key); });
  if (!temporary)
    return InputError("{}: a folder cannot be created there: {}", out.string(),
                      temporary.error().message);
  const bool taken_over = temporary->taken_over();
  OutputFolder folder(clean, *std::move(temporary), exists);
  if (taken_over) {
    LS_RETURN_IF_ERROR(folder.KeepFinished());
  } else if (!options.resume_key.empty()) {
    LS_RETURN_IF_ERROR(WriteSmallFile(folder.path() / kResumeName, options.resume_key));
  }
  return folder;
}

Status OutputFolder::KeepFinished() {
  std::error_code error;
  const bool data = fs::exists(path() / kResumeDataName, error);
  std::vector<fs::path> others;
  for (fs::directory_iterator it(path(), error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!MayStay(name, data) || !it->is_regular_file(error)) {
      others.push_back(it->path());
    } else if (name != kResumeName && name != kResumeDataName) {
      kept_.push_back(name);
      kept_bytes_ += it->file_size(error);
    }
  }
  for (const fs::path& other : others) {
    if (error) break;
    fs::remove_all(other, error);
  }
  std::sort(kept_.begin(), kept_.end());
  if (error) return InputError("{}: {}", path().string(), error.message());
  return {};
}

std::string OutputFolder::Resumed() const {
  if (kept_.empty()) return {};
  constexpr size_t kNamed = 3;
  return fmt::format("going on from what a killed export of the same left: {}",
                     QuotedList(kept_, kNamed));
}

void OutputFolder::EndResuming() const {
  std::error_code ignored;
  for (const char* name : {kResumeName, kResumeDataName}) fs::remove(path() / name, ignored);
}

std::string ResumeKey(const Model& model, const Json& how) {
  Json key = {{"how", how}};
  Json& files = key["files"] = Json::array();
  for (const auto& file : model.checkpoint.files) {
    std::error_code error;
    const auto time = fs::last_write_time(file->path(), error).time_since_epoch();
    files.push_back({{"path", Canonical(file->path()).string()},
                     {"bytes", file->bytes().size()},
                     {"time", error ? 0 : int64_t{time.count()}}});
  }
  key["config"] = model.checkpoint.config;
  key["generation_config"] = model.checkpoint.generation_config;
  return key.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status OutputFolder::CheckRoom(uint64_t bytes) const {
  return lockstep::CheckRoom(path(), bytes - std::min(bytes, kept_bytes_), out_);
}

Status OutputFolder::PutInPlace() {
  std::error_code error;
  EndResuming();
  // mkdtemp gives 0700; a new folder is what the umask leaves of 0777 elsewhere.
  fs::permissions(path(),
                  fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read |
                      fs::perms::others_exec,
                  fs::perm_options::add, error);
  LS_RETURN_IF_ERROR(SyncFolder(path()));
  const auto fail = [&] {
    return InputError("{}: cannot be put in place: {}", out_.string(), strerror(errno));
  };
  if (!replaces_) {
    // Unlike std::filesystem's, fails where a file or a filled folder has appeared meanwhile.
    if (rename(path().c_str(), out_.c_str()) != 0) return fail();
    temporary_.Keep();
  } else if (renameat2(AT_FDCWD, path().c_str(), AT_FDCWD, out_.c_str(), RENAME_EXCHANGE) != 0) {
    // (Where it can, the old folder has now the temporary name, and goes with it.)
    // A file system that cannot exchange: for a moment there is neither.
    const fs::path old = path().string() + ".old";
    if (rename(out_.c_str(), old.c_str()) != 0) return fail();
    if (rename(path().c_str(), out_.c_str()) != 0) {
      const auto failed = fail();
      if (rename(old.c_str(), out_.c_str()) != 0)
        return InputError("{}: cannot be put in place; the earlier export is now {}", out_.string(),
                          old.string());
      return failed;
    }
    temporary_.Keep();
    fs::remove_all(old, error);
  }
  return SyncFolder(out_.parent_path());
}

}  // namespace lockstep
