// The tokenizer and the chat template beside the model against the checkpoint's.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <vector>

#include "audit/findings.h"
#include "base/mapped_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const Json* At(const Json& json, const std::string& pointer) {
  const Json::json_pointer at(pointer);
  return json.contains(at) ? &json.at(at) : nullptr;
}

std::optional<Json> ReadJson(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  const auto text = ReadTextFile(path);
  if (!text) return std::nullopt;
  auto json = ParseJson(*text, path.string());
  return json ? std::optional(*std::move(json)) : std::nullopt;
}

class TextFiles {
 public:
  TextFiles(const Model& reference, const OnnxModel& candidate, Collector& out)
      : reference_(reference), out_(out), folder_(candidate.folder()) {}

  void Run() {
    Tokenizer();
    Template();
  }

 private:
  void Tokenizer() {
    const fs::path ours = reference_.checkpoint.path / "tokenizer.json";
    const fs::path theirs = folder_ / "tokenizer.json";
    std::error_code error;
    if (!fs::is_regular_file(ours, error) || !fs::is_regular_file(theirs, error)) return;
    const auto a = MappedFile::Open(ours), b = MappedFile::Open(theirs);
    if (!a || !b || (*a)->text() == (*b)->text()) return;
    const auto mine = ReadJson(ours), other = ReadJson(theirs);
    std::vector<std::string> parts;
    if (!mine || !other) {
      parts.push_back("the file");
    } else {
      for (const char* part :
           {"added_tokens", "normalizer", "pre_tokenizer", "model", "post_processor", "decoder"}) {
        const std::string pointer = fmt::format("/{}", part);
        const Json *x = At(*mine, pointer), *y = At(*other, pointer);
        const bool same = x == nullptr || y == nullptr
                              ? (x == nullptr || x->is_null()) && (y == nullptr || y->is_null())
                              : Json::diff(*x, *y).empty();
        if (!same) parts.push_back(part);
      }
    }
    if (parts.empty()) return;
    RawFinding raw{.kind = FindingKind::kTokenizer, .path = "tokenizer.json"};
    raw.what = fmt::format("another tokenizer: {} differ", fmt::join(parts, ", "));
    raw.how_to = "copy the checkpoint's tokenizer.json over it";
    out_.Add(std::move(raw));
  }

  static std::optional<std::string> TemplateOf(const fs::path& folder) {
    std::error_code error;
    if (fs::is_regular_file(folder / "chat_template.jinja", error))
      if (auto text = ReadTextFile(folder / "chat_template.jinja")) return *std::move(text);
    const auto config = ReadJson(folder / "tokenizer_config.json");
    const Json* text = config ? At(*config, "/chat_template") : nullptr;
    if (text == nullptr || !text->is_string()) return std::nullopt;
    return text->get<std::string>();
  }

  void Template() {
    const auto ours = TemplateOf(reference_.checkpoint.path);
    std::error_code error;
    if (!ours || !fs::is_regular_file(folder_ / "tokenizer_config.json", error)) return;
    const auto theirs = TemplateOf(folder_);
    if (theirs == ours) return;
    RawFinding raw{.kind = FindingKind::kTokenizer, .path = "chat_template"};
    raw.what = theirs ? "another chat template" : "the chat template is missing";
    raw.how_to = "copy the checkpoint's chat template";
    out_.Add(std::move(raw));
  }

  const Model& reference_;
  Collector& out_;
  const fs::path folder_;
};

}  // namespace

void CompareTextFiles(const Model& reference, const OnnxModel& candidate, Collector& out) {
  if (candidate.folder().empty() || candidate.path().empty()) return;
  TextFiles(reference, candidate, out).Run();
}

}  // namespace lockstep
