#include "audit/int8_rounder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr int64_t kBlock = 4;

// Matrices whose numbers do not matter.
const WeightId kMatrix{Role::kQProj, Part::kWeight, 0, -1};
Weights Of(std::span<const WeightId> ids) {
  Weights weights;
  for (const WeightId& id : ids) weights.Set(id, {.rows = 1, .cols = kBlock});
  return weights;
}

// A row at position 0, rounded, `theirs` known.
std::vector<float> Rounded(std::vector<float> ours, const std::vector<float>& theirs,
                           TieCount* count = nullptr) {
  const Weights weights = Of(std::span(&kMatrix, 1));
  TheirInputs inputs;
  if (!theirs.empty()) inputs.Append("x", static_cast<int64_t>(theirs.size()), theirs);
  TieCounter counter;
  const Int8Rounder rounder({{kMatrix, {kBlock, "x"}}}, weights, &inputs, &counter);
  const std::vector<int64_t> positions = {0};
  rounder.Input(*weights.Find(kMatrix), false, positions, {ours.data(), 1, ours.size()});
  if (count != nullptr) *count = counter.Count(1);
  return ours;
}

TEST(Int8Rounder, RoundsEachBlockTo127StepsOfItsLargest) {
  EXPECT_EQ(Rounded({127, 0.4f, -1.6f, 2, 12.7f, 0.04f}, {}),
            (std::vector<float>{127, 0, -2, 2, 12.7f, 0}));
  // The last block may be shorter.
  EXPECT_EQ(Rounded({127, 1.4f, 0, 0, 254}, {}), (std::vector<float>{127, 1, 0, 0, 254}));
  EXPECT_EQ(Rounded({0, 0, 0, 0}, {}), (std::vector<float>{0, 0, 0, 0}));
}

TEST(Int8Rounder, ATieFallsAsItFellThere) {
  TieCount count;
  EXPECT_EQ(Rounded({127, 3.499f, -2.501f, 8}, {127, 3.501f, -2.499f, 8}, &count),
            (std::vector<float>{127, 4, -2, 8}));
  EXPECT_EQ(count.numbers, 4);
  EXPECT_EQ(count.ties, 2);
  EXPECT_EQ(count.others, 0);
  EXPECT_NEAR(count.widest, 0.002, 1e-5);
}

TEST(Int8Rounder, OfAnotherNumberNothingIsTaken) {
  TieCount count;
  // 0.02 of a step apart: on both sides of the middle, and no float noise.
  EXPECT_EQ(Rounded({127, 3.49f, 60, 8}, {127, 3.51f, 20, 8}, &count),
            (std::vector<float>{127, 3, 60, 8}));
  EXPECT_EQ(count.ties, 0);
  EXPECT_EQ(count.others, 2);
  EXPECT_NEAR(count.furthest, 40, 1e-3);
}

TEST(Int8Rounder, WhereTheCodesAgreeOursCount) {
  // Their scale is another by a little: our numbers keep ours.
  TieCount count;
  EXPECT_EQ(Rounded({127, 3, 4, 5}, {127.0001f, 3, 4, 5}, &count),
            (std::vector<float>{127, 3, 4, 5}));
  EXPECT_EQ(count.ties + count.others, 0);
}

TEST(Int8Rounder, WhatIsNoNumberThereIsNotTaken) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Rounded({127, 3.5f, 2, 1}, {127, nan, 2, 1}), (std::vector<float>{127, 4, 2, 1}));
  EXPECT_EQ(Rounded({127, 3.4f, 2, 1}, {nan, nan, nan, nan}), (std::vector<float>{127, 3, 2, 1}));
  EXPECT_EQ(Rounded({127, 3.4f, 2, 1}, {0, 0, 0, 0}), (std::vector<float>{127, 3, 2, 1}));
}

TEST(Int8Rounder, RowsOfAnotherShapeAreNotKnown) {
  TieCount count;
  EXPECT_EQ(Rounded({127, 3.4f, 2, 1}, {127, 3.6f, 2}, &count), (std::vector<float>{127, 3, 2, 1}));
  EXPECT_EQ(count.numbers, 0);
}

TEST(Int8Rounder, RowsAreFoundByPositionAndCountedOnceForSeveralMatrices) {
  const WeightId a = kMatrix, b{Role::kKProj, Part::kWeight, 0, -1},
                 other{Role::kOProj, Part::kWeight, 0, -1};
  const Weights weights = Of(std::vector{a, b, other});
  TheirInputs inputs;
  inputs.Append("x", kBlock, std::vector<float>{127, 1, 1, 1, 127, 2.501f, 1, 1});  // 0, 1
  inputs.Append("x", kBlock, std::vector<float>{127, 3, 5.501f, 1});                // 2
  TieCounter counter;
  const Int8Rounder rounder({{a, {kBlock, "x"}}, {b, {kBlock, "x"}}}, weights, &inputs, &counter);
  const auto round = [&](const WeightId& matrix) {
    std::vector<float> rows = {127, 3, 5.499f, 1, 127, 2.499f, 1, 1};
    const std::vector<int64_t> positions = {2, 1};
    rounder.Input(*weights.Find(matrix), false, positions, {rows.data(), 2, kBlock});
    return rows;
  };
  const std::vector<float> rounded = {127, 3, 6, 1, 127, 3, 1, 1};
  EXPECT_EQ(round(a), rounded);
  EXPECT_EQ(round(b), rounded);
  EXPECT_EQ(round(other), (std::vector<float>{127, 3, 5.499f, 1, 127, 2.499f, 1, 1}));
  EXPECT_EQ(counter.Count(3).numbers, 8);
  EXPECT_EQ(counter.Count(3).ties, 2);
  EXPECT_EQ(counter.Count(2).ties, 1);
}

// An edit makes new numbers, or takes another place's: what is rounded stays what was there.
TEST(Int8Rounder, AMatrixIsKnownByItsPlaceAlone) {
  const WeightId a = kMatrix, b{Role::kKProj, Part::kWeight, 0, -1};
  Weights weights = Of(std::vector{a, b});
  const float numbers[kBlock] = {};
  for (const WeightId& id : {a, b})
    weights.Set(id, {.data = reinterpret_cast<const std::byte*>(numbers), .rows = 1, .cols = 4});
  const Int8Rounder rounder({{a, {kBlock, "x"}}}, weights);
  std::vector<float> rows = {127, 0.4f, 1, 1};
  const std::vector<int64_t> positions = {0};
  rounder.Input(*weights.Find(b), false, positions, {rows.data(), 1, kBlock});
  EXPECT_EQ(rows[1], 0.4f);
  rounder.Input(*weights.Find(a), false, positions, {rows.data(), 1, kBlock});
  EXPECT_EQ(rows[1], 0);
}

// Inside an operator nobody sees how a number fell: what lies in the middle, and nothing else, may
// have fallen the other way.
TEST(Int8Rounder, HiddenTiesAreThoseInTheMiddleBetweenTwoCodes) {
  const Weights weights = Of(std::span(&kMatrix, 1));
  const std::vector<int64_t> positions = {2};
  for (const bool flip : {false, true}) {
    TieCounter counter;
    const Int8Rounder rounder({{kMatrix, {kBlock, ""}}}, weights, nullptr, &counter,
                              {.steps = 1e-3, .flip = flip});
    std::vector<float> x = {127, 3.4995f, -2.5005f, 7.49f};
    rounder.Input(*weights.Find(kMatrix), false, positions, {x.data(), 1, x.size()});
    EXPECT_EQ(x, flip ? (std::vector<float>{127, 4, -2, 7}) : (std::vector<float>{127, 3, -3, 7}));
    EXPECT_EQ(counter.Hidden(2), 0);
    EXPECT_EQ(counter.Hidden(3), 2);
  }
}

}  // namespace
}  // namespace lockstep
