// The int8 product of one tile with relaxed SIMD, for engine.wasm (heedful/native/src/kernels_wasm.cpp), which has the plain
// one. A module of its own, because browsers without relaxed SIMD refuse a whole module that has it. It has no memory and no
// stack of its own.
//
// The relaxed dot product is exact if one operand has seven bits: a byte is its lower seven bits and 128 times its highest.
#include <stdint.h>
#include <wasm_simd128.h>

static constexpr int TILE = 32; // as in kernels.h

// Outputs [first, first + 4 · PARTS) of a tile for some rows.
template <int ROWS, int PARTS>
static inline void dot_part(const uint8_t* bytes, long stride, const int8_t* weights, int groups, int first, int32_t* sums) {
    v128_t low[ROWS][PARTS], high[ROWS][PARTS];
    for (int r = 0; r < ROWS; ++r)
        for (int part = 0; part < PARTS; ++part) low[r][part] = high[r][part] = wasm_i32x4_const_splat(0);
    for (int g = 0; g < groups; ++g) {
        v128_t low_bits[ROWS], high_bits[ROWS];
        for (int r = 0; r < ROWS; ++r) {
            const v128_t four = wasm_v128_load32_splat(bytes + r * stride + 4 * g);
            low_bits[r] = wasm_v128_and(four, wasm_i8x16_const_splat(127));
            high_bits[r] = wasm_u8x16_shr(four, 7);
        }
#pragma GCC unroll 4
        for (int part = 0; part < PARTS; ++part) {
            const v128_t w = wasm_v128_load(weights + (g * TILE + first + 4 * part) * 4);
#pragma GCC unroll 2
            for (int r = 0; r < ROWS; ++r) {
                low[r][part] = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w, low_bits[r], low[r][part]);
                high[r][part] = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w, high_bits[r], high[r][part]);
            }
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int part = 0; part < PARTS; ++part)
            wasm_v128_store(sums + r * TILE + first + 4 * part, wasm_i32x4_add(low[r][part], wasm_i32x4_shl(high[r][part], 7)));
}

extern "C" void dot(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, int32_t* sums) {
    int r = 0;
    for (; r + 2 <= rows; r += 2)
        for (int first = 0; first < TILE; first += 8) dot_part<2, 2>(bytes + r * stride, stride, weights, groups, first, sums + r * TILE);
    for (; r < rows; ++r)
        for (int first = 0; first < TILE; first += 16) dot_part<1, 4>(bytes + r * stride, stride, weights, groups, first, sums + r * TILE);
}
