// Errors from outside (a file, a flag, a model) are values. Each ends as one sentence that says
// where, what was expected, what was found and what to do. Errors of ours stop the program
// (LS_CHECK). Nothing in Lockstep throws; std::bad_alloc may pass.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace lockstep {

// What kind of thing went wrong; it decides the exit code of the program (see cli/exit_code.h).
enum class ErrorCode {
  kInput,        // a file or a model is corrupt, unreadable or contradicts itself
  kUsage,        // the user asked for something that makes no sense (a flag, a prompt, a length)
  kUnsupported,  // well-formed, but outside what Lockstep knows; the message names what it knows
  kInterrupted,  // the user stopped it (Ctrl-C)
};

// No sentence is longer. What a file says enters messages, and a file can say anything.
inline constexpr size_t kMaxMessage = 1000;

struct Error {
  ErrorCode code = ErrorCode::kInput;
  // A sentence; the place first: `model.safetensors: tensor "x" ends at ...`. One printable line of
  // at most kMaxMessage bytes (and "..." where it was cut).
  std::string message;

  // The same error seen from one step further out: `place: message`.
  Error In(std::string_view place) &&;
};

// An error whose message is `text`, made printable and cut to kMaxMessage.
tl::unexpected<Error> MakeError(ErrorCode code, std::string_view text);

template <typename T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

template <typename... Args>
tl::unexpected<Error> Fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(code, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
tl::unexpected<Error> InputError(fmt::format_string<Args...> format, Args&&... args) {
  return Fail(ErrorCode::kInput, format, std::forward<Args>(args)...);
}
template <typename... Args>
tl::unexpected<Error> UsageError(fmt::format_string<Args...> format, Args&&... args) {
  return Fail(ErrorCode::kUsage, format, std::forward<Args>(args)...);
}
template <typename... Args>
tl::unexpected<Error> UnsupportedError(fmt::format_string<Args...> format, Args&&... args) {
  return Fail(ErrorCode::kUnsupported, format, std::forward<Args>(args)...);
}

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& values);

}  // namespace lockstep

#define LS_CONCAT_(a, b) a##b
#define LS_CONCAT(a, b) LS_CONCAT_(a, b)

// LS_TRY(auto file, MappedFile::Open(path));  returns the error, or binds the value.
#define LS_TRY(declaration, expression) \
  LS_TRY_(LS_CONCAT(ls_result_, __COUNTER__), declaration, expression)
#define LS_TRY_(result, declaration, expression)                   \
  auto result = (expression);                                      \
  if (!result) return ::tl::unexpected(std::move(result).error()); \
  declaration = *std::move(result)

// LS_RETURN_IF_ERROR(Validate(spec));
#define LS_RETURN_IF_ERROR(expression)                                     \
  do {                                                                     \
    auto ls_status = (expression);                                         \
    if (!ls_status) return ::tl::unexpected(std::move(ls_status).error()); \
  } while (false)

// A broken invariant of ours: prints file, line, condition and the formatted values, then aborts.
// LS_CHECK(rank <= kMaxRank, "rank {}", rank);
#define LS_CHECK(condition, ...)                                                              \
  do {                                                                                        \
    if (!(condition)) [[unlikely]]                                                            \
      ::lockstep::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
