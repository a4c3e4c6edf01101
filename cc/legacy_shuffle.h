// numpy.random.RandomState.shuffle, bit for bit.

#ifndef HPGRAIN_LEGACY_SHUFFLE_H_
#define HPGRAIN_LEGACY_SHUFFLE_H_

#include <cstdint>

#include "mt19937.h"
#include "span.h"

namespace hpgrain {

// The integers that the shuffle draws, one for each i = first, first - 1, ...,
// 1, uniform in [0, i]: masked rejection, as in RandomState's legacy bounded
// integers. A draw is one word for i < 2**32, else two, the high one first.
// They do not depend on what is shuffled, so they can be made ahead of it.
class BoundedIndices {
 public:
  // `words` outlives this; nothing is drawn from it but what is returned.
  BoundedIndices(int64_t first, Mt19937* words)
      : left_(first < 0 ? 0 : first), words_(words) {}

  // How many are still to come.
  int64_t left() const { return left_; }

  // Draws the next of them into `out`; requires out.size <= left().
  void Fill(Span<uint64_t> out);

 private:
  int64_t left_;  // also the next one's largest value
  Mt19937* words_;
};

// Shuffles `size` items of 1, 2, 4 or 8 bytes in place. Throws
// std::invalid_argument for another item size.
void LegacyShuffle(uint8_t* items, int64_t size, int64_t item_size,
                   Mt19937* words);

}  // namespace hpgrain

#endif  // HPGRAIN_LEGACY_SHUFFLE_H_
