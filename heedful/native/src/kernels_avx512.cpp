// Kernels for processors with AVX-512 VNNI.
#include <cstdint>
#include <immintrin.h>
#include "kernels.h"

namespace heedful {
namespace {

#include "simd.h"

#include "epilogue.h"

#include "dot_avx512.h"

constexpr int ROWS_AT_ONCE = 12;

void dot(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool, int32_t* sums) {
    for (int r = 0; r < rows; r += 12)
        dot_few(bytes + r * stride, stride, rows - r < 12 ? rows - r : 12, weights, groups, sums + r * TILE);
}

inline bool finish_at_once(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool fresh, const Finish& finish) {
    return finish_few(bytes, stride, rows, weights, groups, fresh, finish);
}

inline void begin_products(long) {}
inline void end_products(long) {}

#include "row_kernels.h"

} // namespace

const Kernels AVX512 = {"avx512", 2, dot, multiply, choose_inputs, dot_chosen, multiply_chosen, sketch_tile, glance, quantise, normalise, add,
                        embed, rotate, gate, halve, attend, scan, choose};

} // namespace heedful
