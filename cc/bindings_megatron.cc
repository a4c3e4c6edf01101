// The part of the Python module for Megatron's order.

#include "bindings.h"

namespace py = pybind11;

namespace hpgrain {

void BindMegatron(py::module_& m) { (void)m; }

}  // namespace hpgrain
