// Sixteen numbers as one vector. Included by simd.h.
#pragma once

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));

inline Floats splat(float x) { return Floats{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
inline Ints splat_int(int32_t x) { return Ints{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
inline Words splat_word(uint32_t x) { return Words{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

#if defined(__AVX512F__) // compilers do not always find the instruction
inline Floats larger(Floats a, Floats b) { return (Floats)_mm512_maskz_max_ps(0xFFFF, (__m512)a, (__m512)b); }
inline Floats smaller(Floats a, Floats b) { return (Floats)_mm512_maskz_min_ps(0xFFFF, (__m512)a, (__m512)b); }
#else
inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }
inline Floats smaller(Floats a, Floats b) { return a < b ? a : b; }
#endif
inline Floats where_below(Floats x, Floats bound, Floats then, Floats otherwise) { return x < bound ? then : otherwise; }

#if defined(__clang__) || __GNUC__ >= 12
inline Eight low_half(Floats x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7); }
inline Eight high_half(Floats x) { return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15); }
#else
inline Eight low_half(Floats x) { return half_of<Eight>(x, 0); }
inline Eight high_half(Floats x) { return half_of<Eight>(x, 1); }
#endif

inline Ints whole(Floats x) { return __builtin_convertvector(x, Ints); }
inline Floats real(Ints x) { return __builtin_convertvector(x, Floats); }
inline Ints as_ints(Words x) { return (Ints)x; }

inline Bytes bytes_of(Ints x) { return __builtin_convertvector(x, Bytes); }
inline Halves halves_of(Words x) { return __builtin_convertvector(x, Halves); }
inline Words words_of(Halves x) { return __builtin_convertvector(x, Words); }
