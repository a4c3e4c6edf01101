// Rows of tokens and where their documents begin -> the fields of a batch.

#ifndef HPGRAIN_FIELDS_H_
#define HPGRAIN_FIELDS_H_

#include <cstdint>

#include "span.h"

namespace hpgrain {

// The label of a position that takes no part in the loss.
constexpr int32_t kIgnoreIndex = -100;

struct FieldsConfig {
  int64_t begin = 0;  // the window of positions, the same in every row
  int64_t end = 0;
  int64_t seq_length = 0;
  bool labels_are_shifted = true;
  bool mask_boundary_labels = true;
  // Positions whose input is this id take no part in the loss; -1: none.
  int64_t eod_id = -1;
  bool reset_position_ids = false;
  bool reset_attention_mask = true;
};

// The rows: tokens[num_rows, token_width] from position `begin` on, and their
// segments in CSR form. token_width is end - begin, or one more where the
// token after the window is known.
struct FieldsInput {
  Span<const int32_t> tokens;
  int64_t num_rows = 0;
  int64_t token_width = 0;
  Span<const int64_t> row_splits;
  Span<const int64_t> starts;
  Span<const int64_t> lengths;
};

// Each [num_rows or more, end - begin]; rows from num_rows on are left alone.
struct FieldsOutput {
  Span<int32_t> input_ids;
  Span<int32_t> labels;
  Span<int32_t> position_ids;
  Span<int32_t> segment_ids;
  Span<float> loss_mask;
};

// Throws std::invalid_argument where sizes or segments contradict each other.
void MakeFields(const FieldsInput& input, const FieldsConfig& config,
                const FieldsOutput& output);

}  // namespace hpgrain

#endif  // HPGRAIN_FIELDS_H_
