#include "faults/edit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/nearest.h"
#include "base/quoted.h"
#include "faults/weight_place.h"
#include "spec/field_list.h"
#include "spec/fields.h"
#include "spec/validate.h"

namespace lockstep {
namespace {

constexpr std::string_view kRun = "run.";
constexpr std::string_view kWeights = "weights:";

// What follows a verb and its place: a word and its value.
enum class Argument : uint8_t { kBy, kTo, kWith, kFrom, kHeads, kBlock };
constexpr std::string_view kArgumentWords[] = {"by", "to", "with", "from", "heads", "block"};

struct Verb {
  WeightChange change;
  std::string_view name;
  std::vector<Argument> arguments;
};

const std::vector<Verb>& Verbs() {
  using enum WeightChange;
  using enum Argument;
  static const std::vector<Verb> verbs = {
      {kZero, "zero", {}},
      {kScale, "scale", {kBy}},
      {kAdd, "add", {kBy}},
      {kRound, "round", {kTo}},
      {kTranspose, "transpose", {}},
      {kSwap, "swap", {kWith}},
      {kTake, "take", {kFrom}},
      {kFit, "fit", {}},
      {kHalvesToPairs, "halves_to_pairs", {kHeads}},
      {kPairsToHalves, "pairs_to_halves", {kHeads}},
      {kTileHeads, "tile_heads", {}},
      {kInterleave, "interleave", {kWith}},
      {kDeinterleave, "deinterleave", {kWith}},
      {kReverseRows, "reverse_rows", {}},
      {kReverseColumns, "reverse_columns", {}},
      {kSwapPairs, "swap_pairs", {}},
      {kOneBlockScale, "one_block_scale", {kBlock}},
      {kShiftBlocks, "shift_blocks", {kBy, kBlock}},
      {kZeroTail, "zero_tail", {kBlock}},
  };
  return verbs;
}

const Verb& VerbOf(WeightChange change) {
  const Verb& verb = Verbs()[static_cast<size_t>(change)];
  LS_CHECK(verb.change == change, "Verbs() must be in the order of the enum: {}", int(change));
  return verb;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// The items between ';', which may also stand in a JSON string.
std::vector<std::string_view> Items(std::string_view text) {
  std::vector<std::string_view> items;
  size_t begin = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (text[i] == ';' && !in_string) {
      items.push_back(Trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  items.push_back(Trimmed(text.substr(begin)));
  return items;
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!(text = Trimmed(text)).empty()) {
    const std::string_view word = text.substr(0, text.find_first_of(" \t\r\n"));
    words.push_back(word);
    text.remove_prefix(word.size());
  }
  return words;
}

Status ReadArgument(Argument argument, std::string_view word, WeightEdit& edit) {
  const char* end = word.data() + word.size();
  switch (argument) {
    case Argument::kBy: {
      const auto [stop, error] = std::from_chars(word.data(), end, edit.value);
      if (error != std::errc{} || stop != end || !std::isfinite(edit.value))
        return UsageError("expected a finite number after \"by\", found {}", Quoted(word));
      return {};
    }
    case Argument::kTo: {
      const auto& names = NamesOf<Rounding>();
      const auto found = std::find(names.begin(), names.end(), word);
      if (found == names.end())
        return UsageError("expected one of {} after \"to\", found {}", fmt::join(names, ", "),
                          Quoted(word));
      edit.rounding = static_cast<Rounding>(found - names.begin());
      return {};
    }
    case Argument::kWith:
    case Argument::kFrom:
      return ReadOther(word, edit);
    case Argument::kHeads:
    case Argument::kBlock: {
      const int64_t least = argument == Argument::kBlock ? 1 : 0;
      const auto [stop, error] = std::from_chars(word.data(), end, edit.count);
      if (error != std::errc{} || stop != end || edit.count < least || edit.count > kMaxWidth)
        return UsageError("expected a number from {} to {} after \"{}\", found {}", least,
                          kMaxWidth, kArgumentWords[static_cast<size_t>(argument)], Quoted(word));
      return {};
    }
  }
  return {};
}

Result<WeightEdit> ParseWeightEdit(std::string_view text) {
  const std::vector<std::string_view> words = Words(text);
  std::vector<std::string> names;
  for (const Verb& verb : Verbs()) names.emplace_back(verb.name);
  const auto name = words.empty() ? names.end() : std::find(names.begin(), names.end(), words[0]);
  if (name == names.end()) {
    const std::string_view found = words.empty() ? "" : words[0];
    const std::string near = NearestName(found, names);
    return UsageError("expected one of the verbs {}, found {}{}", fmt::join(names, ", "),
                      Quoted(found),
                      near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near));
  }
  const Verb& verb = Verbs()[static_cast<size_t>(name - names.begin())];
  WeightEdit edit{.change = verb.change};
  std::string form = fmt::format("{} PLACE", verb.name);
  for (const Argument argument : verb.arguments)
    form += fmt::format(" {} VALUE", kArgumentWords[static_cast<size_t>(argument)]);
  bool fits = words.size() == 2 + 2 * verb.arguments.size();
  for (size_t i = 0; i < verb.arguments.size() && fits; ++i)
    fits = words[2 + 2 * i] == kArgumentWords[static_cast<size_t>(verb.arguments[i])];
  if (!fits) return UsageError("expected \"{}\", found {}", form, Quoted(text));
  LS_RETURN_IF_ERROR(ReadPlace(words[1], edit));
  for (size_t i = 0; i < verb.arguments.size(); ++i)
    LS_RETURN_IF_ERROR(ReadArgument(verb.arguments[i], words[3 + 2 * i], edit));
  return edit;
}

Result<FieldEdit> ParseFieldEdit(std::string_view item) {
  const size_t equals = item.find('=');
  if (equals == std::string_view::npos)
    return UsageError(
        "expected PATH=JSON, run.PATH=JSON or \"weights: VERB PLACE\", found {}; an edit is such "
        "items with ';' between them",
        Quoted(item));
  FieldEdit edit{std::string(Trimmed(item.substr(0, equals))),
                 std::string(Trimmed(item.substr(equals + 1)))};
  if (edit.path.empty()) return UsageError("expected a path before '=', found {}", Quoted(item));
  if (const auto json = ParseJson(edit.value, OneLine(edit.path, 96)); !json)
    return UsageError("{} (text needs quotes: run.kv_dtype=\"f16\")", json.error().message);
  return edit;
}

}  // namespace

std::string ToString(const WeightEdit& edit) {
  const Verb& verb = VerbOf(edit.change);
  std::string text = fmt::format("{} {}", verb.name, PlaceText(edit));
  for (const Argument argument : verb.arguments) {
    text += fmt::format(" {} ", kArgumentWords[static_cast<size_t>(argument)]);
    switch (argument) {
      case Argument::kBy:
        text += fmt::format("{}", edit.value);
        break;
      case Argument::kTo:
        text += NameOf(edit.rounding);
        break;
      case Argument::kWith:
      case Argument::kFrom:
        text += OtherText(edit);
        break;
      case Argument::kHeads:
      case Argument::kBlock:
        text += fmt::format("{}", edit.count);
        break;
    }
  }
  return text;
}

std::string ToString(const Edit& edit) {
  std::vector<std::string> items;
  for (const FieldEdit& field : edit.spec)
    items.push_back(fmt::format("{}={}", field.path, field.value));
  for (const FieldEdit& field : edit.run)
    items.push_back(fmt::format("{}{}={}", kRun, field.path, field.value));
  for (const WeightEdit& weight : edit.weights)
    items.push_back(fmt::format("{} {}", kWeights, ToString(weight)));
  return fmt::format("{}", fmt::join(items, "; "));
}

Result<Edit> ParseEdit(std::string_view text) {
  Edit edit;
  if (Trimmed(text).empty()) return edit;
  for (std::string_view item : Items(text)) {
    if (item.starts_with(kWeights)) {
      item.remove_prefix(kWeights.size());
      auto weight = ParseWeightEdit(Trimmed(item));
      if (!weight) return tl::unexpected(std::move(weight).error().In("weights"));
      edit.weights.push_back(*std::move(weight));
    } else if (item.starts_with(kRun)) {
      LS_TRY(FieldEdit field, ParseFieldEdit(item.substr(kRun.size())));
      edit.run.push_back(std::move(field));
    } else {
      LS_TRY(FieldEdit field, ParseFieldEdit(item));
      edit.spec.push_back(std::move(field));
    }
  }
  return edit;
}

Result<ModelSpec> EditedSpec(const ModelSpec& spec, const Edit& edit) {
  ModelSpec edited = spec;
  for (const FieldEdit& field : edit.spec)
    LS_RETURN_IF_ERROR(SetField(edited, field.path, field.value));
  if (edit.spec.empty()) return edited;
  if (Status valid = Validate(edited); !valid)
    return tl::unexpected(std::move(valid).error().In("the edited model"));
  return edited;
}

Result<RunSpec> EditedRun(const RunSpec& run, const Edit& edit) {
  RunSpec edited = run;
  for (const FieldEdit& field : edit.run)
    LS_RETURN_IF_ERROR(SetField(edited, field.path, field.value));
  LS_RETURN_IF_ERROR(Validate(edited));
  return edited;
}

Edit Joined(const Edit& a, const Edit& b) {
  Edit both = a;
  both.spec.insert(both.spec.end(), b.spec.begin(), b.spec.end());
  both.run.insert(both.run.end(), b.run.begin(), b.run.end());
  both.weights.insert(both.weights.end(), b.weights.begin(), b.weights.end());
  return both;
}

}  // namespace lockstep
