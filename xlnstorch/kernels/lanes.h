// Vectors of integers and doubles, as wide as the instruction set that this file is compiled for.
//
// Everything is written in the compiler's own vector types, so one source serves every instruction set; only gathers
// have no operator and go through intrinsics. Each instruction set is a namespace of its own, LNS_ISA, so that the
// linker never mixes them.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace LNS_ISA {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

using I32 = int32_t __attribute__((vector_size(vector_bytes), may_alias));
using I64 = int64_t __attribute__((vector_size(vector_bytes), may_alias));
using F64 = double __attribute__((vector_size(vector_bytes), may_alias));

template <class T>
using Vector = std::conditional_t<sizeof(T) == 4, I32, I64>;
template <class T>
constexpr int lanes = vector_bytes / sizeof(T);

template <class T>
inline Vector<T> load(const T *from) {
    Vector<T> v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

template <class T>
inline void store(T *to, Vector<T> v) {
    std::memcpy(to, &v, sizeof v);
}

// How far to shift each lane: a vector where that takes fewer instructions than one number.
#if defined(__AVX512F__)
template <class T>
using Shift = Vector<T>;
#else
template <class T>
using Shift = int;
#endif

// As many integers of any width, side by side in memory, as a vector of T has lanes; to memory, the low bits.
template <class T, class W>
struct Narrow {
    typedef W type __attribute__((vector_size(sizeof(W) * lanes<T>)));
};

template <class T, class W>
inline Vector<T> widen(const W *from) {
    typename Narrow<T, W>::type v;
    std::memcpy(&v, from, sizeof v);
#if defined(__AVX512F__)  // GCC itself would take two halves
    if constexpr (sizeof(T) == 4 && sizeof(W) == 1) return (I32)_mm512_cvtepi8_epi32((__m128i)v);
    if constexpr (sizeof(T) == 4 && sizeof(W) == 2) return (I32)_mm512_cvtepi16_epi32((__m256i)v);
    if constexpr (sizeof(T) == 8 && sizeof(W) == 2) return (I64)_mm512_cvtepi16_epi64((__m128i)v);
    if constexpr (sizeof(T) == 8 && sizeof(W) == 4) return (I64)_mm512_cvtepi32_epi64((__m256i)v);
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4 && sizeof(W) == 2) return (I32)_mm256_cvtepi16_epi32((__m128i)v);
    if constexpr (sizeof(T) == 8 && sizeof(W) == 4) return (I64)_mm256_cvtepi32_epi64((__m128i)v);
#elif defined(__SSE2__)
    if constexpr (sizeof(T) == 4 && sizeof(W) == 2) {
        const __m128i both = _mm_loadl_epi64((const __m128i *)from);
        return (I32)_mm_srai_epi32(_mm_unpacklo_epi16(both, both), 16);
    }
#endif
    return __builtin_convertvector(v, Vector<T>);
}

template <class T, class W>
inline void narrow(W *to, Vector<T> v) {
    using N = typename Narrow<T, W>::type;
    N low;
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4 && sizeof(W) == 1)
        low = (N)_mm512_cvtepi32_epi8((__m512i)v);
    else if constexpr (sizeof(T) == 4 && sizeof(W) == 2)
        low = (N)_mm512_cvtepi32_epi16((__m512i)v);
    else if constexpr (sizeof(T) == 8 && sizeof(W) == 2)
        low = (N)_mm512_cvtepi64_epi16((__m512i)v);
    else if constexpr (sizeof(T) == 8 && sizeof(W) == 4)
        low = (N)_mm512_cvtepi64_epi32((__m512i)v);
    else
        low = __builtin_convertvector(v, N);
#elif !defined(__AVX2__) && defined(__SSE2__)
    if constexpr (sizeof(T) == 4 && sizeof(W) == 2) {
        const __m128i words = (__m128i)((v << 16) >> 16);
        low = (N)_mm_cvtsi128_si64(_mm_packs_epi32(words, words));
    } else {
        low = __builtin_convertvector(v, N);
    }
#else
    low = __builtin_convertvector(v, N);
#endif
    std::memcpy(to, &low, sizeof low);
}

template <class V>
inline V larger(V a, V b) {
    return a > b ? a : b;
}
template <class V>
inline V smaller(V a, V b) {
    return a < b ? a : b;
}

template <class V>
inline bool any(V mask) {
#if defined(__AVX512F__)
    return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#else
    bool found = false;
    for (unsigned i = 0; i < sizeof(V) / sizeof(mask[0]); ++i) found |= mask[i] != 0;
    return found;
#endif
}

// table[index] of each lane.
#if defined(__AVX512F__)
inline I32 gather(const int32_t *table, I32 index) {
    return (I32)_mm512_i32gather_epi32((__m512i)index, table, 4);
}
inline I64 gather(const int32_t *table, I64 index) {
    return (I64)_mm512_cvtepi32_epi64(_mm512_i64gather_epi32((__m512i)index, table, 4));
}
inline I64 gather(const int64_t *table, I64 index) {
    return (I64)_mm512_i64gather_epi64((__m512i)index, table, 8);
}
inline F64 gather(const double *table, I64 index) {
    return (F64)_mm512_i64gather_pd((__m512i)index, table, 8);
}
#elif defined(__AVX2__)
inline I32 gather(const int32_t *table, I32 index) {
    return (I32)_mm256_i32gather_epi32(table, (__m256i)index, 4);
}
inline I64 gather(const int32_t *table, I64 index) {
    return (I64)_mm256_cvtepi32_epi64(_mm256_i64gather_epi32(table, (__m256i)index, 4));
}
inline I64 gather(const int64_t *table, I64 index) {
    return (I64)_mm256_i64gather_epi64((const long long *)table, (__m256i)index, 8);
}
inline F64 gather(const double *table, I64 index) {
    return (F64)_mm256_i64gather_pd(table, (__m256i)index, 8);
}
#else
template <class T, class Index>
inline auto gather(const T *table, Index index) {
    std::conditional_t<std::is_same_v<T, double>, F64, Index> v;
    for (unsigned i = 0; i < sizeof(Index) / sizeof(index[0]); ++i) v[i] = table[index[i]];
    return v;
}
#endif

// Products of numbers from 0 to 2^32 - 1.
inline I64 product32(I64 a, I64 b) {
#if defined(__AVX512F__)
    return (I64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (I64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
    return a * b;
#endif
}

// table[index mod 16] of each lane; where there are registers enough, without going to memory.
class Sixteen {
  public:
#if defined(__AVX512F__)
    explicit Sixteen(const double *table) : low_(_mm512_loadu_pd(table)), high_(_mm512_loadu_pd(table + 8)) {}
    F64 operator[](I64 index) const { return (F64)_mm512_permutex2var_pd(low_, (__m512i)index, high_); }

  private:
    __m512d low_, high_;
#else
    explicit Sixteen(const double *table) : table_(table) {}
    F64 operator[](I64 index) const { return gather(table_, index & 15); }

  private:
    const double *table_;
#endif
};

// Integers from 0 to 2^52 - 1 as doubles, and doubles below 2^51 in magnitude as the nearest integers, ties to even:
// adding 2^52 moves the point to the end of the significand. Not every instruction set converts 64 bits.
inline F64 to_double(I64 v) {
    const I64 exponent = v - v + 0x4330000000000000;
    return (F64)(v | exponent) - 0x1p52;
}

inline F64 round_double(F64 v) {
    return (v + 0x1.8p52) - 0x1.8p52;
}

inline I64 to_integer(F64 rounded) {
    return (I64)(rounded + 0x1.8p52) - 0x4338000000000000;
}

}  // namespace LNS_ISA
