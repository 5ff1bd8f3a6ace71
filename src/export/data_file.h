// DataFile: a large file that is written front to back, in pieces, by whoever has the next bytes.
// Everything that goes wrong on the way (a full disk, Ctrl-C) ends as a sentence; the file is then
// left to its folder (output_folder.h), which is removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/error.h"
#include "export/progress.h"

namespace lockstep {

class DataFile {
 public:
  // Creates it; it must not exist. `total` bytes are expected, for the progress.
  static Result<DataFile> Create(const std::filesystem::path& path, uint64_t total,
                                 ExportProgress progress);
  // One that was written up to `offset`, and perhaps further, by a process that was killed.
  static Result<DataFile> Continue(const std::filesystem::path& path, uint64_t offset,
                                   uint64_t total, ExportProgress progress);
  DataFile(DataFile&& other) noexcept;
  DataFile& operator=(DataFile&&) = delete;
  ~DataFile();

  Status Append(std::span<const std::byte> bytes);
  // As StoreFloatsAs says. A number that float16 cannot hold is an error.
  Status AppendValues(std::span<const float> values);
  void StoreFloatsAs(DType type) { floats_ = type; }  // kF32, kF16, kBF16
  Status FillTo(uint64_t offset);                     // zeros up to this offset
  uint64_t size() const { return written_; }
  Status Sync();    // what was written is on the disk
  Status Finish();  // on the disk, not only on its way there

 private:
  DataFile(std::filesystem::path path, int fd, uint64_t total, ExportProgress progress)
      : path_(std::move(path)), fd_(fd), total_(total), progress_(std::move(progress)) {}
  tl::unexpected<Error> Failed(std::string_view what, int error) const;

  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t written_ = 0, total_ = 0;
  ExportProgress progress_;
  DType floats_ = DType::kF32;
};

// A small file, whole, on the disk.
Status WriteSmallFile(const std::filesystem::path& path, std::string_view text);

}  // namespace lockstep
