#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>

#include "base/utf8.h"
#include "formats/describe.h"
#include "formats/gguf_cursor.h"

namespace lockstep {
namespace {

constexpr uint32_t kMaxRank = 4;            // GGML_MAX_DIMS
constexpr size_t kMaxKeyBytes = 65535;      // the specification's limit
constexpr uint64_t kMaxValues = 100'000;    // real files have fewer than a hundred
constexpr uint64_t kDefaultAlignment = 32;  // GGUF_DEFAULT_ALIGNMENT

// The smallest key-value: an empty key's length, a type, one byte. The smallest directory entry:
// an empty name's length, no dimensions, a type and an offset. Counts are checked against them
// before anything is reserved.
constexpr uint64_t kMinValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

struct Header {
  uint32_t version = 0;
  uint64_t num_tensors = 0;
  uint64_t num_values = 0;
};

Result<Header> ReadHeader(GgufCursor& in) {
  Header header;
  LS_TRY(const uint32_t magic, in.Read<uint32_t>("the magic number"));
  (void)magic;
  LS_TRY(header.version, in.Read<uint32_t>("the version"));
  if (header.version == 1)
    return UnsupportedError("{}: GGUF version 1, expected 2 or 3 (convert it again)", in.place());
  if (header.version != 2 && header.version != 3) {
    const uint32_t swapped = __builtin_bswap32(header.version);
    if (swapped >= 1 && swapped <= 3)
      return UnsupportedError(
          "{}: a big-endian GGUF (version {}), expected little-endian (convert it with "
          "gguf_convert_endian.py)",
          in.place(), swapped);
    return UnsupportedError("{}: GGUF version {}, expected 2 or 3", in.place(), header.version);
  }
  LS_TRY(header.num_tensors, in.Read<uint64_t>("the number of tensors"));
  LS_TRY(header.num_values, in.Read<uint64_t>("the number of key-values"));
  if (header.num_values > in.left() / kMinValueBytes)
    return InputError("{}: {} key-values are announced but the file has only {} bytes left",
                      in.place(), header.num_values, in.left());
  if (header.num_tensors > in.left() / kMinTensorBytes)
    return InputError("{}: {} tensors are announced but the file has only {} bytes left",
                      in.place(), header.num_tensors, in.left());
  if (header.num_values > kMaxValues || header.num_tensors > kMaxTensors)
    return InputError("{}: {} key-values and {} tensors are announced, expected at most {} and {}",
                      in.place(), header.num_values, header.num_tensors, kMaxValues, kMaxTensors);
  return header;
}

Status ReadMetadata(GgufCursor& in, uint64_t count, GgufMetadata& metadata) {
  for (uint64_t i = 0; i < count; ++i) {
    LS_TRY(const std::string_view key, in.ReadString(fmt::format("key {}", i)));
    if (key.size() > kMaxKeyBytes || FindUtf8Fault(key))
      return InputError("{}: key {} is {}, expected at most {} bytes of UTF-8", in.place(), i,
                        Quoted(key), kMaxKeyBytes);
    LS_TRY(GgufValue value, in.ReadValue(key));
    if (!metadata.mutable_values().emplace(key, value).second)
      return InputError("{}: key {} is given twice, expected each key once", in.place(),
                        Quoted(key));
  }
  return {};
}

Result<uint64_t> ReadAlignment(const GgufMetadata& metadata, std::string_view place) {
  const GgufValue* value = metadata.Find("general.alignment");
  if (value == nullptr) return kDefaultAlignment;
  const auto alignment = value->AsInt();
  if (!alignment || *alignment <= 0 || !std::has_single_bit(static_cast<uint64_t>(*alignment)))
    return InputError("{}: general.alignment is {}, expected a power of two", place,
                      OneLine(value->ToJson().dump(), 80));
  return static_cast<uint64_t>(*alignment);
}

struct Placed {
  TensorInfo info;
  uint64_t offset = 0;  // into the data
  uint64_t size = 0;
};

Result<Placed> ReadTensor(GgufCursor& in, uint64_t index) {
  Placed tensor;
  LS_TRY(const std::string_view name, in.ReadString(fmt::format("the name of tensor {}", index)));
  if (FindUtf8Fault(name))
    return InputError("{}: tensor {} is named {}, expected UTF-8", in.place(), index, Quoted(name));
  tensor.info.name = name;
  LS_TRY(const uint32_t rank, in.Read<uint32_t>("a number of dimensions"));
  if (rank > kMaxRank)
    return InputError("{}: tensor {} has {} dimensions, expected at most {}", in.place(),
                      Quoted(name), rank, kMaxRank);
  for (uint32_t i = 0; i < rank; ++i) {
    LS_TRY(const uint64_t dimension, in.Read<uint64_t>("a dimension"));
    if (dimension > static_cast<uint64_t>(INT64_MAX))
      return InputError("{}: tensor {} has a dimension of {}, expected below 2^63", in.place(),
                        Quoted(name), dimension);
    tensor.info.shape.push_back(static_cast<int64_t>(dimension));
  }
  // ggml counts from the innermost dimension.
  std::reverse(tensor.info.shape.begin(), tensor.info.shape.end());
  LS_TRY(const uint32_t type, in.Read<uint32_t>("a tensor's type"));
  tensor.info.type = FindGgmlType(type);
  if (tensor.info.type == nullptr)
    return UnsupportedError(
        "{}: tensor {} has ggml type {}, which is not among those known to Lockstep", in.place(),
        Quoted(name), type);
  LS_TRY(const int64_t bytes, StoredBytes(*tensor.info.type, tensor.info.shape, in.place(), name));
  tensor.size = static_cast<uint64_t>(bytes);
  LS_TRY(tensor.offset, in.Read<uint64_t>("a tensor's offset"));
  return tensor;
}

// Binds every tensor to its bytes: aligned, inside the file, apart from all others.
Status PlaceTensors(std::span<const std::byte> bytes, uint64_t data_begin, uint64_t alignment,
                    std::string_view place, std::span<Placed> tensors) {
  for (Placed& tensor : tensors) {
    const std::string& name = tensor.info.name;
    if (tensor.offset % alignment != 0)
      return InputError("{}: tensor {} lies at offset {}, expected a multiple of {}", place,
                        Quoted(name), tensor.offset, alignment);
    const uint64_t available = bytes.size() > data_begin ? bytes.size() - data_begin : 0;
    if (tensor.offset > available || tensor.size > available - tensor.offset)
      return InputError(
          "{}: tensor {} has {} bytes at offset {} of the data but the file has only {} there "
          "(download incomplete?)",
          place, Quoted(name), tensor.size, tensor.offset,
          tensor.offset > available ? 0 : available - tensor.offset);
    if (tensor.size > 0) tensor.info.data = bytes.subspan(data_begin + tensor.offset, tensor.size);
  }
  std::vector<const Placed*> order;
  for (const Placed& tensor : tensors)
    if (tensor.size > 0) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const Placed* a, const Placed* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Placed& before = *order[i - 1];
    if (before.offset + before.size > order[i]->offset)
      return InputError(
          "{}: tensors {} and {} overlap: the first ends at offset {}, the second "
          "begins at {}",
          place, Quoted(before.info.name), Quoted(order[i]->info.name), before.offset + before.size,
          order[i]->offset);
  }
  return {};
}

}  // namespace

Result<GgufFile> ParseGguf(std::span<const std::byte> bytes, std::string_view place) {
  if (!LooksLikeGguf(bytes))
    return InputError("{}: expected a GGUF file, found {}", place, DescribeContent(bytes));
  GgufCursor in(bytes, place);
  LS_TRY(const Header header, ReadHeader(in));
  GgufFile file;
  file.version = header.version;
  LS_RETURN_IF_ERROR(ReadMetadata(in, header.num_values, file.metadata));
  LS_TRY(file.alignment, ReadAlignment(file.metadata, place));

  std::vector<Placed> tensors;
  tensors.reserve(std::min(header.num_tensors, in.left() / kMinTensorBytes));
  for (uint64_t i = 0; i < header.num_tensors; ++i) {
    LS_TRY(Placed tensor, ReadTensor(in, i));
    tensors.push_back(std::move(tensor));
  }
  // Rounding up cannot wrap: the position is at most the file's size, the alignment below 2^63.
  const uint64_t data_begin = (in.position() + file.alignment - 1) & ~(file.alignment - 1);
  LS_RETURN_IF_ERROR(PlaceTensors(bytes, data_begin, file.alignment, place, tensors));

  file.tensors.reserve(tensors.size());
  for (Placed& tensor : tensors) file.tensors.push_back(std::move(tensor.info));
  LS_RETURN_IF_ERROR(SortByName(file.tensors, place));
  return file;
}

}  // namespace lockstep
