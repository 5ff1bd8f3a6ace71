// Exchanges: weights that hold each other's numbers. Told one by one each would be "holds that of
// another", and two such edits, done one after the other, would both read what the first left. Made
// of what compare_weights.cc and the audit of checkpoints found, read into findings.h.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "audit/findings.h"
#include "audit/weight_sums.h"

namespace lockstep {

// Each holds what the next one should; the last, what the first should.
using Exchange = std::vector<WeightId>;

// Every weight is in at most one.
std::vector<Exchange> ExchangesOf(const std::map<WeightId, WeightResult>& weights);

// A finding without its repair, and the exchanges that it tells: layers that are exchanged whole
// are one finding.
struct ExchangeFinding {
  RawFinding raw;
  std::vector<Exchange> exchanges;
};
std::vector<ExchangeFinding> TellExchanges(const std::map<WeightId, WeightResult>& weights);

// The weight of the reference whose numbers these are, of the same part and shape; absent: none.
// `codes`: they follow it as codes of few bits do.
struct NamedRows {
  WeightId id;
  Rows rows;
};
std::optional<WeightId> OwnerOf(const Rows& got, const WeightId& place, bool codes,
                                const std::vector<NamedRows>& all);

}  // namespace lockstep
