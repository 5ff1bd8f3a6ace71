#include "formats/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/json.h"
#include "base/utf8.h"
#include "formats/describe.h"

namespace lockstep {
namespace {

// The limit of the format's own implementation.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxRank = 8;

// An entry of the directory before its offsets are checked against the others'.
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
};

std::string DtypeNames() {
  std::string names;
  for (const TensorType& type : TensorTypes())
    if (type.plain()) names += fmt::format("{}{}", names.empty() ? "" : ", ", type.name);
  return names;
}

// [2] or [n] of non-negative integers; absent when it is anything else or longer than `limit`.
std::optional<std::vector<int64_t>> Integers(const simdjson::dom::element& element, size_t limit) {
  simdjson::dom::array array;
  if (element.get(array) != simdjson::SUCCESS || array.size() > limit) return std::nullopt;
  std::vector<int64_t> out;
  out.reserve(array.size());
  for (const simdjson::dom::element item : array) {
    int64_t x = 0;
    if (item.get(x) != simdjson::SUCCESS || x < 0) return std::nullopt;
    out.push_back(x);
  }
  return out;
}

// Reads one `"name": {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}`.
Status ReadEntry(std::string_view name, const simdjson::dom::element& element,
                 std::string_view place, TensorInfo& info, Range& range) {
  const auto expected = [&](std::string_view what) {
    return InputError("{}: tensor {}: expected {}", place, Quoted(name), what);
  };
  simdjson::dom::object object;
  if (element.get(object) != simdjson::SUCCESS)
    return expected("an object with dtype, shape and data_offsets");
  bool has_dtype = false, has_shape = false, has_offsets = false;
  for (const auto [key, value] : object) {
    if (key == "dtype") {
      std::string_view dtype;
      if (has_dtype || value.get(dtype) != simdjson::SUCCESS)
        return expected("one dtype, a string");
      has_dtype = true;
      info.type = FindTensorType(dtype);
      if (info.type == nullptr || !info.type->plain())
        return UnsupportedError("{}: tensor {} has dtype {}, expected one of {}", place,
                                Quoted(name), Quoted(dtype), DtypeNames());
    } else if (key == "shape") {
      auto shape = Integers(value, kMaxRank);
      if (has_shape || !shape)
        return expected(fmt::format("one shape, at most {} integers from 0 to 2^63-1", kMaxRank));
      has_shape = true;
      info.shape = *std::move(shape);
    } else if (key == "data_offsets") {
      const auto offsets = Integers(value, 2);
      if (has_offsets || !offsets || offsets->size() != 2)
        return expected("one data_offsets, two integers from 0 to 2^63-1");
      has_offsets = true;
      range = {static_cast<uint64_t>((*offsets)[0]), static_cast<uint64_t>((*offsets)[1])};
    }
  }
  if (!has_dtype || !has_shape || !has_offsets)
    return expected("dtype, shape and data_offsets; one is missing");
  return {};
}

Status ReadMetadata(const simdjson::dom::element& element, std::string_view place,
                    std::map<std::string, std::string>& metadata) {
  simdjson::dom::object object;
  if (element.get(object) != simdjson::SUCCESS)
    return InputError("{}: __metadata__: expected an object of strings", place);
  for (const auto [key, value] : object) {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS)
      return InputError("{}: __metadata__: {} is not a string, expected an object of strings",
                        place, Quoted(key));
    if (!metadata.emplace(key, text).second)
      return InputError("{}: __metadata__: {} is given twice", place, Quoted(key));
  }
  return {};
}

// The directory must cover the data exactly: in order of their offsets each tensor begins where the
// one before ended. A hole could hide bytes, an overlap makes two tensors one.
Status PlaceTensors(std::span<const std::byte> data, uint64_t data_begin, std::string_view place,
                    std::span<const Range> ranges, std::vector<TensorInfo>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(ranges[a].begin, ranges[a].end) < std::tie(ranges[b].begin, ranges[b].end);
  });
  uint64_t position = 0;
  for (const size_t i : order) {
    TensorInfo& tensor = tensors[i];
    const auto [begin, end] = ranges[i];
    if (begin > end)
      return InputError("{}: tensor {} ends at byte {} of the data, before its begin at {}", place,
                        Quoted(tensor.name), end, begin);
    if (end > data.size())
      return InputError("{}: tensor {} ends at byte {} but the file has {} (download incomplete?)",
                        place, Quoted(tensor.name), data_begin + end, data_begin + data.size());
    LS_TRY(const int64_t bytes, StoredBytes(*tensor.type, tensor.shape, place, tensor.name));
    if (static_cast<uint64_t>(bytes) != end - begin)
      return InputError("{}: tensor {} of {} {} needs {} bytes but its data_offsets span {}", place,
                        Quoted(tensor.name), tensor.type->name, ShapeText(tensor.shape), bytes,
                        end - begin);
    if (begin != position)
      return InputError("{}: tensor {} begins at byte {} of the data, expected {} ({})", place,
                        Quoted(tensor.name), begin, position,
                        begin < position ? "it overlaps another tensor" : "a hole lies before it");
    tensor.data = data.subspan(begin, end - begin);
    position = end;
  }
  if (position != data.size())
    return InputError("{}: the last tensor ends at byte {} but the file has {}", place,
                      data_begin + position, data_begin + data.size());
  return {};
}

// simdjson says what is wrong but not where; a header of ordinary size is read again to find it.
tl::unexpected<Error> JsonFault(std::string_view text, std::string_view place,
                                simdjson::error_code code) {
  constexpr size_t kReadable = 4 << 20;
  if (text.size() <= kReadable) {
    if (auto json = ParseJson(text, place); !json) return tl::unexpected(std::move(json).error());
  }
  return InputError("{}: not valid JSON: {}", place, simdjson::error_message(code));
}

}  // namespace

const TensorInfo* SafetensorsFile::Find(std::string_view name) const {
  const auto it = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorInfo& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

Result<SafetensorsFile> ParseSafetensors(std::span<const std::byte> bytes, std::string_view place) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes + 1 || !LooksLikeSafetensors(bytes)) {
    if (bytes.size() >= 9 && bytes[8] == std::byte{'{'}) {
      std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
      return InputError("{}: the header says {} bytes, expected at most {}", place, header_bytes,
                        kMaxHeaderBytes);
    }
    return InputError("{}: expected a safetensors file, found {}", place, DescribeContent(bytes));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes)
    return InputError("{}: the header says {} bytes, expected at most {}", place, header_bytes,
                      kMaxHeaderBytes);
  if (header_bytes > bytes.size() - sizeof header_bytes)
    return InputError("{}: the header ends at byte {} but the file has {} (download incomplete?)",
                      place, sizeof header_bytes + header_bytes, bytes.size());

  const auto header = bytes.subspan(sizeof header_bytes, header_bytes);
  const std::span<const std::byte> data = bytes.subspan(sizeof header_bytes + header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  const std::string header_place = fmt::format("{}: header", place);
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(text);
  simdjson::dom::element root;
  if (const auto code = parser.parse(padded).get(root); code != simdjson::SUCCESS)
    return JsonFault(text, header_place, code);
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS)
    return InputError("{}: expected a JSON object", header_place);

  SafetensorsFile file;
  std::vector<Range> ranges;
  const size_t entries = std::min<size_t>(object.size(), kMaxTensors);
  file.tensors.reserve(entries);
  ranges.reserve(entries);
  bool has_metadata = false;
  for (const auto [key, value] : object) {
    if (key == "__metadata__") {
      if (std::exchange(has_metadata, true))
        return InputError("{}: __metadata__ is given twice", header_place);
      LS_RETURN_IF_ERROR(ReadMetadata(value, header_place, file.metadata));
      continue;
    }
    if (file.tensors.size() == kMaxTensors)
      return InputError("{}: lists more tensors than {}, the most Lockstep expects", header_place,
                        kMaxTensors);
    TensorInfo& info = file.tensors.emplace_back();
    info.name = key;
    LS_RETURN_IF_ERROR(ReadEntry(key, value, place, info, ranges.emplace_back()));
  }
  LS_RETURN_IF_ERROR(
      PlaceTensors(data, sizeof header_bytes + header_bytes, place, ranges, file.tensors));
  LS_RETURN_IF_ERROR(SortByName(file.tensors, place));
  return file;
}

Result<SafetensorsFile> OpenSafetensors(const std::filesystem::path& path) {
  LS_TRY(auto mapped, MappedFile::Open(path));
  LS_TRY(SafetensorsFile file, ParseSafetensors(mapped->bytes(), path.string()));
  file.file = std::move(mapped);
  return file;
}

}  // namespace lockstep
