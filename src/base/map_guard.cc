#include "base/map_guard.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>

namespace lockstep {
namespace {

// A signal handler can reach nothing but what is global, and may take no lock: a fixed table whose
// entries are claimed by their first field.
struct Map {
  std::atomic<uintptr_t> begin = 0;  // 0: free
  std::atomic<uintptr_t> end = 0;    // 0: not yet complete
  std::atomic<const char*> path = nullptr;
};
constexpr int kMaps = 4096;
Map g_maps[kMaps];
std::atomic<int> g_exit_code = 0;
struct sigaction g_before = {};

void Say(const char* text) {
  size_t left = std::strlen(text);
  while (left > 0) {
    const ssize_t n = write(STDERR_FILENO, text, left);
    if (n <= 0) return;
    text += n;
    left -= static_cast<size_t>(n);
  }
}

// As Error's messages, one printable line.
void SayPath(const char* path) {
  for (int i = 0; path[i] != 0 && i < 1000; ++i) {
    const auto c = static_cast<unsigned char>(path[i]);
    const char one[2] = {c < 0x20 || c == 0x7f ? '?' : path[i], 0};
    Say(one);
  }
}

void OnFault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const bool sent = info->si_code <= 0;  // by a program: there is no address
  for (const Map& map : g_maps) {
    const uintptr_t begin = map.begin.load(), end = map.end.load();
    if (sent || begin == 0 || address < begin || address >= end) continue;
    Say("lockstep: ");
    SayPath(map.path.load());
    Say(": its bytes are gone while it is in use: the file was cut short or overwritten, or its "
        "disk failed; put the file back and start again\n");
    _exit(g_exit_code.load());
  }
  // Not ours.
  if ((g_before.sa_flags & SA_SIGINFO) != 0) {
    g_before.sa_sigaction(signal, info, context);
  } else if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) {
    g_before.sa_handler(signal);
  } else {
    ::signal(signal, SIG_DFL);
    if (sent) raise(signal);  // else the load is tried again, and ends the program
  }
}

}  // namespace

void ExitWhenAMappedFileFails(int exit_code) {
  if (g_exit_code.exchange(exit_code) != 0) return;
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &g_before);
}

void RememberMap(const void* begin, size_t size, const char* path) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  for (Map& map : g_maps) {
    uintptr_t free = 0;
    if (!map.begin.compare_exchange_strong(free, address)) continue;
    map.path = path;
    map.end = address + size;
    return;
  }
}

void ForgetMap(const void* begin) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  for (Map& map : g_maps) {
    if (map.begin.load() != address) continue;
    map.end = 0;
    map.path = nullptr;
    map.begin = 0;
    return;
  }
}

}  // namespace lockstep
