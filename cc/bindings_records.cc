// The part of the Python module for files of records.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "numpy_arrays.h"
#include "open_file.h"
#include "record_starts.h"

namespace py = pybind11;

namespace hpgrain {
namespace {

py::array_t<int64_t> Fed(RecordStarts& self, const Array<uint8_t>& block) {
  const auto in = Flat(block, "block");
  std::vector<int64_t> starts;
  {
    const Unlocked unlocked;
    self.Feed(in, &starts);
  }
  return ToArray<int64_t>(std::move(starts));
}

}  // namespace

void BindRecords(py::module_& m) {
  using py::arg;
  py::class_<RecordStarts>(m, "RecordStarts",
                           "Where the records of a text file begin.")
      .def(py::init([](std::string_view kind, int64_t offset) {
             return RecordStarts(RecordKindNamed(kind), offset);
           }),
           arg("kind"), arg("offset"))
      .def("feed", &Fed, arg("block"),
           "The starts that the next bytes of the file show.")
      .def_property_readonly("offset", &RecordStarts::offset)
      .def_property_readonly("closed", &RecordStarts::closed)
      .def_property_readonly("rest", &RecordStarts::rest);
}

}  // namespace hpgrain
