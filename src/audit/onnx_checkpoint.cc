#include "audit/onnx_checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "audit/weight_places.h"
#include "model/float_weights.h"

namespace lockstep {
namespace {

constexpr size_t kNamed = 3;  // weights, findings in a message

const TensorType* PlainTypeOf(OnnxType type) {
  switch (type) {
    case OnnxType::kFloat:
      return FindTensorType("F32");
    case OnnxType::kFloat16:
      return FindTensorType("F16");
    case OnnxType::kBFloat16:
      return FindTensorType("BF16");
    case OnnxType::kDouble:
      return FindTensorType("F64");
    default:
      return nullptr;
  }
}

// The numbers may be read where they lie: all are there, and nothing is done to them.
bool LiesPlain(const OnnxTensor& tensor, const ConstantView& view, int64_t rows, int64_t cols) {
  const TensorType* type = PlainTypeOf(tensor.type);
  if (type == nullptr || view.factor != 1) return false;
  if (view.offset < 0 || view.strides[0] < 0 || view.strides[1] < 0) return false;
  const int64_t all = tensor.elements;
  if ((view.strides[0] > 0 && rows - 1 > (all - 1) / view.strides[0]) ||
      (view.strides[1] > 0 && cols - 1 > (all - 1) / view.strides[1]))
    return false;
  const int64_t last = view.offset + (rows - 1) * view.strides[0] + (cols - 1) * view.strides[1];
  return last < all && reinterpret_cast<uintptr_t>(tensor.bytes.data()) %
                               static_cast<uintptr_t>(type->block_bytes) ==
                           0;
}

class Taker {
 public:
  Taker(const OnnxModel& onnx, Model& model)
      : graph_(onnx), model_(model), found_(FindDecoder(graph_, model.spec, notes_)) {}

  Status Run() {
    const WeightPlaces places(model_, graph_, found_);
    for (const WeightSlot& slot : RequiredWeights(model_.spec)) Take(slot, places.NormOf(slot.id));
    if (!missing_.empty()) return Missing();
    Say();
    return {};
  }

 private:
  void Take(const WeightSlot& slot, const NormSpec* norm) {
    const bool bias = slot.id.part == Part::kBias;
    const WeightPlace place = PlaceOf(found_, slot.id);
    std::optional<StoredMatrix> matrix;
    if (place.vector != nullptr) matrix = Row(*place.vector);
    if (place.matrix != nullptr) matrix = *place.matrix;
    if (!matrix) {
      missing_.push_back(ToString(slot.id));
      return;
    }
    // An operator with a state of one position at least: a kernel of one has a zero before it.
    if (slot.id.role == Role::kConv && !bias && matrix->cols > slot.cols && !matrix->codes) {
      matrix->values.offset += (matrix->cols - slot.cols) * matrix->values.strides[1];
      matrix->cols = slot.cols;
    }
    if (matrix->rows != slot.rows || matrix->cols != slot.cols) {
      missing_.push_back(fmt::format("{} ([{}, {}] is there, [{}, {}] expected)", ToString(slot.id),
                                     matrix->rows, matrix->cols, slot.rows, slot.cols));
      return;
    }
    const double offset = norm != nullptr && !bias ? norm->weight_offset : 0;
    Bind(slot, *matrix, offset);
    if (norm != nullptr && !bias && norm->weight_rounding != Rounding::kNone) ++rounded_norms_;
  }

  // One row, whatever dimensions of one element the graph has.
  static std::optional<StoredMatrix> Row(ConstantView vector) {
    const int64_t n = vector.elements();
    int64_t stride = 1;
    for (size_t i = 0; i < vector.shape.size(); ++i)
      if (vector.shape[i] == n) stride = vector.strides[i];
    if (std::ranges::none_of(vector.shape, [&](int64_t d) { return d == n; }) && n != 1)
      return std::nullopt;
    vector.shape = {1, n};
    vector.strides = {n, stride};
    StoredMatrix out{.rows = 1, .cols = n};
    out.values = std::move(vector);
    return out;
  }

  // `offset`: what the graph adds to the weight before it multiplies.
  void Bind(const WeightSlot& slot, const StoredMatrix& matrix, double offset) {
    const ConstantView& values = matrix.values;
    const OnnxTensor& tensor = graph_.model().tensors()[static_cast<size_t>(values.tensor)];
    // Added by the graph itself: what is stored is the weight.
    const bool apart = offset != 0 && static_cast<double>(values.addend) == offset;
    const double addend = apart ? 0 : double{values.addend} - offset;
    if (!matrix.codes && LiesPlain(tensor, values, slot.rows, slot.cols) &&
        (values.addend == 0 || apart)) {
      if (addend != 0) ++folded_norms_;
      model_.weights.Set(slot.id, {.tensor = ToString(slot.id),
                                   .type = PlainTypeOf(tensor.type),
                                   .data = tensor.bytes.data(),
                                   .rows = slot.rows,
                                   .cols = slot.cols,
                                   .offset = values.offset,
                                   .row_stride = values.strides[0],
                                   .col_stride = values.strides[1],
                                   .addend = addend});
      return;
    }
    std::vector<float> numbers = matrix.ReadAll(graph_);
    if (offset != 0) {
      ++folded_norms_;
      for (float& x : numbers) x = static_cast<float>(double{x} - offset);
    }
    if (matrix.codes) ++coded_;
    SetFloats(model_.weights, slot.id, std::move(numbers), slot.cols);
  }

  Status Missing() const {
    const size_t shown = std::min(kNamed, missing_.size());
    const std::span<const std::string> first = std::span(missing_).first(shown);
    return UnsupportedError(
        "{}: {} of the model's weights {} not found in the graph: {}{}{}; is this the "
        "configuration of this model?",
        graph_.model().path().string(), missing_.size(), missing_.size() == 1 ? "was" : "were",
        fmt::join(first, ", "), missing_.size() > shown ? ", ..." : "",
        notes_.empty() ? "" : fmt::format(" ({})", notes_.front()));
  }

  void Say() {
    std::vector<std::string>& notes = model_.notes;
    if (coded_ > 0)
      notes.push_back(
          fmt::format("{} matrices are codes: they are written as the numbers that their codes "
                      "stand for",
                      coded_));
    if (folded_norms_ > 0)
      notes.push_back(fmt::format(
          "{} norms are stored with their offset added, which rounded them: what is written is "
          "what is stored, less the offset",
          folded_norms_));
    if (rounded_norms_ > 0)
      notes.push_back(fmt::format("{} norms are stored rounded", rounded_norms_));
    const WeightId head{Role::kLmHead, Part::kWeight, -1, -1};
    const WeightId table{Role::kEmbedTokens, Part::kWeight, -1, -1};
    const auto one = found_.matrices.find(head), other = found_.matrices.find(table);
    if (model_.spec.lm_head.tied && one != found_.matrices.end() &&
        other != found_.matrices.end() &&
        one->second.matrix.values.tensor != other->second.matrix.values.tensor)
      notes.push_back(
          "the graph keeps the head apart from the table of embeddings, and the model has one for "
          "both: the table is written");
  }

  Graph graph_;
  Model& model_;
  std::vector<std::string> notes_, missing_;
  FoundDecoder found_;
  int64_t coded_ = 0, folded_norms_ = 0, rounded_norms_ = 0;
};

}  // namespace

Result<Model> ModelOfOnnx(std::shared_ptr<const OnnxModel> onnx, ModelSpec spec,
                          Checkpoint checkpoint) {
  Model model{.checkpoint = std::move(checkpoint), .spec = std::move(spec)};
  for (const OnnxModel::File& file : onnx->files())
    if (file.mapped) model.checkpoint.files.push_back(file.mapped);
  model.weights.SetFiles(model.checkpoint.files);
  LS_RETURN_IF_ERROR(Taker(*onnx, model).Run());
  model.weights.Keep(std::move(onnx));
  return model;
}

Status CheckSameFunction(const Model& model, const OnnxModel& onnx) {
  LS_TRY(const AuditReport report, Audit(model, onnx));
  if (report.healthy()) return {};
  std::vector<std::string> sentences;
  for (const Finding& finding : report.findings)
    if (finding.kind != FindingKind::kQuantized && finding.kind != FindingKind::kGeneration &&
        finding.kind != FindingKind::kTokenizer)
      sentences.push_back(finding.sentence);
  if (sentences.empty()) return {};
  const size_t shown = std::min(kNamed, sentences.size());
  return UnsupportedError(
      "{}: the graph is another function than its configuration on these weights: {}{}; name the "
      "right configuration, repair the graph (lockstep repair), or take its weights all the same "
      "(--no-verify)",
      onnx.path().string(), fmt::join(std::span(sentences).first(shown), "; "),
      sentences.size() > shown ? fmt::format("; and {} more", sentences.size() - shown) : "");
}

}  // namespace lockstep
