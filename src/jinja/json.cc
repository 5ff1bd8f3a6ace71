#include "jinja/json.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/utf8.h"
#include "jinja/format.h"

namespace lockstep::jinja {
namespace {

Expected<Value> Convert(const Json& json, Budget* budget, int level) {
  if (level > kMaxValueDepth)
    return Raise(ErrorKind::kLimit, "the input is nested deeper than {} levels", kMaxValueDepth);
  if (!budget->Step()) return tl::unexpected(budget->Error());
  switch (json.type()) {
    case Json::value_t::null:
    case Json::value_t::discarded:
      return Value();
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::Integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return Value::Integer(static_cast<Int>(json.get<uint64_t>()));
    case Json::value_t::number_float:
      return Value::Float(json.get<double>());
    case Json::value_t::string: {
      const std::string& text = json.get_ref<const std::string&>();
      if (const auto fault = FindUtf8Fault(text))
        return PythonError("a string of the input is not UTF-8 (byte {})", fault->valid_up_to);
      return MakeString(budget, text);
    }
    case Json::value_t::binary:
      return PythonError("binary data cannot be passed to a template");
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) {
        LS_TRY(Value value, Convert(item, budget, level + 1));
        items.push_back(std::move(value));
      }
      return MakeList(budget, std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        LS_TRY(Value value, Convert(item, budget, level + 1));
        entries.emplace_back(MakeString(budget, key), std::move(value));
      }
      return MakeDict(budget, std::move(entries));
    }
  }
  return Value();
}

void AppendJsonString(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = NextCodePoint(text, i);
    switch (c) {
      case '"':
        out += "\\\"";
        continue;
      case '\\':
        out += "\\\\";
        continue;
      case '\n':
        out += "\\n";
        continue;
      case '\r':
        out += "\\r";
        continue;
      case '\t':
        out += "\\t";
        continue;
      case '\f':
        out += "\\f";
        continue;
      case '\b':
        out += "\\b";
        continue;
      default:
        break;
    }
    if (c < 0x20 || (ensure_ascii && c > 0x7E && c <= 0xFFFF && c != 0x7F)) {
      out += "\\u";
      AppendHex(static_cast<uint32_t>(c), 4, out);
    } else if (ensure_ascii && c > 0xFFFF) {
      const uint32_t v = static_cast<uint32_t>(c) - 0x10000;
      out += "\\u";
      AppendHex(0xD800 + (v >> 10), 4, out);
      out += "\\u";
      AppendHex(0xDC00 + (v & 0x3FF), 4, out);
    } else {
      out += text.substr(start, i - start);
    }
  }
  out += '"';
}

std::string JsonFloat(double x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x < 0 ? "-Infinity" : "Infinity";
  return FloatRepr(x);
}

class Dumper {
 public:
  Dumper(const DumpOptions& options, Budget* budget) : options_(options), budget_(budget) {}

  Expected<void> Write(const Value& value, size_t level) {
    // What was written since the last value too: keys, separators and indents.
    const size_t written = out.size() - charged_;
    charged_ = out.size();
    if (!budget_->ChargeText(written, Work::kCopy) ||
        !budget_->ChargeText(value.is_string() ? value.text().size() : 0, Work::kCharacters) ||
        !budget_->Fits(out.size() + (value.is_string() ? value.text().size() : 0) +
                       level * options_.indent.size()))
      return Raise(ErrorKind::kLimit, "the JSON text would not fit in the memory allowed");
    switch (value.kind()) {
      case Kind::kNone:
        out += "null";
        return {};
      case Kind::kBool:
        out += value.truth() ? "true" : "false";
        return {};
      case Kind::kInt:
        out += IntText(value.integer());
        return {};
      case Kind::kFloat:
        out += JsonFloat(value.real());
        return {};
      case Kind::kString:
        AppendJsonString(value.text(), options_.ensure_ascii, out);
        return {};
      case Kind::kList:
      case Kind::kTuple: {
        if (value.items().empty()) {
          out += "[]";
          return {};
        }
        out += '[';
        bool first = true;
        for (const Value& item : value.items()) {
          Separate(first, level + 1);
          LS_RETURN_IF_ERROR(Write(item, level + 1));
        }
        Close(']', level);
        return {};
      }
      case Kind::kDict:
        return WriteDict(value.dict(), level);
      default:
        return PythonError("Object of type {} is not JSON serializable", TypeName(value));
    }
  }

  std::string out;

 private:
  Expected<void> WriteDict(const DictObject& dict, size_t level) {
    if (dict.entries.empty()) {
      out += "{}";
      return {};
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (options_.sort_keys) {
      std::optional<TemplateError> failed;
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        if (failed) return false;
        const Expected<bool> less = Less(a->first, b->first, "<", budget_);
        if (!less) failed = less.error();
        return less && *less;
      });
      if (failed) return tl::unexpected(*failed);
    }
    out += '{';
    bool first = true;
    for (const auto* entry : entries) {
      Separate(first, level + 1);
      const Value& key = entry->first;
      switch (key.kind()) {
        case Kind::kString:
          if (!budget_->ChargeText(key.text().size(), Work::kCharacters))
            return tl::unexpected(budget_->Error());
          AppendJsonString(key.text(), options_.ensure_ascii, out);
          break;
        case Kind::kNone:
          out += "\"null\"";
          break;
        case Kind::kBool:
          out += key.truth() ? "\"true\"" : "\"false\"";
          break;
        case Kind::kInt:
          out += '"' + IntText(key.integer()) + '"';
          break;
        case Kind::kFloat:
          out += '"' + JsonFloat(key.real()) + '"';
          break;
        default:
          return PythonError("keys must be str, int, float, bool or None, not {}", TypeName(key));
      }
      out += options_.key_separator;
      LS_RETURN_IF_ERROR(Write(entry->second, level + 1));
    }
    Close('}', level);
    return {};
  }

  void NewLine(size_t level) {
    out += '\n';
    for (size_t i = 0; i < level; ++i) out += options_.indent;
  }
  void Separate(bool& first, size_t level) {
    if (!first) out += options_.item_separator;
    first = false;
    if (options_.indented) NewLine(level);
  }
  void Close(char bracket, size_t level) {
    if (options_.indented) NewLine(level);
    out += bracket;
  }

  const DumpOptions& options_;
  size_t charged_ = 0;  // of `out`
  Budget* budget_;
};

}  // namespace

Expected<Value> FromJson(const Json& json, Budget* budget) { return Convert(json, budget, 1); }

Expected<std::string> DumpJson(const Value& value, const DumpOptions& options, Budget* budget) {
  Dumper dumper(options, budget);
  LS_RETURN_IF_ERROR(dumper.Write(value, 0));
  return std::move(dumper.out);
}

}  // namespace lockstep::jinja
