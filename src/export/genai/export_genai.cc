#include "export/genai/export_genai.h"

#include "export/data_file.h"
#include "export/genai/builder.h"
#include "export/genai/coded.h"
#include "export/genai/decoder.h"
#include "export/genai/genai_config_json.h"
#include "export/genai/tokenizer_files.h"

namespace lockstep {
namespace {

std::string Counts(const std::map<std::string, int64_t>& counts) {
  std::vector<std::string> words;
  for (const auto& [type, count] : counts)
    words.push_back(fmt::format("{} matri{} of {}", count, count == 1 ? "x" : "ces", type));
  return fmt::format("{}", fmt::join(words, ", "));
}

// What became of a quantized file's codes.
void NoteCodes(genai::GraphBuilder& b) {
  if (!b.kept.empty()) b.Note(fmt::format("the file's codes are kept: {}", Counts(b.kept)));
  if (!b.coded_again.empty())
    b.Note(fmt::format("quantized again from the file's codes, which fit no {}-bit operator: {}",
                       b.precision.bits, Counts(b.coded_again)));
}

}  // namespace

Result<ExportReport> ExportGenAi(const Model& model, const ExportOptions& options,
                                 const std::filesystem::path& folder,
                                 const std::function<Status(uint64_t bytes)>& check_room,
                                 ThreadPool& pool, const ExportProgress& progress) {
  const ExportPrecision* precision = FindExportPrecision(options.precision);
  if (precision == nullptr) return UsageError("--precision {}: unknown", options.precision);
  LS_TRY(const OnnxType floats, TypeOn(*precision, options.execution_provider));
  genai::GraphBuilder b(model.spec, model.weights, options, *precision, floats, pool,
                        genai::ContextLength(model.spec), genai::CacheHeadSize(model.spec));
  if (precision->bits > 0) LS_RETURN_IF_ERROR(CheckMatMulNBits(genai::RecipeOf(b), 1, 1));
  genai::BuildDecoder(b);
  NoteCodes(b);
  ExportReport report{.bytes = b.graph.DataBytes(), .notes = b.notes};
  if (check_room) LS_RETURN_IF_ERROR(check_room(report.bytes));
  LS_RETURN_IF_ERROR(b.graph.Write(folder, progress));
  const Json config = genai::GenAiConfigJson(model, b, report.notes);
  LS_RETURN_IF_ERROR(
      WriteSmallFile(folder / "genai_config.json",
                     config.dump(4, ' ', false, Json::error_handler_t::replace) + "\n"));
  LS_RETURN_IF_ERROR(genai::WriteTokenizerFiles(model.checkpoint, folder, report.notes));
  return report;
}

}  // namespace lockstep
