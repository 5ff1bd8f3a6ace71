// What follows from the field lists (field_list.h): specs as JSON, the difference of two specs,
// edit by path, and printing. Faults are edits by path; a diagnosis prints as a difference.
//
// A path is as in `layers[0].mixer.rope.theta`: fields by name, layers by index. What an optional
// holds and a variant's present alternative have no step of their own. An edit may name several
// layers: `layers[*]`, `layers[0,2-4]`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "spec/model_spec.h"
#include "spec/run_spec.h"

namespace lockstep {

// Every field is a key, in the struct's order. Absent is null; an enum is its name; a variant is an
// object whose first key "kind" names the alternative. The text of a double reads back to its bits;
// a number that is not finite has no JSON text (dump() writes null), so validate first.
Json ToJson(const ModelSpec& spec);
Json ToJson(const RunSpec& run);

// The inverse, strict: an unknown, missing or mistyped field is an error that names its path.
// `place` opens the message. The result is well-formed, not yet valid (validate.h).
Result<ModelSpec> FromJson(const Json& json, std::string_view place);
Result<RunSpec> RunSpecFromJson(const Json& json, std::string_view place);

struct FieldDifference {
  std::string path;
  std::string a, b;  // the two values, as text; "none" is absent
  bool operator==(const FieldDifference&) const = default;
};
std::string ToString(const FieldDifference& difference);  // "path: a → b"

// The smallest fields that differ, in the spec's order; empty for equal specs. Where an optional is
// absent on one side or the alternatives differ, that field is named as a whole. A list of numbers
// is one field. Specs of different depth differ in `layers`, and in what their common layers hold.
std::vector<FieldDifference> Diff(const ModelSpec& a, const ModelSpec& b);
std::vector<FieldDifference> Diff(const RunSpec& a, const RunSpec& b);
std::vector<FieldDifference> Diff(const LayerSpec& a, const LayerSpec& b);

// For display: differences that are the same in several layers become one, `layers[0,2-4].mlp...`.
std::vector<FieldDifference> JoinLayers(const std::vector<FieldDifference>& differences);

// Sets the field (or each field, for several layers) at `path` from JSON text as ToJson writes it:
// null makes an optional absent, an object replaces a struct or a variant as a whole. On error the
// spec is unchanged. The result may be invalid: a fault can be meant to be.
Status SetField(ModelSpec& spec, std::string_view path, std::string_view value_json);
Status SetField(RunSpec& run, std::string_view path, std::string_view value_json);

// The one field at `path`, as ToJson writes it.
Result<Json> GetField(const ModelSpec& spec, std::string_view path);

// The path of every fact: each number, flag, enum, text and list; each optional, present or not;
// each variant as a whole (before its fields). Each is a valid path for SetField and GetField.
std::vector<std::string> FieldPaths(const ModelSpec& spec);

// For a terminal of 100 columns: every fact that is not at its neutral value (the default of its
// struct). Equal layers are shown once; layers that differ little from the first ones, as
// differences.
std::string Describe(const ModelSpec& spec);
std::string Describe(const RunSpec& run);  // one line

// "0-4,6-10": increasing numbers, with runs of three and more joined.
std::string JoinNumbers(const std::vector<int64_t>& numbers);

}  // namespace lockstep
