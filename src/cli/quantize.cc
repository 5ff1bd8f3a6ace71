// lockstep quantize: how weights become codes. So far it prints the policy for experts.
#include "cli/exit_code.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "quant/qmoe_policy.h"

namespace lockstep {

void AddQuantizeVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("quantize", "How quantized experts are written");
  verb->footer("Example: lockstep quantize --policies > qmoe.md");
  static constexpr const char* kHelp =
      "Print the policy for quantized experts (QMoE) as a page: how each width, granularity and "
      "execution provider is written, what was proved, and what takes the place of the rest";
  const CLI::Option* policies = verb->add_flag("--policies", kHelp);
  verb->allow_extras();
  verb->callback([policies, &action] {
    action = [policies] {
      if (policies->count() == 0)
        return Report(
            {.code = ErrorCode::kUsage,
             .message =
                 "lockstep quantize prints --policies; `lockstep export MODEL OUT --to genai "
                 "--precision int4` or `--to gguf --precision q4_k_m` writes a model in fewer "
                 "bits"},
            false);
      Print(QMoePage());
      return static_cast<int>(kExitYes);
    };
  });
}

}  // namespace lockstep
