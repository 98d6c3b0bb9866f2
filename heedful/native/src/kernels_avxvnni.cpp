// Kernels for processors with AVX-VNNI: vpdpbusd with 256-bit registers.
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

constexpr int ROWS_PER_CALL = 12;

inline bool dot_with_epilogue(const uint8_t*, long, int, const int8_t*, int, bool, const Epilogue&) { return false; }
inline void begin_tiles(long) {}
inline void end_tiles(long) {}

#include "row_kernels.h"

} // namespace

const Kernels AVX_VNNI = {"avxvnni", 1, dot, multiply, find_nonzero_inputs, dot_nonzero, multiply_nonzero, sketch_tile, multiply_sketch, quantize, normalize, add,
                        embed, rotate, gate, to_bfloat16, attend, scan, choose,
                        multiply_float_rows, apply_activation, attention_scores, attention_softmax, attention_values};

} // namespace heedful
