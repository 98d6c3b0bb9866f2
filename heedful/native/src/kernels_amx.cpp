// Kernels for processors with AMX: tdpbusd multiplies sixteen rows of 64 bytes by 64 × 16 weights. The rest uses AVX-512.
#include <cstdint>
#include <immintrin.h>
#include "kernels.h"

namespace heedful {
namespace {

#include "simd.h"

#include "epilogue.h"

#include "dot_avx512.h"

constexpr int ROWS_PER_CALL = MAX_ROWS;
constexpr int FEW = 4; // up to this many rows AVX-512 is as fast

// Inline assembly: not all compilers' intrinsics are declared to access memory.
#define TILE_ZERO(t) asm volatile("tilezero %%tmm" #t ::: "memory")
#define TILE_LOAD(t, from, stride) asm volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"(stride) : "memory")
#define TILE_STORE(t, to, stride) asm volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to), "r"(stride) : "memory")
#define TILE_ADD(sums, bytes, weights) asm volatile("tdpbusd %%tmm" #weights ", %%tmm" #bytes ", %%tmm" #sums ::: "memory")

struct alignas(64) TileShapes {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes_in_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64, "as ldtilecfg reads it");

inline void begin_tiles(long rows) {
    if (rows <= FEW) return;
    static const TileShapes shapes;
    asm volatile("ldtilecfg %0" ::"m"(shapes) : "memory");
}
inline void end_tiles(long rows) {
    if (rows > FEW) asm volatile("tilerelease" ::: "memory");
}

constexpr long ACROSS = 4 * TILE; // stride in bytes between groups of four inputs, and between rows of sums

inline void prefetch_weights(const int8_t* weights) {
    for (int line = 0; line < 2048; line += 64) _mm_prefetch(reinterpret_cast<const char*>(weights + line), _MM_HINT_T0);
}

// 17 to 32 rows: two tiles of rows times two tiles of weights.
template <bool FETCH>
inline void dot_32(const uint8_t* bytes, long stride, const int8_t* weights, int steps, int32_t* sums) {
    const uint8_t* lower = bytes + 16 * stride;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int k = 0; k < steps; ++k) {
        if (FETCH) prefetch_weights(weights + 8192);
        TILE_LOAD(6, weights, ACROSS);
        TILE_LOAD(4, bytes, stride);
        TILE_LOAD(7, weights + 64, ACROSS);
        TILE_ADD(0, 4, 6);
        TILE_LOAD(5, lower, stride);
        TILE_ADD(1, 4, 7);
        TILE_ADD(2, 5, 6);
        TILE_ADD(3, 5, 7);
        weights += 2048, bytes += 64, lower += 64;
    }
    TILE_STORE(0, sums, ACROSS);
    TILE_STORE(1, sums + 16, ACROSS);
    TILE_STORE(2, sums + 16 * TILE, ACROSS);
    TILE_STORE(3, sums + 16 * TILE + 16, ACROSS);
}

// Up to 16 rows: even and odd steps use separate accumulators to hide latency.
inline void dot_16(const uint8_t* bytes, long stride, const int8_t* weights, int steps, int32_t* sums) {
    alignas(64) int32_t odd[16 * TILE];
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int k = 0; k < steps; k += 2) {
        prefetch_weights(weights + 8192);
        TILE_LOAD(4, bytes, stride);
        TILE_LOAD(6, weights, ACROSS);
        TILE_LOAD(7, weights + 64, ACROSS);
        TILE_ADD(0, 4, 6);
        TILE_ADD(1, 4, 7);
        if (k + 1 < steps) {
            prefetch_weights(weights + 8192 + 2048);
            TILE_LOAD(5, bytes + 64, stride);
            TILE_LOAD(6, weights + 2048, ACROSS);
            TILE_LOAD(7, weights + 2048 + 64, ACROSS);
            TILE_ADD(2, 5, 6);
            TILE_ADD(3, 5, 7);
        }
        weights += 4096, bytes += 128;
    }
    TILE_STORE(0, sums, ACROSS);
    TILE_STORE(1, sums + 16, ACROSS);
    TILE_STORE(2, odd, ACROSS);
    TILE_STORE(3, odd + 16, ACROSS);
    for (int i = 0; i < 16 * TILE; i += 16)
        _mm512_store_si512(sums + i, _mm512_add_epi32(_mm512_load_si512(sums + i), _mm512_load_si512(odd + i)));
}

// Tiles always read 16 or 32 rows: `bytes` must be readable past the last row, and the extra sums are ignored.
void dot(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool fresh, int32_t* sums) {
    const int steps = groups / 16, rest = groups % 16;
    if (rows <= FEW || steps == 0) {
        for (int r = 0; r < rows; r += 12)
            dot_few(bytes + r * stride, stride, rows - r < 12 ? rows - r : 12, weights, groups, sums + r * TILE);
        return;
    }
    const bool fetch = fresh || groups > 192; // the weights exceed the L1 cache
    if (rows > 16 && fetch) dot_32<true>(bytes, stride, weights, steps, sums);
    else if (rows > 16) dot_32<false>(bytes, stride, weights, steps, sums);
    else dot_16(bytes, stride, weights, steps, sums);
    if (rest == 0) return;
    alignas(64) int32_t more[12 * TILE];
    for (int r = 0; r < rows; r += 12) { // the remaining inputs
        const int count = rows - r < 12 ? rows - r : 12;
        dot_few(bytes + r * stride + steps * 64, stride, count, weights + steps * 2048, rest, more);
        for (int i = 0; i < count * TILE; ++i) sums[r * TILE + i] += more[i];
    }
}

inline bool dot_with_epilogue(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool fresh, const Epilogue& finish) {
    return rows <= FEW && dot_few_with_epilogue(bytes, stride, rows, weights, groups, fresh, finish);
}

#include "row_kernels.h"

void dot_alone(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool fresh, int32_t* sums) {
    begin_tiles(rows);
    dot(bytes, stride, rows, weights, groups, fresh, sums);
    end_tiles(rows);
}

} // namespace

const Kernels AMX = {"amx", 2, dot_alone, multiply, find_nonzero_inputs, dot_nonzero, multiply_nonzero, sketch_tile, multiply_sketch, quantize, normalize, add,
                        embed, rotate, gate, to_bfloat16, attend, scan, choose,
                        multiply_float_rows, apply_activation, attention_scores, attention_softmax, attention_values};

} // namespace heedful
