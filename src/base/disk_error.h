// Why bytes cannot be written, as a person needs it: a full disk names the disk, what is free on it
// and what was needed. Said by everything that writes files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"

namespace lockstep {

// `error`: an errno. `bytes`: how many were still to be written to `path`; 0: not known. Ends a
// sentence: "no space left on /dev/sda1 (/home): needs 400 bytes more, and 12 are free".
std::string WriteFailure(const std::filesystem::path& path, int error, uint64_t bytes);

// A sentence about `out` where the disk that `folder` lies on certainly has no room for so many
// bytes.
Status CheckRoom(const std::filesystem::path& folder, uint64_t bytes,
                 const std::filesystem::path& out);

}  // namespace lockstep
