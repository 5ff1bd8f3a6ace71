#include "engine/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <random>

namespace lockstep {
namespace {

// A page as these tests use it: one number per position.
constexpr size_t kPage = kPageTokens * sizeof(int64_t);

int64_t* Row(const KvSequence& sequence, size_t layer, int64_t position) {
  std::byte* page = sequence.Page(layer, position / kPageTokens);
  return page == nullptr ? nullptr : reinterpret_cast<int64_t*>(page) + position % kPageTokens;
}

void Write(KvCache& cache, KvSequence& sequence, size_t layers,
           const std::vector<int64_t>& values) {
  const auto count = static_cast<int64_t>(values.size());
  const Status extended = cache.Extend(sequence, count);
  ASSERT_TRUE(extended) << extended.error().message;
  for (size_t l = 0; l < layers; ++l)
    for (int64_t i = 0; i < count; ++i)
      *Row(sequence, l, sequence.length() + i) =
          values[static_cast<size_t>(i)] * 10 + static_cast<int64_t>(l);
  cache.Commit(sequence, count);
}

std::vector<int64_t> Numbers(int64_t from, int64_t count) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(from + i);
  return values;
}

TEST(KvCache, PagesAreAlignedAndZeroEvenWhenTheyWereSomebodyElses) {
  KvCache cache({{kPage + 8, {}}, {3 * kPage, {}}});
  for (int round = 0; round < 3; ++round) {
    KvSequence sequence = cache.NewSequence();
    ASSERT_TRUE(cache.Extend(sequence, 1000));
    for (const size_t layer : {0, 1})
      for (int64_t page = 0; page < 16; ++page) {
        std::byte* data = sequence.Page(layer, page);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
        for (size_t i = 0; i < (layer == 0 ? kPage + 8 : 3 * kPage); ++i)
          ASSERT_EQ(data[i], std::byte{0});
        std::memset(data, 0xff, kPage + 8);  // NaNs of a model with broken weights
      }
  }
}

TEST(KvCache, ASequenceWithoutPositionsHoldsNothingAndAMovedOneKeepsItsPages) {
  KvCache cache(std::vector<KvLayer>{{kPage, {}}});
  KvSequence nothing;  // not even a cache
  KvSequence a = cache.NewSequence();
  EXPECT_EQ(cache.bytes_in_use(), 0u);
  Write(cache, a, 1, Numbers(0, 65));
  EXPECT_EQ(cache.bytes_in_use(), 2 * kPage);
  EXPECT_EQ(cache.BytesOf(a), 2 * kPage);
  KvSequence b = std::move(a);
  EXPECT_EQ(a.length(), 0);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(*Row(b, 0, 64), 640);
  a = cache.NewSequence();
  Write(cache, a, 1, Numbers(0, 1));
  b = std::move(a);
  EXPECT_EQ(cache.bytes_in_use(), kPage);
  b = KvSequence();
  EXPECT_EQ(cache.bytes_in_use(), 0u);
  EXPECT_GE(cache.bytes_held(), 2 * kPage);
}

TEST(KvCache, ALayerThatKeepsNothingHasNoPages) {
  KvCache cache({{0, {}}, {kPage, {}}});
  KvSequence sequence = cache.NewSequence();
  ASSERT_TRUE(cache.Extend(sequence, 100));
  cache.Commit(sequence, 100);
  EXPECT_EQ(cache.bytes_in_use(), 2 * kPage);
  EXPECT_EQ(cache.Fork(sequence, 70).length(), 70);
  EXPECT_EQ(cache.Truncate(sequence, 10), 10);
  EXPECT_EQ(cache.bytes_in_use(), kPage);
}

TEST(KvCache, ExtendingTwiceIsExtendingOnceAndTruncateGivesItBack) {
  KvCache cache(std::vector<KvLayer>{{kPage, {}}});
  KvSequence sequence = cache.NewSequence();
  Write(cache, sequence, 1, Numbers(0, 10));
  ASSERT_TRUE(cache.Extend(sequence, 100));
  EXPECT_EQ(cache.BytesToExtend(sequence, 100), 0u);
  ASSERT_TRUE(cache.Extend(sequence, 100));
  EXPECT_EQ(cache.bytes_in_use(), 2 * kPage);
  EXPECT_EQ(cache.Truncate(sequence, 10), 10);
  EXPECT_EQ(cache.bytes_in_use(), kPage);
}

TEST(KvCache, AForkSharesPagesUntilOneOfTheTwoWrites) {
  KvCache cache(std::vector<KvLayer>{{kPage, {}}});
  KvSequence a = cache.NewSequence();
  Write(cache, a, 1, Numbers(0, 100));
  KvSequence b = cache.Fork(a, 70);
  EXPECT_EQ(b.length(), 70);
  EXPECT_EQ(cache.bytes_in_use(), 2 * kPage);
  EXPECT_EQ(cache.BytesOf(b), kPage);
  Write(cache, b, 1, Numbers(1000, 1));
  EXPECT_EQ(cache.bytes_in_use(), 3 * kPage);
  EXPECT_EQ(*Row(a, 0, 70), 700);
  EXPECT_EQ(*Row(b, 0, 70), 10000);
  EXPECT_EQ(*Row(b, 0, 69), 690);
  EXPECT_EQ(a.Page(0, 0), b.Page(0, 0));
  // The page is a's alone now: writing on copies nothing.
  EXPECT_EQ(cache.BytesToExtend(a, 1), 0u);
  KvSequence c = cache.Fork(a, 64);  // ends with a page: nothing to copy
  EXPECT_EQ(cache.BytesToExtend(c, 1), kPage);
  a = KvSequence();
  EXPECT_EQ(*Row(c, 0, 63), 630);
}

TEST(KvCache, AWindowKeepsWhatItReadsAndAShortRewindIsFree) {
  for (const int64_t window : {1, 2, 16, 64, 65, 100, 200}) {
    SCOPED_TRACE(window);
    KvCache cache({{kPage, {}}, {kPage, window}});
    EXPECT_TRUE(cache.windowed());
    KvSequence sequence = cache.NewSequence();
    for (int64_t length = 1; length <= 1000; ++length) {
      Write(cache, sequence, 2, {length - 1});
      const int64_t rewound = std::max<int64_t>(0, length - kWindowSlack);
      ASSERT_EQ(cache.Holds(sequence, rewound), rewound) << length;
      for (int64_t p = std::max<int64_t>(0, rewound - window + 1); p < length; ++p) {
        ASSERT_NE(Row(sequence, 1, p), nullptr) << p << " of " << length;
        ASSERT_EQ(*Row(sequence, 1, p), p * 10 + 1);
      }
      // And not more than two pages beyond that.
      const size_t kept = cache.BytesOf(sequence) / kPage -
                          static_cast<size_t>((length + kPageTokens - 1) / kPageTokens);
      ASSERT_LE(static_cast<int64_t>(kept), (window + kWindowSlack) / kPageTokens + 2);
    }
    EXPECT_EQ(cache.Fork(sequence, 990).length(), 990);
    EXPECT_EQ(cache.Fork(sequence, 300).length(), 0);
    EXPECT_EQ(cache.Truncate(sequence, 300), 0);
    EXPECT_EQ(cache.bytes_in_use(), 0u);
    Write(cache, sequence, 2, Numbers(5, 3));
    EXPECT_EQ(*Row(sequence, 1, 2), 71);
  }
}

TEST(KvCache, SaysBeforehandWhatReadingInChunksTakes) {
  for (const int64_t window : {1, 30, 64, 200})
    for (const int64_t chunk : {1, 50, 64, 128, 300})
      for (const int64_t held : {0, 40, 64, 130}) {
        SCOPED_TRACE(fmt::format("window {}, chunk {}, held {}", window, chunk, held));
        KvCache cache({{kPage, {}}, {kPage, window}});
        KvSequence sequence = cache.NewSequence();
        Write(cache, sequence, 2, Numbers(0, held));
        const size_t before = cache.bytes_in_use();
        const size_t said = cache.BytesToRead(sequence, 1000, chunk);
        size_t most = 0;
        for (int64_t left = 1000; left > 0; left -= std::min(left, chunk)) {
          ASSERT_TRUE(cache.Extend(sequence, std::min(left, chunk)));
          most = std::max(most, cache.bytes_in_use());
          cache.Commit(sequence, std::min(left, chunk));
        }
        EXPECT_LE(most, before + said);
        EXPECT_LE(before + said, most + 3 * kPage);  // and not much more
      }
}

TEST(KvCache, WithoutMemoryTheSequenceIsAsItWasAndTheSentenceSaysHowMuch) {
  KvCache cache({{kPage, {}}, {kPage, 100}}, 5 * kPage);
  KvSequence a = cache.NewSequence(), b = cache.NewSequence();
  Write(cache, a, 2, Numbers(0, 100));
  const Status full = cache.Extend(b, 65);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().message,
            "65 more positions need 2048 bytes of keys and values, but 2048 of the limit of 2560 "
            "bytes are in use; end other sequences, shorten the text or raise the limit");
  EXPECT_EQ(b.length(), 0);
  EXPECT_EQ(cache.bytes_in_use(), 4 * kPage);
  EXPECT_FALSE(cache.Extend(a, 29));
  ASSERT_TRUE(cache.Extend(a, 28));
  KvSequence fork = cache.Fork(a, 100);
  EXPECT_FALSE(cache.Extend(fork, 1));  // two copies do not fit
  EXPECT_EQ(*Row(fork, 0, 99), 990);
  a = KvSequence();
  EXPECT_TRUE(cache.Extend(fork, 1));
  fork = KvSequence();
  EXPECT_TRUE(cache.Extend(b, 128));

  KvCache vast({{size_t{1} << 46, {}}, {std::numeric_limits<size_t>::max() / 3, {}}});
  KvSequence c = vast.NewSequence();
  const Status none = vast.Extend(c, 1);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("the system has no memory left"), std::string::npos)
      << none.error().message;
  EXPECT_FALSE(vast.Extend(c, int64_t{1} << 40));
  EXPECT_EQ(c.length(), 0);
  EXPECT_EQ(vast.bytes_in_use(), 0u);
}

TEST(KvCache, MemoryThatCameBackIsUsedAgain) {
  KvCache cache({{kPage, {}}, {2 * kPage, 64}});
  size_t held = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<KvSequence> sequences;
    for (int i = 0; i < 8; ++i) {
      sequences.push_back(cache.NewSequence());
      Write(cache, sequences.back(), 2, Numbers(0, 500));
    }
    if (round == 0) held = cache.bytes_held();
  }
  EXPECT_EQ(cache.bytes_held(), held);
  EXPECT_EQ(cache.bytes_in_use(), 0u);
}

// Random operations beside a model that copies everything.
TEST(KvCache, AgreesWithPlainCopiesOverRandomOperations) {
  const std::vector<KvLayer> layers = {{kPage, {}}, {kPage, 70}, {2 * kPage, 3}, {kPage, 130}};
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    const size_t limit = seed % 2 == 0 ? 0 : 60 * kPage;
    KvCache cache(layers, limit);
    struct Both {
      KvSequence sequence;
      std::vector<int64_t> values;
      int64_t longest = 0;  // what the window's pages were dropped for
    };
    std::vector<Both> all;
    int64_t next = 0, refused = 0, cut_to_zero = 0;
    for (int step = 0; step < 600; ++step) {
      const int64_t what = below(10);
      if (all.empty() || (what == 0 && all.size() < 10)) {
        all.push_back({cache.NewSequence(), {}, 0});
        continue;
      }
      Both& one = all[static_cast<size_t>(below(static_cast<int64_t>(all.size())))];
      const auto length = static_cast<int64_t>(one.values.size());
      if (what <= 4) {
        const int64_t count = below(4) == 0 ? below(200) : below(5);
        const size_t before = cache.bytes_in_use();
        const size_t bytes = cache.BytesToExtend(one.sequence, count);
        if (const Status extended = cache.Extend(one.sequence, count); !extended) {
          EXPECT_GT(before + bytes, limit);
          EXPECT_EQ(cache.bytes_in_use(), before);
          ++refused;
        } else {
          EXPECT_EQ(cache.bytes_in_use(), before + bytes);
          const std::vector<int64_t> values = Numbers(next, count);
          next += count;
          Write(cache, one.sequence, layers.size(), values);
          one.values.insert(one.values.end(), values.begin(), values.end());
          one.longest = std::max(one.longest, one.sequence.length());
        }
      } else if (what == 5 && below(3) == 0) {
        one = std::move(all.back());
        all.pop_back();
      } else if (what <= 7) {
        const int64_t to =
            below(2) == 0 ? below(length + 1) : length - below(std::min<int64_t>(length, 64) + 1);
        const int64_t got = cache.Truncate(one.sequence, to);
        EXPECT_TRUE(got == to || got == 0);
        if (one.longest - to <= kWindowSlack) {
          EXPECT_EQ(got, to);
        }
        cut_to_zero += got != to;
        if (got == 0) one.longest = 0;
        one.values.resize(static_cast<size_t>(got));
      } else if (all.size() < 10) {
        const int64_t to = below(length + 1);
        Both fork{cache.Fork(one.sequence, to), {}, 0};
        if (fork.sequence.length() > 0) fork.longest = one.longest;
        EXPECT_TRUE(fork.sequence.length() == to || fork.sequence.length() == 0);
        fork.values.assign(one.values.begin(), one.values.begin() + fork.sequence.length());
        all.push_back(std::move(fork));
      }
      std::map<const std::byte*, size_t> pages;
      for (const Both& each : all) {
        const int64_t n = each.sequence.length();
        ASSERT_EQ(n, static_cast<int64_t>(each.values.size()));
        for (size_t l = 0; l < layers.size(); ++l) {
          const int64_t first =
              layers[l].window ? std::max<int64_t>(0, n - *layers[l].window + 1) : 0;
          for (int64_t p = first; p < n; ++p) {
            ASSERT_NE(Row(each.sequence, l, p), nullptr);
            ASSERT_EQ(*Row(each.sequence, l, p),
                      each.values[static_cast<size_t>(p)] * 10 + static_cast<int64_t>(l));
          }
          for (int64_t page = 0; page * kPageTokens < n; ++page)
            if (const std::byte* data = each.sequence.Page(l, page))
              pages[data] = layers[l].page_bytes;
        }
      }
      size_t bytes = 0;
      for (const auto& [data, size] : pages) bytes += size;
      ASSERT_EQ(cache.bytes_in_use(), bytes);
    }
    EXPECT_GT(cut_to_zero, 0);
    if (limit > 0) {
      EXPECT_GT(refused, 0);
    }
    all.clear();
    EXPECT_EQ(cache.bytes_in_use(), 0u);
  }
}

}  // namespace
}  // namespace lockstep
