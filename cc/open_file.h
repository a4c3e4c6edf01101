// An open .idx/.bin pair and a plan as Python knows them; for the bindings
// alone.

#ifndef HPGRAIN_OPEN_FILE_H_
#define HPGRAIN_OPEN_FILE_H_

#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

#include "numpy_arrays.h"
#include "row_plans.h"
#include "token_file.h"

namespace hpgrain {

using Unlocked = pybind11::gil_scoped_release;

// The pair's arrays and what keeps their memory alive.
struct OpenFile {
  TokenFile file;
  std::vector<pybind11::object> owners;
};

inline pybind11::tuple ToTuple(RowPlans&& plans) {
  return pybind11::make_tuple(ToArray<int64_t>(std::move(plans.row_splits)),
                              ToArray<int32_t>(std::move(plans.source)),
                              ToArray<int64_t>(std::move(plans.sequence)),
                              ToArray<int64_t>(std::move(plans.offset)),
                              ToArray<int32_t>(std::move(plans.length)),
                              ToArray<bool>(std::move(plans.boundary)));
}

}  // namespace hpgrain

#endif  // HPGRAIN_OPEN_FILE_H_
