#include "export/onnx_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <span>

#include "base/atomic_file.h"
#include "base/dtype.h"
#include "base/mapped_file.h"
#include "export/output_folder.h"
#include "formats/onnx_read.h"
#include "formats/protobuf.h"

namespace lockstep {
namespace {

constexpr int64_t kIrVersion = 10, kOnnxOpset = 22, kMicrosoftOpset = 1;
constexpr const char* kModelFile = "model.onnx";
constexpr const char* kDataFile = "model.onnx.data";
// Tensors of any type then lie where their elements may be read at once.
constexpr uint64_t kAlignment = 64;

template <typename T>
std::vector<std::byte> BytesOf(std::span<const T> values) {
  static_assert(std::endian::native == std::endian::little);
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

// Between two marks of how far the data are.
constexpr uint64_t kMarkEvery = uint64_t{256} << 20;

// How far the data of a killed export are known to be on the disk; 0: it has none.
uint64_t MarkIn(const std::filesystem::path& folder) {
  std::error_code error;
  const auto text = ReadTextFile(folder / kResumeDataName);
  uint64_t mark = 0;
  if (!text || text->empty()) return 0;
  const char* const end = text->data() + text->size();
  const auto [stop, failed] = std::from_chars(text->data(), end, mark);
  const uint64_t there = std::filesystem::file_size(folder / kDataFile, error);
  return failed == std::errc{} && stop == end && !error && there >= mark ? mark : 0;
}

Status WriteMark(const std::filesystem::path& folder, uint64_t mark) {
  const std::string text = fmt::format("{}", mark);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  return WriteFileAtomically(folder / kResumeDataName, {&bytes, 1});
}

std::string EncodeOpset(std::string_view domain, int64_t version) {
  std::string out;
  if (!domain.empty()) AppendBytesField(1, domain, out);
  AppendVarintField(2, static_cast<uint64_t>(version), out);
  return out;
}

}  // namespace

void OnnxGraph::Append(const OnnxNodeText& node) {
  for (const std::string& output : node.outputs)
    LS_CHECK(output.empty() || values_.insert(output).second, "two makers of {}", output);
  AppendBytesField(kGraphNode, EncodeOnnxNode(node), nodes_);
  ++num_nodes_;
}

std::string OnnxGraph::Node(const std::string& name, OnnxOp op, Values inputs,
                            Attributes attributes) {
  std::string output = name + "/output_0";
  NodeTo(name, op, std::move(inputs), {output}, std::move(attributes));
  return output;
}

void OnnxGraph::NodeTo(const std::string& name, OnnxOp op, Values inputs, Values outputs,
                       Attributes attributes) {
  Append({.op_type = std::string(op.type),
          .domain = std::string(op.domain),
          .name = name,
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .attributes = std::move(attributes)});
}

std::string OnnxGraph::Constant(const std::string& name, OnnxTensorValue value) {
  if (!values_.contains(name))
    Append({.op_type = "Constant",
            .name = name + "/Constant",
            .outputs = {name},
            .attributes = {{"value", std::move(value)}}});
  return name;
}

std::string OnnxGraph::Int(int64_t value) {
  return Constant(fmt::format("/model/constants/INT64/{}", value),
                  {OnnxType::kInt64, {}, BytesOf(std::span<const int64_t>(&value, 1))});
}

std::string OnnxGraph::Ints(const std::vector<int64_t>& values) {
  return Constant(fmt::format("/model/constants/INT64/[{}]", fmt::join(values, ", ")),
                  {OnnxType::kInt64,
                   {static_cast<int64_t>(values.size())},
                   BytesOf(std::span<const int64_t>(values))});
}

std::string OnnxGraph::Float(float value) {
  if (floats_ == OnnxType::kFloat) return Float32(value);
  const uint16_t bits =
      floats_ == OnnxType::kFloat16 ? ToFloat16(value).bits : ToBFloat16(value).bits;
  return Constant(fmt::format("/model/constants/{}/{}",
                              floats_ == OnnxType::kFloat16 ? "FLOAT16" : "BFLOAT16", value),
                  {floats_, {}, BytesOf(std::span<const uint16_t>(&bits, 1))});
}

std::string OnnxGraph::Float32(float value) {
  return Constant(fmt::format("/model/constants/FLOAT/{}", value),
                  {OnnxType::kFloat, {}, BytesOf(std::span<const float>(&value, 1))});
}

std::string OnnxGraph::Double(double value) {
  return Constant(fmt::format("/model/constants/DOUBLE/{}", value),
                  {OnnxType::kDouble, {}, BytesOf(std::span<const double>(&value, 1))});
}

std::string OnnxGraph::Doubles(const std::string& name, const std::vector<double>& values) {
  return Constant(name, {OnnxType::kDouble,
                         {static_cast<int64_t>(values.size())},
                         BytesOf(std::span<const double>(values))});
}

std::string OnnxGraph::Initializer(const std::string& name, OnnxType type,
                                   std::vector<int64_t> dims, Writer write) {
  if (type == OnnxType::kFloat) type = floats_;
  if (const auto known = initializer_of_.find(name); known != initializer_of_.end()) {
    const OnnxExternalTensor& tensor = initializers_[known->second].tensor;
    LS_CHECK(tensor.type == type && tensor.dims == dims, "two kinds of {}", name);
    return name;
  }
  LS_CHECK(values_.insert(name).second, "two makers of {}", name);
  uint64_t bits = static_cast<uint64_t>(OnnxTypeBits(type));
  for (const int64_t dim : dims) bits *= static_cast<uint64_t>(dim);
  data_bytes_ = (data_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  OnnxExternalTensor tensor{name, type, std::move(dims), kDataFile, data_bytes_, (bits + 7) / 8};
  data_bytes_ += tensor.length;
  initializer_of_[name] = initializers_.size();
  initializers_.push_back({std::move(tensor), std::move(write)});
  return name;
}

Status OnnxGraph::Write(const std::filesystem::path& folder, const ExportProgress& progress) const {
  std::error_code ignored;
  const bool resumable = std::filesystem::exists(folder / kResumeName, ignored);
  uint64_t marked = resumable ? MarkIn(folder) : 0;
  const bool whole = std::ranges::any_of(initializers_, [&](const Pending& pending) {
    return pending.tensor.offset + pending.tensor.length == marked;
  });
  if (!whole) marked = 0;
  if (resumable && marked == 0) std::filesystem::remove(folder / kDataFile, ignored);
  LS_TRY(DataFile data, marked > 0
                            ? DataFile::Continue(folder / kDataFile, marked, data_bytes_, progress)
                            : DataFile::Create(folder / kDataFile, data_bytes_, progress));
  data.StoreFloatsAs(floats_ == OnnxType::kFloat16    ? DType::kF16
                     : floats_ == OnnxType::kBFloat16 ? DType::kBF16
                                                      : DType::kF32);
  for (const Pending& pending : initializers_) {
    if (pending.tensor.offset + pending.tensor.length <= marked) continue;
    if (resumable && data.size() - marked >= kMarkEvery) {
      LS_RETURN_IF_ERROR(data.Sync());
      marked = data.size();
      LS_RETURN_IF_ERROR(WriteMark(folder, marked));
    }
    LS_RETURN_IF_ERROR(data.FillTo(pending.tensor.offset));
    LS_RETURN_IF_ERROR(pending.write(data));
    LS_CHECK(data.size() == pending.tensor.offset + pending.tensor.length, "{}: {} bytes of {}",
             pending.tensor.name, data.size() - pending.tensor.offset, pending.tensor.length);
  }
  LS_RETURN_IF_ERROR(data.Finish());
  if (resumable) LS_RETURN_IF_ERROR(WriteMark(folder, data.size()));

  constexpr uint32_t kGraphName = 2, kGraphInput = 11;
  std::string graph = nodes_;
  AppendBytesField(kGraphName, "main_graph", graph);
  for (const Pending& pending : initializers_)
    AppendBytesField(kGraphInitializer, EncodeOnnxExternalTensor(pending.tensor), graph);
  for (const OnnxValueInfo& input : inputs_)
    AppendBytesField(kGraphInput, EncodeOnnxValueInfo(input), graph);
  for (const OnnxValueInfo& output : outputs_)
    AppendBytesField(kGraphOutput, EncodeOnnxValueInfo(output), graph);
  constexpr uint32_t kIr = 1, kProducerName = 2, kOpset = 8;
  std::string model;
  AppendVarintField(kIr, kIrVersion, model);
  AppendBytesField(kProducerName, "lockstep", model);
  AppendBytesField(kModelGraph, graph, model);
  AppendBytesField(kOpset, EncodeOpset("", kOnnxOpset), model);
  AppendBytesField(kOpset, EncodeOpset("com.microsoft", kMicrosoftOpset), model);
  if (model.size() > kMaxOnnxModelBytes)
    return UnsupportedError("{}: the graph has {} bytes, and protobuf allows {}", kModelFile,
                            model.size(), kMaxOnnxModelBytes);
  return WriteSmallFile(folder / kModelFile, model);
}

}  // namespace lockstep
