// The reader against what the onnx package reads of its own file, hostile bytes, and the writer's
// promise: only what was asked for changes.
#include "formats/onnx.h"

#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "formats/onnx_write.h"
#include "formats/protobuf.h"
#include "formats/test_bytes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kReader = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/reader";

OnnxModel OpenGolden(const fs::path& path = kReader) {
  auto model = OnnxModel::Open(path);
  if (!model) ADD_FAILURE() << model.error().message;
  return *std::move(model);
}

std::string Inside(uint32_t number, std::string_view bytes) {
  std::string out;
  AppendBytesField(number, bytes, out);
  return out;
}
std::string Number(uint32_t number, uint64_t value) {
  std::string out;
  AppendVarintField(number, value, out);
  return out;
}
std::string Model(std::string_view graph) { return Number(1, 10) + Inside(7, graph); }
std::string Entry(std::string_view key, std::string_view value) {
  return Inside(13, Inside(1, key) + Inside(2, value));
}
// A float initializer "w" of 2 elements in an external file.
std::string External(std::string_view location, std::string_view offset = "0",
                     std::string_view length = "8") {
  return Model(Inside(5, Number(1, 2) + Number(2, 1) + Inside(8, "w") +
                             Entry("location", location) + Entry("offset", offset) +
                             Entry("length", length) + Number(14, 1)));
}

// Every export there is; each a folder with a model.onnx.
std::vector<fs::path> Exports() {
  std::vector<fs::path> out = {kReader};
  const fs::path root = fs::path(LOCKSTEP_GOLDENS).parent_path() / "exports";
  std::error_code none;
  if (std::string_view(LOCKSTEP_GOLDENS).empty() || !fs::is_directory(root, none)) return out;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.path().filename() == "model.onnx") out.push_back(entry.path().parent_path());
  return out;
}

TEST(Onnx, EveryWayToStoreATensorReadsAsTheOnnxPackageReadsIt) {
  const OnnxModel model = OpenGolden();
  const auto text = ReadTextFile(kReader / "expected.json");
  ASSERT_TRUE(text);
  const auto expected = ParseJson(*text, "expected.json");
  ASSERT_TRUE(expected);
  EXPECT_GE(expected->size(), 36u);
  EXPECT_EQ(model.tensors().size(), expected->size());
  for (const auto& [name, want] : expected->items()) {
    const OnnxTensor* tensor = model.Tensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(OnnxTypeName(tensor->type), want["type"]) << name;
    EXPECT_EQ(tensor->dims, want["dims"].get<std::vector<int64_t>>()) << name;
    const auto values = ReadDoubles(*tensor);
    ASSERT_TRUE(values) << name;
    EXPECT_EQ(*values, want["values"].get<std::vector<double>>()) << name;
    const auto floats = ReadFloats(*tensor);
    ASSERT_TRUE(floats) << name;
    EXPECT_EQ(std::vector<double>(floats->begin(), floats->end()), *values) << name;
    if (tensor->storage != OnnxTensor::Storage::kTyped) {
      const auto file = model.files()[tensor->file].bytes;
      EXPECT_EQ(tensor->bytes.data(), file.data() + tensor->offset) << name;
    }
  }
}

TEST(Onnx, TheGraphIsAsItWasWritten) {
  const OnnxModel model = OpenGolden();
  EXPECT_EQ(model.ir_version(), 10);
  EXPECT_EQ(model.producer_name(), "a producer");
  EXPECT_EQ(model.producer_version(), "1.2");
  EXPECT_EQ(model.opsets(), (std::map<std::string, int64_t>{{"", 21}, {"test.domain", 3}}));
  EXPECT_EQ(model.metadata().at("key"), "a value");
  ASSERT_EQ(model.inputs().size(), 1u);
  EXPECT_EQ(model.inputs()[0].type, OnnxType::kFloat);
  ASSERT_TRUE(model.inputs()[0].dims);
  EXPECT_EQ(model.inputs()[0].dims->at(0).symbol, "batch_size");
  EXPECT_EQ(model.inputs()[0].dims->at(1).value, 2);

  const OnnxNode* scale = model.Producer("scaled");
  ASSERT_NE(scale, nullptr);
  EXPECT_EQ(scale->op_type, "Mul");
  EXPECT_EQ(model.Producer(scale->Input(0))->name, "multiply");
  EXPECT_EQ(scale->Input(7), "");
  const auto readers = model.ConsumersOf("c.float");
  ASSERT_EQ(readers.size(), 2u);
  EXPECT_EQ(readers[0], scale);
  const OnnxNode& last = *readers[1];
  EXPECT_EQ(last.Input(1), "");
  EXPECT_EQ(last.Int("an_int"), -7);
  EXPECT_EQ(last.Float("a_float"), 0.5f);
  EXPECT_EQ(last.String("a_string"), "text");
  EXPECT_EQ(last.Int("a_float"), std::nullopt);
  EXPECT_EQ(std::get<std::vector<int64_t>>(last.Find("ints")->value),
            (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(std::get<std::vector<float>>(last.Find("floats")->value), (std::vector<float>{0.5, 2}));
  EXPECT_EQ(std::get<std::vector<std::string>>(last.Find("strings")->value),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(std::holds_alternative<OnnxSubgraph>(last.Find("a_graph")->value));
  EXPECT_EQ(model.Tensor("no such"), nullptr);
  EXPECT_TRUE(model.ConsumersOf("no such").empty());
}

TEST(Onnx, EveryExportIsReadWhole) {
  for (const fs::path& folder : Exports()) {
    const OnnxModel model = OpenGolden(folder);
    EXPECT_GT(model.nodes().size(), 5u) << folder;
    for (const OnnxTensor& tensor : model.tensors()) {
      const auto values = ReadDoubles(tensor);
      EXPECT_TRUE(values) << folder << tensor.name;
    }
  }
}

TEST(Onnx, HostileBytesEndInOneSentence) {
  const std::string nothing_in = Number(1, 2) + Number(2, 1) + Inside(8, "w");
  const auto node = [](std::string_view parts) { return Model(Inside(1, parts)); };
  const std::pair<std::string, std::string_view> cases[] = {
      {"", "found an empty file"},
      {"GGUF....", "is this an ONNX file?"},
      {Number(1, 10), "holds no graph"},
      {Model("") + Inside(7, ""), "a second graph"},
      {"\x08", "ends inside a number"},
      {"\x08" + std::string(11, '\xff'), "more than 10 bytes"},
      {Inside(7,
              "\x0a\x7f"
              "abc"),
       "says 127 bytes, but 3 are left"},
      {std::string("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11), "bytes, but 0 are left"},
      {Number(7, 3), "wire type 0, expected 2"},
      {Model(Inside(5, nothing_in)), "has no data, expected 8 bytes"},
      {Model(Inside(5, nothing_in + Inside(9, "1234567"))), "has 7 bytes, expected 8"},
      {Model(Inside(5, Number(2, 1) + Inside(9, "1234"))), "an initializer without a name"},
      {Model(Inside(5, Number(1, ~uint64_t{0}) + Inside(8, "w"))), "a dimension -1"},
      {Model(Inside(5, Number(1, 1u << 31) + Number(1, 1u << 31) + Number(2, 1) + Inside(8, "w"))),
       "more elements than any file"},
      {Model(Inside(5, Number(2, 99) + Inside(8, "w"))), "type 99, which is none of ONNX's"},
      {Model(Inside(5, nothing_in + Inside(7, "\x01\x02"))), "its numbers are in field 7"},
      {Model(Inside(5, Number(2, 1) + Inside(8, "w") + Inside(9, "1234")) +
             Inside(5, Number(2, 1) + Inside(8, "w") + Inside(9, "1234"))),
       "two initializers are called \"w\""},
      {External("x"), "a model in memory has no files"},
      {External("x", "-1"), "\"offset\" \"-1\", expected a number"},
      {External("x", "0", "9"), "has 9 bytes of external data, expected 8"},
      {node(Inside(1, "x")), "has no op_type"},
      {node(Inside(4, "Constant") + Inside(2, "c")), "0 attributes"},
      {node(Inside(4, "A") + Inside(5, Number(3, 1))), "an attribute without a name"},
      {node(Inside(4, "A") + Inside(5, Inside(1, "a")) + Inside(5, Inside(1, "a"))),
       "a second attribute \"a\""},
      {node(Inside(4, "A") + Inside(5, Inside(1, "a") + Inside(7, "123"))),
       "3 bytes, expected a multiple of 4"},
      {Model(Inside(1, Inside(4, "A") + Inside(2, "v")) +
             Inside(1, Inside(4, "B") + Inside(2, "v"))),
       "\"v\" has two sources"},
      {Model(Inside(11, Inside(1, "x")) + Inside(11, Inside(1, "x"))), "two inputs are called"},
      {Model(Inside(12, Inside(1, "x")) + Inside(12, Inside(1, "x"))), "two outputs are called"},
      {Model(Inside(12, "")), "an input or output without a name"},
  };
  for (const auto& [bytes, expected] : cases)
    ExpectError(OnnxModel::Parse(AsBytes(bytes), "m.onnx"), {"m.onnx", expected});
}

TEST(Onnx, NoCutAndNoFlippedByteCrashes) {
  const auto file = MappedFile::Open(kReader / "model.onnx");
  ASSERT_TRUE(file);
  const std::string good((*file)->text());
  for (size_t size = 0; size < good.size(); ++size) {
    const std::string cut = good.substr(0, size);
    if (const auto model = OnnxModel::Parse(AsBytes(cut), "m.onnx"))
      for (const OnnxTensor& tensor : model->tensors()) (void)ReadDoubles(tensor);
  }
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 3; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    if (const auto model = OnnxModel::Parse(AsBytes(bad), "m.onnx"))
      for (const OnnxTensor& tensor : model->tensors()) (void)ReadDoubles(tensor);
  }
}

TEST(Onnx, ExternalDataStaysInsideTheFolder) {
  const TestFolder outside;
  outside.Write("secret", "12345678");
  const TestFolder folder;
  folder.Write("data", "1234567");
  fs::create_directories(folder.path() / "sub");
  folder.Write("sub/more", "12345678");
  fs::create_symlink(outside.path() / "secret", folder.path() / "link");
  fs::create_symlink(folder.path() / "sub/more", folder.path() / "inner");
  const auto open = [&](std::string_view location, std::string_view offset = "0") {
    folder.Write("model.onnx", External(location, offset));
    return OnnxModel::Open(folder.path());
  };
  const std::string up = "../" + outside.path().filename().string() + "/secret";
  ExpectError(open(up), {"\"w\"", "leads out of the model's folder: refused"});
  ExpectError(open("sub/../" + up), {"leads out of the model's folder"});
  ExpectError(open("link"), {"leads out of the model's folder"});
  ExpectError(open((outside.path() / "secret").string()), {"expected a path inside"});
  ExpectError(open(""), {"expected a path inside"});
  ExpectError(open("."), {"leads out"});
  ExpectError(open("sub"), {"expected a file, found a folder"});
  ExpectError(open("missing"), {"missing", "cannot be opened"});
  ExpectError(open("data"), {"lies at byte 0 of \"data\" and has 8, but the file has 7"});
  ExpectError(open("sub/more", "18446744073709551615"), {"lies at byte 18446744073709551615"});
  EXPECT_TRUE(open("sub/more"));
  EXPECT_TRUE(open("sub/../sub/more"));
  EXPECT_TRUE(open("inner"));
}

TEST(Onnx, AFolderOpensTheModelThatItsConfigNames) {
  const TestFolder folder;
  ExpectError(OnnxModel::Open(folder.path()), {"holds no model.onnx"});
  folder.Write("a.onnx", Model(""));
  EXPECT_TRUE(OnnxModel::Open(folder.path()));
  folder.Write("b.onnx", Model(Inside(11, Inside(1, "x"))));
  ExpectError(OnnxModel::Open(folder.path()), {"2 .onnx files"});
  folder.Write("genai_config.json", R"({"model":{"decoder":{"filename":"b.onnx"}}})");
  EXPECT_EQ(OpenGolden(folder.path()).inputs().size(), 1u);
  folder.Write("genai_config.json", R"({"model":{"decoder":{"filename":"../b.onnx"}}})");
  ExpectError(OnnxModel::Open(folder.path()), {"model.decoder.filename", "../b.onnx"});
  folder.Write("genai_config.json", "{");
  ExpectError(OnnxModel::Open(folder.path()), {"genai_config.json"});
}

// The writer.

std::string FileText(const fs::path& path) {
  const auto file = MappedFile::Open(path);
  EXPECT_TRUE(file) << path;
  return file ? std::string((*file)->text()) : "";
}

TEST(OnnxWrite, AnEmptyPatchChangesNoByte) {
  for (const fs::path& folder : Exports()) {
    const OnnxModel model = OpenGolden(folder);
    const auto bytes = PatchedOnnx(model, {});
    ASSERT_TRUE(bytes) << bytes.error().message;
    EXPECT_TRUE(*bytes == FileText(model.path())) << folder;
  }
}

TEST(OnnxWrite, AWholeFolderIsCopiedAndAValueChangedWhereItLies) {
  const OnnxModel model = OpenGolden();
  const TestFolder parent;
  const fs::path out = parent.path() / "new";
  const auto bytes = EncodeNumbers(std::vector<double>{8, 7, 6, 5, 4, 3, 2, 1}, OnnxType::kFloat);
  ASSERT_TRUE(bytes);
  const auto status =
      WriteOnnx(model, {.tensors = {{"outside", *bytes}}}, out, {{"genai_config.json", "{}"}});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(FileText(out / "model.onnx"), FileText(kReader / "model.onnx"));
  EXPECT_EQ(FileText(out / "expected.json"), FileText(kReader / "expected.json"));
  EXPECT_EQ(FileText(out / "genai_config.json"), "{}");
  std::string data = FileText(kReader / "weights.data");
  data.replace(64, 32, reinterpret_cast<const char*>(bytes->data()), 32);
  EXPECT_EQ(FileText(out / "weights.data"), data);
  ExpectError(WriteOnnx(model, {}, out), {"exists already"});
  ExpectError(WriteOnnx(model, {.outputs = {"nothing"}}, parent.path() / "other"),
              {"no node gives a value \"nothing\""});
  ASSERT_EQ(std::distance(fs::directory_iterator(parent.path()), fs::directory_iterator()), 1);
}

TEST(OnnxWrite, EveryTensorCanBeReplacedAndTheOthersStay) {
  const OnnxModel model = OpenGolden();
  for (const OnnxTensor& tensor : model.tensors()) {
    const std::vector<double> values = {0.5, -3, 1024};
    OnnxPatch patch;
    patch.tensors.push_back({tensor.name, *EncodeNumbers(values, OnnxType::kDouble),
                             OnnxType::kDouble, std::vector<int64_t>{3, 1}});
    const TestFolder parent;
    const fs::path out = parent.path() / "new";
    const auto status = WriteOnnx(model, patch, out);
    ASSERT_TRUE(status) << status.error().message;
    const OnnxModel changed = OpenGolden(out);
    ASSERT_EQ(changed.tensors().size(), model.tensors().size());
    for (const OnnxTensor& before : model.tensors()) {
      const OnnxTensor* after = changed.Tensor(before.name);
      ASSERT_NE(after, nullptr) << before.name;
      if (before.name == tensor.name) {
        EXPECT_EQ(*ReadDoubles(*after), values);
        EXPECT_EQ(after->dims, (std::vector<int64_t>{3, 1}));
      } else {
        EXPECT_EQ(after->type, before.type);
        EXPECT_EQ(after->dims, before.dims);
        EXPECT_TRUE(std::ranges::equal(after->bytes, before.bytes)) << before.name;
      }
    }
  }
}

TEST(OnnxWrite, AttributesAreSetOrAddedAndOutputsAdded) {
  const OnnxModel model = OpenGolden();
  const size_t node = model.Producer("y")->index;
  OnnxPatch patch;
  patch.attributes = {{node, "an_int", int64_t{-1}},
                      {node, "a_float", 4.5f},
                      {node, "new_int", int64_t{9}},
                      {node, "a_string", "other"}};
  patch.outputs = {"scaled", "y", "product"};
  const auto bytes = PatchedOnnx(model, patch);
  ASSERT_TRUE(bytes) << bytes.error().message;
  const TestFolder folder;
  folder.Write("model.onnx", *bytes);
  folder.Write("weights.data", FileText(kReader / "weights.data"));
  const OnnxModel changed = OpenGolden(folder.path());
  const OnnxNode& after = changed.nodes()[node];
  EXPECT_EQ(after.Int("an_int"), -1);
  EXPECT_EQ(after.Float("a_float"), 4.5f);
  EXPECT_EQ(after.Int("new_int"), 9);
  EXPECT_EQ(after.String("a_string"), "other");
  EXPECT_EQ(std::get<std::vector<int64_t>>(after.Find("ints")->value),
            (std::vector<int64_t>{1, -2}));
  ASSERT_EQ(changed.outputs().size(), 3u);
  EXPECT_EQ(changed.outputs()[0].name, "y");
  // value_info says its type.
  EXPECT_EQ(changed.Output("scaled")->type, OnnxType::kFloat);
  EXPECT_EQ(changed.Output("product")->type, OnnxType::kUndefined);
}

TEST(OnnxWrite, BytesThatTwoTensorsShareChangeForOneAlone) {
  const TestFolder folder;
  const auto tensor = [](std::string_view name) {
    return Inside(5, Number(1, 2) + Number(2, 1) + Inside(8, name) + Entry("location", "data") +
                         Number(14, 1));
  };
  folder.Write("model.onnx", Model(tensor("a") + tensor("b")));
  folder.Write("data", Bytes().Zeros(8).text());
  const fs::path out = folder.path() / "new";
  const auto status = WriteOnnx(
      OpenGolden(folder.path()),
      {.tensors = {{"a", *EncodeNumbers(std::vector<double>{1, 2}, OnnxType::kFloat)}}}, out);
  ASSERT_TRUE(status) << status.error().message;
  const OnnxModel changed = OpenGolden(out);
  EXPECT_EQ(*ReadDoubles(*changed.Tensor("a")), (std::vector<double>{1, 2}));
  EXPECT_EQ(*ReadDoubles(*changed.Tensor("b")), (std::vector<double>{0, 0}));
}

TEST(OnnxWrite, AWrongPatchIsRefused) {
  const OnnxModel model = OpenGolden();
  const std::vector<std::byte> four(4);
  ExpectError(PatchedOnnx(model, {.tensors = {{"nobody", four}}}), {"\"nobody\""});
  ExpectError(PatchedOnnx(model, {.tensors = {{"outside", four}}}), {"4 bytes, expected 8"});
  ExpectError(PatchedOnnx(model, {.tensors = {{"c.float", four}, {"c.float", four}}}),
              {"changed twice"});
  ExpectError(PatchedOnnx(model, {.attributes = {{999, "a", int64_t{1}}}}), {"node 999"});
}

}  // namespace
}  // namespace lockstep
