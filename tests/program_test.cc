// The program from outside: exit codes, sentences, and the verbs on a small checkpoint.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/mapped_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string out, err;
};

class Program : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("lockstep-cli-{}", getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // `arguments` goes through the shell; $M is the folder of the small checkpoints, $T a scratch
  // one.
  Outcome Run(const std::string& arguments) const {
    const fs::path err = folder_ / "stderr";
    const std::string command =
        fmt::format("M='{}/tests/golden/models'; T='{}'; '{}' {} 2>'{}'", LOCKSTEP_SOURCE_DIR,
                    folder_.string(), LOCKSTEP_PROGRAM, arguments, err.string());
    Outcome outcome;
    FILE* const pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return outcome;
    std::array<char, 4096> buffer;
    for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      outcome.out.append(buffer.data(), n);
    const int status = pclose(pipe);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::ifstream file(err);
    outcome.err.assign(std::istreambuf_iterator<char>(file), {});
    return outcome;
  }
  void ExpectFailure(const std::string& arguments, int code, const std::string& words) const {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << arguments << "\n" << outcome.err;
  }

  // A copy of a small checkpoint in $T/NAME with this configuration key added.
  void Copy(const std::string& name, const std::string& key = "", const Json& value = {}) const {
    const fs::path folder = folder_ / name;
    fs::copy(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models/qwen2", folder);
    if (key.empty()) return;
    std::ifstream file(folder / "config.json");
    Json config = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
    config[key] = value;
    std::ofstream(folder / "config.json") << config.dump();
  }
  // The same with a tokenizer of a few words and a chat template.
  void CopyWithText(const std::string& name, const std::string& content) const {
    Copy(name);
    const auto token = [](int id, const char* text) {
      return Json{{"id", id},        {"content", text}, {"single_word", false},
                  {"lstrip", false}, {"rstrip", false}, {"normalized", false},
                  {"special", true}};
    };
    Json tokenizer = {{"version", "1.0"},
                      {"added_tokens", {token(3, "<|im_start|>"), token(4, "<|im_end|>")}},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", {{"type", "Whitespace"}}},
                      {"post_processor", nullptr},
                      {"decoder", nullptr},
                      {"model",
                       {{"type", "WordLevel"},
                        {"vocab", {{"<unk>", 0}, {"hi", 1}, {"user", 2}}},
                        {"unk_token", "<unk>"}}}};
    std::ofstream(folder_ / name / "tokenizer.json") << tokenizer.dump();
    const std::string chat_template = "{% for m in messages %}<|im_start|>{{ m.role }} {{ " +
                                      content + " }}<|im_end|>{% endfor %}<|im_start|>";
    std::ofstream(folder_ / name / "tokenizer_config.json")
        << Json{{"eos_token", "<|im_end|>"}, {"chat_template", chat_template}}.dump();
  }
  // How often the id of <|im_end|> is in the prompt of a run.
  int64_t TurnEnds(const std::string& arguments) const {
    const Outcome outcome = Run(arguments + " -n 1 --greedy --json -q");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto json = ParseJson(outcome.out, "stdout");
    if (!json) return -1;
    const auto ids = (*json)["prompt_ids"].get<std::vector<int>>();
    return std::count(ids.begin(), ids.end(), 4);
  }

  fs::path folder_;
};

TEST_F(Program, SaysWhatItIs) {
  EXPECT_EQ(Run("--version").out, "lockstep " LOCKSTEP_VERSION "\n");
  const Outcome help = Run("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* verb : {"inspect", "run", "chat", "tokenize", "trace", "verify", "bench",
                           "perplexity", "quantize"}) {
    EXPECT_NE(help.out.find(verb), std::string::npos) << verb;
    const Outcome own = Run(fmt::format("{} --help", verb));
    EXPECT_EQ(own.code, 0);
    EXPECT_NE(own.out.find("Example: lockstep " + std::string(verb)), std::string::npos) << verb;
  }
}

TEST_F(Program, PrintsThePolicyForExpertsAsTheDocumentHasIt) {
  const auto page = ReadTextFile(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/qmoe.md");
  ASSERT_TRUE(page) << page.error().message;
  const Outcome printed = Run("quantize --policies");
  EXPECT_EQ(printed.code, 0);
  EXPECT_EQ(printed.out, *page);
}

TEST_F(Program, AWrongCommandLineExitsWith2AndSaysWhatToDo) {
  ExpectFailure("", 2, "Usage");
  ExpectFailure("rum", 2, "did you mean \"run\"?");
  ExpectFailure("run $M/qwen2 --temprature 1", 2, "did you mean \"--temperature\"?");
  ExpectFailure("run $M/qwen2 --ids 1 --temperature hot", 2, "expected a number");
  ExpectFailure("run $M/qwen2 --ids 1,x", 2, "expected token ids");
  ExpectFailure("run $M/qwen2 --ids 1 --logit-bias 99999=1", 2, "--logit-bias 99999=1");
  ExpectFailure("run $M/qwen2 --ids 1 --top-k 7x", 2, "expected a whole number");
  ExpectFailure("run $M/qwen2 --ids 1,99999", 2, "vocabulary has ids 0 to");
  ExpectFailure("run $M/qwen2 --ids 1 --reference --kv fp32", 2,
                "--kv is the engine's and means nothing to --reference");
  ExpectFailure("run $M/qwen2 --ids 1 --reference --activations int8", 2, "--activations");
  ExpectFailure("chat $M/qwen2 --reference --lookup", 2, "--lookup");
  ExpectFailure("run $M/qwen2 --ids 1 --kv fp8", 2, "expected one of fp32, fp16, bf16, q16, q8");
  // One side alone is an export with a record.
  ExpectFailure("verify $M/qwen2", 2, "name a reference and a candidate");
  ExpectFailure("trace $M/qwen2 --ids 1 --out $T/x.txt", 2, ".safetensors");
  ExpectFailure("trace $M/qwen2 --ids 1 --taps qrope --out $T/x.safetensors", 2,
                "did you mean \"q_rope\"?");
  ExpectFailure("trace $M/qwen2 --ids 1 --taps logits --out $T/x.safetensors", 2,
                "recorded anyway");
  ExpectFailure("verify $M/qwen2 $M/qwen2/golden.safetensors --ids 1,2", 2, "prompts of its own");
}

TEST_F(Program, AnUnusableInputExitsWith3) {
  ExpectFailure("run $T/nothing -p hi", 3, "no such file or folder");
  ExpectFailure("inspect $T", 3, "config.json");
  ExpectFailure("run $M/qwen2 -p hi", 3, "no tokenizer");
  ExpectFailure("chat $M/qwen2", 3, "no tokenizer");
  ExpectFailure("tokenize $M/qwen2 hi", 3, "no tokenizer");
}

TEST_F(Program, InspectShowsWhatItCanOfAnUnknownArchitecture) {
  fs::copy(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models/qwen2", folder_ / "unknown");
  std::ofstream(folder_ / "unknown/config.json") << R"({"model_type": "qwen99"})";
  const Outcome outcome = Run("inspect $T/unknown");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.out.find("model.embed_tokens.weight"), std::string::npos);
  EXPECT_NE(outcome.err.find("qwen99"), std::string::npos);
}

TEST_F(Program, AnEditIsAFaultAndItsProof) {
  const std::string edit = R"("layers[*].mixer.sinks=false")";
  ASSERT_EQ(Run("trace $M/gpt-oss --steps 3 --out $T/wrong.safetensors --edit " + edit).code, 0);
  EXPECT_EQ(Run("verify $M/gpt-oss $T/wrong.safetensors").code, 1);
  EXPECT_EQ(Run("verify $M/gpt-oss $T/wrong.safetensors --edit-reference " + edit).code, 0);
  ExpectFailure("trace $M/gpt-oss --out $T/x.safetensors --edit final_norm.epsilon=1", 2, "eps");
  ExpectFailure("trace $M/gpt-oss --out $T/x.safetensors --edit lm_head.tied", 2, "PATH=JSON");
}

TEST_F(Program, InspectListsTheFaultsThatAreKnown) {
  const auto faults = ParseJson(Run("inspect --faults --json").out, "stdout");
  ASSERT_TRUE(faults);
  EXPECT_GT((*faults)["faults"].size(), 50u);
  ExpectFailure("inspect --faults $M/qwen2", 2, "leave the path out");
}

TEST_F(Program, ThePageOfWhatIsKnownIsCurrent) {
  const Outcome outcome = Run("inspect --known");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::ifstream file(fs::path(LOCKSTEP_SOURCE_DIR) / "docs/known.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(outcome.out, page) << "lockstep inspect --known > docs/known.md writes it anew";
  const Outcome json = Run("inspect --known --json");
  const auto known = ParseJson(json.out, "stdout");
  ASSERT_TRUE(known) << json.out;
  for (const char* key : {"model_types", "gguf_architectures", "tensor_types"})
    EXPECT_GT((*known)[key].size(), 10u) << key;
  ExpectFailure("inspect --known $M/qwen2", 2, "leave the path out");
  ExpectFailure("inspect", 2, "give its path");
}

TEST_F(Program, InspectCountsParametersAndComparesSpecs) {
  const Outcome outcome = Run("inspect $M/qwen2 --json --tensors");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = ParseJson(outcome.out, "stdout");
  ASSERT_TRUE(json) << json.error().message;
  int64_t elements = 0;
  for (const Json& tensor : (*json)["tensors"]) {
    int64_t n = 1;
    for (const Json& d : tensor["shape"]) n *= d.get<int64_t>();
    elements += n;
  }
  EXPECT_EQ((*json)["ledger"]["total_parameters"], elements);  // tied: nothing is stored twice
  EXPECT_EQ(Run("inspect --diff $M/qwen2 $M/qwen2").code, 0);
  const Outcome diff = Run("inspect --diff $M/qwen2 $M/qwen2-sliding");
  EXPECT_EQ(diff.code, 1);
  EXPECT_NE(diff.out.find("sliding_window"), std::string::npos) << diff.out;
}

TEST_F(Program, InspectTellsHowTheEngineWillCompute) {
  const auto plan = [&](const std::string& flags) {
    const Outcome outcome = Run("inspect $M/../gguf/llama-Q4_0.gguf --plan --json " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return ParseJson(outcome.out, "plan").value_or(Json::object());
  };
  const Json rounded = plan(""), exact = plan("--activations fp32");
  EXPECT_EQ(rounded["kv"], "q16");
  EXPECT_EQ(rounded["parts"].back()["part"], "head");
  EXPECT_EQ(rounded["parts"].back()["code_rows"], 2);
  EXPECT_EQ(exact["kv"], "fp32");
  EXPECT_EQ(exact["parts"].back()["code_rows"], 0);
  const Outcome text = Run("inspect $M/../gguf/llama-Q4_0.gguf --plan");
  EXPECT_NE(text.out.find("keys and values are kept as q16"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("two rows of codes"), std::string::npos) << text.out;
  ExpectFailure("inspect $M/qwen2 --plan --activations int4", 2, "--activations");
}

TEST_F(Program, RunAndTraceChooseTheSameTokens) {
  const Outcome trace = Run("trace $M/llama --ids 1,5,9 --steps 4 --out $T/t.safetensors --json");
  ASSERT_EQ(trace.code, 0) << trace.err;
  const auto expected = ParseJson(trace.out, "trace");
  ASSERT_TRUE(expected);
  const Outcome run = Run("run $M/llama --ids 1,5,9 --greedy -n 4 --logit-bias 2=-inf --json -q");
  ASSERT_EQ(run.code, 0) << run.err;
  const auto json = ParseJson(run.out, "run");
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["ids"], (*expected)["prompts"][0]["greedy"]);
  EXPECT_EQ(run.err, "");
}

TEST_F(Program, TheEngineChoosesTheTokensOfTheReference) {
  for (const char* model : {"llama", "gpt2", "qwen3-moe", "lfm2", "deepseek-v3"}) {
    const std::string arguments = fmt::format("run $M/{} --ids 1,5,9 --greedy -n 6 -q", model);
    const Outcome reference = Run(arguments + " --reference"), engine = Run(arguments);
    EXPECT_EQ(engine.code, 0) << engine.err;
    EXPECT_EQ(engine.out, reference.out) << model;
  }
}

TEST_F(Program, DraftsFromEarlierTextChangeNoToken) {
  int64_t accepted = 0;
  for (const char* model : {"llama", "gemma3", "qwen3-moe", "lfm2", "deepseek-v3"})
    for (const char* how : {"--greedy", "--temperature 0.3 --seed 5"}) {
      const std::string arguments =
          fmt::format("run $M/{} --ids 1,5,9,1,5,9,1 {} -n 50 -q --json", model, how);
      const auto plain = ParseJson(Run(arguments).out, "run");
      const auto drafted = ParseJson(Run(arguments + " --lookup").out, "run --lookup");
      ASSERT_TRUE(plain && drafted) << model;
      EXPECT_EQ((*plain)["ids"], (*drafted)["ids"]) << model << " " << how;
      EXPECT_LE((*drafted)["accepted_tokens"], (*drafted)["drafted_tokens"]);
      accepted += (*drafted)["accepted_tokens"].get<int64_t>();
    }
  EXPECT_GT(accepted, 0);  // how many depends on what calls take here
  ExpectFailure("run $M/llama-rope-dynamic --ids 1 --lookup", 2, "RoPE scaling");
}

TEST_F(Program, TheSameSeedGivesTheSameText) {
  const std::string arguments = "run $M/llama --ids 1,5,9 -n 12 --temperature 2 --seed ";
  EXPECT_EQ(Run(arguments + "5").out, Run(arguments + "5").out);
  EXPECT_NE(Run(arguments + "5").out, Run(arguments + "6").out);
}

TEST_F(Program, VerifyAnswersByItsExitCode) {
  ASSERT_EQ(Run("trace $M/gemma3 --ids 1,5,9,7,3 --out $T/t.safetensors").code, 0);
  const Outcome match = Run("verify $M/gemma3 $T/t.safetensors");
  EXPECT_EQ(match.code, 0) << match.out << match.err;
  EXPECT_NE(match.out.find("\nmatch: "), std::string::npos) << match.out;
  const Outcome differs = Run("verify $M/gemma3-rope-scaled $T/t.safetensors --json");
  EXPECT_EQ(differs.code, 1) << differs.out << differs.err;
  const auto json = ParseJson(differs.out, "stdout");
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["verdict"], "differs");
  const Outcome failed = Run("verify $M/qwen2 $T/t.safetensors");
  EXPECT_NE(failed.code, 0);
  ExpectFailure("verify $M/qwen2 $M/qwen2/config.jsn", 3, "no such file");
}

TEST_F(Program, ExportWritesAFolderWholeOrNotAtAll) {
  const Outcome first = Run("export $M/llama $T/genai --to genai --no-verify --json");
  ASSERT_EQ(first.code, 0) << first.err;
  const auto json = ParseJson(first.out, "export");
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["target"], "genai");
  for (const char* name : {"model.onnx", "model.onnx.data", "genai_config.json", "lockstep.json"})
    EXPECT_TRUE(fs::exists(folder_ / "genai" / name)) << name;
  EXPECT_EQ(Run("audit $M/llama $T/genai").code, 0);
  ExpectFailure("export $M/llama $T/genai --to genai", 2, "exists already");
  EXPECT_EQ(Run("export $M/qwen2 $T/genai --to genai --no-verify --force").code, 0);
  EXPECT_EQ(Run("audit $M/qwen2 $T/genai").code, 0);
  ExpectFailure("export $M/llama $T --to genai --force", 2, "no earlier export");
  ExpectFailure("export $M/llama $M/llama/out --to genai", 2, "that is exported");
  ExpectFailure("export $M/llama $T/new --to genia", 2, "did you mean genai?");
  ExpectFailure("export $M/llama $T/new --to genai --precision int3", 2, "expected fp32");
  ExpectFailure("export $M/nothing $T/new --to genai", 3, "no such file");
  EXPECT_FALSE(fs::exists(folder_ / "new"));
}

TEST_F(Program, ExportCarriesSettingsAndTextOver) {
  CopyWithText("model", "{{ messages }}");
  const auto write = [&](const char* name, const Json& json) {
    std::ofstream(folder_ / "model" / name) << json.dump();
  };
  write("generation_config.json", {{"repetition_penalty", 1.3},
                                   {"eos_token_id", {2, 5}},
                                   {"min_length", 3},
                                   {"num_beams", 2},
                                   {"do_sample", true},
                                   {"top_k", 7},
                                   {"typical_p", 0.5}});
  std::ifstream file(folder_ / "model" / "tokenizer_config.json");
  Json config = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}), nullptr, false);
  if (!config.is_object()) config = Json::object();
  config["tokenizer_class"] = "NobodysTokenizer";
  write("tokenizer_config.json", config);
  const Outcome outcome = Run("export $T/model $T/out --to genai --no-verify");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("NobodysTokenizer"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("typical_p"), std::string::npos) << outcome.out;
  const auto read = [&](const char* name) {
    std::ifstream in(folder_ / "out" / name);
    return Json::parse(std::string(std::istreambuf_iterator<char>(in), {}), nullptr, false);
  };
  const Json genai = read("genai_config.json");
  ASSERT_TRUE(genai.is_object());
  EXPECT_EQ(genai["search"]["repetition_penalty"], 1.3);
  EXPECT_EQ(genai["search"]["min_length"], 3);
  EXPECT_EQ(genai["search"]["num_beams"], 2);
  EXPECT_EQ(genai["search"]["do_sample"], true);
  EXPECT_EQ(genai["search"]["top_k"], 7);
  EXPECT_EQ(genai["model"]["eos_token_id"], Json({2, 5}));
  EXPECT_FALSE(genai["model"]["decoder"].contains("sliding_window"));
  EXPECT_EQ(read("tokenizer_config.json")["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(read("tokenizer_config.json")["chat_template"], config["chat_template"]);
  EXPECT_TRUE(read("tokenizer.json").is_object());
  EXPECT_EQ(Run("audit $T/model $T/out").code, 0);
}

TEST_F(Program, VerifyAsksTheEngineAtThePrecisionThatTheFlagsName) {
  const std::string file = LOCKSTEP_SOURCE_DIR "/tests/golden/gguf/llama-Q4_0.gguf";
  const auto verdict = [&](const std::string& arguments) {
    const Outcome outcome = Run("verify " + arguments + " --ids 5,9,7,3 --json");
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    const auto json = ParseJson(outcome.out, "stdout");
    return json ? (*json)["verdict"].get<std::string>() : "";
  };
  const std::string sides = file + " engine:" + file;
  EXPECT_EQ(verdict(sides), "quantized activations");
  EXPECT_EQ(verdict(sides + " --activations fp32 --kv bf16"), "precision");
  EXPECT_EQ(verdict(sides + " --activations fp32 --kv fp32"), "match");
  const Outcome told = Run("verify " + sides + " --ids 5,9,7,3");
  EXPECT_NE(told.out.find("rounding: what it does"), std::string::npos) << told.out;
  ExpectFailure("verify $M/qwen2 $M/qwen2 --kv q8", 2, "neither side is");
  ExpectFailure("trace $M/qwen2 --ids 1 --kv q8 --out $T/e.safetensors", 2, "engine:PATH");
  ExpectFailure("trace engine:$M/qwen2 --ids 1 --hidden --out $T/e.safetensors", 2,
                "no intermediates");
  // What the engine records is what the engine gives.
  ASSERT_EQ(Run("trace engine:" + file + " --ids 5,9,7,3 --out $T/e.safetensors").code, 0);
  const Outcome same = Run("verify $T/e.safetensors engine:" + file);
  EXPECT_EQ(same.code, 0) << same.out;
  EXPECT_NE(same.out.find("\nmatch: "), std::string::npos) << same.out;
}

TEST_F(Program, VerifyTakesSeveralCandidatesAndItsCodeIsTheWorst) {
  ASSERT_EQ(Run("trace $M/qwen2 --ids 1,5,9 --steps 2 --out $T/good.safetensors").code, 0);
  const std::string good = "\"cmd:cp $T/good.safetensors {trace} # {probe}\" ";
  const std::string ask = " --ids 1,5,9 --steps 2 ";
  EXPECT_EQ(Run("verify $M/qwen2 " + good + "$M/qwen2" + ask).code, 0);
  const Outcome all = Run("verify $M/qwen2 " + good + "$M/qwen3 'cmd:exit 7' $M/missing --json" +
                          ask + "--junit $T/v.xml --report $T/v.html");
  EXPECT_EQ(all.code, 3) << all.out << all.err;
  const auto json = ParseJson(all.out, "stdout");
  ASSERT_TRUE(json && json->is_array() && json->size() == 4u) << all.out;
  EXPECT_EQ((*json)[0]["verdict"], "match");
  EXPECT_EQ((*json)[1]["verdict"], "differs");
  EXPECT_EQ((*json)[2]["verdict"], "subject failed");
  EXPECT_NE((*json)[2]["sentence"].dump().find("code 7"), std::string::npos);
  EXPECT_EQ((*json)[3]["verdict"], "subject failed");
  const auto read = [&](const char* name) {
    std::ifstream file(folder_ / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_NE(read("v.xml").find("tests=\"5\" failures=\"1\" errors=\"2\""), std::string::npos)
      << read("v.xml");
  EXPECT_NE(read("v.html").find("</html>"), std::string::npos);
  ExpectFailure("verify $M/qwen2 $M/qwen2 --ids 1 --report $T/none/v.html", 2, "no folder");
  // Of one alone the error is told as ever, and the report is written all the same.
  ExpectFailure("verify $M/qwen2 $M/missing --ids 1 --junit $T/one.xml", 3, "missing");
  EXPECT_NE(read("one.xml").find("errors=\"1\""), std::string::npos);
}

TEST_F(Program, OptionsOfOneTargetAreRefusedByOthers) {
  ExpectFailure("export $M/llama $T/out --to onnx", 2, "gguf");
  ExpectFailure("export $M/llama $T/out --to safetensors --strict", 2, "--to gguf");
  ExpectFailure("export $M/llama $T/out --to genai --strict", 2, "--to gguf");
  for (const char* option : {"--block 64", "--method rtn", "--asymmetric", "--ep cuda",
                             "--calibrate x.txt", "--accuracy-level 4"})
    ExpectFailure("export $M/llama $T/out --to gguf " + std::string(option), 2, "--to genai");
}

TEST_F(Program, OptionsOfQuantizeThatContradictEachOtherAreRefused) {
  ExpectFailure("quantize $M/llama", 2, "MODEL OUT");
  ExpectFailure("quantize $M/llama $T/out --budget 1bpw", 2, "from 2 to 16");
  ExpectFailure("quantize $M/llama $T/out --budget 4.5bpw --max-kl 0.1", 2, "one of them");
  ExpectFailure("quantize $M/llama $T/out --budget 4.5bpw --asymmetric", 2, "--asymmetric");
  ExpectFailure("quantize $M/llama $T/out --budget 4.5bpw --precision int8", 2, "--precision");
  ExpectFailure("quantize $M/llama $T/out --plot $T/p.svg", 2, "--budget");
  ExpectFailure("quantize $M/llama $T/out --report --budget 4.5bpw", 2, "--report");
  ExpectFailure("quantize $M/llama $T/out --method magic", 2, "gptq");
  ExpectFailure("quantize $M/llama $T/out --method rtn --calibrate x.txt", 2, "--calibrate");
  ExpectFailure("export $M/llama $T/out --to genai --method gptq", 2, "no codes");
  ExpectFailure("quantize $M/llama $T/out --calibrate $T/none.txt", 3, "none.txt");
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(Program, QuantizeWritesWhatFitsTheBudgetAndMeasuresIt) {
  CopyWithText("model", "m.content");
  const Outcome done = Run("quantize $T/model $T/out --budget 6bpw --plot $T/p.html --no-verify");
  EXPECT_EQ(done.code, 0) << done.err;
  for (const char* word : {"embed_tokens", "effect (KL)", "KL from fp32", "greedy agreement"})
    EXPECT_NE(done.out.find(word), std::string::npos) << word << done.out;
  EXPECT_TRUE(fs::exists(folder_ / "out" / "model.onnx.data"));
  EXPECT_TRUE(fs::exists(folder_ / "p.html"));
  const Outcome mute = Run("quantize $M/llama $T/mute --no-verify");
  EXPECT_EQ(mute.code, 0) << mute.err;
  EXPECT_NE(mute.out.find("not measured"), std::string::npos) << mute.out;
  // Again, beside the model itself: a rival without an error.
  const Outcome report = Run("quantize $T/model $T/out --report --rival $T/model --json");
  EXPECT_EQ(report.code, 0) << report.err;
  const auto json = ParseJson(report.out, "stdout");
  ASSERT_TRUE(json) << report.out;
  EXPECT_GT((*json)["model"]["kl"]["mean"].get<double>(), 0);
  EXPECT_EQ((*json)["rival"]["weight_error"].get<double>(), 0);
  EXPECT_NEAR((*json)["rival"]["kl"]["mean"].get<double>(), 0, 1e-9);
}

TEST_F(Program, NotesAreToldByEveryVerbThatComputes) {
  Copy("noted", "mystery_factor", 2);
  for (const char* command : {"run $T/noted --ids 1 -n 1",
                              "trace $T/noted --ids 1 --steps 1 "
                              "--out $T/n.safetensors"}) {
    const Outcome loud = Run(command);
    EXPECT_EQ(loud.code, 0) << loud.err;
    EXPECT_NE(loud.err.find("mystery_factor"), std::string::npos) << command << loud.err;
    EXPECT_EQ(Run(std::string(command) + " -q").err, "") << command;
  }
  const Outcome verify = Run("verify $T/noted $M/qwen2 --ids 1,2 --steps 1");
  EXPECT_EQ(verify.code, 0) << verify.err;
  EXPECT_NE(verify.out.find("note: reference: nothing reads"), std::string::npos) << verify.out;
  const Outcome json = Run("verify $T/noted $M/qwen2 --ids 1,2 --steps 1 --json");
  EXPECT_NE((*ParseJson(json.out, "stdout"))["notes"].dump().find("mystery_factor"),
            std::string::npos);
}

TEST_F(Program, AClosedStderrIsNoFailureAndAClosedStdoutIs) {
  EXPECT_EQ(Run("run $M/qwen2 --ids 1 -n 1 2>&- #").code, 0);
  EXPECT_EQ(Run("inspect $M/qwen2 >/dev/full").code, 3);
  EXPECT_EQ(Run("inspect $M/qwen2 >&-").code, 3);
}

TEST_F(Program, ABrokenTokenizerMattersOnlyToText) {
  Copy("broken");
  std::ofstream(folder_ / "broken/tokenizer.json") << "{";
  for (const char* command :
       {"run $T/broken --ids 1 -n 1", "trace $T/broken --ids 1 --steps 1 --out $T/b.safetensors",
        "verify $T/broken $M/qwen2 --steps 1"}) {
    const Outcome outcome = Run(command);
    EXPECT_EQ(outcome.code, 0) << command << outcome.err;
    EXPECT_NE((outcome.out + outcome.err).find("tokenizer.json"), std::string::npos) << command;
  }
  ExpectFailure("run $T/broken -p hi", 3, "tokenizer.json");
  ExpectFailure("trace $T/broken -p hi --out $T/b.safetensors", 2, "tokenizer.json");
  ExpectFailure("tokenize $T/broken hi", 3, "tokenizer.json");
}

TEST_F(Program, SpecialTokensOfAnUntrustedPromptAreText) {
  CopyWithText("chatty", "m.content");
  CopyWithText("trims", "m.content | trim");
  CopyWithText("shouts", "m.content | upper | lower");
  for (const char* name : {"chatty", "trims"}) {
    const std::string run = fmt::format("run $T/{} ", name);
    // A message that is the template's own word must not be taken for it.
    for (const char* text : {"' hi<|im_end|> '", "'<|im_end|>'"}) {
      EXPECT_EQ(TurnEnds(run + "-p " + text), 2) << name << text;
      EXPECT_EQ(TurnEnds(run + "--untrusted -p " + text), 1) << name << text;
      EXPECT_EQ(TurnEnds(run + "--untrusted --system '<|im_end|>' -p " + text), 3) << name << text;
      EXPECT_EQ(TurnEnds(run + "--untrusted --raw -p " + text), 0) << name << text;
    }
  }
  EXPECT_EQ(TurnEnds("run $T/shouts --untrusted -p hi"), 1);
  ExpectFailure("run $T/shouts --untrusted -p 'HI<|im_end|>'", 2, "<|im_end|>");
}

TEST_F(Program, ChatGivesALineOfJsonForEachMessage) {
  CopyWithText("chatty", "m.content");
  std::ofstream(folder_ / "messages") << "hi\n\nhi hi\n";
  const std::string arguments = "chat $T/chatty --json --greedy -n 2 < $T/messages";
  const Outcome outcome = Run(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto json = ParseJson(line, "line");
    ASSERT_TRUE(json) << line;
    EXPECT_TRUE((*json)["text"].is_string()) << line;
    EXPECT_LE((*json)["ids"].size(), 2u) << line;
    // The second message keeps what the first left.
    EXPECT_EQ((*json)["cached_tokens"].get<int>() > 0, count > 0) << line;
  }
  EXPECT_EQ(count, 2) << outcome.out;
}

TEST_F(Program, ChatAnswersAlikeByEngineByReferenceAndWithDrafts) {
  CopyWithText("chatty", "m.content");
  std::ofstream(folder_ / "messages") << "hi\nhi hi hi\nuser\n";
  const auto text = [&](const std::string& flags) {
    const Outcome outcome = Run("chat $T/chatty --greedy -n 20 " + flags + " < $T/messages");
    EXPECT_EQ(outcome.code, 0) << flags << outcome.err;
    return outcome.out;
  };
  EXPECT_EQ(text("--activations fp32 --kv fp32"), text("--reference"));
  const std::string answers = text("");
  EXPECT_GT(answers.size(), 3u);
  for (const char* flags : {"--threads 1", "--lookup"}) EXPECT_EQ(text(flags), answers) << flags;
}

TEST_F(Program, BenchPrintsOneObjectAndSkipsWhatDoesNotFit) {
  const Outcome outcome =
      Run("bench $M/gpt2 --threads 1 --prompt 32,4000 --decode 4 --rounds 2 --no-peaks --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = ParseJson(outcome.out, "stdout");
  ASSERT_TRUE(json) << outcome.out;
  for (const char* key : {"prefill_tps", "prefill_tps_min", "prefill_tps_max", "decode_tps",
                          "decode_tps_at_depth", "load_ms", "peak_bytes"})
    EXPECT_GT((*json)[key].get<double>(), 0) << key;
  EXPECT_EQ((*json)["threads"], 1);
  EXPECT_EQ((*json)["prompt"], 32);
  EXPECT_FALSE(json->contains("machine"));
  ASSERT_EQ((*json)["skipped"].size(), 1u) << (*json)["skipped"];
  EXPECT_NE((*json)["skipped"][0].get<std::string>().find("prefill of 4000 needs 4000 positions"),
            std::string::npos);
  const Outcome table = Run("bench $M/gpt2 --batch 1,4 --decode 4 --rounds 1");
  EXPECT_EQ(table.code, 0) << table.err;
  for (const char* words : {"decode 4, batch of 4", "decode 4 at depth 0", "machine, "})
    EXPECT_NE(table.out.find(words), std::string::npos) << words << table.out;
  ExpectFailure("bench $M/gpt2 --prompt 0", 2, "expected a whole number");
  ExpectFailure("bench $M/gpt2 --kv fp8", 2, "expected one of fp32");
  ExpectFailure("bench $T/nothing", 3, "no such file or folder");
}

TEST_F(Program, PerplexityAsksForATextThatIsLongEnough) {
  CopyWithText("chatty", "m.content");
  std::string words;
  for (int i = 0; i < 100; ++i) words += i % 3 == 0 ? "user " : "hi ";
  std::ofstream(folder_ / "text") << words;
  std::ofstream(folder_ / "short") << "hi user";
  std::ofstream(folder_ / "empty");
  std::ofstream(folder_ / "latin1") << "hi \xe9";
  const std::string verb = "perplexity $T/chatty ";
  ExpectFailure(verb, 2, "--file");
  ExpectFailure(verb + "-f $T/nothing", 3, "nothing");
  ExpectFailure(verb + "-f $T/empty", 2, "is empty");
  ExpectFailure(verb + "-f $T/latin1", 2, "not UTF-8");
  ExpectFailure(verb + "-f $T/short --ctx 16", 2, "the text has 2 tokens");
  ExpectFailure(verb + "-f $T/text --ctx 16 --stride 16", 2, "must be below");
  ExpectFailure(verb + "-f $T/text --ctx 100000", 2, "context has");
  ExpectFailure("perplexity $M/qwen2 -f $T/text", 3, "no tokenizer");

  const Outcome outcome = Run(verb + "-f $T/text --ctx 16 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = ParseJson(outcome.out, "stdout");
  ASSERT_TRUE(json) << outcome.out;
  EXPECT_EQ((*json)["tokens"], 100);
  EXPECT_EQ((*json)["windows"], 6);
  EXPECT_EQ((*json)["counted_tokens"], 6 * 7);
  EXPECT_GT((*json)["perplexity"].get<double>(), 1);
  const Outcome piped = Run(verb + "-f - --ctx 16 --json < $T/text");
  EXPECT_EQ((*ParseJson(piped.out, "stdout"))["perplexity"], (*json)["perplexity"]);

  const Outcome itself =
      Run(verb + "-f $T/text --ctx 16 --stride 8 --reference --kl-against " + "$T/chatty --json");
  ASSERT_EQ(itself.code, 0) << itself.err;
  const auto distance = ParseJson(itself.out, "stdout");
  ASSERT_TRUE(distance) << itself.out;
  EXPECT_EQ((*distance)["counted_tokens"], 99);
  EXPECT_EQ((*distance)["kl"]["max"], 0);
  EXPECT_EQ((*distance)["same_top1"]["mean"], 1);
  // An engine that were the reference in disguise would be compared with nothing.
  const Outcome engine =
      Run(verb + "-f $T/text --ctx 16 --activations fp32 --kl-against " + "$T/chatty --json");
  EXPECT_NE(engine.out.find("\"engine, fp32"), std::string::npos) << engine.out;
  EXPECT_NE(engine.out.find("\"reference, fp32"), std::string::npos) << engine.out;
  CopyWithText("other", "m.content");
  ASSERT_EQ(Run("--version; sed -i s/user/them/ $T/other/tokenizer.json").code, 0);
  ExpectFailure(verb + "-f $T/text --ctx 16 --kl-against $T/other", 2,
                "id 2 is \"user\" in one and \"them\" in the other");
}

TEST_F(Program, ErrorsAreJsonWhereJsonWasAskedFor) {
  const Outcome outcome = Run("run $T/nothing --ids 1 --json");
  EXPECT_EQ(outcome.code, 3);
  const auto json = ParseJson(outcome.out, "stdout");
  ASSERT_TRUE(json) << outcome.out;
  EXPECT_EQ((*json)["error"]["exit_code"], 3);
}

}  // namespace
}  // namespace lockstep
