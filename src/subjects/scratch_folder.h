// ScratchFolder: a private folder among the system's temporary files, gone with its object.
#pragma once

#include <filesystem>
#include <utility>

#include "base/error.h"

namespace lockstep {

class ScratchFolder {
 public:
  static Result<ScratchFolder> Make();
  ~ScratchFolder();
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Of all that lies in it.
  uint64_t bytes() const;
  // Removes what lies in it.
  void Clear() const;

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace lockstep
