// Kernels for processors with AVX-VNNI: vpdpbusd in registers of 32 bytes.
#include <cstdint>
#include <immintrin.h>
#include "kernels.h"

namespace heedful {
namespace {

#include "simd.h"

#include "epilogue.h"

inline __m256i add_products(__m256i total, __m256i bytes, __m256i weights) {
    return _mm256_dpbusd_avx_epi32(total, bytes, weights);
}

#include "dot_avx.h"

constexpr int ROWS_AT_ONCE = 12;

inline bool finish_at_once(const uint8_t*, long, int, const int8_t*, int, bool, const Finish&) { return false; }
inline void begin_products(long) {}
inline void end_products(long) {}

#include "row_kernels.h"

} // namespace

const Kernels AVX_VNNI = {"avxvnni", 1, dot, multiply, choose_inputs, dot_chosen, multiply_chosen, sketch_tile, glance, quantise, normalise, add,
                        embed, rotate, gate, halve, attend, scan, choose};

} // namespace heedful
