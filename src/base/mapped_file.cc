#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/disk_error.h"
#include "base/map_guard.h"

namespace lockstep {
namespace {

FileIdentity IdentityOf(const struct stat& info) {
  const auto nanoseconds = [](const timespec& t) {
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  };
  return {.device = static_cast<uint64_t>(info.st_dev),
          .inode = static_cast<uint64_t>(info.st_ino),
          .size = static_cast<uint64_t>(info.st_size),
          .modified_ns = nanoseconds(info.st_mtim),
          .changed_ns = nanoseconds(info.st_ctim)};
}

// An open file descriptor and what fstat said of it.
struct OpenFile {
  int fd = -1;
  struct stat info {};
  OpenFile() = default;
  OpenFile(OpenFile&& other) noexcept : fd(std::exchange(other.fd, -1)), info(other.info) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (fd >= 0) close(fd);
  }
};

Result<OpenFile> OpenRegular(const std::filesystem::path& path) {
  OpenFile file;
  // O_NONBLOCK: opening a named pipe must not hang; it is refused below.
  file.fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) return InputError("{}: cannot be opened: {}", path.string(), strerror(errno));
  if (fstat(file.fd, &file.info) != 0)
    return InputError("{}: cannot be examined: {}", path.string(), strerror(errno));
  if (S_ISDIR(file.info.st_mode))
    return InputError("{}: expected a file, found a folder", path.string());
  if (!S_ISREG(file.info.st_mode))
    return InputError("{}: expected a regular file, found a device, pipe or socket", path.string());
  return file;
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::filesystem::path& path) {
  LS_TRY(const OpenFile file, OpenRegular(path));
  const auto size = static_cast<size_t>(file.info.st_size);
  std::span<const std::byte> bytes;
  if (size > 0) {
    void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (address == MAP_FAILED)
      return InputError("{}: {} bytes cannot be mapped: {}", path.string(), size, strerror(errno));
    bytes = {static_cast<const std::byte*>(address), size};
  }
  const FileIdentity identity = IdentityOf(file.info);
  std::shared_ptr<const MappedFile> mapped(new MappedFile(path, bytes, identity));
  if (size > 0) RememberMap(bytes.data(), size, mapped->path_.c_str());
  return mapped;
}

bool MappedFile::Unchanged() const {
  struct stat info {};
  return stat(path_.c_str(), &info) == 0 && IdentityOf(info) == identity_;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ForgetMap(bytes_.data());
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<std::string> ReadTextFile(const std::filesystem::path& path, size_t limit) {
  LS_TRY(const OpenFile file, OpenRegular(path));
  const auto size = static_cast<size_t>(file.info.st_size);
  if (size > limit)
    return InputError("{}: has {} bytes, expected at most {}", path.string(), size, limit);
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = read(file.fd, text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return InputError("{}: reading stopped at byte {} of {}: {}", path.string(), done, size,
                        n < 0 ? strerror(errno) : "the file became shorter");
    done += static_cast<size_t>(n);
  }
  return text;
}

Status WriteFileAtomically(const std::filesystem::path& path,
                           std::span<const std::span<const std::byte>> chunks,
                           Durability durability) {
  // A name of its own for each try, opened as any file is: the permissions are what the umask
  // leaves (mkstemp gives 0600, and the umask cannot be asked for without setting it for every
  // thread).
  std::string temporary;
  int fd = -1;
  for (unsigned attempt = 0; fd < 0 && attempt < 100; ++attempt) {
    temporary = fmt::format("{}.{}-{}.tmp", path.string(), getpid(), attempt);
    fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) break;
  }
  uint64_t left = 0;
  for (const std::span<const std::byte> chunk : chunks) left += chunk.size();
  const auto fail = [&](const char* what) {
    const std::string reason = WriteFailure(path, errno, left);
    if (fd >= 0) {
      close(fd);
      unlink(temporary.c_str());
    }
    return InputError("{}: cannot be {}: {}", path.string(), what, reason);
  };
  if (fd < 0) return fail("created");
  for (std::span<const std::byte> chunk : chunks) {
    while (!chunk.empty()) {
      const ssize_t n = write(fd, chunk.data(), chunk.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return fail("written");
      chunk = chunk.subspan(static_cast<size_t>(n));
      left -= static_cast<uint64_t>(n);
    }
  }
  if (durability == Durability::kDurable && fsync(fd) != 0) return fail("written");
  if (rename(temporary.c_str(), path.c_str()) != 0) return fail("put in place");
  close(fd);
  return {};
}

Status WriteFileAtomically(const std::filesystem::path& path, std::string_view text) {
  const std::span<const std::byte> chunk = std::as_bytes(std::span(text));
  return WriteFileAtomically(path, std::span(&chunk, 1));
}

}  // namespace lockstep
