// Searches in rising int64 arrays that may lie at any address and may be far
// larger than the caches.

#ifndef HPGRAIN_SEARCH_H_
#define HPGRAIN_SEARCH_H_

#include <cstdint>

#include "span.h"

namespace hpgrain {

// out[i] = the largest s in [begin, end) with values[s] <= targets[i], or
// `begin` where there is none. Requires begin < end. In an array that does
// not rise the answers mean nothing, but they lie in [begin, end).
void FindLastAtMost(const uint8_t* values, int64_t begin, int64_t end,
                    Span<const int64_t> targets, Span<int64_t> out);

// The least d in [begin, end) with values[d] >= target, or `end`; looks near
// `guess` first.
int64_t FindFirstAtLeast(const uint8_t* values, int64_t begin, int64_t end,
                         int64_t target, int64_t guess);

}  // namespace hpgrain

#endif  // HPGRAIN_SEARCH_H_
