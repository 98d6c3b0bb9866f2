// Kernels for WebAssembly with vectors of 128 bits.
#if defined(__wasm__)

#include <cstdint>
#include <wasm_simd128.h>

#include "c_api.h"
#include "kernels.h"

namespace heedful {
namespace {

HeedfulDot relaxed_dot = nullptr; // if not null, it replaces the products of tiles

#include "simd.h"

#include "epilogue.h"

constexpr int ROWS_PER_CALL = 12;

inline v128_t add_products(v128_t total, v128_t a, v128_t b) { return wasm_i32x4_add(total, wasm_i32x4_dot_i16x8(a, b)); }

// The sums of neighbouring lanes of two vectors.
inline v128_t add_pairs(v128_t a, v128_t b) {
    return wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), wasm_i32x4_shuffle(a, b, 1, 3, 5, 7));
}

// Outputs [first, first + 4 · PARTS) of a tile for some rows. Each 32-bit lane has the sum of two inputs of a group.
template <int ROWS, int PARTS>
inline void dot_part(const uint8_t* bytes, long stride, const int8_t* weights, int groups, int first, int32_t* sums) {
    v128_t total[ROWS][2 * PARTS];
    for (int r = 0; r < ROWS; ++r)
        for (int part = 0; part < 2 * PARTS; ++part) total[r][part] = wasm_i32x4_const_splat(0);
    for (int g = 0; g < groups; ++g) {
        v128_t x[ROWS];
        for (int r = 0; r < ROWS; ++r) x[r] = wasm_u16x8_extend_low_u8x16(wasm_v128_load32_splat(bytes + r * stride + 4 * g));
#pragma GCC unroll 16
        for (int part = 0; part < 2 * PARTS; ++part) {
            const v128_t w = wasm_i16x8_load8x8(weights + (g * TILE + first + 2 * part) * 4);
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; ++r) total[r][part] = add_products(total[r][part], x[r], w);
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int part = 0; part < PARTS; ++part)
            wasm_v128_store(sums + r * TILE + first + 4 * part, add_pairs(total[r][2 * part], total[r][2 * part + 1]));
}

void dot(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool, int32_t* sums) {
    if (relaxed_dot) return relaxed_dot(bytes, stride, rows, weights, groups, sums);
    int r = 0;
    for (; r + 2 <= rows; r += 2)
        for (int first = 0; first < TILE; first += 8) dot_part<2, 2>(bytes + r * stride, stride, weights, groups, first, sums + r * TILE);
    for (; r < rows; ++r)
        for (int first = 0; first < TILE; first += 16) dot_part<1, 4>(bytes + r * stride, stride, weights, groups, first, sums + r * TILE);
}

// Two inputs at a time: their weights are interleaved, so that each 32-bit lane is one output.
void dot_nonzero(const NonzeroInputs& nonzero, const int8_t* weights, long stride, int spans, int32_t* sums) {
    for (int r = 0; r < nonzero.rows; ++r) {
        const uint8_t* bytes = nonzero.bytes + r * nonzero.stride;
        for (int first = 0; first < spans * SPAN; first += 32) {
            v128_t total[8];
            for (v128_t& one : total) one = wasm_i32x4_const_splat(0);
            for (int k = 0; k < nonzero.count; k += 2) {
                const int8_t *even = weights + nonzero.indices[k] * stride + first, *odd = weights + nonzero.indices[k + 1] * stride + first;
                const v128_t x = wasm_u16x8_extend_low_u8x16(wasm_v128_load16_splat(bytes + k));
#pragma GCC unroll 4
                for (int part = 0; part < 4; ++part) {
                    const v128_t a = wasm_i16x8_load8x8(even + 8 * part), b = wasm_i16x8_load8x8(odd + 8 * part);
                    total[2 * part] = add_products(total[2 * part], x, wasm_i16x8_shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
                    total[2 * part + 1] = add_products(total[2 * part + 1], x, wasm_i16x8_shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
                }
            }
            for (int part = 0; part < 8; ++part) wasm_v128_store(sums + r * spans * SPAN + first + 4 * part, total[part]);
        }
    }
}

inline bool dot_with_epilogue(const uint8_t*, long, int, const int8_t*, int, bool, const Epilogue&) { return false; }
inline void begin_tiles(long) {}
inline void end_tiles(long) {}

#include "row_kernels.h"

} // namespace

const Kernels WASM = {"wasm", 0, dot, multiply, find_nonzero_inputs, dot_nonzero, multiply_nonzero, nullptr, nullptr, quantize, normalize, add,
                      embed, rotate, gate, to_bfloat16, attend, scan, choose,
                      multiply_float_rows, apply_activation, attention_scores, attention_softmax, attention_values};

} // namespace heedful

void heedful_use_dot(HeedfulDot dot) { heedful::relaxed_dot = dot; }

#endif
