#include "blend_argmax.h"

#include "blend_argmax_loops.h"

namespace hpgrain {
namespace {

struct ScalarVector {
  using Vector = double;
  static constexpr int kWidth = 1;
  static constexpr int kMaxVectors = 4;
  static constexpr int64_t kFew = 40;

  static Vector Set(double value) { return value; }
  static Vector Load(const double* from) { return *from; }
  static void Store(double* to, Vector a) { *to = a; }
  static double First(Vector a) { return a; }
  static Vector Add(Vector a, Vector b) { return a + b; }
  static Vector Sub(Vector a, Vector b) { return a - b; }
  static Vector Mul(Vector a, Vector b) { return a * b; }
  static Vector Max(Vector a, Vector b) { return a > b ? a : b; }
  static Vector MaxOfLanes(Vector a) { return a; }
  static uint64_t Equal(Vector a, Vector b) { return a == b; }
  static uint64_t AtLeast(Vector a, Vector b) { return a >= b; }
  static bool AnyAbove(Vector a, Vector b) { return a > b; }
  static Vector AddOneWhereEqual(Vector count, Vector a, Vector b) {
    return count + (a == b ? 1.0 : 0.0);
  }
};

}  // namespace

const BlendArgmax& BlendArgmaxScalar() { return kBlendArgmax<ScalarVector>; }

const BlendArgmax& GetBlendArgmax(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return BlendArgmaxAvx512();
    case Isa::kAvx2:
      return BlendArgmaxAvx2();
    case Isa::kScalar:
      break;
  }
  return BlendArgmaxScalar();
}

}  // namespace hpgrain
