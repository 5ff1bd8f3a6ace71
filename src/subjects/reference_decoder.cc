#include "subjects/reference_decoder.h"

#include <algorithm>

#include "subjects/reference_subject.h"

namespace lockstep {
namespace {

// Ids of a prompt per call: often enough for Ctrl-C, rarely enough that decoding the weights once
// per call costs little.
constexpr size_t kChunk = 64;

}  // namespace

ReferenceDecoder::ReferenceDecoder(const Model& model, ThreadPool& pool, OnProgress on_progress)
    : spec_(model.spec),
      interpreter_(model.spec, model.weights, pool),
      sequence_(interpreter_.NewSequence()),
      on_progress_(std::move(on_progress)) {}

Result<std::span<const float>> ReferenceDecoder::Append(std::span<const int32_t> ids) {
  const int64_t before = sequence_.length;
  const auto undo = [&](Error error) {
    interpreter_.Truncate(sequence_, before);
    return tl::unexpected(std::move(error));
  };
  const size_t step = DependsOnCallLength(spec_) ? std::max<size_t>(ids.size(), 1) : kChunk;
  size_t begin = 0;
  do {
    if (on_progress_ &&
        !on_progress_(static_cast<int64_t>(begin), static_cast<int64_t>(ids.size())))
      return undo(Interrupted());
    const size_t count = std::min(step, ids.size() - begin);
    const bool last = begin + count == ids.size();
    const auto logits = interpreter_.Append(sequence_, ids.subspan(begin, count),
                                            last ? LogitsFor::kLast : LogitsFor::kNone);
    if (!logits) return undo(logits.error());
    begin += count;
    if (last) {
      held_.insert(held_.end(), ids.begin(), ids.end());
      return std::span<const float>(logits->row(0));
    }
  } while (true);
}

int64_t ReferenceDecoder::capacity() const { return ContextLimit(spec_).value_or(0); }

size_t ReferenceDecoder::KeepCommonPrefix(std::span<const int32_t> ids) {
  size_t common = static_cast<size_t>(
      std::mismatch(held_.begin(), held_.end(), ids.begin(), ids.end()).first - held_.begin());
  if (!ids.empty()) common = std::min(common, ids.size() - 1);
  // Keys were rotated for the length of the call that wrote them: a new call writes all anew.
  if (DependsOnCallLength(spec_)) common = 0;
  interpreter_.Truncate(sequence_, static_cast<int64_t>(common));
  held_.resize(common);
  return common;
}

}  // namespace lockstep
