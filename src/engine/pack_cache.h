// PackCache: packed weights kept on disk between starts. A file holds the packed bytes of one plan,
// mapped as they are; its name is a hash of the checkpoint's content, of where every matrix lies in
// it and of the layout that kernels/packed.h gives it. Whatever is wrong with a file (cut, damaged,
// foreign, of another version), it is taken for absent: weights are packed anew.
//
//   0     PackCacheHeader
//   128   one 64-bit XXH3 per piece of 4 MiB of the packed bytes
//         zeros up to a multiple of 4096
//         the packed bytes
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "engine/content_hash.h"
#include "engine/pack.h"

namespace lockstep {

// The folder that the environment names: LOCKSTEP_CACHE ("off": none), or lockstep/packed in
// $XDG_CACHE_HOME or ~/.cache.
std::optional<std::filesystem::path> PackCacheFolder();

class PackCache {
 public:
  // 20 GiB, or a quarter of what the disk would have free without the cache if that is less.
  static constexpr uint64_t kMostBytes = uint64_t{20} << 30;
  // Fewer packed bytes are not kept: to pack them takes some ten milliseconds.
  static constexpr size_t kLeastBytes = size_t{16} << 20;

  explicit PackCache(std::filesystem::path folder, uint64_t most_bytes = kMostBytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  // nullopt when a matrix lies in none of the files.
  std::optional<ContentHash> KeyOf(const Packing& packing,
                                   std::span<const std::shared_ptr<const MappedFile>> files,
                                   ThreadPool& pool) const;
  // The bytes kept under `key`, all checked; nullopt when there are none of this size.
  std::optional<PackedBytes> Load(const ContentHash& key, size_t size, ThreadPool& pool) const;
  // Removes the files used longest ago until there is room, then writes.
  Status Store(const ContentHash& key, const PackedBytes& bytes, ThreadPool& pool) const;

  std::filesystem::path FileOf(const ContentHash& key) const;

 private:
  Status MakeRoom(uint64_t needed) const;

  std::filesystem::path folder_;
  uint64_t most_bytes_;
};

// Where packed weights came from.
struct PackedFrom {
  bool cache = false;
  std::filesystem::path file;  // in the cache; empty: none
  std::string note;            // why none could be kept; empty: nothing to say
};

// packing.Pack, or what an earlier start made of the same files. Plans below PackCache::kLeastBytes
// are always packed: that takes no longer than to look for a file.
PackedBytes PackOrLoad(const Packing& packing,
                       std::span<const std::shared_ptr<const MappedFile>> files, ThreadPool& pool,
                       PackedFrom& from);

}  // namespace lockstep
