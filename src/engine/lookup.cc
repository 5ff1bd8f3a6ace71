#include "engine/lookup.h"

#include <algorithm>
#include <chrono>

namespace lockstep {
namespace {

// Longer agreement says nothing more.
constexpr size_t kMostMatch = 16;

}  // namespace

DraftMatch FindMatch(std::span<const int32_t> ids) {
  const size_t n = ids.size();
  DraftMatch best;
  if (n <= kLeastMatch) return best;
  // From the latest place to the earliest.
  for (size_t next = n - 1; next > best.length && best.length < kMostMatch; --next) {
    if (ids[next - 1] != ids[n - 1]) continue;
    size_t length = 1;
    while (length < std::min(next, kMostMatch) && ids[next - 1 - length] == ids[n - 1 - length])
      ++length;
    if (length >= kLeastMatch && length > best.length) best = {length, next};
  }
  return best;
}

void ProposeDraft(std::span<const int32_t> ids, const DraftMatch& match, size_t count,
                  std::vector<int32_t>& draft) {
  draft.clear();
  for (size_t at = match.next; draft.size() < count; ++at)
    draft.push_back(at < ids.size() ? ids[at] : draft[at - ids.size()]);
}

size_t DraftPolicy::Kind(const DraftMatch& match) {
  return match.length <= 2 ? 0 : match.length == 3 ? 1 : match.length < 8 ? 2 : 3;
}

// What was never tried is thought cheap, and so is tried.
double DraftPolicy::Cost(size_t call) const {
  if (cost_[call] > 0) return cost_[call];
  return call == 0 ? 1 : Cost(call - 1) * 1.1;
}

int64_t DraftPolicy::Length(const DraftMatch& match) {
  if (match.length == 0 || cost_[0] == 0) return 0;  // one plain step tells what a draft must beat
  const size_t kind = Kind(match);
  const double p = chance_[kind];
  size_t best = 0;
  double best_rate = 1 / Cost(0), ids = 1, power = 1;
  for (size_t call = 1; call < kCalls.size(); ++call) {
    for (int64_t k = kCalls[call - 1]; k < kCalls[call]; ++k) ids += power *= p;
    if (ids / Cost(call) > best_rate) {
      best = call;
      best_rate = ids / Cost(call);
    }
  }
  // A measurement of long ago may have met a busy moment: it fades until it is made again.
  for (size_t call = 1; call < kCalls.size(); ++call)
    if (call != best) cost_[call] *= 0.999;
  if (best > 0) return kCalls[best] - 1;
  if (++paused_[kind] < kMostPause) return 0;
  paused_[kind] = 0;
  return 1;
}

void DraftPolicy::Learn(const DraftMatch& match, int64_t proposed, int64_t accepted) {
  double& p = chance_[Kind(match)];
  for (int64_t i = 0; i < accepted; ++i) p += 0.1 * (1 - p);
  if (accepted < proposed) p -= 0.1 * p;
  p = std::min(p, 0.98);
}

void DraftPolicy::LearnCost(int64_t ids, double seconds) {
  const auto call = std::lower_bound(kCalls.begin(), kCalls.end(), ids) - kCalls.begin();
  if (call == static_cast<std::ptrdiff_t>(kCalls.size()) || seconds <= 0) return;
  double& cost = cost_[static_cast<size_t>(call)];
  cost = cost == 0 ? seconds : 0.8 * cost + 0.2 * seconds;
}

double LookupDecoder::SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Ends a draft: what the caller did not take is forgotten.
void LookupDecoder::Settle() {
  if (draft_.empty()) return;
  const auto proposed = static_cast<int64_t>(draft_.size());
  const auto accepted = static_cast<int64_t>(taken_);
  if (accepted < proposed) decoder_.Forget(proposed - accepted);
  counts_.accepted += accepted;
  policy_.Learn(match_, proposed, accepted);
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
    match_ = FindMatch(ids_);
    int64_t count = policy_.Length(match_);
    if (capacity() > 0) count = std::min(count, capacity() - position());
    if (count > 0) ProposeDraft(ids_, match_, static_cast<size_t>(count), draft_);
  }
  const double start = clock_();
  if (!draft_.empty()) {
    std::vector<int32_t> call(ids.begin(), ids.end());
    call.insert(call.end(), draft_.begin(), draft_.end());
    const auto rows = decoder_.AppendAll(call);
    if (rows) {
      policy_.LearnCost(static_cast<int64_t>(call.size()), clock_() - start);
      rows_ = *rows;
      ++counts_.drafts;
      counts_.proposed += static_cast<int64_t>(draft_.size());
      return rows_.row(0);
    }
    draft_.clear();  // there may be memory for the id alone
  }
  auto logits = decoder_.Append(ids);
  if (!logits) {
    ids_.resize(ids_.size() - ids.size());
  } else if (ids.size() == 1) {
    policy_.LearnCost(1, clock_() - start);
  }
  return logits;
}

size_t LookupDecoder::KeepCommonPrefix(std::span<const int32_t> ids) {
  Settle();
  const size_t kept = decoder_.KeepCommonPrefix(ids);
  ids_.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept));
  return kept;
}

}  // namespace lockstep
