#include "cli/answer.h"

#include <chrono>

#include "cli/table.h"
#include "cli/terminal.h"
#include "engine/stop_strings.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string Speed(int64_t tokens, double seconds) {
  return seconds > 0 ? fmt::format(" ({:.1f}/s)", static_cast<double>(tokens) / seconds) : "";
}

std::string_view Words(StopReason reason) {
  switch (reason) {
    case StopReason::kEndToken:
      return "end token";
    case StopReason::kLength:
      return "length";
    case StopReason::kCancelled:  // by us, and then a stop string or Ctrl-C is the reason
      return "cancelled";
    case StopReason::kContextFull:
      return "context full";
  }
  return "";
}

}  // namespace

std::string Answer::SpeedLine() const {
  const int64_t computed = prompt_tokens - cached_tokens;
  std::string line = fmt::format("{} prompt tokens", prompt_tokens);
  if (cached_tokens > 0) line += fmt::format(", {} of them kept", cached_tokens);
  // Without a token nothing was computed.
  if (!ids.empty())
    line += fmt::format(", {}{}", HumanSeconds(prefill_seconds), Speed(computed, prefill_seconds));
  line += "; ";
  line += fmt::format("{} new tokens", ids.size());
  // The first token comes out of the prompt's pass.
  const auto steps = static_cast<int64_t>(ids.size()) - 1;
  if (steps > 0)
    line += fmt::format(", {}{}", HumanSeconds(decode_seconds), Speed(steps, decode_seconds));
  return line + fmt::format("; ended by {}", ended_by);
}

Json ToJson(const Answer& answer) {
  return {{"ids", answer.ids},
          {"text", answer.text},
          {"ended_by", answer.ended_by},
          {"seed", answer.seed},
          {"prompt_tokens", answer.prompt_tokens},
          {"cached_tokens", answer.cached_tokens},
          {"prefill_seconds", answer.prefill_seconds},
          {"decode_seconds", answer.decode_seconds}};
}

Result<Answer> MakeAnswer(RewindableDecoder& decoder, const AnswerRequest& request) {
  Answer answer;
  const std::span<const int32_t> ids = request.ids;
  const size_t kept = decoder.KeepCommonPrefix(ids);
  answer.prompt_tokens = static_cast<int64_t>(ids.size());
  answer.cached_tokens = static_cast<int64_t>(kept);

  std::optional<StreamDecoder> stream;
  if (request.tokenizer != nullptr) stream.emplace(*request.tokenizer, true);
  StopStrings stops(request.config->stop_strings);
  const auto show = [&](const std::string& text) {
    answer.text += text;
    if (request.print && !text.empty()) Print(text);
  };
  const auto start = Clock::now();
  Clock::time_point first = start;
  size_t count = 0;
  const auto on_token = [&](int32_t id) {
    if (count++ == 0) first = Clock::now();
    if (stream)
      show(stops.Feed(stream->Push(id)));
    else
      show(fmt::format("{}{}", count > 1 ? "," : "", id));
    return !stops.stopped_by() && !WasInterrupted();
  };
  LS_TRY(const GenerateResult result,
         Generate(decoder, ids.subspan(kept), *request.config, on_token, ids.first(kept)));
  const auto end = Clock::now();
  if (stream) {
    show(stops.Feed(stream->Flush()));
    show(stops.Finish());
  }
  answer.ids = result.ids;
  answer.seed = result.seed;
  answer.interrupted = WasInterrupted();
  answer.ended_by = stops.stopped_by()   ? "stop string"
                    : answer.interrupted ? "Ctrl-C"
                                         : std::string(Words(result.reason));
  answer.prefill_seconds = Seconds(start, count > 0 ? first : end);
  answer.decode_seconds = Seconds(count > 0 ? first : end, end);
  return answer;
}

}  // namespace lockstep
