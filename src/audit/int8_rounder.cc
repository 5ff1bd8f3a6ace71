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

void RoundBlock(std::span<float> ours) {
  const auto [scale, inverse] = StepOf(ours);
  if (!(scale > 0)) return;
  for (float& e : ours) e = std::nearbyint(e * inverse) * scale;
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

TheirInputs::TheirInputs(const std::map<const std::byte*, std::string>& matrices) {
  for (const auto& [matrix, name] : matrices) of_[matrix] = &values_[name];
}

void TheirInputs::Append(const std::string& name, int64_t columns, std::span<const float> rows) {
  const auto found = values_.find(name);
  if (found == values_.end() || columns < 1) return;
  found->second.columns = static_cast<size_t>(columns);
  found->second.rows.insert(found->second.rows.end(), rows.begin(), rows.end());
}

TieCount TheirInputs::Count(int64_t positions) const {
  TieCount sum;
  for (size_t p = 0; p < counts_.size() && static_cast<int64_t>(p) < positions; ++p)
    sum += counts_[p];
  return sum;
}

const float* TheirInputs::Row(const Value& value, int64_t position, size_t columns) const {
  const size_t begin = static_cast<size_t>(position) * columns;
  const bool known = value.columns == columns && begin + columns <= value.rows.size();
  return known ? value.rows.data() + begin : nullptr;
}

void Int8Rounder::Input(const WeightView& weight, bool, std::span<const int64_t> positions,
                        MatrixView<float> rows) const {
  const auto found = blocks.find(weight.data);
  if (found == blocks.end()) return;
  const auto block = static_cast<size_t>(found->second);
  TheirInputs::Value* value = nullptr;
  if (theirs != nullptr)
    if (const auto of = theirs->of_.find(weight.data); of != theirs->of_.end()) value = of->second;
  for (size_t t = 0; t < rows.rows; ++t) {
    const std::span<float> x = rows.row(t);
    const float* other = value == nullptr ? nullptr : theirs->Row(*value, positions[t], x.size());
    TieCount count;
    for (size_t begin = 0; begin < x.size(); begin += block) {
      const size_t size = std::min(block, x.size() - begin);
      if (other == nullptr)
        RoundBlock(x.subspan(begin, size));
      else
        RoundBlock(x.subspan(begin, size), {other + begin, size}, count);
    }
    if (other == nullptr) continue;
    const auto at = static_cast<size_t>(positions[t]);
    if (value->counted.size() <= at) value->counted.resize(at + 1);
    if (value->counted[at]) continue;
    value->counted[at] = true;
    if (theirs->counts_.size() <= at) theirs->counts_.resize(at + 1);
    theirs->counts_[at] += count;
  }
}

}  // namespace lockstep
