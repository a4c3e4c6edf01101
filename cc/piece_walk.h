// Spans of tokens over sequences in stored order -> the pieces they are made
// of.

#ifndef HPGRAIN_PIECE_WALK_H_
#define HPGRAIN_PIECE_WALK_H_

#include <cstdint>

#include "row_plans.h"
#include "span.h"
#include "token_file.h"

namespace hpgrain {

class PieceWalk {
 public:
  // The sequences [first, last) of `file`, first < last unless no span is
  // cut. `starts` as in StableRowsConfig; empty: the pointers tell where a
  // sequence begins, and must lie back to back.
  PieceWalk(const TokenFile& file, int64_t first, int64_t last,
            Span<const int64_t> starts, int32_t source);

  // Row r = the tokens [begins[r], begins[r] + counts[r]). Throws
  // std::invalid_argument naming the sequence where the index contradicts
  // itself.
  RowPlans Cut(Span<const int64_t> begins, Span<const int64_t> counts) const;

 private:
  int64_t CheckedLength(int64_t sequence) const;
  void CutOne(int64_t sequence, int64_t begin, int64_t count,
              RowPlans* out) const;
  bool BeginsDocument(int64_t previous, int64_t sequence,
                      int64_t* guess) const;

  const TokenFile& file_;
  const int64_t first_;
  const int64_t last_;
  const Span<const int64_t> starts_;
  const int32_t source_;
};

}  // namespace hpgrain

#endif  // HPGRAIN_PIECE_WALK_H_
