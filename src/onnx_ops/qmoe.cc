// QMoE (com.microsoft): the experts of a mixture with codes for weights. w = (code - zero) * scale,
// codes unsigned, zero 2^(bits-1) where no zero points are given.
//
//   slot  0 input [T, H] or [B, S, H]   1 router_probs [T, E], logits   14 router_weights [T, E]
//         2, 5   FC1 [E, F*I, H*bits/8], FC2 [E, H, I*bits/8]: packed along K, first code low
//         3, 6   scales [E, N] or [E, N, 1] per channel, [E, N, ceil(K / block_size)] block-wise
//         4, 7   biases [E, N]
//         11, 12 zero points: per channel [E, ceil(N*bits/8)], packed along N;
//                block-wise [E, N, ceil(blocks*bits/8)]
//
// The CPU has two ways, and they route differently (see qmoe.h): raw weights, and the shared layout
// (SM80 tiles with weights_prepacked=1; codes of 3 bits).
#include "onnx_ops/qmoe.h"

#include "formats/ort_int8.h"
#include "quant/code_bits.h"
#include "quant/sm80_tiles.h"

namespace lockstep {
namespace {

// One of the two matrices as it is stored.
struct CodedMatrix {
  std::span<const uint8_t> packed, zeros;  // zeros: empty when there are none
  std::vector<float> scales;               // [E, rows, blocks]
  int64_t rows, cols, block, blocks;
  int bits;
  bool tiled, per_channel;

  float ZeroOf(int64_t expert, int64_t row, int64_t b) const {
    if (zeros.empty()) return static_cast<float>(1 << (bits - 1));
    if (per_channel) return CodeAt(zeros.data() + expert * PackedBytes(rows, bits), row, bits);
    return CodeAt(zeros.data() + (expert * rows + row) * PackedBytes(blocks, bits), b, bits);
  }

  std::vector<float> Weights(int64_t expert) const {
    std::vector<uint8_t> codes(static_cast<size_t>(rows * cols));
    const auto row_bytes = static_cast<size_t>(PackedBytes(cols, bits));
    const auto mine = packed.subspan(static_cast<size_t>(expert * rows) * row_bytes);
    if (tiled) {
      UnpackSm80Tiles(mine, rows, cols, bits, codes);
    } else {
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row)
        UnpackCodes(
            mine.subspan(row * row_bytes), bits,
            std::span(codes).subspan(row * static_cast<size_t>(cols), static_cast<size_t>(cols)));
    }
    std::vector<float> weights(codes.size());
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t b = 0; b < blocks; ++b) {
        const float scale = scales[static_cast<size_t>((expert * rows + row) * blocks + b)];
        const float zero = ZeroOf(expert, row, b);
        for (int64_t c = b * block; c < std::min(cols, (b + 1) * block); ++c) {
          const auto at = static_cast<size_t>(row * cols + c);
          weights[at] = (static_cast<float>(codes[at]) - zero) * scale;
        }
      }
    return weights;
  }
};

ExpertMatrix MatrixOf(const OpCall& call, const QMoeLayout& layout, size_t weights, size_t zeros,
                      int64_t rows, int64_t cols, const OpOptions& options) {
  const OpTensor* zero_points = In(call, zeros);
  CodedMatrix coded{
      .packed = BytesOf(*In(call, weights)),
      .zeros = zero_points != nullptr ? BytesOf(*zero_points) : std::span<const uint8_t>(),
      .scales = FloatsOf(*In(call, weights + 1)),
      .rows = rows,
      .cols = cols,
      .block = layout.block > 0 ? layout.block : cols,
      .blocks = layout.block > 0 ? CeilDiv(cols, layout.block) : 1,
      .bits = layout.bits,
      .tiled = layout.tiled,
      .per_channel = layout.block == 0};
  ExpertMatrix matrix{.rows = rows, .cols = cols, .bias = {}, .int8_block = {}, .weights = {}};
  if (const OpTensor* bias = In(call, weights + 2)) matrix.bias = FloatsOf(*bias);
  const bool prepacked = In(call, weights)->constant && In(call, weights + 1)->constant &&
                         (zero_points == nullptr || zero_points->constant);
  const bool rounds = QMoeRoundsInput({.bits = layout.bits,
                                       .block = layout.block,
                                       .columns = cols,
                                       .accuracy_level = IntOf(call, "accuracy_level", 0),
                                       .constant = prepacked});
  if (options.int8_activations && rounds && !layout.tiled) matrix.int8_block = layout.block;
  matrix.weights = [coded = std::move(coded)](int64_t expert) { return coded.Weights(expert); };
  return matrix;
}

}  // namespace

Result<OpResults> RunQMoe(const OpCall& call, const OpOptions& options) {
  const QMoeLayout layout = QMoeLayoutOf(call);
  const bool normalize = IntOf(call, "normalize_routing_weights", 0) != 0;
  const OpTensor* given = In(call, kQMoeRouterWeights);
  // The raw way ignores normalize_routing_weights.
  const bool shared = layout.tiled || layout.bits == 3;
  using Rule = ExpertRouting::Rule;
  const ExpertRouting routing{.k = IntOf(call, "k", 1),
                              .rule = given != nullptr
                                          ? (normalize ? Rule::kGivenNormalized : Rule::kGiven)
                                      : shared && !normalize ? Rule::kSoftmaxOfAll
                                                             : Rule::kSoftmaxOfChosen,
                              .higher_index_wins_ties = !shared};
  const auto mix =
      MixExperts(routing, FloatsOf(*In(call, kQMoeRouter)),
                 given != nullptr ? FloatsOf(*given) : std::vector<float>(), layout.experts);
  const auto y = RunExperts(
      FloatsOf(*In(call, kQMoeInput)), mix, layout.experts,
      MatrixOf(call, layout, kQMoeFc1, kQMoeFc1Zeros, layout.fc1_rows, layout.hidden, options),
      MatrixOf(call, layout, kQMoeFc2, kQMoeFc2Zeros, layout.hidden, layout.inter, options),
      ExpertActivationOf(call), options.pool);
  OpResults results;
  results.emplace_back(ValueOf(In(call, kQMoeInput)->type, In(call, kQMoeInput)->shape, y));
  return results;
}

}  // namespace lockstep
