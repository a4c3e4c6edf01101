// A pointer and a count: how arrays reach the kernels.

#ifndef HPGRAIN_SPAN_H_
#define HPGRAIN_SPAN_H_

#include <cstdint>
#include <cstring>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "token files are little-endian and are read as they lie");

namespace hpgrain {

template <typename T>
struct Span {
  T* data = nullptr;
  int64_t size = 0;

  T& operator[](int64_t i) const { return data[i]; }
  T* begin() const { return data; }
  T* end() const { return data + size; }
};

// Element `i` of an array that may lie at any address.
template <typename T>
inline T LoadUnaligned(const uint8_t* base, int64_t i) {
  T value;
  std::memcpy(&value, base + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace hpgrain

#endif  // HPGRAIN_SPAN_H_
