#include "export/genai/coded.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "quant/onnx_repack.h"

namespace lockstep::genai {
namespace {

DType ScaleType(OnnxType floats) {
  if (floats == OnnxType::kFloat16) return DType::kF16;
  if (floats == OnnxType::kBFloat16) return DType::kBF16;
  return DType::kF32;
}

RowSource RowsOf(const MatrixSource& matrix) {
  return {.rows = matrix.rows, .cols = matrix.cols, .read = matrix.read, .feedback = nullptr};
}

StoredRows StoredOf(const MatrixSource& matrix) {
  return {.rows = matrix.rows, .cols = matrix.cols, .row_bytes = matrix.row_bytes};
}

// The file's codes can be the operator's, and are no wider than what is asked for.
const RepackRule* Keeps(const GraphBuilder& b, const MatrixSource& matrix, bool exactly) {
  if (matrix.stored == nullptr) return nullptr;
  const RepackRule* rule = FindRepackRule(matrix.stored->name);
  if (rule == nullptr || rule->bits > b.precision.bits || (exactly && !rule->exact) ||
      matrix.cols % matrix.stored->block_elements != 0)
    return nullptr;
  // Scales that are products or powers of two need more than float16.
  if (b.graph.floats() != OnnxType::kFloat && !(rule->exact && rule->half_scales)) return nullptr;
  return rule;
}

void Count(GraphBuilder& b, const MatrixSource& matrix, bool kept) {
  if (matrix.stored != nullptr) ++(kept ? b.kept : b.coded_again)[std::string(matrix.stored->name)];
}

// How much each of `cols` columns counts, all matrices together; empty: alike.
std::vector<float> ImportanceOf(std::span<const InputStatistics> inputs, int64_t cols) {
  std::vector<float> out;
  for (const InputStatistics& input : inputs) {
    if (input.squares.empty()) continue;
    out.resize(static_cast<size_t>(cols), 0.0f);
    for (size_t c = 0; c < std::min(input.squares.size(), out.size()); ++c)
      out[c] += input.squares[c];
  }
  double sum = 0;
  for (const float x : out) sum += x;
  if (!(sum > 0) || !std::isfinite(sum)) return {};
  // A column that the text never moved counts a little still.
  const auto mean = static_cast<float>(sum / static_cast<double>(out.size()));
  for (float& x : out) x = x / mean + 0.01f;
  return out;
}

// Of matrices, all of one shape, what their codes are chosen by.
struct Weighed {
  std::vector<InputStatistics> inputs;
  std::vector<float> importance;
};

Result<Weighed> Weigh(const GraphBuilder& b, std::span<const MatrixSource> matrices, int64_t cols) {
  Weighed out;
  if (b.options.calibration == nullptr) return out;
  for (const MatrixSource& matrix : matrices) {
    InputStatistics input;
    // What is stacked or lies in turn multiplies the same.
    if (!matrix.views.empty()) {
      LS_TRY(input, b.options.calibration->Of(*matrix.views[0]));
    }
    out.inputs.push_back(std::move(input));
  }
  out.importance = ImportanceOf(out.inputs, cols);
  return out;
}

// Tells the calibration what the codes of matrix i of `matrices`, each [rows, cols] with what was
// filled in, stand for.
void Tell(const GraphBuilder& b, std::string_view format, const PackedWeight& weight,
          const CodeRecipe& recipe, std::span<const MatrixSource> matrices, int64_t rows,
          int64_t cols) {
  if (b.options.calibration == nullptr) return;
  const OnnxFormat& of = *FindOnnxFormat(format);
  for (size_t i = 0; i < matrices.size(); ++i)
    b.options.calibration->Chosen(matrices[i], [&](int64_t row, float* out) {
      of.unpack(weight, recipe, static_cast<int64_t>(i), rows, cols, row, out);
    });
}

// The parts of one weight, made by the first initializer that is written and let go of by the last.
class Parts {
 public:
  using Make = std::function<Result<PackedWeight>()>;
  Parts(Make make, int readers) : make_(std::move(make)), left_(readers) {}

  Status Write(const PackedPart& (*part)(const PackedWeight&), DataFile& file) {
    if (!weight_) {
      LS_TRY(auto made, make_());
      weight_ = std::make_unique<PackedWeight>(std::move(made));
    }
    LS_RETURN_IF_ERROR(file.Append(part(*weight_).bytes));
    if (--left_ == 0) weight_.reset();
    return {};
  }

 private:
  Make make_;
  int left_;
  std::unique_ptr<PackedWeight> weight_;
};

OnnxType TypeOf(DType type) {
  switch (type) {
    case DType::kF16:
      return OnnxType::kFloat16;
    case DType::kBF16:
      return OnnxType::kBFloat16;
    case DType::kU8:
      return OnnxType::kUInt8;
    default:
      return OnnxType::kFloat;
  }
}

struct PartKind {
  DType type;
  std::vector<int64_t> shape;
};

// Three initializers (or two), in the order in which they are written.
CodedExperts Initializers(GraphBuilder& b, const std::string& name, int bits,
                          const std::vector<int64_t>& codes, const PartKind& scales,
                          const PartKind& zeros, Parts::Make make) {
  const auto parts = std::make_shared<Parts>(std::move(make), zeros.shape.empty() ? 2 : 3);
  const auto writer = [&](const PackedPart& (*part)(const PackedWeight&)) {
    return [parts, part](DataFile& file) { return parts->Write(part, file); };
  };
  CodedExperts out;
  out.codes = b.graph.Initializer(
      fmt::format("{}_Q{}", name, bits), OnnxType::kUInt8, codes,
      writer([](const PackedWeight& w) -> const PackedPart& { return w.codes; }));
  out.scales = b.graph.Initializer(
      name + "_scales", TypeOf(scales.type), scales.shape,
      writer([](const PackedWeight& w) -> const PackedPart& { return w.scales; }));
  if (!zeros.shape.empty())
    out.zeros = b.graph.Initializer(
        name + "_zero_points", TypeOf(zeros.type), zeros.shape,
        writer([](const PackedWeight& w) -> const PackedPart& { return *w.zero_points; }));
  return out;
}

}  // namespace

CodeRecipe RecipeOf(const GraphBuilder& b) {
  const CodeOptions& codes = b.options.codes;
  return {.bits = b.precision.bits,
          .block = codes.block,
          .zeros = codes.asymmetric ? ZeroPoints::kCodes : ZeroPoints::kNone,
          .search = codes.method == CodeMethod::kNearest ? ScaleSearch::kNearest
                                                         : ScaleSearch::kSquaredError,
          .scale_type = ScaleType(b.graph.floats())};
}

int64_t AccuracyLevel(const GraphBuilder& b) {
  return b.options.codes.accuracy_level.value_or(b.options.execution_provider == "cpu" ? 4 : 0);
}

CodedMatrix Coded(GraphBuilder& b, const std::string& name, MatrixSource matrix, bool gathered) {
  CodedMatrix out{.recipe = RecipeOf(b), .rows = matrix.rows, .cols = matrix.cols};
  const RepackRule* rule = b.options.plan == nullptr ? Keeps(b, matrix, gathered) : nullptr;
  if (b.options.plan != nullptr && !matrix.views.empty())
    if (const auto at = b.options.plan->find(KeyOf(*matrix.views[0]));
        at != b.options.plan->end()) {
      out.recipe.bits = at->second.bits;
      out.recipe.block = at->second.block;
    }
  if (rule != nullptr) {
    out.recipe.bits = rule->bits;
    out.recipe.block = rule->block;
    out.recipe.zeros = ZeroPoints::kNone;
  }
  const int bits = out.recipe.bits;
  const int64_t rows = out.rows, blocks = out.width() / out.recipe.block;
  const std::vector<int64_t> codes = {rows, blocks, out.recipe.block * bits / 8};
  const PartKind scales{out.recipe.scale_type, {rows, blocks}};
  PartKind zeros{DType::kU8, {}};
  if (rule != nullptr && !rule->exact) zeros = {DType::kF32, {rows, blocks}};
  if (out.recipe.zeros == ZeroPoints::kCodes) zeros.shape = {rows, (blocks * bits + 7) / 8};
  if (!b.graph.HasInitializer(fmt::format("{}_Q{}", name, bits))) Count(b, matrix, rule != nullptr);
  const CodedExperts made = Initializers(
      b, name, bits, codes, scales, zeros,
      [&b, name, recipe = out.recipe, keep = rule != nullptr,
       matrix = std::move(matrix)]() -> Result<PackedWeight> {
        Result<PackedWeight> weight = PackedWeight{};
        if (keep) {
          auto kept =
              RepackForMatMulNBits(*matrix.stored, StoredOf(matrix), recipe.scale_type, &b.pool);
          if (!kept) return tl::unexpected(std::move(kept).error().In(name));
          weight = std::move(kept->weight);
        } else {
          LS_TRY(const Weighed weighed, Weigh(b, {&matrix, 1}, matrix.cols));
          RowSource source = RowsOf(matrix);
          if (!weighed.inputs.empty()) source.feedback = weighed.inputs[0].feedback.get();
          CodeRecipe by = recipe;
          by.importance = weighed.importance;
          weight = PackMatMulNBits({&source, 1}, by, &b.pool);
          if (weight)
            Tell(b, "matmul_nbits", *weight, recipe, {&matrix, 1}, matrix.rows, matrix.cols);
        }
        ForgetPages(b.weights, matrix);
        if (!weight) return tl::unexpected(std::move(weight).error().In(name));
        return weight;
      });
  out.codes = made.codes;
  out.scales = made.scales;
  out.zeros = made.zeros;
  return out;
}

std::string CodedProduct(GraphBuilder& b, const std::string& node, const std::string& x,
                         const CodedMatrix& matrix) {
  OnnxGraph::Values inputs = {x, matrix.codes, matrix.scales};
  if (!matrix.zeros.empty()) inputs.push_back(matrix.zeros);
  return b.graph.Node(fmt::format("{}_Q{}", node, matrix.recipe.bits), Microsoft("MatMulNBits"),
                      inputs,
                      {{"K", matrix.cols},
                       {"N", matrix.rows},
                       {"accuracy_level", AccuracyLevel(b)},
                       {"bits", int64_t{matrix.recipe.bits}},
                       {"block_size", matrix.recipe.block}});
}

std::optional<CodeRecipe> StoredExperts(const GraphBuilder& b,
                                        const std::vector<MatrixSource>& matrices) {
  const RepackRule* rule = nullptr;
  for (const MatrixSource& matrix : matrices) {
    const RepackRule* one = Keeps(b, matrix, true);
    if (one == nullptr || (rule != nullptr && one != rule)) return std::nullopt;
    rule = one;
  }
  if (rule == nullptr) return std::nullopt;
  CodeRecipe recipe = RecipeOf(b);
  recipe.bits = rule->bits;
  recipe.block = rule->block;
  recipe.zeros = ZeroPoints::kNone;
  return recipe;
}

CodedExperts CodeExperts(GraphBuilder& b, const std::string& name,
                         std::vector<MatrixSource> experts, const QMoePlan& plan,
                         const ExpertShapes& shapes, int64_t rows, int64_t cols, bool stored) {
  for (const MatrixSource& expert : experts) Count(b, expert, stored);
  CodeRecipe recipe = plan.recipe;
  recipe.search = RecipeOf(b).search;
  return Initializers(
      b, name, recipe.bits, shapes.codes, {recipe.scale_type, shapes.scales},
      {DType::kU8, shapes.zeros},
      [&b, name, recipe, stored, rows, cols, tiled = plan.format == "qmoe_sm80",
       experts = std::move(experts)]() -> Result<PackedWeight> {
        Result<PackedWeight> weight = PackedWeight{};
        if (stored) {
          std::vector<StoredRows> matrices;
          for (const MatrixSource& expert : experts) matrices.push_back(StoredOf(expert));
          auto kept = RepackForQMoe(*experts[0].stored, matrices, recipe.scale_type, &b.pool);
          if (!kept) return tl::unexpected(std::move(kept).error().In(name));
          weight = std::move(kept->weight);
        } else {
          LS_TRY(const Weighed weighed, Weigh(b, experts, cols));
          std::vector<RowSource> matrices;
          for (size_t e = 0; e < experts.size(); ++e) {
            matrices.push_back(Padded(RowsOf(experts[e]), rows, cols));
            if (!weighed.inputs.empty())
              matrices.back().feedback = weighed.inputs[e].feedback.get();
          }
          CodeRecipe by = recipe;
          by.importance = weighed.importance;
          weight =
              tiled ? PackQMoeTiled(matrices, by, &b.pool) : PackQMoeRaw(matrices, by, &b.pool);
          if (weight) Tell(b, tiled ? "qmoe_sm80" : "qmoe", *weight, recipe, experts, rows, cols);
        }
        for (const MatrixSource& expert : experts) ForgetPages(b.weights, expert);
        if (!weight) return tl::unexpected(std::move(weight).error().In(name));
        return weight;
      });
}

}  // namespace lockstep::genai
