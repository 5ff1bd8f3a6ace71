// The constants, attributes and masks of a graph against the facts of a spec.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "audit/findings.h"
#include "audit/storage.h"
#include "audit/walk.h"
#include "base/dtype.h"
#include "reference/ops.h"
#include "spec/fields.h"

namespace lockstep {
namespace {

double Effective(const Scale& scale) {
  const double value = Rounded(scale.value, scale.rounding);
  return scale.divide ? 1 / value : value;
}

double Effective(const FoundScale& scale) { return scale.divides ? 1 / scale.value : scale.value; }

// A number as an edit writes it; absent where no edit can (JSON has no NaN).
std::optional<std::string> NumberJson(double x) {
  return std::isfinite(x) ? std::optional(Json(x).dump()) : std::nullopt;
}

std::optional<std::string> ScaleJson(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  Json json = Json::object();
  json["value"] = value;
  json["divide"] = false;
  json["rounding"] = "none";
  return json.dump();
}

std::string Number(double x) {
  return std::isfinite(x) ? fmt::format("{:.9g}", x) : "a number that is not finite";
}
std::string NumberOrNone(const std::optional<double>& x) { return x ? Number(*x) : "none"; }

class Facts {
 public:
  Facts(const Model& reference, const Graph& graph, AuditReport& report, Collector& out)
      : spec_(reference.spec), graph_(graph), found_(report.decoder), report_(report), out_(out) {}

  void Run() {
    if (found_.layers.size() != spec_.layers.size()) {
      RawFinding raw{.kind = FindingKind::kStructure, .path = "layers"};
      raw.what = "another number of layers";
      raw.expected = std::to_string(spec_.layers.size());
      raw.found = std::to_string(found_.layers.size());
      raw.how_to = "export again: layers cannot be added or taken away in place";
      out_.Add(std::move(raw));
    }
    OneScale("embedding.scale", -1, spec_.embedding.scale, found_.embedding_scale, found_.embedded,
             found_.matrices.contains({Role::kEmbedTokens, Part::kWeight, -1, -1}));
    Norms();
    const size_t layers = std::min(found_.layers.size(), spec_.layers.size());
    for (size_t i = 0; i < layers; ++i) {
      const LayerSpec& layer = spec_.layers[i];
      const FoundLayer& found = found_.layers[i];
      const auto number = static_cast<int>(i);
      if (found.attention)
        if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer))
          Attention(number, *attention, *found.attention);
      if (found.mixer_joined)
        OneScale("residual", number, layer.residual, found.mixer_residual, kNoValue, true);
      if (found.mlp_joined)
        OneScale("residual", number, layer.residual, found.mlp_residual, kNoValue, true);
      FeedForward(number, layer, found);
    }
    Windows();
    CompareRopes(spec_, graph_, report_, out_);
    Head();
  }

 private:
  void OneScale(const std::string& path, int layer, const Scale& expected, const FoundScale& found,
                int insert_at, bool known) {
    const double want = Effective(expected), got = Effective(found);
    if (!known || Same(want, got)) return;
    RawFinding raw{.kind = FindingKind::kScale, .layer = layer, .path = path};
    raw.expected = Number(want);
    raw.found = Number(got);
    raw.edit_json = ScaleJson(got);
    const Rounding storage = StorageOf(graph_, found.constant);
    if (SameAsStored(found.divides ? 1 / want : want, found.value, storage)) {
      KeptIn(storage, std::move(raw));
      return;
    }
    const double decimals = Rounded(expected.value, Rounding::kTwoDecimals);
    if (expected.divide == found.divides && SameAsStored(decimals, found.value, storage)) {
      raw.what = "the scale is rounded to two decimals";
      if (Same(decimals, found.value)) {
        raw.edit_path = path + ".rounding";
        raw.edit_json = "\"two_decimals\"";
      }
    } else if (expected.divide == found.divides && expected.rounding != Rounding::kBF16 &&
               Same(Rounded(expected.value, Rounding::kBF16), found.value)) {
      raw.what = "the scale is rounded to bf16";
      raw.edit_path = path + ".rounding";
      raw.edit_json = "\"bf16\"";
    } else if (expected.divide == found.divides && expected.rounding != Rounding::kFP16 &&
               Same(Rounded(expected.value, Rounding::kFP16), found.value)) {
      raw.what = "the scale is rounded to fp16";
      raw.edit_path = path + ".rounding";
      raw.edit_json = "\"fp16\"";
    } else if (found.constant == kNoValue) {
      raw.what = "the scale is missing";
    } else if (Same(want * got, 1)) {
      raw.what = "the scale is inverted";
    } else {
      raw.what = "another scale";
    }
    const double stored = found.divides ? 1 / want : want;
    const bool done =
        found.constant != kNoValue
            ? SetScalar(graph_, found.constant, found.node, stored, raw.patch)
            : insert_at != kNoValue && InsertScalar(graph_, insert_at, "Mul", want, raw.patch);
    if (!done) raw.how_to = "export again with the scale: the graph has no place for it";
    out_.Add(std::move(raw));
  }

  // Another number only because the graph keeps it in fewer bits.
  void KeptIn(Rounding storage, RawFinding raw) {
    raw.kind = FindingKind::kQuantized;
    raw.what = fmt::format("kept in {}", StorageName(storage));
    raw.how_to = "nothing: fewer bits are a choice, not a fault";
    out_.Add(std::move(raw));
  }

  void OneNorm(int layer, const std::string& path, Role role, const NormSpec& expected) {
    const auto at = found_.norms.find({role, Part::kWeight, layer, -1});
    if (at == found_.norms.end()) return;
    const FoundNorm& found = at->second;
    if (found.kind != expected.kind) {
      RawFinding raw{.kind = FindingKind::kNorm, .layer = layer, .path = path + ".kind"};
      raw.what = "another kind of norm";
      raw.expected = expected.kind == NormKind::kRms ? "RMS" : "layer norm";
      raw.found = found.kind == NormKind::kRms ? "RMS" : "layer norm";
      raw.edit_json = found.kind == NormKind::kRms ? "\"rms\"" : "\"layer\"";
      raw.how_to = "export again: the operator is another one";
      out_.Add(std::move(raw));
    }
    if (Same(found.eps, expected.eps)) return;
    RawFinding raw{.kind = FindingKind::kNorm, .layer = layer, .path = path + ".eps"};
    raw.what = "another epsilon of the norm";
    raw.expected = fmt::format("{:.6g}", expected.eps);
    raw.found = std::isfinite(found.eps) ? fmt::format("{:.6g}", found.eps) : Number(found.eps);
    raw.edit_json = NumberJson(found.eps);
    raw.patch.attributes.push_back(
        {.node = Source(found.node), .name = "epsilon", .value = static_cast<float>(expected.eps)});
    out_.Add(std::move(raw));
  }

  void Norms() {
    const auto maybe = [&](int layer, const std::string& path, Role role,
                           const std::optional<NormSpec>& norm) {
      if (norm) OneNorm(layer, path, role, *norm);
    };
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      const LayerSpec& layer = spec_.layers[i];
      const auto n = static_cast<int>(i);
      maybe(n, "mixer_pre_norm", Role::kMixerPreNorm, layer.mixer_pre_norm);
      maybe(n, "mixer_post_norm", Role::kMixerPostNorm, layer.mixer_post_norm);
      maybe(n, "mlp_pre_norm", Role::kMlpPreNorm, layer.mlp_pre_norm);
      maybe(n, "mlp_post_norm", Role::kMlpPostNorm, layer.mlp_post_norm);
      if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) {
        maybe(n, "mixer.q_norm", Role::kQNorm, attention->q_norm);
        maybe(n, "mixer.k_norm", Role::kKNorm, attention->k_norm);
      }
    }
    OneNorm(-1, "final_norm", Role::kFinalNorm, spec_.final_norm);
  }

  size_t Source(int node) const { return static_cast<size_t>(graph_.node(node).source); }

  void Attention(int layer, const AttentionSpec& expected, const FoundAttention& found) {
    const auto heads = [&](const std::string& path, int64_t want, int64_t got) {
      if (got == 0 || want == got) return;
      RawFinding raw{.kind = FindingKind::kAttention, .layer = layer, .path = path};
      raw.what = "another number of heads";
      raw.expected = std::to_string(want);
      raw.found = std::to_string(got);
      raw.how_to = "export again with these heads";
      out_.Add(std::move(raw));
    };
    heads("mixer.num_attention_heads", expected.num_attention_heads, found.num_heads);
    if (!RepeatsKeys(layer, expected, found))
      heads("mixer.num_key_value_heads", expected.num_key_value_heads, found.num_key_value_heads);
    const double want = Effective(expected.query_scale);
    const Rounding kept = StorageOf(graph_, found.scale_constant);
    // On queries and on keys: the root of the scale, rounded, twice.
    const double root = Rounded(std::sqrt(std::abs(want)), kept);
    if (found.scale != 0 && !Same(want, found.scale) && kept != Rounding::kNone &&
        (SameAsStored(want, found.scale, kept) || Same(root * root, found.scale) ||
         SameAsStored(1 / want, 1 / found.scale, kept))) {
      RawFinding raw{.layer = layer, .path = "mixer.query_scale"};
      raw.expected = Number(want);
      raw.found = Number(found.scale);
      raw.edit_json = ScaleJson(found.scale);
      KeptIn(kept, std::move(raw));
    } else if (found.scale != 0 && !Same(want, found.scale)) {
      RawFinding raw{.kind = FindingKind::kAttention, .layer = layer, .path = "mixer.query_scale"};
      raw.what = "another scale of attention";
      raw.expected = Number(want);
      raw.found = Number(found.scale);
      raw.edit_json = ScaleJson(found.scale);
      const double old = graph_.Float(found.node, "scale", 0);
      if (found.elementary) {
        const auto factor = graph_.Scalar(found.scale_constant);
        if (!factor || !SetScalar(graph_, found.scale_constant, found.scale_node,
                                  want / found.scale * *factor, raw.patch))
          raw.how_to = "export again with this scale: no factor in the graph stands for it";
      } else {
        const double scale = old > 0 ? want / found.scale * old : want;
        if (std::isfinite(scale) && HasAttribute(found.node, "scale"))
          raw.patch.attributes.push_back(
              {.node = Source(found.node), .name = "scale", .value = static_cast<float>(scale)});
        else
          raw.how_to = "export again with this scale: the operator has no such attribute";
      }
      out_.Add(std::move(raw));
    }
    // An attribute of the operator, in fp32 whatever the scale is kept in.
    const bool same_cap =
        expected.logit_softcap.has_value() == found.softcap.has_value() &&
        (!found.softcap || SameAsStored(*expected.logit_softcap, *found.softcap, Rounding::kNone));
    if (!same_cap) {
      RawFinding raw{
          .kind = FindingKind::kAttention, .layer = layer, .path = "mixer.logit_softcap"};
      raw.what = "another soft cap of attention";
      raw.expected = NumberOrNone(expected.logit_softcap);
      raw.found = NumberOrNone(found.softcap);
      raw.edit_json = found.softcap ? NumberJson(*found.softcap) : "null";
      if (!found.elementary && HasAttribute(found.node, "softcap"))
        raw.patch.attributes.push_back(
            {.node = Source(found.node),
             .name = "softcap",
             .value = static_cast<float>(expected.logit_softcap.value_or(0))});
      else
        raw.how_to = fmt::format("export again with the soft cap: {} has no attribute for it",
                                 graph_.node(found.node).op);
      out_.Add(std::move(raw));
    }
    if (expected.clip_qkv && found.clip && !Same(*expected.clip_qkv, *found.clip)) {
      RawFinding raw{.kind = FindingKind::kAttention, .layer = layer, .path = "mixer.clip_qkv"};
      raw.what = "another clamp of q, k and v";
      raw.expected = Number(*expected.clip_qkv);
      raw.found = Number(*found.clip);
      raw.edit_json = NumberJson(*found.clip);
      raw.how_to = "export again with this clamp";
      out_.Add(std::move(raw));
    }
  }

  // Attention that knows no shared keys gets each of them as often as queries read it.
  bool RepeatsKeys(int layer, const AttentionSpec& expected, const FoundAttention& found) const {
    const auto keys = found_.matrices.find({Role::kKProj, Part::kWeight, layer, -1});
    return found.num_key_value_heads == expected.num_attention_heads &&
           keys != found_.matrices.end() &&
           keys->second.matrix.rows == expected.num_key_value_heads * expected.head_dim;
  }

  bool HasAttribute(int node, std::string_view attribute) const {
    return AttentionHas(graph_.node(node).op, graph_.node(node).microsoft, attribute);
  }

  using Window = std::optional<int64_t>;
  static std::string WindowText(const Window& window) {
    return window ? std::to_string(*window) : "none";
  }

  // All layers together: what is lost in some and too many in others is one shifted schedule.
  void Windows() {
    std::vector<int64_t> wanted, had;
    Window size, other;
    const size_t layers = std::min(found_.layers.size(), spec_.layers.size());
    std::vector<std::pair<int, Window>> wrong;
    for (size_t i = 0; i < layers; ++i) {
      const auto* attention = std::get_if<AttentionSpec>(&spec_.layers[i].mixer);
      const auto& found = found_.layers[i].attention;
      if (attention == nullptr || !found || !found->window_read) continue;
      if (attention->sliding_window) {
        wanted.push_back(static_cast<int64_t>(i));
        size = attention->sliding_window;
      }
      if (found->window) {
        had.push_back(static_cast<int64_t>(i));
        other = found->window;
      }
      if (attention->sliding_window != found->window)
        wrong.emplace_back(static_cast<int>(i), attention->sliding_window);
    }
    const bool shifted = !wanted.empty() && !had.empty() && wanted != had;
    for (const auto& [layer, want] : wrong) {
      const FoundAttention& found = *found_.layers[static_cast<size_t>(layer)].attention;
      RawFinding raw{
          .kind = FindingKind::kAttention, .layer = layer, .path = "mixer.sliding_window"};
      if (shifted) {
        raw.what = "the windows are on the wrong layers";
        raw.expected = fmt::format("{} on layers {}", *size, JoinNumbers(wanted));
        raw.found = fmt::format("{} on layers {}", *other, JoinNumbers(had));
      } else {
        raw.what = !found.window ? "the window is lost"
                   : !want       ? "a window where there is none"
                                 : "a window of another size";
        raw.expected = WindowText(want);
        raw.found = WindowText(found.window);
      }
      raw.edit_json = found.window ? std::to_string(*found.window) : "null";
      if (!SetWindow(found, want, raw.patch))
        raw.how_to = "export again with the windows: the graph's masks cannot express them";
      out_.Add(std::move(raw));
    }
  }

  bool SetWindow(const FoundAttention& found, const Window& want, OnnxPatch& patch) const {
    if (!found.gqa && found.mask_node < 0) return false;
    const size_t node = Source(found.gqa ? found.node : found.mask_node);
    if (found.gqa) {
      patch.attributes.push_back(
          {.node = node, .name = "local_window_size", .value = want.value_or(-1)});
      if (!want && graph_.Int(found.node, "sliding_window_cache", 0) != 0)
        patch.attributes.push_back(
            {.node = node, .name = "sliding_window_cache", .value = int64_t{0}});
      return true;
    }
    if (found.mask == kNoValue) return false;
    // A layer whose mask is the wanted one lends it.
    for (const FoundLayer& layer : found_.layers) {
      if (!layer.attention || layer.attention->gqa || layer.attention->window != want) continue;
      if (layer.attention->mask == kNoValue) continue;
      patch.inputs.push_back(
          {.node = node, .slot = found.mask_slot, .value = graph_.Name(layer.attention->mask)});
      return true;
    }
    if (found.window) {
      if (!want || found.window_constant == kNoValue) return false;
      // All layers with this mask want the same, or what mends one spoils another.
      for (size_t i = 0; i < std::min(found_.layers.size(), spec_.layers.size()); ++i) {
        const auto* attention = std::get_if<AttentionSpec>(&spec_.layers[i].mixer);
        const auto& other = found_.layers[i].attention;
        if (other && other->window_constant == found.window_constant &&
            (attention == nullptr || attention->sliding_window != want))
          return false;
      }
      const auto view = graph_.Constant(found.window_constant);
      const int compare = graph_.Consumers(found.window_constant).size() == 1
                              ? graph_.Consumers(found.window_constant)[0]
                              : -1;
      if (!view || compare < 0) return false;
      const auto old = graph_.Integers(found.window_constant);
      const int64_t change = *want - *found.window;
      if (old.size() != 1) return false;
      const auto number = static_cast<float>(old[0] < 0 ? old[0] - change : old[0] + change);
      const auto tensor = PatchOf(graph_, *view, std::span(&number, 1));
      if (!tensor) return false;
      patch.tensors.push_back(*tensor);
      return true;
    }
    return want && NewMask(found, *want, patch);
  }

  // mask AND (query - key < window), by the numbers of the rows: in a batch padded on the left they
  // differ from positions by the same on both sides.
  bool NewMask(const FoundAttention& found, int64_t window, OnnxPatch& patch) const {
    const int producer = graph_.Producer(found.mask);
    const auto opset = graph_.model().opsets().find("");
    if (producer < 0 || found_.tokens == kNoValue || opset == graph_.model().opsets().end() ||
        opset->second < 15)
      return false;
    const auto boolean = MaskIsBoolean(found.mask);
    if (!boolean) return false;
    const size_t after = Source(producer);
    const std::string& mask = graph_.Name(found.mask);
    const std::string base = fmt::format("{}_window_{}_", mask, window);
    const auto add = [&](std::string op, std::vector<std::string> inputs, std::string output,
                         std::vector<std::pair<std::string, int64_t>> attributes = {}) {
      for (std::string& input : inputs)
        if (input.starts_with("@")) input = base + input.substr(1);
      patch.nodes.push_back({.after = after,
                             .op_type = std::move(op),
                             .inputs = std::move(inputs),
                             .outputs = {base + output},
                             .attributes = std::move(attributes)});
    };
    const auto constant = [&](double number, std::string output, std::vector<int64_t> dims,
                              OnnxType type = OnnxType::kInt64) {
      auto bytes = EncodeNumbers(std::span(&number, 1), type);
      patch.nodes.push_back(
          {.after = after,
           .op_type = "Constant",
           .outputs = {base + output},
           .value = OnnxPatch::Node::Value{type, std::move(dims),
                                           bytes ? *bytes : std::vector<std::byte>{}}});
    };
    constant(0, "zero", {});
    constant(1, "one", {});
    constant(0, "axis_0", {1});
    constant(1, "axis_1", {1});
    constant(static_cast<double>(window), "size", {});
    add("Shape", {graph_.Name(found_.tokens)}, "new_1", {{"start", 1}, {"end", 2}});
    add("Shape", {mask}, "all_1", {{"start", -1}});
    add("Squeeze", {"@new_1"}, "new");
    add("Squeeze", {"@all_1"}, "all");
    add("Sub", {"@all", "@new"}, "first");
    add("Range", {"@first", "@all", "@one"}, "queries");
    add("Range", {"@zero", "@all", "@one"}, "keys");
    add("Unsqueeze", {"@queries", "@axis_1"}, "query_rows");
    add("Unsqueeze", {"@keys", "@axis_0"}, "key_columns");
    add("Sub", {"@query_rows", "@key_columns"}, "distance");
    add("Less", {"@distance", "@size"}, "inside");
    if (*boolean) {
      add("And", {mask, "@inside"}, "mask");
    } else {
      constant(-3.4028234663852886e38, "never", {}, OnnxType::kFloat);
      add("Where", {"@inside", mask, "@never"}, "mask");
    }
    patch.inputs.push_back(
        {.node = Source(found.mask_node), .slot = found.mask_slot, .value = base + "mask"});
    return true;
  }

  std::optional<bool> MaskIsBoolean(int mask) const {
    for (int hops = 0; hops < 16; ++hops) {
      const int p = graph_.Producer(mask);
      if (p < 0) return std::nullopt;
      const auto& node = graph_.node(p);
      if (node.op == "Cast") {
        const int64_t to = graph_.Int(p, "to", 0);
        if (to == static_cast<int64_t>(OnnxType::kBool)) return true;
        return to == static_cast<int64_t>(OnnxType::kFloat) ? std::optional(false) : std::nullopt;
      }
      if (node.op == "And" || node.op == "Or" || node.op == "Not" || node.op.starts_with("Less") ||
          node.op.starts_with("Greater") || node.op == "Equal")
        return true;
      if (node.op == "Where") {
        const auto view = graph_.Constant(node.In(1));
        if (!view) return std::nullopt;
        const OnnxType type = graph_.model().tensors()[static_cast<size_t>(view->tensor)].type;
        return type == OnnxType::kFloat ? std::optional(false) : std::nullopt;
      }
      mask = node.In(0);
    }
    return std::nullopt;
  }

  void FeedForward(int layer, const LayerSpec& spec, const FoundLayer& found) {
    const auto* moe = std::get_if<MoeSpec>(&spec.mlp);
    const MlpSpec& mlp = moe != nullptr ? moe->expert : std::get<MlpSpec>(spec.mlp);
    const std::string at = moe != nullptr ? "mlp.expert" : "mlp";
    if (found.activation && !mlp.clamped_glu && found.activation->activation != mlp.activation) {
      constexpr std::string_view kNames[] = {"silu",       "gelu", "gelu_tanh",
                                             "quick_gelu", "relu", "relu2"};
      RawFinding raw{.kind = FindingKind::kActivation, .layer = layer, .path = at + ".activation"};
      raw.what = "another activation";
      raw.expected = kNames[static_cast<size_t>(mlp.activation)];
      raw.found = kNames[static_cast<size_t>(found.activation->activation)];
      raw.edit_json = fmt::format("\"{}\"", raw.found);
      const bool gelu = graph_.node(found.activation->node).op == "Gelu";
      if (gelu && (mlp.activation == Activation::kGelu || mlp.activation == Activation::kGeluTanh))
        raw.patch.attributes.push_back(
            {.node = Source(found.activation->node),
             .name = "approximate",
             .value = std::string(mlp.activation == Activation::kGelu ? "none" : "tanh")});
      else
        raw.how_to = "export again: the activation is another operator";
      out_.Add(std::move(raw));
    }
    if (moe == nullptr || !found.routing) return;
    const FoundRouting& routing = *found.routing;
    // PhiMoE's sparse mixer chooses its experts one after the other.
    if (moe->router.scoring == RouterScoring::kSparseMixer) return;
    if (routing.top_k && *routing.top_k != moe->num_experts_per_tok) {
      RawFinding raw{
          .kind = FindingKind::kRouting, .layer = layer, .path = "mlp.num_experts_per_tok"};
      raw.what = "another number of experts a token";
      raw.expected = std::to_string(moe->num_experts_per_tok);
      raw.found = std::to_string(*routing.top_k);
      raw.edit_json = raw.found;
      if (routing.top_k_constant == kNoValue)
        raw.patch.attributes.push_back(
            {.node = Source(routing.node), .name = "k", .value = moe->num_experts_per_tok});
      else if (!SetScalar(graph_, routing.top_k_constant, routing.node,
                          static_cast<double>(moe->num_experts_per_tok), raw.patch))
        raw.how_to = "export again with this many experts a token";
      out_.Add(std::move(raw));
    }
    const bool normalizes =
        moe->router.normalize_top_k || moe->router.scoring == RouterScoring::kTopKThenSoftmax;
    // The operator takes softmax over all experts, and over the chosen ones when it normalizes.
    if (routing.normalize && graph_.node(routing.node).op == "MoE" &&
        *routing.normalize != normalizes) {
      RawFinding raw{
          .kind = FindingKind::kRouting, .layer = layer, .path = "mlp.router.normalize_top_k"};
      raw.what = normalizes ? "the weights of the chosen experts are not normalized"
                            : "the weights of the chosen experts are normalized";
      raw.expected = normalizes ? "true" : "false";
      raw.found = normalizes ? "false" : "true";
      raw.edit_json = raw.found;
      raw.patch.attributes.push_back({.node = Source(routing.node),
                                      .name = "normalize_routing_weights",
                                      .value = int64_t{normalizes ? 1 : 0}});
      out_.Add(std::move(raw));
    }
  }

  void Head() {
    if (!found_.head_read) return;
    OneScale("lm_head.logit_scale", -1, spec_.lm_head.logit_scale, found_.logit_scale,
             spec_.lm_head.logit_softcap ? kNoValue : found_.logits, true);
    const auto& want = spec_.lm_head.logit_softcap;
    const auto& got = found_.logit_softcap;
    const Rounding storage = StorageOf(graph_, found_.softcap_multiply);
    if (want.has_value() == got.has_value() && (!want || SameAsStored(*want, *got, storage)))
      return;
    RawFinding raw{.kind = FindingKind::kScale, .path = "lm_head.logit_softcap"};
    raw.what =
        want && !got ? "the soft cap of the logits is missing" : "another soft cap of the logits";
    raw.expected = NumberOrNone(want);
    raw.found = NumberOrNone(got);
    raw.edit_json = got ? NumberJson(*got) : "null";
    const bool done =
        want && got &&
        SetScalar(graph_, found_.softcap_divide, found_.softcap_divide_node, *want, raw.patch) &&
        SetScalar(graph_, found_.softcap_multiply, found_.softcap_multiply_node, *want, raw.patch);
    if (!done) raw.how_to = "export again with this soft cap";
    out_.Add(std::move(raw));
  }

  const ModelSpec& spec_;
  const Graph& graph_;
  const FoundDecoder& found_;
  AuditReport& report_;
  Collector& out_;
};

}  // namespace

void CompareFacts(const Model& reference, const Graph& graph, AuditReport& report, Collector& out) {
  Facts(reference, graph, report, out).Run();
}

}  // namespace lockstep
