// Where the adapters of tools/subjects lie, for subjects that are run through one.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "verify/subject.h"

namespace lockstep {

// "genai:FOLDER": ONNX Runtime GenAI's own runtime, through tools/subjects/genai_subject.py and
// $LOCKSTEP_PYTHON (python3 where it is not set). The same as cmd: with that command line.
Result<std::unique_ptr<Subject>> OpenGenAiSubject(std::string_view folder,
                                                  std::chrono::seconds timeout);

}  // namespace lockstep
