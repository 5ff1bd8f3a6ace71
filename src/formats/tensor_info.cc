#include "formats/tensor_info.h"

#include <algorithm>

#include "formats/describe.h"

namespace lockstep {

int64_t TensorInfo::elements() const {
  int64_t n = 1;
  for (const int64_t dimension : shape) n *= dimension;
  return n;
}

Result<int64_t> StoredBytes(const TensorType& type, std::span<const int64_t> shape,
                            std::string_view place, std::string_view name) {
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(elements, dimension, &elements))
      return InputError("{}: tensor {} has shape {}, expected a product below 2^63", place,
                        Quoted(name), ShapeText(shape));
  }
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (row % type.block_elements != 0)
    return InputError("{}: tensor {} has rows of {} elements, expected a multiple of {} for {}",
                      place, Quoted(name), row, type.block_elements, type.name);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / type.block_elements, type.block_bytes, &bytes))
    return InputError("{}: tensor {} has shape {} of {}, expected fewer than 2^63 bytes", place,
                      Quoted(name), ShapeText(shape), type.name);
  return bytes;
}

Status SortByName(std::vector<TensorInfo>& tensors, std::string_view place) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  const auto twin =
      std::adjacent_find(tensors.begin(), tensors.end(),
                         [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
  if (twin != tensors.end())
    return InputError("{}: tensor {} is given twice, expected each name once", place,
                      Quoted(twin->name));
  return {};
}

}  // namespace lockstep
