#include "cli/calibration.h"

#include <algorithm>

#include "cli/calibration_texts.h"
#include "model/float_weights.h"
#include "quant/product_loops.h"
#include "subjects/text_side.h"

namespace lockstep {
namespace {

// Tokens that are read as one sequence. Its first token is like no other, and should not be seen
// often.
constexpr size_t kSequence = 512;
constexpr int64_t kMostTokens = 16384;
// Of one layer's products of columns; an input that is wider counts by its squares alone.
constexpr int64_t kMostProductBytes = int64_t{192} << 20;
// An expert that saw fewer tokens is told of.
constexpr int64_t kFewRows = 32;

// Rounds nothing: looks on, and adds squares, and products where they are asked for.
class Observer : public Rounder<float> {
 public:
  using Seen = std::map<MatrixKey, std::shared_ptr<Calibrator::Moments>>;
  enum class Products { kOfHead, kOfAll };
  Observer(Seen& seen, Products products, ThreadPool& pool)
      : seen_(seen), products_(products), pool_(pool) {}

  void Input(const WeightView& weight, bool head, std::span<const int64_t>,
             MatrixView<float> rows) const override {
    std::shared_ptr<Calibrator::Moments>& own = seen_[KeyOf(weight)];
    const auto same = std::span(rows.data, rows.rows * rows.cols);
    // q, k and v, or gate and up, multiply the same: it is added once.
    if (last_ != nullptr && (own == nullptr || own == last_) && std::ranges::equal(same, rows_)) {
      own = last_;
      return;
    }
    if (own == nullptr) own = std::make_shared<Calibrator::Moments>();
    Add(rows, head || products_ == Products::kOfAll, *own);
    last_ = own;
    rows_.assign(same.begin(), same.end());
  }
  void Queries(size_t, MatrixView<float>) const override {}
  void Keys(size_t, MatrixView<float>) const override {}
  void Values(size_t, MatrixView<float>) const override {}
  void AttentionWeights(std::span<float>) const override {}

  int64_t bytes() const { return bytes_; }

 private:
  void Add(MatrixView<float> rows, bool products, Calibrator::Moments& to) const {
    to.rows += static_cast<int64_t>(rows.rows);
    to.squares.resize(rows.cols);
    for (size_t r = 0; r < rows.rows; ++r) {
      const auto row = rows.row(r);
      for (size_t c = 0; c < row.size(); ++c) to.squares[c] += row[c] * row[c];
    }
    if (!products) return;
    const size_t n = rows.cols;
    if (to.products.empty()) {
      const auto more = static_cast<int64_t>(n * n * sizeof(float));
      if (bytes_ + more > kMostProductBytes) return;
      bytes_ += more;
      to.products.resize(n * n);
    }
    constexpr size_t kPanel = 64;
    pool_.For((n + kPanel - 1) / kPanel, [&](size_t panel) {
      const size_t first = panel * kPanel;
      // So many rows at once that a panel of them stays near.
      constexpr size_t kNear = 128;
      for (size_t r = 0; r < rows.rows; r += kNear) {
        const float* x = rows.data + r * n + first;
        products::Add(products::Factor<float>{x, 1, n}, x, n, std::min(kNear, rows.rows - r),
                      std::min(kPanel, n - first), n - first,
                      to.products.data() + first * n + first, n);
      }
    });
  }

  Seen& seen_;
  const Products products_;
  ThreadPool& pool_;
  mutable std::shared_ptr<Calibrator::Moments> last_;
  mutable std::vector<float> rows_;
  mutable int64_t bytes_ = 0;
};

bool IsTable(Role role) { return role == Role::kEmbedTokens || role == Role::kLmHead; }

Result<std::vector<std::vector<int32_t>>> Sequences(const Model& model, std::string_view given) {
  const TextModel text = LoadTextModelOrNote(model.checkpoint);
  if (!text.tokenizer)
    return InputError("the model has no tokenizer, so that no text can be read by it");
  std::vector<std::string_view> texts = {given};
  if (given.empty()) texts.assign(CalibrationTexts().begin(), CalibrationTexts().end());
  const size_t longest = std::min<size_t>(
      kSequence, static_cast<size_t>(ContextLimit(model.spec).value_or(kSequence)));
  std::vector<std::vector<int32_t>> out(1);
  int64_t tokens = 0;
  for (const std::string_view one : texts) {
    LS_TRY(const auto ids, EncodeText(text, one, true));
    for (const int32_t id : ids) {
      if (tokens++ == kMostTokens) return out;
      if (out.back().size() == longest) out.emplace_back();
      out.back().push_back(id);
    }
  }
  if (tokens == 0) return InputError("the text to read has no tokens");
  return out;
}

}  // namespace

Calibrator::Calibrator(const Model& model, CodeMethod method, ThreadPool& pool)
    : model_(model),
      method_(method),
      pool_(pool),
      weights_(model.weights),
      reference_(model.spec, weights_, pool) {
  for (const auto& [id, view] : weights_.all())
    if (id.part == Part::kWeight) ids_of_[KeyOf(view)].push_back(id);
}

Result<std::unique_ptr<Calibrator>> Calibrator::Read(const Model& model, CodeMethod method,
                                                     std::string_view text, ThreadPool& pool,
                                                     const ExportProgress& progress) {
  std::unique_ptr<Calibrator> out(new Calibrator(model, method, pool));
  LS_TRY(out->ids_, Sequences(model, text));
  for (const auto& ids : out->ids_) out->tokens_ += static_cast<int64_t>(ids.size());
  LS_RETURN_IF_ERROR(out->ReadWhole(progress));
  return out;
}

Status Calibrator::ReadWhole(const ExportProgress& progress) {
  const Observer observer(whole_, Observer::Products::kOfHead, pool_);
  const int layers = static_cast<int>(model_.spec.layers.size());
  const auto steps = static_cast<int64_t>(ids_.size()) * layers;
  for (size_t i = 0; i < ids_.size(); ++i) {
    LS_TRY(std::vector<float> x, reference_.Embed(ids_[i]));
    const MatrixView<float> rows{x.data(), ids_[i].size(), x.size() / ids_[i].size()};
    for (int layer = 0; layer < layers; ++layer) {
      if (!progress("reading text", static_cast<int64_t>(i) * layers + layer, steps))
        return ExportInterrupted();
      reference_.RunLayers(layer, rows, nullptr, &observer, layer + 1);
    }
    constexpr int32_t kOne[] = {0};  // what is multiplied counts, not what comes out
    const std::vector<int64_t> positions(rows.rows);
    reference_.Head(rows, kOne, &observer, positions);
  }
  return {};
}

void Calibrator::Embed() {
  streams_.clear();
  for (const auto& ids : ids_) streams_.push_back(*reference_.Embed(ids));
}

void Calibrator::EndLayer() {
  const auto hidden = static_cast<size_t>(model_.spec.embedding.hidden_size);
  for (std::vector<float>& x : streams_)
    reference_.RunLayers(layer_, {x.data(), x.size() / hidden, hidden}, nullptr, nullptr,
                         layer_ + 1);
  for (const auto& [id, values] : chosen_) weights_.Set(id, *model_.weights.Find(id));
  chosen_.clear();
}

void Calibrator::MoveTo(int layer) {
  if (streams_.empty()) Embed();
  for (; layer_ < layer; ++layer_)
    if (layer_ >= 0) EndLayer();
  moments_.clear();
  const Observer observer(moments_, Observer::Products::kOfAll, pool_);
  const auto hidden = static_cast<size_t>(model_.spec.embedding.hidden_size);
  for (const std::vector<float>& stream : streams_) {
    std::vector<float> x = stream;
    const MatrixView<float> rows{x.data(), x.size() / hidden, hidden};
    if (layer < static_cast<int>(model_.spec.layers.size())) {
      reference_.RunLayers(layer, rows, nullptr, &observer, layer + 1);
    } else {
      constexpr int32_t kOne[] = {0};
      const std::vector<int64_t> positions(rows.rows);
      reference_.Head(rows, kOne, &observer, positions);
    }
  }
}

Result<InputStatistics> Calibrator::Of(const WeightView& view) {
  const auto ids = ids_of_.find(KeyOf(view));
  const auto whole = whole_.find(KeyOf(view));
  if (ids == ids_of_.end() || whole == whole_.end()) return InputStatistics{};
  InputStatistics out{.squares = whole->second->squares, .feedback = nullptr};
  const WeightId& id = ids->second.front();
  // A table that the head shares: what it multiplies is known from the model as it is.
  if (method_ == CodeMethod::kFeedback && id.role == Role::kEmbedTokens)
    return WithFeedback(id, view, *whole->second);
  if (method_ != CodeMethod::kFeedback || id.role == Role::kEmbedTokens) return out;
  const int layer =
      id.role == Role::kLmHead ? static_cast<int>(model_.spec.layers.size()) : id.layer;
  if (layer > layer_) MoveTo(layer);
  if (layer < layer_) return out;
  const auto at = moments_.find(KeyOf(view));
  if (id.expert >= 0) {
    ++experts_;
    if (at == moments_.end() || at->second->rows < kFewRows) ++unseen_experts_;
  }
  if (at == moments_.end()) return out;
  return WithFeedback(id, view, *at->second);
}

InputStatistics Calibrator::WithFeedback(const WeightId& id, const WeightView& view, Moments& own) {
  if (own.feedback == nullptr && own.products.empty()) {
    large_.insert(std::string(InfoOf(id.role).name));
  } else if (own.feedback == nullptr) {
    // Of few inputs, correlations are mostly chance (Ledoit and Wolf 2004 shrink by noise over
    // signal; this is that where all columns are alike).
    const auto rows = static_cast<double>(own.rows), cols = static_cast<double>(view.cols);
    const FeedbackOptions options{.shrinkage = cols / (rows + cols)};
    if (auto made = ErrorFeedback::Of(std::move(own.products), view.cols, options, &pool_))
      own.feedback = std::make_shared<ErrorFeedback>(*std::move(made));
    own.products = {};
  }
  return {.squares = own.squares, .feedback = own.feedback};
}

void Calibrator::Chosen(const MatrixSource& matrix,
                        const std::function<void(int64_t row, float* out)>& values) {
  if (method_ != CodeMethod::kFeedback || !matrix.origin) return;
  const WeightView* table = model_.weights.Find({.role = Role::kEmbedTokens});
  std::vector<float> row(static_cast<size_t>(matrix.cols));
  if (!matrix.views.empty() && matrix.views[0] == table && layer_ < 0) {
    // The rows that the text has, alone.
    std::map<int32_t, int32_t> place;
    std::vector<std::vector<int32_t>> ids = ids_;
    std::vector<float> rows;
    for (auto& sequence : ids)
      for (int32_t& id : sequence) {
        const auto [at, made] = place.try_emplace(id, static_cast<int32_t>(place.size()));
        if (made) {
          values(id, row.data());
          rows.insert(rows.end(), row.begin(), row.end());
        }
        id = at->second;
      }
    weights_.Set({.role = Role::kEmbedTokens}, FloatView("table", rows, matrix.cols));
    std::swap(ids, ids_);
    Embed();
    std::swap(ids, ids_);
    weights_.Set({.role = Role::kEmbedTokens}, *table);
    return;
  }
  for (int64_t r = 0; r < matrix.rows; ++r) {
    const auto [view, at] = matrix.origin(r);
    if (view == nullptr) continue;
    const auto ids = ids_of_.find(KeyOf(*view));
    if (ids == ids_of_.end() || ids->second.front().layer != layer_ ||
        IsTable(ids->second.front().role))
      continue;
    values(r, row.data());
    for (const WeightId& id : ids->second) {
      auto [own, made] = chosen_.try_emplace(id);
      if (made) {
        own->second.resize(static_cast<size_t>(view->elements()));
        weights_.Set(id, FloatView(ToString(id), own->second, view->cols));
      }
      std::copy_n(row.begin(), view->cols, own->second.begin() + at * view->cols);
    }
  }
}

std::vector<std::string> Calibrator::Notes() const {
  std::vector<std::string> out;
  if (unseen_experts_ > 0)
    out.push_back(fmt::format(
        "{} of {} matrices of experts saw fewer than {} of the {} tokens that were read: their "
        "codes follow the other experts' inputs or the weights alone; give a longer text",
        unseen_experts_, experts_, kFewRows, tokens_));
  for (const std::string& name : large_)
    out.push_back(fmt::format(
        "{}: errors are not made good by later columns, because the products of a layer's columns "
        "would take more than {} MB",
        name, kMostProductBytes >> 20));
  return out;
}

}  // namespace lockstep
