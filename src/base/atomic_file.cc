#include "base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/disk_error.h"

namespace lockstep {
namespace {

constexpr size_t kGathered = size_t{1} << 20;

tl::unexpected<Error> Failed(const std::filesystem::path& path, const char* what,
                             uint64_t bytes = 0) {
  const int error = errno;
  return InputError("{}: cannot be {}: {}", path.string(), what, WriteFailure(path, error, bytes));
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::filesystem::path& path) {
  for (unsigned attempt = 0; attempt < 100; ++attempt) {
    std::string temporary = fmt::format("{}.{}-{}.tmp", path.string(), getpid(), attempt);
    const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return AtomicFile(path, std::move(temporary), fd);
    if (errno != EEXIST) break;
  }
  return Failed(path, "created");
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      pending_(std::move(other.pending_)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

Status AtomicFile::Put(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed(path_, "written", bytes.size());
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status AtomicFile::Flush() {
  LS_RETURN_IF_ERROR(Put(pending_));
  pending_.clear();
  return {};
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  if (bytes.size() >= kGathered) {
    LS_RETURN_IF_ERROR(Flush());
    return Put(bytes);
  }
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  return pending_.size() < kGathered ? Status() : Flush();
}

Status AtomicFile::WriteZeros(size_t count) {
  const std::vector<std::byte> zeros(std::min(count, kGathered));
  for (; count > 0; count -= std::min(count, zeros.size()))
    LS_RETURN_IF_ERROR(Write(std::span(zeros).first(std::min(count, zeros.size()))));
  return {};
}

Status AtomicFile::Overwrite(uint64_t offset, std::span<const std::byte> bytes) {
  LS_CHECK(offset + bytes.size() <= size_, "{} + {} of {}", offset, bytes.size(), size_);
  LS_RETURN_IF_ERROR(Flush());
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed(path_, "written", bytes.size());
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Status AtomicFile::Commit() {
  LS_RETURN_IF_ERROR(Flush());
  if (fsync(fd_) != 0) return Failed(path_, "written");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return Failed(path_, "put in place");
  close(std::exchange(fd_, -1));
  return {};
}

}  // namespace lockstep
