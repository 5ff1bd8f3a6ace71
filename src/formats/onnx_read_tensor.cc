// The tensors of an ONNX file: their three ways to keep numbers become one span of bytes.
#include <algorithm>
#include <charconv>

#include "base/quoted.h"
#include "formats/onnx_read.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Little-endian bytes of the low `width` bytes of each number.
std::vector<std::byte> Narrow(std::span<const int64_t> numbers, size_t width) {
  std::vector<std::byte> out;
  out.reserve(numbers.size() * width);
  for (const int64_t x : numbers)
    for (size_t i = 0; i < width; ++i)
      out.push_back(static_cast<std::byte>(static_cast<uint64_t>(x) >> 8 * i & 255));
  return out;
}

// Which typed field holds elements of this type (onnx.proto, TensorProto).
uint32_t TypedFieldOf(OnnxType type) {
  switch (type) {
    case OnnxType::kFloat:
      return kTensorFloats;
    case OnnxType::kInt64:
      return kTensorInt64s;
    case OnnxType::kDouble:
      return kTensorDoubles;
    case OnnxType::kUInt32:
    case OnnxType::kUInt64:
      return kTensorUInt64s;
    default:
      return kTensorInt32s;
  }
}

Result<int64_t> CountElements(std::span<const int64_t> dims) {
  int64_t elements = 1;
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0) return InputError("has a dimension {}, expected 0 or more", dim);
    if (dim == 0) empty = true;
    // 2^48 elements are more than any file holds; bits still fit 63.
    else if (elements > (int64_t{1} << 48) / dim)
      return InputError("has more elements than any file ({} dimensions)", dims.size());
    else
      elements *= dim;
  }
  return empty ? 0 : elements;
}

bool ParseNumber(std::string_view text, uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<std::pair<std::string, std::string>> ReadOnnxEntry(ProtoReader message) {
  std::pair<std::string, std::string> entry;
  while (!message.done()) {
    LS_TRY(const ProtoField field, message.Next());
    if (field.number > 2) continue;
    LS_RETURN_IF_ERROR(message.Expect(field, ProtoWire::kBytes, "a key or its value"));
    (field.number == 1 ? entry.first : entry.second) = field.text();
  }
  return entry;
}

Result<fs::path> PathInside(const fs::path& folder, std::string_view location,
                            std::string_view place) {
  const fs::path relative(location);
  if (location.empty() || location.find('\0') != std::string_view::npos || relative.is_absolute())
    return InputError("{}: external data lies at {}, expected a path inside the model's folder",
                      place, Quoted(location));
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return InputError("{}: cannot be examined: {}", folder.string(), error.message());
  const fs::path resolved = fs::weakly_canonical(root / relative, error);
  if (error)
    return InputError("{}: external data {} cannot be examined: {}", place, Quoted(location),
                      error.message());
  const fs::path inside = resolved.lexically_relative(root);
  if (inside.empty() || *inside.begin() == ".." || inside == ".")
    return InputError(
        "{}: external data lies at {}, which leads out of the model's folder: refused", place,
        Quoted(location));
  return resolved;
}

Result<OnnxTensor> OnnxReader::ReadTensor(ProtoReader message, const ProtoField& at) {
  OnnxTensor out;
  bool external = false, has_raw = false;
  uint32_t typed = 0;
  std::vector<int64_t> numbers;
  std::vector<std::byte> floats;
  std::vector<ProtoField> entries;
  while (!message.done()) {
    LS_TRY(const ProtoField field, message.Next());
    const auto expect = [&](ProtoWire wire) {
      return message.Expect(field, wire, "a part of a tensor");
    };
    switch (field.number) {
      case kTensorDims:
        LS_RETURN_IF_ERROR(message.Varints(field, "a tensor's dims", out.dims));
        break;
      case kTensorType:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kVarint));
        out.type = static_cast<OnnxType>(static_cast<int32_t>(field.value));
        break;
      case kTensorFloats:
      case kTensorDoubles:
        LS_RETURN_IF_ERROR(message.Fixed(field, field.number == kTensorFloats ? 4 : 8,
                                         "a tensor's numbers", floats));
        typed = field.number;
        break;
      case kTensorInt32s:
      case kTensorInt64s:
      case kTensorUInt64s:
        LS_RETURN_IF_ERROR(message.Varints(field, "a tensor's numbers", numbers));
        typed = field.number;
        break;
      case kTensorName:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kBytes));
        out.name = field.text();
        break;
      case kTensorRaw:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kBytes));
        out.bytes = field.bytes;
        out.offset = static_cast<uint64_t>(field.bytes.data() - bytes_.data());
        has_raw = true;
        break;
      case kTensorExternal:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kBytes));
        entries.push_back(field);
        break;
      case kTensorLocation:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kVarint));
        external = field.value == 1;
        break;
      default:
        break;
    }
  }
  const auto fail = [&](std::string_view text) {
    return message.FailAt(at, fmt::format("tensor {} {}", Quoted(out.name), text));
  };
  auto count = CountElements(out.dims);
  if (!count) return fail(count.error().message);
  out.elements = *count;
  if (out.type == OnnxType::kString) {  // no numbers
    out.bytes = {};
    return out;
  }
  const int bits = OnnxTypeBits(out.type);
  if (bits == 0)
    return fail(fmt::format("has {}, which is none of ONNX's", OnnxTypeName(out.type)));
  const uint64_t size = (static_cast<uint64_t>(out.elements) * static_cast<uint64_t>(bits) + 7) / 8;
  if (external) {
    LS_TRY(const External where, ReadExternal(message, entries));
    if (where.length.value_or(size) != size)
      return fail(fmt::format("has {} bytes of external data, expected {} for its type and shape",
                              *where.length, size));
    LS_TRY(out.file, FileOf(where.location, out.name));
    const auto file = model_.files_[out.file].bytes;
    if (where.offset > file.size() || size > file.size() - where.offset)
      return fail(
          fmt::format("lies at byte {} of {} and has {}, but the file has {} (download "
                      "incomplete?)",
                      where.offset, Quoted(where.location), size, file.size()));
    out.storage = OnnxTensor::Storage::kExternal;
    out.offset = where.offset;
    out.bytes = file.subspan(static_cast<size_t>(where.offset), static_cast<size_t>(size));
    return out;
  }
  if (!has_raw && (typed != 0 || size > 0)) {
    if (typed == 0) return fail(fmt::format("has no data, expected {} bytes", size));
    if (typed != TypedFieldOf(out.type))
      return fail(fmt::format("is {} but its numbers are in field {}, expected {}",
                              OnnxTypeName(out.type), typed, TypedFieldOf(out.type)));
    out.storage = OnnxTensor::Storage::kTyped;
    // A number of int32_data holds one element, or one byte of smaller ones.
    std::vector<std::byte> owned =
        floats.empty() ? Narrow(numbers, std::max<size_t>(1, size_t(bits) / 8)) : std::move(floats);
    out.owned = std::make_shared<const std::vector<std::byte>>(std::move(owned));
    out.bytes = *out.owned;
  }
  if (out.bytes.size() != size)
    return fail(
        fmt::format("has {} bytes, expected {} for its type and shape", out.bytes.size(), size));
  return out;
}

Result<OnnxReader::External> OnnxReader::ReadExternal(const ProtoReader& tensor,
                                                      const std::vector<ProtoField>& entries) {
  External out;
  for (const ProtoField& field : entries) {
    LS_TRY(const auto entry, ReadOnnxEntry(tensor.Inside(field)));
    const auto& [key, value] = entry;
    if (key == "location") out.location = value;
    if (key != "offset" && key != "length") continue;
    uint64_t number = 0;
    if (!ParseNumber(value, number))
      return tensor.FailAt(field, fmt::format("external data has {} {}, expected a number",
                                              Quoted(key), Quoted(value)));
    if (key == "offset")
      out.offset = number;
    else
      out.length = number;
  }
  return out;
}

Result<size_t> OnnxReader::FileOf(const std::string& location, std::string_view tensor) {
  for (size_t i = 1; i < model_.files_.size(); ++i)
    if (model_.files_[i].location == location) return i;
  const std::string place = fmt::format("{}: tensor {}", place_, Quoted(tensor));
  if (model_.path_.empty())
    return InputError("{}: lies in {}, and a model in memory has no files beside it", place,
                      Quoted(location));
  LS_TRY(const fs::path path, PathInside(model_.folder(), location, place));
  auto mapped = MappedFile::Open(path);
  if (!mapped) return tl::unexpected(std::move(mapped).error().In(place));
  model_.files_.push_back({location, (*mapped)->bytes(), *mapped});
  return model_.files_.size() - 1;
}

}  // namespace lockstep
