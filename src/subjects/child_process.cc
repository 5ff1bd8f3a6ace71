#include "subjects/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "base/quoted.h"
#include "verify/subject.h"

namespace lockstep {
namespace {

constexpr size_t kLongestLine = 1 << 20;
constexpr size_t kKeptWords = 4096;  // of what it said, the last
constexpr int kBeat = 50;            // milliseconds between two looks at the clock

struct Pipe {
  int read = -1, write = -1;
  bool Open() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
};

void Close(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

// Between fork and exec: only what is safe there (no memory is taken, no lock).
[[noreturn]] void Become(const char* command, int in, int out, int error) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // when we end without a word
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  close_range(3, ~0U, 0);
  // What we ignore would stay ignored.
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGINT}) std::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
  _exit(127);
}

// Outlives us, however we end, for as long as it takes to kill the group: the end of what it reads
// is our end. Between fork and exit: only what is safe there.
[[noreturn]] void Guard(pid_t group, int alive) {
  setpgid(0, 0);  // Ctrl-C is for us, and not for it
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  dup2(alive, STDIN_FILENO);
  close_range(1, ~0U, 0);  // whoever reads what we print waits for no one else
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
  }
  kill(-group, SIGKILL);
  _exit(0);
}

// SIGPIPE of a write to a child that went away is ours to see as EPIPE: blocked in this thread
// meanwhile, and taken off before it is let through again.
class PipeSignalBlocked {
 public:
  PipeSignalBlocked() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t waiting;
    sigpending(&waiting);
    was_waiting_ = sigismember(&waiting, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeSignalBlocked() {
    if (!was_waiting_) {
      const timespec now{};
      while (sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  PipeSignalBlocked(const PipeSignalBlocked&) = delete;
  PipeSignalBlocked& operator=(const PipeSignalBlocked&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_waiting_ = false;
};

}  // namespace

ChildProcess::ChildProcess(pid_t pid, pid_t guard, int alive, int to, int from, int error)
    : pid_(pid), guard_(guard), alive_(alive), to_(to), from_(from), error_(error) {
  for (const int fd : {to_, from_, error_}) fcntl(fd, F_SETFL, O_NONBLOCK);
}

Result<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::string& command) {
  Pipe in, out, error, alive;
  const bool open = in.Open() && out.Open() && error.Open() && alive.Open();
  const pid_t pid = open ? fork() : -1;
  if (pid == 0) Become(command.c_str(), in.read, out.write, error.write);
  const int failure = errno;
  const pid_t guard = pid > 0 ? fork() : -1;
  if (guard == 0) Guard(pid, alive.read);
  Close(alive.read);
  Close(in.read);
  Close(out.write);
  Close(error.write);
  if (pid < 0) {
    Close(alive.write);
    Close(in.write);
    Close(out.read);
    Close(error.read);
    return InputError("could not be started: {}", std::strerror(failure));
  }
  setpgid(pid, pid);  // whoever of the two comes first
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(pid, guard, alive.write, in.write, out.read, error.read));
}

ChildProcess::~ChildProcess() {
  // A server reads the end of its input and may go by itself.
  Close(to_);
  for (int i = 0; i < 10 && !Ended(); ++i) Exchange(Waiting::kEnd, kBeat);
  Kill();
  for (int* const fd : {&from_, &error_}) Close(*fd);
}

void ChildProcess::Kill() {
  if (ended_) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  Dismiss();
  while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  ended_ = true;
}

// Before the child's number is free for others, whose group it would kill.
void ChildProcess::Dismiss() {
  if (guard_ > 0) {
    kill(guard_, SIGKILL);
    while (waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  guard_ = -1;
  Close(alive_);
}

bool ChildProcess::Ended() {
  if (ended_) return true;
  siginfo_t info{};
  // Looked at first and taken afterwards: until then nobody else can have its number, or its
  // group's, and what it left running is killed.
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_)
    return false;
  kill(-pid_, SIGKILL);
  Dismiss();
  while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  ended_ = true;
  return true;
}

void ChildProcess::Take(int& fd, std::string& into, size_t keep) {
  std::array<char, 1 << 16> buffer;
  const ssize_t n = read(fd, buffer.data(), buffer.size());
  if (n > 0) {
    into.append(buffer.data(), static_cast<size_t>(n));
    if (into.size() > 2 * keep) into.erase(0, into.size() - keep);
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    Close(fd);
  }
}

void ChildProcess::SendPending() {
  const PipeSignalBlocked blocked;
  const ssize_t n = write(to_, pending_.data(), pending_.size());
  if (n > 0)
    pending_.erase(0, static_cast<size_t>(n));
  else if (n < 0 && errno != EAGAIN && errno != EINTR)
    Close(to_);
}

void ChildProcess::Exchange(Waiting waiting, int milliseconds) {
  // Closed ones are -1, and poll passes over them.
  const bool sends = to_ >= 0 && !pending_.empty();
  std::array<pollfd, 3> fds = {pollfd{from_, POLLIN, 0}, pollfd{error_, POLLIN, 0},
                               pollfd{sends ? to_ : -1, POLLOUT, 0}};
  if (poll(fds.data(), fds.size(), milliseconds) <= 0) return;
  if (fds[0].revents != 0) {
    if (waiting == Waiting::kEnd) {
      Take(from_, said_, kKeptWords);
    } else {
      Take(from_, answer_, kLongestLine);
      flooded_ |= answer_.size() > kLongestLine && answer_.find('\n') == std::string::npos;
    }
  }
  if (fds[1].revents != 0) Take(error_, said_, kKeptWords);
  if (fds[2].revents != 0) SendPending();
}

std::string ChildProcess::LastWords() const {
  std::vector<std::string> lines;  // the last three that are not empty, the last one first
  for (size_t end = said_.size(); end > 0 && lines.size() < 3;) {
    const size_t newline = said_.rfind('\n', end - 1);
    const size_t begin = newline == std::string::npos ? 0 : newline + 1;
    const std::string_view line = std::string_view(said_).substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      lines.push_back(OneLine(line, 200));
    end = newline == std::string::npos ? 0 : newline;
  }
  if (lines.empty()) return "; it said nothing";
  return fmt::format("; it said: {}", fmt::join(lines.rbegin(), lines.rend(), " / "));
}

std::string ChildProcess::HowItEnded() const {
  if (WIFSIGNALED(status_))
    return fmt::format("was killed by signal {} ({}){}", WTERMSIG(status_),
                       strsignal(WTERMSIG(status_)), LastWords());
  const int code = WEXITSTATUS(status_);
  // sh says so of what it ran.
  const int signal = code - 128;
  if (signal > 0 && signal < NSIG && signal < 32)
    return fmt::format("exited with code {} (of signal {}, {}){}", code, signal, strsignal(signal),
                       LastWords());
  return fmt::format("exited with code {}{}", code, LastWords());
}

Status ChildProcess::Wait(Waiting waiting, const Patience& patience) {
  for (;;) {
    if (waiting == Waiting::kLine && answer_.find('\n') != std::string::npos) return {};
    if (flooded_)
      return InputError(
          "printed more than {} bytes without an end of line, expected a line of "
          "JSON{}",
          kLongestLine, LastWords());
    if (Ended()) {
      // What it wrote before it ended may still lie in the pipes. What it left running and could
      // escape the kill may hold them open: nothing more is waited for.
      for (int i = 0; i < 64 && (from_ >= 0 || error_ >= 0); ++i) {
        const size_t before = said_.size() + answer_.size();
        Exchange(waiting, 0);
        if (said_.size() + answer_.size() == before) break;
      }
      if (waiting == Waiting::kLine && answer_.find('\n') != std::string::npos) return {};
      if (waiting == Waiting::kLine || !WIFEXITED(status_) || WEXITSTATUS(status_) != 0)
        return InputError("{}", HowItEnded());
      return {};
    }
    if (patience.go_on && !patience.go_on()) {
      Kill();
      return tl::unexpected(Interrupted());
    }
    if (patience.check) {
      if (Status checked = patience.check(); !checked) {
        Kill();
        return checked;
      }
    }
    if (std::chrono::steady_clock::now() >= patience.deadline) {
      Kill();
      return InputError("did not answer in time (--timeout) and was stopped{}", LastWords());
    }
    Exchange(waiting, kBeat);
  }
}

Result<std::string> ChildProcess::Ask(std::string_view line, const Patience& patience) {
  answer_.clear();
  pending_.assign(line);
  pending_ += '\n';
  LS_RETURN_IF_ERROR(Wait(Waiting::kLine, patience));
  return answer_.substr(0, answer_.find('\n'));
}

Status ChildProcess::Finish(const Patience& patience) {
  pending_.clear();
  Close(to_);
  return Wait(Waiting::kEnd, patience);
}

}  // namespace lockstep
