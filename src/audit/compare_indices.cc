// The rows that are looked up: of embeddings by the token ids as they are given, of learned
// positions and of cosines and sines by the positions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "audit/findings.h"
#include "audit/index_path.h"
#include "audit/walk.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

constexpr int64_t kMostPositions = int64_t{1} << 16;
constexpr int64_t kMostIds = int64_t{1} << 22;

bool Same(const std::vector<double>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != static_cast<double>(i)) return false;
  return true;
}

// How much more each number becomes than it is, where that is the same for all.
std::optional<int64_t> ShiftOf(const std::vector<double>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != numbers[0] + static_cast<double>(i)) return std::nullopt;
  return static_cast<int64_t>(numbers[0]);
}

std::string Shifted(std::string_view of, int64_t by) {
  return fmt::format("{} {} {}", of, by > 0 ? "+" : "-", std::abs(by));
}

class Indices {
 public:
  Indices(const Model& reference, const Graph& graph, AuditReport& report, Collector& out)
      : spec_(reference.spec), graph_(graph), found_(report.decoder), out_(out), walk_(graph) {}

  void Run() {
    Tokens();
    if (const auto at = found_.matrices.find({Role::kEmbedPositions, Part::kWeight, -1, -1});
        at != found_.matrices.end())
      Positions({.layer = -1, .node = at->second.node, .slot = 1});
    for (size_t i = 0; i < std::min(found_.layers.size(), spec_.layers.size()); ++i) {
      const auto& attention = found_.layers[i].attention;
      // Rows past a length are those of other frequencies there.
      if (attention && attention->rope && attention->rope->long_row == 0)
        for (const RowChoice& choice : walk_.PositionReaders(*attention))
          Positions({.layer = static_cast<int>(i), .node = choice.node, .slot = choice.slot});
    }
  }

 private:
  struct Reader {
    int layer, node;
    size_t slot;
  };

  // "Mod by 300"
  std::string WhatItDoes(int n) const {
    const auto& node = graph_.node(n);
    std::vector<std::string> numbers;
    for (const int in : node.in)
      if (const auto number = in == kNoValue ? std::nullopt : graph_.Scalar(in))
        numbers.push_back(fmt::format("{:.10g}", *number));
    return OneLine(node.op, 64) +
           (numbers.empty() ? "" : fmt::format(" by {}", fmt::join(numbers, " and ")));
  }

  std::string Operators(const IndexPath& path) const {
    constexpr size_t kShown = 6;
    std::vector<std::string> all;
    for (const int n : path.nodes)
      if (all.size() < kShown) all.push_back(WhatItDoes(n));
    const size_t more = path.nodes.size() - all.size();
    return fmt::format("{}{}", fmt::join(all, ", "),
                       more > 0 ? fmt::format(" and {} more", more) : "");
  }

  // The reader takes the input as it is given, or what is added becomes 0.
  bool Mend(const Reader& reader, const IndexPath& path, OnnxPatch& patch) const {
    if (path.straight) {
      patch.inputs.push_back({.node = static_cast<size_t>(graph_.node(reader.node).source),
                              .slot = reader.slot,
                              .value = graph_.Name(path.input)});
      return true;
    }
    if (path.nodes.size() != 1) return false;
    const auto& node = graph_.node(path.nodes[0]);
    if (node.op != "Add" && node.op != "Sub") return false;
    for (const size_t slot : {size_t{1}, size_t{0}})
      if (node.In(slot) != kNoValue && graph_.Scalar(node.In(slot)) &&
          (slot == 1 || node.op == "Add"))
        return SetScalar(graph_, node.In(slot), path.nodes[0], 0, patch);
    return false;
  }

  void Tokens() {
    const auto table = found_.matrices.find({Role::kEmbedTokens, Part::kWeight, -1, -1});
    if (table == found_.matrices.end()) return;
    const Reader reader{.layer = -1, .node = table->second.node, .slot = 1};
    const auto& node = graph_.node(reader.node);
    if (node.op != "Gather" && node.op != "GatherBlockQuantized") return;
    const IndexPath path = IndexPathTo(graph_, node.In(1));
    if (path.input == kNoValue || path.nodes.empty()) return;
    const auto numbers =
        NumbersAlong(graph_, path, node.In(1), std::min(spec_.embedding.vocab_size, kMostIds));
    if (numbers && Same(*numbers)) return;
    RawFinding raw{.kind = FindingKind::kStructure, .path = "token ids"};
    raw.what = fmt::format(
        "operators between the token ids and the table of embeddings that the model does not "
        "have: {}",
        Operators(path));
    raw.expected = "the row of each id";
    raw.found = numbers ? Found(*numbers) : "rows that do not follow from each id alone";
    if (!Mend(reader, path, raw.patch))
      raw.how_to = "export again: the table is to be read by the token ids as they are given";
    out_.Add(std::move(raw));
  }

  static std::string Found(const std::vector<double>& numbers) {
    if (const auto shift = ShiftOf(numbers))
      return fmt::format("that of {}", Shifted("id", *shift));
    size_t first = numbers.size(), others = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] == static_cast<double>(i)) continue;
      first = std::min(first, i);
      ++others;
    }
    return fmt::format(
        "that of {:.10g} for id {}{}", numbers[first], first,
        others > 1 ? fmt::format(", and other rows for {} more ids", others - 1) : std::string());
  }

  void Positions(const Reader& reader) {
    const int indices = graph_.node(reader.node).In(reader.slot);
    if (indices == kNoValue) return;
    const IndexPath path = IndexPathTo(graph_, indices);
    // Counted from a mask, or from a length: how is not told here.
    if (path.input == kNoValue || path.nodes.empty() || path.input == found_.tokens ||
        graph_.Name(path.input) == "attention_mask")
      return;
    const int64_t count = std::clamp(spec_.max_position_embeddings, int64_t{64}, kMostPositions);
    const auto numbers = NumbersAlong(graph_, path, indices, count);
    if (!numbers || Same(*numbers)) return;
    const auto shift = ShiftOf(*numbers);
    // A bound is a matter of how far they reach (compare_reach.cc).
    if (!shift && (*numbers)[0] == 0 && (*numbers)[1] == 1) return;
    const bool learned = reader.layer < 0;
    RawFinding raw{.kind = learned ? FindingKind::kStructure : FindingKind::kRope,
                   .layer = reader.layer,
                   .path = learned ? "positions" : "mixer.positions"};
    const std::string_view table = learned ? "the table of positions" : "cosines and sines";
    raw.expected = "row p for position p";
    if (shift) {
      raw.what = fmt::format("positions are shifted by {} before they choose rows of {} ({})",
                             *shift, table, Operators(path));
      raw.found = fmt::format("row {} for position p", Shifted("p", *shift));
      if (learned && *shift > 0)
        raw.edit = Edit{.run = {{"first_position", fmt::format("{}", *shift)}}};
    } else {
      size_t first = 0;
      while ((*numbers)[first] == static_cast<double>(first)) ++first;
      raw.what = fmt::format("positions are changed before they choose rows of {} ({})", table,
                             Operators(path));
      raw.found = fmt::format("row {:.10g} for position {}", (*numbers)[first], first);
    }
    // Several read the same row, and are mended by the same number.
    if (path.straight ? !Mend(reader, path, raw.patch)
                      : mended_.insert(path.nodes[0]).second && !Mend(reader, path, raw.patch))
      raw.how_to = "export again: rows are to be chosen by the positions as they are given";
    out_.Add(std::move(raw));
  }

  const ModelSpec& spec_;
  const Graph& graph_;
  const FoundDecoder& found_;
  Collector& out_;
  const Walk walk_;
  std::set<int> mended_;
};

}  // namespace

void CompareIndices(const Model& reference, const Graph& graph, AuditReport& report,
                    Collector& out) {
  Indices(reference, graph, report, out).Run();
}

}  // namespace lockstep
