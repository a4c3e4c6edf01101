// Lengths of examples, in the order they arrive -> which go into which row.
//
// An example of length 0 goes into none. One that is longer than the budget
// makes a row of its own. `max_items` closes a row that has so many; 0 never.

#ifndef HPGRAIN_PACK_H_
#define HPGRAIN_PACK_H_

#include <cstdint>
#include <vector>

#include "span.h"

namespace hpgrain {

struct PackedRows {
  std::vector<int64_t> row_splits = {0};
  std::vector<int64_t> items;  // places in `lengths`, ascending within a row
  // What was seen when the last row was made: the examples that are in no row
  // before this place wait, those from it on have not arrived.
  int64_t arrived = 0;
};

struct PackLimits {
  int64_t budget;
  int64_t max_items;
};

// Both below take the oldest example first, so that no example waits for
// long, and see of the others only those that have arrived. `arrived` says how
// many have to begin with. Without `final`, a row is made only while the rule
// would make it whatever came later; with it all examples end up in rows.

// Then, in the order of arrival, each that still fits. A row is made once
// `min_buffered` examples wait and they have `budget` tokens.
PackedRows FirstFit(Span<const int32_t> lengths, const PackLimits& limits,
                    int64_t min_buffered, int64_t arrived, bool final);

// Then always the longest that still fits, the older of two alike. A row is
// made once `window` examples wait.
PackedRows OldestBestFit(Span<const int32_t> lengths, const PackLimits& limits,
                         int64_t window, int64_t arrived, bool final);

// Best-fit-decreasing: from the longest on, each into the fullest row in which
// it fits, the earlier of two alike.
PackedRows BestFitDecreasing(Span<const int32_t> lengths,
                             const PackLimits& limits);

}  // namespace hpgrain

#endif  // HPGRAIN_PACK_H_
