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

// Four inputs' weights lie in four places; their bytes are brought side by side, as the instruction wants them.
template <int SPANS> void dot_spans(const Chosen& chosen, const int8_t* weights, long stride, int32_t* sums) {
    __m512i total[SPANS][4];
#pragma GCC unroll 4
    for (int s = 0; s < SPANS; ++s)
        for (int part = 0; part < 4; ++part) total[s][part] = _mm512_setzero_si512();
    for (int k = 0; k < chosen.count; k += 4) {
        const __m512i x = four_bytes(chosen.bytes + k);
        const int8_t* rows[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            rows[i] = weights + chosen.places[k + i] * stride;
            const int8_t* later = weights + chosen.places[k + i + Chosen::AHEAD] * stride;
#pragma GCC unroll 4
            for (int s = 0; s < SPANS; ++s) _mm_prefetch(reinterpret_cast<const char*>(later + s * SPAN), _MM_HINT_T0);
        }
#pragma GCC unroll 4
        for (int s = 0; s < SPANS; ++s) {
            __m512i w[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) w[i] = _mm512_loadu_si512(rows[i] + s * SPAN);
            const __m512i low01 = _mm512_unpacklo_epi8(w[0], w[1]), high01 = _mm512_unpackhi_epi8(w[0], w[1]);
            const __m512i low23 = _mm512_unpacklo_epi8(w[2], w[3]), high23 = _mm512_unpackhi_epi8(w[2], w[3]);
            add_products(total[s][0], x, _mm512_unpacklo_epi16(low01, low23));
            add_products(total[s][1], x, _mm512_unpackhi_epi16(low01, low23));
            add_products(total[s][2], x, _mm512_unpacklo_epi16(high01, high23));
            add_products(total[s][3], x, _mm512_unpackhi_epi16(high01, high23));
        }
    }
#pragma GCC unroll 4
    for (int s = 0; s < SPANS; ++s)
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) { // has outputs 4 · part to 4 · part + 3 of each sixteen
            __m128i* to = reinterpret_cast<__m128i*>(sums + s * SPAN + part * 4);
            _mm_storeu_si128(to, _mm512_extracti32x4_epi32(total[s][part], 0));
            _mm_storeu_si128(to + 4, _mm512_extracti32x4_epi32(total[s][part], 1));
            _mm_storeu_si128(to + 8, _mm512_extracti32x4_epi32(total[s][part], 2));
            _mm_storeu_si128(to + 12, _mm512_extracti32x4_epi32(total[s][part], 3));
        }
}

void dot_chosen(const Chosen& chosen, const int8_t* weights, long stride, int spans, int32_t* sums) {
    switch (spans) {
        case 1: return dot_spans<1>(chosen, weights, stride, sums);
        case 2: return dot_spans<2>(chosen, weights, stride, sums);
        case 3: return dot_spans<3>(chosen, weights, stride, sums);
        default: return dot_spans<4>(chosen, weights, stride, sums);
    }
}
