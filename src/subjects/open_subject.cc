#include "subjects/open_subject.h"

#include <cstdlib>

#include "base/quoted.h"
#include "subjects/adapters.h"
#include "subjects/command_subject.h"
#include "subjects/engine_subject.h"
#include "subjects/http_subject.h"
#include "subjects/onnx_subject.h"
#include "subjects/reference_subject.h"
#include "subjects/trace_subject.h"

namespace lockstep {
namespace {

constexpr std::string_view kEngine = "engine:", kReference = "reference:", kOnnx = "onnx:";
constexpr std::string_view kCommand = "cmd:", kGenAi = "genai:";

std::string_view PrefixOf(std::string_view name) {
  for (const std::string_view prefix : {kEngine, kReference, kOnnx})
    if (name.starts_with(prefix)) return prefix;
  return "";
}

bool HoldsTrace(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && IsTrace(path);
}

}  // namespace

bool HoldsOnnx(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path.extension() == ".onnx";
  if (std::filesystem::exists(path / "genai_config.json", ignored)) return true;
  return std::filesystem::exists(path / "model.onnx", ignored) &&
         !std::filesystem::exists(path / "model.safetensors", ignored) &&
         !std::filesystem::exists(path / "model.safetensors.index.json", ignored);
}

bool NamesEngine(const std::filesystem::path& path) { return PrefixOf(path.string()) == kEngine; }

std::filesystem::path WithoutPrefix(const std::filesystem::path& path) {
  return path.string().substr(PrefixOf(path.string()).size());
}

Result<std::unique_ptr<Subject>> OpenSubject(const std::filesystem::path& path, ThreadPool& pool,
                                             const EngineOptions& options,
                                             std::chrono::seconds timeout) {
  const std::string name = path.string();
  if (name.starts_with(kCommand)) {
    LS_TRY(auto subject,
           CommandSubject::Open({.command = name.substr(kCommand.size()), .timeout = timeout}));
    return std::unique_ptr<Subject>(std::move(subject));
  }
  if (name.starts_with(kGenAi)) return OpenGenAiSubject(name.substr(kGenAi.size()), timeout);
  if (NamesServer(name)) {
    const char* const key = std::getenv("LOCKSTEP_API_KEY");
    LS_TRY(auto subject, HttpSubject::Open(name, key != nullptr ? key : "", timeout));
    return std::unique_ptr<Subject>(std::move(subject));
  }
  const std::string_view prefix = PrefixOf(name);
  const std::filesystem::path model = WithoutPrefix(path);
  if (HoldsTrace(model)) {
    if (!prefix.empty())
      return UsageError("{}: is a recorded trace, which nothing runs: leave \"{}\" out",
                        model.string(), prefix);
    LS_TRY(auto subject, TraceSubject::Open(model));
    return std::unique_ptr<Subject>(std::move(subject));
  }
  if (prefix == kEngine) {
    LS_TRY(auto subject, EngineSubject::Open(model, options, pool));
    return std::unique_ptr<Subject>(std::move(subject));
  }
  if (prefix == kOnnx || (prefix.empty() && HoldsOnnx(model))) {
    LS_TRY(auto subject, OnnxSubject::Open(model, pool.num_threads(), timeout));
    return std::unique_ptr<Subject>(std::move(subject));
  }
  auto subject = ReferenceSubject::Open(model, pool);
  const size_t colon = name.find(':');
  std::error_code ignored;
  if (!subject && prefix.empty() && colon != std::string::npos && colon > 1 &&
      name.find('/') > colon && !std::filesystem::exists(path, ignored))
    return UsageError(
        "{}: there is no such file, and \"{}\" is none of the prefixes engine:, reference:, onnx:, "
        "genai:, cmd: and http://",
        Quoted(name), name.substr(0, colon + 1));
  if (!subject) return tl::unexpected(std::move(subject).error());
  return std::unique_ptr<Subject>(*std::move(subject));
}

}  // namespace lockstep
