// Row plans and open files -> the rows' tokens as int32.

#ifndef HPGRAIN_GATHER_H_
#define HPGRAIN_GATHER_H_

#include <cstdint>
#include <vector>

#include "row_plans.h"
#include "span.h"
#include "token_file.h"

namespace hpgrain {

// The files of a set of plans: files[i] is source sources[i]; sources rise.
struct FileSet {
  Span<const int32_t> sources;
  std::vector<const TokenFile*> files;
};

// Throws std::invalid_argument unless the sources rise, have one file each,
// and every file holds integers.
void CheckFiles(const FileSet& set);

// Finds files by source number, quickly where one follows itself.
class FileFinder {
 public:
  explicit FileFinder(const FileSet& set) : set_(set) {}

  // The file of piece `piece`, which reads `source`.
  // Throws std::out_of_range where there is none.
  const TokenFile& Find(int64_t piece, int32_t source);

 private:
  const FileSet& set_;
  int64_t last_ = -1;
};

// Where a piece begins in its file's .bin, in bytes, once it is known to lie
// inside its sequence and the sequence inside the .bin.
// Throws std::out_of_range naming piece and numbers.
int64_t PieceBytes(const TokenFile& file, const RowPlansView& plans,
                   int64_t piece);

struct GatherConfig {
  int64_t begin = 0;  // the window of positions, the same in every row
  int64_t end = 0;
  int32_t pad_id = 0;      // what stands past a row's end
  int64_t vocab_size = 0;  // 0: any id that an int32 holds
};

// The first id outside the vocabulary, or piece = -1.
struct BadId {
  int64_t piece = -1;
  int64_t position = -1;  // in its row
  int64_t id = 0;
};

// Writes out[r, c] = the token at position begin + c of row r. Stops at the
// first bad id; what was written until then stays.
BadId Gather(const RowPlansView& plans, const FileSet& set,
             const GatherConfig& config, Span<int32_t> out);

// Bytes of tokens that Gather has read since the process began or the last
// reset, over all threads.
int64_t GatheredBytes();
void ResetGatheredBytes();

}  // namespace hpgrain

#endif  // HPGRAIN_GATHER_H_
