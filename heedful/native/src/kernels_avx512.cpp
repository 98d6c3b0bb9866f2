// Kernels for processors with AVX-512 VNNI.
#include <cstdint>
#include <immintrin.h>
#include "kernels.h"

namespace heedful {
namespace {

#include "simd.h"

#include "epilogue.h"

#include "dot_avx512.h"

constexpr int ROWS_PER_CALL = 12;

void dot(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool, int32_t* sums) {
    for (int r = 0; r < rows; r += 12)
        dot_few(bytes + r * stride, stride, rows - r < 12 ? rows - r : 12, weights, groups, sums + r * TILE);
}

inline bool dot_with_epilogue(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool fresh, const Epilogue& finish) {
    return dot_few_with_epilogue(bytes, stride, rows, weights, groups, fresh, finish);
}

inline void begin_tiles(long) {}
inline void end_tiles(long) {}

#include "row_kernels.h"

} // namespace

const Kernels AVX512 = {"avx512", 2, dot, multiply, find_nonzero_inputs, dot_nonzero, multiply_nonzero, sketch_tile, multiply_sketch, quantize, normalize, add,
                        embed, rotate, gate, to_bfloat16, attend, scan, choose,
                        multiply_float_rows, apply_activation, attention_scores, attention_softmax, attention_values};

} // namespace heedful
