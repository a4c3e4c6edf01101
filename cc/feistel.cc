#include "feistel.h"

#include <algorithm>

#include "errors.h"

namespace hpgrain {
namespace {

constexpr uint64_t kPhi = 0x9E3779B97F4A7C15u;

int BitLength(uint64_t value) {
  return value == 0 ? 0 : 64 - __builtin_clzll(value);
}

}  // namespace

Key KeyFromBytes(const uint8_t* bytes) {
  return {LoadUnaligned<uint64_t>(bytes, 0), LoadUnaligned<uint64_t>(bytes, 1)};
}

Permutation::Permutation(int64_t size, Key key) {
  if (size < 1 || size > kMaxSize) {
    ThrowInvalid("cannot permute ", size,
                 " elements; the size must be from 1 to 2**62.");
  }
  size_ = static_cast<uint64_t>(size);
  // Narrower halves visibly favour some orders of very few elements.
  half_bits_ = std::max(4, (BitLength(size_ - 1) + 1) / 2);
  mask_ = (uint64_t{1} << half_bits_) - 1;
  for (int r = 0; r < kRounds; ++r) {
    const uint64_t step = static_cast<uint64_t>(r + 1) * kPhi;
    round_keys_[r] = Mix64(Mix64(key.k0 + step) ^ key.k1);
  }
}

void Permute(Span<const int64_t> index, int64_t size, Key key,
             Span<int64_t> out) {
  const Permutation permutation(size, key);
  for (int64_t i = 0; i < index.size; ++i) {
    if (index[i] < 0 || index[i] >= size) {
      ThrowOutOfRange("index[", i, "] is ", index[i],
                      "; a permutation of ", size,
                      " elements takes 0 to ", size - 1, ".");
    }
    out[i] = permutation(index[i]);
  }
}

}  // namespace hpgrain
