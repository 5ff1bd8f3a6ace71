#include "subjects/scratch_folder.h"

namespace lockstep {

namespace fs = std::filesystem;

Result<ScratchFolder> ScratchFolder::Make() {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  if (error)
    return InputError("no folder for temporary files ({}); set TMPDIR to one", error.message());
  auto folder = TemporaryFolder::Make(base, "lockstep");
  if (!folder)
    return InputError(
        "{}: no folder for temporary files can be made: {}; set TMPDIR to a place "
        "that can be written to",
        base.string(), folder.error().message);
  return ScratchFolder(*std::move(folder));
}

uint64_t ScratchFolder::bytes() const {
  uint64_t total = 0;
  std::error_code error;
  // Files come and go meanwhile; what cannot be asked counts as nothing.
  for (fs::recursive_directory_iterator it(path(), error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->symlink_status(ignored).type() != fs::file_type::regular) continue;
    const uint64_t size = it->file_size(ignored);
    if (!ignored) total += size;
  }
  return total;
}

void ScratchFolder::Clear() const {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path(), ignored))
    fs::remove_all(entry.path(), ignored);
}

}  // namespace lockstep
