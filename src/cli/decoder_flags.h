// What computes an answer, for the verbs that give one: the engine, or with --reference the
// interpreter; and whether drafts from earlier text help it along.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "cli/engine_flags.h"
#include "engine/lookup.h"
#include "model/model.h"

namespace lockstep {

// A decoder and what it stands on. The model must outlive it.
struct OpenedDecoder {
  std::unique_ptr<ThreadPool> pool;      // of the reference
  std::unique_ptr<DraftDecoder> engine;  // below `decoder` where that drafts
  std::unique_ptr<RewindableDecoder> decoder;
  const LookupDecoder* lookup = nullptr;  // `decoder`, where it drafts
  std::string name;                       // "reference, fp32", or Engine::Describe
  std::string note;                       // how loading went, or empty

  // Tokens that were drafted and taken, in words; empty without --lookup.
  std::string LookupWords() const;
};

class DecoderFlags {
 public:
  void AddTo(CLI::App& verb);
  // As ReferenceDecoder::OnProgress.
  using OnProgress = std::function<bool(int64_t done, int64_t total)>;
  // Refuses flags that say nothing together, or that this model cannot have.
  Status Check(const Model& model) const;
  Result<OpenedDecoder> Open(const Model& model, OnProgress on_progress) const;

 private:
  EngineFlags engine_;
  bool reference_ = false, lookup_ = false;
};

}  // namespace lockstep
