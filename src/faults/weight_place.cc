#include "faults/weight_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "base/nearest.h"
#include "base/quoted.h"
#include "spec/fields.h"
#include "spec/validate.h"

namespace lockstep {
namespace {

constexpr std::string_view kLayers = "layers[";
constexpr std::string_view kExperts = "experts[";

// Moves `text` past `prefix...]` and gives what stands in the brackets; absent where it does not
// begin so.
std::optional<std::string_view> TakeBracket(std::string_view& text, std::string_view prefix) {
  const size_t close = text.find(']');
  if (!text.starts_with(prefix) || close == std::string_view::npos) return std::nullopt;
  const std::string_view inside = text.substr(prefix.size(), close - prefix.size());
  text.remove_prefix(close + 1);
  if (text.starts_with('.')) text.remove_prefix(1);
  return inside;
}

std::optional<int32_t> Number(std::string_view text, int64_t limit) {
  int32_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end || number < 0 || number >= limit) return std::nullopt;
  return number;
}

// "0,2-4" -> 0, 2, 3, 4, increasing; absent for anything else.
std::optional<std::vector<int32_t>> Numbers(std::string_view text, int64_t limit) {
  std::vector<int32_t> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t dash = item.find('-');
    const auto first = Number(item.substr(0, dash), limit);
    const auto last = dash == std::string_view::npos ? first : Number(item.substr(dash + 1), limit);
    if (!first || !last || *last < *first || (!numbers.empty() && *first <= numbers.back()))
      return std::nullopt;
    for (int32_t n = *first; n <= *last; ++n) numbers.push_back(n);
  }
  return numbers;
}

constexpr auto kLastRole = Role::kSharedExpertGate;

// Expert roles share their names with dense ones: which is meant, `experts[...]` says.
Result<Role> FindRole(std::string_view name, bool of_experts) {
  std::vector<std::string> known;
  for (int i = 0; i <= static_cast<int>(kLastRole); ++i) {
    const auto role = static_cast<Role>(i);
    if (IsExpertRole(role) != of_experts) continue;
    if (InfoOf(role).name == name) return role;
    known.emplace_back(InfoOf(role).name);
  }
  const std::string near = NearestName(name, known);
  return UsageError("expected one of the weights {}, found {}{}", fmt::join(known, ", "),
                    Quoted(name), near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near));
}

tl::unexpected<Error> BadIndex(std::string_view what, std::string_view found, int64_t limit) {
  return UsageError("expected {} from 0 to {} in brackets, such as [0], [0,2-4] or [*], found {}",
                    what, limit - 1, Quoted(found));
}

}  // namespace

bool IsExpertRole(Role role) {
  return role == Role::kExpertGateProj || role == Role::kExpertUpProj ||
         role == Role::kExpertDownProj;
}

bool IsModelRole(Role role) {
  return role == Role::kEmbedTokens || role == Role::kEmbedPositions || role == Role::kFinalNorm ||
         role == Role::kLmHead;
}

Status ReadPlace(std::string_view text, WeightEdit& edit) {
  std::string_view rest = text;
  const auto layers = TakeBracket(rest, kLayers);
  if (layers && *layers != "*") {
    const auto numbers = Numbers(*layers, kMaxLayers);
    if (!numbers) return BadIndex("layers", *layers, kMaxLayers);
    edit.layers = *numbers;
  }
  const auto expert = TakeBracket(rest, kExperts);
  if (expert && *expert != "*") {
    const auto number = Number(*expert, kMaxExperts);
    if (!number) return BadIndex("one expert", *expert, kMaxExperts);
    edit.expert = *number;
  }
  if (rest == "*" && layers && (!expert || edit.expert >= 0)) return {};
  const bool bias = rest.ends_with(".bias");
  if (!bias && !rest.ends_with(".weight"))
    return UsageError(
        "expected a place such as layers[*].up_proj.bias, layers[0].experts[*].gate_proj.weight, "
        "layers[1].* or lm_head.weight, found {}",
        Quoted(text));
  edit.part = bias ? Part::kBias : Part::kWeight;
  rest.remove_suffix(bias ? 5 : 7);
  LS_TRY(edit.role, FindRole(rest, expert.has_value()));
  if (IsModelRole(*edit.role) == layers.has_value())
    return UsageError(
        "{}: expected {}", Quoted(text),
        layers ? "no layers[...] before a weight of the whole model" : "layers[...] before it");
  return {};
}

std::string PlaceText(const WeightEdit& edit) {
  std::string text;
  if (!edit.role || !IsModelRole(*edit.role)) {
    const std::vector<int64_t> layers(edit.layers.begin(), edit.layers.end());
    text = fmt::format("layers[{}].", layers.empty() ? "*" : JoinNumbers(layers));
  }
  if (edit.expert >= 0) {
    text += fmt::format("experts[{}].", edit.expert);
  } else if (edit.role && IsExpertRole(*edit.role)) {
    text += "experts[*].";
  }
  if (!edit.role) return text + "*";
  return fmt::format("{}{}.{}", text, InfoOf(*edit.role).name,
                     edit.part == Part::kWeight ? "weight" : "bias");
}

Status ReadOther(std::string_view text, WeightEdit& edit) {
  std::string_view rest = text;
  if (const auto layer = TakeBracket(rest, kLayers)) {
    const auto number = Number(*layer, kMaxLayers);
    if (!number) return BadIndex("one layer", *layer, kMaxLayers);
    edit.other_layer = *number;
  }
  if (const auto expert = TakeBracket(rest, kExperts)) {
    const auto number = Number(*expert, kMaxExperts);
    if (!number) return BadIndex("one expert", *expert, kMaxExperts);
    edit.other_expert = *number;
  }
  if (rest.empty() && rest.size() != text.size()) return {};
  if (!edit.role)
    return UsageError("expected layers[N] or experts[N], found {}: the place names every weight",
                      Quoted(text));
  LS_TRY(edit.other_role, FindRole(rest, IsExpertRole(*edit.role)));
  return {};
}

std::string OtherText(const WeightEdit& edit) {
  std::vector<std::string> steps;
  if (edit.other_layer >= 0) steps.push_back(fmt::format("layers[{}]", edit.other_layer));
  if (edit.other_expert >= 0) steps.push_back(fmt::format("experts[{}]", edit.other_expert));
  if (edit.other_role) steps.emplace_back(InfoOf(*edit.other_role).name);
  return fmt::format("{}", fmt::join(steps, "."));
}

}  // namespace lockstep
