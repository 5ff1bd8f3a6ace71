#include "quant/code_bits.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

void UnpackCodes(std::span<const uint8_t> packed, int bits, std::span<uint8_t> out) {
  LS_CHECK(
      static_cast<int64_t>(packed.size()) >= PackedBytes(static_cast<int64_t>(out.size()), bits),
      "{} bytes", packed.size());
  if (bits == 8) {
    std::copy_n(packed.begin(), out.size(), out.begin());
    return;
  }
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = CodeAt(packed.data(), static_cast<int64_t>(i), bits);
}

void PackCodes(std::span<const uint8_t> codes, int bits, uint8_t* out) {
  if (bits == 8) {
    std::copy(codes.begin(), codes.end(), out);
    return;
  }
  if (bits == 4) {
    for (size_t i = 0; i + 1 < codes.size(); i += 2)
      out[i / 2] = static_cast<uint8_t>(codes[i] | codes[i + 1] << 4);
    if (codes.size() % 2 != 0) out[codes.size() / 2] = codes.back();
    return;
  }
  std::fill_n(out, PackedBytes(static_cast<int64_t>(codes.size()), bits), uint8_t{0});
  size_t bit = 0;
  for (const uint8_t code : codes) {
    const uint32_t word = uint32_t{code} << (bit % 8);
    out[bit / 8] |= static_cast<uint8_t>(word);
    if (word > 0xff) out[bit / 8 + 1] |= static_cast<uint8_t>(word >> 8);
    bit += static_cast<size_t>(bits);
  }
}

}  // namespace lockstep
