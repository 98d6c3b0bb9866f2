// The product of bytes in registers of 32 bytes, over `add_products`. Included inside an anonymous namespace.
#pragma once

inline __m256i four_bytes(const uint8_t* from) {
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
        for (int r = 0; r < ROWS; ++r) x[r] = four_bytes(bytes + r * stride + g * 4);
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
