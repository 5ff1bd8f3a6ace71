#include "ort/ort_runtime.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/quoted.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kErrors = 3;  // log severity: errors alone; they come back as statuses as well
constexpr std::string_view kHowToGetIt =
    "`pip install onnxruntime`, or name libonnxruntime.so or its folder in LOCKSTEP_ORT";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets it
  return value == nullptr ? "" : value;
}

// libonnxruntime.so or libonnxruntime.so.1.32.0 in this folder; the last by name.
std::optional<fs::path> LibraryIn(const fs::path& folder) {
  std::optional<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; it != end && !error; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (name.starts_with("libonnxruntime.so") && fs::is_regular_file(it->path(), ignored) &&
        (!found || *found < it->path()))
      found = it->path();
  }
  return found;
}

std::optional<fs::path> LibraryInOrBelow(const fs::path& folder) {
  for (const char* below : {"", "onnxruntime/capi", "lib"})
    if (auto found = LibraryIn(folder / below)) return found;
  return std::nullopt;
}

// The second number of "1.32.0"; 0 when there is none.
int MinorVersion(std::string_view version) {
  int minor = 0;
  if (!version.starts_with("1.")) return 0;
  std::from_chars(version.data() + 2, version.data() + version.size(), minor);
  return minor;
}

}  // namespace

std::vector<fs::path> PythonPackageFolders() {
  std::vector<fs::path> roots;
  if (const std::string venv = Environment("VIRTUAL_ENV"); !venv.empty())
    roots.push_back(fs::path(venv) / "lib");
  if (const std::string home = Environment("HOME"); !home.empty())
    roots.push_back(fs::path(home) / ".local/lib");
  roots.insert(roots.end(), {"/usr/local/lib", "/usr/lib"});
  std::vector<fs::path> out;
  for (const fs::path& root : roots) {
    std::vector<fs::path> versions;  // python3, python3.11, ...
    std::error_code error;
    for (fs::directory_iterator it(root, error), end; it != end && !error; it.increment(error))
      if (it->path().filename().string().starts_with("python3")) versions.push_back(it->path());
    std::sort(versions.begin(), versions.end());
    for (const fs::path& version : versions)
      for (const char* packages : {"site-packages", "dist-packages"})
        out.push_back(version / packages / "onnxruntime/capi");
  }
  return out;
}

Result<std::shared_ptr<const OrtRuntime>> OrtRuntime::Load() {
  if (const std::string given = Environment("LOCKSTEP_ORT"); !given.empty()) {
    std::error_code ignored;
    if (!fs::is_directory(given, ignored)) return LoadFrom(given);
    if (const auto found = LibraryInOrBelow(given)) return LoadFrom(*found);
    return UsageError("LOCKSTEP_ORT is {}, which holds no libonnxruntime.so: {}", Quoted(given),
                      kHowToGetIt);
  }
  for (const char* name : {"libonnxruntime.so", "libonnxruntime.so.1"})
    if (auto runtime = LoadFrom(name)) return runtime;
  for (const fs::path& folder : PythonPackageFolders())
    if (const auto found = LibraryIn(folder)) return LoadFrom(*found);
  return UnsupportedError("ONNX Runtime, which runs ONNX models, is not installed: {}",
                          kHowToGetIt);
}

Result<std::shared_ptr<const OrtRuntime>> OrtRuntime::LoadFrom(const fs::path& library) {
  // Never closed: its threads and what it registers at exit outlive any of our objects.
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* reason = dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread in glibc
    return UsageError("{}: cannot be loaded as ONNX Runtime: {}", library.string(),
                      reason == nullptr ? "no reason given" : reason);
  }
  const auto get_base =
      reinterpret_cast<const ort_abi::Base* (*)()>(dlsym(handle, "OrtGetApiBase"));
  if (get_base == nullptr)
    return UsageError("{}: is not ONNX Runtime: it has no OrtGetApiBase", library.string());
  const ort_abi::Base* base = get_base();
  std::shared_ptr<OrtRuntime> runtime(new OrtRuntime());
  runtime->library_ = library.string();
  runtime->version_ = base->get_version_string();
  // Asked for a version that it does not know it prints a line of its own: look first.
  if (MinorVersion(runtime->version_) < static_cast<int>(ort_abi::kVersion))
    return UnsupportedError("{}: is ONNX Runtime {}, expected 1.{} or later", library.string(),
                            OneLine(runtime->version_, 40), ort_abi::kVersion);
  runtime->api_ = base->get_api(ort_abi::kVersion);
  if (runtime->api_ == nullptr)
    return UnsupportedError("{}: ONNX Runtime {} does not give version {} of its interface",
                            library.string(), OneLine(runtime->version_, 40), ort_abi::kVersion);
  LS_RETURN_IF_ERROR(runtime->Try(ort_abi::kCreateEnv, kErrors, "lockstep", &runtime->env_));
  LS_RETURN_IF_ERROR(runtime->Try(ort_abi::kGetAllocatorWithDefaultOptions, &runtime->allocator_));
  return runtime;
}

OrtRuntime::~OrtRuntime() {
  if (env_ != nullptr) Call(ort_abi::kReleaseEnv, env_);
}

Status OrtRuntime::ToStatus(ort_abi::Status* status) const {
  if (status == nullptr) return {};
  auto error = InputError("ONNX Runtime {}: {}", version_, Call(ort_abi::kGetErrorMessage, status));
  Call(ort_abi::kReleaseStatus, status);
  return error;
}

}  // namespace lockstep
