#include "ort/ort_session.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kDecoder =
    fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/decoders/llama/genai/model.onnx";

std::shared_ptr<const OrtRuntime> Runtime() {
  auto runtime = OrtRuntime::Load();
  return runtime ? *runtime : nullptr;
}

TEST(OrtRuntime, WhatIsNoRuntimeIsRefusedWithItsName) {
  const auto missing = OrtRuntime::LoadFrom("/nowhere/libonnxruntime.so");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("/nowhere/libonnxruntime.so"), std::string::npos);
  const auto other = OrtRuntime::LoadFrom("libc.so.6");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("OrtGetApiBase"), std::string::npos);
  const auto text = OrtRuntime::LoadFrom(kDecoder);
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("model.onnx"), std::string::npos);
}

TEST(OrtRuntime, LooksWherePythonKeepsPackages) {
  bool system = false;
  for (const fs::path& folder : PythonPackageFolders()) {
    EXPECT_EQ(folder.filename(), "capi");
    system = system || folder.string().starts_with("/usr/");
  }
  EXPECT_TRUE(system || !fs::exists("/usr/lib/python3"));
}

TEST(OrtTensor, HoldsWhatIsPutIn) {
  const auto runtime = Runtime();
  if (runtime == nullptr) GTEST_SKIP() << "no ONNX Runtime";
  const std::vector<int64_t> shape = {1, 3}, values = {-1, 0, 7}, empty = {1, 2, 0, 16};
  for (const OrtType type : {OrtType::kInt64, OrtType::kInt32}) {
    const auto tensor = OrtTensor::OfInts(runtime, type, shape, values);
    ASSERT_TRUE(tensor) << tensor.error().message;
    EXPECT_EQ(tensor->shape(), shape);
    EXPECT_EQ(tensor->Floats(0, 3), (std::vector<float>{-1, 0, 7}));
    EXPECT_EQ(tensor->Floats(2, 1), (std::vector<float>{7}));
  }
  for (const OrtType type : {OrtType::kFloat, OrtType::kFloat16, OrtType::kBFloat16, OrtType::kBool,
                             OrtType::kUInt8, OrtType::kInt8, OrtType::kDouble}) {
    const auto tensor = OrtTensor::Create(runtime, type, shape);
    ASSERT_TRUE(tensor) << tensor.error().message;
    EXPECT_EQ(tensor->bytes().size(), 3 * OrtTypeSize(type));
    EXPECT_EQ(tensor->Floats(0, 3), (std::vector<float>{0, 0, 0}));
  }
  const auto nothing = OrtTensor::Create(runtime, OrtType::kFloat, empty);
  ASSERT_TRUE(nothing) << nothing.error().message;
  EXPECT_EQ(nothing->elements(), 0);
  const std::vector<int64_t> negative = {2, -1}, huge = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_FALSE(OrtTensor::Create(runtime, OrtType::kFloat, negative));
  EXPECT_FALSE(OrtTensor::Create(runtime, OrtType::kFloat, huge));
}

TEST(OrtSession, WrongModelsAndInputsAreErrors) {
  const auto runtime = Runtime();
  if (runtime == nullptr) GTEST_SKIP() << "no ONNX Runtime";
  const auto missing = OrtSession::OpenFile(runtime, "/nowhere/model.onnx", {});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("ONNX Runtime"), std::string::npos);
  const std::string garbage = "not a model";
  EXPECT_FALSE(OrtSession::OpenBytes(runtime, std::as_bytes(std::span(garbage)), {}));
  const auto session = OrtSession::OpenFile(runtime, kDecoder, {.threads = 1});
  ASSERT_TRUE(session) << session.error().message;
  EXPECT_EQ((*session)->input_names()[0], "input_ids");
  EXPECT_EQ((*session)->output_names()[0], "logits");
  const std::vector<std::string> logits = {"logits"};
  const auto run = (*session)->Run({}, logits);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().message.find('\n'), std::string::npos);
}

TEST(OrtSession, BytesInMemoryFindTheirDataInTheFolderThatIsNamed) {
  const auto runtime = Runtime();
  if (runtime == nullptr) GTEST_SKIP() << "no ONNX Runtime";
  std::ifstream file(kDecoder, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const auto model = std::as_bytes(std::span(bytes));
  const auto found =
      OrtSession::OpenBytes(runtime, model, {.external_folder = kDecoder.parent_path()});
  EXPECT_TRUE(found) << found.error().message;
  EXPECT_FALSE(OrtSession::OpenBytes(runtime, model, {.external_folder = "/nowhere"}));
}

}  // namespace
}  // namespace lockstep
