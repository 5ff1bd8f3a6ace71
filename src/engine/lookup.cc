#include "engine/lookup.h"

#include <algorithm>

namespace lockstep {
namespace {

// Longer agreement says nothing more.
constexpr size_t kMostMatch = 16;

}  // namespace

void ProposeDraft(std::span<const int32_t> ids, size_t most, std::vector<int32_t>& draft) {
  draft.clear();
  const size_t n = ids.size();
  if (n <= kLeastMatch || most == 0) return;
  // From the latest place to the earliest: `next` follows the agreement.
  size_t best = 0, from = 0;
  for (size_t next = n - 1; next > best && best < kMostMatch; --next) {
    if (ids[next - 1] != ids[n - 1]) continue;
    size_t length = 1;
    while (length < std::min(next, kMostMatch) && ids[next - 1 - length] == ids[n - 1 - length])
      ++length;
    if (length <= best) continue;
    best = length;
    from = next;
  }
  if (best < kLeastMatch) return;
  for (size_t i = 0; i < most; ++i)
    draft.push_back(from + i < n ? ids[from + i] : draft[from + i - n]);
}

int64_t DraftLength::Next() {
  if (pause_ == 0) return length_;
  --pause_;
  return 0;
}

void DraftLength::Learn(int64_t proposed, int64_t accepted) {
  if (accepted == 0) {
    length_ = std::max<int64_t>(1, length_ / 2);
    pause_ = backoff_ - 1;
    backoff_ = std::min(kMostPause, 2 * backoff_);
    return;
  }
  backoff_ = 1;
  length_ = accepted == proposed ? std::min(kMostDrafted, 2 * length_)
                                 : std::min(kMostDrafted, accepted + 1);
}

// Ends a draft: what the caller did not take is forgotten.
void LookupDecoder::Settle() {
  if (draft_.empty()) return;
  const auto proposed = static_cast<int64_t>(draft_.size());
  const auto accepted = static_cast<int64_t>(taken_);
  if (accepted < proposed) decoder_.Forget(proposed - accepted);
  counts_.accepted += accepted;
  length_.Learn(proposed, accepted);
  draft_.clear();
  taken_ = 0;
  rows_ = {};
}

Result<std::span<const float>> LookupDecoder::Append(std::span<const int32_t> ids) {
  if (ids.size() == 1 && taken_ < draft_.size() && draft_[taken_] == ids[0]) {
    ++taken_;
    ids_.push_back(ids[0]);
    return rows_.row(taken_);
  }
  Settle();
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  if (ids.size() == 1) {
    int64_t most = length_.Next();
    if (capacity() > 0) most = std::min(most, capacity() - position());
    ProposeDraft(ids_, static_cast<size_t>(std::max<int64_t>(0, most)), draft_);
  }
  if (!draft_.empty()) {
    std::vector<int32_t> call(ids.begin(), ids.end());
    call.insert(call.end(), draft_.begin(), draft_.end());
    const auto rows = decoder_.AppendAll(call);
    if (rows) {
      rows_ = *rows;
      ++counts_.drafts;
      counts_.proposed += static_cast<int64_t>(draft_.size());
      return rows_.row(0);
    }
    draft_.clear();  // there may be memory for the id alone
  }
  auto logits = decoder_.Append(ids);
  if (!logits) ids_.resize(ids_.size() - ids.size());
  return logits;
}

size_t LookupDecoder::KeepCommonPrefix(std::span<const int32_t> ids) {
  Settle();
  const size_t kept = decoder_.KeepCommonPrefix(ids);
  ids_.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept));
  return kept;
}

}  // namespace lockstep
