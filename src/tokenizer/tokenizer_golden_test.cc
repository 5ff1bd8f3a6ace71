// Replays what Hugging Face `tokenizers` answered: tests/golden/tokenizers in this repository, and
// the larger goldens of LOCKSTEP_GOLDENS with the tokenizer files beside them, when there are any.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "tokenizer/gpt2_files.h"
#include "tokenizer/sha256_for_test.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::vector<Json> ReadJsonLines(const fs::path& path) {
  std::vector<Json> rows;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    auto row = ParseJson(line, path.string());
    if (!row) {
      ADD_FAILURE() << row.error().message;
      break;
    }
    rows.push_back(*std::move(row));
  }
  return rows;
}

// The folders with goldens: the repository's own, then the larger ones.
std::vector<fs::path> GoldenFolders() {
  std::vector<fs::path> roots{fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/tokenizers"};
  if (*LOCKSTEP_GOLDENS != '\0') roots.push_back(fs::path(LOCKSTEP_GOLDENS) / "tokenizers");
  return roots;
}

// "text", or the text of a "recipe".
std::string TextOf(const Json& row) {
  if (row.contains("text")) return row["text"].get<std::string>();
  std::string text;
  for (const Json& op : row["recipe"]) {
    const auto n = op["n"].get<size_t>();
    if (op["op"] == "repeat") {
      for (size_t i = 0; i < n; ++i) text += op["s"].get<std::string>();
    } else {
      auto x = op["seed"].get<uint64_t>();
      for (size_t i = 0; i < n; ++i) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        text += op["alphabet"][(x >> 33) % op["alphabet"].size()].get<std::string>();
      }
    }
  }
  return text;
}

std::string HashOfIds(const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(id >> shift & 0xFF);
  }
  return Sha256Hex(bytes);
}

class Report {
 public:
  explicit Report(std::string name) : name_(std::move(name)) {}
  void Check(bool good, const Json& row, std::string_view what) {
    ++checks_;
    if (good) return;
    ++failures_;
    if (failures_ <= 12) {
      text_ += fmt::format("  {} {}\n",
                           row.contains("id") ? row["id"].dump() : row.dump().substr(0, 80), what);
    }
  }
  void Finish(size_t at_least) {
    EXPECT_EQ(failures_, 0u) << name_ << ": " << failures_ << " of " << checks_
                             << " checks differ\n"
                             << text_;
    EXPECT_GE(checks_, at_least) << name_ << ": goldens are missing";
  }

 private:
  std::string name_, text_;
  size_t checks_ = 0, failures_ = 0;
};

std::string Show(const std::vector<int32_t>& got, const std::vector<int32_t>& want) {
  size_t k = 0;
  while (k < got.size() && k < want.size() && got[k] == want[k]) ++k;
  const auto at = [&](const std::vector<int32_t>& ids) { return k < ids.size() ? ids[k] : -1; };
  return fmt::format("{} ids, expected {}; the first difference is at {}: {} for {}", got.size(),
                     want.size(), k, at(got), at(want));
}

void CheckEncodeRows(const Tokenizer& tokenizer, const fs::path& folder, Report& report) {
  for (const Json& row : ReadJsonLines(folder / "encode.jsonl")) {
    const std::string text = TextOf(row);
    const auto ids = tokenizer.Encode(text);
    const auto plain = tokenizer.EncodeWithOffsets(text, {.add_special_tokens = false});
    if (!ids || !plain) {
      report.Check(false, row, (!ids ? ids.error() : plain.error()).message);
      continue;
    }
    const auto check_ids = [&](const std::vector<int32_t>& got, const char* key) {
      if (row.contains(key)) {
        const auto want = row[key].get<std::vector<int32_t>>();
        report.Check(got == want, row, fmt::format("{}: {}", key, Show(got, want)));
      }
      const std::string hash = std::string(key) + "_sha256";
      if (row.contains(hash)) report.Check(HashOfIds(got) == row[hash], row, hash);
    };
    check_ids(*ids, "ids");
    check_ids(plain->ids, "ids_no_special");
    const auto check_text = [&](const std::string& got, const char* key) {
      if (row.contains(key))
        report.Check(got == row[key].get<std::string>(), row,
                     fmt::format("{}: {}", key, got.substr(0, 200)));
      const std::string hash = std::string(key) + "_sha256";
      if (row.contains(hash)) report.Check(Sha256Hex(got) == row[hash], row, hash);
    };
    check_text(tokenizer.Decode(*ids), "decoded");
    check_text(tokenizer.Decode(*ids, true), "decoded_skip");
    if (row.contains("offsets")) {
      const Json& want = row["offsets"];
      std::string difference = plain->offsets.size() == want.size() ? "" : "their number";
      for (size_t k = 0; k < want.size() && difference.empty(); ++k) {
        const auto& [begin, end] = plain->offsets[k];
        if (begin != want[k][0] || end != want[k][1]) {
          difference = fmt::format("token {}: {}-{} for {}", k, begin, end, want[k].dump());
        }
      }
      report.Check(difference.empty(), row, "offsets: " + difference);
    }
  }
}

void CheckDecodeRows(const Tokenizer& tokenizer, const fs::path& folder, Report& report) {
  for (const Json& row : ReadJsonLines(folder / "decode.jsonl")) {
    std::vector<int32_t> ids;
    for (const Json& id : row["ids"])
      ids.push_back(static_cast<int32_t>(std::min<int64_t>(id.get<int64_t>(), INT32_MAX)));
    report.Check(tokenizer.Decode(ids) == row["decoded"].get<std::string>(), row,
                 "decoded: " + tokenizer.Decode(ids));
    report.Check(tokenizer.Decode(ids, true) == row["decoded_skip"].get<std::string>(), row,
                 "decoded_skip: " + tokenizer.Decode(ids, true));
  }
}

void CheckStreamRows(const Tokenizer& tokenizer, const fs::path& folder, Report& report) {
  if (!fs::exists(folder / "stream.jsonl")) return;
  for (const Json& row : ReadJsonLines(folder / "stream.jsonl")) {
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    StreamDecoder stream(tokenizer, row["skip_special"].get<bool>());
    Json chunks = Json::array();
    std::string whole;
    for (const int32_t id : ids) {
      chunks.push_back(stream.Push(id));
      whole += chunks.back().get<std::string>();
    }
    const std::string flush = stream.Flush();
    report.Check(chunks == row["chunks"] && flush == row["flush"].get<std::string>(), row,
                 "chunks: " + chunks.dump());
    report.Check(whole + flush == row["full"].get<std::string>(), row, "full");
  }
}

void CheckAll(const Tokenizer& tokenizer, const fs::path& folder, size_t at_least) {
  Report report(folder.string());
  CheckEncodeRows(tokenizer, folder, report);
  CheckDecodeRows(tokenizer, folder, report);
  CheckStreamRows(tokenizer, folder, report);
  report.Finish(at_least);
}

TEST(TokenizerGolden, SyntheticTokenizersEncodeAndDecodeAsTheReference) {
  for (const fs::path& root : GoldenFolders()) {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(root / "synthetic")) {
      const auto tokenizer =
          LoadTokenizerJson(ReadFile(entry.path() / "tokenizer.json"), "tokenizer.json");
      ASSERT_TRUE(tokenizer) << entry.path() << ": " << tokenizer.error().message;
      CheckAll(*tokenizer, entry.path(), 400);
      ++count;
    }
    EXPECT_EQ(count, 24u) << root;
  }
}

TEST(TokenizerGolden, Gpt2FilesEncodeAndDecodeAsTheReference) {
  std::vector<std::pair<fs::path, fs::path>> places;  // the goldens, the tokenizer's files
  for (const fs::path& root : GoldenFolders()) {
    places.emplace_back(root / "gpt2", fs::exists(root / "gpt2/encoder.json")
                                           ? root / "gpt2"
                                           : root.parent_path().parent_path() / "tokenizers/gpt2");
  }
  for (const auto& [goldens, files] : places) {
    const auto tokenizer =
        LoadGpt2Tokenizer(ReadFile(files / "encoder.json"), ReadFile(files / "vocab.bpe"), "gpt2");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->vocab_size(), 50257u);
    CheckAll(*tokenizer, goldens, 2000);
  }
}

TEST(TokenizerGolden, RealTokenizerFilesEncodeAndDecodeAsTheReference) {
  if (*LOCKSTEP_GOLDENS == '\0')
    GTEST_SKIP() << "needs LOCKSTEP_GOLDENS: the files are too large for the repository";
  const fs::path goldens = fs::path(LOCKSTEP_GOLDENS) / "tokenizers";
  const fs::path files = fs::path(LOCKSTEP_GOLDENS).parent_path() / "tokenizers";
  for (const char* name : {"qwen3", "gptoss", "gemma3"}) {
    const auto tokenizer = LoadTokenizerJson(ReadFile(files / name / "tokenizer.json"), name);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_TRUE(tokenizer->notes().empty()) << tokenizer->notes().front();
    CheckAll(*tokenizer, goldens / name, 2000);
  }
}

// Rendered chats whose messages contain special tokens: those of the template count, the users' do
// not.
TEST(TokenizerGolden, SpecialTokensInsideUntrustedRangesAreText) {
  if (*LOCKSTEP_GOLDENS == '\0')
    GTEST_SKIP() << "needs LOCKSTEP_GOLDENS: the tokenizers are too large for the repository";
  const fs::path chat = fs::path(LOCKSTEP_GOLDENS) / "chat";
  const fs::path files = fs::path(LOCKSTEP_GOLDENS).parent_path() / "tokenizers";
  const Json conversations =
      *ParseJson(ReadFile(chat / "conversations.json"), "conversations.json");
  const Json templates = *ParseJson(ReadFile(chat / "templates.json"), "templates.json");
  const auto rows = ReadJsonLines(chat / "cases.jsonl");
  for (const char* name : {"qwen3", "gemma3"}) {
    const auto tokenizer = LoadTokenizerJson(ReadFile(files / name / "tokenizer.json"), name);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    std::vector<int32_t> control;
    const auto chat_template = templates[name]["text"].get<std::string>();
    for (const AddedToken& token : tokenizer->added_tokens()) {
      if (token.content[0] == '<' && chat_template.find(token.content) != std::string::npos)
        control.push_back(token.id);
    }
    Report report(std::string("chat, ") + name);
    for (const Json& row : rows) {
      if (row["template"] != name || !row.contains("ids_sanitized")) continue;
      const auto rendered = row["rendered"].get<std::string>();
      std::vector<TextRange> ranges;
      size_t at = 0;
      bool all_found = true;
      for (const Json& message : conversations[row["conv"].get<std::string>()]["messages"]) {
        if (!message["content"].is_string()) continue;
        const auto content = message["content"].get<std::string>();
        const size_t found = rendered.find(content, at);
        all_found &= found != std::string::npos;
        if (found == std::string::npos) continue;
        at = found + content.size();
        ranges.push_back({found, at});
      }
      const auto check = [&](EncodeOptions options, const char* key) {
        options.add_special_tokens = false;
        const auto got = tokenizer->Encode(rendered, options);
        const auto want = row[key].get<std::vector<int32_t>>();
        report.Check(got && *got == want, row,
                     fmt::format("{}: {}", key, got ? Show(*got, want) : got.error().message));
      };
      check({}, "ids");
      // A template that rewrites a message (cuts its thoughts off) leaves no range to name.
      if (all_found) check({.untrusted = {ranges, control}}, "ids_sanitized");
    }
    report.Finish(4);
  }
}

TEST(TokenizerGolden, InvalidUtf8IsRefusedWithItsPlace) {
  for (const fs::path& root : GoldenFolders()) {
    const auto folder = root / "synthetic/spm_prepend/tokenizer.json";
    const auto tokenizer = LoadTokenizerJson(ReadFile(folder), "tokenizer.json");
    ASSERT_TRUE(tokenizer);
    Report report("invalid_utf8");
    for (const Json& row : ReadJsonLines(root / "invalid_utf8.jsonl")) {
      std::string bytes;
      const auto hex = row["hex"].get<std::string>();
      for (size_t i = 0; i < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
      const auto ids = tokenizer->Encode(bytes);
      const bool valid = row["valid"].get<bool>();
      report.Check(ids.has_value() == valid, row, "accepted or not");
      if (!ids && !valid) {
        const std::string place = fmt::format("at byte {}:", row["valid_up_to"].get<int64_t>());
        report.Check(ids.error().message.find(place) != std::string::npos, row,
                     ids.error().message);
      }
    }
    report.Finish(100);
  }
}

}  // namespace
}  // namespace lockstep
