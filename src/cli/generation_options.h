// The flags that decide how tokens are chosen, over the checkpoint's own generation_config.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "engine/generation_config.h"
#include "model/model.h"

namespace lockstep {

// Tokens an answer may have when neither the checkpoint nor a flag says.
inline constexpr int64_t kDefaultMaxNewTokens = 512;

class GenerationOptions {
 public:
  void AddTo(CLI::App& verb);

  // generation_config.json, then the flags; end ids from the spec where the file has none. Warnings
  // are sentences about keys that have no effect. A flag's value that is at fault is wrong usage
  // and the message names the flag.
  Result<ParsedGenerationConfig> InForce(const Model& model) const;

 private:
  struct Override {
    std::string flag;  // as the help writes it, with what the user gave: "--top-k 7"
    std::string key;   // of generation_config.json
    Json value;
  };
  // The flag that is at fault by itself, as wrong usage; absent: none is.
  std::optional<Error> FlagAtFault(const Model& model) const;

  std::vector<Override> overrides_;
  std::vector<std::string> stops_, biases_;
  bool greedy_ = false, sample_ = false;
};

}  // namespace lockstep
