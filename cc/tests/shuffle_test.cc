// The legacy shuffle: also the draws for arrays that no memory holds.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.h"
#include "feistel.h"
#include "legacy_shuffle.h"
#include "mt19937.h"
#include "pair.h"

namespace hpgrain {
namespace {

uint64_t Random(uint64_t* state) { return Mix64(*state += 0x9E3779B9u); }

// As numpy.random.RandomState(seed) begins.
Mt19937 Seeded(uint32_t seed) {
  std::vector<uint32_t> key(Mt19937::kWords);
  key[0] = seed;
  for (uint32_t i = 1; i < key.size(); ++i) {
    key[i] = 1812433253u * (key[i - 1] ^ (key[i - 1] >> 30)) + i;
  }
  return Mt19937({key.data(), Mt19937::kWords}, Mt19937::kWords);
}

// The rule, a draw at a time.
uint64_t Draw(uint64_t max, Mt19937* words) {
  uint64_t mask = max;
  for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
  while (true) {
    uint64_t value = words->Next();
    if (max > 0xffffffffu) value = value << 32 | words->Next();
    if ((value & mask) <= max) return value & mask;
  }
}

void WordsAreTheMersenneTwisters() {
  // The ten thousandth word of the seed 5489, as the C++ standard has it.
  Mt19937 words = Seeded(5489);
  for (int i = 0; i < 9999; ++i) words.Next();
  CHECK(words.Next() == 4123659995u);
  CHECK(words.position() == 10000 % Mt19937::kWords);
  const std::vector<uint32_t> key(Mt19937::kWords);
  const Span<const uint32_t> span{key.data(), Mt19937::kWords};
  CHECK_THROWS(Mt19937(span, 625), std::invalid_argument, "got 625");
  CHECK_THROWS(Mt19937(span, -1), std::invalid_argument, "got -1");
  CHECK_THROWS(Mt19937({key.data(), 3}, 0), std::invalid_argument, "got 3");
}

// numpy.random.RandomState(1234).randint(0, max + 1, dtype=uint64), whose
// bounded integers follow the same rule, and its position afterwards.
void DrawsBeyondOneWordAreNumpys() {
  struct Case {
    uint64_t max;
    uint64_t first;
    int64_t position;
  };
  for (const Case& c : {Case{(uint64_t{1} << 33) - 1, 6432416467, 2},
                        Case{(uint64_t{1} << 32) + 5, 3512589365, 4},
                        Case{(uint64_t{3} << 40) + 7, 1266232974389, 4},
                        Case{0xffffffffu, 822569775, 1},
                        Case{0x80000000u, 822569775, 1},
                        Case{5, 3, 2}}) {
    Mt19937 words = Seeded(1234);
    BoundedIndices indices(static_cast<int64_t>(c.max), &words);
    uint64_t value = 0;
    indices.Fill({&value, 1});
    CHECK(value == c.first);
    CHECK(words.position() == c.position);
    CHECK(indices.left() == static_cast<int64_t>(c.max) - 1);
  }
}

// Across each change of the mask, the one from two words to one, and in parts
// of every size.
void IndicesFollowTheRule() {
  uint64_t state = 3;
  for (const int64_t first :
       {int64_t{1}, int64_t{2}, int64_t{700}, int64_t{70000},
        (int64_t{1} << 16) + 900, (int64_t{1} << 31) + 1000,
        (int64_t{1} << 32) + 1000, (int64_t{1} << 40) + 3, INT64_MAX}) {
    Mt19937 words = Seeded(static_cast<uint32_t>(first));
    Mt19937 slow = words;
    BoundedIndices indices(first, &words);
    const int64_t total = std::min(first, int64_t{80000});
    int64_t max = first;
    while (first - max < total) {
      const int64_t count =
          std::min(1 + static_cast<int64_t>(Random(&state) % 2000),
                   total - (first - max));
      std::vector<uint64_t> out(count);
      indices.Fill({out.data(), count});
      for (const uint64_t value : out) {
        CHECK(value == Draw(static_cast<uint64_t>(max), &slow));
        --max;
      }
    }
    CHECK(indices.left() == first - total);
    CHECK(words.position() == slow.position());
    CHECK(std::equal(words.key(), words.key() + Mt19937::kWords, slow.key()));
  }
  Mt19937 words = Seeded(1);
  CHECK(BoundedIndices(-1, &words).left() == 0);
}

template <typename Item>
void ShuffleOf() {
  for (const int64_t size : {0, 1, 2, 3, 64, 65, 1089, 5000, 70000}) {
    std::vector<Item> items(size);
    std::iota(items.begin(), items.end(), Item{0});
    std::vector<Item> expected(items);
    Mt19937 slow = Seeded(9);
    for (int64_t i = size - 1; i > 0; --i) {
      std::swap(expected[i], expected[Draw(static_cast<uint64_t>(i), &slow)]);
    }
    const OddBytes bytes(items);
    Mt19937 words = Seeded(9);
    LegacyShuffle(const_cast<uint8_t*>(bytes.data()), size, sizeof(Item),
                  &words);
    for (int64_t i = 0; i < size; ++i) {
      CHECK(LoadUnaligned<Item>(bytes.data(), i) == expected[i]);
    }
    CHECK(words.position() == slow.position());
  }
}

void ShufflesFollowTheRule() {
  ShuffleOf<uint8_t>();
  ShuffleOf<uint16_t>();
  ShuffleOf<uint32_t>();
  ShuffleOf<uint64_t>();
  uint8_t items[32] = {};
  Mt19937 words = Seeded(1);
  CHECK_THROWS(LegacyShuffle(items, 2, 16, &words), std::invalid_argument,
               "items of 16 bytes");
}

}  // namespace
}  // namespace hpgrain

int main() {
  hpgrain::WordsAreTheMersenneTwisters();
  hpgrain::DrawsBeyondOneWordAreNumpys();
  hpgrain::IndicesFollowTheRule();
  hpgrain::ShufflesFollowTheRule();
  return Failures() != 0;
}
