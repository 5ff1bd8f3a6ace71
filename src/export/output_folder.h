// OutputFolder: a folder that appears complete or not at all. Everything is written into a hidden
// folder beside it, which takes its name at the end; on any failure the hidden one is removed. What
// a killed export left of it, the next export of the same model with the same options goes on from:
// whole files, and a file of data up to its last mark (OnnxGraph::Write).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/temporary_folder.h"
#include "model/model.h"

namespace lockstep {

class OutputFolder {
 public:
  // `out` must not exist, unless `force`: then it may be an earlier export or an empty folder,
  // which stays in its place until the new one is complete. What a killed export to the same name
  // left behind is removed, unless it has the same `resume_key`. Never `source`, what holds it, or
  // what lies in it.
  struct Options {
    bool force = false;
    std::filesystem::path source;
    std::string resume_key;  // ResumeKey; empty: nothing is gone on from
  };
  static Result<OutputFolder> Create(const std::filesystem::path& out, const Options& options);
  const std::filesystem::path& path() const { return temporary_.path(); }  // where to write
  // What a killed export had finished: a sentence; empty: nothing.
  std::string Resumed() const;
  // From here on what is written is not gone on from: the files that say how go away.
  void EndResuming() const;
  // A sentence when the disk has no room for so many bytes.
  Status CheckRoom(uint64_t bytes) const;
  // Gives the folder its name; `out` never holds anything but the old folder or the new one.
  Status PutInPlace();

 private:
  OutputFolder(std::filesystem::path out, TemporaryFolder temporary, bool replaces)
      : out_(std::move(out)), temporary_(std::move(temporary)), replaces_(replaces) {}
  // Of a folder that was taken over: removes the rest.
  Status KeepFinished();
  std::filesystem::path out_;
  TemporaryFolder temporary_;  // removed, unless it was put in place
  bool replaces_ = false;
  std::vector<std::string> kept_;  // files of a killed export
  uint64_t kept_bytes_ = 0;
};

// In a hidden folder only: that it may be gone on from, and how far its data are.
inline constexpr const char* kResumeName = ".resume.json";
inline constexpr const char* kResumeDataName = ".resume.data";

// What must be the same for an export to go on from another's files: the model's files with their
// sizes and times, its configuration, and `how` it is exported.
std::string ResumeKey(const Model& model, const Json& how);

}  // namespace lockstep
