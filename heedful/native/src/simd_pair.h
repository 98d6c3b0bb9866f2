// Sixteen numbers as a pair of 256-bit registers. Compilers keep vectors that are wider than a register in memory and
// compare them element by element. Included by simd.h.
#pragma once

template <class Half> struct Pair {
    Half low, high;
    auto operator[](int lane) const { return lane < 8 ? low[lane] : high[lane - 8]; }
};
template <class Half> inline Pair<Half> operator+(Pair<Half> a, Pair<Half> b) { return {a.low + b.low, a.high + b.high}; }
template <class Half> inline Pair<Half> operator-(Pair<Half> a, Pair<Half> b) { return {a.low - b.low, a.high - b.high}; }
template <class Half> inline Pair<Half> operator*(Pair<Half> a, Pair<Half> b) { return {a.low * b.low, a.high * b.high}; }
template <class Half> inline Pair<Half> operator/(Pair<Half> a, Pair<Half> b) { return {a.low / b.low, a.high / b.high}; }
template <class Half> inline Pair<Half> operator&(Pair<Half> a, Pair<Half> b) { return {a.low & b.low, a.high & b.high}; }
template <class Half> inline Pair<Half> operator<<(Pair<Half> a, int bits) { return {a.low << bits, a.high << bits}; }
template <class Half> inline Pair<Half> operator>>(Pair<Half> a, int bits) { return {a.low >> bits, a.high >> bits}; }
template <class Half> inline Pair<Half> operator-(Pair<Half> a) { return {-a.low, -a.high}; }
template <class Half> inline Pair<Half>& operator+=(Pair<Half>& a, Pair<Half> b) { return a = a + b; }
template <class Half> inline Pair<Half>& operator-=(Pair<Half>& a, Pair<Half> b) { return a = a - b; }

typedef int32_t EightInts __attribute__((vector_size(32)));
typedef uint32_t EightUInts __attribute__((vector_size(32)));
typedef Pair<Eight> Floats;
typedef Pair<EightInts> Ints;
typedef Pair<EightUInts> UInts;

inline Floats splat(float x) { return {x - Eight{}, x - Eight{}}; }
inline Ints splat_int(int32_t x) { return {x - EightInts{}, x - EightInts{}}; }
inline UInts splat_uint(uint32_t x) { return {x - EightUInts{}, x - EightUInts{}}; }

inline Floats maximum(Floats a, Floats b) { return {a.low > b.low ? a.low : b.low, a.high > b.high ? a.high : b.high}; }
inline Floats minimum(Floats a, Floats b) { return {a.low < b.low ? a.low : b.low, a.high < b.high ? a.high : b.high}; }
inline Floats select_less(Floats x, Floats bound, Floats then, Floats otherwise) {
    return {x.low < bound.low ? then.low : otherwise.low, x.high < bound.high ? then.high : otherwise.high};
}

inline Eight low_half(Floats x) { return x.low; }
inline Eight high_half(Floats x) { return x.high; }

inline Ints to_ints(Floats x) { return {__builtin_convertvector(x.low, EightInts), __builtin_convertvector(x.high, EightInts)}; }
inline Floats real(Ints x) { return {__builtin_convertvector(x.low, Eight), __builtin_convertvector(x.high, Eight)}; }
inline Ints as_ints(UInts x) { return {(EightInts)x.low, (EightInts)x.high}; }

inline __m256i packed(__m256i low, __m256i high) { return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8); }
inline Bytes to_bytes(Ints x) {
    const __m256i halves = packed((__m256i)x.low, (__m256i)x.high);
    return (Bytes)_mm_packus_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}
inline Halves to_halves(UInts x) { return (Halves)packed((__m256i)x.low, (__m256i)x.high); }
inline UInts to_uints(Halves x) {
    const __m256i halves = (__m256i)x;
    return {(EightUInts)_mm256_cvtepu16_epi32(_mm256_castsi256_si128(halves)),
            (EightUInts)_mm256_cvtepu16_epi32(_mm256_extracti128_si256(halves, 1))};
}
