#include "base/temporary_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr int kMostTried = 16;

std::string PrefixOf(std::string_view stem) { return fmt::format(".{}.lockstep-", stem); }

// The process in .STEM.lockstep-PID-XXXXXX; 0 for another name.
pid_t MakerOf(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return 0;
  name.remove_prefix(prefix.size());
  pid_t pid = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, pid);
  const bool ours = error == std::errc{} && pid > 0 && end - stop == 7 && *stop == '-';
  return ours ? pid : 0;
}

bool IsGone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

int OpenFolder(const fs::path& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Holds a folder just made, in `lock`; false where someone who does not see this process (in
// another container) took it for an orphan meanwhile. A file system without locks gives -1: nothing
// is removed there without one.
bool Hold(const fs::path& path, int& lock) {
  lock = OpenFolder(path);
  if (lock < 0) return errno != ENOENT;
  struct stat held {
  }, there{};
  const bool locked = flock(lock, LOCK_SH | LOCK_NB) == 0;
  const bool taken = !locked && errno == EWOULDBLOCK;
  if (!taken && fstat(lock, &held) == 0 && lstat(path.c_str(), &there) == 0 &&
      held.st_ino == there.st_ino && held.st_dev == there.st_dev)
    return true;
  close(std::exchange(lock, -1));
  return false;
}

}  // namespace

bool IsTemporaryFolder(const fs::path& path) {
  constexpr std::string_view kMark = ".lockstep-";
  const std::string name = path.filename().string();
  const size_t mark = name.rfind(kMark);
  return name.starts_with('.') && mark != std::string::npos && mark > 0 &&
         MakerOf(name, std::string_view(name).substr(0, mark + kMark.size())) != 0;
}

namespace {

// Every folder whose maker is gone, locked in `fd`, until `each` takes that: true.
template <typename Each>
void ForOrphans(const fs::path& where, std::string_view stem, const Each& each) {
  const std::string prefix = PrefixOf(stem);
  std::error_code error;
  for (fs::directory_iterator it(where, error), end; !error && it != end; it.increment(error)) {
    const pid_t maker = MakerOf(it->path().filename().string(), prefix);
    if (maker == 0 || !IsGone(maker)) continue;
    const int fd = OpenFolder(it->path());
    if (fd < 0) continue;
    struct stat info {};
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        each(it->path(), fd))
      continue;
    close(fd);
  }
}

bool Remove(const fs::path& orphan, int) {
  std::error_code ignored;
  fs::remove_all(orphan, ignored);
  return false;
}

}  // namespace

void RemoveOrphans(const fs::path& where, std::string_view stem) {
  ForOrphans(where, stem, Remove);
}

Result<TemporaryFolder> TemporaryFolder::Make(const fs::path& where, std::string_view stem,
                                              const Wanted& wanted) {
  std::string taken;
  int taken_lock = -1;
  ForOrphans(where, stem, [&](const fs::path& orphan, int fd) {
    if (taken_lock >= 0 || !wanted || !wanted(orphan)) return Remove(orphan, fd);
    taken = orphan.string();
    taken_lock = fd;
    return true;
  });
  const std::string pattern =
      (where / fmt::format("{}{}-XXXXXX", PrefixOf(stem), getpid())).string();
  for (int tries = 0; tries < kMostTried; ++tries) {
    std::string path = pattern;
    if (mkdtemp(path.data()) == nullptr) {
      const int error = errno;
      if (taken_lock >= 0) close(taken_lock);
      return InputError("{}", std::strerror(error));
    }
    // A folder may be renamed over an empty one.
    if (taken_lock >= 0 && rename(taken.c_str(), path.c_str()) == 0 &&
        flock(taken_lock, LOCK_SH | LOCK_NB) == 0) {
      TemporaryFolder folder(path, taken_lock);
      folder.taken_over_ = true;
      return folder;
    }
    if (taken_lock >= 0) close(std::exchange(taken_lock, -1));
    int lock = -1;
    if (Hold(path, lock)) return TemporaryFolder(path, lock);
  }
  return InputError("another process removes every folder made here");
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      taken_over_(other.taken_over_),
      lock_(std::exchange(other.lock_, -1)) {}

void TemporaryFolder::Keep() { path_.clear(); }

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

}  // namespace lockstep
