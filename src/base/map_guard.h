// MapGuard: what happens when a mapped file is cut short, or its disk goes away, while the program
// reads it. The system then sends SIGBUS in the middle of a load; nothing can be returned from
// there. The handler writes one sentence that names the file and ends the program.
#pragma once

#include <cstddef>

namespace lockstep {

// From now on a fault inside a MappedFile ends the program with this exit code; any other is left
// to whoever handled it before. Call it once, from main.
void ExitWhenAMappedFileFails(int exit_code);

// Of MappedFile: which file lies at [begin, begin + size). `path` must stay until Forget. Beyond
// some thousand maps at once a file goes unnamed.
void RememberMap(const void* begin, size_t size, const char* path);
void ForgetMap(const void* begin);

}  // namespace lockstep
