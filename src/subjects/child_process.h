// ChildProcess: a command line that runs beside us and is never waited for longer than somebody is
// willing to: what CommandSubject talks to. Run by /bin/sh -c in a process group of its own; the
// whole group is killed when it ends, is given up, when this object goes, or when this process ends
// by whatever signal: a guard, a process of its own, waits for that.
//
// Whatever the child does (dies, hangs, floods its pipes, closes them) is a Result with a sentence.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lockstep {

class ChildProcess {
 public:
  // What ends a wait early.
  struct Patience {
    std::chrono::steady_clock::time_point deadline;
    std::function<bool()> go_on;    // false: the user stopped it
    std::function<Status()> check;  // an error ends it; asked some twenty times a second
  };

  static Result<std::unique_ptr<ChildProcess>> Start(const std::string& command);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Sends a line (without its end) and returns the next line that the child prints.
  Result<std::string> Ask(std::string_view line, const Patience& patience);
  // Waits until the child ends; anything but exit code 0 is an error. What it prints on stdout is
  // no answer then, and counts as said.
  Status Finish(const Patience& patience);

 private:
  ChildProcess(pid_t pid, pid_t guard, int alive, int to, int from, int error);

  enum class Waiting { kLine, kEnd };
  Status Wait(Waiting waiting, const Patience& patience);
  void Exchange(Waiting waiting, int milliseconds);
  void Take(int& fd, std::string& into, size_t keep);
  void SendPending();
  bool Ended();
  void Kill();
  void Dismiss();
  // "exited with code 3; it said: ...", or what the text says and the same last words.
  std::string HowItEnded() const;
  std::string LastWords() const;

  pid_t pid_;
  pid_t guard_;  // kills the group once nobody holds `alive_`, a pipe's end; -1: gone
  int alive_;
  int to_, from_, error_;  // pipes; -1 once closed
  int status_ = 0;         // of waitpid, once ended_
  bool ended_ = false;
  bool flooded_ = false;  // a line longer than any answer
  std::string pending_, answer_, said_;
};

}  // namespace lockstep
