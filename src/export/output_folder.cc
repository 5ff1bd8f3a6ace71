#include "export/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

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
  auto temporary = TemporaryFolder::Make(parent, clean.filename().string());
  if (!temporary)
    return InputError("{}: a folder cannot be created there: {}", out.string(),
                      temporary.error().message);
  return OutputFolder(clean, *std::move(temporary), exists);
}

Status OutputFolder::CheckRoom(uint64_t bytes) const {
  struct statvfs info {};
  if (statvfs(path().c_str(), &info) != 0) return {};  // writing will tell
  const uint64_t room = uint64_t{info.f_bavail} * info.f_frsize;
  if (room >= bytes) return {};
  return InputError(
      "{}: the export needs {} bytes, and the disk has room for {}; make room, or "
      "name a folder on another disk",
      out_.string(), bytes, room);
}

Status OutputFolder::PutInPlace() {
  std::error_code error;
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
