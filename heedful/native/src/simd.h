// Vectors of sixteen numbers, written with the compiler's vector types.
//
// Each kernel file includes this file inside an anonymous namespace and compiles it for its instruction set. The order of
// all sums is fixed (-ffp-contract=off, fixed reduction trees), so that every machine computes the same bits. The standard
// library must not be used here: the linker would merge its templates across instruction sets.
#pragma once

constexpr int LANES = 16;
typedef float Eight __attribute__((vector_size(32)));
typedef float Four __attribute__((vector_size(16)));
typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef uint16_t Halves __attribute__((vector_size(32)));

#if defined(__clang__) || __GNUC__ >= 12
inline Four low_half(Eight x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3); }
inline Four high_half(Eight x) { return __builtin_shufflevector(x, x, 4, 5, 6, 7); }
// Interleave (zip) or concatenate (join) the first or the last two lanes of two vectors.
inline Four zip_low(Four a, Four b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Four zip_high(Four a, Four b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
inline Four join_low(Four a, Four b) { return __builtin_shufflevector(a, b, 0, 1, 4, 5); }
inline Four join_high(Four a, Four b) { return __builtin_shufflevector(a, b, 2, 3, 6, 7); }
#else
template <class Half, class Whole> inline Half half_of(const Whole& x, int which) {
    Half half;
    __builtin_memcpy(&half, reinterpret_cast<const char*>(&x) + which * sizeof half, sizeof half);
    return half;
}
inline Four low_half(Eight x) { return half_of<Four>(x, 0); }
inline Four high_half(Eight x) { return half_of<Four>(x, 1); }
inline Four zip_low(Four a, Four b) { return Four{a[0], b[0], a[1], b[1]}; }
inline Four zip_high(Four a, Four b) { return Four{a[2], b[2], a[3], b[3]}; }
inline Four join_low(Four a, Four b) { return Four{a[0], a[1], b[0], b[1]}; }
inline Four join_high(Four a, Four b) { return Four{a[2], a[3], b[2], b[3]}; }
#endif

// Floats, Ints and UInts, and operations that depend on their representation. The arguments of `to_bytes` and `to_halves`
// must be in range.
#if defined(__AVX2__) && !defined(__AVX512F__)
#include "simd_pair.h"
#else
#include "simd_vector.h"
#endif

inline Floats load(const float* from) {
    Floats x;
    __builtin_memcpy(&x, from, sizeof x);
    return x;
}

inline void store(float* to, Floats x) { __builtin_memcpy(to, &x, sizeof x); }

// Load the first `count` numbers; the other lanes are set to `fill`.
inline Floats load_partial(const float* from, int count, float fill) {
    float all[LANES];
    for (int i = 0; i < LANES; ++i) all[i] = i < count ? from[i] : fill;
    return load(all);
}

inline void store_partial(float* to, Floats x, int count) {
    float all[LANES];
    store(all, x);
    for (int i = 0; i < count; ++i) to[i] = all[i];
}

inline float reduce_add(Floats x) {
    Eight eight = low_half(x) + high_half(x);
    Four four = low_half(eight) + high_half(eight);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

inline float reduce_max(Floats x) {
    Eight a = low_half(x), b = high_half(x);
    Eight eight = a > b ? a : b;
    Four c = low_half(eight), d = high_half(eight);
    Four four = c > d ? c : d;
    float left = four[0] > four[1] ? four[0] : four[1], right = four[2] > four[3] ? four[2] : four[3];
    return left > right ? left : right;
}

// Round to the nearest integer, ties to even, for |x| < 2^22.
inline Floats nearest(Floats x) {
    const Floats shift = splat(12582912.0f);
    return (x + shift) - shift;
}

// e^x with a relative error of about 10^-7, for x from -87 to 88.
inline Floats exp_bounded(Floats x) {
    Floats power = nearest(x * splat(1.44269504f));
    Floats rest = (x - power * splat(0.693359375f)) - power * splat(-2.12194440e-4f);
    Floats p = splat(1.9875691500e-4f);
    p = p * rest + splat(1.3981999507e-3f);
    p = p * rest + splat(8.3334519073e-3f);
    p = p * rest + splat(4.1665795894e-2f);
    p = p * rest + splat(1.6666665459e-1f);
    p = p * rest + splat(5.0000001201e-1f);
    p = (p * rest) * rest + rest + splat(1.0f);
    Ints bits = (to_ints(power) + splat_int(127)) << 23;
    Floats scale;
    __builtin_memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

// e^x for x up to 88; 0 below -87.
inline Floats exp_nonpositive(Floats x) {
    const Floats lowest = splat(-87.0f);
    return select_less(x, lowest, splat(0.0f), exp_bounded(maximum(x, lowest)));
}

// e^min(x, 88).
inline Floats exp_clamped(Floats x) { return exp_nonpositive(minimum(x, splat(88.0f))); }

// Add e^x of N vectors with x <= 0 to a sum, with an error of about 10^-7 of the sum if some x is 0. Smaller results
// are clamped to 2^-126. Each step is done for all vectors before the next to hide latency.
template <int N> inline Floats add_exp(Floats sum, const Floats* x) {
    const Floats shift = splat(12582912.0f); // moves the integer part into the lowest bits
    Floats power[N], rest[N], p[N];
    UInts bits[N], scale[N];
    for (int n = 0; n < N; ++n) rest[n] = maximum(x[n] * splat(1.44269504f), splat(-126.0f));
    for (int n = 0; n < N; ++n) power[n] = rest[n] + shift;
    for (int n = 0; n < N; ++n) __builtin_memcpy(&scale[n], &power[n], sizeof scale[n]);
    for (int n = 0; n < N; ++n) rest[n] = rest[n] - (power[n] - shift);
    // 2^rest with a relative error of 2.4 · 10^-7
    for (int n = 0; n < N; ++n) p[n] = rest[n] * splat(0.0013276472632f) + splat(0.0096755413431f);
    for (int n = 0; n < N; ++n) p[n] = p[n] * rest[n] + splat(0.0555071327186f);
    for (int n = 0; n < N; ++n) p[n] = p[n] * rest[n] + splat(0.2402211972371f);
    for (int n = 0; n < N; ++n) p[n] = p[n] * rest[n] + splat(0.6931469670650f);
    for (int n = 0; n < N; ++n) p[n] = p[n] * rest[n] + splat(1.0f);
    for (int n = 0; n < N; ++n) __builtin_memcpy(&bits[n], &p[n], sizeof bits[n]);
    for (int n = 0; n < N; ++n) bits[n] = bits[n] + (scale[n] << 23);
    for (int n = 0; n < N; ++n) __builtin_memcpy(&p[n], &bits[n], sizeof bits[n]);
    for (int n = 0; n < N; ++n) sum += p[n];
    return sum;
}

// x·Φ(x), with an approximation of the error function to about 10^-7 (Abramowitz and Stegun 7.1.26).
inline Floats gelu(Floats x) {
    Floats z = x * splat(0.70710678f);
    Floats magnitude = select_less(z, splat(0.0f), -z, z);
    Floats t = splat(1.0f) / (splat(1.0f) + splat(0.3275911f) * magnitude);
    Floats p = splat(1.061405429f);
    p = p * t + splat(-1.453152027f);
    p = p * t + splat(1.421413741f);
    p = p * t + splat(-0.284496736f);
    p = p * t + splat(0.254829592f);
    Floats error = splat(1.0f) - (p * t) * exp_clamped(-(magnitude * magnitude));
    error = select_less(z, splat(0.0f), -error, error);
    return splat(0.5f) * x * (splat(1.0f) + error);
}

inline Floats silu(Floats x) { return x / (splat(1.0f) + exp_clamped(-x)); }
