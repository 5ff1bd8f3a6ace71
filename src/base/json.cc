#include "base/json.h"

#include <unordered_set>
#include <vector>

#include "base/quoted.h"

namespace lockstep {
namespace {

constexpr size_t kMaxDepth = 512;

// nlohmann's messages open with "[json.exception.parse_error.101] parse error at line 1, column 2:
// " and hold `last read: '...'` with everything read of the token. The fault is at the token's end.
std::string Shorten(std::string_view what, std::string_view last_token) {
  const size_t bracket = what.find("] ");
  if (bracket != std::string_view::npos) what.remove_prefix(bracket + 2);
  constexpr std::string_view kLead = "parse error at ";
  if (what.starts_with(kLead)) what.remove_prefix(kLead.size());
  std::string text(what);
  constexpr std::string_view kLast = "last read: ";
  constexpr size_t kShown = 40;
  const std::string quoted = fmt::format("{}'{}'", kLast, last_token);
  if (const size_t at = text.find(quoted); at != std::string::npos) {
    const bool cut = last_token.size() > kShown;
    if (cut) last_token.remove_prefix(last_token.size() - kShown);
    while (cut && !last_token.empty() && (last_token.front() & 0xC0) == 0x80)
      last_token.remove_prefix(1);
    text.replace(at, quoted.size(),
                 fmt::format("{}{}{}", kLast, cut ? "..." : "", Quoted(last_token)));
  }
  return text;
}

// Builds the value and stops at the first duplicate key or at the depth limit; nlohmann's own
// parser accepts both.
class Builder : public nlohmann::detail::json_sax_dom_parser<Json> {
  using Base = nlohmann::detail::json_sax_dom_parser<Json>;

 public:
  explicit Builder(Json& root) : Base(root, /*allow_exceptions_=*/false) {}

  bool start_object(std::size_t n) {
    keys_.emplace_back();
    return Deeper() && Base::start_object(n);
  }
  bool end_object() {
    keys_.pop_back();
    --depth_;
    return Base::end_object();
  }
  bool start_array(std::size_t n) { return Deeper() && Base::start_array(n); }
  bool end_array() {
    --depth_;
    return Base::end_array();
  }
  bool key(std::string& name) {
    if (!keys_.back().insert(name).second) {
      problem = fmt::format("the key {} is given twice in one object", Quoted(name));
      return false;
    }
    return Base::key(name);
  }
  template <typename Exception>
  bool parse_error(std::size_t position, const std::string& last_token, const Exception& e) {
    byte = position;
    problem = Shorten(e.what(), last_token);
    return Base::parse_error(position, last_token, e);
  }

  std::string problem;
  size_t byte = 0;

 private:
  bool Deeper() {
    if (++depth_ <= kMaxDepth) return true;
    problem = fmt::format("nested deeper than {} levels", kMaxDepth);
    return false;
  }
  size_t depth_ = 0;
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

Result<Json> ParseJson(std::string_view text, std::string_view place) {
  Json root;
  Builder builder(root);
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return root;
  return InputError("{}: not valid JSON: {}", place, builder.problem);
}

}  // namespace lockstep
