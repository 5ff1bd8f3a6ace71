#include "engine/pack_cache.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// To be raised when packed bytes change without a change of kPackedKinds' names or sizes.
constexpr uint32_t kPackingVersion = 2;
constexpr size_t kPiece = size_t{4} << 20;
constexpr size_t kPage = 4096;
constexpr const char* kExtension = ".packed";

struct PackCacheHeader {
  char magic[8];  // "LSPACKED"
  uint32_t version;
  uint32_t piece_bytes;
  ContentHash key;
  uint64_t size;         // of the packed bytes
  uint64_t begin;        // where they lie in the file
  uint64_t table_hash;   // of the pieces' hashes
  uint64_t reserved[8];  // zero
  uint64_t check;        // of all before
};
static_assert(sizeof(PackCacheHeader) == 128);

PackCacheHeader HeaderOf(const ContentHash& key, size_t size, std::span<const uint64_t> table) {
  PackCacheHeader header{};
  std::memcpy(header.magic, "LSPACKED", 8);
  header.version = kPackingVersion;
  header.piece_bytes = kPiece;
  header.key = key;
  header.size = size;
  header.begin = (sizeof header + table.size_bytes() + kPage - 1) / kPage * kPage;
  header.table_hash = ShortHash(std::as_bytes(table));
  header.check =
      ShortHash({reinterpret_cast<const std::byte*>(&header), offsetof(PackCacheHeader, check)});
  return header;
}

size_t Pieces(size_t size) { return (size + kPiece - 1) / kPiece; }

std::vector<uint64_t> HashPieces(std::span<const std::byte> bytes, ThreadPool& pool) {
  std::vector<uint64_t> table(Pieces(bytes.size()));
  pool.For(table.size(), [&](size_t i) {
    table[i] = ShortHash(bytes.subspan(i * kPiece, std::min(kPiece, bytes.size() - i * kPiece)));
  });
  return table;
}

// A file of the cache's own; the folder may be anybody's, and hold anything else.
struct CacheName {
  bool hash = false;       // a remembered one (content_hash.h)
  bool temporary = false;  // as WriteFileAtomically names them
};

// 32 digits of Hex, one of the two extensions, and of a temporary file ".PID-ATTEMPT.tmp".
std::optional<CacheName> OwnName(std::string_view name) {
  const auto skip = [&](std::string_view digits) {
    const size_t count = std::min(name.find_first_not_of(digits), name.size());
    name.remove_prefix(count);
    return count;
  };
  const auto take = [&](std::string_view text) {
    if (!name.starts_with(text)) return false;
    name.remove_prefix(text.size());
    return true;
  };
  if (skip("0123456789abcdef") != 2 * sizeof(ContentHash)) return std::nullopt;
  CacheName own;
  own.hash = take(kHashExtension);
  if (!own.hash && !take(kExtension)) return std::nullopt;
  if (name.empty()) return own;
  constexpr std::string_view kDecimal = "0123456789";
  own.temporary = take(".") && skip(kDecimal) > 0 && take("-") && skip(kDecimal) > 0 &&
                  take(".tmp") && name.empty();
  return own.temporary ? std::optional(own) : std::nullopt;
}

struct CacheFile {
  fs::path path;
  CacheName name;
  uint64_t size = 0;
  fs::file_time_type used;
};

// The cache's files, those used longest ago first. Half-written files that a stopped process left
// behind count as used when they were written.
std::vector<CacheFile> FilesIn(const fs::path& folder) {
  std::vector<CacheFile> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::optional<CacheName> name = OwnName(it->path().filename().string());
    std::error_code gone;
    if (!name || !it->is_regular_file(gone)) continue;
    const CacheFile file{it->path(), *name, it->file_size(gone), it->last_write_time(gone)};
    if (!gone) files.push_back(file);
  }
  std::sort(files.begin(), files.end(),
            [](const CacheFile& a, const CacheFile& b) { return a.used < b.used; });
  return files;
}

// A temporary file of a process that is gone, or a remembered hash (content_hash.h) of long ago.
bool Abandoned(const CacheFile& file) {
  const auto age = fs::file_time_type::clock::now() - file.used;
  if (file.name.temporary) return age > std::chrono::hours(1);
  return file.name.hash && age > std::chrono::hours(24 * 90);
}

// What the packing made of the files, but for their content.
template <typename T>
void Append(std::vector<std::byte>& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}
void Append(std::vector<std::byte>& to, std::string_view text) {
  Append(to, text.size());
  const auto bytes = std::as_bytes(std::span(text));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

std::optional<fs::path> PackCacheFolder() {
  const auto named = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value != nullptr ? value : "");
  };
  const fs::path own = named("LOCKSTEP_CACHE");
  if (own == "off" || own == "OFF") return std::nullopt;
  if (!own.empty()) return own;
  // The XDG specification: a relative path is to be ignored.
  if (const fs::path cache = named("XDG_CACHE_HOME"); cache.is_absolute())
    return cache / "lockstep" / "packed";
  if (const fs::path home = named("HOME"); home.is_absolute())
    return home / ".cache" / "lockstep" / "packed";
  return std::nullopt;
}

fs::path PackCache::FileOf(const ContentHash& key) const {
  return folder_ / (Hex(key) + kExtension);
}

std::optional<ContentHash> PackCache::KeyOf(
    const Packing& packing, std::span<const std::shared_ptr<const MappedFile>> files,
    ThreadPool& pool) const {
  std::vector<std::byte> facts;
  Append(facts, kPackingVersion);
  for (const Packing::Entry& entry : packing.entries()) {
    const WeightView& view = *entry.view;
    const auto file = std::find_if(files.begin(), files.end(), [&](const auto& f) {
      const std::span<const std::byte> bytes = f->bytes();
      return view.data >= bytes.data() && view.data < bytes.data() + bytes.size();
    });
    if (file == files.end()) return std::nullopt;
    const PackedKindInfo& kind = InfoOf(entry.matrix.kind);
    Append(facts, file - files.begin());
    Append(facts, view.data - (*file)->bytes().data());
    Append(facts, std::string_view(view.type->name));
    Append(facts, std::string_view(kind.name));
    for (const int64_t fact : {view.rows, view.cols, view.offset, view.row_stride, view.col_stride,
                               view.pair_dim, int64_t{kind.block_bytes}, int64_t{kind.super_bytes}})
      Append(facts, fact);
    Append(facts, view.addend);
    Append(facts, entry.offset);
  }
  std::error_code error;
  fs::create_directories(folder_, error);
  for (const auto& file : files) Append(facts, HashOf(*file, folder_, pool));
  return HashOf(facts);
}

std::optional<PackedBytes> PackCache::Load(const ContentHash& key, size_t size,
                                           ThreadPool& pool) const {
  const fs::path path = FileOf(key);
  const auto opened = MappedFile::Open(path);
  if (!opened) return std::nullopt;
  const std::shared_ptr<const MappedFile>& file = *opened;
  const std::span<const std::byte> bytes = file->bytes();
  std::vector<uint64_t> table(Pieces(size));
  const size_t table_bytes = table.size() * sizeof(uint64_t);
  if (bytes.size() < sizeof(PackCacheHeader) + table_bytes) return std::nullopt;
  PackCacheHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::memcpy(table.data(), bytes.data() + sizeof header, table_bytes);
  const PackCacheHeader expected = HeaderOf(key, size, table);
  if (std::memcmp(&header, &expected, sizeof header) != 0 ||
      bytes.size() != header.begin + header.size)
    return std::nullopt;
  const std::span<const std::byte> packed = bytes.subspan(header.begin);
  if (HashPieces(packed, pool) != table) return std::nullopt;
  std::error_code ignored;  // a read-only folder only forgets which file was used last
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return PackedBytes{{file, packed.data()}, packed.size()};
}

Status PackCache::MakeRoom(uint64_t needed) const {
  std::vector<CacheFile> files = FilesIn(folder_);
  uint64_t held = 0;
  std::erase_if(files, [](const CacheFile& file) {
    std::error_code error;
    return Abandoned(file) && fs::remove(file.path, error);
  });
  for (const CacheFile& file : files) held += file.size;
  std::error_code error;
  const fs::space_info space = fs::space(folder_, error);
  if (error) return InputError("{}: {}", folder_.string(), error.message());
  const uint64_t most = std::min(most_bytes_, (space.available + held) / 4);
  if (needed > most)
    return InputError("{}: {} bytes are more than the {} that the cache may have here",
                      folder_.string(), needed, most);
  for (auto file = files.begin(); file != files.end() && held + needed > most; ++file) {
    if (file->name.hash) continue;  // the smallest, and of use
    // A process that has it mapped keeps its bytes.
    if (fs::remove(file->path, error)) held -= file->size;
  }
  return {};
}

Status PackCache::Store(const ContentHash& key, const PackedBytes& bytes, ThreadPool& pool) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return InputError("{}: cannot be created: {}", folder_.string(), error.message());
  const std::span<const std::byte> packed(bytes.data.get(), bytes.size);
  const std::vector<uint64_t> table = HashPieces(packed, pool);
  const PackCacheHeader header = HeaderOf(key, bytes.size, table);
  LS_RETURN_IF_ERROR(MakeRoom(header.begin + header.size));
  const std::vector<std::byte> zeros(header.begin - sizeof header - table.size() * 8);
  const std::span<const std::byte> chunks[] = {std::as_bytes(std::span(&header, 1)),
                                               std::as_bytes(std::span(table)), zeros, packed};
  return WriteFileAtomically(FileOf(key), chunks, Durability::kQuick);
}

PackedBytes PackOrLoad(const Packing& packing,
                       std::span<const std::shared_ptr<const MappedFile>> files, ThreadPool& pool,
                       PackedFrom& from) {
  from = {};
  const std::optional<fs::path> folder = PackCacheFolder();
  if (files.empty() || !folder || packing.size() < PackCache::kLeastBytes)
    return packing.Pack(pool);
  const PackCache cache(*folder);
  const std::optional<ContentHash> key = cache.KeyOf(packing, files, pool);
  if (!key) return packing.Pack(pool);
  from.file = cache.FileOf(*key);
  if (std::optional<PackedBytes> kept = cache.Load(*key, packing.size(), pool)) {
    from.cache = true;
    return *std::move(kept);
  }
  PackedBytes bytes = packing.Pack(pool);
  // What was hashed must be what was packed: a file that is written meanwhile would lend its name
  // to other weights.
  for (const auto& file : files) {
    if (file->Unchanged()) continue;
    from.file.clear();
    from.note = fmt::format(
        "{}: changed while it was read, so that its weights may be a mixture; start again once it "
        "is whole",
        file->path().string());
    return bytes;
  }
  if (const Status stored = cache.Store(*key, bytes, pool); !stored) {
    from.file.clear();
    from.note = fmt::format(
        "packed weights could not be kept for the next start ({}); LOCKSTEP_CACHE names another "
        "folder, or \"off\"",
        stored.error().message);
  }
  return bytes;
}

}  // namespace lockstep
