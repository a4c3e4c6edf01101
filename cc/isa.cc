#include "isa.h"

#include <cstdlib>
#include <string>

#include "errors.h"

namespace hpgrain {

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kScalar:
      break;
  }
  return "scalar";
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas = {Isa::kScalar};
#if defined(__x86_64__)
  // These ask the operating system too, which must save the registers.
  if (__builtin_cpu_supports("avx2")) {
    isas.push_back(Isa::kAvx2);
    if (__builtin_cpu_supports("avx512f")) isas.push_back(Isa::kAvx512);
  }
#endif
  return isas;
}

Isa ChooseIsa(const char* name) {
  const std::vector<Isa> isas = SupportedIsas();
  const std::string wanted = name == nullptr ? "" : name;
  if (wanted.empty()) return isas.back();
  std::string names;
  for (const Isa isa : isas) {
    if (wanted == IsaName(isa)) return isa;
    names += std::string(names.empty() ? "" : ", ") + IsaName(isa);
  }
  ThrowInvalid("HPGRAIN_ISA is \"", wanted, "\"; this machine has ", names,
               ". Unset it to take the widest.");
}

Isa CurrentIsa() {
  // A throw leaves it unset, so that the next call looks again.
  static const Isa isa = ChooseIsa(std::getenv("HPGRAIN_ISA"));
  return isa;
}

}  // namespace hpgrain
