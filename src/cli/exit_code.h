// The exit codes of the program, for scripts. `lockstep --help` prints them.
#pragma once

#include "base/error.h"

namespace lockstep {

enum ExitCode : int {
  kExitYes = 0,            // done; for a question: yes
  kExitNo = 1,             // the answer is no (verify: not the same model)
  kExitUsage = 2,          // the command line makes no sense
  kExitUnusable = 3,       // a file or a model cannot be used
  kExitInterrupted = 130,  // Ctrl-C, as shells have it
};

inline ExitCode ExitCodeOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kUsage:
      return kExitUsage;
    case ErrorCode::kInterrupted:
      return kExitInterrupted;
    case ErrorCode::kInput:
    case ErrorCode::kUnsupported:
      break;
  }
  return kExitUnusable;
}

}  // namespace lockstep
