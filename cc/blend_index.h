// Megatron's blend, written out: which source stands at each position, and
// which of its rows.

#ifndef HPGRAIN_BLEND_INDEX_H_
#define HPGRAIN_BLEND_INDEX_H_

#include <cstdint>

#include "blend_argmax.h"
#include "isa.h"
#include "span.h"

namespace hpgrain {

// Source ids that an int16 holds; for more sources they are int32.
constexpr int64_t kMaxSources16 = 32767;

// Throws std::invalid_argument unless there are from 1 to 2**31 - 1 weights,
// each finite and above 0, and `size` is not negative.
void CheckBlendWeights(Span<const double> weights, int64_t size);

// Returns the sum; throws std::invalid_argument unless there are from 1 to
// 2**31 - 1 sizes, none negative, of at most 2**62 together.
int64_t CheckBlendSizes(Span<const int64_t> sizes);

// At position t stands the source of the largest w * max(t, 1) - c, c being
// how often it stood before: in doubles, in this order of operations, ties to
// the lowest id. The weights are used as they are. For arguments that passed
// the check; each array of `rows` holds `size` values.
template <typename Id>
void BlendIndex(Span<const double> weights, int64_t size, Isa isa,
                const BlendRows<Id>& rows);

// The same with w = size / sum of sizes, among sources that have rows left.
template <typename Id>
void ExhaustiveBlendIndex(Span<const int64_t> sizes, Isa isa,
                          const BlendRows<Id>& rows);

}  // namespace hpgrain

#endif  // HPGRAIN_BLEND_INDEX_H_
