#include "audit/mend_weights.h"

#include <algorithm>
#include <cmath>

#include "audit/decoder.h"
#include "base/dtype.h"

namespace lockstep {
namespace {

class Mender : WeightPlaces {
 public:
  explicit Mender(const WeightPlaces& places) : WeightPlaces(places) {}

  // What repairs it, or why nothing does.
  void Mend(const WeightSlot& slot, WeightState state, RawFinding& raw) const {
    const WeightId& id = slot.id;
    const bool coded = id.part == Part::kWeight && CodesOf(id) != nullptr;
    if (state == WeightState::kMissing) {
      if (!InsertBias(slot, raw))
        raw.how_to = "export again with an exporter that keeps it: the graph adds no such term";
    } else if (!(coded ? RepairScales(slot, raw) : Repair(slot, raw))) {
      raw.how_to = coded
                       ? "export again from the checkpoint: the codes themselves are not those of "
                         "its numbers"
                       : "export again from the checkpoint: the graph keeps it in a form that "
                         "cannot be written in place";
    }
  }

 private:
  // The reference's numbers in the place of the candidate's.
  bool Repair(const WeightSlot& slot, RawFinding& raw) const {
    const Rows ref = OfReference(ReferenceOf(slot.id), NormOf(slot.id));
    std::optional<ConstantView> view;
    WeightId weight = slot.id;
    weight.part = Part::kWeight;
    if (const auto norm = found().norms.find(weight); norm != found().norms.end())
      view = slot.id.part == Part::kBias ? norm->second.bias : norm->second.weight;
    else if (const auto vector = found().vectors.find(slot.id); vector != found().vectors.end())
      view = vector->second;
    else if (const auto matrix = found().matrices.find(weight); matrix != found().matrices.end()) {
      if (slot.id.part == Part::kBias)
        view = matrix->second.bias;
      else if (!matrix->second.matrix.codes)
        view = matrix->second.matrix.values;
    }
    if (!view || view->elements() != ref.rows * ref.cols) return false;
    if (SharedByAnother(slot.id, *view))
      return slot.id.part == Part::kWeight && (Replace(slot, raw) || ReplaceNorm(slot, raw));
    std::vector<float> values(static_cast<size_t>(ref.rows * ref.cols));
    for (int64_t r = 0; r < ref.rows; ++r) ref.read(r, values.data() + r * ref.cols);
    auto patch = PatchOf(graph_, *view, values);
    if (!patch) return false;
    raw.patch.tensors.push_back(*std::move(patch));
    return true;
  }

  // Another weight lies in the same place: what is written there would change both.
  bool SharedByAnother(const WeightId& id, const ConstantView& view) const {
    const auto in_place = [&](Role role, int32_t layer, int32_t expert, Part part,
                              const std::optional<ConstantView>& other) {
      const WeightId its{role, part, layer, expert};
      return other && !(its == id) && other->tensor == view.tensor &&
             other->offset == view.offset && !(OneTable(its) && OneTable(id));
    };
    for (const auto& [w, matrix] : found().matrices)
      if ((!matrix.matrix.codes &&
           in_place(w.role, w.layer, w.expert, Part::kWeight, matrix.matrix.values)) ||
          in_place(w.role, w.layer, w.expert, Part::kBias, matrix.bias))
        return true;
    for (const auto& [w, norm] : found().norms)
      if (in_place(w.role, w.layer, w.expert, Part::kWeight, norm.weight) ||
          in_place(w.role, w.layer, w.expert, Part::kBias, norm.bias))
        return true;
    return std::ranges::any_of(found().vectors, [&](const auto& vector) {
      const WeightId& w = vector.first;
      return in_place(w.role, w.layer, w.expert, w.part, vector.second);
    });
  }

  // What the node reads in a slot from now on; there is a node before it.
  void GiveConstant(int n, size_t slot, OnnxPatch::Node::Value value, RawFinding& raw) const {
    const auto source = static_cast<size_t>(graph_.node(n).source);
    const std::string name = graph_.Name(graph_.node(n).Out(0)) + "_weight";
    raw.patch.nodes.push_back(
        {.after = source - 1, .op_type = "Constant", .outputs = {name}, .value = std::move(value)});
    raw.patch.inputs.push_back({.node = source, .slot = slot, .value = name});
  }

  // A constant of its own for a norm.
  bool ReplaceNorm(const WeightSlot& slot, RawFinding& raw) const {
    const auto norm = found().norms.find(slot.id);
    if (norm == found().norms.end() || !norm->second.weight) return false;
    const int n = norm->second.node;
    const auto source = static_cast<size_t>(graph_.node(n).source);
    if (source == 0) return false;
    for (size_t s = 0; s < graph_.node(n).in.size(); ++s) {
      const auto stored = graph_.Constant(graph_.node(n).In(s));
      if (!stored || !(*stored == *norm->second.weight) || stored->shape.size() != 1) continue;
      const std::vector<float> row = OfReference(ReferenceOf(slot.id), NormOf(slot.id)).Row(0);
      const OnnxType type = graph_.model().tensors()[static_cast<size_t>(stored->tensor)].type;
      auto bytes = EncodeFinite(std::vector<double>(row.begin(), row.end()), type);
      if (!bytes) return false;
      GiveConstant(n, s, {type, stored->shape, *std::move(bytes)}, raw);
      return true;
    }
    return false;
  }

  // A constant of its own for the node that multiplies.
  bool Replace(const WeightSlot& slot, RawFinding& raw) const {
    const auto matrix = found().matrices.find(slot.id);
    if (matrix == found().matrices.end() || matrix->second.matrix.codes) return false;
    const int n = matrix->second.node;
    const auto stored = graph_.Constant(graph_.node(n).In(1));
    const auto source = static_cast<size_t>(graph_.node(n).source);
    if (graph_.node(n).op != "MatMul" || !stored || source == 0 ||
        stored->shape != std::vector<int64_t>{slot.cols, slot.rows})
      return false;
    const Rows ref = OfReference(ReferenceOf(slot.id), nullptr);
    std::vector<double> numbers(static_cast<size_t>(slot.rows * slot.cols));
    for (int64_t r = 0; r < slot.rows; ++r) {
      const std::vector<float> row = ref.Row(r);
      for (int64_t c = 0; c < slot.cols; ++c)
        numbers[static_cast<size_t>(c * slot.rows + r)] = row[static_cast<size_t>(c)];
    }
    const OnnxType type = TypeOfSums(matrix->second);
    auto bytes = EncodeFinite(numbers, type);
    if (!bytes) return false;
    GiveConstant(n, 1, {type, stored->shape, *std::move(bytes)}, raw);
    return true;
  }

  // Adds the bias behind its matrix: Constant and Add, between the matrix and who reads it.
  bool InsertBias(const WeightSlot& slot, RawFinding& raw) const {
    WeightId weight = slot.id;
    weight.part = Part::kWeight;
    const auto matrix = found().matrices.find(weight);
    if (matrix == found().matrices.end()) return false;
    const int n = matrix->second.node;
    const std::string_view op = graph_.node(n).op;
    if (op != "MatMul" && op != "MatMulNBits" && op != "Gemm" && op != "FusedMatMul") return false;
    const auto whole = MatrixOf(graph_, n);
    const int out = graph_.node(n).Out(0);
    if (!whole || out == kNoValue) return false;
    // The rows of a fused matrix that are this one's.
    const StoredMatrix &part = matrix->second.matrix, &all = whole->matrix;
    const int64_t pitch = all.codes ? 1 : all.values.strides[0];
    if (pitch == 0) return false;
    const int64_t first = all.codes ? part.first_row - all.first_row
                                    : (part.values.offset - all.values.offset) / pitch;
    const int64_t step = all.codes ? part.row_step : part.values.strides[0] / pitch;
    const WeightView& bias = ReferenceOf(slot.id);
    if (first < 0 || step < 1 || first + (bias.cols - 1) * step >= all.rows) return false;
    std::vector<float> values(static_cast<size_t>(bias.cols));
    bias.ReadRows(0, 1, values.data(), bias.cols);
    const OnnxType type = TypeOfSums(*whole);
    std::vector<double> numbers(static_cast<size_t>(all.rows), 0.0);
    for (int64_t i = 0; i < bias.cols; ++i)
      numbers[static_cast<size_t>(first + i * step)] = values[static_cast<size_t>(i)];
    auto bytes = EncodeFinite(numbers, type);
    if (!bytes) return false;
    const auto source = static_cast<size_t>(graph_.node(n).source);
    const std::string& name = graph_.Name(out);
    raw.patch.results.push_back({.node = source, .slot = 0, .value = name + "_without_bias"});
    raw.patch.nodes.push_back({.after = source,
                               .op_type = "Constant",
                               .outputs = {name + "_bias"},
                               .value = OnnxPatch::Node::Value{type, {all.rows}, *bytes}});
    raw.patch.nodes.push_back({.after = source,
                               .op_type = "Add",
                               .inputs = {name + "_without_bias", name + "_bias"},
                               .outputs = {name}});
    return true;
  }

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
    if (ref.rows != matrix.rows || ref.cols != matrix.cols) return false;
    matrix.codes->unit_scales = true;
    const ConstantView view{.tensor = codes.scales,
                            .shape = {matrix.rows, codes.blocks},
                            .strides = {matrix.row_step * codes.blocks, 1},
                            .offset = matrix.first_row * codes.blocks};
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
        fitted.push_back(AsStored(nearest ? *nearest : cc > 0 ? cw / cc : 0, scales.type));
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
    // Where other rows read these scales, their weight would change as well.
    for (const auto& [id, other] : this->found().matrices)
      if (!(id == slot.id) && other.matrix.codes && other.matrix.codes->scales == codes.scales &&
          other.matrix.first_row == matrix.first_row && !(OneTable(id) && OneTable(slot.id)))
        return false;
    auto patch = PatchOf(graph_, view, fitted);
    if (!patch) return false;
    raw.patch.tensors.push_back(*std::move(patch));
    raw.what = "the codes are right, and their scales are not";
    raw.expected = "scales under which the codes follow the checkpoint's numbers";
    raw.found = "others";
    return true;
  }

  static float AsStored(double scale, OnnxType type) {
    const auto single = static_cast<float>(scale);
    if (type == OnnxType::kFloat16) return ToFloat(ToFloat16(single));
    return type == OnnxType::kBFloat16 ? ToFloat(ToBFloat16(single)) : single;
  }

  OnnxType TypeOfSums(const FoundMatrix& matrix) const {
    const int tensor =
        matrix.matrix.codes ? matrix.matrix.codes->scales : matrix.matrix.values.tensor;
    return graph_.model().tensors()[static_cast<size_t>(tensor)].type;
  }
};

}  // namespace

void MendWeight(const WeightPlaces& places, const WeightSlot& slot, WeightState state,
                RawFinding& raw) {
  Mender(places).Mend(slot, state, raw);
}

}  // namespace lockstep
