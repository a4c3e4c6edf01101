#include "legacy_shuffle.h"

#include <algorithm>
#include <cstring>

#include "clones.h"
#include "errors.h"

namespace hpgrain {
namespace {

constexpr int64_t kMaxWord = 0xffffffff;

// The least 2**k - 1 that is not below `max`.
uint64_t MaskFor(uint64_t max) {
  return max == 0 ? 0 : ~uint64_t{0} >> __builtin_clzll(max);
}

// Takes those of `count` words that are at most `top` under the mask, where
// `top` falls by one with each that is taken. Returns how many. Requires room
// for as many as there are words.
HPGRAIN_CLONES
int64_t Accept(const uint32_t* words, int64_t count, uint32_t mask,
               uint32_t top, uint64_t* out) {
  // Within a group `top` falls by less than kGroup. Mostly no word of it lies
  // that near, and then each is judged by the same bound: without a chain from
  // one to the next.
  constexpr uint32_t kGroup = 64;
  int64_t taken = 0;
  int64_t begin = 0;
  for (; begin + kGroup <= count; begin += kGroup) {
    const uint32_t* const group = words + begin;
    uint32_t near = 0;
    for (uint32_t k = 0; k < kGroup; ++k) {
      near |= top - (group[k] & mask) < kGroup ? 1u : 0u;
    }
    const int64_t before = taken;
    if (near == 0) {
      for (uint32_t k = 0; k < kGroup; ++k) {
        const uint32_t value = group[k] & mask;
        out[taken] = value;
        taken += value <= top ? 1 : 0;
      }
      top -= static_cast<uint32_t>(taken - before);
    } else {
      for (uint32_t k = 0; k < kGroup; ++k) {
        const uint32_t value = group[k] & mask;
        const uint32_t is_taken = value <= top ? 1 : 0;
        out[taken] = value;
        taken += is_taken;
        top -= is_taken;
      }
    }
  }
  for (; begin < count; ++begin) {
    const uint32_t value = words[begin] & mask;
    const uint32_t is_taken = value <= top ? 1 : 0;
    out[taken] = value;
    taken += is_taken;
    top -= is_taken;
  }
  return taken;
}

template <typename Item>
inline void Swap(uint8_t* items, int64_t i, uint64_t j) {
  uint8_t* const one = items + i * static_cast<int64_t>(sizeof(Item));
  uint8_t* const other = items + j * sizeof(Item);
  Item a;
  Item b;
  std::memcpy(&a, one, sizeof(Item));
  std::memcpy(&b, other, sizeof(Item));
  std::memcpy(one, &b, sizeof(Item));
  std::memcpy(other, &a, sizeof(Item));
}

template <typename Item>
void ShuffleItems(uint8_t* items, int64_t size, Mt19937* words) {
  // A large array is a cache miss an item. Each item is asked for when the
  // one kAhead steps before it is swapped; the last kAhead indices of a round
  // wait for the next one.
  constexpr int64_t kAhead = 64;
  constexpr int64_t kRound = 1024;
  uint64_t ring[kAhead + kRound];
  BoundedIndices indices(size - 1, words);
  int64_t i = size - 1;
  int64_t held = 0;
  while (indices.left() > 0) {
    const int64_t made = std::min(kAhead + kRound - held, indices.left());
    indices.Fill({ring + held, made});
    held += made;
    int64_t at = 0;
    for (; at + kAhead < held; ++at, --i) {
      __builtin_prefetch(items + ring[at + kAhead] * sizeof(Item), 1);
      Swap<Item>(items, i, ring[at]);
    }
    held -= at;
    std::memmove(ring, ring + at, held * sizeof(ring[0]));
  }
  for (int64_t at = 0; at < held; ++at, --i) Swap<Item>(items, i, ring[at]);
}

}  // namespace

void BoundedIndices::Fill(Span<uint64_t> out) {
  int64_t made = 0;
  while (made < out.size && left_ > kMaxWord) {
    const uint64_t max = static_cast<uint64_t>(left_);
    const uint64_t mask = MaskFor(max);
    uint64_t value = 0;
    do {
      const uint64_t high = words_->Next();
      value = (high << 32 | words_->Next()) & mask;
    } while (value > max);
    out[made++] = value;
    --left_;
  }
  while (made < out.size) {
    const uint64_t max = static_cast<uint64_t>(left_);
    const uint64_t mask = MaskFor(max);
    // So few words that neither the room nor the mask can run out.
    const auto ready = words_->Ready();
    const int64_t same_mask = static_cast<int64_t>(max - (mask >> 1));
    const int64_t count =
        std::min({ready.size, out.size - made, same_mask});
    const int64_t taken =
        Accept(ready.data, count, static_cast<uint32_t>(mask),
               static_cast<uint32_t>(max), out.data + made);
    words_->Skip(count);
    made += taken;
    left_ -= taken;
  }
}

void LegacyShuffle(uint8_t* items, int64_t size, int64_t item_size,
                   Mt19937* words) {
  switch (item_size) {
    case 1:
      return ShuffleItems<uint8_t>(items, size, words);
    case 2:
      return ShuffleItems<uint16_t>(items, size, words);
    case 4:
      return ShuffleItems<uint32_t>(items, size, words);
    case 8:
      return ShuffleItems<uint64_t>(items, size, words);
    default:
      ThrowInvalid("cannot shuffle items of ", item_size,
                   " bytes; they must have 1, 2, 4 or 8.");
  }
}

}  // namespace hpgrain
