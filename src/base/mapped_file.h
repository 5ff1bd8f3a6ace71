// MappedFile: a whole file, read-only, in memory without being read. Pages come in when touched;
// what happens when they no longer can is in map_guard.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "base/error.h"

namespace lockstep {

// Which bytes a file held when it was opened: the same identity later means the same bytes, as far
// as the system tells (a change moves changed_ns, by a clock's tick).
struct FileIdentity {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0, changed_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

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
  const FileIdentity& identity() const { return identity_; }
  // The path still names the bytes that were mapped.
  bool Unchanged() const;

 private:
  MappedFile(std::filesystem::path path, std::span<const std::byte> bytes,
             const FileIdentity& identity)
      : path_(std::move(path)), bytes_(bytes), identity_(identity) {}
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  FileIdentity identity_;
};

// Reads a small text file (a config, a template) of at most `limit` bytes into memory.
Result<std::string> ReadTextFile(const std::filesystem::path& path, size_t limit = 64u << 20);

// Writes through a temporary file beside `path` and renames it: readers see the old bytes or the
// new ones, never a part. The temporary is removed on failure. kQuick does not wait for the disk:
// after a power cut the file may be empty or torn.
enum class Durability : uint8_t { kDurable, kQuick };
Status WriteFileAtomically(const std::filesystem::path& path,
                           std::span<const std::span<const std::byte>> chunks,
                           Durability durability = Durability::kDurable);
Status WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

}  // namespace lockstep
