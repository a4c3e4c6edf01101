// Where an id stands in rows whose plans do not tell, such as the
// end-of-document ids inside pre-cut records.

#ifndef HPGRAIN_FIND_ID_H_
#define HPGRAIN_FIND_ID_H_

#include <cstdint>
#include <vector>

#include "gather.h"
#include "row_plans.h"

namespace hpgrain {

struct IdPlaces {
  std::vector<int64_t> row_splits;
  std::vector<int64_t> positions;  // rising within a row
};

// Reads every piece whole; checks pieces and files as Gather does.
IdPlaces FindId(const RowPlansView& plans, const FileSet& set, int64_t id);

// Bytes of tokens that FindId has read in this process, over all threads.
int64_t ScannedBytes();

}  // namespace hpgrain

#endif  // HPGRAIN_FIND_ID_H_
