// The packers of quantized types: from rows of stored blocks (quant/) to tiles of codes and scales
// (kernels/packed.h). One row of the table per type; Pack (pack.h) looks a type up here first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/kernels/packed.h"

namespace lockstep {

struct CodePacker {
  std::string_view type;  // TensorType::name
  PackedKind kind;
  // Writes every byte of the tile that 16 stored rows of `blocks` * 32 columns make. A row that
  // the matrix does not have is given as zeros.
  void (*pack)(const std::byte* const* rows, int64_t blocks, std::byte* tile);
};

const CodePacker* FindCodePacker(std::string_view type);  // nullptr: no packed kind of codes

}  // namespace lockstep
