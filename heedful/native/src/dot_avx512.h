// int8 dot products with vpdpbusd, which adds four products of bytes to each of sixteen sums. Included inside an
// anonymous namespace.
#pragma once

inline __m512i broadcast_four_bytes(const uint8_t* from) {
    int32_t four;
    __builtin_memcpy(&four, from, sizeof four);
    return _mm512_set1_epi32(four);
}

// Inline assembly: with the intrinsic, compilers copy the sums and spill them to the stack.
inline void add_products(__m512i& total, __m512i bytes, __m512i weights) {
    asm("vpdpbusd %2, %1, %0" : "+v"(total) : "v"(bytes), "v"(weights));
}

// For few rows, UNROLL accumulators per row and half tile hide the latency of the instruction. Every loop over the
// accumulators is unrolled to keep them in registers until take(row, first output, sixteen sums) is called. Weights are
// prefetched `ahead` bytes before they are read.
template <int ROWS, int UNROLL, class Take>
inline void dot_rows(const uint8_t* bytes, long stride, const int8_t* weights, int groups, long ahead, const Take& take) {
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
            _mm_prefetch(reinterpret_cast<const char*>(weights + ahead), _MM_HINT_T0);
            _mm_prefetch(reinterpret_cast<const char*>(weights + ahead + 64), _MM_HINT_T0);
            weights += 128;
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; ++r) {
                const uint8_t* four = r < 4 ? bytes : r < 8 ? fifth : ninth;
                const __m512i x = broadcast_four_bytes(four + (r % 4 == 3 ? stride3 : (r % 4) * stride));
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
            take(r, half * 16, total[0][r][half]);
        }
}

constexpr long AHEAD = 2048;

template <int ROWS, int UNROLL>
void dot_rows(const uint8_t* bytes, long stride, const int8_t* weights, int groups, int32_t* sums) {
    dot_rows<ROWS, UNROLL>(bytes, stride, weights, groups, ROWS > 4 ? AHEAD : FEW_ROWS_PREFETCH,
                           [sums](int r, int first, __m512i sixteen) { _mm512_storeu_si512(sums + r * TILE + first, sixteen); });
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

// The same with a fused epilogue. If the weights of this tile are in the cache, those of the next tile are prefetched.
template <int ROWS, int UNROLL>
inline void dot_rows_with_epilogue(const uint8_t* bytes, long stride, const int8_t* weights, int groups, bool fresh, const Epilogue& finish) {
    const long ahead = ROWS <= 4 ? FEW_ROWS_PREFETCH : fresh ? AHEAD : 4L * TILE * groups;
    if (finish.activation == RELU)
        dot_rows<ROWS, UNROLL>(bytes, stride, weights, groups, ahead, [&](int r, int first, __m512i sums) { finish.put<RELU>(r, first, (UInts)sums); });
    else
        dot_rows<ROWS, UNROLL>(bytes, stride, weights, groups, ahead, [&](int r, int first, __m512i sums) { finish.put<NO_ACTIVATION>(r, first, (UInts)sums); });
}

// Specializations for the most frequent numbers of rows; returns false for others.
inline bool dot_few_with_epilogue(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool fresh, const Epilogue& finish) {
    if (finish.activation > RELU) return false;
    switch (rows) {
        case 1: dot_rows_with_epilogue<1, 4>(bytes, stride, weights, groups, fresh, finish); return true;
        case 2: dot_rows_with_epilogue<2, 4>(bytes, stride, weights, groups, fresh, finish); return true;
        case 4: dot_rows_with_epilogue<4, 2>(bytes, stride, weights, groups, fresh, finish); return true;
        case 8: dot_rows_with_epilogue<8, 1>(bytes, stride, weights, groups, fresh, finish); return true;
        case 12: dot_rows_with_epilogue<12, 1>(bytes, stride, weights, groups, fresh, finish); return true;
        default: return false;
    }
}

// Σ bytes · codes of one tile, four 2-bit codes per byte. The second and third codes are not shifted down: their sums are
// divided by 4 and 16 at the end.
inline void dot_codes(const uint8_t* bytes, const uint8_t* codes, int groups, int32_t* sums) {
    const __m512i first = _mm512_set1_epi8(0x03), second = _mm512_set1_epi8(0x0C), third = _mm512_set1_epi8(0x30);
    __m512i total[4][2];
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) total[part][0] = total[part][1] = _mm512_setzero_si512();
    for (int g = 0; g < groups; g += 4, bytes += 16, codes += 128) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            const __m512i four = _mm512_loadu_si512(codes + 64 * half);
            add_products(total[0][half], broadcast_four_bytes(bytes), _mm512_and_si512(four, first));
            add_products(total[1][half], broadcast_four_bytes(bytes + 4), _mm512_and_si512(four, second));
            add_products(total[2][half], broadcast_four_bytes(bytes + 8), _mm512_and_si512(four, third));
            add_products(total[3][half], broadcast_four_bytes(bytes + 12), _mm512_and_si512(_mm512_srli_epi16(four, 6), first));
        }
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
        const __m512i once = _mm512_add_epi32(total[0][half], total[3][half]);
        const __m512i more = _mm512_add_epi32(_mm512_srli_epi32(total[1][half], 2), _mm512_srli_epi32(total[2][half], 4));
        _mm512_storeu_si512(sums + half * 16, _mm512_add_epi32(once, more));
    }
}

// Load the weights of four inputs and interleave their bytes as vpdpbusd requires. Prefetch FETCHED spans of later inputs.
template <int ROWS, int SPANS, int FETCHED>
void dot_spans(const NonzeroInputs& nonzero, const int8_t* weights, long stride, int32_t* sums, long sums_stride) {
    __m512i total[ROWS][SPANS][4];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
        for (int s = 0; s < SPANS; ++s)
            for (int part = 0; part < 4; ++part) total[r][s][part] = _mm512_setzero_si512();
    for (int k = 0; k < nonzero.count; k += 4) {
        __m512i x[ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r) x[r] = broadcast_four_bytes(nonzero.bytes + r * nonzero.stride + k);
        const int8_t* inputs[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            inputs[i] = weights + nonzero.indices[k + i] * stride;
            const int8_t* later = weights + nonzero.indices[k + i + NonzeroInputs::AHEAD] * stride;
#pragma GCC unroll 4
            for (int s = 0; s < FETCHED; ++s) _mm_prefetch(reinterpret_cast<const char*>(later + s * SPAN), _MM_HINT_T0);
        }
#pragma GCC unroll 4
        for (int s = 0; s < SPANS; ++s) {
            __m512i w[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) w[i] = _mm512_loadu_si512(inputs[i] + s * SPAN);
            const __m512i low01 = _mm512_unpacklo_epi8(w[0], w[1]), high01 = _mm512_unpackhi_epi8(w[0], w[1]);
            const __m512i low23 = _mm512_unpacklo_epi8(w[2], w[3]), high23 = _mm512_unpackhi_epi8(w[2], w[3]);
            const __m512i parts[4] = {_mm512_unpacklo_epi16(low01, low23), _mm512_unpackhi_epi16(low01, low23),
                                      _mm512_unpacklo_epi16(high01, high23), _mm512_unpackhi_epi16(high01, high23)};
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
                for (int part = 0; part < 4; ++part) add_products(total[r][s][part], x[r], parts[part]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
        for (int s = 0; s < SPANS; ++s)
#pragma GCC unroll 4
            for (int part = 0; part < 4; ++part) { // holds outputs 4 · part to 4 · part + 3 of each sixteen
                __m128i* to = reinterpret_cast<__m128i*>(sums + r * sums_stride + s * SPAN + part * 4);
                _mm_storeu_si128(to, _mm512_extracti32x4_epi32(total[r][s][part], 0));
                _mm_storeu_si128(to + 4, _mm512_extracti32x4_epi32(total[r][s][part], 1));
                _mm_storeu_si128(to + 8, _mm512_extracti32x4_epi32(total[r][s][part], 2));
                _mm_storeu_si128(to + 12, _mm512_extracti32x4_epi32(total[r][s][part], 3));
            }
}

// The first span prefetches for the others too, because long contiguous reads are faster.
template <int ROWS> void dot_each_span(const NonzeroInputs& nonzero, const int8_t* weights, long stride, int spans, int32_t* sums) {
    const long sums_stride = static_cast<long>(spans) * SPAN;
    if (spans == 4) dot_spans<ROWS, 1, 4>(nonzero, weights, stride, sums, sums_stride);
    else if (spans >= 2) dot_spans<ROWS, 1, 2>(nonzero, weights, stride, sums, sums_stride);
    else dot_spans<ROWS, 1, 1>(nonzero, weights, stride, sums, sums_stride);
    for (int s = 1; s < spans; ++s) dot_spans<ROWS, 1, 1>(nonzero, weights + s * SPAN, stride, sums + s * SPAN, sums_stride);
}

void dot_nonzero(const NonzeroInputs& nonzero, const int8_t* weights, long stride, int spans, int32_t* sums) {
    if (nonzero.rows == 1 && spans == 4) return dot_spans<1, 4, 4>(nonzero, weights, stride, sums, 0);
    switch (nonzero.rows) {
        case 1: return dot_each_span<1>(nonzero, weights, stride, spans, sums);
        case 2: return dot_each_span<2>(nonzero, weights, stride, spans, sums);
        case 3: return dot_each_span<3>(nonzero, weights, stride, spans, sums);
        default: return dot_each_span<4>(nonzero, weights, stride, spans, sums);
    }
}
