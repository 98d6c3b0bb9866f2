// int8 dot products with 256-bit registers, based on `add_products`. Included inside an anonymous namespace.
#pragma once

inline __m256i broadcast_four_bytes(const uint8_t* from) {
    int32_t four;
    __builtin_memcpy(&four, from, sizeof four);
    return _mm256_set1_epi32(four);
}

template <int ROWS>
void dot_rows(const uint8_t* bytes, long stride, const int8_t* weights, int groups, int32_t* sums) {
    __m256i total[ROWS][4];
    for (int r = 0; r < ROWS; ++r)
        for (int part = 0; part < 4; ++part) total[r][part] = _mm256_setzero_si256();
    for (int g = 0; g < groups; ++g) {
        __m256i x[ROWS];
        for (int r = 0; r < ROWS; ++r) x[r] = broadcast_four_bytes(bytes + r * stride + g * 4);
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) {
            const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + g * 128 + part * 32));
#pragma GCC unroll 2
            for (int r = 0; r < ROWS; ++r) total[r][part] = add_products(total[r][part], x[r], w);
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int part = 0; part < 4; ++part)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + r * TILE + part * 8), total[r][part]);
}

void dot(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool, int32_t* sums) {
    int r = 0;
    for (; r + 2 <= rows; r += 2) dot_rows<2>(bytes + r * stride, stride, weights, groups, sums + r * TILE);
    if (r < rows) dot_rows<1>(bytes + r * stride, stride, weights, groups, sums + r * TILE);
}

// Σ bytes · codes of one tile, four 2-bit codes per byte. A sum of 32 products fits into 16 bits.
inline void dot_codes(const uint8_t* bytes, const uint8_t* codes, int groups, int32_t* sums) {
    const __m256i lowest = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    __m256i total[4];
    for (__m256i& one : total) one = _mm256_setzero_si256();
    for (int first = 0; first < groups; first += 16) {
        __m256i some[4];
        for (__m256i& one : some) one = _mm256_setzero_si256();
        for (int g = first; g < first + 16 && g < groups; g += 4) {
            __m256i x[4];
#pragma GCC unroll 4
            for (int part = 0; part < 4; ++part) x[part] = broadcast_four_bytes(bytes + 4 * (g + part));
#pragma GCC unroll 4
            for (int quarter = 0; quarter < 4; ++quarter) {
                __m256i code = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + g * TILE + quarter * 32));
#pragma GCC unroll 4
                for (int part = 0; part < 4; ++part, code = _mm256_srli_epi16(code, 2))
                    some[quarter] = _mm256_add_epi16(some[quarter], _mm256_maddubs_epi16(x[part], _mm256_and_si256(code, lowest)));
            }
        }
        for (int quarter = 0; quarter < 4; ++quarter)
            total[quarter] = _mm256_add_epi32(total[quarter], _mm256_madd_epi16(some[quarter], ones));
    }
    for (int quarter = 0; quarter < 4; ++quarter)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + quarter * 8), total[quarter]);
}

// Load the weights of four inputs for 32 outputs and interleave their bytes.
inline void dot_half_span(const NonzeroInputs& nonzero, const uint8_t* bytes, const int8_t* weights, long stride, int32_t* sums) {
    __m256i total[4];
    for (__m256i& one : total) one = _mm256_setzero_si256();
    for (int k = 0; k < nonzero.count; k += 4) {
        const __m256i x = broadcast_four_bytes(bytes + k);
        __m256i w[4];
        for (int i = 0; i < 4; ++i) {
            w[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + nonzero.indices[k + i] * stride));
            __builtin_prefetch(weights + nonzero.indices[k + i + NonzeroInputs::AHEAD] * stride);
        }
        const __m256i low01 = _mm256_unpacklo_epi8(w[0], w[1]), high01 = _mm256_unpackhi_epi8(w[0], w[1]);
        const __m256i low23 = _mm256_unpacklo_epi8(w[2], w[3]), high23 = _mm256_unpackhi_epi8(w[2], w[3]);
        total[0] = add_products(total[0], x, _mm256_unpacklo_epi16(low01, low23));
        total[1] = add_products(total[1], x, _mm256_unpackhi_epi16(low01, low23));
        total[2] = add_products(total[2], x, _mm256_unpacklo_epi16(high01, high23));
        total[3] = add_products(total[3], x, _mm256_unpackhi_epi16(high01, high23));
    }
    for (int part = 0; part < 4; ++part) { // holds outputs 4 · part to 4 · part + 3 of each sixteen
        _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + part * 4), _mm256_castsi256_si128(total[part]));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + 16 + part * 4), _mm256_extracti128_si256(total[part], 1));
    }
}

void dot_nonzero(const NonzeroInputs& nonzero, const int8_t* weights, long stride, int spans, int32_t* sums) {
    for (int first = 0; first < spans * SPAN; first += 32)
        for (int r = 0; r < nonzero.rows; ++r)
            dot_half_span(nonzero, nonzero.bytes + r * nonzero.stride, weights + first, stride, sums + r * spans * SPAN + first);
}
