// Kernels for processors with AVX2.
#include <cstdint>
#include <immintrin.h>
#include "kernels.h"

namespace heedful {
namespace {

#include "simd.h"

#include "epilogue.h"

// vpmaddubsw saturates the sum of two products at 16 bits; a single product always fits.
inline __m256i add_products(__m256i total, __m256i bytes, __m256i weights) {
    const __m256i ones = _mm256_set1_epi16(1), even = _mm256_set1_epi16(0x00FF);
    const __m256i first = _mm256_maddubs_epi16(_mm256_and_si256(even, bytes), weights);
    const __m256i second = _mm256_maddubs_epi16(_mm256_andnot_si256(even, bytes), weights);
    total = _mm256_add_epi32(total, _mm256_madd_epi16(first, ones));
    return _mm256_add_epi32(total, _mm256_madd_epi16(second, ones));
}

#include "dot_avx.h"

constexpr int ROWS_PER_CALL = 12;

inline bool dot_with_epilogue(const uint8_t*, long, int, const int8_t*, int, bool, const Epilogue&) { return false; }
inline void begin_tiles(long) {}
inline void end_tiles(long) {}

#include "row_kernels.h"

} // namespace

const Kernels AVX2 = {"avx2", 1, dot, multiply, find_nonzero_inputs, dot_nonzero, multiply_nonzero, sketch_tile, multiply_sketch, quantize, normalize, add,
                        embed, rotate, gate, to_bfloat16, attend, scan, choose,
                        multiply_float_rows, apply_activation, attention_scores, attention_softmax, attention_values};

} // namespace heedful
