// The edits of the catalogue's rows, by what they concern: one function a row (catalog.cc says what
// each stands for). Each gives the forms in which the fault applies to a spec, or none.
#pragma once

#include <vector>

#include "faults/edit.h"
#include "spec/model_spec.h"

namespace lockstep::fault_edits {

using Edits = std::vector<Edit>;

// rope_edits.cc
Edits ScalingOnLocalLayers(const ModelSpec& spec);
Edits ScalingMissing(const ModelSpec& spec);
Edits RopeOfOtherLayers(const ModelSpec& spec);
Edits AttentionFactor(const ModelSpec& spec);
Edits YarnBands(const ModelSpec& spec);
Edits Llama3Bands(const ModelSpec& spec);
Edits NopeIgnored(const ModelSpec& spec);
Edits NopeInverted(const ModelSpec& spec);
Edits RowOrder(const ModelSpec& spec);
Edits RowOrderByWrongHeads(const ModelSpec& spec);
Edits LongFactors(const ModelSpec& spec);
Edits RotaryFraction(const ModelSpec& spec);
Edits DefaultTheta(const ModelSpec& spec);
Edits PositionsFromOne(const ModelSpec& spec);
Edits PositionsOfPadding(const ModelSpec& spec);

// attention_edits.cc
Edits WindowShifted(const ModelSpec& spec);
Edits WindowOffByOne(const ModelSpec& spec);
Edits WindowDropped(const ModelSpec& spec);
Edits WindowWhereNone(const ModelSpec& spec);
Edits AttentionScale(const ModelSpec& spec);
Edits SoftcapMissing(const ModelSpec& spec);
Edits SoftcapAfterMask(const ModelSpec& spec);
Edits CausalCorner(const ModelSpec& spec);
Edits MaskFill(const ModelSpec& spec);
Edits QkNormAfterRope(const ModelSpec& spec);
Edits QkNormScopeFlipped(const ModelSpec& spec);
Edits QkvBiasDropped(const ModelSpec& spec);
Edits SinksMissing(const ModelSpec& spec);
Edits KvHeadsTiled(const ModelSpec& spec);
Edits RingCacheWrong(const ModelSpec& spec);
Edits CacheLost(const ModelSpec& spec);
Edits CacheStale(const ModelSpec& spec);
Edits SixteenBitCache(const ModelSpec& spec);

// norm_edits.cc
Edits NormOffsetRounded(const ModelSpec& spec);
Edits NormOffsetMissing(const ModelSpec& spec);
Edits NormOffsetTwice(const ModelSpec& spec);
Edits NormCast(const ModelSpec& spec);
Edits InverseRmsRounded(const ModelSpec& spec);
Edits ResidualRounded(const ModelSpec& spec);
Edits NormEps(const ModelSpec& spec);
Edits FinalNormSkipped(const ModelSpec& spec);
Edits MultiplierDropped(const ModelSpec& spec);
Edits MultiplierInverted(const ModelSpec& spec);
Edits MultiplierRounded(const ModelSpec& spec);

// feed_forward_edits.cc
Edits GeluOther(const ModelSpec& spec);
Edits ActivationOther(const ModelSpec& spec);
Edits ClampMissing(const ModelSpec& spec);
Edits ClampWherePlain(const ModelSpec& spec);
Edits RouterOrder(const ModelSpec& spec);
Edits RouterNormalization(const ModelSpec& spec);
Edits ExpertsOffByOne(const ModelSpec& spec);
Edits GateUpSwapped(const ModelSpec& spec);
Edits GateUpInterleaved(const ModelSpec& spec);
Edits GateUpConcatenated(const ModelSpec& spec);
Edits MlpBiasDropped(const ModelSpec& spec);

// weight_edits.cc
Edits ScaleAxis(const ModelSpec& spec);
Edits NibbleOrder(const ModelSpec& spec);
Edits TailBlock(const ModelSpec& spec);
Edits ZeroPointAbsent(const ModelSpec& spec);
Edits ZeroPointOffByOne(const ModelSpec& spec);
Edits HeadUntied(const ModelSpec& spec);
Edits HeadTied(const ModelSpec& spec);
Edits TensorZeroed(const ModelSpec& spec);
Edits TensorOfOtherLayer(const ModelSpec& spec);
Edits LayersSwapped(const ModelSpec& spec);
Edits QkvOrder(const ModelSpec& spec);
Edits NotTransposed(const ModelSpec& spec);

// Not faults.
Edits SameRouter(const ModelSpec& spec);
Edits OtherRowOrder(const ModelSpec& spec);
Edits ScaleInWeights(const ModelSpec& spec);

}  // namespace lockstep::fault_edits
