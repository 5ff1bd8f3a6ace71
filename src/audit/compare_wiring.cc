// How the layers of a graph are fed besides the residual stream: each one's cache comes from and
// goes to places of one number, the same positions turn every layer, and layers that see alike have
// one mask. Compared among the layers, by structure: nothing outside the graph says what the
// numbers of a mask or of position ids are, and the report says that they were not compared.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <type_traits>

#include "audit/findings.h"
#include "audit/walk.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

// Where an operator reads and gives keys and values; none: it has no cache that is known here.
struct CacheSlots {
  std::array<size_t, 2> past, present;
};
std::optional<CacheSlots> CacheSlotsOf(const Graph::Node& node) {
  if (node.microsoft && node.op == "GroupQueryAttention") return CacheSlots{{3, 4}, {1, 2}};
  if (node.microsoft && node.op == "MultiHeadAttention") return CacheSlots{{6, 7}, {1, 2}};
  if (!node.microsoft && node.op == "Attention") return CacheSlots{{4, 5}, {1, 2}};
  return std::nullopt;
}

uint64_t Mix(uint64_t a, uint64_t b) {
  return (a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccd;
}

uint64_t PrintOf(std::span<const std::byte> bytes) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// What a tensor holds: type, shape and bytes.
uint64_t PrintOf(const OnnxTensor& tensor) {
  uint64_t out = Mix(static_cast<uint64_t>(tensor.type), PrintOf(std::span(tensor.bytes)));
  for (const int64_t dim : tensor.dims) out = Mix(out, static_cast<uint64_t>(dim));
  return out;
}

uint64_t PrintOf(const OnnxAttribute& attribute) {
  const auto of = [](const auto& value) -> uint64_t {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::shared_ptr<const OnnxTensor>>) {
      return value ? PrintOf(*value) : 0;
    } else if constexpr (std::is_same_v<T, OnnxSubgraph>) {
      return PrintOf(value.bytes);
    } else if constexpr (std::is_same_v<T, std::vector<float>> ||
                         std::is_same_v<T, std::vector<int64_t>> ||
                         std::is_same_v<T, std::vector<std::string>>) {
      uint64_t out = value.size();
      for (const auto& one : value) out = Mix(out, std::hash<std::decay_t<decltype(one)>>()(one));
      return out;
    } else {
      return std::hash<T>()(value);
    }
  };
  return Mix(Mix(std::hash<std::string>()(attribute.name), attribute.value.index()),
             std::visit(of, attribute.value));
}

// "past.12.key" is "past.%d.key" and 12.
struct Numbered {
  std::string pattern;
  int64_t number = -1;
};
Numbered NumberIn(std::string_view name) {
  const size_t last = name.find_last_of("0123456789");
  if (last == std::string_view::npos) return {std::string(name), -1};
  const size_t before = name.find_last_not_of("0123456789", last);
  const size_t first = before == std::string_view::npos ? 0 : before + 1;
  if (last - first > 6) return {std::string(name), -1};
  int64_t number = 0;
  for (size_t i = first; i <= last; ++i) number = number * 10 + (name[i] - '0');
  return {fmt::format("{}%d{}", name.substr(0, first), name.substr(last + 1)), number};
}
std::string With(const std::string& pattern, int64_t number) {
  const size_t at = pattern.find("%d");
  return at == std::string::npos
             ? pattern
             : fmt::format("{}{}{}", pattern.substr(0, at), number, pattern.substr(at + 2));
}

class Feeds {
 public:
  Feeds(const ModelSpec& spec, const Graph& graph, AuditReport& report, Collector& out)
      : spec_(spec),
        graph_(graph),
        found_(report.decoder),
        report_(report),
        out_(out),
        walk_(graph) {}

  void Run() {
    Caches();
    Positions();
    Masks();
    report_.not_compared.emplace_back("what the attention masks say besides windows");
    report_.not_compared.emplace_back("how position ids are counted");
  }

 private:
  struct Cache {
    int layer, node;
    size_t slot;
    int past;  // what the operator reads there
    std::string input, output;
  };
  // Who reads a value where, and what it is made of.
  struct Feed {
    int layer, node;
    size_t slot;
    int value;
    uint64_t print;
  };

  size_t Source(int node) const { return static_cast<size_t>(graph_.node(node).source); }

  std::string InputBehind(int value) const {
    for (int hops = 0; hops < 8 && value != kNoValue; ++hops) {
      if (graph_.IsInput(value)) return graph_.Name(value);
      const int p = graph_.Producer(value);
      if (p < 0 || !walk_.IsMover(p)) break;
      value = graph_.node(p).In(0);
    }
    return {};
  }

  std::string OutputAhead(int value) const {
    for (int hops = 0; hops < 8 && value != kNoValue; ++hops) {
      if (graph_.IsOutput(value)) return graph_.Name(value);
      int next = kNoValue;
      for (const int c : graph_.Consumers(value))
        if (walk_.IsShapeOnly(c)) next = graph_.node(c).Out(0);
      value = next;
    }
    return {};
  }

  void Caches() {
    std::vector<Cache> caches;
    int64_t unread = 0;
    for (size_t i = 0; i < found_.layers.size(); ++i) {
      const auto& attention = found_.layers[i].attention;
      if (!attention) continue;
      const auto slots = CacheSlotsOf(graph_.node(attention->node));
      bool read = slots && !attention->elementary;
      for (size_t side = 0; read && side < 2; ++side) {
        const auto& node = graph_.node(attention->node);
        Cache cache{.layer = static_cast<int>(i),
                    .node = attention->node,
                    .slot = slots->past[side],
                    .past = node.In(slots->past[side]),
                    .input = {},
                    .output = OutputAhead(node.Out(slots->present[side]))};
        cache.input = InputBehind(cache.past);
        read = NumberIn(cache.input).number >= 0 && NumberIn(cache.output).number >= 0;
        if (read) caches.push_back(std::move(cache));
      }
      if (!read) ++unread;
    }
    // Which output belongs to which input, by what most layers have.
    std::map<std::string, std::map<std::string, int>> votes;
    for (const Cache& cache : caches)
      ++votes[NumberIn(cache.output).pattern][NumberIn(cache.input).pattern];
    for (const Cache& cache : caches) {
      const Numbered output = NumberIn(cache.output);
      const auto& all = votes.at(output.pattern);
      const std::string& pattern =
          std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
            return a.second < b.second;
          })->first;
      const std::string right = With(pattern, output.number);
      if (cache.input == right) continue;
      RawFinding raw{.kind = FindingKind::kAttention, .layer = cache.layer, .path = "mixer.cache"};
      raw.what = fmt::format("what {} keeps is read back from elsewhere", cache.output);
      raw.expected = right;
      raw.found = cache.input;
      if (graph_.IsInput(cache.past) && graph_.Value(right) != kNoValue &&
          graph_.IsInput(graph_.Value(right)))
        raw.patch.inputs.push_back(
            {.node = Source(cache.node), .slot = cache.slot, .value = right});
      else
        raw.how_to = "export again with each layer's own cache";
      out_.Add(std::move(raw));
    }
    if (unread > 0)
      report_.not_compared.push_back(
          fmt::format("how the caches of {} layers go in and out", unread));
  }

  // By their bytes, each tensor once: every layer may have its own copy of one constant.
  uint64_t PrintOfTensor(int tensor) {
    const auto [at, fresh] = tensor_prints_.try_emplace(tensor);
    if (fresh) at->second = PrintOf(graph_.model().tensors()[static_cast<size_t>(tensor)]);
    return at->second;
  }

  // What a value is made of: equal for equal operators on equal values, whatever they are called.
  uint64_t Print(int value, int depth = 0) {
    if (value == kNoValue) return 0;
    if (const auto at = prints_.find(value); at != prints_.end()) return at->second;
    uint64_t out = Mix(1, static_cast<uint64_t>(value));
    const int p = graph_.Producer(value);
    if (const auto& view = graph_.Constant(value); view && view->elements() <= 64) {
      out = 2;
      for (const float x : graph_.Read(*view)) out = Mix(out, std::hash<float>()(x));
      for (const int64_t dim : view->shape) out = Mix(out, static_cast<uint64_t>(dim));
    } else if (view) {
      out = Mix(4, PrintOfTensor(view->tensor));
      for (const auto* numbers : {&view->shape, &view->strides})
        for (const int64_t number : *numbers) out = Mix(out, static_cast<uint64_t>(number));
      out = Mix(out, static_cast<uint64_t>(view->offset));
      out = Mix(out, std::bit_cast<uint32_t>(view->factor));
      out = Mix(out, std::bit_cast<uint32_t>(view->addend));
    } else if (p >= 0 && depth < 64) {
      const auto& node = graph_.node(p);
      out = Mix(Mix(3, std::hash<std::string_view>()(node.op)), node.microsoft ? 1 : 0);
      // In whatever order they stand.
      uint64_t all = 0;
      for (const OnnxAttribute& attribute : graph_.model().nodes()[Source(p)].attributes)
        all += PrintOf(attribute);
      out = Mix(out, all);
      for (size_t slot = 0; slot < node.out.size(); ++slot)
        if (node.out[slot] == value) out = Mix(out, slot);
      for (const int in : node.in) out = Mix(out, Print(in, depth + 1));
    }
    prints_[value] = out;
    return out;
  }

  bool Before(int value, int node) const {
    const int p = graph_.Producer(value);
    return value != kNoValue && (p < 0 || p < node);
  }

  // Those that differ from what most of them have, told and, where nothing forbids, mended.
  void TellOdd(const std::vector<Feed>& feeds, FindingKind kind, const std::string& path,
               const std::string& what) {
    std::map<uint64_t, std::set<int>> layers;
    for (const Feed& feed : feeds) layers[feed.print].insert(feed.layer);
    if (layers.size() < 2) return;
    const auto most = std::max_element(
        layers.begin(), layers.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    const bool clear = std::all_of(layers.begin(), layers.end(), [&](const auto& one) {
      return one.first == most->first || one.second.size() < most->second.size();
    });
    const auto model = std::find_if(feeds.begin(), feeds.end(),
                                    [&](const Feed& feed) { return feed.print == most->first; });
    for (const Feed& feed : feeds) {
      if (feed.print == most->first) continue;
      RawFinding raw{.kind = kind, .layer = feed.layer, .path = path};
      raw.what = what;
      raw.expected = fmt::format("that of {} other layers", most->second.size());
      raw.found = "another";
      if (clear && Before(model->value, feed.node))
        raw.patch.inputs.push_back(
            {.node = Source(feed.node), .slot = feed.slot, .value = graph_.Name(model->value)});
      else
        raw.how_to = "export again with one for all of these layers";
      out_.Add(std::move(raw));
    }
  }

  void Positions() {
    std::vector<Feed> feeds;
    for (size_t i = 0; i < found_.layers.size(); ++i) {
      const auto& attention = found_.layers[i].attention;
      if (!attention || !attention->rope) continue;
      for (const auto& [node, slot] : walk_.PositionReaders(*attention))
        if (const int value = graph_.node(node).In(slot); value != kNoValue)
          feeds.push_back({static_cast<int>(i), node, slot, value, Print(value)});
    }
    TellOdd(feeds, FindingKind::kRope, "mixer.positions",
            "other position ids turn these heads than those of other layers");
  }

  void Masks() {
    using Kind = std::tuple<bool, size_t, int64_t, int64_t>;
    std::map<Kind, std::vector<Feed>> alike;
    for (size_t i = 0; i < std::min(found_.layers.size(), spec_.layers.size()); ++i) {
      const auto& attention = found_.layers[i].attention;
      const auto* spec = std::get_if<AttentionSpec>(&spec_.layers[i].mixer);
      if (!attention || spec == nullptr || !attention->window_read) continue;
      const auto& node = graph_.node(attention->node);
      const auto add = [&](int reader, size_t slot, int value) {
        if (value != kNoValue)
          // The operator has its window as an attribute: what may be seen is counted without it.
          alike[{attention->gqa, slot, attention->gqa ? 0 : attention->window.value_or(0),
                 attention->gqa ? 0 : spec->sliding_window.value_or(0)}]
              .push_back({static_cast<int>(i), reader, slot, value, Print(value)});
      };
      if (attention->gqa)
        for (const size_t slot : {size_t{5}, size_t{6}}) add(attention->node, slot, node.In(slot));
      else if (attention->mask_node >= 0)
        add(attention->mask_node, attention->mask_slot, attention->mask);
    }
    for (const auto& [kind, feeds] : alike)
      TellOdd(feeds, FindingKind::kAttention, "mixer.mask",
              std::get<0>(kind) ? "another count of what may be seen than that of other layers"
                                : "another attention mask than that of other layers");
  }

  const ModelSpec& spec_;
  const Graph& graph_;
  const FoundDecoder& found_;
  AuditReport& report_;
  Collector& out_;
  const Walk walk_;
  std::map<int, uint64_t> prints_, tensor_prints_;
};

}  // namespace

void CompareWiring(const ModelSpec& spec, const Graph& graph, AuditReport& report, Collector& out) {
  Feeds(spec, graph, report, out).Run();
}

}  // namespace lockstep
