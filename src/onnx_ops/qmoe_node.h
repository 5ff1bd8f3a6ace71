// A QMoE node as the policy for quantized experts looks at it (quant/qmoe_policy.h): made of a call
// by CheckOp, and by whoever judges an exported graph for another provider.
#pragma once

#include "onnx_ops/op.h"
#include "quant/qmoe_policy.h"

namespace lockstep {

// Of a call whose operator is QMoE. Shapes that are not there or of the wrong rank count as
// unknown.
QMoeNode QMoeNodeOf(const OpCall& call);

}  // namespace lockstep
