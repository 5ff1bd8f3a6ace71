// An export of a small checkpoint, changed as the bytes say (attributes, wiring, numbers, further
// operators): a report or an error, and a repair that is planned leaves a model that can be read,
// and audited, again.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "audit/audit.h"
#include "audit/repair.h"
#include "audit/taps_of.h"
#include "model/model.h"

namespace {

using lockstep::OnnxModel;
using lockstep::OnnxPatch;

const std::string kFolder = LOCKSTEP_SOURCE_DIR "/tests/golden/onnx/gemma2/";

template <typename T>
T Must(lockstep::Result<T> result) {
  if (result) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::abort();
}

// The export in one file: every tensor is patched with itself, and so lies in it.
std::string Inlined(const char* builder) {
  const OnnxModel model = Must(OnnxModel::Open(kFolder + builder));
  OnnxPatch patch;
  for (const lockstep::OnnxTensor& tensor : model.tensors())
    if (tensor.storage == lockstep::OnnxTensor::Storage::kExternal)
      patch.tensors.push_back(
          {.name = tensor.name, .bytes = {tensor.bytes.begin(), tensor.bytes.end()}});
  return Must(lockstep::PatchedOnnx(model, patch));
}

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool done() const { return size_ == 0; }
  template <typename T>
  T Take() {
    T value{};
    const size_t n = std::min(sizeof value, size_);
    std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }
  size_t Below(size_t n) { return n == 0 ? 0 : Take<uint16_t>() % n; }
  int64_t Number() {
    constexpr int64_t kEnds[] = {std::numeric_limits<int64_t>::min(),
                                 std::numeric_limits<int64_t>::max(),
                                 -1,
                                 0,
                                 int64_t{1} << 32,
                                 int64_t{1} << 40};
    const size_t kind = Below(16);
    return kind < std::size(kEnds) ? kEnds[kind] : kind < 12 ? Take<int8_t>() : Take<int64_t>();
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

std::string AnyValue(const OnnxModel& model, Bytes& bytes) {
  if (bytes.Below(3) == 0 && !model.tensors().empty())
    return model.tensors()[bytes.Below(model.tensors().size())].name;
  const auto& node = model.nodes()[bytes.Below(model.nodes().size())];
  return node.outputs[bytes.Below(node.outputs.size())];
}

void Further(const OnnxModel& model, Bytes& bytes, OnnxPatch& patch) {
  constexpr const char* kOps[] = {"Mul",      "Add",         "Split",
                                  "Reshape",  "Transpose",   "Squeeze",
                                  "Softmax",  "MatMulNBits", "Gather",
                                  "QMoE",     "MoE",         "GatherBlockQuantized",
                                  "MatMul",   "Gemm",        "TopK",
                                  "Slice",    "Concat",      "RotaryEmbedding",
                                  "Conv",     "Attention",   "Unsqueeze",
                                  "Identity", "Clip",        "SkipLayerNormalization",
                                  "Tanh",     "Sub",         "MultiHeadAttention"};
  constexpr const char* kAttributes[] = {"N",
                                         "K",
                                         "bits",
                                         "block_size",
                                         "axis",
                                         "num_heads",
                                         "kv_num_heads",
                                         "expert_weight_bits",
                                         "swiglu_fusion",
                                         "k",
                                         "group",
                                         "transB",
                                         "to",
                                         "gather_axis",
                                         "accuracy_level",
                                         "rotary_embedding_dim",
                                         "q_num_heads"};
  const size_t at = bytes.Below(model.nodes().size());
  if (model.nodes()[at].outputs.empty()) return;
  const std::string out = model.nodes()[at].outputs[0];
  patch.results.push_back({.node = at, .slot = 0, .value = out + "_before"});
  OnnxPatch::Node node{.after = at,
                       .op_type = kOps[bytes.Below(std::size(kOps))],
                       .domain = bytes.Below(2) == 0 ? "" : "com.microsoft",
                       .inputs = {out + "_before"},
                       .outputs = {out}};
  for (size_t n = bytes.Below(5); n > 0; --n) {
    if (bytes.Below(3) != 0) {
      node.inputs.push_back(AnyValue(model, bytes));
      continue;
    }
    const std::string name = out + "_" + std::to_string(n);
    std::vector<std::byte> numbers;
    const auto count = static_cast<int64_t>(bytes.Below(5));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t number = bytes.Number();
      const auto* begin = reinterpret_cast<const std::byte*>(&number);
      numbers.insert(numbers.end(), begin, begin + sizeof number);
    }
    patch.nodes.push_back(
        {.after = at,
         .op_type = "Constant",
         .outputs = {name},
         .value = OnnxPatch::Node::Value{lockstep::OnnxType::kInt64, {count}, std::move(numbers)}});
    node.inputs.push_back(name);
  }
  for (size_t n = bytes.Below(5); n > 0; --n)
    node.attributes.emplace_back(kAttributes[bytes.Below(std::size(kAttributes))], bytes.Number());
  patch.nodes.push_back(std::move(node));
}

void Change(const OnnxModel& model, Bytes& bytes, OnnxPatch& patch) {
  const size_t n = bytes.Below(model.nodes().size());
  const lockstep::OnnxNode& node = model.nodes()[n];
  switch (bytes.Below(5)) {
    case 0:
      if (!node.attributes.empty()) {
        const auto& attribute = node.attributes[bytes.Below(node.attributes.size())];
        if (std::holds_alternative<int64_t>(attribute.value))
          patch.attributes.push_back({n, attribute.name, bytes.Number()});
        if (std::holds_alternative<float>(attribute.value))
          patch.attributes.push_back({n, attribute.name, bytes.Take<float>()});
      }
      return;
    case 1:
      if (!node.inputs.empty())
        patch.inputs.push_back({n, bytes.Below(node.inputs.size()), AnyValue(model, bytes)});
      return;
    case 2: {
      const auto& tensor = model.tensors()[bytes.Below(model.tensors().size())];
      OnnxPatch::Tensor changed{.name = tensor.name,
                                .bytes = {tensor.bytes.begin(), tensor.bytes.end()}};
      const size_t at = bytes.Below(changed.bytes.size());
      const auto number = bytes.Take<uint64_t>();
      for (size_t i = 0; i < 8 && at + i < changed.bytes.size(); ++i)
        changed.bytes[at + i] = static_cast<std::byte>(number >> (8 * i));
      if (bytes.Below(3) == 0)
        changed.dims = bytes.Below(2) == 0 ? std::vector<int64_t>{1, tensor.elements, 1}
                                           : std::vector<int64_t>{tensor.elements};
      patch.tensors.push_back(std::move(changed));
      return;
    }
    default:
      Further(model, bytes, patch);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const reference =
      new lockstep::Model(Must(lockstep::LoadModel(kFolder + "checkpoint")));
  static const auto* const genai = new std::string(Inlined("genai"));
  static const auto* const mobius = new std::string(Inlined("mobius"));
  const auto parse = [](const std::string& text) {
    return OnnxModel::Parse(std::as_bytes(std::span(text)), "fuzz.onnx");
  };
  Bytes bytes(data, size);
  const OnnxModel base = Must(parse(bytes.Below(2) == 0 ? *genai : *mobius));
  OnnxPatch patch;
  for (int changes = 0; changes < 8 && !bytes.done(); ++changes) Change(base, bytes, patch);
  const auto changed = lockstep::PatchedOnnx(base, patch);
  if (!changed) return 0;
  const auto model = parse(*changed);
  if (!model) return 0;
  const auto report = lockstep::Audit(*reference, *model);
  if (!report) return 0;
  lockstep::TapsOf(*model, report->decoder);
  for (const lockstep::Finding& finding : report->findings)
    if (finding.sentence.find('\n') != std::string::npos ||
        finding.sentence.find("by nan") != std::string::npos)
      std::abort();
  const auto plan = lockstep::PlanRepair(*model, *report);
  if (!plan || plan->changes.size() + plan->left.size() > report->findings.size()) std::abort();
  const auto patched = lockstep::PatchedOnnx(*model, plan->patch);
  if (!patched) std::abort();
  const auto again = parse(*patched);
  if (!again || !lockstep::Audit(*reference, *again)) std::abort();
  return 0;
}
