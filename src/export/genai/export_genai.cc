#include "export/genai/export_genai.h"

#include "export/data_file.h"
#include "export/genai/builder.h"
#include "export/genai/decoder.h"
#include "export/genai/genai_config_json.h"
#include "export/genai/tokenizer_files.h"

namespace lockstep {

Result<ExportReport> ExportGenAi(const Model& model, const ExportOptions& options,
                                 const std::filesystem::path& folder,
                                 const std::function<Status(uint64_t bytes)>& check_room,
                                 ThreadPool& pool, const ExportProgress& progress) {
  if (options.precision != "fp32")
    return UnsupportedError("--precision {}: expected fp32", options.precision);
  if (options.execution_provider != "cpu")
    return UnsupportedError("--ep {}: expected cpu", options.execution_provider);
  genai::GraphBuilder b(model.spec, model.weights, options, pool, genai::ContextLength(model.spec),
                        genai::CacheHeadSize(model.spec));
  genai::BuildDecoder(b);
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
