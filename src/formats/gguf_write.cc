#include "formats/gguf_write.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/utf8.h"
#include "formats/describe.h"

namespace lockstep {
namespace {

constexpr uint64_t kAlignment = 32;   // GGUF_DEFAULT_ALIGNMENT; other values need a key
constexpr size_t kMaxNameBytes = 63;  // GGML_MAX_NAME with its final zero
constexpr size_t kMaxRank = 4;        // GGML_MAX_DIMS
constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void AppendString(std::string& out, std::string_view text) {
  Append(out, uint64_t{text.size()});
  out += text;
}

uint64_t Aligned(uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

void AppendValue(std::string& out, const GgufValues::Entry& entry) {
  AppendString(out, entry.key);
  Append(out, static_cast<uint32_t>(entry.value.type));
  if (entry.value.type == GgufType::kArray) {
    Append(out, static_cast<uint32_t>(entry.value.element_type));
    Append(out, uint64_t{entry.value.count});
  } else if (entry.value.type == GgufType::kString) {
    Append(out, uint64_t{entry.bytes.size()});
  }
  out += entry.bytes;
}

Result<uint64_t> DataBytes(const StreamedTensor& tensor, std::string_view place) {
  LS_CHECK(tensor.type != nullptr);
  if (!tensor.type->ggml_type)
    return UnsupportedError("{}: tensor {} is {}, which GGUF has no number for", place,
                            Quoted(tensor.name), tensor.type->name);
  if (tensor.name.size() > kMaxNameBytes || FindUtf8Fault(tensor.name))
    return InputError("{}: a tensor cannot be named {}, expected at most {} bytes of UTF-8", place,
                      Quoted(tensor.name), kMaxNameBytes);
  if (tensor.shape.size() > kMaxRank)
    return InputError("{}: tensor {} has {} dimensions, expected at most {}", place,
                      Quoted(tensor.name), tensor.shape.size(), kMaxRank);
  LS_TRY(const int64_t bytes, StoredBytes(*tensor.type, tensor.shape, place, tensor.name));
  return static_cast<uint64_t>(bytes);
}

}  // namespace

Status WriteGguf(const std::filesystem::path& path, const GgufValues& values,
                 std::span<const StreamedTensor> tensors, const FillRows& fill,
                 const WriteProgress& progress) {
  const std::string place = path.string();
  // The magic comes last: what a kill leaves is no GGUF.
  std::string head(kMagic.size(), '\0');
  Append(head, kVersion);
  Append(head, uint64_t{tensors.size()});
  Append(head, uint64_t{values.entries().size()});
  for (const GgufValues::Entry& entry : values.entries()) AppendValue(head, entry);

  std::set<std::string_view> names;
  std::vector<uint64_t> sizes;
  uint64_t offset = 0, total = 0;
  for (const StreamedTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      return InputError("{}: tensor {} is given twice, expected each name once", place,
                        Quoted(tensor.name));
    LS_TRY(const uint64_t bytes, DataBytes(tensor, place));
    AppendString(head, tensor.name);
    Append(head, static_cast<uint32_t>(tensor.shape.size()));
    // ggml counts from the innermost dimension.
    for (auto it = tensor.shape.rbegin(); it != tensor.shape.rend(); ++it)
      Append(head, static_cast<uint64_t>(*it));
    Append(head, static_cast<uint32_t>(*tensor.type->ggml_type));
    Append(head, offset);
    sizes.push_back(bytes);
    offset += Aligned(bytes);
    total += bytes;
  }
  head.resize(Aligned(head.size()), '\0');

  LS_TRY(AtomicFile file, AtomicFile::Create(path));
  LS_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(head))));
  uint64_t done = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    LS_RETURN_IF_ERROR(StreamTensor(file, tensors[i], i, fill, progress, done, total));
    // The last one is padded too: llama.cpp's reader wants the padding in the file.
    LS_RETURN_IF_ERROR(file.WriteZeros(Aligned(sizes[i]) - sizes[i]));
  }
  LS_RETURN_IF_ERROR(file.Overwrite(0, std::as_bytes(std::span(kMagic))));
  return file.Commit();
}

}  // namespace lockstep
