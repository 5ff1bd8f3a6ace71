#include "cli/engine_flags.h"

#include "cli/options.h"
#include "formats/describe.h"

namespace lockstep {

void EngineFlags::AddTo(CLI::App& verb) {
  auto* precision =
      verb.add_option(
              "--activations", activations,
              "Of the engine: int8 in front of quantized matrices and bf16 in front of bf16 "
              "ones; bf16 in front of bf16 ones alone; or fp32")
          ->check(CLI::IsMember({"int8", "bf16", "fp32"}))
          ->type_name("int8|bf16|fp32")
          ->capture_default_str();
  const auto known = [](const std::string& name) -> std::string {
    if (KvTypeNamed(name)) return "";
    return fmt::format("expected fp32, fp16, bf16, q16 or q8, found {}", Quoted(name));
  };
  auto* cache =
      verb.add_option("--kv", kv,
                      "What the engine keeps keys and values as (default: its own choice)")
          ->check(known)
          ->type_name("TYPE");
  verb.add_option("--threads", threads, "Threads to compute with (0: all cores)")
      ->check(WholeNumber(0, 1024))
      ->type_name("N");
  only_engine_ = {precision, cache};
}

std::string EngineFlags::FirstGiven() const {
  for (const CLI::Option* option : only_engine_)
    if (option->count() > 0) return option->get_name();
  return "";
}

EngineOptions EngineFlags::Options() const {
  EngineOptions options{.threads = ThreadCount(threads)};
  options.activations = *ActivationsNamed(activations);
  options.kv = KvTypeNamed(kv);
  return options;
}

}  // namespace lockstep
