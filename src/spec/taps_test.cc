#include "spec/taps.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Taps, NamesReadBackToTheirPlace) {
  for (const TapInfo& info : kTaps) {
    for (const int layer : {0, 7, 123}) {
      const TapPlace place{info.tap, info.per_layer ? layer : -1};
      EXPECT_EQ(ParseTapName(TapName(place.tap, place.layer)), place) << info.name;
    }
  }
  EXPECT_EQ(TapName(Tap::kQRope, 3), "layers.3.q_rope");
  EXPECT_EQ(TapName(Tap::kLogits), "logits");
}

TEST(Taps, OtherTextIsNoTap) {
  for (const char* text :
       {"", "q_rope", "layers.3", "layers.3.", "layers..q", "layers.03.q", "layers.-1.q",
        "layers.-0.q", "layers.3.logits", "layers.3.q_rope ", "layers.99999999999.q", "Logits"})
    EXPECT_EQ(ParseTapName(text), std::nullopt) << text;
}

TEST(Taps, EachHasItsOwnNameAndSaysWhatItIs) {
  for (const TapInfo& info : kTaps) {
    EXPECT_EQ(std::count_if(kTaps.begin(), kTaps.end(),
                            [&](const TapInfo& other) { return other.name == info.name; }),
              1);
    EXPECT_TRUE(info.shape.starts_with("[T, "));
    EXPECT_FALSE(info.description.empty());
  }
}

}  // namespace
}  // namespace lockstep
