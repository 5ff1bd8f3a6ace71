// CommandSubject: any program that reads a probe file and writes a trace, as docs/formats/probe.md
// has it. The command line says which way: with {probe} and {trace} in it the program is run once
// for each probe; without them it is started once and asked line by line over its stdin.
//
// Files lie in a private folder that goes with the subject. What comes back is not trusted: it is
// copied, bounded and checked before it is read, and every failure is a sentence.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "subjects/child_process.h"
#include "subjects/scratch_folder.h"
#include "verify/subject.h"

namespace lockstep {

struct CommandLine {
  std::string command;                // for /bin/sh -c
  std::string name;                   // for people; empty: the command
  std::chrono::seconds timeout{600};  // for each answer
};

class CommandSubject : public Subject {
 public:
  static Result<std::unique_ptr<CommandSubject>> Open(CommandLine line);

  // Starts a server and asks for its facts. A program that runs once has nothing to prepare.
  Status Prepare(const Progress& progress) override;
  std::string Name() const override;
  Abilities Can() const override {
    return {.any_prompt = true, .all_positions = true, .hidden = true, .passages = passages_};
  }
  int64_t vocab_size() const override { return vocab_size_; }
  std::vector<std::string> Notes() const override;
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override;

 private:
  explicit CommandSubject(CommandLine line, bool once) : line_(std::move(line)), once_(once) {}

  Status Start(const Progress& progress);
  ChildProcess::Patience Until(const Progress& progress, std::string_view doing,
                               uint64_t most_bytes) const;
  Result<Json> AskServer(const Json& question, const ChildProcess::Patience& patience);
  Status RunOnce(const ChildProcess::Patience& patience);
  Status AskForTrace(const ChildProcess::Patience& patience);
  Result<PromptTrace> TakeTrace(const Probe& probe, uint64_t most_bytes);
  Status Check(const Probe& probe, PromptTrace& run);
  uint64_t MostBytes(const Probe& probe) const;

  CommandLine line_;
  bool once_;
  std::optional<ScratchFolder> scratch_;
  std::unique_ptr<ChildProcess> server_;
  std::optional<Error> broken_;  // a server that failed is not asked again
  std::string said_name_;        // by the server
  std::vector<Passage> passages_;
  int64_t vocab_size_ = 0;
};

// The probe file of docs/formats/probe.md.
Json ProbeFile(const Probe& probe);

// As sh reads it: in single quotes where anything in it has a meaning.
std::string ShellQuoted(std::string_view text);

}  // namespace lockstep
