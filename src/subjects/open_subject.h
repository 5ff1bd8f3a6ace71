// OpenSubject: a path becomes a subject by what lies there, never by its name.
#pragma once

#include <filesystem>
#include <memory>

#include "base/thread_pool.h"
#include "verify/subject.h"

namespace lockstep {

// A Hugging Face folder or a GGUF file: the reference runs it. A safetensors file that holds
// logits: a recorded trace. The pool must outlive the subject.
Result<std::unique_ptr<Subject>> OpenSubject(const std::filesystem::path& path, ThreadPool& pool);

}  // namespace lockstep
