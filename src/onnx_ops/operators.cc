#include "onnx_ops/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

DType DTypeOf(OnnxType type) {
  switch (type) {
    case OnnxType::kFloat:
      return DType::kF32;
    case OnnxType::kFloat16:
      return DType::kF16;
    case OnnxType::kBFloat16:
      return DType::kBF16;
    case OnnxType::kDouble:
      return DType::kF64;
    case OnnxType::kInt64:
      return DType::kI64;
    case OnnxType::kInt32:
      return DType::kI32;
    case OnnxType::kInt8:
      return DType::kI8;
    default:
      LS_CHECK(type == OnnxType::kUInt8, "type {}", static_cast<int>(type));
      return DType::kU8;
  }
}

template <typename T>
const T* AttributeOf(const OpCall& call, std::string_view name) {
  const auto it = call.attributes.find(name);
  return it == call.attributes.end() ? nullptr : std::get_if<T>(&it->second);
}

}  // namespace

std::string PlaceOf(const OpCall& call) {
  return fmt::format("node {} ({})", Quoted(call.name), OneLine(call.op, 48));
}

OpRefusal MakeRefusal(const OpCall& call, OpRefusal::Kind kind, OrtError error, std::string danger,
                      const std::string& sentence) {
  return {.kind = kind,
          .error = error,
          .danger = std::move(danger),
          .sentence = fmt::format("{}: {}", PlaceOf(call), sentence)};
}

const OpTensor* In(const OpCall& call, size_t slot) {
  return slot < call.inputs.size() && call.inputs[slot] ? &*call.inputs[slot] : nullptr;
}

int64_t IntOf(const OpCall& call, std::string_view attribute, int64_t otherwise) {
  const auto* value = AttributeOf<int64_t>(call, attribute);
  return value == nullptr ? otherwise : *value;
}
float FloatOf(const OpCall& call, std::string_view attribute, float otherwise) {
  const auto* value = AttributeOf<float>(call, attribute);
  return value == nullptr ? otherwise : *value;
}
std::string StringOf(const OpCall& call, std::string_view attribute, std::string_view otherwise) {
  const auto* value = AttributeOf<std::string>(call, attribute);
  return value == nullptr ? std::string(otherwise) : *value;
}
bool HasAttribute(const OpCall& call, std::string_view attribute) {
  return call.attributes.find(attribute) != call.attributes.end();
}
bool Wanted(const OpCall& call, size_t output) {
  return output < call.outputs.size() && call.outputs[output];
}

std::string ShapeText(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t ElementsOf(const Shape& shape) {
  int64_t elements = 1;
  for (const int64_t dim : shape) elements *= dim;
  return elements;
}

bool KnownValues(const OpTensor& tensor) {
  return !tensor.bytes.empty() ||
         std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
}

Refusal HasShape(const OpCall& call, size_t slot, std::string_view name, const Shape& expected) {
  const OpTensor* tensor = In(call, slot);
  if (tensor == nullptr || tensor->shape == expected) return {};
  return BadArgument(call, "{} has the shape {}, expected {}; write it so", name,
                     ShapeText(tensor->shape), ShapeText(expected));
}

Refusal NoBFloat16(const OpCall& call) {
  if (In(call, 0)->type != OnnxType::kBFloat16) return {};
  return MakeRefusal(call, OpRefusal::Kind::kLoad, OrtError::kNotImplemented, "",
                     "the first input is bfloat16, but the CPU has kernels for float and float16; "
                     "convert it");
}

std::vector<float> FloatsOf(const OpTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(ElementsOf(tensor.shape)));
  ConvertToFloat(DTypeOf(tensor.type), tensor.bytes.data(), values.size(), values.data());
  return values;
}

std::vector<double> DoublesOf(const OpTensor& tensor) {
  std::vector<double> values(static_cast<size_t>(ElementsOf(tensor.shape)));
  ConvertToDouble(DTypeOf(tensor.type), tensor.bytes.data(), values.size(), values.data());
  return values;
}

std::vector<int64_t> IntegersOf(const OpTensor& tensor) {
  const auto n = static_cast<size_t>(ElementsOf(tensor.shape));
  std::vector<int64_t> values(n);
  if (tensor.type == OnnxType::kInt64) {
    if (n > 0) std::memcpy(values.data(), tensor.bytes.data(), n * sizeof(int64_t));
    return values;
  }
  LS_CHECK(tensor.type == OnnxType::kInt32, "type {}", static_cast<int>(tensor.type));
  for (size_t i = 0; i < n; ++i) {
    int32_t x;
    std::memcpy(&x, tensor.bytes.data() + i * sizeof x, sizeof x);
    values[i] = x;
  }
  return values;
}

std::span<const uint8_t> BytesOf(const OpTensor& tensor) {
  return {reinterpret_cast<const uint8_t*>(tensor.bytes.data()), tensor.bytes.size()};
}

float RoundTo(OnnxType type, float x) {
  if (type == OnnxType::kFloat16) return ToFloat(ToFloat16(x));
  if (type == OnnxType::kBFloat16) return ToFloat(ToBFloat16(x));
  return x;
}

OpValue ValueOf(OnnxType type, Shape shape, std::span<const float> values) {
  OpValue out{.type = type, .shape = std::move(shape), .bytes = {}};
  out.bytes.resize(values.size() * static_cast<size_t>(OnnxTypeBits(type)) / 8);
  const auto store = [&](auto convert) {
    std::byte* to = out.bytes.data();
    for (const float x : values) {
      const auto y = convert(x);
      std::memcpy(to, &y, sizeof y);
      to += sizeof y;
    }
  };
  switch (type) {
    case OnnxType::kFloat16:
      store([](float x) { return ToFloat16(x); });
      break;
    case OnnxType::kBFloat16:
      store([](float x) { return ToBFloat16(x); });
      break;
    case OnnxType::kDouble:
      store([](float x) { return static_cast<double>(x); });
      break;
    case OnnxType::kInt8:
      store([](float x) { return static_cast<int8_t>(x); });
      break;
    default:
      LS_CHECK(type == OnnxType::kFloat, "type {}", static_cast<int>(type));
      store([](float x) { return x; });
  }
  return out;
}

void ForEach(ThreadPool* pool, size_t n, const std::function<void(size_t)>& fn) {
  if (pool != nullptr) return pool->For(n, fn);
  for (size_t i = 0; i < n; ++i) fn(i);
}

double Dot(const float* a, const float* b, int64_t n) {
  // Four sums, so that additions need not wait for each other; the order is fixed.
  double sum[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; ++j) sum[j] += static_cast<double>(a[i + j]) * b[i + j];
  for (; i < n; ++i) sum[0] += static_cast<double>(a[i]) * b[i];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

void RoundToInt8(std::span<float> row, int64_t block) {
  for (size_t at = 0; at < row.size(); at += static_cast<size_t>(block)) {
    const auto part = row.subspan(at, std::min(static_cast<size_t>(block), row.size() - at));
    float most = 0;
    for (const float x : part) most = std::max(most, std::abs(x));
    const float scale = most / 127.0f;
    const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
    for (float& x : part) x = std::nearbyint(x * inverse) * scale;
  }
}

}  // namespace lockstep
