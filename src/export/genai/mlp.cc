// Activations, and MLPs: gated and plain.
#include "export/genai/layers.h"
#include "export/genai/linear.h"

namespace lockstep::genai {

std::string Activated(GraphBuilder& b, const std::string& name, Activation activation,
                      const std::string& x) {
  OnnxGraph& g = b.graph;
  const std::string base = name + "/act_fn";
  switch (activation) {
    case Activation::kSilu: {
      const std::string sigmoid = g.Node(base + "/Sigmoid", Onnx("Sigmoid"), {x});
      return g.Node(base + "/Mul", Onnx("Mul"), {x, sigmoid});
    }
    case Activation::kGelu:
      return g.Node(base + "/Gelu", Onnx("Gelu"), {x}, {{"approximate", std::string("none")}});
    case Activation::kGeluTanh:
      return g.Node(base + "/Gelu", Onnx("Gelu"), {x}, {{"approximate", std::string("tanh")}});
    case Activation::kQuickGelu:
      return g.Node(base + "/QuickGelu", Microsoft("QuickGelu"), {x}, {{"alpha", 1.702f}});
    case Activation::kRelu:
      return g.Node(base + "/Relu", Onnx("Relu"), {x});
    case Activation::kRelu2: {
      const std::string relu = g.Node(base + "/Relu", Onnx("Relu"), {x});
      return g.Node(base + "/Mul", Onnx("Mul"), {relu, relu});
    }
  }
  return x;
}

std::string Gated(GraphBuilder& b, const std::string& name, const MlpSpec& mlp,
                  const std::string& gate, const std::string& up) {
  OnnxGraph& g = b.graph;
  if (!mlp.clamped_glu)
    return g.Node(name + "/Mul", Onnx("Mul"), {Activated(b, name, mlp.activation, gate), up});
  const ClampedGlu& glu = *mlp.clamped_glu;
  const std::string limit = g.Float(static_cast<float>(glu.limit));
  const std::string low = g.Float(static_cast<float>(-glu.limit));
  const std::string clamped_gate = g.Node(name + "/gate/Min", Onnx("Min"), {gate, limit});
  const std::string clamped_up = g.Node(name + "/up/Clip", Onnx("Clip"), {up, low, limit});
  const std::string scaled = g.Node(name + "/gate/Mul", Onnx("Mul"),
                                    {clamped_gate, g.Float(static_cast<float>(glu.alpha))});
  const std::string sigmoid = g.Node(name + "/gate/Sigmoid", Onnx("Sigmoid"), {scaled});
  const std::string glued = g.Node(name + "/act_fn/Mul", Onnx("Mul"), {clamped_gate, sigmoid});
  const std::string moved = g.Node(name + "/up/Add", Onnx("Add"),
                                   {clamped_up, g.Float(static_cast<float>(glu.up_offset))});
  return g.Node(name + "/Mul", Onnx("Mul"), {glued, moved});
}

std::string Mlp(GraphBuilder& b, const std::string& name, const MlpSpec& mlp, const MlpRoles& roles,
                int layer, const std::string& x) {
  std::string inner;
  if (mlp.gated) {
    const std::string gate = Linear(b, name + "/gate_proj", x, roles.gate, layer, mlp.up_bias);
    const std::string up = Linear(b, name + "/up_proj", x, roles.up, layer, mlp.up_bias);
    inner = Gated(b, name, mlp, gate, up);
  } else {
    const std::string up = Linear(b, name + "/up_proj", x, roles.up, layer, mlp.up_bias);
    inner = Activated(b, name, mlp.activation, up);
  }
  return Linear(b, name + "/down_proj", inner, roles.down, layer, mlp.down_bias);
}

std::string FeedForward(GraphBuilder& b, const MlpSpec& mlp, int layer, const std::string& x) {
  return Mlp(b, fmt::format("/model/layers.{}/mlp", layer), mlp,
             {Role::kGateProj, Role::kUpProj, Role::kDownProj}, layer, x);
}

}  // namespace lockstep::genai
