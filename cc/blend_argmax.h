// The inner loops of Megatron's blend rule, once for each instruction set.
//
// A lane holds one source: its weight w and its count c of rows drawn. The
// error of a lane at step t is w * max(t, 1) - c in doubles, each operation
// rounded; a step draws from the first lane of the largest error. A count of
// infinity takes a lane out: its error is minus infinity.

#ifndef HPGRAIN_BLEND_ARGMAX_H_
#define HPGRAIN_BLEND_ARGMAX_H_

#include <cstdint>

#include "isa.h"

namespace hpgrain {

// Arrays of lanes are as long as a multiple of this many.
constexpr int64_t kLaneBlock = 64;

struct BlendLanes {
  double* weight;
  double* count;
  const int32_t* id;  // of the lane's source
  int64_t num_lanes;  // at least 1; those up to the block's end are filled in
};

// The sources, by id.
struct BlendSources {
  int64_t* drawn;        // rows drawn
  const int64_t* limit;  // a source that reaches it is spent
};

template <typename Id>
struct BlendRows {
  Id* source;
  int64_t* sample;  // which of the source's rows
};

// Takes the steps from `first` to before `last`, up to and with the one in
// which a source is spent; row t of the output is step t. Some source must
// not be spent. Returns the step after; *error is that of the last draw.
template <typename Id>
using DrawFunction = int64_t (*)(const BlendLanes& lanes,
                                 const BlendSources& sources, int64_t first,
                                 int64_t last, const BlendRows<Id>& rows,
                                 double* error);

// Sets bit i of `at_now` where lane i's error at step `now` is at least
// `bound`, of `at_later` likewise; bits past num_lanes stay clear.
using MarkFunction = void (*)(const BlendLanes& lanes, int64_t now,
                              int64_t later, double bound, uint64_t* at_now,
                              uint64_t* at_later);

struct BlendArgmax {
  int64_t few;  // drawing from so many lanes costs less than finding fewer
  MarkFunction mark;
  DrawFunction<int16_t> draw16;
  DrawFunction<int32_t> draw32;
};

// For an instruction set that this machine has.
const BlendArgmax& GetBlendArgmax(Isa isa);

const BlendArgmax& BlendArgmaxScalar();
const BlendArgmax& BlendArgmaxAvx2();
const BlendArgmax& BlendArgmaxAvx512();

}  // namespace hpgrain

#endif  // HPGRAIN_BLEND_ARGMAX_H_
