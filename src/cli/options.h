// Options that several verbs share, their checks (a wrong value is told in a sentence, before any
// file is touched), and prompts from files.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "verify/verify.h"

namespace lockstep {

// Validators: `expected a whole number from 1 to 1024, found "many"`.
CLI::Validator WholeNumber(int64_t lowest, int64_t highest);
CLI::Validator RealNumber(double lowest, double highest);
// Whole numbers with commas between them, and those numbers.
CLI::Validator WholeNumbers(int64_t lowest, int64_t highest);
std::vector<int64_t> NumbersIn(const std::vector<std::string>& lists);

// "1,2,3", "1 2 3" or "[1, 2, 3]".
Result<std::vector<int32_t>> ParseIds(std::string_view text, std::string_view place);

// One prompt a line, or a JSON list of texts or of {"name", "text"} objects. Empty lines are left
// out; names are the given ones or "prompt 1", ...
Result<std::vector<NamedPrompt>> ReadPrompts(const std::filesystem::path& path);

// Prompts from -p, --prompts and --ids; none: the caller's own.
struct PromptOptions {
  std::vector<std::string> texts, ids;
  std::string file;
  bool chat = false, raw = false;

  void AddTo(CLI::App& verb);
  Result<std::vector<NamedPrompt>> Prompts() const;
  std::optional<bool> Chat() const;  // absent: decide by the model
};

// 0: as many as the machine gives.
int ThreadCount(int64_t asked);

// Refuses text that is not UTF-8, with the place of the first bad byte.
Status CheckUtf8(std::string_view text, std::string_view place);

}  // namespace lockstep
