// lockstep inspect: what a model is, what was read from where, and what it costs.
#include <algorithm>
#include <limits>

#include "cli/engine_flags.h"
#include "cli/inspect_plan.h"
#include "cli/known.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "cli/weight_scan.h"
#include "faults/catalog.h"
#include "formats/describe.h"
#include "model/model.h"
#include "model/text_model.h"
#include "spec/field_list.h"
#include "spec/fields.h"
#include "spec/ledger.h"
#include "spec/validate.h"

namespace lockstep {
namespace {

// Weights are scanned without being asked up to this size: a few seconds.
constexpr int64_t kScanByDefault = int64_t{4} << 30;
constexpr int64_t kDefaultContext = 4096;

struct InspectArgs {
  std::vector<std::string> paths;
  bool diff = false, known = false, faults = false, plan = false, tensors = false, weights = false,
       no_weights = false, json = false;
  int64_t context = 0, batch = 1, prefill = 0, threads = 0;
  std::string kv = "f16", activations = "int8";
};

// Everything that is known; absent where the checkpoint did not get so far.
struct Findings {
  Checkpoint checkpoint;
  std::optional<Error> error;  // why there is no model
  std::optional<Model> model;  // with a checkpoint of its own
  std::optional<TextModel> text;
  std::optional<Ledger> ledger;
  std::optional<std::vector<WeightStatistics>> scan;
  std::vector<std::string> notes;
};

int64_t StoredBytes(const std::vector<TensorInfo>& tensors) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) bytes += static_cast<int64_t>(tensor.data.size());
  return bytes;
}

struct TypeUse {
  const TensorType* type;
  int64_t tensors = 0, elements = 0, bytes = 0;
};

std::vector<TypeUse> TypesByBytes(const std::vector<TensorInfo>& tensors) {
  std::vector<TypeUse> uses;
  for (const TensorInfo& tensor : tensors) {
    auto use = std::find_if(uses.begin(), uses.end(),
                            [&](const TypeUse& u) { return u.type == tensor.type; });
    if (use == uses.end()) use = uses.insert(uses.end(), TypeUse{tensor.type});
    ++use->tensors;
    use->elements += tensor.elements();
    use->bytes += static_cast<int64_t>(tensor.data.size());
  }
  std::stable_sort(uses.begin(), uses.end(),
                   [](const TypeUse& a, const TypeUse& b) { return a.bytes > b.bytes; });
  return uses;
}

std::string ShapeOf(const TensorInfo& tensor) { return ShapeText(tensor.shape); }

std::optional<KvDType> KvDTypeOf(std::string_view name) {
  const auto& names = NamesOf<KvDType>();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<KvDType>(found - names.begin());
}

Result<Findings> Find(const InspectArgs& args) {
  const std::string& path = args.paths.front();
  Findings found;
  LS_TRY(found.checkpoint, OpenCheckpoint(path));
  Result<Model> model = LoadModel(found.checkpoint);
  if (model) {
    found.notes = model->notes;
    for (std::string& remark : Remarks(model->spec)) found.notes.push_back(std::move(remark));
    LedgerRequest request{.context = args.context,
                          .batch = args.batch,
                          .kv_element_size = KvElementSize(*KvDTypeOf(args.kv)),
                          .prefill = args.prefill};
    if (request.context == 0) {
      const int64_t most = model->spec.max_position_embeddings;
      request.context = most > 0 ? std::min(most, kDefaultContext) : kDefaultContext;
    }
    LS_TRY(found.ledger, ComputeLedger(model->spec, request));
    found.model = *std::move(model);
  } else {
    found.error = std::move(model).error();
  }
  if (Result<TextModel> text = LoadTextModel(found.checkpoint)) {
    found.text = *std::move(text);
    if (found.text->tokenizer && found.model) {
      const VocabularyFit fit = CompareVocabulary(
          *found.text->tokenizer, static_cast<size_t>(found.model->spec.embedding.vocab_size));
      if (!fit.message.empty()) found.notes.push_back(fit.message);
    }
  } else {
    found.notes.push_back(text.error().message);
  }
  const bool small = StoredBytes(found.checkpoint.tensors) <= kScanByDefault;
  if (args.weights || (small && !args.no_weights)) {
    ThreadPool pool(ThreadCount(args.threads));
    ProgressLine line;
    found.scan = ScanWeights(found.checkpoint.tensors, pool, [&](double share) {
      line.Show("reading weights", static_cast<int64_t>(share * 1000), 1000);
      return true;
    });
  }
  return found;
}

// Sentences about weights that no trained model has.
std::vector<std::string> WeightFaults(const Findings& found) {
  std::vector<std::string> faults;
  if (!found.scan) return faults;
  for (size_t i = 0; i < found.checkpoint.tensors.size(); ++i) {
    const TensorInfo& tensor = found.checkpoint.tensors[i];
    const WeightStatistics& s = (*found.scan)[i];
    if (s.damaged())
      faults.push_back(fmt::format("tensor {} holds {} NaN and {} infinite values among {}",
                                   Quoted(tensor.name), WithCommas(s.nan), WithCommas(s.infinite),
                                   WithCommas(tensor.elements())));
  }
  return faults;
}

std::vector<std::string> ZeroMatrices(const Findings& found) {
  std::vector<std::string> names;
  if (!found.scan) return names;
  for (size_t i = 0; i < found.checkpoint.tensors.size(); ++i) {
    const WeightStatistics& s = (*found.scan)[i];
    if (found.checkpoint.tensors[i].shape.size() >= 2 && s.finite > 1 && s.sum_of_squares == 0 &&
        !s.damaged())
      names.push_back(found.checkpoint.tensors[i].name);
  }
  return names;
}

std::vector<std::string> FilesRead(const Findings& found) {
  std::vector<std::string> files;
  if (found.checkpoint.kind == Checkpoint::Kind::kHuggingFace) {
    files.push_back("config.json");
    if (!found.checkpoint.generation_config.is_null()) files.push_back("generation_config.json");
  }
  for (const auto& file : found.checkpoint.files)
    files.push_back(fmt::format("{} ({})", file->path().filename().string(),
                                HumanBytes(static_cast<double>(file->bytes().size()))));
  if (found.text && !found.text->tokenizer_source.empty())
    files.push_back(found.text->tokenizer_source);
  return files;
}

std::string TensorTable(const Findings& found) {
  using enum Table::Align;
  std::vector<std::string> head = {"tensor", "type", "shape", "bytes"};
  std::vector<Table::Align> align = {kLeft, kLeft, kLeft, kRight};
  if (found.scan) {
    head.insert(head.end(), {"lowest", "highest", "rms"});
    align.insert(align.end(), {kRight, kRight, kRight});
  }
  Table table(head, align);
  for (size_t i = 0; i < found.checkpoint.tensors.size(); ++i) {
    const TensorInfo& tensor = found.checkpoint.tensors[i];
    std::vector<std::string> row = {tensor.name, std::string(tensor.type->name), ShapeOf(tensor),
                                    WithCommas(static_cast<int64_t>(tensor.data.size()))};
    if (found.scan) {
      const WeightStatistics& s = (*found.scan)[i];
      row.insert(row.end(), {fmt::format("{:.4g}", s.lowest), fmt::format("{:.4g}", s.highest),
                             fmt::format("{:.4g}", s.rms())});
    }
    table.Add(std::move(row));
  }
  return table.Text(2);
}

std::string Text(const Findings& found, bool list_tensors) {
  using enum Table::Align;
  const auto& tensors = found.checkpoint.tensors;
  std::string out =
      fmt::format("{}\n  {}, {} tensors, {} of weights\n", found.checkpoint.path.string(),
                  found.checkpoint.kind == Checkpoint::Kind::kGguf ? "GGUF" : "Hugging Face folder",
                  WithCommas(static_cast<int64_t>(tensors.size())),
                  HumanBytes(static_cast<double>(StoredBytes(tensors))));
  out += fmt::format("  read: {}\n", fmt::join(FilesRead(found), ", "));
  if (found.text) {
    out += found.text->tokenizer
               ? fmt::format("  tokenizer: {}, {} ids; chat template: {}\n",
                             found.text->tokenizer_source,
                             WithCommas(static_cast<int64_t>(found.text->tokenizer->vocab_size())),
                             found.text->chat_template ? "yes" : "none")
               : std::string("  tokenizer: none\n");
  }
  Table types({"type", "tensors", "elements", "bytes", ""}, {kLeft, kRight, kRight, kRight, kLeft});
  for (const TypeUse& use : TypesByBytes(tensors))
    types.Add({std::string(use.type->name), WithCommas(use.tensors), WithCommas(use.elements),
               WithCommas(use.bytes), std::string(use.type->description)});
  out += "\n" + types.Text(2);
  if (found.model) out += "\n" + Describe(found.model->spec);
  if (found.ledger) out += "\n" + Describe(*found.ledger);
  if (list_tensors || found.error) out += "\n" + TensorTable(found);
  out += "\n";
  if (found.scan) {
    const auto faults = WeightFaults(found);
    for (const std::string& fault : faults) out += fmt::format("damaged: {}\n", fault);
    const auto zeros = ZeroMatrices(found);
    for (size_t i = 0; i < std::min<size_t>(zeros.size(), 6); ++i)
      out += fmt::format("note: every element of tensor {} is 0\n", Quoted(zeros[i]));
    if (zeros.size() > 6) out += fmt::format("note: and of {} more tensors\n", zeros.size() - 6);
    if (faults.empty()) out += "weights: all read, every value is finite\n";
  } else {
    out += "weights: not read (--weights looks for NaN and infinity)\n";
  }
  for (const std::string& note : found.notes) out += fmt::format("note: {}\n", note);
  return out;
}

Json LedgerJson(const Ledger& ledger) {
  Json parameters = Json::object();
  for (int i = 0; i < kNumLedgerParts; ++i)
    parameters[std::string(LedgerPartName(static_cast<LedgerPart>(i)))] =
        ledger.parameters[static_cast<size_t>(i)];
  return {{"parameters", std::move(parameters)},
          {"total_parameters", ledger.total_parameters},
          {"active_parameters", ledger.active_parameters},
          {"context", ledger.request.context},
          {"batch", ledger.request.batch},
          {"prefill", ledger.request.prefill},
          {"kv_element_size", ledger.request.kv_element_size},
          {"activation_size", ledger.request.activation_size},
          {"kv_cache_full_bytes", ledger.kv_cache_full},
          {"kv_cache_windowed_bytes", ledger.kv_cache_windowed},
          {"mla_latent_bytes", ledger.mla_latent},
          {"conv_state_bytes", ledger.conv_state},
          {"activations_bytes", ledger.activations},
          {"logits_last_bytes", ledger.logits_last},
          {"logits_all_bytes", ledger.logits_all}};
}

Json ToJson(const Findings& found, bool list_tensors) {
  Json out = {{"path", found.checkpoint.path.string()},
              {"kind", found.checkpoint.kind == Checkpoint::Kind::kGguf ? "gguf" : "hugging_face"},
              {"num_tensors", found.checkpoint.tensors.size()},
              {"weight_bytes", StoredBytes(found.checkpoint.tensors)}};
  int64_t on_disk = 0;
  Json files = Json::array();
  for (const auto& file : found.checkpoint.files) {
    on_disk += static_cast<int64_t>(file->bytes().size());
    files.push_back({{"path", file->path().string()}, {"bytes", file->bytes().size()}});
  }
  out["files"] = std::move(files);
  out["bytes_on_disk"] = on_disk;
  if (found.error) out["error"] = found.error->message;
  for (const TypeUse& use : TypesByBytes(found.checkpoint.tensors))
    out["types"].push_back({{"type", use.type->name},
                            {"tensors", use.tensors},
                            {"elements", use.elements},
                            {"bytes", use.bytes}});
  if (found.model) out["spec"] = ToJson(found.model->spec);
  if (found.ledger) out["ledger"] = LedgerJson(*found.ledger);
  if (found.text && found.text->tokenizer)
    out["tokenizer"] = {{"source", found.text->tokenizer_source},
                        {"ids", found.text->tokenizer->vocab_size()},
                        {"chat_template", found.text->chat_template.has_value()}};
  out["notes"] = found.notes;
  if (found.scan)
    out["weights"] = {{"damaged", WeightFaults(found)}, {"all_zero", ZeroMatrices(found)}};
  if (list_tensors || found.error) {
    Json list = Json::array();
    for (size_t i = 0; i < found.checkpoint.tensors.size(); ++i) {
      const TensorInfo& tensor = found.checkpoint.tensors[i];
      Json entry = {{"name", tensor.name},
                    {"type", tensor.type->name},
                    {"shape", tensor.shape},
                    {"bytes", tensor.data.size()}};
      if (found.scan) {
        const WeightStatistics& s = (*found.scan)[i];
        entry.update(Json{{"lowest", s.lowest},
                          {"highest", s.highest},
                          {"rms", s.rms()},
                          {"nan", s.nan},
                          {"infinite", s.infinite}});
      }
      list.push_back(std::move(entry));
    }
    out["tensors"] = std::move(list);
  }
  return out;
}

int RunDiff(const InspectArgs& args) {
  const Result<Model> a = LoadModel(args.paths[0]);
  if (!a) return Report(a.error(), args.json);
  const Result<Model> b = LoadModel(args.paths[1]);
  if (!b) return Report(b.error(), args.json);
  const auto differences = JoinLayers(Diff(a->spec, b->spec));
  if (args.json) {
    Json list = Json::array();
    for (const FieldDifference& d : differences)
      list.push_back({{"path", d.path}, {"a", d.a}, {"b", d.b}});
    PrintJson({{"equal", differences.empty()}, {"differences", std::move(list)}});
  } else if (differences.empty()) {
    Print("the two specs are equal; weights were not compared (`lockstep verify A B` does)\n");
  } else {
    for (const FieldDifference& d : differences) Print(ToString(d) + "\n");
  }
  return differences.empty() ? kExitYes : kExitNo;
}

int Run(const InspectArgs& args) {
  if (args.known) {
    if (!args.paths.empty())
      return Report({ErrorCode::kUsage, "inspect --known looks at no model: leave the path out"},
                    args.json);
    if (args.json)
      PrintJson(KnownJson());
    else
      Print(KnownText());
    return kExitYes;
  }
  if (args.faults) {
    if (!args.paths.empty())
      return Report({ErrorCode::kUsage, "inspect --faults looks at no model: leave the path out"},
                    args.json);
    if (args.json)
      PrintJson(FaultsJson());
    else
      Print(FaultsPage());
    return kExitYes;
  }
  if (args.diff && args.paths.size() != 2)
    return Report({ErrorCode::kUsage, "inspect --diff compares two models: give both paths"},
                  args.json);
  if (!args.diff && args.paths.size() != 1)
    return Report({ErrorCode::kUsage,
                   "inspect looks at one model: give its path; `lockstep inspect --diff A B` "
                   "compares two"},
                  args.json);
  if (args.diff) return RunDiff(args);
  if (args.plan) return InspectPlan(args.paths.front(), args.activations, args.json);
  const Result<Findings> found = Find(args);
  if (!found) return Report(found.error(), args.json);
  if (args.json)
    PrintJson(ToJson(*found, args.tensors));
  else
    Print(Text(*found, args.tensors));
  if (found->error) {
    PrintError(fmt::format("lockstep: {}\n", found->error->message));
    return kExitUnusable;
  }
  return WeightFaults(*found).empty() ? kExitYes : kExitNo;
}

}  // namespace

void AddInspectVerb(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("inspect", "What a model is, where it was read from, what it costs");
  auto args = std::make_shared<InspectArgs>();
  verb->add_option("PATH", args->paths, "A Hugging Face folder or a GGUF file; two with --diff")
      ->expected(-1)
      ->type_name("");
  verb->add_flag("--diff", args->diff, "Print where the specs of two models differ");
  verb->add_flag("--known", args->known,
                 "Print the architectures and tensor types that this program knows");
  verb->add_flag("--faults", args->faults, "Print the faults of real programs that are known");
  auto* plan = verb->add_flag("--plan", args->plan,
                              "Print how the engine packs each part and with which kernels it "
                              "computes");
  AddActivations(*verb, "With --plan", args->activations)->needs(plan);
  verb->add_flag("--tensors", args->tensors, "List every tensor");
  auto* weights =
      verb->add_flag("--weights", args->weights,
                     "Read every weight, looking for NaN and infinity, whatever the size");
  verb->add_flag("--no-weights", args->no_weights, "Read no weight (default above 4 GiB)")
      ->excludes(weights);
  constexpr int64_t kMany = int64_t{1} << 40;
  verb->add_option("--context", args->context,
                   "Tokens the KV cache is computed for (default: the model's, at most 4096)")
      ->check(WholeNumber(1, kMany))
      ->type_name("N");
  verb->add_option("--batch", args->batch, "Sequences the KV cache is computed for")
      ->check(WholeNumber(1, kMany))
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--prefill", args->prefill,
                   "Tokens of one forward pass, for activations (default: the context)")
      ->check(WholeNumber(1, kMany))
      ->type_name("N");
  verb->add_option(
          "--kv", args->kv,
          fmt::format("Type of cached keys and values: {}", fmt::join(NamesOf<KvDType>(), ", ")))
      ->check([](const std::string& text) -> std::string {
        if (KvDTypeOf(text)) return "";
        return fmt::format("expected one of {}, found {}", fmt::join(NamesOf<KvDType>(), ", "),
                           Quoted(text));
      })
      ->type_name("TYPE")
      ->capture_default_str();
  verb->add_option("--threads", args->threads, "Threads for reading weights (0: all cores)")
      ->check(WholeNumber(0, 1024))
      ->type_name("N");
  verb->add_flag("--json", args->json, "Everything as JSON");
  verb->footer(
      "Of a checkpoint whose architecture is unknown it shows what it can and exits with 3. Exit\n"
      "codes: 0 sound (--diff: equal); 1 damaged weights (--diff: they differ); 2 wrong usage;\n"
      "3 unusable.\n\n"
      "Example: lockstep inspect smollm2.gguf --context 2048 --batch 4");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep
