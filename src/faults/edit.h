// Edit: a change to a model, as data: of its spec, of its run, of its weights. A known fault is an
// edit (catalog.h), a diagnosis is the search for one, and a proof is its text after `--edit`.
//
// The text is a list of items with ';' between them:
//
//   PATH = JSON              a fact of the model, as in spec/fields.h: layers[*].mixer.rope = null
//   run.PATH = JSON          a fact of the run (spec/run_spec.h):      run.kv_dtype = "f16"
//   weights: VERB PLACE ...  a weight; the verbs are WeightChange's:   weights: zero lm_head.weight
//
// A place names weights as ToString(WeightId) does, or several at once:
//
//   final_norm.weight                    layers[*].q_proj.bias
//   layers[0,2-4].up_proj.weight         layers[*].experts[*].gate_proj.weight
//   layers[1].*                          every weight of layer 1
//
// The items act in this order: spec, run, then weights as they are written, each upon what those
// before it left. The edited spec says which weights there must be: those that it no longer needs
// are dropped, those that it needs in addition must be made by `zero` or `take`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "spec/model_spec.h"
#include "spec/run_spec.h"
#include "spec/weights.h"

namespace lockstep {

struct FieldEdit {
  std::string path;   // of spec/fields.h, without "run."
  std::string value;  // JSON
  bool operator==(const FieldEdit&) const = default;
};

// What is done to a weight W of shape [rows, cols], and the bug of real programs that it stands
// for. A vector (a bias, a norm) has one row. In the text a verb is the enumerator's name in small
// letters: kHalvesToPairs is `halves_to_pairs`.
enum class WeightChange : uint8_t {
  kZero,   // zero P: all zeros (makes the weight where there is none). A tensor that was not found
           // and left as it was allocated; a bias that the exporter drops
  kScale,  // scale P by X: W * X. A factor folded in twice, or forgotten
  kAdd,    // add P by X: W + X. A norm's offset added twice to pre-folded weights
  kRound,  // round P to bf16 | fp16 | two_decimals: stored in fewer bits than the checkpoint
  kTranspose,  // transpose P: the bytes of W^T read as [rows, cols]. GPT-2's Conv1D taken as Linear
  kSwap,       // swap P with O: the two exchange their places. Names mapped crosswise
  kTake,  // take P from O: P holds what O holds (makes the weight where there is none). A layer
          // bound to another layer's weights
  kFit,   // fit P: W's elements repeated, or cut, to the size that the edited spec needs. A norm
          // per head where it spans the projection, and the reverse
  kHalvesToPairs,  // halves_to_pairs P heads N: within each of N heads (0: as many as P has) row
                   // i and row i + d/2 become rows 2i and 2i + 1. llama.cpp's permutation, where
                   // RoPE turns halves; N is not P's own where the wrong head count was used
  kPairsToHalves,  // pairs_to_halves P heads N: the inverse
  kTileHeads,  // tile_heads P: query head h reads kv head h % kv_heads, not h / ratio: `repeat` for
               // `repeat_interleave`. Moves the heads of q_proj, sinks, or (columns) o_proj; a
               // fault names them all
  kInterleave,    // interleave P with O: row r of P, then row r of O, read as P's rows followed by
                  // O's. Fused gate and up, stored interleaved, split in the middle
  kDeinterleave,  // deinterleave P with O: P's rows followed by O's, read as row 2r and 2r + 1.
                  // Fused gate and up, stored one after the other, split by stride
  kReverseRows,   // reverse_rows P: the rows in the opposite order (with kReverseColumns of what
  kReverseColumns,  // reverse_columns P reads them it changes nothing: a negative control)
  kSwapPairs,       // swap_pairs P: columns 2c and 2c + 1 exchange. Nibbles in the wrong order
  kOneBlockScale,   // one_block_scale P block N: each block of N columns scaled as the first block
                    // of its row is. Block scales broadcast along the wrong axis
  kShiftBlocks,     // shift_blocks P by X block N: X times the largest magnitude of each block of N
                 // columns is added to it. An absent zero point taken as 0 instead of 8 (X 1), or
                 // as 127 instead of 128 (X 0.0078125)
  kZeroTail,  // zero_tail P block N: the last N columns are zeros. The tail block not read
};

struct WeightEdit {
  WeightChange change = WeightChange::kZero;
  // The place. No role: every weight of the layers, both parts, experts included.
  std::optional<Role> role;
  Part part = Part::kWeight;
  std::vector<int32_t> layers;  // increasing; empty: wherever the role is
  int32_t expert = -1;          // -1: every expert (an expert's role), or none
  // kSwap, kTake, kInterleave, kDeinterleave: the other weight, of the same part. What is absent (a
  // role, or -1) is as in the place.
  std::optional<Role> other_role;
  int32_t other_layer = -1;
  int32_t other_expert = -1;
  double value = 0;                     // kScale, kAdd, kShiftBlocks
  int64_t count = 0;                    // heads, or columns of a block
  Rounding rounding = Rounding::kNone;  // kRound
  bool operator==(const WeightEdit&) const = default;
};

struct Edit {
  std::vector<FieldEdit> spec;
  std::vector<FieldEdit> run;
  std::vector<WeightEdit> weights;
  bool empty() const { return spec.empty() && run.empty() && weights.empty(); }
  bool operator==(const Edit&) const = default;
};

// The text above, in one line; ParseEdit reads it back to an equal Edit.
std::string ToString(const Edit& edit);
std::string ToString(const WeightEdit& edit);  // without "weights: "
Result<Edit> ParseEdit(std::string_view text);

// The edit's part in the spec and in the run. An error names the item; the results are valid
// (spec/validate.h). Weights are edited where a model is: model/apply_edit.h.
Result<ModelSpec> EditedSpec(const ModelSpec& spec, const Edit& edit);
Result<RunSpec> EditedRun(const RunSpec& run, const Edit& edit);

// One after the other: b acts upon what a left.
Edit Joined(const Edit& a, const Edit& b);

}  // namespace lockstep
