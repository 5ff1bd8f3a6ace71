#include "verify/fit_number.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>

#include "spec/fields.h"

namespace lockstep {
namespace {

class Fitter {
 public:
  explicit Fitter(Trials& trials) : trials_(trials) {}

  Result<std::optional<EditedReference>> Run(const EditedReference& root) {
    constexpr size_t kFields = 4;
    constexpr double kLittle = 1.02;
    std::vector<NumberField> fields;
    std::set<std::string> paths;
    for (const Hypothesis& hypothesis : trials_.hypotheses_) {
      if (!trials_.IsSmall() && hypothesis.origin == Origin::kSingle) continue;
      auto field = NumberOf(hypothesis.edit);
      if (!field) continue;
      std::string path;
      for (const FieldEdit& edit : field->edit.spec) path += edit.path + ";";
      if (paths.insert(path).second) fields.push_back(*std::move(field));
    }
    const std::vector<size_t> screen = trials_.Screen(root);
    double before = 0;
    for (const size_t run : screen) before += root.scores[run].log_rms;
    std::vector<double> gains(fields.size(), 0.0);
    LS_RETURN_IF_ERROR(
        trials_.ForEach(fields.size(), "fitting numbers", [&](size_t i, ThreadPool& pool) {
          for (const double factor : {kLittle, 1 / kLittle})
            gains[i] = std::max(gains[i], before - TryNumber(root, screen, fields[i].edit,
                                                             fields[i].value * factor, pool)
                                                       .log_rms);
        }));
    std::vector<size_t> order(fields.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return gains[a] > gains[b]; });
    for (size_t i = 0; i < std::min(kFields, order.size()) && !trials_.OutOfTime(); ++i) {
      if (gains[order[i]] <= 0) break;
      LS_TRY(auto fitted, FitNumber(root, fields[order[i]].edit, fields[order[i]].value));
      if (fitted) return fitted;
    }
    return std::nullopt;
  }

 private:
  // The same edit with another number in it.
  static Edit WithNumber(Edit edit, const std::string& number) {
    for (FieldEdit& field : edit.spec) field.value = number;
    return edit;
  }
  static std::string NumberText(double x) { return Json(x).dump(); }

  struct Fit {
    double log_rms = 1e9, times_tolerance = 1e9;
  };
  Fit TryNumber(const EditedReference& root, const std::vector<size_t>& screen, const Edit& edit,
                double x, ThreadPool& pool) {
    int first = -1;
    const auto edited = WithEdit(root, WithNumber(edit, NumberText(x)), first);
    if (!edited) return {};
    Fit fit{0, 0};
    for (const size_t run : screen) {
      const auto logits = LogitsOf<float>(*edited, trials_.evidence_, run, pool, first, &root);
      if (!logits) return {};
      const RunScore score = ScoreOf(trials_.evidence_, run, *logits);
      fit.log_rms += score.log_rms;
      fit.times_tolerance = std::max(fit.times_tolerance, score.times_tolerance);
    }
    ++trials_.evaluations_;
    return fit;
  }

  // A number of the model that edits replace, and its value.
  struct NumberField {
    Edit edit;
    double value = 0;
  };
  // Absent where the edit does anything else.
  std::optional<NumberField> NumberOf(const Edit& edit) const {
    if (edit.spec.empty() || !edit.run.empty() || !edit.weights.empty()) return std::nullopt;
    for (const FieldEdit& field : edit.spec)
      if (field.value != edit.spec.front().value) return std::nullopt;
    const auto number = ParseJson(edit.spec.front().value, edit.spec.front().path);
    if (!number || !number->is_number_float()) return std::nullopt;
    // Of several layers the first one's.
    std::string path = edit.spec.front().path;
    if (const size_t open = path.find('['); open != std::string::npos) {
      const size_t end = path.find_first_not_of("0123456789", open + 1);
      const std::string layer = path[open + 1] == '*' ? "0" : path.substr(open + 1, end - open - 1);
      path = path.substr(0, open + 1) + layer + path.substr(path.find(']'));
    }
    const auto value = GetField(trials_.model_.spec, path);
    if (!value || !value->is_number() || value->get<double>() <= 0) return std::nullopt;
    return NumberField{edit, value->get<double>()};
  }

  Result<std::optional<EditedReference>> FitNumber(const EditedReference& root, const Edit& edit,
                                                   double around) {
    const std::vector<size_t> screen = trials_.Screen(root);
    constexpr size_t kCoarse = 33;
    const double step = std::log(10.0) / 16;
    const auto number = [&](double i) {
      return around * std::exp((i - static_cast<double>(kCoarse - 1) / 2) * step);
    };
    std::vector<Fit> coarse(kCoarse);
    LS_RETURN_IF_ERROR(
        trials_.ForEach(kCoarse, "fitting a number", [&](size_t i, ThreadPool& pool) {
          coarse[i] = TryNumber(root, screen, edit, number(static_cast<double>(i)), pool);
        }));
    const auto best =
        std::min_element(coarse.begin(), coarse.end(),
                         [](const Fit& a, const Fit& b) { return a.log_rms < b.log_rms; });
    const auto at = [&](double i) {
      return TryNumber(root, screen, edit, number(i), trials_.pool_).log_rms;
    };
    double low = static_cast<double>(best - coarse.begin()) - 1, high = low + 2;
    const double golden = (std::sqrt(5.0) - 1) / 2;
    double a = high - golden * (high - low), b = low + golden * (high - low);
    double at_a = at(a), at_b = at(b);
    for (int i = 0; i < 48 && !trials_.OutOfTime(); ++i) {
      if (!trials_.progress_("fitting a number", i, 48)) return tl::unexpected(Interrupted());
      if (at_a < at_b) {
        high = b, b = a, at_b = at_a;
        at_a = at(a = high - golden * (high - low));
      } else {
        low = a, a = b, at_a = at_b;
        at_b = at(b = low + golden * (high - low));
      }
    }
    // The shortest number that does as well.
    double x = number((low + high) / 2);
    for (int digits = 1; digits < 9; ++digits) {
      const double rounded = std::strtod(fmt::format("{:.{}g}", x, digits).c_str(), nullptr);
      if (TryNumber(root, screen, edit, rounded, trials_.pool_).times_tolerance > 1) continue;
      x = rounded;
      break;
    }
    trials_.hypotheses_.push_back({WithNumber(edit, NumberText(x)), Origin::kSystematic, "",
                                   "another number, fitted to the candidate"});
    const size_t last = trials_.hypotheses_.size() - 1;
    LS_TRY(auto fitted, trials_.Build(root, std::span(&last, 1)));
    if (!fitted) return std::nullopt;
    LS_TRY(const bool proven, trials_.Proven(*fitted));
    if (!proven) return std::nullopt;
    return fitted;
  }

  Trials& trials_;
};

}  // namespace

Result<std::optional<EditedReference>> FitNumbers(Trials& trials, const EditedReference& root) {
  return Fitter(trials).Run(root);
}

}  // namespace lockstep
