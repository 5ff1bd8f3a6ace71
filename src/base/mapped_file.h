// MappedFile: a whole file, read-only, in memory without being read. Pages come in when touched.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "base/error.h"

namespace lockstep {

class MappedFile {
 public:
  // Fails with a sentence when the path is missing, a folder, unreadable or not a regular file.
  // An empty file maps to an empty span.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile(std::filesystem::path path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

// Reads a small text file (a config, a template) of at most `limit` bytes into memory.
Result<std::string> ReadTextFile(const std::filesystem::path& path, size_t limit = 64u << 20);

// Writes through a temporary file beside `path` and renames it: readers see the old bytes or the
// new ones, never a part. The temporary is removed on failure.
Status WriteFileAtomically(const std::filesystem::path& path,
                           std::span<const std::span<const std::byte>> chunks);
Status WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

}  // namespace lockstep
