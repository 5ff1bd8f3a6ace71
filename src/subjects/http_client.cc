#include "subjects/http_client.h"

#include <curl/curl.h>

#include <memory>

#include "base/quoted.h"
#include "verify/subject.h"

namespace lockstep {
namespace {

struct Incoming {
  const HttpRequest* request;
  std::string body;
  bool too_large = false, stopped = false;
};

size_t OnBody(char* data, size_t size, size_t count, void* user) {
  auto& in = *static_cast<Incoming*>(user);
  const size_t bytes = size * count;
  if (bytes > in.request->largest_answer - in.body.size()) {
    in.too_large = true;
    return 0;
  }
  in.body.append(data, bytes);
  return bytes;
}

int OnProgress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& in = *static_cast<Incoming*>(user);
  in.stopped = in.request->go_on && !in.request->go_on();
  return in.stopped ? 1 : 0;
}

// libcurl asks to be set up once, before any thread uses it.
bool IsSetUp() {
  static const bool kDone = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return kDone;
}

}  // namespace

Result<HttpAnswer> Ask(const HttpRequest& request) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle(
      IsSetUp() ? curl_easy_init() : nullptr, &curl_easy_cleanup);
  if (handle == nullptr) return InputError("{}: libcurl cannot be used", request.url);
  CURL* const curl = handle.get();
  Incoming in{.request = &request};

  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      curl_slist_append(nullptr, "Accept: application/json"), &curl_slist_free_all);
  const auto add = [&](const std::string& header) {
    headers.reset(curl_slist_append(headers.release(), header.c_str()));
  };
  add("Content-Type: application/json");
  add("Expect:");  // some servers never answer "100-continue"
  if (!request.key.empty()) add("Authorization: Bearer " + request.key);

  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, 10'000L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()));
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "lockstep");
  if (request.json) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.json->size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.json->data());
  }
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &in);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &OnProgress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &in);

  const CURLcode code = curl_easy_perform(curl);
  if (in.stopped) return tl::unexpected(Interrupted());
  if (in.too_large)
    return InputError("{}: answered with more than {} bytes", request.url, request.largest_answer);
  if (code == CURLE_OPERATION_TIMEDOUT)
    return InputError("{}: no answer in time (--timeout)", request.url);
  if (code != CURLE_OK)
    return InputError("{}: no answer: {}", request.url, OneLine(curl_easy_strerror(code), 200));
  HttpAnswer answer;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
  answer.body = std::move(in.body);
  return answer;
}

}  // namespace lockstep
