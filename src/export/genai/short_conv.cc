// LFM2's gated short convolution by com.microsoft's CausalConvWithState, whose state holds the last
// inputs of each channel.
#include "export/genai/layers.h"
#include "export/genai/linear.h"

namespace lockstep::genai {

std::string Mix(GraphBuilder& b, const ShortConvSpec& conv, int layer, const std::string& x) {
  const std::string name = fmt::format("/model/layers.{}/conv", layer);
  const int64_t hidden = b.spec.embedding.hidden_size;
  // The operator has a state of at least one position: a kernel of one gets a zero before it.
  const int64_t kernel = std::max<int64_t>(conv.kernel_size, 2);
  OnnxGraph& g = b.graph;
  const std::string in = Linear(b, name + "/in_proj", x, Role::kConvInProj, layer, conv.bias);
  const auto transposed = [&](const char* what, const std::string& value) {
    return g.Node(fmt::format("{}/{}", name, what), Onnx("Transpose"), {value},
                  {{"perm", std::vector<int64_t>{0, 2, 1}}});
  };
  const std::vector<std::string> bcx = b.Split(name + "/Split", transposed("Transpose_1", in),
                                               {hidden, hidden, hidden}, 1);  // B, C, x
  const std::string gated = g.Node(name + "/Mul_1", Onnx("Mul"), {bcx[0], bcx[2]});
  const std::string weight = b.Floats(
      GraphBuilder::WeightName(name) + ".conv.weight", {hidden, 1, kernel},
      [&b, layer, kernel, hidden, given = conv.kernel_size] {
        const std::vector<float> stored = b.ReadVector(Role::kConv, layer);
        std::vector<float> out(static_cast<size_t>(hidden * kernel), 0.0f);
        for (int64_t c = 0; c < hidden; ++c)
          std::copy_n(stored.begin() + c * given, given, out.begin() + (c + 1) * kernel - given);
        return out;
      });
  const std::string bias =
      conv.bias ? b.Floats(GraphBuilder::WeightName(name) + ".conv.bias", {hidden},
                           [&b, layer] { return b.ReadVector(Role::kConv, layer, Part::kBias); })
                : "";
  const std::string past = fmt::format("past.{}.conv", layer);
  const std::string present = fmt::format("present.{}.conv", layer);
  const std::vector<OnnxDim> dims = {{{}, "batch_size"}, {hidden, ""}, {kernel - 1, ""}};
  b.states.push_back({past, OnnxType::kFloat, dims});
  b.present_states.push_back({present, OnnxType::kFloat, dims});
  const std::string mixed = name + "/CausalConvWithState/output_0";
  g.NodeTo(name + "/CausalConvWithState", Microsoft("CausalConvWithState"),
           {gated, weight, bias, past}, {mixed, present},
           {{"ndim", int64_t{1}}, {"activation", std::string("none")}});
  const std::string out = g.Node(name + "/Mul_2", Onnx("Mul"), {bcx[1], mixed});
  return Linear(b, name + "/out_proj", transposed("Transpose_2", out), Role::kConvOutProj, layer,
                conv.bias);
}

}  // namespace lockstep::genai
