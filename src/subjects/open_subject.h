// OpenSubject: a path becomes a subject by what lies there; a prefix says who runs it.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

#include "base/thread_pool.h"
#include "engine/engine.h"
#include "verify/subject.h"

namespace lockstep {

// A Hugging Face folder or a GGUF file: the reference runs it, or with "engine:" in front of the
// path the engine, as the options say ("reference:" is said by leaving it out). A safetensors file
// that holds logits: a recorded trace. A .onnx file, a folder with genai_config.json or with a
// model.onnx and no checkpoint, or any folder after "onnx:": ONNX Runtime. "cmd:COMMAND LINE": a
// program (command_subject.h); "genai:FOLDER": ONNX Runtime GenAI (adapters.h);
// "http(s)://HOST/v1": a server (http_subject.h); each of their answers, and each of ONNX
// Runtime's, may take `timeout`. The pool must outlive the subject.
Result<std::unique_ptr<Subject>> OpenSubject(
    const std::filesystem::path& path, ThreadPool& pool, const EngineOptions& options = {},
    std::chrono::seconds timeout = std::chrono::seconds(600));

// A .onnx file, or a folder that holds an exported decoder and no checkpoint.
bool HoldsOnnx(const std::filesystem::path& path);

// "engine:" is in front of the path.
bool NamesEngine(const std::filesystem::path& path);
// The path alone.
std::filesystem::path WithoutPrefix(const std::filesystem::path& path);

}  // namespace lockstep
