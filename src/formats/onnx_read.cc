#include "formats/onnx_read.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "base/quoted.h"

namespace lockstep {
namespace {

constexpr size_t kMaxNodes = 1'000'000;

template <typename T>
std::vector<std::byte> BytesOf(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Status OnnxReader::Read() {
  if (bytes_.empty()) return InputError("{}: expected an ONNX model, found an empty file", place_);
  ProtoReader message(bytes_, bytes_.data(), place_);
  bool found_graph = false;
  while (!message.done()) {
    LS_TRY(const ProtoField field, message.Next());
    switch (field.number) {
      case 1:
        LS_RETURN_IF_ERROR(message.Expect(field, ProtoWire::kVarint, "ir_version"));
        model_.ir_version_ = static_cast<int64_t>(field.value);
        break;
      case 2:
      case 3:
        LS_RETURN_IF_ERROR(message.Expect(field, ProtoWire::kBytes, "the producer"));
        (field.number == 2 ? model_.producer_name_ : model_.producer_version_) = field.text();
        break;
      case kModelGraph:
        LS_RETURN_IF_ERROR(message.Expect(field, ProtoWire::kBytes, "the graph"));
        if (found_graph) return message.FailAt(field, "a second graph, expected one");
        found_graph = true;
        LS_RETURN_IF_ERROR(ReadGraph(message.Inside(field)));
        break;
      case 8: {
        LS_RETURN_IF_ERROR(message.Expect(field, ProtoWire::kBytes, "an opset import"));
        std::string domain;
        int64_t version = 0;
        for (ProtoReader inside = message.Inside(field); !inside.done();) {
          LS_TRY(const ProtoField part, inside.Next());
          if (part.number == 1) domain = part.text();
          if (part.number == 2) version = static_cast<int64_t>(part.value);
        }
        model_.opsets_[domain == "ai.onnx" ? "" : domain] = version;
        break;
      }
      case 14: {
        LS_RETURN_IF_ERROR(message.Expect(field, ProtoWire::kBytes, "metadata_props"));
        LS_TRY(auto entry, ReadOnnxEntry(message.Inside(field)));
        model_.metadata_.insert_or_assign(std::move(entry.first), std::move(entry.second));
        break;
      }
      default:
        break;
    }
  }
  if (!found_graph) return InputError("{}: holds no graph (is this an ONNX model?)", place_);
  return {};
}

Status OnnxReader::ReadGraph(ProtoReader graph) {
  while (!graph.done()) {
    LS_TRY(const ProtoField field, graph.Next());
    if (field.number != kGraphNode && field.number != kGraphInitializer && field.number != 11 &&
        field.number != kGraphOutput)
      continue;
    LS_RETURN_IF_ERROR(graph.Expect(field, ProtoWire::kBytes, "a part of the graph"));
    if (field.number == kGraphNode) {
      if (model_.nodes_.size() == kMaxNodes)
        return graph.FailAt(field, fmt::format("more than {} nodes", kMaxNodes));
      LS_RETURN_IF_ERROR(ReadNode(graph.Inside(field)));
    } else if (field.number == kGraphInitializer) {
      LS_TRY(OnnxTensor tensor, ReadTensor(graph.Inside(field), field));
      if (tensor.name.empty()) return graph.FailAt(field, "an initializer without a name");
      model_.tensors_.push_back(std::move(tensor));
    } else {
      LS_TRY(OnnxValueInfo value, ReadValueInfo(graph.Inside(field)));
      if (value.name.empty()) return graph.FailAt(field, "an input or output without a name");
      (field.number == 11 ? model_.inputs_ : model_.outputs_).push_back(std::move(value));
    }
  }
  model_.num_initializers_ = model_.tensors_.size();
  for (OnnxTensor& tensor : constants_) model_.tensors_.push_back(std::move(tensor));
  return {};
}

Status OnnxReader::ReadNode(ProtoReader message) {
  OnnxNode node{.index = model_.nodes_.size()};
  std::set<std::string, std::less<>> names;
  while (!message.done()) {
    LS_TRY(const ProtoField field, message.Next());
    if (field.number > 7 || field.number == 6) continue;
    LS_RETURN_IF_ERROR(message.Expect(field, ProtoWire::kBytes, "a part of a node"));
    switch (field.number) {
      case 1:
        node.inputs.emplace_back(field.text());
        break;
      case 2:
        node.outputs.emplace_back(field.text());
        break;
      case 3:
        node.name = field.text();
        break;
      case 4:
        node.op_type = field.text();
        break;
      case 7:
        node.domain = field.text() == "ai.onnx" ? "" : field.text();
        break;
      case kNodeAttribute: {
        LS_TRY(OnnxAttribute attribute, ReadAttribute(message.Inside(field)));
        if (attribute.name.empty()) return message.FailAt(field, "an attribute without a name");
        if (!names.insert(attribute.name).second)
          return message.FailAt(
              field, fmt::format("a second attribute {} in one node", Quoted(attribute.name)));
        node.attributes.push_back(std::move(attribute));
        break;
      }
      default:
        break;
    }
  }
  if (node.op_type.empty())
    return InputError("{}: node {} ({}) has no op_type", place_, node.index, Quoted(node.name));
  if (node.op_type == "Constant" && node.domain.empty()) LS_RETURN_IF_ERROR(AddConstant(node));
  model_.nodes_.push_back(std::move(node));
  return {};
}

// Constant's value comes in one of several attributes (the operator's documentation).
Status OnnxReader::AddConstant(const OnnxNode& node) {
  if (node.outputs.size() != 1 || node.outputs[0].empty() || node.attributes.size() != 1)
    return InputError("{}: the Constant {} (node {}) has {} outputs and {} attributes, expected 1",
                      place_, Quoted(node.name), node.index, node.outputs.size(),
                      node.attributes.size());
  OnnxTensor tensor;
  std::vector<std::byte> owned;
  const auto& value = node.attributes[0].value;
  if (const auto* t = std::get_if<std::shared_ptr<const OnnxTensor>>(&value)) {
    tensor = **t;
  } else if (const auto* f = std::get_if<float>(&value)) {
    tensor.type = OnnxType::kFloat;
    owned = BytesOf(std::span(f, 1));
  } else if (const auto* i = std::get_if<int64_t>(&value)) {
    tensor.type = OnnxType::kInt64;
    owned = BytesOf(std::span(i, 1));
  } else if (const auto* fs = std::get_if<std::vector<float>>(&value)) {
    tensor.type = OnnxType::kFloat;
    tensor.dims = {static_cast<int64_t>(fs->size())};
    owned = BytesOf(std::span<const float>(*fs));
  } else if (const auto* is = std::get_if<std::vector<int64_t>>(&value)) {
    tensor.type = OnnxType::kInt64;
    tensor.dims = {static_cast<int64_t>(is->size())};
    owned = BytesOf(std::span<const int64_t>(*is));
  } else {
    return {};  // strings and sparse tensors: a value without numbers
  }
  if (!std::holds_alternative<std::shared_ptr<const OnnxTensor>>(value)) {
    tensor.storage = OnnxTensor::Storage::kTyped;
    tensor.elements = tensor.dims.empty() ? 1 : tensor.dims[0];
    tensor.owned = std::make_shared<const std::vector<std::byte>>(std::move(owned));
    tensor.bytes = *tensor.owned;
  }
  tensor.name = node.outputs[0];
  tensor.node = node.index;
  constants_.push_back(std::move(tensor));
  return {};
}

Result<OnnxAttribute> OnnxReader::ReadAttribute(ProtoReader message) {
  OnnxAttribute out;
  int64_t type = 0;
  float f = 0;
  int64_t i = 0;
  std::string s;
  std::vector<std::byte> floats;
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
  std::shared_ptr<const OnnxTensor> tensor;
  OnnxSubgraph subgraph;
  int64_t seen = 0;  // the kind by the field that is there, for writers that leave `type` out
  while (!message.done()) {
    LS_TRY(const ProtoField field, message.Next());
    const auto expect = [&](ProtoWire wire) {
      return message.Expect(field, wire, "a part of an attribute");
    };
    // AttributeProto.AttributeType of what the field holds.
    switch (field.number) {
      case kAttributeName:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kBytes));
        out.name = field.text();
        break;
      case kAttributeFloat:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kFixed32));
        f = std::bit_cast<float>(static_cast<uint32_t>(field.value));
        seen = 1;
        break;
      case kAttributeInt:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kVarint));
        i = static_cast<int64_t>(field.value);
        seen = 2;
        break;
      case kAttributeString:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kBytes));
        s = field.text();
        seen = 3;
        break;
      case kAttributeTensor: {
        LS_RETURN_IF_ERROR(expect(ProtoWire::kBytes));
        LS_TRY(OnnxTensor read, ReadTensor(message.Inside(field), field));
        tensor = std::make_shared<const OnnxTensor>(std::move(read));
        seen = 4;
        break;
      }
      case 6:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kBytes));
        subgraph.bytes = field.bytes;
        seen = 5;
        break;
      case 7:
        LS_RETURN_IF_ERROR(message.Fixed(field, 4, "an attribute's floats", floats));
        seen = 6;
        break;
      case 8:
        LS_RETURN_IF_ERROR(message.Varints(field, "an attribute's ints", ints));
        seen = 7;
        break;
      case 9:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kBytes));
        strings.emplace_back(field.text());
        seen = 8;
        break;
      case kAttributeType:
        LS_RETURN_IF_ERROR(expect(ProtoWire::kVarint));
        type = static_cast<int64_t>(field.value);
        break;
      default:
        break;
    }
  }
  switch (type != 0 ? type : seen) {
    case 1:
      out.value = f;
      break;
    case 2:
      out.value = i;
      break;
    case 3:
      out.value = std::move(s);
      break;
    case 4:
      if (tensor != nullptr) out.value = std::move(tensor);
      break;
    case 5:
      out.value = subgraph;
      break;
    case 6: {
      std::vector<float> values(floats.size() / 4);
      if (!floats.empty()) std::memcpy(values.data(), floats.data(), floats.size());
      out.value = std::move(values);
      break;
    }
    case 7:
      out.value = std::move(ints);
      break;
    case 8:
      out.value = std::move(strings);
      break;
    default:
      break;
  }
  return out;
}

Result<OnnxValueInfo> OnnxReader::ReadValueInfo(ProtoReader message) {
  OnnxValueInfo out;
  while (!message.done()) {
    LS_TRY(const ProtoField field, message.Next());
    if (field.number > 2) continue;
    LS_RETURN_IF_ERROR(message.Expect(field, ProtoWire::kBytes, "an input's or output's type"));
    if (field.number == 1) {
      out.name = field.text();
      continue;
    }
    for (ProtoReader type = message.Inside(field); !type.done();) {
      LS_TRY(const ProtoField part, type.Next());
      if (part.number != 1) continue;  // tensor_type; the others are sequences, maps, ...
      LS_RETURN_IF_ERROR(type.Expect(part, ProtoWire::kBytes, "a tensor type"));
      LS_RETURN_IF_ERROR(ReadTensorType(type.Inside(part), out));
    }
  }
  return out;
}

Status OnnxReader::ReadTensorType(ProtoReader message, OnnxValueInfo& out) {
  while (!message.done()) {
    LS_TRY(const ProtoField field, message.Next());
    if (field.number == 1) {
      LS_RETURN_IF_ERROR(message.Expect(field, ProtoWire::kVarint, "an element type"));
      out.type = static_cast<OnnxType>(static_cast<int32_t>(field.value));
    }
    if (field.number != 2) continue;
    LS_RETURN_IF_ERROR(message.Expect(field, ProtoWire::kBytes, "a shape"));
    out.dims.emplace();
    for (ProtoReader shape = message.Inside(field); !shape.done();) {
      LS_TRY(const ProtoField part, shape.Next());
      if (part.number != 1) continue;
      LS_RETURN_IF_ERROR(shape.Expect(part, ProtoWire::kBytes, "a dimension"));
      OnnxDim dim;
      for (ProtoReader inside = shape.Inside(part); !inside.done();) {
        LS_TRY(const ProtoField x, inside.Next());
        if (x.number == 1) dim.value = static_cast<int64_t>(x.value);
        if (x.number == 2) dim.symbol = x.text();
      }
      out.dims->push_back(std::move(dim));
    }
  }
  return {};
}

}  // namespace lockstep
