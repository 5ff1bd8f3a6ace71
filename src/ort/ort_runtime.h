// OrtRuntime: libonnxruntime, loaded at run time: the program builds and runs without it, and says
// how to get it when something asks. Sessions and tensors (ort_session.h) stand on it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "ort/ort_abi.h"

namespace lockstep {

class OrtRuntime {
 public:
  // The library that LOCKSTEP_ORT names (a file, or a folder that holds it or an unpacked wheel);
  // else the linker's libonnxruntime.so; else the one of an installed Python package. Python is not
  // started.
  static Result<std::shared_ptr<const OrtRuntime>> Load();
  static Result<std::shared_ptr<const OrtRuntime>> LoadFrom(const std::filesystem::path& library);
  ~OrtRuntime();
  OrtRuntime(const OrtRuntime&) = delete;
  OrtRuntime& operator=(const OrtRuntime&) = delete;

  const std::string& version() const { return version_; }  // "1.32.0"
  const std::string& library() const { return library_; }  // its path, or the linker's name

  template <size_t slot, typename Out, typename... Parameters, typename... Args>
  Out Call(ort_abi::Function<slot, Out(Parameters...)>, Args... args) const {
    return reinterpret_cast<Out (*)(Parameters...)>(api_[slot])(args...);
  }
  // For functions that return a status: its message as an error.
  template <typename Function, typename... Args>
  Status Try(Function function, Args... args) const {
    return ToStatus(Call(function, args...));
  }

  ort_abi::Env* env() const { return env_; }
  ort_abi::Allocator* allocator() const { return allocator_; }

 private:
  OrtRuntime() = default;
  Status ToStatus(ort_abi::Status* status) const;

  const ort_abi::AnyFunction* api_ = nullptr;
  ort_abi::Env* env_ = nullptr;
  ort_abi::Allocator* allocator_ = nullptr;  // the runtime's own
  std::string version_, library_;
};

// Where Load looks after LOCKSTEP_ORT and the linker: folders that may hold the library, by the
// environment's VIRTUAL_ENV and HOME.
std::vector<std::filesystem::path> PythonPackageFolders();

}  // namespace lockstep
