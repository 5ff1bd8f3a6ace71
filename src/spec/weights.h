// Which weights a spec needs, and their shapes: computed from the facts alone. The binding (model/)
// fills each slot from a checkpoint; the ledger adds them up; nothing else knows a weight's shape.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spec/model_spec.h"

namespace lockstep {

// clang-format off
enum class Role : uint8_t {
  kEmbedTokens, kEmbedPositions, kFinalNorm, kLmHead,
  kMixerPreNorm, kMixerPostNorm, kMlpPreNorm, kMlpPostNorm,
  kQProj, kKProj, kVProj, kOProj, kQNorm, kKNorm, kSinks,
  kQAProj, kQANorm, kQBProj, kKvAProj, kKvANorm, kKvBProj,
  kConvInProj, kConv, kConvOutProj,
  kGateProj, kUpProj, kDownProj,
  kRouter, kRouterSelectionBias, kExpertGateProj, kExpertUpProj, kExpertDownProj,
  kSharedGateProj, kSharedUpProj, kSharedDownProj, kSharedExpertGate,
};
// clang-format on

// The parts of the parameter ledger.
enum class LedgerPart : uint8_t { kEmbedding, kPositions, kMixer, kMlp, kNorms, kHead };

struct RoleInfo {
  Role role;
  std::string_view name;  // "q_proj", in paths such as layers.3.q_proj.weight
  LedgerPart part;
};
const RoleInfo& InfoOf(Role role);
std::string_view LedgerPartName(LedgerPart part);
inline constexpr int kNumLedgerParts = 6;

enum class Part : uint8_t { kWeight, kBias };

// One weight of a model. layer and expert are -1 where they do not apply.
struct WeightId {
  Role role;
  Part part = Part::kWeight;
  int32_t layer = -1;
  int32_t expert = -1;
  auto operator<=>(const WeightId&) const = default;
};
std::string ToString(const WeightId& id);  // "layers.3.experts.1.up_proj.weight"

struct WeightSlot {
  WeightId id;
  int64_t rows = 1;  // outputs; 1 for a vector
  int64_t cols = 0;  // inputs; the length of a vector
};

// Every weight the spec needs, once each, in the order of the computation. A tied head has no slot.
// Role::kConv is [hidden_size, kernel_size].
std::vector<WeightSlot> RequiredWeights(const ModelSpec& spec);

// Parameters by part; their sum is the model's parameter count.
std::array<int64_t, kNumLedgerParts> CountParameters(const ModelSpec& spec);

}  // namespace lockstep
