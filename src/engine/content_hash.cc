#include "engine/content_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr size_t kPiece = size_t{4} << 20;  // what one thread hashes at a time
constexpr uint64_t kMemoMagic = 0x3148534148534c4b;
constexpr int64_t kSettled = 3'000'000'000;  // nanoseconds

struct Memo {
  uint64_t magic;
  FileIdentity identity;
  ContentHash hash;
  uint64_t check;  // of all before
};

uint64_t CheckOf(const Memo& memo) {
  return ShortHash({reinterpret_cast<const std::byte*>(&memo), offsetof(Memo, check)});
}

bool Settled(const FileIdentity& identity) {
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  return now - std::max(identity.modified_ns, identity.changed_ns) > kSettled;
}

}  // namespace

uint64_t ShortHash(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

ContentHash HashOf(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

std::string Hex(const ContentHash& hash) { return fmt::format("{:016x}{:016x}", hash[1], hash[0]); }

ContentHash HashOf(std::span<const std::byte> bytes, ThreadPool& pool) {
  std::vector<ContentHash> hashes((bytes.size() + kPiece - 1) / kPiece);
  pool.For(hashes.size(), [&](size_t i) {
    hashes[i] = HashOf(bytes.subspan(i * kPiece, std::min(kPiece, bytes.size() - i * kPiece)));
  });
  hashes.push_back({bytes.size(), 0});
  return HashOf(std::as_bytes(std::span(hashes)));
}

Result<ContentHash> HashOfFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<std::byte> piece(kPiece);
  std::vector<ContentHash> hashes;
  uint64_t size = 0;
  while (in) {
    in.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(kPiece));
    const auto n = static_cast<size_t>(in.gcount());
    if (n > 0) hashes.push_back(HashOf(std::span(piece).first(n)));
    size += n;
  }
  if (!in.eof()) return InputError("{}: cannot be read", path.string());
  hashes.push_back({size, 0});
  return HashOf(std::as_bytes(std::span(hashes)));
}

ContentHash HashOf(const MappedFile& file, const std::filesystem::path& memory, ThreadPool& pool) {
  const FileIdentity& identity = file.identity();
  if (memory.empty() || !Settled(identity)) return HashOf(file.bytes(), pool);
  static_assert(sizeof identity == 40);  // no padding enters the name
  const ContentHash name = HashOf(std::as_bytes(std::span(&identity, 1)));
  const std::filesystem::path path = memory / (Hex(name) + kHashExtension);
  if (const auto text = ReadTextFile(path, sizeof(Memo)); text && text->size() == sizeof(Memo)) {
    Memo memo;
    std::memcpy(&memo, text->data(), sizeof memo);
    if (memo.magic == kMemoMagic && memo.check == CheckOf(memo) && memo.identity == identity)
      return memo.hash;
  }
  Memo memo{.magic = kMemoMagic, .identity = identity, .hash = HashOf(file.bytes(), pool)};
  memo.check = CheckOf(memo);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&memo, 1));
  // A folder that cannot be written costs the next start a hash, no more.
  (void)WriteFileAtomically(path, std::span(&bytes, 1), Durability::kQuick);
  return memo.hash;
}

}  // namespace lockstep
