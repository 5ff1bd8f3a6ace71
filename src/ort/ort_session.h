// OrtSession and OrtTensor: a model under ONNX Runtime, and what goes in and comes out. Outputs can
// be handed back as inputs without a copy, which is what a cache needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ort/ort_runtime.h"

namespace lockstep {

// ONNXTensorElementDataType: the numbers are those of ONNX.
enum class OrtType : int {
  kUndefined = 0,
  kFloat = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kBFloat16 = 16,
};
size_t OrtTypeSize(OrtType type);  // bytes; 0 for the types that are not above
std::string OrtTypeName(OrtType type);

class OrtTensor {
 public:
  // Zeros.
  static Result<OrtTensor> Create(std::shared_ptr<const OrtRuntime> runtime, OrtType type,
                                  std::span<const int64_t> shape);
  static Result<OrtTensor> OfInts(std::shared_ptr<const OrtRuntime> runtime, OrtType type,
                                  std::span<const int64_t> shape, std::span<const int64_t> values);
  OrtTensor(OrtTensor&&) = default;
  OrtTensor& operator=(OrtTensor&&) = default;

  OrtType type() const { return type_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return elements_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  // Elements [begin, begin + count) of floats, half floats, integers or booleans.
  std::vector<float> Floats(int64_t begin, int64_t count) const;

 private:
  friend class OrtSession;
  struct Release {
    std::shared_ptr<const OrtRuntime> runtime;
    void operator()(ort_abi::Value* value) const;
  };
  OrtTensor() = default;
  // Takes ownership; `value` must be a tensor of one of the types above.
  static Result<OrtTensor> Adopt(std::shared_ptr<const OrtRuntime> runtime, ort_abi::Value* value);

  std::unique_ptr<ort_abi::Value, Release> value_;
  OrtType type_ = OrtType::kUndefined;
  std::vector<int64_t> shape_;
  int64_t elements_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;  // bytes
};

struct OrtOptions {
  int threads = 0;  // 0: ONNX Runtime's own choice
  // Where the external data of a model in memory lies.
  std::filesystem::path external_folder;
  std::map<std::string, std::string> config;  // session config entries
};

class OrtSession {
 public:
  static Result<std::unique_ptr<OrtSession>> OpenFile(std::shared_ptr<const OrtRuntime> runtime,
                                                      const std::filesystem::path& path,
                                                      const OrtOptions& options);
  static Result<std::unique_ptr<OrtSession>> OpenBytes(std::shared_ptr<const OrtRuntime> runtime,
                                                       std::span<const std::byte> model,
                                                       const OrtOptions& options);
  ~OrtSession();
  OrtSession(const OrtSession&) = delete;
  OrtSession& operator=(const OrtSession&) = delete;

  struct Input {
    std::string_view name;
    const OrtTensor* tensor;
  };
  // Polled some fifty times a second while the model runs; false stops the run, which then fails.
  using KeepGoing = std::function<bool()>;
  Result<std::vector<OrtTensor>> Run(std::span<const Input> inputs,
                                     std::span<const std::string> outputs,
                                     const KeepGoing& keep_going = {});

  const std::vector<std::string>& input_names() const { return input_names_; }
  const std::vector<std::string>& output_names() const { return output_names_; }

 private:
  explicit OrtSession(std::shared_ptr<const OrtRuntime> runtime) : runtime_(std::move(runtime)) {}
  template <typename Create>
  static Result<std::unique_ptr<OrtSession>> Open(std::shared_ptr<const OrtRuntime> runtime,
                                                  const OrtOptions& options, const Create& create);
  Status ReadNames();

  std::shared_ptr<const OrtRuntime> runtime_;
  ort_abi::Session* session_ = nullptr;
  std::vector<std::string> input_names_, output_names_;
};

}  // namespace lockstep
