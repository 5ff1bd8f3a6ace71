// Audit: the checks of a candidate that need no forward pass. Every weight of the reference is
// looked up in the candidate's graph and compared; every constant, attribute and table that stands
// for a fact is compared with the reference's spec; genai_config.json and the tokenizer with the
// checkpoint's. Each finding carries what repairs it (repair.h), and the edit that would give the
// reference the same fault, for a diagnosis to prove.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/decoder.h"
#include "base/json.h"
#include "faults/edit.h"
#include "formats/onnx_write.h"
#include "model/model.h"

namespace lockstep {

enum class FindingKind : uint8_t {
  kQuantized,  // weights in fewer bits: no fault
  kWeight,     // other numbers in a weight, or none
  kNorm,       // eps, kind
  kRope,
  kAttention,  // window, scale, soft cap, heads, clamp
  kScale,      // of the embedding, a residual, the logits
  kActivation,
  kRouting,
  kStructure,   // layers or operators too many or too few
  kGeneration,  // genai_config.json against the checkpoint's configuration
  kTokenizer,
};
std::string_view FindingKindName(FindingKind kind);

// One value of a JSON file in the candidate's folder; null removes the key.
struct ConfigPatch {
  std::string file;     // "genai_config.json"
  std::string pointer;  // RFC 6901: "/search/repetition_penalty"
  Json value;
  bool operator==(const ConfigPatch&) const = default;
};

struct Finding {
  FindingKind kind = FindingKind::kWeight;
  std::string where;     // paths of the spec or weights, joined: "layers[0,2].mixer.sliding_window"
  std::string expected;  // what the reference has
  std::string found;     // what the candidate has
  std::string sentence;  // all of it, for a person
  // What the reference would have to be to equal the candidate: a hypothesis. Absent where no edit
  // says it.
  std::optional<Edit> edit;
  // What repairs the folder; both empty: nothing here does, and how_to says what to do instead.
  OnnxPatch patch;
  std::vector<ConfigPatch> config;
  std::string how_to;

  bool repairable() const {
    return how_to.empty() && (!patch.tensors.empty() || !patch.attributes.empty() ||
                              !patch.inputs.empty() || !patch.nodes.empty() || !config.empty());
  }
};

enum class WeightState : uint8_t {
  kEqual,
  kRounded,    // exactly the reference's number in fewer bits
  kQuantized,  // codes that follow the reference's numbers
  kScaled,     // times `factor`
  kOffset,     // plus `factor`
  kZeroed,
  kOther,       // equal to `other`
  kTransposed,  // square, and equal to the transposed
  kPairs,       // rows of each head in pairs where the reference has halves
  kHalves,      // the inverse
  kEquivalent,  // other numbers that, with those of other weights, are the same function
  kZeroPoints,  // codes that would follow them under other zero points
  kDiffers,
  kMissing,   // the place is known, and nothing is there
  kNotFound,  // the place is not known
};
std::string_view WeightStateName(WeightState state);

struct WeightResult {
  WeightState state = WeightState::kNotFound;
  double correlation = 1;
  double max_abs = 0;  // largest difference
  double factor = 1;
  Rounding rounding = Rounding::kNone;
  int bits = 0;       // of kQuantized and kZeroPoints; of kRounded 16 where it is kept in so many,
  int64_t block = 0;  // of kQuantized and kZeroPoints
  std::optional<WeightId> other;
  int64_t not_finite = 0;            // numbers of the candidate's that are NaN or infinite,
  int64_t reference_not_finite = 0;  // and of the reference's own
};

struct AuditReport {
  std::vector<Finding> findings;
  std::map<WeightId, WeightResult> weights;  // every weight of the reference
  std::vector<std::string> notes;            // what could not be looked at. Sentences
  std::vector<std::string> not_compared;     // what no audit compares, and what this one could not
  FoundDecoder decoder;                      // of an ONNX candidate
  int64_t strangers = 0;  // operators on the way to its logits that were not understood

  // No finding but quantization.
  bool healthy() const;
};

// The candidate's folder may hold genai_config.json, tokenizer.json and templates besides the
// model.
Result<AuditReport> Audit(const Model& reference, const OnnxModel& candidate);

// Of a checkpoint (a GGUF file or a Hugging Face folder): specs by Diff, weights by role.
Result<AuditReport> Audit(const Model& reference, const Model& candidate);

}  // namespace lockstep
