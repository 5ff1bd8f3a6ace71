#include "measure/perplexity.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

// Rows of logits held at once: of a vocabulary of 262,144 they take 64 MiB.
constexpr int64_t kPiece = 64;

struct RowScore {
  double loss = 0, against_loss = 0, kl = 0, max_difference = 0;
  bool same_top1 = true, finite = true;
};

// What softmax needs of a row: where its largest value is (the lowest id), and log(sum(exp)) of
// what the others are below it.
struct Row {
  std::span<const float> logits;
  size_t top = 0;
  double largest = 0, log_sum = 0;

  explicit Row(std::span<const float> row) : logits(row) {
    for (size_t i = 1; i < row.size(); ++i)
      if (row[i] > row[top]) top = i;
    largest = row[top];
    double sum = 0;
    for (const float x : row) sum += std::exp(x - largest);
    log_sum = std::log(sum);
  }
  bool finite() const { return std::isfinite(largest) && std::isfinite(log_sum); }
  double LogProbability(size_t id) const { return (logits[id] - largest) - log_sum; }
};

double Kl(const Row& p, const Row& q) {
  double kl = 0;
  for (size_t i = 0; i < p.logits.size(); ++i) {
    const double log_p = p.LogProbability(i), chance = std::exp(log_p);
    if (chance > 0) kl += chance * (log_p - q.LogProbability(i));
  }
  // Rounding may leave a KL of nearly equal rows a little below 0.
  return std::max(kl, 0.0);
}

// The KL over the ids that `against` has above its least.
double KlOfKept(std::span<const float> against, std::span<const float> model) {
  const float least = *std::min_element(against.begin(), against.end());
  std::vector<float> p, q;
  for (size_t i = 0; i < against.size(); ++i) {
    if (against[i] <= least) continue;
    p.push_back(against[i]);
    q.push_back(model[i]);
  }
  return p.empty() ? Kl(Row(against), Row(model)) : Kl(Row(p), Row(q));
}

// One logit that is NaN or +inf makes the sum so; a masked id (-inf) is no fault.
RowScore Score(std::span<const float> model, std::span<const float> against, int32_t id, bool cut) {
  RowScore score;
  const auto at = static_cast<size_t>(id);
  const Row q(model);
  score.loss = -q.LogProbability(at);
  score.finite = q.finite();
  if (against.empty()) return score;
  const Row p(against);
  score.against_loss = cut ? -static_cast<double>(against[at]) : -p.LogProbability(at);
  score.finite &= p.finite();
  score.same_top1 = p.top == q.top;
  score.kl = cut ? KlOfKept(against, model) : Kl(p, q);
  for (size_t i = 0; i < against.size(); ++i)
    score.max_difference =
        std::max(score.max_difference, std::abs(static_cast<double>(model[i]) - against[i]));
  return score;
}

double Quantile(std::vector<double> values, double share) {
  const auto at = static_cast<size_t>(std::llround(share * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

class Scorer {
 public:
  Scorer(LogitsSource& model, LogitsSource* against, const TextIds& text, ThreadPool& pool,
         const OnScoring& progress, int64_t total)
      : model_(model),
        against_(against),
        text_(text),
        pool_(pool),
        progress_(progress),
        total_(total) {}

  Status Window(const TextWindow& window) {
    const auto all = std::span(text_.ids).subspan(static_cast<size_t>(window.begin),
                                                  static_cast<size_t>(window.size));
    std::vector<int32_t> ids(all.begin(), all.end());
    if (text_.bos) ids.front() = *text_.bos;
    model_.Reset();
    if (against_ != nullptr) against_->Reset();
    // The logits of the last id foretell nothing that counts: it is not read.
    const int64_t rows_from = window.first - 1, end = window.size - 1;
    const bool whole = model_.one_call() || (against_ != nullptr && against_->one_call());
    for (int64_t at = 0; at < end;) {
      // Pieces end where rows begin to be wanted.
      int64_t stop = whole ? end : std::min(end, at + kPiece);
      if (!whole && at < rows_from) stop = std::min(stop, rows_from);
      LS_RETURN_IF_ERROR(Go());
      const bool wanted = stop > rows_from;
      LS_RETURN_IF_ERROR(
          Piece(ids, window.begin, at, stop, wanted ? std::max(at, rows_from) : stop));
      done_ += stop - at;
      at = stop;
    }
    ++done_;
    return {};
  }

  const std::vector<RowScore>& scores() const { return scores_; }

 private:
  Status Go() const {
    if (!progress_) return {};
    const auto n = static_cast<double>(std::max<size_t>(scores_.size(), 1));
    if (!progress_(done_, total_, std::exp(loss_ / n)))
      return Fail(ErrorCode::kInterrupted, "interrupted");
    return {};
  }

  // Reads ids [begin, stop) of a window and scores the rows [from, stop).
  Status Piece(std::span<const int32_t> ids, int64_t window, int64_t begin, int64_t stop,
               int64_t from) {
    const auto piece = ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(stop - begin));
    const bool wanted = from < stop;
    LS_TRY(const auto q, model_.Append(piece, wanted));
    MatrixView<const float> p;
    if (against_ != nullptr) {
      LS_TRY(p, against_->Append(piece, wanted));
    }
    if (!wanted) return {};
    const size_t first = scores_.size(), skip = static_cast<size_t>(from - begin);
    scores_.resize(first + static_cast<size_t>(stop - from));
    pool_.For(scores_.size() - first, [&](size_t i) {
      const size_t row = skip + i;
      scores_[first + i] =
          Score(q.row(row), against_ != nullptr ? p.row(row) : std::span<const float>(),
                ids[static_cast<size_t>(begin) + row + 1],
                against_ != nullptr && against_->cut_log_probabilities());
    });
    for (size_t i = first; i < scores_.size(); ++i) {
      loss_ += scores_[i].loss;
      if (!scores_[i].finite)
        return InputError(
            "the logits after id {} of the text are not finite numbers (broken weights, or an "
            "overflow in half precision?)",
            window + from + static_cast<int64_t>(i - first));
    }
    return {};
  }

  LogitsSource& model_;
  LogitsSource* against_;
  const TextIds& text_;
  ThreadPool& pool_;
  const OnScoring& progress_;
  int64_t done_ = 0, total_ = 0;
  double loss_ = 0;
  std::vector<RowScore> scores_;
};

template <typename Of>
std::vector<double> Collect(const std::vector<RowScore>& scores, const Of& of) {
  std::vector<double> values;
  values.reserve(scores.size());
  for (const RowScore& score : scores) values.push_back(of(score));
  return values;
}

Perplexity Summarize(const LogitsSource& source, const std::vector<double>& losses, int64_t bytes) {
  Perplexity out{.arithmetic = source.Name(), .loss = MeanOf(losses)};
  out.bits_per_byte = out.loss.mean * static_cast<double>(losses.size()) / std::log(2.0) /
                      static_cast<double>(std::max<int64_t>(bytes, 1));
  return out;
}

}  // namespace

double KlDivergence(std::span<const float> p, std::span<const float> q) {
  return Kl(Row(p), Row(q));
}

double Perplexity::perplexity() const { return std::exp(loss.mean); }
double Perplexity::error() const { return perplexity() * loss.error; }

Mean MeanOf(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  for (const double x : values) sum += x;
  Mean out{.mean = sum / n};
  if (values.size() < 2) return out;
  double squares = 0;
  for (const double x : values) squares += (x - out.mean) * (x - out.mean);
  out.error = std::sqrt(squares / (n - 1) / n);
  return out;
}

Result<TextIds> EncodeForPerplexity(const Tokenizer& tokenizer, std::string_view text,
                                    std::optional<int64_t> bos) {
  LS_TRY(Encoding encoding, tokenizer.EncodeWithOffsets(text, {.parse_special = false}));
  const auto added = [&](size_t i) { return encoding.offsets[i].end == 0; };
  size_t size = encoding.ids.size();
  while (size > 1 && added(size - 1)) --size;
  encoding.ids.resize(size);
  TextIds out{.ids = std::move(encoding.ids)};
  if (size > 0 && bos && out.ids.front() == *bos && added(0)) out.bos = out.ids.front();

  // Code points to bytes. An id covers what lies between the furthest end before it and its own:
  // ids that share a character (pieces of its bytes) and text that no id covers count once.
  std::vector<int64_t> byte_of = {0};
  for (size_t i = 0; i < text.size(); ++i)
    if (i + 1 == text.size() || (static_cast<unsigned char>(text[i + 1]) & 0xC0) != 0x80)
      byte_of.push_back(static_cast<int64_t>(i) + 1);
  out.bytes_before.push_back(0);
  for (size_t i = 0; i < size; ++i) {
    const size_t end = std::min<size_t>(encoding.offsets[i].end, byte_of.size() - 1);
    out.bytes_before.push_back(std::max(out.bytes_before.back(), byte_of[end]));
  }
  if (size > 0) out.bytes_before.back() = static_cast<int64_t>(text.size());
  return out;
}

Result<std::vector<TextWindow>> CutIntoWindows(int64_t ids, int64_t context, int64_t stride) {
  LS_CHECK(context >= 2 && stride >= 0 && stride < context, "{} {}", context, stride);
  std::vector<TextWindow> windows;
  if (stride == 0) {
    const int64_t first = std::min(context / 2 + 1, context - 1);
    for (int64_t begin = 0; begin + context <= ids; begin += context)
      windows.push_back({begin, context, first});
    if (windows.empty())
      return UsageError(
          "the text has {} tokens, a window of {} needs at least as many; give a longer text, or a "
          "smaller --ctx",
          ids, context);
    return windows;
  }
  for (int64_t begin = 0, counted = 1; counted < ids; begin += stride) {
    const int64_t end = std::min(begin + context, ids);
    windows.push_back({begin, end - begin, counted - begin});
    counted = end;
  }
  if (windows.empty())
    return UsageError("the text has {} tokens, at least 2 are needed; give a longer text", ids);
  return windows;
}

Result<TextScore> ScoreText(LogitsSource& model, LogitsSource* against, const TextIds& text,
                            std::span<const TextWindow> windows, ThreadPool& pool,
                            const OnScoring& progress) {
  TextScore out{.windows = static_cast<int64_t>(windows.size())};
  int64_t total = 0;
  for (const TextWindow& window : windows) {
    total += window.size;
    out.bytes += text.bytes_before[static_cast<size_t>(window.begin + window.size)] -
                 text.bytes_before[static_cast<size_t>(window.begin + window.first)];
  }
  Scorer scorer(model, against, text, pool, progress, total);
  for (const TextWindow& window : windows) LS_RETURN_IF_ERROR(scorer.Window(window));
  const std::vector<RowScore>& scores = scorer.scores();
  out.counted = static_cast<int64_t>(scores.size());
  out.model =
      Summarize(model, Collect(scores, [](const RowScore& s) { return s.loss; }), out.bytes);
  if (against == nullptr) return out;
  out.against = Summarize(
      *against, Collect(scores, [](const RowScore& s) { return s.against_loss; }), out.bytes);
  const auto kl = Collect(scores, [](const RowScore& s) { return s.kl; });
  Divergence divergence{.kl = MeanOf(kl)};
  divergence.same_top1 =
      MeanOf(Collect(scores, [](const RowScore& s) { return s.same_top1 ? 1.0 : 0.0; }));
  divergence.median_kl = Quantile(kl, 0.5);
  divergence.p99_kl = Quantile(kl, 0.99);
  divergence.max_kl = *std::max_element(kl.begin(), kl.end());
  divergence.log_probability =
      MeanOf(Collect(scores, [](const RowScore& s) { return s.against_loss - s.loss; }));
  if (!against->cut_log_probabilities()) {
    double largest = 0;
    for (const RowScore& score : scores) largest = std::max(largest, score.max_difference);
    divergence.max_logit_difference = largest;
  }
  out.divergence = divergence;
  return out;
}

}  // namespace lockstep
