// The terminal: where text goes, who reads it, Ctrl-C, progress lines, and how errors are told.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "cli/exit_code.h"

namespace lockstep {

bool StdinIsTerminal();
bool StderrIsTerminal();

Result<std::string> ReadStdin();

// A stream that the shell closed (2>&-) gets a place to write to, so that no file that is opened
// later takes its number: what is told on stderr is dropped, and writing to stdout fails.
void OpenStandardStreams();

// Writes and flushes. A closed pipe ends the program silently, as SIGPIPE does; when stdout cannot
// be written the program ends with kExitUnusable. What stderr does not take is dropped.
void Print(std::string_view text);
void PrintJson(const Json& json);
void PrintJsonLine(const Json& json);                    // on one line
void PrintError(std::string_view text);                  // to stderr, as is
void PrintNotes(const std::vector<std::string>& notes);  // to stderr, a line each

Json ErrorToJson(const Error& error);
// Tells the error on stderr; with `json` also as {"error": ...} on stdout. Returns the exit code.
int Report(const Error& error, bool json);

// From now on the first Ctrl-C only sets a flag; the second one ends the program at once.
void CatchInterrupts();
bool WasInterrupted();
void ForgetInterrupt();

// One line on stderr that is written over, shown only on a terminal and not before `delay`.
class ProgressLine {
 public:
  explicit ProgressLine(std::chrono::milliseconds delay = std::chrono::milliseconds(500));
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(std::string_view doing, int64_t done, int64_t total);
  void Clear();

 private:
  std::chrono::steady_clock::time_point start_, last_{};
  std::chrono::milliseconds delay_;
  bool shown_ = false;
};

}  // namespace lockstep
