#include "cli/engine_flags.h"

#include "cli/options.h"
#include "formats/describe.h"

namespace lockstep {

CLI::Option* AddActivations(CLI::App& verb, std::string_view when, std::string& activations) {
  const auto names = ActivationsNames();
  return verb
      .add_option("--activations", activations,
                  fmt::format("{}: {int8} in front of quantized matrices and {bf16} in front of "
                              "bf16 ones; {bf16} in front of bf16 ones alone; or {fp32}",
                              when, fmt::arg("int8", Name(Activations::kInt8)),
                              fmt::arg("bf16", Name(Activations::kBF16)),
                              fmt::arg("fp32", Name(Activations::kF32))))
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())))
      ->type_name(fmt::format("{}", fmt::join(names, "|")))
      ->capture_default_str();
}

void EngineFlags::AddTo(CLI::App& verb) {
  auto* precision = AddActivations(verb, "Of the engine", activations);
  const auto known = [](const std::string& name) -> std::string {
    if (KvTypeNamed(name)) return "";
    return fmt::format("expected one of {}, found {}", fmt::join(KvTypeNames(), ", "),
                       Quoted(name));
  };
  auto* cache =
      verb.add_option("--kv", kv,
                      "What the engine keeps keys and values as (default: its own choice)")
          ->check(known)
          ->type_name(fmt::format("{}", fmt::join(KvTypeNames(), "|")));
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
