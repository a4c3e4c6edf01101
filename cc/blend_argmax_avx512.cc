// Compiled for AVX-512F; called only where the processor has it.

#include "blend_argmax.h"

#if defined(__AVX512F__)

#include <immintrin.h>

#include "blend_argmax_loops.h"

namespace hpgrain {
namespace {

struct Avx512Vector {
  using Vector = __m512d;
  static constexpr int kWidth = 8;
  static constexpr int kMaxVectors = 8;
  static constexpr int64_t kFew = 64;

  static Vector Set(double value) { return _mm512_set1_pd(value); }
  static Vector Load(const double* from) { return _mm512_loadu_pd(from); }
  static void Store(double* to, Vector a) { _mm512_storeu_pd(to, a); }
  static double First(Vector a) {
    return _mm256_cvtsd_f64(_mm512_castpd512_pd256(a));
  }
  static Vector Add(Vector a, Vector b) { return _mm512_add_pd(a, b); }
  static Vector Sub(Vector a, Vector b) { return _mm512_sub_pd(a, b); }
  static Vector Mul(Vector a, Vector b) { return _mm512_mul_pd(a, b); }
  static Vector Max(Vector a, Vector b) { return _mm512_max_pd(a, b); }
  static Vector MaxOfLanes(Vector a) {
    const Vector b = Max(a, _mm512_shuffle_f64x2(a, a, 0x4e));
    const Vector c = Max(b, _mm512_shuffle_f64x2(b, b, 0xb1));
    return Max(c, _mm512_permute_pd(c, 0x55));
  }
  static uint64_t Equal(Vector a, Vector b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ);
  }
  static uint64_t AtLeast(Vector a, Vector b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_GE_OQ);
  }
  static bool AnyAbove(Vector a, Vector b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ) != 0;
  }
  static Vector AddOneWhereEqual(Vector count, Vector a, Vector b) {
    return _mm512_mask_add_pd(count, _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ),
                              count, Set(1));
  }
};

}  // namespace

const BlendArgmax& BlendArgmaxAvx512() { return kBlendArgmax<Avx512Vector>; }

}  // namespace hpgrain

#else

namespace hpgrain {

const BlendArgmax& BlendArgmaxAvx512() { return BlendArgmaxScalar(); }

}  // namespace hpgrain

#endif
