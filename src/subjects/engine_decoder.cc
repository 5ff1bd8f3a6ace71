#include "subjects/engine_decoder.h"

#include <algorithm>

#include "spec/rope_facts.h"
#include "verify/subject.h"

namespace lockstep {
namespace {

constexpr auto kChunk = static_cast<size_t>(kMaxWalkTokens);  // then Ctrl-C is looked at

}  // namespace

EngineDecoder::EngineDecoder(const Model& model, std::unique_ptr<Engine> engine,
                             OnProgress on_progress)
    : spec_(model.spec),
      engine_(std::move(engine)),
      sequence_(engine_->NewSequence()),
      on_progress_(std::move(on_progress)) {}

Result<std::unique_ptr<EngineDecoder>> EngineDecoder::Create(const Model& model,
                                                             const EngineOptions& options,
                                                             OnProgress on_progress) {
  LS_TRY(std::unique_ptr<Engine> engine, Engine::Create(model.spec, model.weights, options));
  return std::unique_ptr<EngineDecoder>(
      new EngineDecoder(model, std::move(engine), std::move(on_progress)));
}

Result<std::span<const float>> EngineDecoder::Append(std::span<const int32_t> ids) {
  const int64_t before = sequence_.length();
  const auto undo = [&](Error error) {
    held_.resize(static_cast<size_t>(engine_->Truncate(sequence_, before)));
    return tl::unexpected(std::move(error));
  };
  // What does not fit is refused whole, before any of it is read.
  const bool fits = capacity() == 0 || before + static_cast<int64_t>(ids.size()) <= capacity();
  const size_t step =
      DependsOnCallLength(spec_) || !fits ? std::max<size_t>(ids.size(), 1) : kChunk;
  size_t begin = 0;
  for (;;) {
    if (on_progress_ &&
        !on_progress_(static_cast<int64_t>(begin), static_cast<int64_t>(ids.size())))
      return undo(Interrupted());
    const size_t count = std::min(step, ids.size() - begin);
    const bool last = begin + count == ids.size();
    const auto logits = engine_->Append(sequence_, ids.subspan(begin, count),
                                        last ? Engine::Logits::kLast : Engine::Logits::kNone);
    if (!logits) return undo(logits.error());
    begin += count;
    if (!last) continue;
    held_.insert(held_.end(), ids.begin(), ids.end());
    return std::span<const float>(logits->row(0));
  }
}

Result<MatrixView<const float>> EngineDecoder::AppendAll(std::span<const int32_t> ids) {
  if (on_progress_ && !on_progress_(0, 1)) return tl::unexpected(Interrupted());
  LS_TRY(const auto logits, engine_->Append(sequence_, ids, Engine::Logits::kAll));
  held_.insert(held_.end(), ids.begin(), ids.end());
  return logits;
}

void EngineDecoder::Forget(int64_t count) {
  static_assert(kMostDrafted <= kWindowSlack, "no window has gone past a draft");
  const int64_t length = sequence_.length() - count;
  LS_CHECK(engine_->Truncate(sequence_, length) == length);
  held_.resize(static_cast<size_t>(length));
}

int64_t EngineDecoder::capacity() const { return PositionLimit(spec_).value_or(0); }

size_t EngineDecoder::KeepCommonPrefix(std::span<const int32_t> ids) {
  auto common = static_cast<size_t>(
      std::mismatch(held_.begin(), held_.end(), ids.begin(), ids.end()).first - held_.begin());
  if (!ids.empty()) common = std::min(common, ids.size() - 1);
  // Keys were rotated for the length of the call that wrote them: a new call writes all anew.
  if (DependsOnCallLength(spec_)) common = 0;
  common = static_cast<size_t>(engine_->Truncate(sequence_, static_cast<int64_t>(common)));
  held_.resize(common);
  return common;
}

}  // namespace lockstep
