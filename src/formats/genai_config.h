// GenAiConfig: genai_config.json of an ONNX Runtime GenAI folder: how its runtime feeds the graph
// and which settings it generates with. Read by subjects (names and sizes of caches) and audits.
// Keys and defaults are those of onnxruntime-genai 0.18.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace lockstep {

struct GenAiConfig {
  struct SlidingWindow {  // model.decoder.sliding_window
    int64_t window_size = 0;
    int64_t cache_slack = 0;      // rows beyond the window; 0: the device's own, 16 on a CPU
    std::vector<int64_t> layers;  // empty: all
  };
  // Patterns with a %d for the layer, and plain names.
  std::string input_ids = "input_ids", attention_mask = "attention_mask",
              position_ids = "position_ids", logits = "logits";
  std::string past_key = "past_key_values.%d.key", past_value = "past_key_values.%d.value",
              present_key = "present.%d.key", present_value = "present.%d.value";
  std::string past_conv = "past.%d.conv", present_conv = "present.%d.conv";

  std::string type;                        // model.type
  std::optional<int64_t> head_size;        // model.decoder.head_size
  std::optional<int64_t> context_length;   // model.context_length
  std::optional<int64_t> vocab_size;       // model.vocab_size
  bool past_present_share_buffer = false;  // search
  std::optional<SlidingWindow> sliding_window;
  Json json;  // all of it
};

// Absent when the folder has none.
Result<std::optional<GenAiConfig>> ReadGenAiConfig(const std::filesystem::path& folder);

// The number that stands for %d in `name`; absent when the name is not of this pattern.
std::optional<int64_t> MatchPattern(const std::string& pattern, const std::string& name);
// The pattern with the number in it.
std::string FillPattern(const std::string& pattern, int64_t number);

}  // namespace lockstep
