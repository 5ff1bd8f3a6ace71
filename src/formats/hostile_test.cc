// Files made to hurt: each must end in one sentence, at once, without an allocation that its own
// bytes do not justify.
#include <gtest/gtest.h>

#include <ctime>
#include <random>

#include "formats/checkpoint.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/test_allocations.h"
#include "formats/test_bytes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Checks time and memory of what runs during its life.
class Bounds {
 public:
  explicit Bounds(size_t file_bytes) : limit_(file_bytes * 32 + (64 << 10)) { ForgetAllocations(); }
  ~Bounds() {
    const double seconds = static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, 1);
    EXPECT_LE(LargestAllocation(), limit_);
  }

 private:
  size_t limit_;
  std::clock_t start_ = std::clock();  // of the processor: other programs do not count
};

struct Hostile {
  std::string_view claim;
  std::string bytes;
  std::string_view expected;
};

constexpr uint64_t kHuge = uint64_t{1} << 63;
constexpr uint64_t kMost = ~uint64_t{0};

std::string Tensor(std::string_view fields) { return fmt::format(R"({{"t":{{{}}}}})", fields); }

std::vector<Hostile> HostileSafetensors() {
  const auto header_of = [](uint64_t length) {
    return Bytes().U64(length).Raw("{}").Zeros(16).text();
  };
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  return {
      {"empty", "", "found an empty file"},
      {"seven bytes", "1234567", "expected a safetensors file"},
      {"only a length", Bytes().U64(2).text(), "expected a safetensors file"},
      {"header of 2^63", header_of(kHuge),
       "header says 9223372036854775808 bytes, expected at most"},
      {"header of 2^64-1", header_of(kMost), "expected at most 100000000"},
      {"header of 2^40", header_of(uint64_t{1} << 40), "expected at most 100000000"},
      {"header above the limit", header_of(100'000'001), "expected at most 100000000"},
      {"header past the end", header_of(19), "header ends at byte 27 but the file has 26"},
      {"header of nothing", header_of(0), "not valid JSON"},
      {"header cut inside", header_of(1), "not valid JSON"},
      {"not JSON", Safetensors("{\"a\":}", 0), "not valid JSON"},
      {"two values", Safetensors("{}{}", 0), "not valid JSON"},
      {"not UTF-8", Safetensors("{\"\xff\":1}", 0), "not valid JSON"},
      {"deep", Safetensors("{\"a\":" + std::string(100'000, '[') + "}", 0), "not valid JSON"},
      {"entry a number", Safetensors(R"({"t":1})", 0), "expected an object with dtype"},
      {"no dtype", Safetensors(Tensor(R"("shape":[2],"data_offsets":[0,8])"), 8), "one is missing"},
      {"no shape", Safetensors(Tensor(R"("dtype":"F32","data_offsets":[0,8])"), 8),
       "one is missing"},
      {"no offsets", Safetensors(Tensor(R"("dtype":"F32","shape":[2])"), 8), "one is missing"},
      {"unknown dtype", Safetensors(Tensor(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), 8),
       "dtype \"F31\", expected one of F32, F16"},
      {"block dtype",
       Safetensors(Tensor(R"("dtype":"Q8_0","shape":[32],"data_offsets":[0,34])"), 34),
       "dtype \"Q8_0\", expected one of"},
      {"dtype a number", Safetensors(Tensor(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), 8),
       "expected one dtype"},
      {"dtype twice", Safetensors(Tensor(R"("dtype":"F32",)" + good), 8), "expected one dtype"},
      {"negative dimension",
       Safetensors(Tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8),
       "expected one shape"},
      {"fractional dimension",
       Safetensors(Tensor(R"("dtype":"F32","shape":[2.5],"data_offsets":[0,8])"), 8),
       "expected one shape"},
      {"rank 9",
       Safetensors(Tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])"), 8),
       "at most 8 integers"},
      {"product wraps to 2",
       Safetensors(
           Tensor(R"("dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8])"), 8),
       "expected a product below 2^63"},
      {"bytes wrap to 0",
       Safetensors(Tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"),
                   0),
       "expected fewer than 2^63 bytes"},
      {"dimension above 2^63",
       Safetensors(Tensor(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"),
                   8),
       "expected one shape"},
      {"shape too small",
       Safetensors(Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"), 8),
       "needs 4 bytes but its data_offsets span 8"},
      {"three offsets",
       Safetensors(Tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), 8),
       "expected one data_offsets"},
      {"offsets backwards",
       Safetensors(Tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8),
       "ends at byte 0 of the data, before its begin at 8"},
      {"offset past the end",
       Safetensors(Tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 7),
       "but the file has"},
      {"huge offsets",
       Safetensors(
           Tensor(
               R"("dtype":"F32","shape":[2],"data_offsets":[9223372036854775799,9223372036854775807])"),
           8),
       "but the file has"},
      {"hole in front", Safetensors(Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8),
       "begins at byte 4 of the data, expected 0 (a hole lies before it)"},
      {"bytes behind", Safetensors(Tensor(good), 12), "last tensor ends at byte"},
      {"overlap",
       Safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                   8),
       "tensor \"b\" begins at byte 4 of the data, expected 8 (it overlaps another tensor)"},
      {"name twice",
       Safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                   8),
       "\"a\" is given twice"},
      {"metadata twice", Safetensors(R"({"__metadata__":{},"__metadata__":{}})", 0), "given twice"},
      {"metadata not strings", Safetensors(R"({"__metadata__":{"a":1}})", 0),
       "\"a\" is not a string"},
      {"metadata a list", Safetensors(R"({"__metadata__":[]})", 0),
       "expected an object of strings"},
      {"metadata key twice", Safetensors(R"({"__metadata__":{"a":"","a":""}})", 0),
       "\"a\" is given twice"},
      {"a name of a megabyte",
       Safetensors(fmt::format(R"({{"{}":1}})", std::string(1 << 20, 'n')), 0),
       "nnn\"... (1048576 bytes): expected an object"},
  };
}

// A GGUF file of these counts; what follows the header is up to the case.
Bytes Gguf(uint64_t num_tensors, uint64_t num_values, uint32_t version = 3) {
  Bytes bytes;
  bytes.Raw("GGUF").U32(version).U64(num_tensors).U64(num_values);
  return bytes;
}
Bytes OneTensor(std::initializer_list<uint64_t> dimensions, uint32_t type, uint64_t offset) {
  Bytes bytes = Gguf(1, 0);
  bytes.Text("t").U32(dimensions.size());
  for (const uint64_t dimension : dimensions) bytes.U64(dimension);
  return bytes.U32(type).U64(offset);
}
Bytes OneValue(uint32_t type) { return Gguf(0, 1).Text("k").U32(type); }
Bytes Aligned(uint64_t alignment) {
  return Gguf(0, 1).Text("general.alignment").U32(4).U32(alignment);
}
constexpr uint32_t kStringType = 8, kArrayType = 9, kBoolType = 7;

std::vector<Hostile> HostileGguf() {
  Bytes two = Gguf(2, 0);
  two.Text("a").U32(1).U64(8).U32(0).U64(0).Text("b").U32(1).U64(8).U32(0).U64(0);
  Bytes twins = Gguf(2, 0);
  twins.Text("a").U32(1).U64(8).U32(0).U64(0).Text("a").U32(1).U64(8).U32(0).U64(32);
  return {
      {"empty", "", "found an empty file"},
      {"only the magic", "GGUF", "the version needs 4 bytes at byte 4"},
      {"version 1", Gguf(0, 0, 1).text(), "GGUF version 1, expected 2 or 3"},
      {"version 4", Gguf(0, 0, 4).text(), "GGUF version 4, expected 2 or 3"},
      {"big-endian", Gguf(0, 0, 0x03000000).text(), "a big-endian GGUF (version 3)"},
      {"old GGML", "lmgg\x01\0\0\0", "a GGML file from before GGUF"},
      {"LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
       "a Git LFS pointer"},
      {"HTML", "<html><head></head></html>", "an HTML page"},
      {"2^63 values", Gguf(0, kHuge).text(), "9223372036854775808 key-values are announced"},
      {"2^64-1 tensors", Gguf(kMost, 0).text(), "18446744073709551615 tensors are announced"},
      {"one value too many", Gguf(0, 1).text(), "1 key-values are announced"},
      {"key of 2^63", Gguf(0, 1).U64(kHuge).Zeros(16).text(), "needs 9223372036854775808 bytes"},
      {"key of 2^64-1", Gguf(0, 1).U64(kMost).Zeros(16).text(), "needs 18446744073709551615 bytes"},
      {"key not UTF-8", Gguf(0, 1).Text("\xff").U32(4).U32(0).text(), "key 0 is \"\\xff\""},
      {"key too long", Gguf(0, 1).Text(std::string(65536, 'k')).U32(4).U32(0).text(),
       "expected at most 65535 bytes"},
      {"key twice", Gguf(0, 2).Text("k").U32(4).U32(0).Text("k").U32(4).U32(0).text(),
       "key \"k\" is given twice"},
      {"unknown value type", OneValue(13).U32(0).text(),
       "has type 13, expected a type from 0 to 12"},
      {"bool of 2", OneValue(kBoolType).U8(2).text(), "is a bool of 2, expected 0 or 1"},
      {"string past the end", OneValue(kStringType).U64(1).text(), "needs 1 bytes at byte"},
      {"string of 2^64-1", OneValue(kStringType).U64(kMost).Zeros(8).text(),
       "needs 18446744073709551615 bytes"},
      {"array of 2^62 doubles", OneValue(kArrayType).U32(12).U64(kHuge / 2).Zeros(64).text(),
       "announces 4611686018427387904 elements of f64"},
      {"array whose size wraps", OneValue(kArrayType).U32(4).U64(kHuge / 2 + 1).Zeros(64).text(),
       "announces 4611686018427387905 elements of u32"},
      {"array of 2^60 strings", OneValue(kArrayType).U32(8).U64(kHuge / 8).Zeros(64).text(),
       "elements of string but the file has only"},
      {"array with a long string", OneValue(kArrayType).U32(8).U64(1).U64(kMost).text(),
       "needs 18446744073709551615 bytes"},
      {"array of arrays", OneValue(kArrayType).U32(9).U64(1).Zeros(64).text(),
       "an array of arrays"},
      {"array of unknown", OneValue(kArrayType).U32(77).U64(1).Zeros(64).text(),
       "an array of type 77"},
      {"array of odd bools", OneValue(kArrayType).U32(7).U64(1).U8(9).text(),
       "a bool that is neither 0 nor 1"},
      {"alignment 0", Aligned(0).text(), "general.alignment is 0, expected a power of two"},
      {"alignment 24", Aligned(24).text(), "general.alignment is 24, expected a power of two"},
      {"alignment a string", Gguf(0, 1).Text("general.alignment").U32(8).Text("32").text(),
       "general.alignment is \"32\""},
      {"alignment 2^63",
       Gguf(1, 1)
           .Text("general.alignment")
           .U32(10)
           .U64(kHuge)
           .Text("t")
           .U32(1)
           .U64(8)
           .U32(0)
           .U64(0)
           .text(),
       "general.alignment is 9223372036854775808"},
      {"alignment 2^62",
       Gguf(1, 1)
           .Text("general.alignment")
           .U32(10)
           .U64(kHuge / 2)
           .Text("t")
           .U32(1)
           .U64(8)
           .U32(0)
           .U64(0)
           .Zeros(64)
           .text(),
       "has 32 bytes at offset 0 of the data but the file has only 0 there"},
      {"rank 5", OneTensor({1, 1, 1, 1, 1}, 0, 0).PadTo(32).Zeros(32).text(),
       "has 5 dimensions, expected at most 4"},
      {"rank 2^32-1", Gguf(1, 0).Text("t").U32(0xffffffff).Zeros(64).text(),
       "has 4294967295 dimensions"},
      {"dimension 2^63", OneTensor({kHuge}, 0, 0).PadTo(32).Zeros(32).text(),
       "has a dimension of 9223372036854775808"},
      {"product wraps to 0",
       OneTensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0).PadTo(32).text(),
       "expected a product below 2^63"},
      {"bytes wrap to 0", OneTensor({kHuge / 2}, 0, 0).PadTo(32).text(),
       "expected fewer than 2^63 bytes"},
      {"unknown tensor type", OneTensor({8}, 4, 0).PadTo(32).Zeros(64).text(), "has ggml type 4"},
      {"row not of blocks", OneTensor({33}, 8, 0).PadTo(32).Zeros(64).text(),
       "rows of 33 elements, expected a multiple of 32 for Q8_0"},
      {"misaligned", OneTensor({1}, 0, 4).PadTo(32).Zeros(64).text(),
       "lies at offset 4, expected a multiple of 32"},
      {"offset past the end", OneTensor({1}, 0, 32).PadTo(32).Zeros(32).text(),
       "has 4 bytes at offset 32 of the data but the file has only 0 there"},
      {"offset 2^63", OneTensor({1}, 0, kHuge).PadTo(32).Zeros(32).text(),
       "but the file has only 0 there"},
      {"offset that wraps", OneTensor({8}, 0, kMost - 31).PadTo(32).Zeros(32).text(),
       "but the file has only 0 there"},
      {"data cut", OneTensor({8}, 0, 0).PadTo(32).Zeros(31).text(),
       "but the file has only 31 there (download incomplete?)"},
      {"data missing with its padding", OneTensor({8}, 0, 0).text(), "but the file has only 0"},
      {"overlap", two.PadTo(32).Zeros(64).text(), "tensors \"a\" and \"b\" overlap"},
      {"name twice", twins.PadTo(32).Zeros(64).text(), "\"a\" is given twice"},
      {"name not UTF-8", Gguf(1, 0).Text("\xc0").U32(0).U32(0).U64(0).PadTo(32).Zeros(4).text(),
       "tensor 0 is named \"\\xc0\""},
      {"name of 2^63", Gguf(1, 0).U64(kHuge).Zeros(32).text(), "needs 9223372036854775808 bytes"},
  };
}

TEST(Hostile, SafetensorsEndInOneSentence) {
  for (const Hostile& c : HostileSafetensors()) {
    SCOPED_TRACE(c.claim);
    const Bounds bounds(c.bytes.size());
    ExpectError(ParseSafetensors(AsBytes(c.bytes), "x.safetensors"), {"x.safetensors", c.expected});
  }
}

TEST(Hostile, GgufEndsInOneSentence) {
  for (const Hostile& c : HostileGguf()) {
    SCOPED_TRACE(c.claim);
    const Bounds bounds(c.bytes.size());
    ExpectError(ParseGguf(AsBytes(c.bytes), "x.gguf"), {"x.gguf", c.expected});
  }
}

// A split that says it has 65535 parts must stop at the first that is not there.
TEST(Hostile, ASplitOfManyPartsStopsAtTheFirstMissing) {
  const TestFolder folder;
  const auto path = folder.Write("x-00001-of-65535.gguf", Gguf(0, 2)
                                                              .Text("split.no")
                                                              .U32(2)
                                                              .Raw(std::string(2, '\0'))
                                                              .Text("split.count")
                                                              .U32(2)
                                                              .Raw("\xff\xff")
                                                              .text());
  const Bounds bounds(100);
  ExpectError(OpenCheckpoint(path),
              {"is one of 65535 parts", "x-00002-of-65535.gguf\" is missing"});
}

// A file of a terabyte, all hole: only its head is looked at.
TEST(Hostile, AHugeFileIsNotRead) {
  const TestFolder folder;
  const auto path = folder.Write("x.gguf", Gguf(1, 0).text());
  std::error_code error;
  fs::resize_file(path, uintmax_t{1} << 40, error);
  if (error) fs::resize_file(path, uintmax_t{1} << 32);
  const Bounds bounds(100);
  const auto checkpoint = OpenCheckpoint(path);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;  // one scalar with an empty name
  EXPECT_EQ(checkpoint->tensors.at(0).elements(), 1);
}

// More entries than any model has, each of them valid: stopped before they cost a second.
TEST(Hostile, ADirectoryWithoutEndIsRefused) {
  const auto place = R"("dtype":"U8","shape":[0],"data_offsets":[0,0])";
  std::string header = "{";
  for (uint64_t i = 0; i <= kMaxTensors; ++i)
    header += fmt::format(R"({}"{}":{{{}}})", i == 0 ? "" : ",", i, place);
  const std::string safetensors = Safetensors(header + "}", 0);
  ExpectError(ParseSafetensors(AsBytes(safetensors), "x"), {"lists more tensors than 1000000"});

  const std::string values = Gguf(0, 100'001).Zeros(100'001 * 13).text();
  ExpectError(ParseGguf(AsBytes(values), "x"), {"100001 key-values", "expected at most 100000"});
  const std::string tensors = Gguf(1'000'001, 0).Zeros(1'000'001 * 24).text();
  ExpectError(ParseGguf(AsBytes(tensors), "x"), {"1000001 tensors", "1000000"});
}

// What must hold whatever the bytes are: an error, or tensors that lie in the file.
void ParseAny(std::string_view bytes, bool gguf) {
  std::vector<TensorInfo> tensors;
  if (gguf) {
    auto file = ParseGguf(AsBytes(bytes), "x");
    if (!file) {
      EXPECT_FALSE(file.error().message.empty());
      return;
    }
    for (const auto& [key, value] : file->metadata.values()) value.ToJson(1000).dump();
    tensors = std::move(file->tensors);
  } else {
    auto file = ParseSafetensors(AsBytes(bytes), "x");
    if (!file) {
      EXPECT_FALSE(file.error().message.empty());
      return;
    }
    tensors = std::move(file->tensors);
  }
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  for (const TensorInfo& tensor : tensors) {
    ASSERT_EQ(static_cast<int64_t>(tensor.data.size()),
              tensor.elements() / tensor.type->block_elements * tensor.type->block_bytes);
    if (tensor.data.empty()) continue;
    ASSERT_GE(tensor.data.data(), begin);
    ASSERT_LE(tensor.data.data() + tensor.data.size(), begin + bytes.size());
    std::vector<float> out(static_cast<size_t>(tensor.elements()));
    tensor.type->dequantize(tensor.data.data(), tensor.elements(), out.data());
  }
}

struct Sample {
  std::string bytes;
  bool gguf;
};

std::vector<Sample> Samples() {
  auto gguf = ReadTextFile(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/gguf/tiny.gguf");
  EXPECT_TRUE(gguf);
  return {{gguf.value_or(""), true},
          {Safetensors(R"({"__metadata__":{"format":"pt"},)"
                       R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                       R"("b":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]}})",
                       34),
           false}};
}

TEST(Hostile, EveryTruncationIsAnError) {
  for (const Sample& sample : Samples()) {
    for (size_t n = 0; n < sample.bytes.size(); ++n) {
      // An exact copy, so that a sanitizer sees a read past its end.
      const std::vector<char> cut(sample.bytes.begin(),
                                  sample.bytes.begin() + static_cast<ptrdiff_t>(n));
      const std::string_view text(cut.data(), cut.size());
      const bool loaded = sample.gguf ? ParseGguf(AsBytes(text), "x").has_value()
                                      : ParseSafetensors(AsBytes(text), "x").has_value();
      // gguf-py pads the file's end: cutting there loses nothing.
      if (sample.gguf && n + 32 > sample.bytes.size())
        ParseAny(text, true);
      else
        EXPECT_FALSE(loaded) << "cut to " << n << " bytes";
    }
  }
}

TEST(Hostile, AnyFlippedBytesGiveAFileOrAnError) {
  std::mt19937 random(7);
  for (const Sample& sample : Samples()) {
    ParseAny(sample.bytes, sample.gguf);
    for (int i = 0; i < 2000; ++i) {
      std::vector<char> bytes(sample.bytes.begin(), sample.bytes.end());
      for (uint32_t flips = 1 + random() % 3; flips > 0; --flips)
        bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
      const Bounds bounds(bytes.size());
      ParseAny({bytes.data(), bytes.size()}, sample.gguf);
    }
  }
}

}  // namespace
}  // namespace lockstep
