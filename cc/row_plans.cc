#include "row_plans.h"

#include <algorithm>

#include "errors.h"

namespace hpgrain {

namespace {

void CheckSplits(Span<const int64_t> splits, int64_t pieces) {
  if (splits.size < 1 || splits[0] != 0 || splits[splits.size - 1] != pieces) {
    ThrowInvalid("row_splits must begin with 0 and end with the number of "
                 "pieces, ", pieces, "; got ", splits.size, " values",
                 splits.size < 1 ? "" : Message(
                     " from ", splits[0], " to ", splits[splits.size - 1]),
                 ".");
  }
  for (int64_t r = 0; r + 1 < splits.size; ++r) {
    if (splits[r] > splits[r + 1]) {
      ThrowInvalid("row_splits must not fall; row ", r, " goes from ",
                   splits[r], " to ", splits[r + 1], ".");
    }
  }
}

}  // namespace

void CheckPlans(const RowPlansView& plans, bool with_boundary) {
  const int64_t pieces = plans.num_pieces();
  CheckSplits(plans.row_splits, pieces);
  if (plans.sequence.size != pieces || plans.offset.size != pieces ||
      plans.length.size != pieces ||
      (with_boundary && plans.boundary.size != pieces)) {
    ThrowInvalid("source, sequence, offset, length and boundary must hold one "
                 "value a piece; got ", pieces, ", ", plans.sequence.size,
                 ", ", plans.offset.size, ", ", plans.length.size, " and ",
                 plans.boundary.size, ".");
  }
}

RowSegments FindSegments(Span<const int64_t> row_splits,
                         Span<const int32_t> length,
                         Span<const uint8_t> boundary) {
  CheckSplits(row_splits, length.size);
  if (boundary.size != length.size) {
    ThrowInvalid("length and boundary must hold one value a piece; got ",
                 length.size, " and ", boundary.size, ".");
  }
  const int64_t num_rows = row_splits.size - 1;
  RowSegments out;
  out.row_splits.reserve(num_rows + 1);
  out.starts.reserve(length.size);
  out.lengths.reserve(num_rows);
  out.row_splits.push_back(0);
  for (int64_t r = 0; r < num_rows; ++r) {
    int64_t position = 0;
    for (int64_t p = row_splits[r]; p < row_splits[r + 1]; ++p) {
      if (boundary[p] != 0) out.starts.push_back(position);
      position += length[p];
    }
    out.row_splits.push_back(static_cast<int64_t>(out.starts.size()));
    out.lengths.push_back(position);
  }
  return out;
}

RowPlans MergePlans(int64_t num_rows, const std::vector<PlansPart>& parts) {
  if (num_rows < 0) {
    ThrowInvalid("cannot merge into ", num_rows, " rows.");
  }
  int64_t covered = 0;
  for (const auto& part : parts) {
    CheckPlans(part.plans, /*with_boundary=*/true);
    if (part.rows.size != part.plans.num_rows()) {
      ThrowInvalid("a part places ", part.rows.size, " rows but plans ",
                   part.plans.num_rows(), ".");
    }
    covered += part.rows.size;
  }
  // Checked before anything of num_rows elements is made.
  if (covered != num_rows) {
    ThrowInvalid("the parts hold ", covered, " rows; the merged batch has ",
                 num_rows, ".");
  }
  RowPlans out;
  out.row_splits.assign(num_rows + 1, -1);
  for (const auto& part : parts) {
    for (int64_t i = 0; i < part.rows.size; ++i) {
      const int64_t row = part.rows[i];
      if (row < 0 || row >= num_rows || out.row_splits[row + 1] >= 0) {
        ThrowInvalid("the parts must hold each of the rows 0 to ",
                     num_rows - 1, " once; row ", row,
                     row < 0 || row >= num_rows ? " is outside."
                                                : " stands twice.");
      }
      const auto& splits = part.plans.row_splits;
      out.row_splits[row + 1] = splits[i + 1] - splits[i];
    }
  }
  out.row_splits[0] = 0;
  for (int64_t r = 0; r < num_rows; ++r) {
    out.row_splits[r + 1] += out.row_splits[r];
  }
  const int64_t pieces = out.row_splits[num_rows];
  out.source.resize(pieces);
  out.sequence.resize(pieces);
  out.offset.resize(pieces);
  out.length.resize(pieces);
  out.boundary.resize(pieces);
  for (const auto& part : parts) {
    const auto& plans = part.plans;
    for (int64_t i = 0; i < part.rows.size; ++i) {
      const int64_t from = plans.row_splits[i];
      const int64_t count = plans.row_splits[i + 1] - from;
      const int64_t to = out.row_splits[part.rows[i]];
      std::copy_n(plans.source.data + from, count, out.source.data() + to);
      std::copy_n(plans.sequence.data + from, count, out.sequence.data() + to);
      std::copy_n(plans.offset.data + from, count, out.offset.data() + to);
      std::copy_n(plans.length.data + from, count, out.length.data() + to);
      std::copy_n(plans.boundary.data + from, count, out.boundary.data() + to);
    }
  }
  return out;
}

}  // namespace hpgrain
