#include "mt19937.h"

#include <algorithm>

#include "clones.h"
#include "errors.h"

namespace hpgrain {
namespace {

constexpr int64_t kSize = Mt19937::kWords;
constexpr int64_t kMiddle = 397;

inline uint32_t Twisted(uint32_t high, uint32_t low, uint32_t far) {
  const uint32_t bits = (high & 0x80000000u) | (low & 0x7fffffffu);
  return far ^ (bits >> 1) ^ (-(bits & 1u) & 0x9908b0dfu);
}

// Word i is made of words i, i + 1 and i + 397, where those past the end are
// the new ones: in two loops, in which all that is read was written long
// before, so that both become wide instructions.
HPGRAIN_CLONES
void Twist(uint32_t* key) {
  for (int64_t i = 0; i < kSize - kMiddle; ++i) {
    key[i] = Twisted(key[i], key[i + 1], key[i + kMiddle]);
  }
  for (int64_t i = kSize - kMiddle; i < kSize - 1; ++i) {
    key[i] = Twisted(key[i], key[i + 1], key[i - (kSize - kMiddle)]);
  }
  key[kSize - 1] = Twisted(key[kSize - 1], key[0], key[kMiddle - 1]);
}

HPGRAIN_CLONES
void Temper(const uint32_t* key, uint32_t* words) {
  for (int64_t i = 0; i < kSize; ++i) {
    uint32_t word = key[i];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680u;
    word ^= (word << 15) & 0xefc60000u;
    words[i] = word ^ (word >> 18);
  }
}

}  // namespace

Mt19937::Mt19937(Span<const uint32_t> key, int64_t position)
    : position_(position) {
  if (key.size != kWords) {
    ThrowInvalid("key must hold the ", kWords, " words of an MT19937, got ",
                 key.size, "; take it from RandomState.get_state().");
  }
  if (position < 0 || position > kWords) {
    ThrowInvalid("position must lie in [0, ", kWords, "], got ", position,
                 "; take it from RandomState.get_state().");
  }
  std::copy_n(key.data, kWords, key_);
  Temper(key_, words_);
}

void Mt19937::MakeBlock() {
  Twist(key_);
  Temper(key_, words_);
  position_ = 0;
}

}  // namespace hpgrain
