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

Status CheckWritable(const TensorToWrite& tensor, std::string_view place) {
  LS_CHECK(tensor.type != nullptr);
  if (DtypeRank(tensor.type->name) == kDtypeOrder.size())
    return UnsupportedError("{}: tensor {} is {}, which safetensors has no name for", place,
                            Quoted(tensor.name), tensor.type->name);
  if (tensor.name == "__metadata__" || FindUtf8Fault(tensor.name))
    return InputError("{}: a tensor cannot be named {}", place, Quoted(tensor.name));
  LS_TRY(const int64_t bytes, StoredBytes(*tensor.type, tensor.shape, place, tensor.name));
  if (static_cast<uint64_t>(bytes) != tensor.bytes.size())
    return InputError("{}: tensor {} of {} {} needs {} bytes, found {}", place, Quoted(tensor.name),
                      tensor.type->name, ShapeText(tensor.shape), bytes, tensor.bytes.size());
  return {};
}

}  // namespace

Status WriteSafetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                        const std::map<std::string, std::string>& metadata) {
  const std::string place = path.string();
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) {
    LS_RETURN_IF_ERROR(CheckWritable(tensor, place));
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    const size_t rank_a = DtypeRank(a->type->name), rank_b = DtypeRank(b->type->name);
    return rank_a != rank_b ? rank_a > rank_b : a->name < b->name;
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
  for (const TensorToWrite* tensor : order) {
    Json entry = Json::object();
    entry["dtype"] = tensor->type->name;
    entry["shape"] = std::vector<int64_t>(tensor->shape.begin(), tensor->shape.end());
    entry["data_offsets"] = {position, position + tensor->bytes.size()};
    append(tensor->name, entry);
    names.push_back(tensor->name);
    position += tensor->bytes.size();
  }
  text += '}';
  std::sort(names.begin(), names.end());
  if (const auto twin = std::adjacent_find(names.begin(), names.end()); twin != names.end())
    return InputError("{}: tensor {} is given twice, expected each name once", place,
                      Quoted(*twin));

  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begin at a multiple of 8
  const uint64_t header_bytes = text.size();
  std::vector<std::span<const std::byte>> chunks = {std::as_bytes(std::span(&header_bytes, 1)),
                                                    std::as_bytes(std::span(text))};
  for (const TensorToWrite* tensor : order) chunks.push_back(tensor->bytes);
  return WriteFileAtomically(path, chunks);
}

}  // namespace lockstep
