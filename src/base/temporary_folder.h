// TemporaryFolder: a private folder, gone with its object, also where the process was killed: its
// name says what and who made it, and the next one made beside it removes those whose maker is
// gone. Nothing of another name is ever removed: the name of a person's own folder has no such
// mark.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "base/error.h"

namespace lockstep {

class TemporaryFolder {
 public:
  // .`stem`.lockstep-PID-XXXXXX in `where`. The error is the system's reason alone.
  static Result<TemporaryFolder> Make(const std::filesystem::path& where, std::string_view stem) {
    return Make(where, stem, nullptr);
  }
  // Likewise, but the first folder of a process that is gone which `wanted` accepts is taken over
  // instead, with what is in it, under a name of this process.
  using Wanted = std::function<bool(const std::filesystem::path&)>;
  static Result<TemporaryFolder> Make(const std::filesystem::path& where, std::string_view stem,
                                      const Wanted& wanted);
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  bool taken_over() const { return taken_over_; }
  // It stays from now on: renamed, perhaps.
  void Keep();

 private:
  TemporaryFolder(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::filesystem::path path_;
  bool taken_over_ = false;
  int lock_ = -1;  // held while the maker lives: process ids come again, and differ by container
};

// Whether a folder of this name is one that Make made, whoever did: nobody's files are in it.
bool IsTemporaryFolder(const std::filesystem::path& path);

// Removes the folders in `where` that were made with this stem, by this user, in processes that are
// gone.
void RemoveOrphans(const std::filesystem::path& where, std::string_view stem);

}  // namespace lockstep
