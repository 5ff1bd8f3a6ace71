// Every weight of the reference against the tensor that the graph has in its place.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>

#include "audit/exchanges.h"
#include "audit/findings.h"
#include "audit/walk.h"
#include "audit/weight_sums.h"
#include "base/dtype.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

constexpr double kSameCodes = 0.9;  // correlation from which codes may stand for these numbers

// What multiplies: a norm's weight with its offset, rounded as the spec says.
Rows OfReference(const WeightView& view, const NormSpec* norm) {
  return {view.rows, view.cols, [&view, norm](int64_t row, float* out) {
            view.ReadRows(row, 1, out, view.cols);
            if (norm == nullptr) return;
            for (int64_t c = 0; c < view.cols; ++c) {
              out[c] += static_cast<float>(norm->weight_offset);
              if (norm->weight_rounding == Rounding::kBF16) out[c] = ToFloat(ToBFloat16(out[c]));
              if (norm->weight_rounding == Rounding::kFP16) out[c] = ToFloat(ToFloat16(out[c]));
            }
          }};
}

Rows OfVector(const Graph& graph, const ConstantView& vector) {
  return {1, vector.elements(),
          [&graph, vector](int64_t, float* out) { std::ranges::copy(graph.Read(vector), out); }};
}

// A matrix that lies transposed is read by blocks of rows: one by one each element of a row would
// be a page of its own.
Rows OfTransposed(const Graph& graph, const StoredMatrix& matrix) {
  struct Block {
    int64_t first = 0, count = 0;
    std::vector<float> rows;
  };
  static constexpr int64_t kBlockRows = 64;
  auto block = std::make_shared<Block>();
  return {matrix.rows, matrix.cols, [&graph, matrix, block](int64_t row, float* out) {
            const ConstantView& view = matrix.values;
            if (row < block->first || row >= block->first + block->count) {
              block->first = row;
              block->count = std::min(kBlockRows, matrix.rows - row);
              block->rows.resize(static_cast<size_t>(block->count * matrix.cols));
              float column[kBlockRows];
              for (int64_t c = 0; c < matrix.cols; ++c) {
                graph.Read(view.tensor, view.offset + row + c * view.strides[1], 1, block->count,
                           column);
                for (int64_t r = 0; r < block->count; ++r)
                  block->rows[static_cast<size_t>(r * matrix.cols + c)] =
                      column[r] * view.factor + view.addend;
              }
            }
            std::copy_n(block->rows.data() + (row - block->first) * matrix.cols, matrix.cols, out);
          }};
}

Rows OfMatrix(const Graph& graph, const StoredMatrix& matrix) {
  if (!matrix.codes && matrix.values.strides[0] == 1 && matrix.values.strides[1] != 1)
    return OfTransposed(graph, matrix);
  return {matrix.rows, matrix.cols,
          [&graph, matrix](int64_t row, float* out) { matrix.ReadRow(graph, row, out); }};
}

class Comparer {
 public:
  Comparer(const Model& reference, const Graph& graph, AuditReport& report, Collector& out)
      : reference_(reference), graph_(graph), report_(report), out_(out) {}

  void Run() {
    Search();
    std::vector<std::string> lost;
    std::vector<WeightSlot> slots = RequiredWeights(reference_.spec);
    if (HasOwnHead())
      slots.push_back({.id = kHead,
                       .rows = reference_.spec.embedding.vocab_size,
                       .cols = reference_.spec.embedding.hidden_size});
    for (const WeightSlot& slot : slots) report_.weights.emplace(slot.id, One(slot));
    const std::vector<ExchangeFinding> exchanged = TellExchanges(report_.weights);
    std::set<WeightId> told;
    for (const ExchangeFinding& finding : exchanged)
      for (const Exchange& exchange : finding.exchanges)
        told.insert(exchange.begin(), exchange.end());
    for (const WeightSlot& slot : slots) {
      const WeightResult& result = report_.weights.at(slot.id);
      if (result.state == WeightState::kNotFound) lost.push_back(ToString(slot.id));
      if (!told.contains(slot.id)) Tell(slot, result);
    }
    for (const ExchangeFinding& finding : exchanged) TellExchange(finding, slots);
    if (!lost.empty())
      report_.notes.push_back(
          fmt::format("where the graph keeps {} could not be told", QuotedList(lost, 6)));
    Extra();
  }

 private:
  const FoundDecoder& found() const { return report_.decoder; }

  static constexpr WeightId kHead{Role::kLmHead, Part::kWeight, -1, -1};
  static constexpr WeightId kTable{Role::kEmbedTokens, Part::kWeight, -1, -1};

  // The reference's head is its table of embeddings, and the graph has a matrix of its own for it.
  bool HasOwnHead() const {
    const auto head = found().matrices.find(kHead), table = found().matrices.find(kTable);
    if (!reference_.spec.lm_head.tied || head == found().matrices.end()) return false;
    if (table == found().matrices.end()) return true;
    const StoredMatrix &a = head->second.matrix, &b = table->second.matrix;
    if (a.codes.has_value() != b.codes.has_value() || a.values.tensor != b.values.tensor)
      return true;
    if (a.codes) return a.codes->scales != b.codes->scales || a.codes->zeros != b.codes->zeros;
    return !(a.values == b.values);
  }

  // A head that is tied has no weight of its own in the reference.
  const WeightView& ReferenceOf(const WeightId& id) const {
    const WeightView* view = reference_.weights.Find(id);
    if (view == nullptr && id == kHead) view = reference_.weights.Find(kTable);
    return *view;
  }

  double OffsetOf(const WeightId& id) const {
    const NormSpec* norm = NormOf(id);
    return norm != nullptr ? norm->weight_offset : 0;
  }

  const NormSpec* NormOf(const WeightId& id) const {
    if (id.part == Part::kBias) return nullptr;
    if (id.role == Role::kFinalNorm) return &reference_.spec.final_norm;
    if (id.layer < 0) return nullptr;
    const LayerSpec& layer = reference_.spec.layers[static_cast<size_t>(id.layer)];
    const auto of = [](const std::optional<NormSpec>& norm) { return norm ? &*norm : nullptr; };
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    switch (id.role) {
      case Role::kMixerPreNorm:
        return of(layer.mixer_pre_norm);
      case Role::kMixerPostNorm:
        return of(layer.mixer_post_norm);
      case Role::kMlpPreNorm:
        return of(layer.mlp_pre_norm);
      case Role::kMlpPostNorm:
        return of(layer.mlp_post_norm);
      case Role::kQNorm:
        return attention != nullptr ? of(attention->q_norm) : nullptr;
      case Role::kKNorm:
        return attention != nullptr ? of(attention->k_norm) : nullptr;
      default:
        return nullptr;
    }
  }

  static std::string NormPath(Role role) {
    switch (role) {
      case Role::kFinalNorm:
        return "final_norm";
      case Role::kMixerPreNorm:
        return "mixer_pre_norm";
      case Role::kMixerPostNorm:
        return "mixer_post_norm";
      case Role::kMlpPreNorm:
        return "mlp_pre_norm";
      case Role::kMlpPostNorm:
        return "mlp_post_norm";
      case Role::kQNorm:
        return "mixer.q_norm";
      default:
        return "mixer.k_norm";
    }
  }

  // Weights whose place the data flow did not give: any matrix of the same shape that holds the
  // same numbers and that nothing else is.
  void Search() {
    std::vector<FoundMatrix> free;
    bool listed = false;
    for (const WeightSlot& slot : RequiredWeights(reference_.spec)) {
      if (slot.id.part != Part::kWeight || NormOf(slot.id) != nullptr) continue;
      if (found().matrices.contains(slot.id)) continue;
      if (!listed) {
        for (int n = 0; n < static_cast<int>(graph_.nodes().size()); ++n)
          if (auto matrix = MatrixOf(graph_, n)) free.push_back(*matrix);
        listed = true;
      }
      const Rows ref = OfReference(ReferenceOf(slot.id), nullptr);
      for (FoundMatrix& matrix : free) {
        const Rows got = OfMatrix(graph_, matrix.matrix);
        if (!SampleAgrees(ref, got, matrix.matrix.codes ? kSameCodes : 1)) continue;
        Walk(graph_).AddBias(matrix);
        report_.decoder.matrices.emplace(slot.id, matrix);
        break;
      }
    }
  }

  std::optional<Rows> Found(const WeightId& id, bool& place_known) const {
    WeightId weight = id;
    weight.part = Part::kWeight;
    if (const auto norm = found().norms.find(weight); norm != found().norms.end()) {
      place_known = true;
      const auto& vector = id.part == Part::kBias ? norm->second.bias : norm->second.weight;
      if (!vector) return std::nullopt;
      return OfVector(graph_, *vector);
    }
    if (const auto vector = found().vectors.find(id); vector != found().vectors.end()) {
      place_known = true;
      return OfVector(graph_, vector->second);
    }
    const auto matrix = found().matrices.find(weight);
    if (matrix == found().matrices.end()) return std::nullopt;
    place_known = true;
    if (id.part == Part::kBias)
      return matrix->second.bias ? std::optional(OfVector(graph_, *matrix->second.bias))
                                 : std::nullopt;
    return OfMatrix(graph_, matrix->second.matrix);
  }

  const BlockCodes* CodesOf(const WeightId& id) const {
    const auto matrix = found().matrices.find(id);
    if (matrix == found().matrices.end() || !matrix->second.matrix.codes) return nullptr;
    return &*matrix->second.matrix.codes;
  }

  // By less than the codes' own noise: seen on which side of them the numbers lie.
  bool ScalesAreOff(const WeightId& id, const Rows& ref, const Rows& got) const {
    StoredMatrix units = found().matrices.at(id).matrix;
    const OnnxType type = graph_.model().tensors()[static_cast<size_t>(units.codes->scales)].type;
    const double precision = type == OnnxType::kFloat16    ? 0x1p-11
                             : type == OnnxType::kBFloat16 ? 0x1p-8
                                                           : 0x1p-20;
    units.codes->unit_scales = true;
    return SidesOf(ref, got, OfMatrix(graph_, units), units.codes->block, precision).OneSided();
  }

  WeightResult One(const WeightSlot& slot) const {
    WeightResult result;
    bool place_known = false;
    const auto got = Found(slot.id, place_known);
    if (!got) {
      result.state = place_known ? WeightState::kMissing : WeightState::kNotFound;
      return result;
    }
    const Rows ref = OfReference(ReferenceOf(slot.id), NormOf(slot.id));
    if (got->rows != ref.rows || got->cols != ref.cols) {
      result.state = WeightState::kDiffers;
      result.correlation = 0;
      return result;
    }
    const Sums sums = SumsOf(ref, *got);
    result.max_abs = sums.max_abs;
    result.correlation = sums.correlation();
    result.not_finite = sums.not_finite_b;
    result.reference_not_finite = sums.not_finite_a;
    if (sums.not_finite_a > 0 || sums.not_finite_b > 0) {
      result.state = WeightState::kDiffers;
      return result;
    }
    const double size = std::max(sums.largest, OffsetOf(slot.id));
    if (sums.max_abs <= kFolded * size) {
      result.state = WeightState::kEqual;
      result.correlation = 1;
    } else if (sums.bf16 || sums.fp16) {
      result.state = WeightState::kRounded;
      result.rounding = sums.bf16 ? Rounding::kBF16 : Rounding::kFP16;
      if (InSixteenBits(slot.id)) result.bits = 16;
    } else if (sums.largest_b == 0) {
      result.state = WeightState::kZeroed;
    } else if (const BlockCodes* codes = CodesOf(slot.id);
               codes != nullptr && AreSoundCodes(sums, codes->bits) &&
               EveryBlockFollows(ref, *got, codes->bits, codes->block) &&
               !ScalesAreOff(slot.id, ref, *got)) {
      result.state = WeightState::kQuantized;
      result.bits = codes->bits;
      result.block = codes->block;
    } else {
      Differs(slot, ref, *got, sums, result);
    }
    return result;
  }

  void Differs(const WeightSlot& slot, const Rows& ref, const Rows& got, const Sums& sums,
               WeightResult& result) const {
    result.state = WeightState::kDiffers;
    // got = slope * ref + shift?
    const double slope =
        sums.variance_a() > 0 ? (sums.ab - sums.a * sums.b / sums.n) / sums.variance_a() : 0;
    const double shift = (sums.b - slope * sums.a) / sums.n;
    double worst = 0;
    for (int64_t r = 0; r < ref.rows; ++r) {
      const auto x = ref.Row(r), y = got.Row(r);
      for (size_t i = 0; i < x.size(); ++i)
        worst = std::max(worst, std::abs(slope * double{x[i]} + shift - double{y[i]}));
    }
    if (slope != 0 && worst <= 1e-5 * sums.largest_b) {
      const bool shifted = std::abs(shift) > 1e-5 * sums.largest_b;
      if (!shifted || std::abs(slope - 1) < 1e-5) {
        result.state = shifted ? WeightState::kOffset : WeightState::kScaled;
        result.factor = shifted ? shift : slope;
        return;
      }
    }
    std::vector<NamedRows> others;
    for (const auto& [id, view] : reference_.weights.all())
      if (view.rows == ref.rows && view.cols == ref.cols)
        others.push_back({id, OfReference(view, NormOf(id))});
    if (const auto owner = OwnerOf(got, slot.id, CodesOf(slot.id) != nullptr, others)) {
      result.state = WeightState::kOther;
      result.other = owner;
      return;
    }
    if (ref.rows == ref.cols && ref.rows > 1 && ref.rows <= 8192) {
      const auto row = got.Row(0);
      double worst_column = 0;
      for (int64_t r = 0; r < ref.rows; ++r)
        worst_column = std::max(
            worst_column, std::abs(double{ref.Row(r)[0]} - double{row[static_cast<size_t>(r)]}));
      if (worst_column <= kFolded * sums.largest) result.state = WeightState::kTransposed;
    }
    if (result.state == WeightState::kDiffers) Permuted(slot, ref, got, sums, result);
  }

  void Permuted(const WeightSlot& slot, const Rows& ref, const Rows& got, const Sums& sums,
                WeightResult& result) const {
    if (slot.id.role != Role::kQProj && slot.id.role != Role::kKProj) return;
    const auto* attention = std::get_if<AttentionSpec>(
        &reference_.spec.layers[static_cast<size_t>(slot.id.layer)].mixer);
    if (attention == nullptr || slot.id.part != Part::kWeight) return;
    const int64_t dim = attention->head_dim, half = dim / 2;
    for (const bool pairs : {true, false}) {
      double worst = 0;
      for (int64_t r = 0; r < std::min(ref.rows, dim); ++r) {
        const int64_t to = pairs ? 2 * (r % half) + r / half : r % 2 * half + r / 2;
        const auto x = ref.Row(r), y = got.Row(to);
        for (size_t i = 0; i < x.size(); ++i)
          worst = std::max(worst, std::abs(double{x[i]} - double{y[i]}));
      }
      if (worst > kFolded * sums.largest) continue;
      result.state = pairs ? WeightState::kPairs : WeightState::kHalves;
      return;
    }
  }

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

  // The head that reads the table of embeddings is no other weight.
  bool OneTable(const WeightId& id) const {
    return reference_.spec.lm_head.tied && id.part == Part::kWeight &&
           (id.role == Role::kLmHead || id.role == Role::kEmbedTokens);
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
      const std::string name = graph_.Name(graph_.node(n).Out(0)) + "_weight";
      raw.patch.nodes.push_back(
          {.after = source - 1,
           .op_type = "Constant",
           .outputs = {name},
           .value = OnnxPatch::Node::Value{type, stored->shape, *std::move(bytes)}});
      raw.patch.inputs.push_back({.node = source, .slot = s, .value = name});
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
    const std::string name = graph_.Name(graph_.node(n).Out(0)) + "_weight";
    raw.patch.nodes.push_back(
        {.after = source - 1,
         .op_type = "Constant",
         .outputs = {name},
         .value = OnnxPatch::Node::Value{type, stored->shape, *std::move(bytes)}});
    raw.patch.inputs.push_back({.node = source, .slot = 1, .value = name});
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

  void Tell(const WeightSlot& slot, const WeightResult& result) {
    const WeightId& id = slot.id;
    RawFinding raw{.layer = id.layer, .path = PathIn(id)};
    WeightEdit edit{.role = id.role, .part = id.part, .expert = id.expert};
    raw.expected = "the checkpoint's numbers";
    bool has_edit = true;
    switch (result.state) {
      case WeightState::kEqual:
      case WeightState::kNotFound:
        return;
      case WeightState::kQuantized:
        raw.kind = FindingKind::kQuantized;
        raw.what = "quantized weights";
        raw.expected = "the checkpoint's numbers";
        raw.found =
            fmt::format("{}-bit codes in blocks of {} that follow them", result.bits, result.block);
        raw.how_to = "nothing: fewer bits are a choice, not a fault";
        out_.Add(std::move(raw));
        return;
      case WeightState::kRounded: {
        const std::string_view to = result.rounding == Rounding::kBF16 ? "bf16" : "fp16";
        const NormSpec* norm = id.part == Part::kWeight ? NormOf(id) : nullptr;
        if (norm != nullptr && norm->weight_offset != 0) {
          raw.path = NormPath(id.role);
          raw.what =
              fmt::format("{:g} + weight of the norm was computed in {}", norm->weight_offset, to);
          raw.edit_path = raw.path + ".weight_rounding";
          raw.edit_json = fmt::format("\"{}\"", to);
          raw.expected = "fp32";
          raw.found = to;
        } else {
          raw.what = fmt::format("rounded to {}", to);
          raw.expected = ReferenceOf(id).type->name;
          raw.found = to;
          edit.change = WeightChange::kRound;
          edit.rounding = result.rounding;
          raw.kind = InSixteenBits(id) ? FindingKind::kQuantized : FindingKind::kWeight;
        }
        break;
      }
      case WeightState::kScaled:
        raw.found = fmt::format("them times {:.6g}", result.factor);
        raw.what = fmt::format("{} by {:.6g}", "scaled", result.factor);
        edit.change = WeightChange::kScale;
        edit.value = result.factor;
        break;
      case WeightState::kOffset:
        raw.found = fmt::format("them plus {:.6g}", result.factor);
        raw.what = fmt::format("{:.6g} is added to every element", result.factor);
        edit.change = WeightChange::kAdd;
        edit.value = result.factor;
        if (const NormSpec* norm = NormOf(id); norm != nullptr && id.part == Part::kWeight) {
          raw.path = NormPath(id.role);
          raw.edit_path = raw.path + ".weight_offset";
          raw.edit_json = Json(norm->weight_offset + RoundedOffset(result.factor)).dump();
        }
        break;
      case WeightState::kZeroed:
        raw.what = "all zeros";
        raw.found = "zeros";
        edit.change = WeightChange::kZero;
        break;
      case WeightState::kOther:
        edit.change = WeightChange::kTake;
        edit.other_role = result.other->role;
        if (result.other->layer == id.layer && result.other->expert == id.expert) {
          raw.what = fmt::format("holds {} of the same place", InfoOf(result.other->role).name);
        } else {
          raw.what = fmt::format("holds {}", ToString(*result.other));
          edit.other_layer = result.other->layer;
          edit.other_expert = result.other->expert;
        }
        raw.found = fmt::format("those of {}", ToString(*result.other));
        has_edit = result.other->part == id.part;
        break;
      case WeightState::kTransposed:
        raw.what = "transposed";
        raw.found = "them with rows for columns";
        edit.change = WeightChange::kTranspose;
        break;
      case WeightState::kPairs:
        raw.what = "the rows of each head are in pairs, not in halves";
        raw.found = "their rows in another order";
        edit.change = WeightChange::kHalvesToPairs;
        break;
      case WeightState::kHalves:
        raw.what = "the rows of each head are in halves, not in pairs";
        raw.found = "their rows in another order";
        edit.change = WeightChange::kPairsToHalves;
        break;
      case WeightState::kMissing:
        raw.what = id.part == Part::kBias ? "the bias is dropped" : "the weight is not there";
        raw.found = "nothing";
        edit.change = WeightChange::kZero;
        has_edit = id.part == Part::kBias;
        break;
      case WeightState::kDiffers:
        has_edit = false;
        raw.expected = "the checkpoint's numbers";
        raw.found = fmt::format("correlation {:.3f}", result.correlation);
        raw.what = "holds other numbers";
        if (result.not_finite > 0) {
          raw.what = "holds numbers that are not finite";
          raw.found = fmt::format("{} that are NaN or infinite", result.not_finite);
        }
        if (result.reference_not_finite > 0) {
          raw.what = "the reference's own numbers are not all finite";
          raw.expected = "finite numbers";
          raw.found =
              fmt::format("{} in the reference, {} in the candidate that are NaN or infinite",
                          result.reference_not_finite, result.not_finite);
          raw.how_to = "mend the reference's checkpoint: NaN and infinities are never written";
          out_.Add(std::move(raw));
          return;
        }
        break;
    }
    if (has_edit && !raw.edit_json) raw.weight_edit = edit;
    if (raw.weight_edit && id == kHead && reference_.spec.lm_head.tied) {
      // Of its own first, as the table is; then what was found.
      raw.edit = Edit{.spec = {{"lm_head.tied", "false"}}};
      raw.edit->weights.push_back(
          {.change = WeightChange::kTake, .role = Role::kLmHead, .other_role = Role::kEmbedTokens});
      raw.edit->weights.push_back(*raw.weight_edit);
      raw.weight_edit.reset();
    }
    Mend(slot, result.state, raw);
    out_.Add(std::move(raw));
  }

  void TellExchange(const ExchangeFinding& finding, const std::vector<WeightSlot>& slots) {
    RawFinding raw = finding.raw;
    for (const Exchange& exchange : finding.exchanges)
      for (const WeightId& id : exchange)
        for (const WeightSlot& slot : slots)
          if (slot.id == id) Mend(slot, WeightState::kOther, raw);
    out_.Add(std::move(raw));
  }

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

  static double RoundedOffset(double x) {
    return std::abs(x - std::round(x)) < 1e-4 ? std::round(x) : x;
  }

  // A graph that computes in 16 bits keeps its weights so: precision, not a fault.
  bool InSixteenBits(const WeightId& id) const {
    WeightId weight = id;
    weight.part = Part::kWeight;
    int tensor = -1;
    if (const auto matrix = found().matrices.find(weight); matrix != found().matrices.end())
      tensor = matrix->second.matrix.values.tensor;
    if (const auto norm = found().norms.find(weight);
        norm != found().norms.end() && norm->second.weight)
      tensor = norm->second.weight->tensor;
    if (tensor < 0) return false;
    const OnnxType type = graph_.model().tensors()[static_cast<size_t>(tensor)].type;
    return type == OnnxType::kFloat16 || type == OnnxType::kBFloat16;
  }

  static std::string PathIn(const WeightId& id) {
    WeightId plain = id;
    plain.layer = -1;
    std::string text = ToString(plain);
    return text;
  }

  // Biases that the reference does not have.
  void Extra() {
    for (const auto& [id, matrix] : found().matrices) {
      WeightId bias = id;
      bias.part = Part::kBias;
      if (!matrix.bias || reference_.weights.Find(bias) != nullptr) continue;
      const std::vector<float> values = graph_.Read(*matrix.bias);
      if (std::all_of(values.begin(), values.end(), [](float x) { return x == 0; })) continue;
      RawFinding raw{.layer = id.layer, .path = PathIn(bias)};
      raw.what = "a bias that the checkpoint does not have";
      raw.expected = "none";
      raw.found = fmt::format("{} numbers", values.size());
      const std::vector<float> zeros(values.size(), 0.0f);
      if (auto patch = PatchOf(graph_, *matrix.bias, zeros))
        raw.patch.tensors.push_back(*std::move(patch));
      else
        raw.how_to = "export again from the checkpoint";
      out_.Add(std::move(raw));
    }
  }

  const Model& reference_;
  const Graph& graph_;
  AuditReport& report_;
  Collector& out_;
};

}  // namespace

void CompareWeights(const Model& reference, const Graph& graph, AuditReport& report,
                    Collector& out) {
  Comparer(reference, graph, report, out).Run();
}

}  // namespace lockstep
