// Attention by com.microsoft's GroupQueryAttention. What the operator does not do itself on the CPU
// (norms of q and k, clamps, rotations of unusual widths, head sizes that are no multiple of 8) is
// done around it by plain operators, and noted.
#include "export/genai/layers.h"
#include "export/genai/linear.h"
#include "export/genai/norm.h"
#include "export/genai/rope.h"

namespace lockstep::genai {
namespace {

// GroupQueryAttention rotates heads of a multiple of 16 elements, and half of the turning part must
// be a multiple of 8 (docs of ort-ops: INVALID_ARGUMENT at run otherwise).
bool OperatorRotates(const RopeSpec& rope, int64_t head_size, const RopeValues& tables) {
  return !tables.made_by_run && head_size % 16 == 0 && rope.rotary_dim % 16 == 0;
}

std::string CacheName(const char* pattern, int layer, const char* part) {
  return fmt::format("{}.{}.{}", pattern, layer, part);
}

}  // namespace

int64_t HeadSize(const MixerSpec& mixer) {
  if (const auto* a = std::get_if<AttentionSpec>(&mixer)) return a->head_dim;
  if (const auto* a = std::get_if<MlaSpec>(&mixer))
    return std::max(a->qk_nope_head_dim + a->qk_rope_head_dim, a->v_head_dim);
  return 0;
}

std::string Attend(GraphBuilder& b, const std::string& name, int layer, const AttentionCall& call) {
  const auto cache = [&](const char* part, std::vector<OnnxValueInfo>& past,
                         std::vector<OnnxValueInfo>& present) {
    const auto info = [&](const char* pattern, const char* rows) {
      return OnnxValueInfo{
          CacheName(pattern, layer, part), OnnxType::kFloat,
          std::vector<OnnxDim>{
              {{}, "batch_size"}, {call.kv_heads, ""}, {{}, rows}, {b.cache_head_size, ""}}};
    };
    past.push_back(info("past_key_values", "past_sequence_length"));
    present.push_back(info("present", "total_sequence_length"));
  };
  cache("key", b.keys, b.present_keys);
  cache("value", b.values, b.present_values);

  double factor = FactorOf(call.scale);
  std::string q = call.q;
  if (factor == 0) {  // the operator takes a scale of 0 for none given
    q = b.graph.Node(name + "/scale/Mul", Onnx("Mul"), {q, b.graph.Float(0)});
    factor = 1;
  }
  RopeValues tables;
  if (call.rope != nullptr) tables = RopeTables(b, *call.rope);
  const std::string out = name + "/GroupQueryAttention/output_0";
  b.graph.NodeTo(name + "/GroupQueryAttention", Microsoft("GroupQueryAttention"),
                 {q, call.k, call.v, CacheName("past_key_values", layer, "key"),
                  CacheName("past_key_values", layer, "value"), b.KeyCounts(), b.TotalLength(),
                  tables.cos, tables.sin, tables.rows, "", call.sinks},
                 {out, CacheName("present", layer, "key"), CacheName("present", layer, "value")},
                 {{"num_heads", call.heads},
                  {"kv_num_heads", call.kv_heads},
                  {"scale", static_cast<float>(factor)},
                  {"local_window_size", call.window.value_or(-1)},
                  {"softcap", static_cast<float>(call.softcap.value_or(0))},
                  {"do_rotary", int64_t{call.rope != nullptr}},
                  {"rotary_interleaved", int64_t{call.rope != nullptr &&
                                                 call.rope->layout == RopeLayout::kInterleaved}}});
  return out;
}

namespace {

class AttentionLayer {
 public:
  AttentionLayer(GraphBuilder& b, const AttentionSpec& a, int layer)
      : b_(b), a_(a), layer_(layer), name_(fmt::format("/model/layers.{}/attn", layer)) {}

  std::string Build(const std::string& x) {
    const int64_t heads = a_.num_attention_heads, kv_heads = a_.num_key_value_heads;
    const int64_t padded = b_.cache_head_size;
    AttentionCall call{.heads = heads,
                       .kv_heads = kv_heads,
                       .scale = a_.query_scale,
                       .window = a_.sliding_window,
                       .softcap = a_.logit_softcap};
    const bool operator_rotates =
        a_.rope && OperatorRotates(*a_.rope, padded, RopeTables(b_, *a_.rope));
    if (operator_rotates) call.rope = &*a_.rope;
    if (a_.sinks)
      call.sinks =
          b_.Floats(GraphBuilder::WeightName(name_) + ".sinks", {heads},
                    [&b = b_, layer = layer_] { return b.ReadVector(Role::kSinks, layer); });
    const bool apart =
        a_.q_norm || a_.k_norm || padded != a_.head_dim || (a_.rope && !operator_rotates);
    Project(x, apart);
    if (a_.q_norm) q_ = NormedHeads("q_norm", q_, *a_.q_norm, Role::kQNorm, heads);
    if (a_.k_norm) k_ = NormedHeads("k_norm", k_, *a_.k_norm, Role::kKNorm, kv_heads);
    if (a_.clip_qkv) {
      q_ = Clamped("q_clip", q_);
      if (!k_.empty()) k_ = Clamped("k_clip", k_);
      if (!v_.empty()) v_ = Clamped("v_clip", v_);
    }
    if (a_.rope && !operator_rotates) {
      if (!RopeTables(b_, *a_.rope).made_by_run)
        b_.Note(
            fmt::format("{} turning elements of heads of {}: rotated by RotaryEmbedding, because "
                        "GroupQueryAttention turns only multiples of 16",
                        a_.rope->rotary_dim, a_.head_dim));
      else
        b_.Note("dynamic RoPE: the graph computes its tables from the length at every run");
      q_ = Rotated(b_, name_ + "/q_rotary", q_, *a_.rope, heads, a_.head_dim);
      k_ = Rotated(b_, name_ + "/k_rotary", k_, *a_.rope, kv_heads, a_.head_dim);
    }
    if (padded != a_.head_dim) {
      b_.Note(
          fmt::format("heads of {} elements are padded with zeros to {}, the size of the caches",
                      a_.head_dim, padded));
      q_ = b_.PadHeads(name_ + "/q_pad", q_, heads, a_.head_dim, padded);
      k_ = b_.PadHeads(name_ + "/k_pad", k_, kv_heads, a_.head_dim, padded);
      v_ = b_.PadHeads(name_ + "/v_pad", v_, kv_heads, a_.head_dim, padded);
    }
    call.q = q_;
    call.k = k_;
    call.v = v_;
    const std::string out = Attend(b_, name_, layer_, call);
    const std::string cut = b_.CutHeads(name_ + "/cut", out, heads, padded, a_.head_dim);
    return Linear(b_, name_ + "/o_proj", cut, Role::kOProj, layer_, a_.o_bias);
  }

 private:
  // q, k and v of one product where their biases allow it; split where something follows that is
  // not the same for all.
  void Project(const std::string& x, bool apart) {
    if (a_.q_bias != a_.k_bias || a_.q_bias != a_.v_bias) {
      q_ = Linear(b_, name_ + "/q_proj", x, Role::kQProj, layer_, a_.q_bias);
      k_ = Linear(b_, name_ + "/k_proj", x, Role::kKProj, layer_, a_.k_bias);
      v_ = Linear(b_, name_ + "/v_proj", x, Role::kVProj, layer_, a_.v_bias);
      return;
    }
    std::vector<MatrixSource> parts;
    std::vector<int64_t> sizes;
    for (const Role role : {Role::kQProj, Role::kKProj, Role::kVProj}) {
      parts.push_back(SourceOf(b_.weights.Get(role, layer_)));
      sizes.push_back(parts.back().rows);
    }
    Bias bias;
    if (a_.q_bias)
      bias = [&b = b_, layer = layer_] {
        std::vector<float> out;
        for (const Role role : {Role::kQProj, Role::kKProj, Role::kVProj}) {
          const std::vector<float> part = b.ReadVector(role, layer, Part::kBias);
          out.insert(out.end(), part.begin(), part.end());
        }
        return out;
      };
    q_ = Linear(b_, name_ + "/qkv_proj", x, Stacked(std::move(parts)), bias);
    if (!apart) return;
    const std::vector<std::string> split = b_.Split(name_ + "/qkv_proj/Split", q_, sizes);
    q_ = split[0];
    k_ = split[1];
    v_ = split[2];
  }

  std::string NormedHeads(const char* what, const std::string& x, const NormSpec& norm, Role role,
                          int64_t heads) {
    const std::string name = fmt::format("{}/{}", name_, what);
    const std::string node = name + "/layernorm";
    const int64_t width = heads * a_.head_dim;
    if (a_.qk_norm_scope == QkNormScope::kProjection)
      return Normed(b_, node, x, norm, role, layer_, width);
    const std::string split = b_.Reshape(name + "/Reshape_1", x, {0, -1, a_.head_dim});
    return b_.Reshape(name + "/Reshape_2", Normed(b_, node, split, norm, role, layer_, a_.head_dim),
                      {0, -1, width});
  }

  std::string Clamped(const char* what, const std::string& x) {
    const auto limit = static_cast<float>(*a_.clip_qkv);
    return b_.graph.Node(fmt::format("{}/{}/Clip", name_, what), Onnx("Clip"),
                         {x, b_.graph.Float(-limit), b_.graph.Float(limit)});
  }

  GraphBuilder& b_;
  const AttentionSpec& a_;
  const int layer_;
  const std::string name_;
  std::string q_, k_, v_;
};

}  // namespace

std::string Mix(GraphBuilder& b, const AttentionSpec& attention, int layer, const std::string& x) {
  return AttentionLayer(b, attention, layer).Build(x);
}

}  // namespace lockstep::genai
