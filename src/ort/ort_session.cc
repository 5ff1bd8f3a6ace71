#include "ort/ort_session.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "base/dtype.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

constexpr int kErrors = 3;             // log severity
constexpr int kAllOptimizations = 99;  // what a deployed model runs with
constexpr auto kPoll = std::chrono::milliseconds(20);
constexpr const char* kExternalFolder = "session.model_external_initializers_file_folder_path";

struct TypeRow {
  OrtType type;
  std::string_view name;
  DType dtype;
};
constexpr TypeRow kTypes[] = {
    {OrtType::kFloat, "float", DType::kF32},        {OrtType::kUInt8, "uint8", DType::kU8},
    {OrtType::kInt8, "int8", DType::kI8},           {OrtType::kInt32, "int32", DType::kI32},
    {OrtType::kInt64, "int64", DType::kI64},        {OrtType::kBool, "bool", DType::kBool},
    {OrtType::kFloat16, "float16", DType::kF16},    {OrtType::kDouble, "double", DType::kF64},
    {OrtType::kBFloat16, "bfloat16", DType::kBF16},
};

const TypeRow* RowOf(OrtType type) {
  const auto* row =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& r) { return r.type == type; });
  return row == std::end(kTypes) ? nullptr : row;
}

// Releases when it goes out of scope.
template <typename T, typename Function>
class Holder {
 public:
  Holder(const OrtRuntime& runtime, Function release) : runtime_(runtime), release_(release) {}
  ~Holder() {
    if (object != nullptr) runtime_.Call(release_, object);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  T* object = nullptr;

 private:
  const OrtRuntime& runtime_;
  Function release_;
};

}  // namespace

size_t OrtTypeSize(OrtType type) {
  const TypeRow* row = RowOf(type);
  return row == nullptr ? 0 : DTypeSize(row->dtype);
}

std::string OrtTypeName(OrtType type) {
  const TypeRow* row = RowOf(type);
  return row == nullptr ? fmt::format("type {}", static_cast<int>(type)) : std::string(row->name);
}

void OrtTensor::Release::operator()(ort_abi::Value* value) const {
  runtime->Call(ort_abi::kReleaseValue, value);
}

Result<OrtTensor> OrtTensor::Adopt(std::shared_ptr<const OrtRuntime> runtime,
                                   ort_abi::Value* value) {
  OrtTensor out;
  const OrtRuntime& r = *runtime;
  out.value_ = {value, Release{std::move(runtime)}};
  if (value == nullptr) return InputError("ONNX Runtime gave no value");
  int is_tensor = 0;
  LS_RETURN_IF_ERROR(r.Try(ort_abi::kIsTensor, value, &is_tensor));
  if (is_tensor == 0) return InputError("expected a tensor, found a sequence or a map");
  Holder<ort_abi::ShapeInfo, decltype(ort_abi::kReleaseTensorTypeAndShapeInfo)> info(
      r, ort_abi::kReleaseTensorTypeAndShapeInfo);
  LS_RETURN_IF_ERROR(r.Try(ort_abi::kGetTensorTypeAndShape, value, &info.object));
  int type = 0;
  size_t rank = 0;
  LS_RETURN_IF_ERROR(r.Try(ort_abi::kGetTensorElementType, info.object, &type));
  LS_RETURN_IF_ERROR(r.Try(ort_abi::kGetDimensionsCount, info.object, &rank));
  out.type_ = static_cast<OrtType>(type);
  if (OrtTypeSize(out.type_) == 0)
    return UnsupportedError("a tensor of {}, expected floats, integers or booleans",
                            OrtTypeName(out.type_));
  out.shape_.resize(rank);
  if (rank > 0)
    LS_RETURN_IF_ERROR(r.Try(ort_abi::kGetDimensions, info.object, out.shape_.data(), rank));
  out.elements_ = 1;
  for (const int64_t dim : out.shape_) out.elements_ *= dim;
  out.size_ = static_cast<size_t>(out.elements_) * OrtTypeSize(out.type_);
  if (out.size_ == 0) return out;
  void* data = nullptr;
  LS_RETURN_IF_ERROR(r.Try(ort_abi::kGetTensorMutableData, value, &data));
  out.data_ = static_cast<std::byte*>(data);
  return out;
}

Result<OrtTensor> OrtTensor::Create(std::shared_ptr<const OrtRuntime> runtime, OrtType type,
                                    std::span<const int64_t> shape) {
  int64_t bytes = static_cast<int64_t>(OrtTypeSize(type));
  for (const int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes))
      return InputError("a tensor cannot have the shape [{}]", fmt::join(shape, ", "));
  ort_abi::Value* value = nullptr;
  LS_RETURN_IF_ERROR(runtime->Try(ort_abi::kCreateTensorAsOrtValue, runtime->allocator(),
                                  shape.data(), shape.size(), static_cast<int>(type), &value));
  LS_TRY(OrtTensor out, Adopt(std::move(runtime), value));
  if (out.size_ > 0) std::memset(out.data_, 0, out.size_);
  return out;
}

Result<OrtTensor> OrtTensor::OfInts(std::shared_ptr<const OrtRuntime> runtime, OrtType type,
                                    std::span<const int64_t> shape,
                                    std::span<const int64_t> values) {
  LS_TRY(OrtTensor out, Create(std::move(runtime), type, shape));
  LS_CHECK(out.elements_ == static_cast<int64_t>(values.size()), "{} values", values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == OrtType::kInt64) {
      std::memcpy(out.data_ + i * 8, &values[i], 8);
    } else if (type == OrtType::kInt32) {
      const auto narrow = static_cast<int32_t>(values[i]);
      std::memcpy(out.data_ + i * 4, &narrow, 4);
    } else {
      return UnsupportedError("integers as {}, expected int64 or int32", OrtTypeName(type));
    }
  }
  return out;
}

std::vector<float> OrtTensor::Floats(int64_t begin, int64_t count) const {
  LS_CHECK(begin >= 0 && count >= 0 && begin + count <= elements_, "{} + {} of {}", begin, count,
           elements_);
  std::vector<float> out(static_cast<size_t>(count));
  const TypeRow* row = RowOf(type_);
  if (row != nullptr && count > 0)
    ConvertToFloat(row->dtype, data_ + static_cast<size_t>(begin) * DTypeSize(row->dtype),
                   out.size(), out.data());
  return out;
}

template <typename Create>
Result<std::unique_ptr<OrtSession>> OrtSession::Open(std::shared_ptr<const OrtRuntime> runtime,
                                                     const OrtOptions& options,
                                                     const Create& create) {
  const OrtRuntime& r = *runtime;
  Holder<ort_abi::SessionOptions, decltype(ort_abi::kReleaseSessionOptions)> session_options(
      r, ort_abi::kReleaseSessionOptions);
  LS_RETURN_IF_ERROR(r.Try(ort_abi::kCreateSessionOptions, &session_options.object));
  ort_abi::SessionOptions* const o = session_options.object;
  LS_RETURN_IF_ERROR(r.Try(ort_abi::kSetSessionLogSeverityLevel, o, kErrors + 1));
  LS_RETURN_IF_ERROR(r.Try(ort_abi::kSetSessionGraphOptimizationLevel, o, kAllOptimizations));
  LS_RETURN_IF_ERROR(r.Try(ort_abi::kSetIntraOpNumThreads, o, options.threads));
  LS_RETURN_IF_ERROR(r.Try(ort_abi::kSetInterOpNumThreads, o, 1));
  for (const auto& [key, value] : options.config)
    LS_RETURN_IF_ERROR(r.Try(ort_abi::kAddSessionConfigEntry, o, key.c_str(), value.c_str()));
  if (!options.external_folder.empty())
    LS_RETURN_IF_ERROR(r.Try(ort_abi::kAddSessionConfigEntry, o, kExternalFolder,
                             options.external_folder.c_str()));
  std::unique_ptr<OrtSession> session(new OrtSession(std::move(runtime)));
  LS_RETURN_IF_ERROR(create(r, o, &session->session_));
  LS_RETURN_IF_ERROR(session->ReadNames());
  return session;
}

Result<std::unique_ptr<OrtSession>> OrtSession::OpenFile(std::shared_ptr<const OrtRuntime> runtime,
                                                         const std::filesystem::path& path,
                                                         const OrtOptions& options) {
  return Open(std::move(runtime), options,
              [&](const OrtRuntime& r, ort_abi::SessionOptions* o, ort_abi::Session** out) {
                return r.Try(ort_abi::kCreateSession, r.env(), path.c_str(), o, out);
              });
}

Result<std::unique_ptr<OrtSession>> OrtSession::OpenBytes(std::shared_ptr<const OrtRuntime> runtime,
                                                          std::span<const std::byte> model,
                                                          const OrtOptions& options) {
  return Open(std::move(runtime), options,
              [&](const OrtRuntime& r, ort_abi::SessionOptions* o, ort_abi::Session** out) {
                return r.Try(ort_abi::kCreateSessionFromArray, r.env(),
                             static_cast<const void*>(model.data()), model.size(), o, out);
              });
}

OrtSession::~OrtSession() {
  if (session_ != nullptr) runtime_->Call(ort_abi::kReleaseSession, session_);
}

Status OrtSession::ReadNames() {
  const OrtRuntime& r = *runtime_;
  const auto read = [&](auto count_function, auto name_function,
                        std::vector<std::string>& out) -> Status {
    size_t count = 0;
    LS_RETURN_IF_ERROR(r.Try(count_function, session_, &count));
    for (size_t i = 0; i < count; ++i) {
      char* name = nullptr;
      LS_RETURN_IF_ERROR(r.Try(name_function, session_, i, r.allocator(), &name));
      out.emplace_back(name);
      LS_RETURN_IF_ERROR(r.Try(ort_abi::kAllocatorFree, r.allocator(), name));
    }
    return {};
  };
  LS_RETURN_IF_ERROR(
      read(ort_abi::kSessionGetInputCount, ort_abi::kSessionGetInputName, input_names_));
  return read(ort_abi::kSessionGetOutputCount, ort_abi::kSessionGetOutputName, output_names_);
}

Result<std::vector<OrtTensor>> OrtSession::Run(std::span<const Input> inputs,
                                               std::span<const std::string> outputs,
                                               const KeepGoing& keep_going) {
  const OrtRuntime& r = *runtime_;
  std::vector<std::string> names;
  std::vector<const char*> input_names, output_names;
  std::vector<const ort_abi::Value*> values;
  names.reserve(inputs.size());
  for (const Input& input : inputs) {
    names.emplace_back(input.name);
    input_names.push_back(names.back().c_str());
    values.push_back(input.tensor->value_.get());
  }
  for (const std::string& output : outputs) output_names.push_back(output.c_str());
  Holder<ort_abi::RunOptions, decltype(ort_abi::kReleaseRunOptions)> options(
      r, ort_abi::kReleaseRunOptions);
  LS_RETURN_IF_ERROR(r.Try(ort_abi::kCreateRunOptions, &options.object));
  std::vector<ort_abi::Value*> raw(outputs.size(), nullptr);
  const auto run = [&] {
    return r.Try(ort_abi::kRun, session_, options.object, input_names.data(), values.data(),
                 values.size(), output_names.data(), output_names.size(), raw.data());
  };
  Status status;
  if (!keep_going) {
    status = run();
  } else {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Status> done;  // guarded by mutex
    std::thread worker([&] {
      Status result = run();
      const std::lock_guard lock(mutex);
      done = std::move(result);
      changed.notify_one();
    });
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kPoll, [&] { return done.has_value(); }))
      if (!keep_going()) (void)r.Try(ort_abi::kRunOptionsSetTerminate, options.object);
    lock.unlock();
    worker.join();
    status = *std::move(done);
  }
  // Before any return: each must be released.
  std::vector<OrtTensor> out;
  for (ort_abi::Value* value : raw) {
    if (!status) {
      if (value != nullptr) r.Call(ort_abi::kReleaseValue, value);
      continue;
    }
    auto tensor = OrtTensor::Adopt(runtime_, value);
    if (tensor)
      out.push_back(*std::move(tensor));
    else
      status = tl::unexpected(
          std::move(tensor).error().In(fmt::format("output {}", Quoted(outputs[out.size()]))));
  }
  if (!status) return tl::unexpected(std::move(status).error());
  return out;
}

}  // namespace lockstep
