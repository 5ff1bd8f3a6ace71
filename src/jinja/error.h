// TemplateError: what went wrong while a chat template was compiled or rendered, with its line.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "base/error.h"

namespace lockstep::jinja {

// The families of errors that Jinja2 distinguishes; tests and callers compare these, not messages.
enum class ErrorKind {
  kRaiseException,   // the template called raise_exception(message): its message is for the user
  kUndefined,        // an operation on a value that does not exist
  kPython,           // what Python would raise: TypeError, ValueError, ZeroDivisionError, ...
  kSyntax,           // found while compiling
  kSecurity,         // refused by the sandbox (mutation, private attributes)
  kTemplateRuntime,  // Jinja's own run-time errors: unknown filter by name, filter arguments, ...
  kLimit,            // ours: too many steps, too much memory or output, too deep
};

std::string_view ErrorKindName(ErrorKind kind);  // "raise_exception", "undefined", "python", ...

struct TemplateError {
  ErrorKind kind = ErrorKind::kPython;
  int line = 0;  // in the template, from 1; 0 when no line is to blame (an empty conversation)
  std::string message;

  // `place: line 12 of the chat template: 'x' is undefined`
  Error ToError(std::string_view place) const;
};

template <typename T>
using Expected = tl::expected<T, TemplateError>;

template <typename... Args>
tl::unexpected<TemplateError> Raise(ErrorKind kind, fmt::format_string<Args...> format,
                                    Args&&... args) {
  return tl::unexpected(TemplateError{kind, 0, fmt::format(format, std::forward<Args>(args)...)});
}
template <typename... Args>
tl::unexpected<TemplateError> PythonError(fmt::format_string<Args...> format, Args&&... args) {
  return Raise(ErrorKind::kPython, format, std::forward<Args>(args)...);
}

}  // namespace lockstep::jinja
