// The Mersenne Twister that numpy.random.RandomState draws its bits from.

#ifndef HPGRAIN_MT19937_H_
#define HPGRAIN_MT19937_H_

#include <cstdint>

#include "span.h"

namespace hpgrain {

// MT19937 (Matsumoto and Nishimura, ACM TOMACS 8(1), 1998), its words made a
// block at a time. Key and position are those of RandomState.get_state().
class Mt19937 {
 public:
  static constexpr int64_t kWords = 624;

  // Throws std::invalid_argument unless `key` has kWords words and `position`
  // lies in [0, kWords].
  Mt19937(Span<const uint32_t> key, int64_t position);

  uint32_t Next() {
    if (position_ == kWords) MakeBlock();
    return words_[position_++];
  }

  // The words that come next, one or more, without drawing them; Skip draws
  // as many of them.
  Span<const uint32_t> Ready() {
    if (position_ == kWords) MakeBlock();
    return {words_ + position_, kWords - position_};
  }
  void Skip(int64_t count) { position_ += count; }

  const uint32_t* key() const { return key_; }
  int64_t position() const { return position_; }

 private:
  void MakeBlock();

  uint32_t key_[kWords];
  uint32_t words_[kWords];  // the key's, tempered
  int64_t position_;
};

}  // namespace hpgrain

#endif  // HPGRAIN_MT19937_H_
