// An array of integers of several possible types, as an index keeps them:
// borrowed, at any address, often a mapped file.

#ifndef HPGRAIN_INT_ARRAY_H_
#define HPGRAIN_INT_ARRAY_H_

#include <cstdint>

#include "span.h"

namespace hpgrain {

enum class IntKind { kInt32, kUint32, kInt64 };

struct IntArray {
  const uint8_t* data = nullptr;
  int64_t size = 0;
  IntKind kind = IntKind::kInt64;

  int64_t operator[](int64_t i) const {
    switch (kind) {
      case IntKind::kInt32:
        return LoadUnaligned<int32_t>(data, i);
      case IntKind::kUint32:
        return LoadUnaligned<uint32_t>(data, i);
      default:
        return LoadUnaligned<int64_t>(data, i);
    }
  }

  void Prefetch(int64_t i) const {
    PrefetchItem(data, i, kind == IntKind::kInt64 ? 8 : 4);
  }

  // Harmless for any `i`: the address is only computed as a number.
  static void PrefetchItem(const uint8_t* data, int64_t i, int64_t item_size) {
    __builtin_prefetch(reinterpret_cast<const void*>(
        reinterpret_cast<uintptr_t>(data) +
        static_cast<uint64_t>(i) * static_cast<uint64_t>(item_size)));
  }
};

}  // namespace hpgrain

#endif  // HPGRAIN_INT_ARRAY_H_
