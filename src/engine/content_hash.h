// ContentHash: 128 bits that stand for some bytes, by XXH3 (https://xxhash.com): for telling apart
// what was not made to look alike. A file's is remembered in a cache folder under its identity
// (device, inode, size, times), so that a second start need not read the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"

namespace lockstep {

inline constexpr const char* kHashExtension = ".hash";

using ContentHash = std::array<uint64_t, 2>;

uint64_t ShortHash(std::span<const std::byte> bytes);
ContentHash HashOf(std::span<const std::byte> bytes);
std::string Hex(const ContentHash& hash);

// Of all bytes, by all threads.
ContentHash HashOf(std::span<const std::byte> bytes, ThreadPool& pool);

// The same of a file, read piece by piece: no more than one piece of it is in memory.
Result<ContentHash> HashOfFile(const std::filesystem::path& path);

// The same, looked up in `memory` (a folder; empty: none) and kept there. A file that was changed
// within the last seconds is hashed anew: a change within one tick of the clock would not show.
ContentHash HashOf(const MappedFile& file, const std::filesystem::path& memory, ThreadPool& pool);

}  // namespace lockstep
