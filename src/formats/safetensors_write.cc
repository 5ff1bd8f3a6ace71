#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "formats/describe.h"
#include "formats/safetensors.h"

namespace lockstep {
namespace {

// The order of the `Dtype` enum of the safetensors crate, narrow to wide; its writer sorts by it,
// widest first. A dtype that stands later never has a smaller alignment.
constexpr std::array<std::string_view, 16> kDtypeOrder = {
    "BOOL", "U8",   "I8",  "F8_E5M2", "F8_E4M3", "F8_E8M0", "I16", "U16",
    "F16",  "BF16", "I32", "U32",     "F32",     "F64",     "I64", "U64"};

size_t DtypeRank(std::string_view name) {
  return static_cast<size_t>(std::find(kDtypeOrder.begin(), kDtypeOrder.end(), name) -
                             kDtypeOrder.begin());
}

// One row of the directory.
struct Entry {
  std::string_view name;
  const TensorType* type = nullptr;
  std::span<const int64_t> shape;
  uint64_t bytes = 0;
  size_t index = 0;  // among the tensors as they were given
};

Result<Entry> MakeEntry(std::string_view name, const TensorType* type,
                        std::span<const int64_t> shape, size_t index, std::string_view place) {
  LS_CHECK(type != nullptr);
  if (DtypeRank(type->name) == kDtypeOrder.size())
    return UnsupportedError("{}: tensor {} is {}, which safetensors has no name for", place,
                            Quoted(name), type->name);
  if (name == "__metadata__" || FindUtf8Fault(name))
    return InputError("{}: a tensor cannot be named {}", place, Quoted(name));
  LS_TRY(const int64_t bytes, StoredBytes(*type, shape, place, name));
  return Entry{name, type, shape, static_cast<uint64_t>(bytes), index};
}

// Sorts the entries as they will lie in the file.
Result<std::string> MakeHeader(std::vector<Entry>& entries,
                               const std::map<std::string, std::string>& metadata,
                               std::string_view place) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    const size_t rank_a = DtypeRank(a.type->name), rank_b = DtypeRank(b.type->name);
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
  // Written entry by entry: inserting into an ordered Json object is linear in its size.
  std::string text = "{";
  const auto append = [&text](std::string_view key, const Json& value) {
    if (text.size() > 1) text += ',';
    text += Json(key).dump() + ':' + value.dump();
  };
  if (!metadata.empty()) {
    for (const auto& [key, value] : metadata) {
      if (FindUtf8Fault(key) || FindUtf8Fault(value))
        return InputError("{}: metadata {} is not UTF-8", place, Quoted(key));
    }
    append("__metadata__", Json(metadata));
  }
  std::vector<std::string_view> names;
  uint64_t position = 0;
  for (const Entry& tensor : entries) {
    Json entry = Json::object();
    entry["dtype"] = tensor.type->name;
    entry["shape"] = std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end());
    entry["data_offsets"] = {position, position + tensor.bytes};
    append(tensor.name, entry);
    names.push_back(tensor.name);
    position += tensor.bytes;
  }
  text += '}';
  std::sort(names.begin(), names.end());
  if (const auto twin = std::adjacent_find(names.begin(), names.end()); twin != names.end())
    return InputError("{}: tensor {} is given twice, expected each name once", place,
                      Quoted(*twin));
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begin at a multiple of 8
  return text;
}

}  // namespace

Status WriteSafetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                        const std::map<std::string, std::string>& metadata) {
  const std::string place = path.string();
  std::vector<Entry> entries;
  for (const TensorToWrite& tensor : tensors) {
    LS_TRY(const Entry entry,
           MakeEntry(tensor.name, tensor.type, tensor.shape, entries.size(), place));
    if (entry.bytes != tensor.bytes.size())
      return InputError("{}: tensor {} of {} {} needs {} bytes, found {}", place,
                        Quoted(tensor.name), tensor.type->name, ShapeText(tensor.shape),
                        entry.bytes, tensor.bytes.size());
    entries.push_back(entry);
  }
  LS_TRY(const std::string text, MakeHeader(entries, metadata, place));
  const uint64_t header_bytes = text.size();
  std::vector<std::span<const std::byte>> chunks = {std::as_bytes(std::span(&header_bytes, 1)),
                                                    std::as_bytes(std::span(text))};
  for (const Entry& entry : entries) chunks.push_back(tensors[entry.index].bytes);
  return WriteFileAtomically(path, chunks);
}

Status StreamSafetensors(const std::filesystem::path& path, std::span<const StreamedTensor> tensors,
                         const FillRows& fill, const WriteProgress& progress,
                         const std::map<std::string, std::string>& metadata) {
  const std::string place = path.string();
  std::vector<Entry> entries;
  uint64_t total = 0, done = 0;
  for (const StreamedTensor& tensor : tensors) {
    LS_TRY(const Entry entry,
           MakeEntry(tensor.name, tensor.type, tensor.shape, entries.size(), place));
    entries.push_back(entry);
    total += entry.bytes;
  }
  LS_TRY(const std::string text, MakeHeader(entries, metadata, place));
  const uint64_t header_bytes = text.size();
  LS_TRY(AtomicFile file, AtomicFile::Create(path));
  LS_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(&header_bytes, 1))));
  LS_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text))));
  for (const Entry& entry : entries)
    LS_RETURN_IF_ERROR(
        StreamTensor(file, tensors[entry.index], entry.index, fill, progress, done, total));
  return file.Commit();
}

}  // namespace lockstep
