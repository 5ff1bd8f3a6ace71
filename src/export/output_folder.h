// OutputFolder: a folder that appears complete or not at all. Everything is written into a hidden
// folder beside it, which takes its name at the end; on any failure the hidden one is removed.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/temporary_folder.h"

namespace lockstep {

class OutputFolder {
 public:
  // `out` must not exist, unless `force`: then it may be an earlier export or an empty folder,
  // which stays in its place until the new one is complete. What a killed export to the same name
  // left behind is removed. Never `source`, what holds it, or what lies in it.
  struct Options {
    bool force = false;
    std::filesystem::path source;
  };
  static Result<OutputFolder> Create(const std::filesystem::path& out, const Options& options);
  const std::filesystem::path& path() const { return temporary_.path(); }  // where to write
  // A sentence when the disk has no room for so many bytes.
  Status CheckRoom(uint64_t bytes) const;
  // Gives the folder its name; `out` never holds anything but the old folder or the new one.
  Status PutInPlace();

 private:
  OutputFolder(std::filesystem::path out, TemporaryFolder temporary, bool replaces)
      : out_(std::move(out)), temporary_(std::move(temporary)), replaces_(replaces) {}
  std::filesystem::path out_;
  TemporaryFolder temporary_;  // removed, unless it was put in place
  bool replaces_ = false;
};

}  // namespace lockstep
