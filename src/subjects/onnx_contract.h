// OnnxContract: how an exported decoder wants to be fed, read from its graph's inputs and outputs
// (and from genai_config.json where there is one): which input holds what, and which output becomes
// which input of the next step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/genai_config.h"
#include "formats/onnx.h"
#include "ort/ort_session.h"

namespace lockstep {

// A past input and the present output that replaces it.
struct OnnxCache {
  enum class Kind : uint8_t {
    kGrowing,  // no rows at first; each step appends
    kBuffer,   // as many rows as the run needs, or as the graph says; a step fills the next
    kWindow,   // a buffer that keeps the last positions alone (sliding_window_cache)
    kState,    // one size for ever: of a convolution
  };
  std::string past, present;
  OrtType type = OrtType::kUndefined;
  Kind kind = Kind::kGrowing;
  std::vector<int64_t> shape;        // at first; a kBuffer of 0 rows gets as many as the run needs
  size_t axis = 0;                   // of the rows; not for kState
  std::optional<size_t> batch_axis;  // of the sequences, where the graph leaves their number open
  int64_t least_rows = 0;            // kBuffer: the operator refuses fewer
};

// An input that every step computes.
struct OnnxFed {
  enum class What : uint8_t {
    kIds,            // [1, n]
    kMask,           // [1, past + n] ones
    kPositions,      // [1, n]: past, past + 1, ...
    kCachePosition,  // the same as [n]
    kPastLength,     // a scalar or [1]
    kTotalLength,
    kLogitsToKeep,  // 0: all
  };
  What what = What::kIds;
  std::string name;
  OrtType type = OrtType::kInt64;
  size_t rank = 2;
  int64_t fixed_length = 0;  // kMask: filled up with zeros to this; 0: as long as it is
};

struct OnnxContract {
  std::vector<OnnxFed> fed;
  std::vector<OnnxCache> caches;  // empty: each step runs the whole sequence
  std::string logits;
  OrtType logits_type = OrtType::kUndefined;
  std::optional<int64_t> vocab_size;
  bool pruned_head = false;  // logits of the last position alone
  bool free_batch = false;   // ids, mask, positions and caches of several sequences at once
  std::optional<int64_t> context_length;
  std::vector<std::string> notes;
};

Result<OnnxContract> ReadOnnxContract(const OnnxModel& model,
                                      const std::optional<GenAiConfig>& config);

}  // namespace lockstep
