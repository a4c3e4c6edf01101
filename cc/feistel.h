// A keyed permutation of [0, size) by arithmetic: no table, random access.

#ifndef HPGRAIN_FEISTEL_H_
#define HPGRAIN_FEISTEL_H_

#include <cstdint>

#include "span.h"

namespace hpgrain {

// The finaliser of splitmix64.
inline uint64_t Mix64(uint64_t z) {
  z ^= z >> 30;
  z *= 0xBF58476D1CE4E5B9u;
  z ^= z >> 27;
  z *= 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

struct Key {
  uint64_t k0 = 0;
  uint64_t k1 = 0;
};

// The two little-endian words of 16 bytes.
Key KeyFromBytes(const uint8_t* bytes);

// A balanced Feistel network over 2h bits, h >= 4, eight rounds; values that
// fall outside [0, size) are sent through again until they fall inside, which
// ends because the network is itself a permutation.
class Permutation {
 public:
  static constexpr int kRounds = 8;
  static constexpr int64_t kMaxSize = int64_t{1} << 62;

  // Throws std::invalid_argument unless 1 <= size <= kMaxSize.
  Permutation(int64_t size, Key key);

  // Requires 0 <= index < size.
  int64_t operator()(int64_t index) const {
    uint64_t v = static_cast<uint64_t>(index);
    if (size_ == 1) return 0;
    do {
      uint64_t left = v >> half_bits_;
      uint64_t right = v & mask_;
      for (int r = 0; r < kRounds; ++r) {
        const uint64_t next = left ^ (Mix64(right ^ round_keys_[r]) & mask_);
        left = right;
        right = next;
      }
      v = (left << half_bits_) | right;
    } while (v >= size_);
    return static_cast<int64_t>(v);
  }

 private:
  uint64_t size_;
  uint64_t mask_;
  int half_bits_;
  uint64_t round_keys_[kRounds];
};

// out[i] = the place of index[i]; both hold the same number of elements.
// Throws std::out_of_range for an index outside [0, size).
void Permute(Span<const int64_t> index, int64_t size, Key key,
             Span<int64_t> out);

}  // namespace hpgrain

#endif  // HPGRAIN_FEISTEL_H_
