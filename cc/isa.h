// Which instructions the kernels that are written for several may use.

#ifndef HPGRAIN_ISA_H_
#define HPGRAIN_ISA_H_

#include <vector>

namespace hpgrain {

// From the plainest on: each machine that runs one runs those before it.
enum class Isa { kScalar, kAvx2, kAvx512 };

// As HPGRAIN_ISA spells it: "scalar", "avx2", "avx512".
const char* IsaName(Isa isa);

// What this machine has, plainest first.
std::vector<Isa> SupportedIsas();

// The name's set, or the widest of this machine where it is null or empty.
// Throws std::invalid_argument, saying what this machine has, for any other.
Isa ChooseIsa(const char* name);

// What the environment variable HPGRAIN_ISA asked for when this was first
// called without throwing. No result of a kernel depends on it.
Isa CurrentIsa();

}  // namespace hpgrain

#endif  // HPGRAIN_ISA_H_
