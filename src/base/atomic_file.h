// AtomicFile: a file that appears complete or not at all. It is written front to back under a
// temporary name beside its own; Commit waits for the disk and renames. A file that was not
// committed is removed; after a kill the temporary stays under its own name.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace lockstep {

class AtomicFile {
 public:
  static Result<AtomicFile> Create(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // Appends; small pieces are gathered.
  Status Write(std::span<const std::byte> bytes);
  Status WriteZeros(size_t count);
  // Replaces bytes that were written before: a mark that only a complete file has.
  Status Overwrite(uint64_t offset, std::span<const std::byte> bytes);
  // Replaces what `path` named. Nothing may be written after it.
  Status Commit();

  uint64_t size() const { return size_; }  // written so far

 private:
  AtomicFile(std::filesystem::path path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}
  Status Flush();
  Status Put(std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::string temporary_;
  int fd_ = -1;  // -1: committed or moved from
  uint64_t size_ = 0;
  std::vector<std::byte> pending_;
};

}  // namespace lockstep
