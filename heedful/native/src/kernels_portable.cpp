// Kernels for any processor.
#include <cstdint>

#include "kernels.h"

namespace heedful {
namespace {

#include "simd.h"

#include "epilogue.h"

constexpr int ROWS_PER_CALL = 12;

void dot(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool, int32_t* sums) {
    for (int r = 0; r < rows; ++r) {
        int32_t total[TILE] = {};
        const uint8_t* x = bytes + r * stride;
        for (int g = 0; g < groups; ++g)
            for (int output = 0; output < TILE; ++output)
                for (int i = 0; i < 4; ++i)
                    total[output] += static_cast<int32_t>(x[g * 4 + i]) * weights[(g * TILE + output) * 4 + i];
        for (int output = 0; output < TILE; ++output) sums[r * TILE + output] = total[output];
    }
}

void dot_nonzero(const NonzeroInputs& nonzero, const int8_t* weights, long stride, int spans, int32_t* sums) {
    for (int r = 0; r < nonzero.rows; ++r) {
        int32_t* total = sums + r * spans * SPAN;
        for (int output = 0; output < spans * SPAN; ++output) total[output] = 0;
        for (int k = 0; k < nonzero.count; ++k) {
            const int8_t* row = weights + nonzero.indices[k] * stride;
            const int32_t byte = nonzero.bytes[r * nonzero.stride + k];
            for (int output = 0; output < spans * SPAN; ++output) total[output] += byte * row[output];
        }
    }
}

inline bool dot_with_epilogue(const uint8_t*, long, int, const int8_t*, int, bool, const Epilogue&) { return false; }
inline void begin_tiles(long) {}
inline void end_tiles(long) {}

#include "row_kernels.h"

} // namespace

const Kernels PORTABLE = {"portable", 0, dot, multiply, find_nonzero_inputs, dot_nonzero, multiply_nonzero, nullptr, nullptr, quantize, normalize, add,
                        embed, rotate, gate, to_bfloat16, attend, scan, choose,
                        multiply_float_rows, apply_activation, attention_scores, attention_softmax, attention_values};

} // namespace heedful
