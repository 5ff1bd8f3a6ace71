// ScratchFolder: a private folder among the system's temporary files, gone with its object.
#pragma once

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/temporary_folder.h"

namespace lockstep {

class ScratchFolder {
 public:
  static Result<ScratchFolder> Make();
  const std::filesystem::path& path() const { return folder_.path(); }
  // Of all that lies in it.
  uint64_t bytes() const;
  // Removes what lies in it.
  void Clear() const;

 private:
  explicit ScratchFolder(TemporaryFolder folder) : folder_(std::move(folder)) {}
  TemporaryFolder folder_;
};

}  // namespace lockstep
