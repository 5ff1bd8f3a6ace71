// How Python writes values: str(), repr(), the % operator and str.format().
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "jinja/value.h"

namespace lockstep::jinja {

// The shortest decimal that reads back as the same double, written as Python does: 1e+16,
// 0.0001, 2.0.
std::string FloatRepr(double x);
std::string IntText(Int x);
std::string StringRepr(std::string_view text);  // 'it' or "it's", with escapes
// & < > ' " for HTML, as markupsafe does. Empty once the budget is gone.
std::string Escape(std::string_view text, Budget* budget);
void AppendHex(uint32_t value, int digits, std::string& out);

// Every append of text whose size the template chooses asks for room first: `more` bytes after
// `out`.
Expected<void> Room(const std::string& out, size_t more, Budget* budget);
tl::unexpected<TemplateError> TooBig(Budget* budget);

// Appends str(value) or repr(value). Fails when the text would not fit in the budget.
enum class Style { kStr, kRepr };
Expected<void> Append(const Value& value, Style style, Budget* budget, std::string& out);
Expected<std::string> Str(const Value& value, Budget* budget);
Expected<std::string> Repr(const Value& value, Budget* budget);

// format % arguments: a tuple, a dict for %(key)s, or one value.
Expected<std::string> PercentFormat(std::string_view format, const Value& arguments,
                                    Budget* budget);

// format(value, spec): one field of str.format.
Expected<std::string> FormatValue(const Value& value, std::string_view spec, Budget* budget);

// How str.format follows `.name` and `[key]` inside a field; the sandbox's own rules apply.
using Lookup =
    std::function<Expected<Value>(const Value& object, const Value& key, bool attribute)>;
Expected<std::string> FormatString(std::string_view format, const Arguments& arguments,
                                   const Lookup& lookup, Budget* budget);

}  // namespace lockstep::jinja
