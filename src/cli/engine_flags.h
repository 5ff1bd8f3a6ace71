// The flags of verbs that compute with the engine: how exact, and with how many threads.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace lockstep {

// --activations, whose help begins with `when` the flag counts.
CLI::Option* AddActivations(CLI::App& verb, std::string_view when, std::string& activations);

struct EngineFlags {
  std::string activations = "int8";
  std::string kv;  // empty: the engine's own choice
  int64_t threads = 0;

  void AddTo(CLI::App& verb);
  EngineOptions Options() const;
  // The first flag on the command line that only the engine has a use for, or "".
  std::string FirstGiven() const;

 private:
  std::vector<const CLI::Option*> only_engine_;
};

}  // namespace lockstep
