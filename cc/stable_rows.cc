#include "stable_rows.h"

#include <algorithm>
#include <iterator>

#include "errors.h"
#include "piece_walk.h"
#include "search.h"

namespace hpgrain {
namespace {

using int128 = __int128;

// A piece's length is an int32.
constexpr int64_t kMaxRow = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxTokens = int64_t{1} << 62;
// Epochs whose keys are kept for the next call.
constexpr int64_t kKeptEpochs = 8;

}  // namespace

StableRows::StableRows(const StableRowsConfig& config) : config_(config) {
  const auto& c = config_;
  if (c.first_sequence < 0 || c.last_sequence < c.first_sequence) {
    ThrowInvalid("the sequences [", c.first_sequence, ", ", c.last_sequence,
                 ") are no range.");
  }
  if (c.seq_length < 1 || c.extra < 0 || c.seq_length > kMaxRow - c.extra) {
    ThrowInvalid("a row of ", c.seq_length, " + ", c.extra,
                 " tokens; seq_length must be at least 1, extra at least 0 "
                 "and the row below 2**31.");
  }
  if (c.num_tokens < 0 || c.num_tokens > kMaxTokens || c.rows_per_epoch < 0 ||
      c.rows_per_epoch > kMaxTokens) {
    ThrowInvalid(c.rows_per_epoch, " rows an epoch of ", c.num_tokens,
                 " tokens; both must be from 0 to 2**62.");
  }
  // With keep_last the last row may be short, but has a token to predict.
  const int128 full_rows = int128{c.rows_per_epoch} - (c.keep_last ? 1 : 0);
  const int128 used = full_rows * c.seq_length + c.extra +
                      (c.keep_last ? 1 : 0);
  if (c.rows_per_epoch > 0 && used > c.num_tokens) {
    ThrowInvalid(c.rows_per_epoch, " rows of ", c.seq_length, " + ", c.extra,
                 " tokens do not fit into ", c.num_tokens, " tokens.");
  }
  if (c.starts.data != nullptr) {
    const int64_t count = c.last_sequence - c.first_sequence;
    if (c.starts.size != count + 1 || c.starts[0] != 0 ||
        c.starts[count] != c.num_tokens) {
      ThrowInvalid("starts must hold ", count + 1, " values from 0 to ",
                   c.num_tokens, "; got ", c.starts.size, " values",
                   c.starts.size < 1 ? "" : Message(
                       " from ", c.starts[0], " to ",
                       c.starts[c.starts.size - 1]), ".");
    }
  }
}

bool StableRows::NeedsKey(int64_t epoch) const {
  return config_.shuffle || (epoch > 0 && !config_.keep_last);
}

int64_t StableRows::EpochOf(Span<const int64_t> rows, int64_t i) const {
  if (rows[i] < 0) {
    ThrowOutOfRange("Rows count from 0, got row ", rows[i], ".");
  }
  if (config_.rows_per_epoch == 0) {
    ThrowInvalid("row ", rows[i], " asked for, but ", config_.num_tokens,
                 " tokens hold no row of ", config_.seq_length, " + ",
                 config_.extra, " tokens.");
  }
  return rows[i] / config_.rows_per_epoch;
}

void StableRows::AddEpoch(int64_t epoch, Key key) {
  if (epoch < 0) {
    ThrowInvalid("epoch ", epoch, " added; epochs count from 0.");
  }
  const auto& c = config_;
  if (c.rows_per_epoch == 0) return;
  int64_t offset = 0;
  if (epoch > 0 && !c.keep_last) {
    const int64_t slack =
        c.num_tokens - c.extra - c.rows_per_epoch * c.seq_length;
    offset = static_cast<int64_t>(Mix64(key.k0 ^ Mix64(key.k1)) %
                                  static_cast<uint64_t>(slack + 1));
  }
  const Permutation permutation(c.rows_per_epoch, key);
  epochs_.insert_or_assign(epoch, Epoch{permutation, offset, ++clock_});
}

bool StableRows::FindSpans(Span<const int64_t> rows,
                           std::vector<int64_t>* begins,
                           std::vector<int64_t>* counts) {
  const auto& c = config_;
  int64_t last = -1;
  const Epoch* held = nullptr;
  for (int64_t i = 0; i < rows.size; ++i) {
    const int64_t epoch = EpochOf(rows, i);
    if (epoch != last) {
      held = nullptr;
      last = epoch;
      if (NeedsKey(epoch)) {
        const auto found = epochs_.find(epoch);
        if (found == epochs_.end()) return false;
        found->second.last_used = ++clock_;
        held = &found->second;
      }
    }
    int64_t place = rows[i] - epoch * c.rows_per_epoch;
    if (c.shuffle) place = held->permutation(place);
    const int64_t begin =
        (held == nullptr ? 0 : held->offset) + place * c.seq_length;
    (*begins)[i] = begin;
    (*counts)[i] = std::min(c.seq_length + c.extra, c.num_tokens - begin);
  }
  return true;
}

bool StableRows::Plan(const TokenFile& file, Span<const int64_t> rows,
                      int32_t source,
                      const std::vector<std::pair<int64_t, Key>>& keys,
                      RowPlans* plans) {
  const auto& c = config_;
  if (c.last_sequence > file.num_sequences) {
    ThrowInvalid("the sequences [", c.first_sequence, ", ", c.last_sequence,
                 ") were asked for; the file holds ", file.num_sequences, ".");
  }
  std::vector<int64_t> begins(rows.size);
  std::vector<int64_t> counts(rows.size);
  {
    // Under one lock, so that no other thread lets go of a key in between.
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [epoch, key] : keys) AddEpoch(epoch, key);
    const bool found = FindSpans(rows, &begins, &counts);
    if (static_cast<int64_t>(epochs_.size()) > kKeptEpochs) {
      // Each use has a tick of its own, so the last ticks are as many epochs.
      for (auto it = epochs_.begin(); it != epochs_.end();) {
        it = it->second.last_used <= clock_ - kKeptEpochs ? epochs_.erase(it)
                                                          : std::next(it);
      }
    }
    if (!found) return false;
  }
  if (rows.size > 0 && c.first_sequence == c.last_sequence) {
    ThrowInvalid("rows were asked for of the sequences [", c.first_sequence,
                 ", ", c.last_sequence, "), which are none.");
  }
  PieceWalk walk(file, c.first_sequence, c.last_sequence, c.starts, source);
  *plans = walk.Cut({begins.data(), rows.size}, {counts.data(), rows.size});
  return true;
}

}  // namespace hpgrain
