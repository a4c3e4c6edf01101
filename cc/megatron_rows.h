// Megatron's order of one source: row number -> the pieces that fill it.

#ifndef HPGRAIN_MEGATRON_ROWS_H_
#define HPGRAIN_MEGATRON_ROWS_H_

#include <cstdint>

#include "int_array.h"
#include "row_plans.h"
#include "span.h"
#include "token_file.h"

namespace hpgrain {

// Row i is sample j = shuffle_index[i]: the tokens from sample_index[j] up to
// sample_index[j + 1] and the extra one, over the documents in the order of
// document_index. The arrays are borrowed and may be mapped files.
struct MegatronRows {
  IntArray document_index;  // int32 or int64, sequences in reading order
  IntArray sample_index;    // int32 or int64, pairs (place, offset)
  bool shuffled = false;    // else row i is sample i
  IntArray shuffle_index;   // uint32 or int64, where shuffled
  int64_t seq_length = 0;
  int64_t extra = 0;  // 0 or 1
};

// Throws std::out_of_range for a row that there is none of, and
// std::invalid_argument where the index contradicts itself or the file: every
// sample has seq_length + extra tokens, but the last, which may have fewer.
RowPlans PlanSamples(const TokenFile& file, const MegatronRows& index,
                     Span<const int64_t> rows, int32_t source);

}  // namespace hpgrain

#endif  // HPGRAIN_MEGATRON_ROWS_H_
