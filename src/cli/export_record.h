// ExportRecord: what lockstep.json keeps of an export's proof, so that the folder can be checked
// later and elsewhere without the checkpoint: each file's size and hash, and what the folder
// answered to a few short prompts when it was proved (docs/export.md).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "trace/prompts_json.h"

namespace lockstep {

struct RecordedFile {
  std::string name;  // inside the folder, with '/' between folders
  uint64_t bytes = 0;
  std::string hash;  // Hex(HashOfFile)
};

struct ExportRecord {
  std::vector<RecordedFile> files;
  Trace answers;      // top log-probabilities of each greedy step; empty where nothing ran
  std::string proof;  // the sentence of the proof then; empty: it was not run
};

// Every ordinary file below `folder` but the manifest, by name.
Result<std::vector<RecordedFile>> RecordFiles(const std::filesystem::path& folder);

// What is kept of runs: the most probable ids of each step, not all logits.
std::vector<PromptTrace> ShortAnswers(const std::vector<PromptTrace>& runs);

Json FilesJson(const std::vector<RecordedFile>& files);

// Fails with a sentence where the folder has no manifest, or one that keeps no record.
Result<ExportRecord> ReadExportRecord(const std::filesystem::path& folder);

// Which files are missing or are no longer those that were written, as sentences. Files that were
// added are none of them: see `added`.
Result<std::vector<std::string>> ChangedFiles(const ExportRecord& record,
                                              const std::filesystem::path& folder,
                                              std::vector<std::string>& added);

}  // namespace lockstep
