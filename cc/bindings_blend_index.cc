// The part of the Python module for Megatron's blend index.

#include "bindings.h"

namespace py = pybind11;

namespace hpgrain {

void BindBlendIndex(py::module_& m) { (void)m; }

}  // namespace hpgrain
