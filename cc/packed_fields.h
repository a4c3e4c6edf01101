// Rows packed of pieces, and the pieces' tokens -> the fields of a batch.

#ifndef HPGRAIN_PACKED_FIELDS_H_
#define HPGRAIN_PACKED_FIELDS_H_

#include <cstdint>

#include "fields.h"
#include "span.h"

namespace hpgrain {

// The pieces of each row in CSR form, as they lie in it; they need not touch.
// Of the ids and labels only those in the window are given.
struct PackedInput {
  Span<const int64_t> row_splits;
  Span<const int64_t> start;   // a piece's first position in the row
  Span<const int32_t> length;  // its positions
  // Where its first id and its first label in the window are, in the arrays
  // below; of no meaning where it has none there.
  Span<const int64_t> id_begin;
  Span<const int64_t> label_begin;
  Span<const int32_t> ids;
  Span<const int32_t> labels;
  Span<const float> weights;  // of the labels in the loss; empty: all 1

  int64_t num_rows() const { return row_splits.size - 1; }
};

struct PackedConfig {
  int64_t begin = 0;  // the window of positions, the same in every row
  int64_t end = 0;
  int64_t eod_id = -1;
  bool reset_position_ids = true;
  bool reset_attention_mask = true;
};

// Positions that no piece covers are padding: id 0, no label, segment 0.
// Throws std::invalid_argument where sizes or places contradict each other.
void MakePackedFields(const PackedInput& input, const PackedConfig& config,
                      const FieldsOutput& output);

}  // namespace hpgrain

#endif  // HPGRAIN_PACKED_FIELDS_H_
