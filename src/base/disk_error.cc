#include "base/disk_error.h"

#include <fmt/format.h>
#include <mntent.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The nearest folder on the way up that exists: the file itself may be gone already.
fs::path FolderOf(const fs::path& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  while (!error && at.has_relative_path() && !fs::is_directory(at, error)) at = at.parent_path();
  const fs::path real = fs::canonical(at, error);
  return error ? fs::path("/") : real;
}

// "/dev/sda1 (/home)", or the folder where mounts cannot be read.
std::string DeviceOf(const fs::path& folder) {
  const std::unique_ptr<FILE, int (*)(FILE*)> mounts(setmntent("/proc/self/mounts", "r"),
                                                     &endmntent);
  std::string device, at;
  for (mntent entry{}; mounts != nullptr;) {
    char names[4096];
    if (getmntent_r(mounts.get(), &entry, names, sizeof names) == nullptr) break;
    const std::string where = entry.mnt_dir;
    const std::string below = where == "/" ? where : where + "/";
    // The last of equal ones lies on top.
    if ((folder.string() + "/").starts_with(below) && where.size() >= at.size()) {
      device = entry.mnt_fsname;
      at = where;
    }
  }
  return at.empty() ? folder.string() : fmt::format("{} ({})", device, at);
}

}  // namespace

std::string WriteFailure(const fs::path& path, int error, uint64_t bytes) {
  const std::string needs = bytes > 0 ? fmt::format(": needs {} bytes more", bytes) : "";
  if (error == EFBIG) {
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    return limit.rlim_cur == RLIM_INFINITY
               ? fmt::format("the file system takes no file of this size{}", needs)
               : fmt::format("files of this process may have {} bytes (ulimit -f){}",
                             limit.rlim_cur, needs);
  }
  if (error == EDQUOT)
    return fmt::format("the quota on {} is used up{}", DeviceOf(FolderOf(path)), needs);
  if (error != ENOSPC) return std::strerror(error);
  const fs::path folder = FolderOf(path);
  struct statvfs disk {};
  std::string free;
  if (statvfs(folder.c_str(), &disk) == 0)
    free = fmt::format("{} {} are free", bytes > 0 ? ", and" : ":",
                       static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize);
  return fmt::format("no space left on {}{}{}", DeviceOf(folder), needs, free);
}

Status CheckRoom(const fs::path& folder, uint64_t bytes, const fs::path& out) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return {};  // writing will tell
  const uint64_t room = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (room >= bytes) return {};
  return InputError(
      "{}: the export needs {} bytes, and the disk has room for {}; make room, or name a place on "
      "another disk",
      out.string(), bytes, room);
}

}  // namespace lockstep
