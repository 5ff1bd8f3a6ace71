#include "cli/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/utf8.h"
#include "verify/subject.h"

namespace lockstep {
namespace {

// The one thing a signal handler may touch.
volatile std::sig_atomic_t interrupts = 0;

void OnInterrupt(int) {
  if (interrupts != 0) _exit(kExitInterrupted);
  interrupts = 1;
}

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      // Nobody reads any more (SIGPIPE would have ended us), or the disk is full: there is no one
      // to give the rest of the answer to.
      if (fd != STDOUT_FILENO) return;
      WriteAll(STDERR_FILENO,
               fmt::format("lockstep: cannot write to stdout: {}\n", std::strerror(errno)));
      _exit(kExitUnusable);
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
}

size_t TerminalWidth() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }
bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

void OpenStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      // The lowest free number is `fd`. Reading alone, so that writing to stdout is an error.
      static_cast<void>(open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY));
}

Result<std::string> ReadStdin() {
  std::string text;
  char buffer[1 << 16];
  constexpr size_t kLimit = size_t{1} << 30;
  for (;;) {
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR && !WasInterrupted()) continue;
    if (n < 0 && WasInterrupted()) return tl::unexpected(Interrupted());
    if (n < 0) return InputError("stdin: {}", std::strerror(errno));
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kLimit) return UsageError("stdin: more than {} bytes of text", kLimit);
  }
}

void Print(std::string_view text) { WriteAll(STDOUT_FILENO, text); }
void PrintJson(const Json& json) {
  Print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}
void PrintJsonLine(const Json& json) {
  Print(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}
void PrintNotes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) PrintError(fmt::format("note: {}\n", note));
}
void PrintError(std::string_view text) { WriteAll(STDERR_FILENO, text); }

Json ErrorToJson(const Error& error) {
  return {{"error", {{"message", error.message}, {"exit_code", ExitCodeOf(error)}}}};
}

int Report(const Error& error, bool json) {
  if (IsInterrupted(error)) {
    PrintError("interrupted\n");
    return kExitInterrupted;
  }
  const int code = ExitCodeOf(error);
  PrintError(fmt::format("lockstep: {}\n", error.message));
  if (json) PrintJson(ErrorToJson(error));
  return code;
}

void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // a read that waits for the user ends with EINTR
  sigaction(SIGINT, &action, nullptr);
}

bool WasInterrupted() { return interrupts != 0; }
void ForgetInterrupt() { interrupts = 0; }

ProgressLine::ProgressLine(std::chrono::milliseconds delay)
    : start_(std::chrono::steady_clock::now()), delay_(delay) {}

void ProgressLine::Show(std::string_view doing, int64_t done, int64_t total) {
  if (!StderrIsTerminal()) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - start_ < delay_ || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  std::string line(doing);
  if (total > 0) line += fmt::format(" {}%", 100 * done / total);
  const size_t width = TerminalWidth() - 1;
  if (line.size() > width && width > 3) {
    size_t cut = width - 3;
    while (cut > 0 && (static_cast<unsigned char>(line[cut]) & 0xC0) == 0x80) --cut;
    line = line.substr(0, cut) + "...";
  }
  PrintError("\r\x1b[K" + line);
  shown_ = true;
}

void ProgressLine::Clear() {
  if (shown_) PrintError("\r\x1b[K");
  shown_ = false;
}

}  // namespace lockstep
