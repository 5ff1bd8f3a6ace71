#include "audit/mend_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "audit/decoder.h"
#include "audit/storage.h"
#include "audit/zero_points.h"
#include "reference/ops.h"

namespace lockstep {
namespace {

class CodeMender : WeightPlaces {
 public:
  explicit CodeMender(const WeightPlaces& places) : WeightPlaces(places) {}

  void Mend(const WeightSlot& slot, WeightState state, RawFinding& raw,
            const WeightId* holder) const {
    if (state == WeightState::kZeroPoints) {
      RepairZeros(slot, raw);
      return;
    }
    if (holder != nullptr) {
      TakeBack(slot, *holder, raw);
      return;
    }
    if (RepairScales(slot, raw)) return;
    raw.how_to =
        state == WeightState::kOther
            ? "export again from the checkpoint: the graph has its own codes in no place"
            : "export again from the checkpoint: the codes themselves are not those of its numbers";
  }

 private:
  const OnnxTensor& TensorAt(int tensor) const {
    return graph_.model().tensors()[static_cast<size_t>(tensor)];
  }

  // Stored rows of two matrices in one tensor: some row is read by both.
  static bool RowsMeet(const StoredMatrix& a, const StoredMatrix& b) {
    // Scales and zero points that all rows share.
    if (a.codes->ScaleRow() == 0 || b.codes->ScaleRow() == 0) return true;
    const auto end = [](const StoredMatrix& m) {
      return m.first_row + (m.rows - 1) * m.row_step + 1;
    };
    if (a.first_row >= end(b) || b.first_row >= end(a)) return false;
    // Of rows that take turns (gate and up of a fused matrix) each has its own.
    return a.row_step != b.row_step ||
           (a.first_row - b.first_row) % std::max<int64_t>(a.row_step, 1) == 0;
  }

  // Another weight reads the same codes, scales or zero points: what is written there would change
  // both.
  bool ReadByAnother(const WeightId& id) const {
    const StoredMatrix& matrix = found().matrices.at(id).matrix;
    return std::ranges::any_of(found().matrices, [&](const auto& other) {
      const StoredMatrix& its = other.second.matrix;
      if (other.first == id || !its.codes || (OneTable(other.first) && OneTable(id))) return false;
      const auto one = [](int a, int b) { return a >= 0 && a == b; };
      return (one(its.codes->scales, matrix.codes->scales) ||
              one(its.codes->zeros, matrix.codes->zeros) ||
              one(its.values.tensor, matrix.values.tensor)) &&
             RowsMeet(its, matrix);
    });
  }

  // The zero points that the codes were made with, where some are stored.
  void RepairZeros(const WeightSlot& slot, RawFinding& raw) const {
    const StoredMatrix& matrix = found().matrices.at(slot.id).matrix;
    const BlockCodes& codes = *matrix.codes;
    const Rows ref = OfReference(ReferenceOf(slot.id), NormOf(slot.id));
    const auto shifts = ZeroShiftsOf(graph_, matrix, ref);
    if (codes.zeros < 0) {
      raw.how_to = fmt::format(
          "export again from the checkpoint: no zero points are stored, and the codes themselves "
          "are beside the {:g} that the operator takes",
          codes.zero);
      return;
    }
    raw.how_to = "export again from the checkpoint: its zero points cannot be written in place";
    // Rows that share a zero point are all off by as much, or it is no matter of zero points.
    const bool all_alike =
        shifts && shifts->same && shifts->off == static_cast<int64_t>(shifts->steps.size());
    if (codes.ScaleRow() == 0 && !all_alike) return;
    if (!shifts) return;
    if (ReadByAnother(slot.id)) {
      raw.how_to =
          "export again from the checkpoint: another weight reads the same zero points, scales or "
          "codes";
      return;
    }
    auto patch = codes.zeros_packed ? PackedZeros(matrix, *shifts) : PlainZeros(matrix, *shifts);
    if (!patch) return;
    raw.patch.tensors.push_back(*std::move(patch));
    raw.how_to.clear();
  }

  std::optional<OnnxPatch::Tensor> PlainZeros(const StoredMatrix& matrix,
                                              const ZeroShifts& shifts) const {
    const BlockCodes& codes = *matrix.codes;
    const ConstantView view{.tensor = codes.zeros,
                            .shape = {matrix.rows, codes.blocks},
                            .strides = {matrix.row_step * codes.ScaleRow(), codes.scale_step},
                            .offset = matrix.first_row * codes.ScaleRow()};
    std::vector<float> zeros = graph_.Read(view);
    for (size_t i = 0; i < zeros.size(); ++i) zeros[i] += static_cast<float>(shifts.steps[i]);
    return PatchOf(graph_, view, zeros);
  }

  std::optional<OnnxPatch::Tensor> PackedZeros(const StoredMatrix& matrix,
                                               const ZeroShifts& shifts) const {
    const BlockCodes& codes = *matrix.codes;
    const OnnxTensor& tensor = TensorAt(codes.zeros);
    OnnxPatch::Tensor out{.name = tensor.name, .bytes = {tensor.bytes.begin(), tensor.bytes.end()}};
    const int64_t rows = codes.ScaleRow() == 0 ? 1 : matrix.rows;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t b = 0; b < codes.blocks; ++b) {
        const int steps = shifts.steps[static_cast<size_t>(r * codes.blocks + b)];
        if (steps == 0) continue;
        const int64_t at = ZeroBitOf(matrix, r, b);
        const auto byte = static_cast<size_t>(at / 8);
        const auto shift = static_cast<int>(at % 8);
        // Zero points of 3, 5, 6 or 7 bits may lie across two bytes.
        if (byte >= out.bytes.size() || shift + codes.bits > 8) return std::nullopt;
        const int mask = (1 << codes.bits) - 1, all = std::to_integer<int>(out.bytes[byte]);
        const int zero = CodeValue(all >> shift & mask, codes) + steps;
        const int least = codes.is_signed ? -(1 << (codes.bits - 1)) : 0;
        if (zero < least || zero > least + mask) return std::nullopt;
        out.bytes[byte] = static_cast<std::byte>((all & ~(mask << shift)) | (zero & mask) << shift);
      }
    return out;
  }

  // --- Codes that lie in another's place ---

  // Rows of codes, scales and zero points of one matrix: where each begins, and how long it is.
  struct Part {
    int tensor;
    int64_t row_bytes;
  };

  int64_t BytesOfRow(int tensor, int64_t elements) const {
    return elements * OnnxTypeBits(TensorAt(tensor).type) / 8;
  }

  // The rows of one tensor for `to`, as another holds them for `from`.
  std::optional<OnnxPatch::Tensor> RowsTaken(const StoredMatrix& to, Part into,
                                             const StoredMatrix& from, Part out_of) const {
    const OnnxTensor &target = TensorAt(into.tensor), &source = TensorAt(out_of.tensor);
    OnnxPatch::Tensor out{.name = target.name, .bytes = {target.bytes.begin(), target.bytes.end()}};
    const auto n = static_cast<size_t>(into.row_bytes);
    for (int64_t r = 0; r < to.rows; ++r) {
      const size_t at = static_cast<size_t>(to.first_row + r * to.row_step) * n;
      const size_t begin = static_cast<size_t>(from.first_row + r * from.row_step) * n;
      if (n == 0 || at + n > out.bytes.size() || begin + n > source.bytes.size())
        return std::nullopt;
      std::memcpy(out.bytes.data() + at, source.bytes.data() + begin, n);
    }
    return out;
  }

  // Its codes and zero points are the holder's; its scales as well, or they stayed where they were.
  void TakeBack(const WeightSlot& slot, const WeightId& holder, RawFinding& raw) const {
    const auto at = found().matrices.find(holder);
    raw.how_to = fmt::format(
        "export again from the checkpoint: its codes lie in the place of {}, which is kept in "
        "another way",
        ToString(holder));
    if (at == found().matrices.end() || !at->second.matrix.codes) return;
    const StoredMatrix& to = found().matrices.at(slot.id).matrix;
    const StoredMatrix& from = at->second.matrix;
    if (!AlikeKept(graph_, to, from) || to.codes->scale_row || ReadByAnother(slot.id)) return;
    const Rows ref = OfReference(ReferenceOf(slot.id), NormOf(slot.id));
    for (const bool with_scales : {true, false}) {
      const Rows got = OfCodes(graph_, from, with_scales ? from : to);
      if (!AreSoundCodes(SumsOf(ref, got), to.codes->bits) ||
          !EveryBlockFollows(ref, got, to.codes->bits, to.codes->block))
        continue;
      const BlockCodes &mine = *to.codes, &theirs = *from.codes;
      std::vector<std::optional<OnnxPatch::Tensor>> patches;
      const int64_t row = mine.row_bits / 8;
      patches.push_back(RowsTaken(to, {to.values.tensor, row}, from, {from.values.tensor, row}));
      if (mine.zeros >= 0) {
        const int64_t zeros = mine.zeros_packed ? (mine.blocks * mine.bits + 7) / 8
                                                : BytesOfRow(mine.zeros, mine.blocks);
        patches.push_back(RowsTaken(to, {mine.zeros, zeros}, from, {theirs.zeros, zeros}));
      }
      if (with_scales) {
        const int64_t scales = BytesOfRow(mine.scales, mine.blocks);
        patches.push_back(RowsTaken(to, {mine.scales, scales}, from, {theirs.scales, scales}));
      }
      if (!std::ranges::all_of(patches, [](const auto& patch) { return patch.has_value(); }))
        return;
      for (auto& patch : patches) raw.patch.tensors.push_back(*std::move(patch));
      raw.how_to.clear();
      return;
    }
    raw.how_to =
        "export again from the checkpoint: the codes in the place of its own stand for other "
        "numbers, with either's scales";
  }

  // --- Scales ---

  // Scales that make the codes that are there follow the reference again: per block, one under
  // which they are the nearest, else the one with the least squared error. False when the codes are
  // not sound with these either: a code, a zero point or an order that is wrong is no matter of
  // scales.
  bool RepairScales(const WeightSlot& slot, RawFinding& raw) const {
    const auto found = this->found().matrices.find(slot.id);
    if (found == this->found().matrices.end() || !found->second.matrix.codes) return false;
    StoredMatrix matrix = found->second.matrix;
    const BlockCodes codes = *matrix.codes;
    const OnnxTensor& scales = graph_.model().tensors()[static_cast<size_t>(codes.scales)];
    const Rows ref = OfReference(ReferenceOf(slot.id), nullptr);
    // One scale for all rows is no scale that a row alone could be given.
    if (ref.rows != matrix.rows || ref.cols != matrix.cols || codes.ScaleRow() == 0) return false;
    matrix.codes->unit_scales = true;
    const ConstantView view{.tensor = codes.scales,
                            .shape = {matrix.rows, codes.blocks},
                            .strides = {matrix.row_step * codes.ScaleRow(), codes.scale_step},
                            .offset = matrix.first_row * codes.ScaleRow()};
    const Rounding storage = RoundingOf(scales.type);
    std::vector<float> fitted;
    Sums sums;
    // The codes with a row's fitted scales, as they will be stored.
    std::vector<float> refitted(static_cast<size_t>(matrix.rows * matrix.cols));
    for (int64_t r = 0; r < matrix.rows; ++r) {
      const std::span<float> row(refitted.data() + r * matrix.cols,
                                 static_cast<size_t>(matrix.cols));
      matrix.ReadRow(graph_, r, row.data());
      const std::vector<float> want = ref.Row(r);
      for (int64_t b = 0; b < codes.blocks; ++b) {
        const auto begin = static_cast<size_t>(b * codes.block);
        const auto end = static_cast<size_t>(std::min(matrix.cols, (b + 1) * codes.block));
        const auto nearest = NearestScale(std::span(want).subspan(begin, end - begin),
                                          row.subspan(begin, end - begin));
        double cw = 0, cc = 0;
        for (size_t c = begin; c < end; ++c) {
          cw += double{row[c]} * double{want[c]};
          cc += double{row[c]} * double{row[c]};
        }
        fitted.push_back(static_cast<float>(Rounded(nearest  ? *nearest
                                                    : cc > 0 ? cw / cc
                                                             : 0.0,
                                                    storage)));
        for (size_t c = begin; c < end; ++c) row[c] *= fitted.back();
      }
      sums.Add(want, row);
    }
    const Rows mended{matrix.rows, matrix.cols, [&](int64_t row, float* out) {
                        std::copy_n(refitted.data() + row * matrix.cols, matrix.cols, out);
                      }};
    if (!AreSoundCodes(sums, codes.bits) ||
        !EveryBlockFollows(ref, mended, codes.bits, codes.block) ||
        scales.elements < view.elements())
      return false;
    if (ReadByAnother(slot.id)) return false;
    auto patch = PatchOf(graph_, view, fitted);
    if (!patch) return false;
    raw.patch.tensors.push_back(*std::move(patch));
    raw.what = "the codes are right, and their scales are not";
    raw.expected = "scales under which the codes follow the checkpoint's numbers";
    raw.found = "others";
    return true;
  }
};

}  // namespace

void MendCodes(const WeightPlaces& places, const WeightSlot& slot, WeightState state,
               RawFinding& raw, const WeightId* holder) {
  CodeMender(places).Mend(slot, state, raw, holder);
}

}  // namespace lockstep
