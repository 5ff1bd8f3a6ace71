// WriteFailure: why bytes could not be written, as a person needs it: a full disk names the disk,
// what is free on it and what was needed. Said by everything that writes files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

// `error`: an errno. `bytes`: how many were still to be written to `path`; 0: not known. Ends a
// sentence: "no space left on /dev/sda1 (/home): needs 400 bytes more, and 12 are free".
std::string WriteFailure(const std::filesystem::path& path, int error, uint64_t bytes);

}  // namespace lockstep
