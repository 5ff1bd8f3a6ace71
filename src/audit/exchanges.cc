#include "audit/exchanges.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace lockstep {
namespace {

WeightEdit SwapOf(const WeightId& one, const WeightId& other) {
  WeightEdit edit{
      .change = WeightChange::kSwap, .role = one.role, .part = one.part, .expert = one.expert};
  if (one.layer >= 0) edit.layers = {one.layer};
  if (other.role != one.role) edit.other_role = other.role;
  if (other.layer != one.layer) edit.other_layer = other.layer;
  if (other.expert != one.expert) edit.other_expert = other.expert;
  return edit;
}

std::string PathIn(WeightId id) {
  id.layer = -1;
  return ToString(id);
}

// Two layers whose weights all stand in each other's places.
bool WholeLayers(const std::map<WeightId, WeightResult>& weights,
                 const std::vector<Exchange>& exchanges, int32_t one, int32_t other) {
  std::set<WeightId> moved;
  for (const Exchange& exchange : exchanges)
    if (exchange.size() == 2 && exchange[0].layer == one && exchange[1].layer == other) {
      WeightId there = exchange[0];
      there.layer = other;
      if (there == exchange[1]) moved.insert(exchange[0]);
    }
  if (moved.empty()) return false;
  return std::ranges::all_of(weights, [&](const auto& weight) {
    const WeightId& id = weight.first;
    return id.layer != one || moved.contains(id);
  });
}

}  // namespace

std::vector<Exchange> ExchangesOf(const std::map<WeightId, WeightResult>& weights) {
  std::vector<Exchange> out;
  const auto next = [&](const WeightId& id) -> const WeightId* {
    const auto at = weights.find(id);
    if (at == weights.end() || at->second.state != WeightState::kOther || !at->second.other ||
        at->second.other->part != id.part)
      return nullptr;
    return &*at->second.other;
  };
  std::set<WeightId> seen;  // each weight is followed once, however long the circles are
  for (const auto& [id, result] : weights) {
    Exchange way;
    std::map<WeightId, size_t> place;  // on this way
    const WeightId* at = &id;
    while (at != nullptr && seen.insert(*at).second) {
      place.emplace(*at, way.size());
      way.push_back(*at);
      at = next(*at);
    }
    const auto first = at != nullptr ? place.find(*at) : place.end();
    if (first == place.end()) continue;
    Exchange circle(way.begin() + static_cast<std::ptrdiff_t>(first->second), way.end());
    if (circle.size() < 2) continue;
    std::rotate(circle.begin(), std::min_element(circle.begin(), circle.end()), circle.end());
    out.push_back(std::move(circle));
  }
  std::ranges::sort(out, {}, [](const Exchange& exchange) { return exchange[0]; });
  return out;
}

std::vector<ExchangeFinding> TellExchanges(const std::map<WeightId, WeightResult>& weights) {
  const std::vector<Exchange> exchanges = ExchangesOf(weights);
  std::vector<ExchangeFinding> out;
  std::set<std::pair<int32_t, int32_t>> whole;
  for (const Exchange& exchange : exchanges) {
    const WeightId &one = exchange[0], &other = exchange[1];
    RawFinding raw{.layer = one.layer, .path = PathIn(one)};
    raw.expected = "the reference's numbers, each in its place";
    const bool layers =
        exchange.size() == 2 && one.layer != other.layer && PathIn(one) == PathIn(other);
    if (layers) {
      raw.what = fmt::format("exchanged with those of layer {}", other.layer);
      const std::pair pair(one.layer, other.layer);
      if (whole.contains(pair)) {
        for (ExchangeFinding& finding : out)
          if (finding.raw.path == "*" && finding.raw.layer == one.layer)
            finding.exchanges.push_back(exchange);
        continue;
      }
      if (WholeLayers(weights, exchanges, one.layer, other.layer)) {
        whole.insert(pair);
        raw.path = "*";
        raw.weight_edit = WeightEdit{.change = WeightChange::kSwap, .other_layer = other.layer};
      } else {
        WeightEdit edit = SwapOf(one, other);
        edit.layers.clear();  // the collector fills them in
        raw.weight_edit = edit;
      }
    } else if (exchange.size() == 2 && one.layer == other.layer && one.expert == other.expert) {
      raw.what = fmt::format("exchanged with {}", InfoOf(other.role).name);
      WeightEdit edit = SwapOf(one, other);
      edit.layers.clear();
      raw.weight_edit = edit;
    } else {
      raw.what = fmt::format("exchanged with {}", ToString(other));
      for (size_t i = 2; i < exchange.size(); ++i)
        raw.what += fmt::format(", {}", ToString(exchange[i]));
      // A circle is a chain of swaps: each puts one weight right and hands the first's on.
      Edit edit;
      for (size_t i = 0; i + 1 < exchange.size(); ++i)
        edit.weights.push_back(SwapOf(exchange[i], exchange[i + 1]));
      raw.edit = std::move(edit);
    }
    raw.found = layers ? fmt::format("those of layer {}", other.layer)
                       : fmt::format("those of {}", ToString(other));
    if (!layers && one.layer == other.layer && exchange.size() == 2 && one.expert == other.expert)
      raw.found = fmt::format("those of {}", InfoOf(other.role).name);
    out.push_back({std::move(raw), {exchange}});
  }
  return out;
}

std::optional<WeightId> OwnerOf(const Rows& got, const WeightId& place, bool codes,
                                const std::vector<NamedRows>& all) {
  constexpr double kSameCodes = 0.9;  // correlation from which codes stand for these numbers
  for (const NamedRows& one : all) {
    if (one.id == place || one.id.part != place.part) continue;
    if (!SampleAgrees(one.rows, got, codes ? kSameCodes : 1)) continue;
    const Sums sums = SumsOf(one.rows, got);  // a few rows are no proof
    const bool same = codes ? sums.correlation() > kSameCodes
                            : sums.max_abs <= kFolded * std::max(1.0, sums.largest);
    if (same) return one.id;
  }
  return std::nullopt;
}

}  // namespace lockstep
