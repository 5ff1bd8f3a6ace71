#include "export/data_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <utility>
#include <vector>

#include "base/disk_error.h"

namespace lockstep {
namespace {

// Between two looks at the clock and at Ctrl-C.
constexpr size_t kPiece = size_t{8} << 20;

}  // namespace

Result<DataFile> DataFile::Create(const std::filesystem::path& path, uint64_t total,
                                  ExportProgress progress) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  DataFile file(path, fd, total, std::move(progress));
  if (fd < 0) return file.Failed("created", errno);
  return file;
}

Result<DataFile> DataFile::Continue(const std::filesystem::path& path, uint64_t offset,
                                    uint64_t total, ExportProgress progress) {
  const int fd = open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  DataFile file(path, fd, total, std::move(progress));
  if (fd < 0) return file.Failed("opened", errno);
  if (ftruncate(fd, static_cast<off_t>(offset)) != 0 || lseek(fd, 0, SEEK_END) < 0)
    return file.Failed("continued", errno);
  file.written_ = offset;
  return file;
}

DataFile::DataFile(DataFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      written_(other.written_),
      total_(other.total_),
      progress_(std::move(other.progress_)) {}

DataFile::~DataFile() {
  if (fd_ >= 0) close(fd_);
}

tl::unexpected<Error> DataFile::Failed(std::string_view what, int error) const {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return InputError("{}: cannot be {}: {}{}", path_.filename().string(), what,
                    WriteFailure(path_, error, full ? total_ - std::min(written_, total_) : 0),
                    full ? "; make room, or name a folder on another disk" : "");
}

Status DataFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), std::min(bytes.size(), kPiece));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed("written", n < 0 ? errno : EIO);
    written_ += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
    if (progress_ &&
        !progress_("writing weights", static_cast<int64_t>(written_), static_cast<int64_t>(total_)))
      return ExportInterrupted();
  }
  return {};
}

Status DataFile::AppendValues(std::span<const float> values) {
  if (floats_ == DType::kF32) return Append(std::as_bytes(values));
  constexpr size_t kPart = size_t{1} << 16;
  std::vector<uint16_t> half;
  for (size_t first = 0; first < values.size(); first += kPart) {
    half.clear();
    for (const float x : values.subspan(first, std::min(kPart, values.size() - first))) {
      half.push_back(floats_ == DType::kF16 ? ToFloat16(x).bits : ToBFloat16(x).bits);
      if (std::isfinite(x) && (half.back() & 0x7fff) == 0x7c00 && floats_ == DType::kF16)
        return UnsupportedError(
            "a weight of {} is more than float16 holds; use --precision bf16 or fp32", x);
    }
    LS_RETURN_IF_ERROR(Append(std::as_bytes(std::span<const uint16_t>(half))));
  }
  return {};
}

Status DataFile::FillTo(uint64_t offset) {
  constexpr std::array<std::byte, 256> kZeros{};
  while (written_ < offset)
    LS_RETURN_IF_ERROR(
        Append(std::span(kZeros).first(std::min<size_t>(kZeros.size(), offset - written_))));
  return {};
}

Status DataFile::Sync() {
  if (fsync(fd_) != 0) return Failed("written", errno);
  return {};
}

Status DataFile::Finish() {
  if (fsync(fd_) != 0) return Failed("written", errno);
  if (close(std::exchange(fd_, -1)) != 0) return Failed("written", errno);
  return {};
}

Status WriteSmallFile(const std::filesystem::path& path, std::string_view text) {
  LS_TRY(DataFile file, DataFile::Create(path, text.size(), nullptr));
  LS_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(text))));
  return file.Finish();
}

}  // namespace lockstep
