#include "formats/onnx_write.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/disk_error.h"
#include "base/dtype.h"
#include "base/quoted.h"
#include "base/temporary_folder.h"
#include "formats/onnx_encode.h"
#include "formats/onnx_read.h"
#include "formats/protobuf.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// One patched tensor, checked: what it is and what becomes of it.
struct Change {
  const OnnxTensor* tensor = nullptr;
  OnnxType type = OnnxType::kUndefined;
  std::vector<int64_t> dims;
  std::span<const std::byte> bytes;

  bool SameForm() const { return type == tensor->type && dims == tensor->dims; }
};

using Changes = std::map<const OnnxTensor*, Change>;

Result<Changes> CheckTensors(const OnnxModel& model, const OnnxPatch& patch) {
  Changes out;
  const std::string place = model.path().string();
  for (const OnnxPatch::Tensor& wanted : patch.tensors) {
    Change change{.tensor = model.Tensor(wanted.name), .bytes = wanted.bytes};
    if (change.tensor == nullptr)
      return UsageError("{}: no initializer or constant is called {}", place, Quoted(wanted.name));
    change.type = wanted.type.value_or(change.tensor->type);
    change.dims = wanted.dims.value_or(change.tensor->dims);
    const int bits = OnnxTypeBits(change.type);
    uint64_t elements = 1;
    for (const int64_t dim : change.dims)
      if (dim < 0 || __builtin_mul_overflow(elements, static_cast<uint64_t>(dim), &elements))
        return UsageError("{}: {} cannot have a dimension {}", place, Quoted(wanted.name), dim);
    if (bits == 0 || elements > wanted.bytes.size() * 8 ||
        (elements * static_cast<uint64_t>(bits) + 7) / 8 != wanted.bytes.size())
      return UsageError("{}: the new {} has {} bytes, expected {} elements of {}", place,
                        Quoted(wanted.name), wanted.bytes.size(), elements,
                        OnnxTypeName(change.type));
    if (!out.emplace(change.tensor, change).second)
      return UsageError("{}: {} is changed twice", place, Quoted(wanted.name));
  }
  return out;
}

// TensorProto with other contents; name, documentation and unknown fields stay.
Result<std::string> RewriteTensor(ProtoReader message, const Change& change) {
  std::string out;
  bool wrote = false;
  const auto write = [&] {
    if (std::exchange(wrote, true)) return;
    for (const int64_t dim : change.dims)
      AppendVarintField(kTensorDims, static_cast<uint64_t>(dim), out);
    AppendVarintField(kTensorType, static_cast<uint64_t>(change.type), out);
    AppendBytesField(kTensorRaw, Text(change.bytes), out);
  };
  while (!message.done()) {
    LS_TRY(const ProtoField field, message.Next());
    switch (field.number) {
      case kTensorDims:
      case kTensorType:
      case kTensorFloats:
      case kTensorInt32s:
      case kTensorStrings:
      case kTensorInt64s:
      case kTensorRaw:
      case kTensorDoubles:
      case kTensorUInt64s:
      case kTensorExternal:
      case kTensorLocation:
        write();
        break;
      default:
        out += Text(field.whole);
    }
  }
  write();
  return out;
}

std::string EncodeAttribute(const OnnxPatch::Attribute& attribute) {
  return EncodeOnnxAttribute(
      attribute.name,
      std::visit([](const auto& value) { return OnnxAttributeValue(value); }, attribute.value));
}

// A Constant's attribute as `value`, the tensor: what value_float and its kin hold fits there, too.
Result<std::string> RewriteConstant(ProtoReader attribute, const Change& change) {
  std::string tensor, out;
  while (!attribute.done()) {
    LS_TRY(const ProtoField field, attribute.Next());
    if (field.number != kAttributeTensor) continue;
    LS_TRY(tensor, RewriteTensor(attribute.Inside(field), change));
  }
  if (tensor.empty()) {
    LS_TRY(tensor, RewriteTensor(ProtoReader({}, nullptr, ""), change));
  }
  AppendBytesField(kAttributeName, "value", out);
  AppendBytesField(kAttributeTensor, tensor, out);
  AppendVarintField(kAttributeType, 4, out);
  return out;
}

using Attributes = std::map<std::string, const OnnxPatch::Attribute*>;

using Names = std::map<size_t, std::string_view>;  // slot -> value

struct NodeChange {
  Attributes attributes;
  Names inputs, results;
  const Change* constant = nullptr;
};

std::string EncodeNode(const OnnxPatch::Node& node) {
  OnnxNodeText text{.op_type = node.op_type,
                    .domain = node.domain,
                    .inputs = node.inputs,
                    .outputs = node.outputs};
  for (const auto& [name, value] : node.attributes) text.attributes.push_back({name, value});
  if (node.value)
    text.attributes.push_back(
        {"value", OnnxTensorValue{node.value->type, node.value->dims, node.value->bytes}});
  return EncodeOnnxNode(text);
}

Result<std::string> RewriteNode(ProtoReader node, const NodeChange& change) {
  Attributes attributes = change.attributes;
  const Change* constant = change.constant;
  std::string out;
  size_t inputs = 0, results = 0;
  while (!node.done()) {
    LS_TRY(const ProtoField field, node.Next());
    if (field.number == kNodeInput || field.number == kNodeOutput) {
      const bool input = field.number == kNodeInput;
      const Names& names = input ? change.inputs : change.results;
      const auto it = names.find(input ? inputs++ : results++);
      if (it != names.end())
        AppendBytesField(field.number, it->second, out);
      else
        out += Text(field.whole);
      continue;
    }
    if (field.number != kNodeAttribute) {
      out += Text(field.whole);
      continue;
    }
    if (constant != nullptr) {
      LS_TRY(const std::string value, RewriteConstant(node.Inside(field), *constant));
      AppendBytesField(kNodeAttribute, value, out);
      continue;
    }
    std::string name;
    for (ProtoReader inside = node.Inside(field); !inside.done();) {
      LS_TRY(const ProtoField part, inside.Next());
      if (part.number == kAttributeName) name = part.text();
    }
    const auto it = attributes.find(name);
    if (it == attributes.end()) {
      out += Text(field.whole);
    } else {
      AppendBytesField(kNodeAttribute, EncodeAttribute(*it->second), out);
      attributes.erase(it);
    }
  }
  for (const auto& [name, attribute] : attributes)
    AppendBytesField(kNodeAttribute, EncodeAttribute(*attribute), out);
  return out;
}

class GraphWriter {
 public:
  GraphWriter(const OnnxModel& model, const OnnxPatch& patch, const Changes& changes)
      : model_(model) {
    for (const auto& [tensor, change] : changes) {
      if (tensor->node) changed_[*tensor->node].constant = &change;
    }
    for (size_t i = 0; i < model.num_initializers(); ++i)
      if (const auto it = changes.find(&model.tensors()[i]); it != changes.end())
        initializers_[i] = &it->second;
    for (const OnnxPatch::Attribute& attribute : patch.attributes)
      changed_[attribute.node].attributes[attribute.name] = &attribute;
    for (const OnnxPatch::Name& name : patch.inputs)
      changed_[name.node].inputs[name.slot] = name.value;
    for (const OnnxPatch::Name& name : patch.results)
      changed_[name.node].results[name.slot] = name.value;
    for (const OnnxPatch::Node& node : patch.nodes) added_[node.after].push_back(&node);
    for (const std::string& name : patch.outputs)
      if (model.Output(name) == nullptr) outputs_.insert(name);
  }

  Result<std::string> Write() {
    const auto bytes = model_.bytes();
    std::string out;
    out.reserve(bytes.size() + 4096);
    const std::string place = model_.path().string();
    for (ProtoReader message(bytes, bytes.data(), place); !message.done();) {
      LS_TRY(const ProtoField field, message.Next());
      if (field.number == kModelGraph) {
        LS_TRY(const std::string graph, WriteGraph(message.Inside(field)));
        AppendBytesField(kModelGraph, graph, out);
      } else {
        out += Text(field.whole);
      }
    }
    if (out.size() > kMaxOnnxModelBytes)
      return UnsupportedError("{}: the changed model has {} bytes, and protobuf allows {}", place,
                              out.size(), kMaxOnnxModelBytes);
    return out;
  }

 private:
  Result<std::string> WriteGraph(ProtoReader graph) {
    std::string out;
    size_t node = 0, initializer = 0;
    while (!graph.done()) {
      LS_TRY(const ProtoField field, graph.Next());
      const size_t place = field.number == kGraphNode          ? node++
                           : field.number == kGraphInitializer ? initializer++
                                                               : 0;
      if (field.number == kGraphInitializer && initializers_.contains(place)) {
        LS_TRY(const std::string tensor,
               RewriteTensor(graph.Inside(field), *initializers_.at(place)));
        AppendBytesField(kGraphInitializer, tensor, out);
      } else if (field.number == kGraphNode && changed_.contains(place)) {
        LS_TRY(const std::string rewritten, RewriteNode(graph.Inside(field), changed_.at(place)));
        AppendBytesField(kGraphNode, rewritten, out);
      } else {
        out += Text(field.whole);
      }
      if (field.number == kGraphNode && added_.contains(place))
        for (const OnnxPatch::Node* added : added_.at(place))
          AppendBytesField(kGraphNode, EncodeNode(*added), out);
      if (field.number == kGraphValueInfo && !outputs_.empty()) RememberType(graph, field);
    }
    for (const std::string& name : outputs_) {
      // Without a type the runtime infers it.
      std::string value;
      if (const auto it = value_infos_.find(name); it != value_infos_.end())
        value = it->second;
      else
        AppendBytesField(1, name, value);
      AppendBytesField(kGraphOutput, value, out);
    }
    return out;
  }

  // value_info of a value that becomes an output: it says the type.
  void RememberType(const ProtoReader& graph, const ProtoField& field) {
    for (ProtoReader inside = graph.Inside(field); !inside.done();) {
      const auto part = inside.Next();
      if (!part) return;
      if (part->number == 1 && outputs_.contains(std::string(part->text())))
        value_infos_[std::string(part->text())] = field.text();
    }
  }

  const OnnxModel& model_;
  std::map<size_t, const Change*> initializers_;
  std::map<size_t, NodeChange> changed_;
  std::map<size_t, std::vector<const OnnxPatch::Node*>> added_;
  std::set<std::string> outputs_;
  std::map<std::string, std::string> value_infos_;
};

Status CheckRest(const OnnxModel& model, const OnnxPatch& patch, const Changes& changes) {
  const std::string place = model.path().string();
  for (const OnnxPatch::Attribute& attribute : patch.attributes) {
    if (attribute.node >= model.nodes().size() || attribute.name.empty())
      return UsageError("{}: node {} does not exist: it has {} nodes", place, attribute.node,
                        model.nodes().size());
    for (const auto& [tensor, change] : changes)
      if (tensor->node == attribute.node)
        return UsageError("{}: the value and an attribute of Constant {} are both changed", place,
                          Quoted(tensor->name));
  }
  for (const bool input : {true, false})
    for (const OnnxPatch::Name& name : input ? patch.inputs : patch.results) {
      const size_t slots = name.node >= model.nodes().size() ? 0
                           : input ? model.nodes()[name.node].inputs.size()
                                   : model.nodes()[name.node].outputs.size();
      if (name.slot >= slots)
        return UsageError("{}: node {} has no {} {}", place, name.node, input ? "input" : "output",
                          name.slot);
    }
  for (const OnnxPatch::Node& node : patch.nodes)
    if (node.after >= model.nodes().size() || node.op_type.empty() || node.outputs.empty())
      return UsageError("{}: a new {} cannot stand behind node {} of {}", place,
                        Quoted(node.op_type), node.after, model.nodes().size());
  for (const std::string& name : patch.outputs)
    if (model.Output(name) == nullptr && model.Producer(name) == nullptr)
      return UsageError("{}: no node gives a value {}", place, Quoted(name));
  return {};
}

// Other tensors lie on these bytes too, and would change with them.
bool IsShared(const OnnxModel& model, const OnnxTensor& tensor) {
  for (const OnnxTensor& other : model.tensors())
    if (&other != &tensor && other.storage == OnnxTensor::Storage::kExternal &&
        other.file == tensor.file && other.offset < tensor.offset + tensor.bytes.size() &&
        tensor.offset < other.offset + other.bytes.size())
      return true;
  return false;
}

Status Overwrite(const fs::path& path, uint64_t offset, std::span<const std::byte> bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return InputError("{}: cannot be opened: {}", path.string(), strerror(errno));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const int failure = errno;
  close(fd);
  if (done < bytes.size())
    return InputError("{}: cannot be written: {}", path.string(),
                      WriteFailure(path, failure, bytes.size() - done));
  return {};
}

Status CopyFile(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (!error) fs::copy_file(from, to, error);
  // The copy is changed and one day removed; the original may be read-only.
  if (!error) fs::permissions(to, fs::perms::owner_write, fs::perm_options::add, error);
  if (error) {
    std::error_code unknown;
    const uintmax_t size = fs::file_size(from, unknown);
    return InputError("{}: cannot be copied to {}: {}", from.string(), to.string(),
                      WriteFailure(to, error.value(), unknown ? 0 : size));
  }
  return {};
}

// `path` lies in `folder`, or is it.
bool HoldsPath(const fs::path& folder, const fs::path& path) {
  std::error_code error;
  const fs::path outer = fs::weakly_canonical(folder, error);
  const fs::path inner = fs::weakly_canonical(path, error);
  return !error &&
         std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

// Files of the folder and of its subfolders that no patch concerns. A link to a file is copied as
// what it leads to, when that lies inside; a link to a folder is not followed, so that nothing goes
// round in circles. What is being written is no part of what is copied.
Status CopyOthers(const OnnxModel& model, const fs::path& within, int depth, const fs::path& to,
                  const std::map<std::string, std::string>& texts) {
  constexpr int kDeepest = 32;
  std::error_code error;
  for (fs::directory_iterator it(model.folder() / within, error), end; it != end && !error;
       it.increment(error)) {
    const fs::path name = within / it->path().filename();
    std::error_code ignored;
    if (!it->is_symlink(ignored) && it->is_directory(ignored)) {
      if (depth >= kDeepest)
        return InputError("{}: lies in more than {} folders, expected fewer: nothing was copied",
                          it->path().string(), kDeepest);
      if (HoldsPath(it->path(), to) || IsTemporaryFolder(it->path())) continue;
      fs::create_directories(to / name, error);
      if (error)
        return InputError("{}: cannot be created: {}", (to / name).string(), error.message());
      LS_RETURN_IF_ERROR(CopyOthers(model, name, depth + 1, to, texts));
      continue;
    }
    if (!fs::is_regular_file(it->path(), ignored) || texts.contains(name.string()) ||
        fs::exists(to / name, ignored) || !PathInside(model.folder(), name.string(), name.string()))
      continue;
    LS_RETURN_IF_ERROR(CopyFile(it->path(), to / name));
  }
  if (error)
    return InputError("{}: cannot be listed: {}", (model.folder() / within).string(),
                      error.message());
  return {};
}

Status WriteInto(const fs::path& folder, const OnnxModel& model, const OnnxPatch& patch,
                 const std::map<std::string, std::string>& texts, bool others) {
  LS_TRY(Changes changes, CheckTensors(model, patch));
  LS_RETURN_IF_ERROR(CheckRest(model, patch, changes));
  for (size_t i = 1; i < model.files().size(); ++i) {
    const OnnxModel::File& file = model.files()[i];
    const fs::path name = fs::path(file.location).lexically_normal();
    std::error_code ignored;
    if (!fs::exists(folder / name, ignored))  // two spellings of one file
      LS_RETURN_IF_ERROR(CopyFile(file.mapped->path(), folder / name));
  }
  for (auto it = changes.begin(); it != changes.end();) {
    const OnnxTensor& tensor = *it->first;
    if (tensor.storage != OnnxTensor::Storage::kExternal || !it->second.SameForm() ||
        IsShared(model, tensor)) {
      ++it;
      continue;
    }
    const fs::path name = fs::path(model.files()[tensor.file].location).lexically_normal();
    LS_RETURN_IF_ERROR(Overwrite(folder / name, tensor.offset, it->second.bytes));
    it = changes.erase(it);
  }
  LS_TRY(const std::string bytes, GraphWriter(model, patch, changes).Write());
  LS_RETURN_IF_ERROR(WriteFileAtomically(folder / model.path().filename(), bytes));
  for (const auto& [name, text] : texts) {
    if (fs::path(name).filename() != name)
      return UsageError("{}: expected the name of a file", Quoted(name));
    LS_RETURN_IF_ERROR(WriteFileAtomically(folder / name, text));
  }
  return others ? CopyOthers(model, {}, 0, folder, texts) : Status();
}

}  // namespace

Result<std::vector<std::byte>> EncodeNumbers(std::span<const double> numbers, OnnxType type) {
  std::vector<std::byte> out;
  const auto append = [&](const auto& x) {
    const auto bytes = std::as_bytes(std::span(&x, 1));
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  for (const double x : numbers) {
    switch (type) {
      case OnnxType::kFloat:
        append(static_cast<float>(x));
        break;
      case OnnxType::kDouble:
        append(x);
        break;
      case OnnxType::kFloat16:
        append(ToFloat16(static_cast<float>(x)).bits);
        break;
      case OnnxType::kBFloat16:
        append(ToBFloat16(static_cast<float>(x)).bits);
        break;
      case OnnxType::kInt32:
        append(static_cast<int32_t>(x));
        break;
      case OnnxType::kInt64:
        append(static_cast<int64_t>(x));
        break;
      default:
        return UnsupportedError(
            "numbers cannot be written as {}: expected float, double, float16, bfloat16, int32 or "
            "int64",
            OnnxTypeName(type));
    }
  }
  return out;
}

Result<std::string> PatchedOnnx(const OnnxModel& model, const OnnxPatch& patch) {
  LS_TRY(const Changes changes, CheckTensors(model, patch));
  LS_RETURN_IF_ERROR(CheckRest(model, patch, changes));
  return GraphWriter(model, patch, changes).Write();
}

Result<std::string> WithOutputs(const OnnxModel& model, std::span<const std::string> names) {
  return PatchedOnnx(model, {.outputs = {names.begin(), names.end()}});
}

Status WriteOnnx(const OnnxModel& model, const OnnxPatch& patch, const fs::path& out,
                 const std::map<std::string, std::string>& texts, bool others) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(out, error)))
    return UsageError("{}: exists already; name a folder that does not", out.string());
  const fs::path target = fs::absolute(out, error).lexically_normal();
  const fs::path clean = target.has_filename() ? target : target.parent_path();
  auto temporary = TemporaryFolder::Make(clean.parent_path(), clean.filename().string());
  if (!temporary)
    return InputError("{}: cannot be created: {}", clean.string(), temporary.error().message);
  Status status = WriteInto(temporary->path(), model, patch, texts, others);
  if (status) {
    // mkdtemp gives 0700; a new folder is what the umask leaves of 0777 elsewhere.
    fs::permissions(temporary->path(),
                    fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read |
                        fs::perms::others_exec,
                    fs::perm_options::add, error);
    // Unlike std::filesystem's, fails where a file or a filled folder has appeared meanwhile.
    if (rename(temporary->path().c_str(), clean.c_str()) == 0) {
      temporary->Keep();
      return {};
    }
    status = InputError("{}: cannot be created: {}", clean.string(), strerror(errno));
  }
  return status;
}

}  // namespace lockstep
