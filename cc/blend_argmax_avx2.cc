// Compiled for AVX2; called only where the processor has it.

#include "blend_argmax.h"

#if defined(__AVX2__)

#include <immintrin.h>

#include "blend_argmax_loops.h"

namespace hpgrain {
namespace {

struct Avx2Vector {
  using Vector = __m256d;
  static constexpr int kWidth = 4;
  static constexpr int kMaxVectors = 16;
  static constexpr int64_t kFew = 64;

  static Vector Set(double value) { return _mm256_set1_pd(value); }
  static Vector Load(const double* from) { return _mm256_loadu_pd(from); }
  static void Store(double* to, Vector a) { _mm256_storeu_pd(to, a); }
  static double First(Vector a) { return _mm256_cvtsd_f64(a); }
  static Vector Add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
  static Vector Sub(Vector a, Vector b) { return _mm256_sub_pd(a, b); }
  static Vector Mul(Vector a, Vector b) { return _mm256_mul_pd(a, b); }
  static Vector Max(Vector a, Vector b) { return _mm256_max_pd(a, b); }
  static Vector MaxOfLanes(Vector a) {
    const Vector b = Max(a, _mm256_permute2f128_pd(a, a, 1));
    return Max(b, _mm256_permute_pd(b, 5));
  }
  static uint64_t Equal(Vector a, Vector b) {
    return Bits(_mm256_cmp_pd(a, b, _CMP_EQ_OQ));
  }
  static uint64_t AtLeast(Vector a, Vector b) {
    return Bits(_mm256_cmp_pd(a, b, _CMP_GE_OQ));
  }
  static bool AnyAbove(Vector a, Vector b) {
    return Bits(_mm256_cmp_pd(a, b, _CMP_GT_OQ)) != 0;
  }
  static Vector AddOneWhereEqual(Vector count, Vector a, Vector b) {
    return Add(count, _mm256_and_pd(_mm256_cmp_pd(a, b, _CMP_EQ_OQ), Set(1)));
  }

 private:
  static uint64_t Bits(Vector mask) {
    return static_cast<unsigned>(_mm256_movemask_pd(mask));
  }
};

}  // namespace

const BlendArgmax& BlendArgmaxAvx2() { return kBlendArgmax<Avx2Vector>; }

}  // namespace hpgrain

#else

namespace hpgrain {

const BlendArgmax& BlendArgmaxAvx2() { return BlendArgmaxScalar(); }

}  // namespace hpgrain

#endif
