// Which pieces of which sequences fill each row, in CSR form.

#ifndef HPGRAIN_ROW_PLANS_H_
#define HPGRAIN_ROW_PLANS_H_

#include <cstdint>
#include <vector>

#include "span.h"

namespace hpgrain {

struct RowPlans {
  std::vector<int64_t> row_splits;
  std::vector<int32_t> source;
  std::vector<int64_t> sequence;
  std::vector<int64_t> offset;
  std::vector<int32_t> length;
  std::vector<uint8_t> boundary;
};

// The same, borrowed. `boundary` may be left empty where it is not used.
struct RowPlansView {
  Span<const int64_t> row_splits;
  Span<const int32_t> source;
  Span<const int64_t> sequence;
  Span<const int64_t> offset;
  Span<const int32_t> length;
  Span<const uint8_t> boundary;

  int64_t num_rows() const { return row_splits.size - 1; }
  int64_t num_pieces() const { return source.size; }
};

// Throws std::invalid_argument unless the arrays agree: row_splits rises from
// 0 to the number of pieces, and every array holds one value a piece.
void CheckPlans(const RowPlansView& plans, bool with_boundary);

// Where the documents of each row begin, in CSR form, and its tokens.
struct RowSegments {
  std::vector<int64_t> row_splits;
  std::vector<int64_t> starts;
  std::vector<int64_t> lengths;
};

// Throws std::invalid_argument where the arrays contradict each other.
RowSegments FindSegments(Span<const int64_t> row_splits,
                         Span<const int32_t> length,
                         Span<const uint8_t> boundary);

// Rows of a merged batch that one part plans: row i of `plans` becomes row
// rows[i] of the batch.
struct PlansPart {
  Span<const int64_t> rows;
  RowPlansView plans;
};

// Throws std::invalid_argument unless the parts hold each of the rows
// 0 to num_rows - 1 once.
RowPlans MergePlans(int64_t num_rows, const std::vector<PlansPart>& parts);

}  // namespace hpgrain

#endif  // HPGRAIN_ROW_PLANS_H_
