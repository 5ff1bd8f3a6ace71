#include "audit/mend_weights.h"

#include <algorithm>
#include <cmath>

#include "audit/decoder.h"
#include "audit/mend_codes.h"
#include "base/dtype.h"

namespace lockstep {
namespace {

class Mender : WeightPlaces {
 public:
  explicit Mender(const WeightPlaces& places) : WeightPlaces(places) {}

  // What repairs it, or why nothing does.
  void Mend(const WeightSlot& slot, WeightState state, RawFinding& raw,
            const WeightId* holder) const {
    const WeightId& id = slot.id;
    const bool coded = id.part == Part::kWeight && CodesOf(id) != nullptr;
    if (state == WeightState::kMissing) {
      if (!InsertBias(slot, raw))
        raw.how_to = "export again with an exporter that keeps it: the graph adds no such term";
    } else if (coded) {
      MendCodes(*this, slot, state, raw, holder);
    } else if (!Repair(slot, raw)) {
      raw.how_to =
          "export again from the checkpoint: the graph keeps it in a form that cannot be written "
          "in place";
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

  OnnxType TypeOfSums(const FoundMatrix& matrix) const {
    const int tensor =
        matrix.matrix.codes ? matrix.matrix.codes->scales : matrix.matrix.values.tensor;
    return graph_.model().tensors()[static_cast<size_t>(tensor)].type;
  }
};

}  // namespace

void MendWeight(const WeightPlaces& places, const WeightSlot& slot, WeightState state,
                RawFinding& raw, const WeightId* holder) {
  Mender(places).Mend(slot, state, raw, holder);
}

}  // namespace lockstep
