// The stable order of one source: row number -> the pieces that fill it.

#ifndef HPGRAIN_STABLE_ROWS_H_
#define HPGRAIN_STABLE_ROWS_H_

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "feistel.h"
#include "row_plans.h"
#include "span.h"
#include "token_file.h"

namespace hpgrain {

struct StableRowsConfig {
  int64_t first_sequence = 0;
  int64_t last_sequence = 0;  // one past the last
  int64_t seq_length = 0;
  int64_t extra = 0;
  int64_t rows_per_epoch = 0;
  int64_t num_tokens = 0;
  bool shuffle = true;
  bool keep_last = false;
  // Where each sequence begins among the tokens, and their number at the end
  // (last - first + 1 values), for files whose pointers are not back to back.
  // Empty: the pointers tell.
  Span<const int64_t> starts;
};

// Row i is the tokens [o + p*S, o + p*S + S + x) of the sequences in stored
// order, e = i // rows_per_epoch, p the place of i in its epoch, o the
// epoch's offset inside the slack. Safe to use from several threads.
class StableRows {
 public:
  // Throws std::invalid_argument for numbers that contradict each other.
  explicit StableRows(const StableRowsConfig& config);

  // Plans the rows into *plans; false if the key of an epoch among them is
  // neither held nor given. Keys that are given are held for later calls, the
  // last used of them. Throws std::out_of_range for a negative row,
  // std::invalid_argument for a file whose pointers and lengths disagree.
  bool Plan(const TokenFile& file, Span<const int64_t> rows, int32_t source,
            const std::vector<std::pair<int64_t, Key>>& keys, RowPlans* plans);

 private:
  struct Epoch {
    Permutation permutation;
    int64_t offset;
    int64_t last_used;
  };

  bool NeedsKey(int64_t epoch) const;
  int64_t EpochOf(Span<const int64_t> rows, int64_t i) const;
  void AddEpoch(int64_t epoch, Key key);
  bool FindSpans(Span<const int64_t> rows, std::vector<int64_t>* begins,
                 std::vector<int64_t>* counts);

  const StableRowsConfig config_;
  std::mutex mutex_;  // guards what follows
  std::unordered_map<int64_t, Epoch> epochs_;
  int64_t clock_ = 0;
};

}  // namespace hpgrain

#endif  // HPGRAIN_STABLE_ROWS_H_
