// Sixteen numbers as one 512-bit vector. Included by simd.h.
#pragma once

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t UInts __attribute__((vector_size(64)));

inline Floats splat(float x) { return Floats{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
inline Ints splat_int(int32_t x) { return Ints{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
inline UInts splat_uint(uint32_t x) { return UInts{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

#if defined(__AVX512F__) // compilers do not always generate this instruction
inline Floats maximum(Floats a, Floats b) { return (Floats)_mm512_maskz_max_ps(0xFFFF, (__m512)a, (__m512)b); }
inline Floats minimum(Floats a, Floats b) { return (Floats)_mm512_maskz_min_ps(0xFFFF, (__m512)a, (__m512)b); }
#else
inline Floats maximum(Floats a, Floats b) { return a > b ? a : b; }
inline Floats minimum(Floats a, Floats b) { return a < b ? a : b; }
#endif
inline Floats select_less(Floats x, Floats bound, Floats then, Floats otherwise) { return x < bound ? then : otherwise; }

#if defined(__clang__) || __GNUC__ >= 12
inline Eight low_half(Floats x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7); }
inline Eight high_half(Floats x) { return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15); }
#else
inline Eight low_half(Floats x) { return half_of<Eight>(x, 0); }
inline Eight high_half(Floats x) { return half_of<Eight>(x, 1); }
#endif

inline Ints to_ints(Floats x) { return __builtin_convertvector(x, Ints); }
inline Floats real(Ints x) { return __builtin_convertvector(x, Floats); }
inline Ints as_ints(UInts x) { return (Ints)x; }

inline Bytes to_bytes(Ints x) { return __builtin_convertvector(x, Bytes); }
inline Halves to_halves(UInts x) { return __builtin_convertvector(x, Halves); }
inline UInts to_uints(Halves x) { return __builtin_convertvector(x, UInts); }
