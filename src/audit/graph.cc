#include "audit/graph.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/dtype.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr size_t kMaxRank = 16;

// Of a shape whose elements were counted: no product of dimensions overflows.
std::vector<int64_t> RowMajor(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return strides;
}

bool Contiguous(const ConstantView& view) { return view.strides == RowMajor(view.shape); }

// Axis counted from the front; -1 when it is out of range.
int64_t Axis(int64_t axis, size_t rank) {
  if (axis < 0) axis += static_cast<int64_t>(rank);
  return axis >= 0 && axis < static_cast<int64_t>(rank) ? axis : -1;
}

}  // namespace

int64_t ConstantView::elements() const {
  int64_t n = 1;
  for (const int64_t d : shape) n = d <= 0 || n > kMaxElements / d ? 0 : n * d;
  return n;
}

Graph::Graph(const OnnxModel& model, const Bypassed& bypassed) : model_(model) {
  std::map<std::string_view, int> number;
  const auto value = [&](const std::string& name) {
    if (name.empty()) return kNoValue;
    const auto [at, fresh] = number.emplace(name, static_cast<int>(names_.size()));
    if (fresh) {
      names_.push_back(name);
      producer_.push_back(-1);
      consumers_.emplace_back();
      tensor_.push_back(-1);
      input_.push_back(false);
      output_.push_back(false);
    }
    return at->second;
  };
  for (size_t t = 0; t < model.tensors().size(); ++t) {
    const int v = value(model.tensors()[t].name);
    if (v != kNoValue) tensor_[static_cast<size_t>(v)] = static_cast<int>(t);
  }
  for (const OnnxValueInfo& input : model.inputs())
    if (const int v = value(input.name); v != kNoValue) input_[static_cast<size_t>(v)] = true;
  for (const OnnxNode& from : model.nodes()) {
    const bool constant = from.op_type == "Constant";
    const int n = static_cast<int>(nodes_.size());
    Node node{.op = from.op_type,
              .microsoft = from.domain == "com.microsoft",
              .source = static_cast<int>(from.index)};
    const auto through = bypassed.find(n);
    for (size_t slot = 0; slot < from.inputs.size(); ++slot)
      if (through == bypassed.end() || through->second == slot)
        node.in.push_back(value(from.inputs[slot]));
    if (through != bypassed.end()) {
      node.op = "Identity";
      node.microsoft = false;
    }
    for (const std::string& name : from.outputs) {
      const int v = value(name);
      node.out.push_back(v);
      if (v != kNoValue && !constant) producer_[static_cast<size_t>(v)] = n;
    }
    nodes_.push_back(std::move(node));
  }
  for (const OnnxValueInfo& output : model.outputs())
    if (const int v = value(output.name); v != kNoValue) output_[static_cast<size_t>(v)] = true;
  DropNoOps(bypassed);
  DropDead();
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n)
    for (const int v : node(n).in) {
      if (v == kNoValue) continue;
      auto& users = consumers_[static_cast<size_t>(v)];
      if (users.empty() || users.back() != n) users.push_back(n);
    }
  // A file's nodes stand behind what they read: one pass. What stands before it is no constant.
  constants_.resize(names_.size());
  for (size_t v = 0; v < names_.size(); ++v) {
    if (tensor_[v] < 0) continue;
    const OnnxTensor& tensor = model_.tensors()[static_cast<size_t>(tensor_[v])];
    ConstantView view{.tensor = tensor_[v], .shape = tensor.dims, .strides = {}};
    if (OnnxTypeBits(tensor.type) == 0 || view.elements() == 0 ||
        view.elements() != tensor.elements || tensor.dims.size() > kMaxRank)
      continue;
    view.strides = RowMajor(tensor.dims);
    constants_[v] = std::move(view);
  }
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n)
    for (size_t slot = 0; slot < node(n).out.size(); ++slot)
      if (const int v = node(n).out[slot]; v != kNoValue && Producer(v) == n)
        if (auto view = Fold(n, slot)) constants_[static_cast<size_t>(v)] = std::move(view);
}

int Graph::Producer(int value) const {
  return value == kNoValue ? -1 : producer_[static_cast<size_t>(value)];
}

const std::vector<int>& Graph::Consumers(int value) const {
  static const std::vector<int> kNone;
  return value == kNoValue ? kNone : consumers_[static_cast<size_t>(value)];
}

int Graph::Value(std::string_view name) const {
  const auto at = std::find(names_.begin(), names_.end(), name);
  return at == names_.end() ? kNoValue : static_cast<int>(at - names_.begin());
}

bool Graph::IsInput(int value) const {
  return value != kNoValue && input_[static_cast<size_t>(value)];
}

bool Graph::IsOutput(int value) const {
  return value != kNoValue && output_[static_cast<size_t>(value)];
}

namespace {
const OnnxNode& SourceOf(const Graph& graph, int node) {
  return graph.model().nodes()[static_cast<size_t>(graph.node(node).source)];
}
}  // namespace

double Graph::Float(int node, std::string_view attribute, double otherwise) const {
  const auto value = SourceOf(*this, node).Float(attribute);
  return value ? double{*value} : otherwise;
}

int64_t Graph::Int(int node, std::string_view attribute, int64_t otherwise) const {
  return SourceOf(*this, node).Int(attribute).value_or(otherwise);
}

std::string Graph::Text(int node, std::string_view attribute, std::string_view otherwise) const {
  return SourceOf(*this, node).String(attribute).value_or(std::string(otherwise));
}

std::vector<int64_t> Graph::Ints(int node, std::string_view attribute) const {
  const OnnxAttribute* found = SourceOf(*this, node).Find(attribute);
  if (found == nullptr) return {};
  const auto* list = std::get_if<std::vector<int64_t>>(&found->value);
  return list == nullptr ? std::vector<int64_t>{} : *list;
}

bool Graph::Has(int node, std::string_view attribute) const {
  return SourceOf(*this, node).Find(attribute) != nullptr;
}

void Graph::Read(int tensor, int64_t offset, int64_t stride, int64_t n, float* out) const {
  const OnnxTensor& from = model_.tensors()[static_cast<size_t>(tensor)];
  const int bits = OnnxTypeBits(from.type);
  const auto fits = [&](int64_t at) {
    return at >= 0 && at < from.elements && bits > 0 &&
           static_cast<uint64_t>(at + 1) * static_cast<uint64_t>(bits) <= from.bytes.size() * 8;
  };
  const std::byte* bytes = from.bytes.data();
  const auto with = [&](auto convert) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = offset + i * stride;
      out[i] = fits(at) ? convert(at) : 0.0f;
    }
  };
  const auto plain = [&](DType dtype, size_t size) {
    if (stride == 1 && n > 0 && fits(offset) && fits(offset + n - 1)) {
      ConvertToFloat(dtype, bytes + static_cast<size_t>(offset) * size, static_cast<size_t>(n),
                     out);
      return;
    }
    with([&](int64_t at) {
      float x;
      ConvertToFloat(dtype, bytes + static_cast<size_t>(at) * size, 1, &x);
      return x;
    });
  };
  switch (from.type) {
    case OnnxType::kFloat:
      return plain(DType::kF32, 4);
    case OnnxType::kDouble:
      return plain(DType::kF64, 8);
    case OnnxType::kFloat16:
      return plain(DType::kF16, 2);
    case OnnxType::kBFloat16:
      return plain(DType::kBF16, 2);
    case OnnxType::kInt64:
      return plain(DType::kI64, 8);
    case OnnxType::kInt32:
      return plain(DType::kI32, 4);
    case OnnxType::kInt16:
      return plain(DType::kI16, 2);
    case OnnxType::kInt8:
      return plain(DType::kI8, 1);
    case OnnxType::kUInt8:
      return plain(DType::kU8, 1);
    case OnnxType::kBool:
      return plain(DType::kBool, 1);
    case OnnxType::kUInt4:
    case OnnxType::kInt4:
      return with([&](int64_t at) {
        const int code = std::to_integer<int>(bytes[at / 2]) >> (at % 2 * 4) & 15;
        return static_cast<float>(from.type == OnnxType::kInt4 && code > 7 ? code - 16 : code);
      });
    default:
      return with([](int64_t) { return 0.0f; });
  }
}

std::vector<float> Graph::Read(const ConstantView& view) const {
  std::vector<float> out(static_cast<size_t>(view.elements()));
  if (out.empty()) return out;
  if (view.shape.empty()) {
    Read(view.tensor, view.offset, 1, 1, out.data());
  } else {
    const int64_t inner = view.shape.back();
    std::vector<int64_t> at(view.shape.size() - 1, 0);
    for (size_t written = 0; written < out.size(); written += static_cast<size_t>(inner)) {
      int64_t offset = view.offset;
      for (size_t i = 0; i < at.size(); ++i) offset += at[i] * view.strides[i];
      Read(view.tensor, offset, view.strides.back(), inner, out.data() + written);
      for (size_t i = at.size(); i-- > 0;) {
        if (++at[i] < view.shape[i]) break;
        at[i] = 0;
      }
    }
  }
  if (view.factor != 1 || view.addend != 0)
    for (float& x : out) x = x * view.factor + view.addend;
  return out;
}

const std::optional<ConstantView>& Graph::Constant(int value) const {
  static const std::optional<ConstantView> kNone;
  return value == kNoValue ? kNone : constants_[static_cast<size_t>(value)];
}

std::optional<double> Graph::Scalar(int value) const {
  const auto& view = Constant(value);
  if (!view || view->elements() != 1) return std::nullopt;
  return double{Read(*view)[0]};
}

std::vector<int64_t> Graph::Integers(int value) const {
  const auto& view = Constant(value);
  if (!view || view->factor != 1 || view->addend != 0) return {};
  const auto numbers = ReadInts(model_.tensors()[static_cast<size_t>(view->tensor)]);
  if (!numbers) return {};
  const auto all = static_cast<int64_t>(numbers->size());
  std::vector<int64_t> out;
  std::vector<int64_t> at(view->shape.size(), 0);
  for (int64_t n = view->elements(); n > 0; --n) {
    int64_t offset = view->offset;
    for (size_t i = 0; i < at.size(); ++i) offset += at[i] * view->strides[i];
    if (offset < 0 || offset >= all) return {};
    out.push_back((*numbers)[static_cast<size_t>(offset)]);
    for (size_t i = at.size(); i-- > 0;) {
      if (++at[i] < view->shape[i]) break;
      at[i] = 0;
    }
  }
  return out;
}

std::optional<ConstantView> Graph::Fold(int n, size_t out_slot) const {
  const Node& node = this->node(n);
  const std::string_view op = node.op;
  if (op == "Add" || op == "Sub" || op == "Mul" || op == "Div") {
    const auto &first = Constant(node.In(0)), &second = Constant(node.In(1));
    if (!first || !second) return std::nullopt;
    for (const size_t side : {size_t{0}, size_t{1}}) {
      auto view = side == 0 ? first : second;
      const auto& other = side == 0 ? second : first;
      if (other->elements() != 1) continue;
      if (side == 1 && (op == "Sub" || op == "Div")) continue;
      const float c = Read(*other)[0];
      // One fp32 operation; another one after it would round differently.
      if (view->factor != 1 || view->addend != 0) return std::nullopt;
      if (op == "Add") view->addend = c;
      if (op == "Sub") view->addend = -c;
      if (op == "Mul") view->factor = c;
      if (op == "Div") view->factor = 1 / c;
      return view;
    }
    return std::nullopt;
  }
  if (op != "Transpose" && op != "Reshape" && op != "Cast" && op != "Identity" &&
      op != "Unsqueeze" && op != "Squeeze" && op != "Split")
    return std::nullopt;
  auto view = Constant(node.In(0));
  if (!view) return std::nullopt;
  const size_t rank = view->shape.size();
  if (op == "Identity") return view;
  if (op == "Cast") {
    const int64_t to = Int(n, "to", 0);
    const bool widening = to == static_cast<int64_t>(OnnxType::kFloat) ||
                          to == static_cast<int64_t>(OnnxType::kDouble);
    return widening ? view : std::nullopt;
  }
  if (op == "Transpose") {
    std::vector<int64_t> perm = Ints(n, "perm");
    if (perm.empty())
      for (size_t i = rank; i-- > 0;) perm.push_back(static_cast<int64_t>(i));
    if (perm.size() != rank) return std::nullopt;
    ConstantView out = *view;
    for (size_t i = 0; i < rank; ++i) {
      const auto at = perm.begin() + static_cast<std::ptrdiff_t>(i);
      if (perm[i] < 0 || perm[i] >= static_cast<int64_t>(rank) ||
          std::find(perm.begin(), at, perm[i]) != at)
        return std::nullopt;
      out.shape[i] = view->shape[static_cast<size_t>(perm[i])];
      out.strides[i] = view->strides[static_cast<size_t>(perm[i])];
    }
    return out;
  }
  if (op == "Split") {
    const int64_t axis = Axis(Int(n, "axis", 0), rank);
    if (axis < 0) return std::nullopt;
    std::vector<int64_t> sizes = Ints(n, "split");
    if (sizes.empty()) sizes = Integers(node.In(1));
    const auto a = static_cast<size_t>(axis);
    if (sizes.empty())
      sizes.assign(node.out.size(), view->shape[a] / static_cast<int64_t>(node.out.size()));
    int64_t before = 0;
    for (size_t i = 0; i < node.out.size() && i < sizes.size(); ++i) {
      if (sizes[i] < 1 || sizes[i] > view->shape[a] - before) return std::nullopt;
      if (i == out_slot) {
        view->offset += before * view->strides[a];
        view->shape[a] = sizes[i];
        return view;
      }
      before += sizes[i];
    }
    return std::nullopt;
  }
  // Reshape, Squeeze, Unsqueeze: the same elements in the same order. Strided views keep their
  // strides only where dimensions of 1 come and go.
  std::vector<int64_t> shape;
  if (op == "Reshape") {
    shape = Integers(node.In(1));
    if (shape.empty() || shape.size() > kMaxRank) return std::nullopt;
    int64_t known = 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == 0 && i < rank) shape[i] = view->shape[i];
      if (shape[i] < -1 || shape[i] == 0 || shape[i] > kMaxElements / known) return std::nullopt;
      if (shape[i] > 0) known *= shape[i];
    }
    for (int64_t& d : shape)
      if (d == -1) d = known > 0 ? view->elements() / known : 0;
  } else {
    std::vector<int64_t> axes = Ints(n, "axes");
    if (axes.empty()) axes = Integers(node.In(1));
    if (axes.size() > kMaxRank || rank + axes.size() > kMaxRank) return std::nullopt;
    if (op == "Squeeze") {
      for (size_t i = 0; i < rank; ++i) {
        const bool named = axes.empty() || std::any_of(axes.begin(), axes.end(), [&](int64_t a) {
                             return Axis(a, rank) == static_cast<int64_t>(i);
                           });
        if (!(named && view->shape[i] == 1)) shape.push_back(view->shape[i]);
      }
    } else {
      const size_t out_rank = rank + axes.size();
      size_t from = 0;
      for (size_t i = 0; i < out_rank; ++i) {
        const bool fresh = std::any_of(axes.begin(), axes.end(), [&](int64_t a) {
          return Axis(a, out_rank) == static_cast<int64_t>(i);
        });
        shape.push_back(fresh || from >= rank ? 1 : view->shape[from++]);
      }
    }
  }
  ConstantView out = *view;
  out.shape = shape;
  if (out.elements() != view->elements()) return std::nullopt;
  if (Contiguous(*view)) {
    out.strides = RowMajor(shape);
    return out;
  }
  std::vector<int64_t> real, strides;
  for (size_t i = 0; i < rank; ++i)
    if (view->shape[i] != 1) {
      real.push_back(view->shape[i]);
      strides.push_back(view->strides[i]);
    }
  out.strides.assign(shape.size(), 1);
  size_t at = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (at >= real.size() || real[at] != shape[i]) return std::nullopt;
    out.strides[i] = strides[at++];
  }
  return out;
}

}  // namespace lockstep
