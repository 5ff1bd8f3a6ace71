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

// The process in STEM.PID-XXXXXX; 0 for another name.
pid_t MakerOf(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem)) return 0;
  name.remove_prefix(stem.size());
  if (!name.starts_with('.')) return 0;
  pid_t pid = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + 1, end, pid);
  const bool ours = error == std::errc{} && pid > 0 && end - stop == 7 && *stop == '-';
  return ours ? pid : 0;
}

bool IsGone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

int OpenFolder(const fs::path& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

}  // namespace

void RemoveOrphans(const fs::path& where, std::string_view stem) {
  std::error_code error;
  for (fs::directory_iterator it(where, error), end; !error && it != end; it.increment(error)) {
    const pid_t maker = MakerOf(it->path().filename().string(), stem);
    if (maker == 0 || !IsGone(maker)) continue;
    const int fd = OpenFolder(it->path());
    if (fd < 0) continue;
    struct stat info {};
    std::error_code ignored;
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
      fs::remove_all(it->path(), ignored);
    close(fd);
  }
}

Result<TemporaryFolder> TemporaryFolder::Make(const fs::path& where, std::string_view stem) {
  RemoveOrphans(where, stem);
  std::string path = (where / fmt::format("{}.{}-XXXXXX", stem, getpid())).string();
  if (mkdtemp(path.data()) == nullptr) return InputError("{}", std::strerror(errno));
  const int lock = OpenFolder(path);
  if (lock >= 0) (void)flock(lock, LOCK_SH | LOCK_NB);  // without it the process id decides alone
  return TemporaryFolder(path, lock);
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}

void TemporaryFolder::Keep() { path_.clear(); }

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

}  // namespace lockstep
