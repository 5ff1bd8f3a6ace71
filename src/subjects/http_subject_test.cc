// Servers as candidates: a few lines of HTTP on a thread that answer as they are told.
#include "subjects/http_subject.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include "verify/verify.h"

namespace lockstep {
namespace {

const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };

struct Reply {
  int status = 200;
  std::string body;
  std::string headers = {};
  bool hang = false;
};

// One connection at a time, one request a connection.
class Server {
 public:
  using Handler = std::function<Reply(const std::string& path, const std::string& body)>;

  explicit Server(Handler handler) : handler_(std::move(handler)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Loop(); });
  }
  ~Server() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  std::string url() const { return fmt::format("http://127.0.0.1:{}/v1", port_); }
  std::vector<std::string> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  void Loop() {
    while (!stopping_) {
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) break;
      Answer(client);
      close(client);
    }
  }
  void Answer(int client) {
    std::string text;
    std::array<char, 4096> buffer;
    size_t head = std::string::npos, length = 0;
    while (head == std::string::npos || text.size() < head + 4 + length) {
      const ssize_t n = recv(client, buffer.data(), buffer.size(), 0);
      if (n <= 0) return;
      text.append(buffer.data(), static_cast<size_t>(n));
      head = text.find("\r\n\r\n");
      const size_t at = text.find("Content-Length: ");
      if (at != std::string::npos && at < head) length = std::stoul(text.substr(at + 16));
    }
    {
      const std::lock_guard lock(mutex_);
      seen_.push_back(text);
    }
    const size_t space = text.find(' ');
    const std::string path = text.substr(space + 1, text.find(' ', space + 1) - space - 1);
    const Reply reply = handler_(path, text.substr(head + 4));
    if (reply.hang) {
      // Until the other side gives up.
      recv(client, buffer.data(), buffer.size(), 0);
      return;
    }
    const std::string out =
        fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}",
                    reply.status, reply.body.size(), reply.headers, reply.body);
    for (size_t sent = 0; sent < out.size();) {
      const ssize_t n = send(client, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::vector<std::string> seen_;
  std::thread thread_;
};

constexpr const char* kModels = R"({"data": [{"id": "small"}, {"id": "large"}]})";

// The model of these tests: after a token t, id (t + 1) % 4 has logit 2, the others 0.5, 0.25, 0.
std::vector<double> LogitsAfter(int32_t token) {
  std::vector<double> row(4);
  const std::array<double, 4> values = {2, 0.5, 0.25, 0};
  for (size_t i = 0; i < 4; ++i) row[(static_cast<size_t>(token) + 1 + i) % 4] = values[i];
  return row;
}

class Model : public Subject {
 public:
  std::string Name() const override { return "model"; }
  Abilities Can() const override { return {.any_prompt = true}; }
  int64_t vocab_size() const override { return 4; }
  Result<PromptTrace> Run(const Probe& probe, const Progress&) override {
    PromptTrace run{.name = probe.name};
    run.ids = probe.ids;
    int32_t token = probe.ids.back();
    for (int64_t k = 0; k < probe.steps; ++k) {
      run.steps[k] = TraceTensor{{4}, LogitsAfter(token)};
      token = (token + 1) % 4;
      run.greedy.push_back(token);
    }
    run.noise = 1e-7;
    return run;
  }
};

// What a server says of greedy steps: llama-server's form (ids), or OpenAI's older one (texts that
// hold ids, as vLLM gives when asked to).
Json Completion(const Json& request, bool with_ids, double off) {
  const auto ids = request["prompt"].get<std::vector<int32_t>>();
  int32_t token = ids.back();
  Json content = Json::array(), tokens = Json::array(), values = Json::array(),
       tops = Json::array();
  for (int k = 0; k < request["max_tokens"].get<int>(); ++k) {
    const std::vector<double> row = LogitsAfter(token);
    token = (token + 1) % 4;
    double sum = 0;
    for (const double x : row) sum += std::exp(x);
    const auto at = [&](int32_t id) {
      return row[static_cast<size_t>(id)] - std::log(sum) + (k == 1 ? off : 0);
    };
    const int32_t second = (token + 1) % 4;
    content.push_back({{"id", token},
                       {"token", "t"},
                       {"logprob", at(token)},
                       {"top_logprobs",
                        {{{"id", token}, {"token", "t"}, {"logprob", at(token)}},
                         {{"id", second}, {"token", "u"}, {"logprob", at(second)}}}}});
    const auto name = [](int32_t id) { return fmt::format("token_id:{}", id); };
    tokens.push_back(name(token));
    values.push_back(at(token));
    tops.push_back({{name(token), at(token)}, {name(second), at(second)}});
  }
  const Json logprobs =
      with_ids ? Json{{"content", content}}
               : Json{{"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", tops}};
  return {{"choices", {{{"text", "x"}, {"logprobs", logprobs}, {"finish_reason", "length"}}}},
          {"usage", {{"prompt_tokens", ids.size()}}}};
}

Server::Handler Good(bool with_ids, double off = 0) {
  return [=](const std::string& path, const std::string& body) -> Reply {
    if (path == "/v1/models") return {.body = kModels};
    if (path == "/v1/completions")
      return {.body = Completion(Json::parse(body), with_ids, off).dump()};
    return {.status = 404, .body = "{}"};
  };
}

Result<Verification> VerifyAgainst(Server& server, std::string key = "",
                                   std::chrono::seconds timeout = std::chrono::seconds(60)) {
  LS_TRY(const auto subject, HttpSubject::Open(server.url(), std::move(key), timeout));
  Model model;
  VerifyOptions options;
  options.prompts.push_back({"ids", "", {1, 2}});
  options.steps = 3;
  return Verify(model, *subject, options, kGoOn);
}

TEST(HttpSubject, ShownLogProbabilitiesAreComparedInBothForms) {
  for (const bool with_ids : {true, false}) {
    Server server(Good(with_ids));
    const auto v = VerifyAgainst(server);
    ASSERT_TRUE(v) << v.error().message;
    EXPECT_EQ(v->verdict, Verdict::kMatch) << v->sentence;
    EXPECT_NE(v->candidate.find("small"), std::string::npos);
    ASSERT_EQ(v->prompts.size(), 1u);
    EXPECT_EQ(v->prompts[0].greedy_equal, 3);
    EXPECT_EQ(v->prompts[0].steps.size(), 3u);
    EXPECT_TRUE(v->prompts[0].shown_only);
    std::string notes = fmt::format("{}", fmt::join(v->notes, "\n"));
    EXPECT_NE(notes.find("of the 2 most probable"), std::string::npos) << notes;
    EXPECT_NE(notes.find("no /tokenize"), std::string::npos) << notes;
    EXPECT_NE(notes.find("positions inside the prompts were not seen"), std::string::npos) << notes;
    EXPECT_NE(notes.find("in a padded batch were not seen"), std::string::npos) << notes;
  }
}

TEST(HttpSubject, AnotherLogProbabilityDiffersAtItsStep) {
  Server server(Good(true, -0.01));
  const auto v = VerifyAgainst(server);
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->verdict, Verdict::kDiffers);
  EXPECT_NE(v->prompts[0].sentence.find("greedy step 1"), std::string::npos)
      << v->prompts[0].sentence;
  EXPECT_NEAR(v->prompts[0].max_abs(), 0.01, 1e-6);
}

TEST(HttpSubject, FieldsThatAServerRefusesAreLeftOut) {
  const auto good = Good(true);
  Server server([&](const std::string& path, const std::string& body) -> Reply {
    if (body.find("ignore_eos") != std::string::npos || body.find("\"logprobs\":20") != body.npos)
      return {.status = 400, .body = R"({"error": {"message": "unknown field"}})"};
    return good(path, body);
  });
  const auto v = VerifyAgainst(server);
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->verdict, Verdict::kMatch) << v->sentence;
}

TEST(HttpSubject, AServerOfChatsAloneIsAskedByChat) {
  for (const size_t read : {2u, 3u}) {
    Server server([&](const std::string& path, const std::string& body) -> Reply {
      if (path == "/v1/models") return {.body = kModels};
      if (path != "/v1/chat/completions") return {.status = 404, .body = ""};
      Json request = Json::parse(body);
      EXPECT_EQ(request["messages"][0]["content"], "hi");
      request["prompt"] = {1, 2};
      Json answer = Completion(request, true, 0);
      answer["usage"]["prompt_tokens"] = read;
      return {.body = answer.dump()};
    });
    const auto subject = HttpSubject::Open(server.url(), "", std::chrono::seconds(60));
    ASSERT_TRUE(subject);
    Probe probe{.name = "p", .text = "hi", .rendered = "<user>hi"};
    probe.ids = {1, 2};
    probe.steps = 2;
    const auto run = (*subject)->Run(probe, kGoOn);
    EXPECT_EQ(run.has_value(), read == 2);
    if (run) {
      EXPECT_EQ(run->greedy, (std::vector<int32_t>{3, 0}));
      EXPECT_NE(fmt::format("{}", fmt::join((*subject)->Notes(), "\n")).find("asked by chat"),
                std::string::npos);
    } else {
      EXPECT_NE(run.error().message.find("read 3 tokens of a prompt of 2"), std::string::npos);
    }
  }
}

TEST(HttpSubject, TheKeyIsSentAndTheModelChosen) {
  Server server(Good(true));
  const auto subject =
      HttpSubject::Open(server.url() + "#large", "secret", std::chrono::seconds(60));
  ASSERT_TRUE(subject);
  ASSERT_TRUE((*subject)->Prepare(kGoOn));
  EXPECT_NE((*subject)->Name().find("large"), std::string::npos);
  EXPECT_NE(server.seen().front().find("Authorization: Bearer secret\r\n"), std::string::npos);
  const auto none = HttpSubject::Open(server.url() + "#huge", "", std::chrono::seconds(60));
  const Status prepared = (*none)->Prepare(kGoOn);
  ASSERT_FALSE(prepared);
  EXPECT_NE(prepared.error().message.find("\"small\""), std::string::npos);
  EXPECT_FALSE(HttpSubject::Open(server.url(), "a\r\nX: y", std::chrono::seconds(60)));
  EXPECT_FALSE(HttpSubject::Open("http://127.0.0.1:1/", "", std::chrono::seconds(60)));
}

TEST(HttpSubject, WhereTheServerTokenizesAndRendersThatIsAsked) {
  Server server([](const std::string& path, const std::string&) -> Reply {
    if (path == "/v1/models") return {.body = kModels};
    if (path == "/tokenize") return {.body = R"({"tokens": [7, 8]})"};
    if (path == "/apply-template") return {.body = R"({"prompt": "<user>a"})"};
    return {.status = 404, .body = ""};
  });
  const auto subject = HttpSubject::Open(server.url(), "", std::chrono::seconds(60));
  ASSERT_TRUE(subject && (*subject)->Prepare(kGoOn));
  EXPECT_TRUE((*subject)->Can().tokenizes && (*subject)->Can().renders_chat);
  EXPECT_EQ(*(*subject)->Tokenize({"a", true}), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(*(*subject)->RenderChat("a"), "<user>a");
}

TEST(HttpSubject, WhateverAServerAnswersIsAVerdict) {
  const auto with = [](const std::string& completion) {
    return [=](const std::string& path, const std::string&) -> Reply {
      if (path == "/v1/models") return {.body = kModels};
      if (path == "/v1/completions") return {.body = completion};
      return {.status = 404, .body = ""};
    };
  };
  const auto content = [](const std::string& entry) {
    return R"({"choices": [{"finish_reason": "length", "logprobs": {"content": [)" + entry +
           "]}}]}";
  };
  struct Case {
    Server::Handler handler;
    std::string words;
  };
  const std::vector<Case> cases = {
      {with("garbage"), "not valid JSON"},
      {with("{}"), "no logprobs"},
      {with(R"({"choices": []})"), "no logprobs"},
      {with(R"({"choices": [{"logprobs": null}]})"), "no logprobs"},
      {with(content("")), "no step"},
      {with(content(R"({"id": 3, "logprob": null})")), "null"},
      {with(content(R"({"id": 3, "logprob": 5})")), "as the log-probability"},
      {with(content(R"({"id": 3, "token": "a", "logprob": -0.1})")), "gave 1 tokens"},
      {with(content(R"({"token": "a\u0000b", "logprob": -0.1})")), "id cannot be found"},
      {with(content(R"({"id": -3, "token": "a", "logprob": -0.1})")), "id cannot be found"},
      {with(content("7")), "id cannot be found"},
      {with(R"({"usage": {"prompt_tokens": 9}})"), "read 9 tokens"},
      {[](const std::string&, const std::string&) { return Reply{.status = 500, .body = "x"}; },
       "status 500"},
      {[](const std::string&, const std::string&) {
         return Reply{.status = 401, .body = R"({"error": "who are you?"})"};
       },
       "LOCKSTEP_API_KEY"},
      {[](const std::string&, const std::string&) {
         return Reply{.status = 302, .headers = "Location: http://127.0.0.1:1/\r\n"};
       },
       "status 302"},
      {[](const std::string&, const std::string&) {
         return Reply{.body = std::string((size_t{64} << 20) + 1, 'x')};
       },
       "more than 67108864 bytes"},
      {[](const std::string&, const std::string&) { return Reply{.body = R"({"data": 3})"}; },
       "names no model"},
  };
  for (const Case& c : cases) {
    Server server(c.handler);
    const auto v = VerifyAgainst(server);
    ASSERT_TRUE(v) << v.error().message;
    EXPECT_EQ(v->verdict, Verdict::kSubjectFailed) << c.words;
    EXPECT_NE(v->sentence.find(c.words), std::string::npos) << c.words << "\n" << v->sentence;
  }
}

TEST(HttpSubject, AnIdOutsideTheVocabularyIsAnotherModel) {
  Server server([](const std::string& path, const std::string& body) -> Reply {
    if (path == "/v1/models") return {.body = kModels};
    if (path != "/v1/completions") return {.status = 404, .body = ""};
    Json answer = Completion(Json::parse(body), true, 0);
    for (Json& entry : answer["choices"][0]["logprobs"]["content"])
      entry["top_logprobs"][1]["id"] = 99;
    return {.body = answer.dump()};
  });
  const auto v = VerifyAgainst(server);
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->verdict, Verdict::kDiffers);
  EXPECT_NE(v->sentence.find("logits differ"), std::string::npos) << v->sentence;
  EXPECT_NE(v->prompts[0].sentence.find("token id 99"), std::string::npos);
}

// As llama-server does with tokens that end inside a character.
TEST(HttpSubject, TokensThatAServerHidesAreNotComparedAndShiftNothing) {
  for (const bool tells : {true, false}) {
    Server server([&](const std::string& path, const std::string& body) -> Reply {
      if (path == "/v1/models") return {.body = kModels};
      if (path != "/v1/completions") return {.status = 404, .body = ""};
      Json answer = Completion(Json::parse(body), true, 0);
      Json& content = answer["choices"][0]["logprobs"]["content"];
      Json tokens = Json::array();
      for (Json& entry : content) {
        tokens.push_back(entry["id"]);
        entry["bytes"] = {1};
        for (Json& top : entry["top_logprobs"]) top["bytes"] = {1};
      }
      content.erase(1);  // its byte is told with the next
      content[1]["bytes"] = {1, 1};
      if (tells) answer["__verbose"] = {{"tokens", tokens}};
      answer["usage"]["completion_tokens"] = tokens.size();
      return {.body = answer.dump()};
    });
    const auto v = VerifyAgainst(server);
    ASSERT_TRUE(v) << v.error().message;
    EXPECT_EQ(v->verdict, Verdict::kMatch) << v->prompts[0].sentence;
    EXPECT_EQ(v->prompts[0].greedy_compared, tells ? 3 : 1);
    EXPECT_EQ(v->prompts[0].steps.size(), tells ? 2u : 1u);
    EXPECT_EQ(v->prompts[0].steps.back().step, tells ? 2 : 0);
    EXPECT_NE(fmt::format("{}", fmt::join(v->notes, "\n")).find("hides tokens"), std::string::npos);
  }
}

TEST(HttpSubject, AServerThatHangsIsGivenUp) {
  Server server([](const std::string&, const std::string&) { return Reply{.hang = true}; });
  const auto v = VerifyAgainst(server, "", std::chrono::seconds(1));
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->verdict, Verdict::kSubjectFailed);
  EXPECT_NE(v->sentence.find("no answer in time"), std::string::npos) << v->sentence;
  const auto subject = HttpSubject::Open(server.url(), "", std::chrono::seconds(600));
  const Status stopped =
      (*subject)->Prepare([](std::string_view, int64_t, int64_t) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_TRUE(IsInterrupted(stopped.error()));
}

TEST(HttpSubject, NobodyThereIsAVerdict) {
  std::string url;
  {
    Server gone(Good(true));
    url = gone.url();
  }
  const auto subject = HttpSubject::Open(url, "", std::chrono::seconds(60));
  Model model;
  VerifyOptions options;
  options.prompts.push_back({"ids", "", {1, 2}});
  const auto v = Verify(model, **subject, options, kGoOn);
  ASSERT_TRUE(v);
  EXPECT_EQ(v->verdict, Verdict::kSubjectFailed);
  EXPECT_NE(v->sentence.find("no answer"), std::string::npos) << v->sentence;
}

}  // namespace
}  // namespace lockstep
