#include "audit/int8_rounder.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

struct Step {
  float scale, inverse;
};

Step StepOf(std::span<const float> block) {
  float largest = 0;
  for (const float e : block) largest = std::max(largest, std::abs(e));
  return {largest / 127, largest > 0 ? 127 / largest : 0};
}

// Returns how many lie in the middle between two codes.
int64_t RoundBlock(std::span<float> ours, const HiddenTies& hidden) {
  const auto [scale, inverse] = StepOf(ours);
  int64_t ties = 0;
  if (!(scale > 0)) return ties;
  for (float& e : ours) {
    const float exact = e * inverse;
    float code = std::nearbyint(exact);
    if (hidden.steps > 0 && std::abs(std::abs(exact - code) - 0.5f) <= hidden.steps) {
      ++ties;
      if (hidden.flip) code += exact > code ? 1.0f : -1.0f;
    }
    e = code * scale;
  }
  return ties;
}

// The same, with the candidate's code for ties.
void RoundBlock(std::span<float> ours, std::span<const float> theirs, TieCount& count) {
  const auto [scale, inverse] = StepOf(ours);
  if (!(scale > 0)) return;
  const Step other = StepOf(theirs);
  count.numbers += static_cast<int64_t>(ours.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    float code = std::nearbyint(ours[i] * inverse);
    const float their_code = std::nearbyint(theirs[i] * other.inverse);
    const double apart = std::abs(ours[i] - theirs[i]) * inverse;
    count.furthest = std::max(count.furthest, apart);
    // A finite number on both sides: of NaN nothing is taken.
    if (code != their_code) {
      if (apart <= kTieSteps && std::abs(code - their_code) == 1) {
        ++count.ties;
        count.widest = std::max(count.widest, apart);
        code = their_code;
      } else {
        ++count.others;
      }
    }
    ours[i] = code * scale;
  }
}

}  // namespace

TieCount& TieCount::operator+=(const TieCount& more) {
  numbers += more.numbers;
  ties += more.ties;
  others += more.others;
  widest = std::max(widest, more.widest);
  furthest = std::max(furthest, more.furthest);
  return *this;
}

void TheirInputs::Append(const std::string& name, int64_t columns, std::span<const float> rows) {
  if (columns < 1) return;
  Value& value = values_[name];
  value.columns = static_cast<size_t>(columns);
  value.rows.insert(value.rows.end(), rows.begin(), rows.end());
}

void TheirInputs::CutBack(int64_t length) {
  for (auto& [name, value] : values_)
    value.rows.resize(std::min(value.rows.size(), static_cast<size_t>(length) * value.columns));
}

const float* TheirInputs::Row(const Value& value, int64_t position, size_t columns) {
  const size_t begin = static_cast<size_t>(position) * columns;
  const bool known = value.columns == columns && begin + columns <= value.rows.size();
  return known ? value.rows.data() + begin : nullptr;
}

TieCount TieCounter::Count(int64_t positions) const {
  TieCount sum;
  for (size_t p = 0; p < counts_.size() && static_cast<int64_t>(p) < positions; ++p)
    sum += counts_[p];
  return sum;
}

int64_t TieCounter::Hidden(int64_t positions) const {
  int64_t sum = 0;
  for (size_t p = 0; p < hidden_.size() && static_cast<int64_t>(p) < positions; ++p)
    sum += hidden_[p];
  return sum;
}

Int8Rounder::Int8Rounder(const RoundedPlaces& places, const Weights& weights,
                         const TheirInputs* theirs, TieCounter* counter, HiddenTies hidden)
    : counter_(counter), hidden_(hidden) {
  for (const auto& [id, place] : places) {
    const WeightView* view = weights.Find(id);
    if (view == nullptr || place.block < 1) continue;
    Matrix matrix{.block = static_cast<size_t>(place.block)};
    if (theirs != nullptr && !place.input.empty())
      if (const auto value = theirs->values_.find(place.input); value != theirs->values_.end())
        matrix.theirs = &value->second;
    matrices_[view] = matrix;
  }
}

void Int8Rounder::Input(const WeightView& weight, bool, std::span<const int64_t> positions,
                        MatrixView<float> rows) const {
  const auto found = matrices_.find(&weight);
  if (found == matrices_.end()) return;
  const auto [block, value] = found->second;
  for (size_t t = 0; t < rows.rows; ++t) {
    const std::span<float> x = rows.row(t);
    const float* other =
        value == nullptr ? nullptr : TheirInputs::Row(*value, positions[t], x.size());
    TieCount count;
    int64_t hidden = 0;
    for (size_t begin = 0; begin < x.size(); begin += block) {
      const size_t size = std::min(block, x.size() - begin);
      if (other == nullptr)
        hidden += RoundBlock(x.subspan(begin, size), hidden_);
      else
        RoundBlock(x.subspan(begin, size), {other + begin, size}, count);
    }
    if (counter_ == nullptr) continue;
    const auto at = static_cast<size_t>(positions[t]);
    if (hidden > 0) {
      if (counter_->hidden_.size() <= at) counter_->hidden_.resize(at + 1);
      counter_->hidden_[at] += hidden;
    }
    if (other == nullptr) continue;
    std::vector<bool>& counted = counter_->counted_[value];
    if (counted.size() <= at) counted.resize(at + 1);
    if (counted[at]) continue;
    counted[at] = true;
    if (counter_->counts_.size() <= at) counter_->counts_.resize(at + 1);
    counter_->counts_[at] += count;
  }
}

}  // namespace lockstep
