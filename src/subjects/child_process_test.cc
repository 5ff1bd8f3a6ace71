#include "subjects/child_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "base/testing.h"

namespace lockstep {
namespace {

// Gone, or dead and not yet taken note of by whoever adopted it.
bool IsDead(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string number, name, state;
  return !(in >> number >> name >> state) || state == "Z" || state == "X";
}

bool Within30Seconds(const std::function<bool()>& happens) {
  for (int i = 0; i < 3000; ++i) {
    if (happens()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// A program that started others, under a process that a signal ends without a word.
TEST(ChildProcess, ItsWholeGroupDiesWithUsByAnySignal) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGKILL}) {
    SCOPED_TRACE(signal);
    const TestFolder folder;
    const std::string file = (folder / "pids").string();
    const pid_t us = fork();
    if (us == 0) {
      std::signal(SIGINT, SIG_DFL);
      const auto child = ChildProcess::Start(
          fmt::format("sleep 600 & echo $! $$ >{0}.new; mv {0}.new {0}; sleep 601; true", file));
      for (;;) pause();
    }
    ASSERT_GT(us, 0);
    ASSERT_TRUE(Within30Seconds([&] { return std::filesystem::exists(file); }));
    pid_t grandchild = 0, child = 0;
    std::ifstream(file) >> grandchild >> child;
    ASSERT_GT(grandchild, 0);
    ASSERT_FALSE(IsDead(grandchild));
    kill(us, signal);
    waitpid(us, nullptr, 0);
    EXPECT_TRUE(Within30Seconds([&] { return IsDead(grandchild) && IsDead(child); }));
    for (const pid_t left : {grandchild, child})
      if (!IsDead(left)) kill(left, SIGKILL);
  }
}

}  // namespace
}  // namespace lockstep
