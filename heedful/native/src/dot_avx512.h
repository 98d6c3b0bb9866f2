// The product of bytes by vpdpbusd, which adds four products of bytes to each of sixteen sums. Included inside an
// anonymous namespace.
#pragma once

inline __m512i four_bytes(const uint8_t* from) {
    int32_t four;
    __builtin_memcpy(&four, from, sizeof four);
    return _mm512_set1_epi32(four);
}

// The instruction itself: given its intrinsic, compilers copy the sums about and keep them on the stack.
inline void add_products(__m512i& total, __m512i bytes, __m512i weights) {
    asm("vpdpbusd %2, %1, %0" : "+v"(total) : "v"(bytes), "v"(weights));
}

// UNROLL sums for each row and half tile hide the latency of the instruction where there are few rows. Every loop over
// the sums is unrolled, so that they stay in registers.
template <int ROWS, int UNROLL>
void dot_rows(const uint8_t* bytes, long stride, const int8_t* weights, int groups, int32_t* sums) {
    __m512i total[UNROLL][ROWS][2];
#pragma GCC unroll 4
    for (int u = 0; u < UNROLL; ++u)
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; ++r) total[u][r][0] = total[u][r][1] = _mm512_setzero_si512();
    const uint8_t *fifth = bytes + 4 * stride, *ninth = bytes + 8 * stride;
    const long stride3 = 3 * stride;
    for (int g = 0; g < groups; g += UNROLL) {
#pragma GCC unroll 4
        for (int u = 0; u < UNROLL; ++u) {
            const __m512i left = _mm512_loadu_si512(weights), right = _mm512_loadu_si512(weights + 64);
            _mm_prefetch(reinterpret_cast<const char*>(weights + 2048), _MM_HINT_T0);
            _mm_prefetch(reinterpret_cast<const char*>(weights + 2048 + 64), _MM_HINT_T0);
            weights += 128;
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; ++r) {
                const uint8_t* four = r < 4 ? bytes : r < 8 ? fifth : ninth;
                const __m512i x = four_bytes(four + (r % 4 == 3 ? stride3 : (r % 4) * stride));
                add_products(total[u][r][0], x, left);
                add_products(total[u][r][1], x, right);
            }
            bytes += 4, fifth += 4, ninth += 4;
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 4
            for (int u = 1; u < UNROLL; ++u)
                total[0][r][half] = _mm512_add_epi32(total[0][r][half], total[u][r][half]);
            _mm512_storeu_si512(sums + r * TILE + half * 16, total[0][r][half]);
        }
}

// At most twelve rows.
inline void dot_few(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, int32_t* sums) {
    switch (rows) {
        case 1: return dot_rows<1, 4>(bytes, stride, weights, groups, sums);
        case 2: return dot_rows<2, 4>(bytes, stride, weights, groups, sums);
        case 3: return dot_rows<3, 2>(bytes, stride, weights, groups, sums);
        case 4: return dot_rows<4, 2>(bytes, stride, weights, groups, sums);
        case 5: return dot_rows<5, 1>(bytes, stride, weights, groups, sums);
        case 6: return dot_rows<6, 1>(bytes, stride, weights, groups, sums);
        case 7: return dot_rows<7, 1>(bytes, stride, weights, groups, sums);
        case 8: return dot_rows<8, 1>(bytes, stride, weights, groups, sums);
        case 9: return dot_rows<9, 1>(bytes, stride, weights, groups, sums);
        case 10: return dot_rows<10, 1>(bytes, stride, weights, groups, sums);
        case 11: return dot_rows<11, 1>(bytes, stride, weights, groups, sums);
        default: return dot_rows<12, 1>(bytes, stride, weights, groups, sums);
    }
}
