// Programs of all kinds as candidates: good ones, and every way of being bad. The programs are sh.
#include "subjects/command_subject.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/mapped_file.h"
#include "subjects/open_subject.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };
constexpr int64_t kVocab = 5;

class CommandTest : public testing::Test {
 protected:
  // Temporary files of the subjects go to a folder of their own, to see that none is left.
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("lockstep-command-{}", getpid());
    fs::create_directories(folder_ / "temporary");
    const char* const before = std::getenv("TMPDIR");
    before_ = before != nullptr ? before : "";
    setenv("TMPDIR", (folder_ / "temporary").c_str(), 1);
    probe_.name = "p";
    probe_.ids = {1, 2, 3};
    probe_.steps = 2;
    good_ = {.name = "p"};
    good_.ids = probe_.ids;
    good_.greedy = {4, 0};
    good_.steps[0] = Row(4);
    good_.steps[1] = Row(0);
  }
  void TearDown() override {
    EXPECT_TRUE(fs::is_empty(folder_ / "temporary"));
    if (before_.empty())
      unsetenv("TMPDIR");
    else
      setenv("TMPDIR", before_.c_str(), 1);
    fs::remove_all(folder_);
  }

  static TraceTensor Row(size_t best, int64_t vocab = kVocab) {
    std::vector<float> row(static_cast<size_t>(vocab), 0.25f);
    row[best] = 3;
    return {{vocab}, std::move(row)};
  }
  std::string Written(const std::string& name, const PromptTrace& run) const {
    const fs::path path = folder_ / (name + ".safetensors");
    EXPECT_TRUE(WriteTrace(path, {.source = name, .metadata = {}, .prompts = {run}}));
    return path.string();
  }
  static Result<PromptTrace> Run(const std::string& command, const Probe& probe,
                                 std::chrono::seconds timeout = std::chrono::seconds(60)) {
    auto subject = CommandSubject::Open({.command = command, .timeout = timeout});
    if (!subject) return tl::unexpected(subject.error());
    return (*subject)->Run(probe, kGoOn);
  }
  // Fails with a sentence that holds `words`.
  void ExpectFailure(const std::string& command, const std::string& words,
                     std::chrono::seconds timeout = std::chrono::seconds(60)) const {
    const auto run = Run(command, probe_, timeout);
    ASSERT_FALSE(run) << command;
    EXPECT_EQ(run.error().code, ErrorCode::kInput) << command;
    EXPECT_NE(run.error().message.find(words), std::string::npos) << command << "\n"
                                                                  << run.error().message;
  }
  // A server that answers the first question with `facts` and each other one by `on_probe`, which
  // finds the path of the trace in $trace.
  static std::string Server(const std::string& facts, const std::string& on_probe) {
    return fmt::format(
        "read line; echo '{}'; while read line; do "
        "trace=$(printf %s \"$line\" | sed 's/.*\"trace\":\"\\([^\"]*\\)\".*/\\1/'); {}; done",
        facts, on_probe);
  }

  fs::path folder_;
  std::string before_;
  Probe probe_;
  PromptTrace good_;
};

constexpr const char* kFacts = R"({"ok": true, "vocab_size": 5, "name": "mine 1.0"})";

TEST_F(CommandTest, AProgramThatRunsOnceIsGivenTheProbeAndItsTraceIsRead) {
  const std::string good = Written("good", good_);
  const fs::path seen = folder_ / "seen.json";
  const auto run =
      Run(fmt::format("cp {{probe}} {} && cp {} {{trace}}", seen.string(), good), probe_);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->greedy, good_.greedy);
  EXPECT_EQ(run->StepLogits(1), good_.StepLogits(1));
  const auto text = ReadTextFile(seen);
  ASSERT_TRUE(text);
  EXPECT_EQ(*ParseJson(*text, "probe"), ProbeFile(probe_));
}

TEST_F(CommandTest, AServerIsStartedOnceAndSaysItsFacts) {
  const std::string good = Written("good", good_);
  const fs::path starts = folder_ / "starts";
  auto subject = CommandSubject::Open(
      {.command =
           fmt::format("echo x >> {}; {}", starts.string(),
                       Server(kFacts, "cp " + good + " \"$trace\"; echo '{\"ok\": true}'"))});
  ASSERT_TRUE(subject) << subject.error().message;
  ASSERT_TRUE((*subject)->Prepare(kGoOn));
  EXPECT_EQ((*subject)->vocab_size(), kVocab);
  EXPECT_NE((*subject)->Name().find("mine 1.0"), std::string::npos);
  for (int i = 0; i < 3; ++i) {
    const auto run = (*subject)->Run(probe_, kGoOn);
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_EQ(run->greedy, good_.greedy);
  }
  EXPECT_EQ(*ReadTextFile(starts), "x\n");
}

TEST_F(CommandTest, OtherWaysAreAskedOnlyOfWhoAnnouncesThem) {
  const std::string good = Written("good", good_);
  const std::string answer = "cp " + good + " \"$trace\"; echo '{\"ok\": true}'";
  auto subject = CommandSubject::Open(
      {.command = Server(R"({"ok": true, "passages": ["parts", "sideways", 3, "whole", "parts"]})",
                         answer)});
  ASSERT_TRUE(subject && (*subject)->Prepare(kGoOn));
  EXPECT_EQ((*subject)->Can().passages, (std::vector<Passage>{Passage::kChunked}));
  auto silent = CommandSubject::Open({.command = Server(kFacts, answer)});
  ASSERT_TRUE(silent && (*silent)->Prepare(kGoOn));
  EXPECT_TRUE((*silent)->Can().passages.empty());
  // What was not asked is said, and why.
  EXPECT_NE((*subject)->Notes().back().find("announce them: rewound, interleaved, padded_batch"),
            std::string::npos)
      << (*subject)->Notes().back();
  EXPECT_NE((*silent)->Notes().back().find("announce them: parts, rewound"), std::string::npos);
  auto once = CommandSubject::Open({.command = "true {probe} {trace}"});
  ASSERT_TRUE(once);
  EXPECT_NE((*once)->Notes().back().find("keeps no cache between calls"), std::string::npos);
  // Of a plain probe nothing is said, so that a reader of the first version sees what it knows.
  EXPECT_FALSE(ProbeFile(probe_)["prompts"][0].contains("passage"));
  probe_.passage = Passage::kChunked;
  probe_.parts = {1, 2};
  EXPECT_EQ(ProbeFile(probe_)["prompts"][0]["passage"], "parts");
  EXPECT_EQ(ProbeFile(probe_)["prompts"][0]["parts"], Json::array({1, 2}));
}

TEST_F(CommandTest, AServerWithoutFactsOrThatFailsOnOnePromptGoesOn) {
  const std::string good = Written("good", good_);
  auto subject = CommandSubject::Open(
      {.command =
           Server(R"({"error": "what?"})",
                  "if [ -e " + (folder_ / "again").string() + " ]; then cp " + good +
                      " \"$trace\"; echo '{\"ok\": true}'; else touch " +
                      (folder_ / "again").string() + "; echo '{\"error\": \"no memory\"}'; fi")});
  ASSERT_TRUE(subject);
  const auto first = (*subject)->Run(probe_, kGoOn);
  ASSERT_FALSE(first);
  EXPECT_NE(first.error().message.find("no memory"), std::string::npos) << first.error().message;
  const auto second = (*subject)->Run(probe_, kGoOn);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ((*subject)->vocab_size(), kVocab);
}

TEST_F(CommandTest, WhatAProgramSaysItCannotDoIsNoFailureOfItsRun) {
  for (const bool unsupported : {false, true}) {
    auto subject = CommandSubject::Open(
        {.command =
             Server(kFacts, unsupported ? R"(echo '{"error": "no rewind", "unsupported": true}')"
                                        : R"(echo '{"error": "no rewind"}')")});
    ASSERT_TRUE(subject);
    const auto run = (*subject)->Run(probe_, kGoOn);
    ASSERT_FALSE(run);
    EXPECT_EQ(run.error().code, unsupported ? ErrorCode::kUnsupported : ErrorCode::kInput);
    EXPECT_NE(run.error().message.find("no rewind"), std::string::npos) << run.error().message;
  }
}

TEST_F(CommandTest, EndingBadlyIsToldWithItsLastWords) {
  ExpectFailure("echo one >&2; echo two >&2; exit 3 # {probe} {trace}",
                "exited with code 3; it said: one / two");
  ExpectFailure("kill -SEGV $$ # {probe} {trace}", "killed by signal 11");
  ExpectFailure("no-such-program-at-all {probe} {trace}", "exited with code 127");
  ExpectFailure("no-such-program-at-all", "exited with code 127");
  ExpectFailure("exit 0", "exited with code 0; it said nothing");
  ExpectFailure("printf '\\033[31mred\\n' >&2; exit 1 # {probe} {trace}", "\\x1b[31mred");
}

TEST_F(CommandTest, ItIsKilledWithAllThatItStartedWhenItHangs) {
  const fs::path file = folder_ / "pid";
  for (const char* marks : {" # {probe} {trace}", ""}) {
    ExpectFailure(
        fmt::format("sleep 1000 & echo $! > {}; echo still here >&2; wait{}", file.string(), marks),
        "did not answer in time", std::chrono::seconds(1));
    const auto pid = ReadTextFile(file);
    ASSERT_TRUE(pid);
    // Gone, or dead and not yet taken by whoever inherits it.
    const auto alive = [&] {
      const auto stat = ReadTextFile(fmt::format("/proc/{}/stat", std::stoi(*pid)));
      return stat && stat->find(") Z") == std::string::npos && !stat->empty();
    };
    for (int i = 0; i < 1000 && alive(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(alive());
  }
}

TEST_F(CommandTest, WhatItLeavesRunningDoesNotKeepUsWaiting) {
  const std::string good = Written("good", good_);
  // The child of the child holds the pipes.
  const auto run = Run("setsid sleep 2 & cp " + good + " {trace} # {probe}", probe_);
  EXPECT_TRUE(run) << run.error().message;
}

TEST_F(CommandTest, StoppingTheUserStopsIt) {
  auto subject = CommandSubject::Open({.command = "sleep 1000 # {probe} {trace}"});
  ASSERT_TRUE(subject);
  int asked = 0;
  const auto run =
      (*subject)->Run(probe_, [&](std::string_view, int64_t, int64_t) { return ++asked < 3; });
  ASSERT_FALSE(run);
  EXPECT_TRUE(IsInterrupted(run.error()));
}

TEST_F(CommandTest, GarbageWhereAnAnswerBelongsIsToldAndTheServerNotAskedAgain) {
  ExpectFailure("echo Loading model...; sleep 1000", "\"Loading model...\"");
  ExpectFailure("echo '[1]'; sleep 1000", "line of JSON");
  ExpectFailure("yes | tr -d '\\n'", "without an end of line");
  ExpectFailure(Server(kFacts, "echo '{\"ok\": 1}'"), "neither");
  ExpectFailure(Server(kFacts, "echo '{\"ok\": true}'"), "wrote no trace");
  ExpectFailure(Server(R"({"vocab_size": -4})", "true"), "vocab_size is -4");
  auto subject = CommandSubject::Open({.command = "echo no; sleep 1000"});
  ASSERT_TRUE(subject);
  const auto first = (*subject)->Run(probe_, kGoOn), second = (*subject)->Run(probe_, kGoOn);
  ASSERT_TRUE(!first && !second);
  EXPECT_EQ(first.error().message, second.error().message);
}

TEST_F(CommandTest, TracesThatDoNotAnswerTheProbeAreToldApart) {
  const auto expect = [&](const PromptTrace& run, const std::string& words) {
    ExpectFailure("cp " + Written("bad", run) + " {trace} # {probe}", words);
  };
  PromptTrace other = good_;
  other.ids = {1, 2, 4};
  expect(other, "other ids");
  PromptTrace few = good_;
  few.greedy = {4};
  few.steps.erase(1);
  expect(few, "1 greedy tokens, and 2 were asked for");
  ExpectFailure("echo garbage > {trace} # {probe}", "its trace.safetensors");
  ExpectFailure("true {probe} {trace}", "wrote no trace");
  ExpectFailure("mkdir {trace} # {probe}", "wrote no trace");
  ExpectFailure("mkfifo {trace} # {probe}", "wrote no trace");
  ExpectFailure("ln -s /dev/zero {trace} # {probe}", "wrote no trace");
  ExpectFailure("truncate -s 1T {trace} # {probe}", "bytes, which no trace of this probe needs");
  ExpectFailure("truncate -s 1T {trace}; sleep 1000 # {probe}", "bytes, which no trace");
  const auto two =
      Run(Server(R"({"ok": true, "vocab_size": 6})",
                 "cp " + Written("good", good_) + " \"$trace\"; echo '{\"ok\": true}'"),
          probe_);
  ASSERT_FALSE(two);
  EXPECT_NE(two.error().message.find("logits for 5 tokens, and 6"), std::string::npos);
}

TEST_F(CommandTest, AFailingProgramIsAVerdictOfVerify) {
  PromptTrace wrong = good_, wide = good_;
  std::get<std::vector<float>>(wrong.steps[1].values)[2] = std::nanf("");
  for (int k = 0; k < 2; ++k) wide.steps[k] = Row(k == 0 ? 4 : 0, kVocab + 1);
  PromptTrace off = good_;
  std::get<std::vector<float>>(off.steps[1].values)[2] += 0.5f;
  struct Case {
    std::string command;
    Verdict verdict;
  };
  const std::string good = Written("good", good_);
  for (const Case& c :
       {Case{"cp " + good + " {trace} # {probe}", Verdict::kMatch},
        {"cp " + Written("off", off) + " {trace} # {probe}", Verdict::kDiffers},
        {"cp " + Written("wide", wide) + " {trace} # {probe}", Verdict::kDiffers},
        {"cp " + Written("wrong", wrong) + " {trace} # {probe}", Verdict::kSubjectFailed},
        {"exit 1 # {probe} {trace}", Verdict::kSubjectFailed},
        {"exit 1", Verdict::kSubjectFailed},
        {Server(R"({"ok": true, "vocab_size": 7})", "true"), Verdict::kDiffers}}) {
    ThreadPool pool(1);
    const auto reference = OpenSubject(good, pool);
    const auto candidate = OpenSubject("cmd:" + c.command, pool);
    ASSERT_TRUE(reference && candidate);
    const auto v = Verify(**reference, **candidate, {}, kGoOn);
    ASSERT_TRUE(v) << v.error().message;
    EXPECT_EQ(v->verdict, c.verdict) << c.command << ": " << v->sentence;
  }
}

TEST_F(CommandTest, ACommandLineWithOneMarkOrNoneAtAllIsRefused) {
  for (const char* command : {"run {probe}", "run {trace}", "", "  "})
    EXPECT_EQ(CommandSubject::Open({.command = command}).error().code, ErrorCode::kUsage);
}

TEST(ShellQuoted, IsWhatShReadsBack) {
  EXPECT_EQ(ShellQuoted("/tmp/a-b_c.json"), "/tmp/a-b_c.json");
  EXPECT_EQ(ShellQuoted("a b"), "'a b'");
  EXPECT_EQ(ShellQuoted("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(ShellQuoted(""), "''");
}

std::string Block(const std::string& page, const std::string& kind) {
  const auto text = ReadTextFile(fs::path(LOCKSTEP_SOURCE_DIR) / "docs/formats" / page);
  EXPECT_TRUE(text) << text.error().message;
  const std::string opening = "```" + kind + "\n";
  const size_t begin = text->find(opening);
  EXPECT_NE(begin, std::string::npos) << page;
  const size_t from = begin + opening.size();
  return text->substr(from, text->find("```", from) - from);
}

TEST_F(CommandTest, TheProbeOfTheDocsIsAnsweredByTheTraceOfTheDocs) {
  const auto page = ParseJson(Block("probe.md", "json"), "probe.md");
  ASSERT_TRUE(page) << page.error().message;
  Probe probe{.name = "tiny", .text = "c a"};
  probe.ids = {2, 0};
  probe.steps = 1;
  EXPECT_EQ(ProbeFile(probe), *page);
  std::string bytes;
  std::istringstream lines(Block("trace.md", "hex"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('|')));
    std::string word;
    words >> word;  // the offset
    while (words >> word) bytes += static_cast<char>(std::stoi(word, nullptr, 16));
  }
  std::ofstream(folder_ / "docs.safetensors", std::ios::binary) << bytes;
  std::ofstream(folder_ / "docs.json") << Block("trace.md", "json");
  const auto run = Run(fmt::format("t={{trace}}; cp {0}.safetensors \"$t\"; cp {0}.json "
                                   "\"${{t%.safetensors}}.json\" # {{probe}}",
                                   (folder_ / "docs").string()),
                       probe);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->greedy, std::vector<int32_t>{1});
  EXPECT_EQ(run->StepLogits(0), (std::vector<double>{-0.5, 2, 0.25}));
}

// A stand-in for the library: made-up logits, the sine of a sum of ids.
TEST_F(CommandTest, TheAdapterOfLlamaCppAnswers) {
  if (std::system("\"${LOCKSTEP_PYTHON:-python3}\" -c 'import numpy' 2>/dev/null") != 0)
    GTEST_SKIP() << "no numpy";
  const std::string source = LOCKSTEP_SOURCE_DIR;
  const auto open = [&](const std::string& arguments) {
    return CommandSubject::Open(
        {.command = fmt::format("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='{}/tests/subjects' "
                                "\"${{LOCKSTEP_PYTHON:-python3}}\" "
                                "'{}/tools/subjects/llama_cpp_subject.py' {}",
                                source, source, arguments)});
  };
  const auto subject = open("model.gguf f16");
  ASSERT_TRUE(subject) << subject.error().message;
  ASSERT_TRUE((*subject)->Prepare(kGoOn));
  EXPECT_EQ((*subject)->vocab_size(), 11);
  EXPECT_NE((*subject)->Name().find("f16 cache"), std::string::npos);
  Probe probe{.name = "p", .ids = {1, 2, 3}, .steps = 4, .all_positions = true};
  const auto run = (*subject)->Run(probe, kGoOn);
  ASSERT_TRUE(run) << run.error().message;
  int64_t sum = 6;
  for (int64_t k = 0; k < 4; ++k) {
    const std::vector<double> row = run->StepLogits(k);
    ASSERT_EQ(row.size(), 11u);
    for (size_t i = 0; i < row.size(); ++i)
      EXPECT_NEAR(row[i], std::sin(1.7 * static_cast<double>(sum) + static_cast<double>(i)), 1e-6);
    sum += run->greedy[static_cast<size_t>(k)];
  }
  ASSERT_TRUE(run->logits);
  EXPECT_EQ(run->logits->num_rows(), 3);
  const auto wrong = open("model.gguf bf16");
  EXPECT_FALSE(wrong && (*wrong)->Prepare(kGoOn));
}

}  // namespace
}  // namespace lockstep
