// What the parts of the Python module put into it.

#ifndef HPGRAIN_BINDINGS_H_
#define HPGRAIN_BINDINGS_H_

#include <pybind11/pybind11.h>

namespace hpgrain {

// Megatron's order: its shuffle, its sample index, plans of its samples.
void BindMegatron(pybind11::module_& m);

// Megatron's blend: which source stands at each position, as arrays.
void BindBlendIndex(pybind11::module_& m);

// Packing: which examples go into which row.
void BindPack(pybind11::module_& m);

// Files of records: where each begins.
void BindRecords(pybind11::module_& m);

// Raw text: JSON's texts, flags of characters, ids as they are stored.
void BindTexts(pybind11::module_& m);

}  // namespace hpgrain

#endif  // HPGRAIN_BINDINGS_H_
