// Which operators multiply by a stored matrix, and how each keeps it.
#include "audit/decoder.h"
#include "formats/ort_int8.h"

namespace lockstep {
namespace {

bool SaneSize(int64_t n) { return n > 0 && n < (int64_t{1} << 32); }
constexpr int64_t kMostBlock = int64_t{1} << 24;

StoredMatrix Plain(ConstantView view) {
  StoredMatrix out{.rows = view.shape[0], .cols = view.shape[1]};
  out.values = std::move(view);
  return out;
}

ConstantView Transposed(ConstantView view) {
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return view;
}

std::optional<int> TensorOf(const Graph& graph, int value) {
  const auto& view = graph.Constant(value);
  return view ? std::optional(view->tensor) : std::nullopt;
}

const OnnxTensor& At(const Graph& graph, int tensor) {
  return graph.model().tensors()[static_cast<size_t>(tensor)];
}

bool Packed(const Graph& graph, int tensor) {
  return At(graph, tensor).type == OnnxType::kUInt8 || At(graph, tensor).type == OnnxType::kUInt4;
}

// A file may say any sizes: the codes and scales that they ask for must be there. Rows, columns and
// bits are sane (no product of theirs overflows), the block is at least 1.
bool AreThere(const Graph& graph, const FoundMatrix& found) {
  const BlockCodes& codes = *found.matrix.codes;
  const auto bytes = static_cast<int64_t>(At(graph, found.matrix.values.tensor).bytes.size());
  return codes.row_bits >= found.matrix.cols * codes.bits &&
         codes.row_bits <= bytes / found.matrix.rows * 8 + 7 &&
         codes.blocks <= At(graph, codes.scales).elements / found.matrix.rows;
}

std::optional<FoundMatrix> NBits(const Graph& graph, int n) {
  const auto& node = graph.node(n);
  const int64_t rows = graph.Int(n, "N", 0), cols = graph.Int(n, "K", 0);
  const int64_t block = graph.Int(n, "block_size", 0);
  const int64_t bits = graph.Int(n, "bits", 4);
  const auto codes = TensorOf(graph, node.In(1)), scales = TensorOf(graph, node.In(2));
  if (!codes || !scales || !SaneSize(rows) || !SaneSize(cols) || block < 1 || bits < 1 || bits > 8)
    return std::nullopt;
  FoundMatrix out{.node = n};
  out.matrix.rows = rows;
  out.matrix.cols = cols;
  out.matrix.values.tensor = *codes;
  BlockCodes& b = out.matrix.codes.emplace();
  b.bits = static_cast<int>(bits);
  b.block = block;
  b.blocks = 1 + (cols - 1) / block;
  if (block > kMostBlock) return std::nullopt;
  b.row_bits = b.blocks * block * bits;
  b.scales = *scales;
  b.zero = static_cast<float>(1 << (bits - 1));
  if (!AreThere(graph, out)) return std::nullopt;
  if (const auto zeros = TensorOf(graph, node.In(3))) {
    b.zeros = *zeros;
    b.zeros_packed = Packed(graph, *zeros);
  }
  if (auto bias = graph.Constant(node.In(5)); bias && bias->elements() == rows) out.bias = bias;
  if (MatMulNBitsRoundsInput({.bits = bits,
                              .block = block,
                              .columns = cols,
                              .accuracy_level = graph.Int(n, "accuracy_level", 0),
                              .float_zeros = b.zeros >= 0 && !b.zeros_packed}))
    out.int8_block = block;
  return out;
}

std::optional<FoundMatrix> GatheredCodes(const Graph& graph, int n) {
  const auto& node = graph.node(n);
  const auto& view = graph.Constant(node.In(0));
  const auto scales = TensorOf(graph, node.In(2));
  if (!view || !scales || view->shape.size() != 2) return std::nullopt;
  const OnnxType type = At(graph, view->tensor).type;
  const bool bytes = type == OnnxType::kUInt8;
  const int64_t bits = bytes ? graph.Int(n, "bits", 4) : 4;
  const int64_t block = graph.Int(n, "block_size", 128);
  if (block < 1 || bits < 1 || bits > 8 || graph.Int(n, "gather_axis", 0) != 0) return std::nullopt;
  FoundMatrix out{.node = n};
  out.matrix.rows = view->shape[0];
  out.matrix.cols = bytes ? view->shape[1] * 8 / bits : view->shape[1];
  if (!SaneSize(out.matrix.rows) || !SaneSize(out.matrix.cols)) return std::nullopt;
  out.matrix.values.tensor = view->tensor;
  BlockCodes& b = out.matrix.codes.emplace();
  b.bits = static_cast<int>(bits);
  b.block = block;
  b.blocks = 1 + (out.matrix.cols - 1) / block;
  b.row_bits = bytes ? view->shape[1] * 8 : out.matrix.cols * bits;
  b.scales = *scales;
  // uint8 codes are centred where no zero points are given, 4-bit types are not.
  b.zero = bytes ? static_cast<float>(1 << (bits - 1)) : 0;
  b.is_signed = type == OnnxType::kInt4;
  if (!AreThere(graph, out)) return std::nullopt;
  if (const auto zeros = TensorOf(graph, node.In(3))) b.zeros = *zeros;
  return out;
}

// What DequantizeLinear makes of codes: the outputs of the matrix are the first axis of what it
// gives (behind a Transpose that may follow), or the second. One scale for all, for each output, or
// for each block of inputs (onnx: DequantizeLinear, `axis` and `block_size`).
std::optional<FoundMatrix> Dequantized(const Graph& graph, int n, int value, bool outputs_first) {
  int p = graph.Producer(value);
  for (int hops = 0; hops < 4 && p >= 0; ++hops) {
    const bool turns =
        graph.node(p).op == "Transpose" && graph.Ints(p, "perm") == std::vector<int64_t>{1, 0};
    if (!turns && graph.node(p).op != "Cast") break;
    if (turns) outputs_first = !outputs_first;
    p = graph.Producer(graph.node(p).In(0));
  }
  if (p < 0 || graph.node(p).op != "DequantizeLinear") return std::nullopt;
  const auto& node = graph.node(p);
  const auto &codes = graph.Constant(node.In(0)), &scales = graph.Constant(node.In(1));
  if (!codes || !scales || codes->shape.size() != 2) return std::nullopt;
  const int64_t first = codes->shape[0], second = codes->shape[1];
  const OnnxTensor& tensor = At(graph, codes->tensor);
  if (!SaneSize(first) || !SaneSize(second) || codes->offset != 0 ||
      codes->strides != std::vector<int64_t>{second, 1} || codes->factor != 1 ||
      codes->addend != 0 || tensor.elements != codes->elements() || scales->offset != 0 ||
      scales->factor != 1 || scales->addend != 0 ||
      At(graph, scales->tensor).elements != scales->elements())
    return std::nullopt;
  FoundMatrix out{.node = n};
  out.matrix.rows = outputs_first ? first : second;
  out.matrix.cols = outputs_first ? second : first;
  out.matrix.values.tensor = codes->tensor;
  BlockCodes& b = out.matrix.codes.emplace();
  const bool four = tensor.type == OnnxType::kInt4 || tensor.type == OnnxType::kUInt4;
  b.is_signed = tensor.type == OnnxType::kInt4 || tensor.type == OnnxType::kInt8;
  if (!four && !b.is_signed && tensor.type != OnnxType::kUInt8) return std::nullopt;
  b.bits = four ? 4 : 8;
  b.zero = 0;
  b.row_bits = outputs_first ? second * b.bits : b.bits;
  b.column_step = outputs_first ? 1 : second;
  b.scales = scales->tensor;
  const auto rank = static_cast<int64_t>(scales->shape.size());
  int64_t axis = graph.Int(p, "axis", 1);
  if (axis < 0) axis += 2;
  const int64_t outputs = outputs_first ? 0 : 1;
  const int64_t block = graph.Int(p, "block_size", 0);
  b.block = out.matrix.cols;
  if (scales->elements() == 1 && block == 0) {
    b.scale_row = 0;
  } else if (rank == 1 && block == 0 && axis == outputs && scales->elements() == out.matrix.rows) {
    b.scale_row = 1;
  } else if (rank == 2 && block >= 1 && block <= kMostBlock && axis == 1 - outputs) {
    b.block = block;
    b.blocks = 1 + (out.matrix.cols - 1) / block;
    const std::vector<int64_t> shape =
        outputs_first ? std::vector{first, b.blocks} : std::vector{b.blocks, second};
    if (scales->shape != shape) return std::nullopt;
    b.scale_row = outputs_first ? b.blocks : 1;
    b.scale_step = outputs_first ? 1 : second;
  } else {
    return std::nullopt;
  }
  if (node.In(2) != kNoValue) {
    const auto& zeros = graph.Constant(node.In(2));
    if (!zeros || At(graph, zeros->tensor).type != tensor.type ||
        At(graph, zeros->tensor).elements != scales->elements())
      return std::nullopt;
    b.zeros = zeros->tensor;
    b.zeros_as_scales = true;
  }
  return out;
}

}  // namespace

std::optional<FoundMatrix> MatrixOf(const Graph& graph, int n) {
  const auto& node = graph.node(n);
  if (node.op == "MatMulNBits") return NBits(graph, n);
  if (node.op == "GatherBlockQuantized") return GatheredCodes(graph, n);
  if (node.op == "Gather" && !graph.Constant(node.In(0)))
    return graph.Int(n, "axis", 0) == 0 ? Dequantized(graph, n, node.In(0), true) : std::nullopt;
  if (node.op == "Gather") {
    auto view = graph.Constant(node.In(0));
    if (!view || view->shape.size() != 2 || graph.Int(n, "axis", 0) != 0) return std::nullopt;
    return FoundMatrix{.node = n, .matrix = Plain(*view)};
  }
  if (node.op == "MatMul" || node.op == "FusedMatMul" || node.op == "Gemm") {
    auto view = graph.Constant(node.In(1));
    const bool as_stored = graph.Int(n, "transB", 0) != 0;
    if (!view && node.In(1) != kNoValue && graph.Int(n, "transA", 0) == 0 &&
        graph.Float(n, "alpha", 1) == 1) {
      auto out = Dequantized(graph, n, node.In(1), as_stored);
      if (out && node.op == "Gemm")
        if (auto bias = graph.Constant(node.In(2)); bias && bias->elements() == out->matrix.rows)
          out->bias = bias;
      return out;
    }
    if (!view || view->shape.size() != 2 || graph.Int(n, "transA", 0) != 0) return std::nullopt;
    FoundMatrix out{.node = n, .matrix = Plain(as_stored ? *view : Transposed(*view))};
    const double alpha = graph.Float(n, "alpha", 1);
    if (alpha != 1) {
      if (out.matrix.values.addend != 0) return std::nullopt;
      out.matrix.values.factor *= static_cast<float>(alpha);
    }
    if (node.op == "Gemm")
      if (auto bias = graph.Constant(node.In(2)); bias && bias->elements() == out.matrix.rows)
        out.bias = bias;
    return out;
  }
  return std::nullopt;
}

}  // namespace lockstep
