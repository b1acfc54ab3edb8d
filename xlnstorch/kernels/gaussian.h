// The Gaussian logarithms of each kind of adder, as functions of the difference of two codes.
//
// With a difference t = 4 d + {-1, 0, 1}, where the larger magnitude has field distance d to the smaller one and bit 0
// says whether their signs differ, each returns 4 s(d) or -4 t(d), and `cancelled` where the numbers cancel.
#pragma once

#include <algorithm>

#include "kernels.h"
#include "lanes.h"

namespace LNS_ISA {

using lns::Gaussian;
using lns::Undecided;

template <class T>
struct Limits;
template <>
struct Limits<int32_t> {
    static constexpr int32_t zero = -(1 << 29), nothing = -(1 << 27), cancelled = -(1 << 29);
};
template <>
struct Limits<int64_t> {
    static constexpr int64_t zero = -(int64_t(1) << 60), nothing = -(int64_t(1) << 58), cancelled = -(int64_t(1) << 60);
};

template <class T>
class Table {
  public:
    Table(const Gaussian &gaussian, Undecided &) : table_(gaussian.table.data()), last_(T(4 * gaussian.reach)) {}

    Vector<T> operator()(Vector<T> t) const {
        Vector<T> found = gather(table_, smaller(t, t - t + last_));
        if constexpr (sizeof(T) == 8) found = t == 1 ? t - t + Limits<T>::cancelled : found;
        return found;
    }

  private:
    const int32_t *table_;
    T last_;
};

// Of a distance: its octave's float64, of which the upper bits name a cell.
inline I64 cell_of(F64 distance, int cell_bits) {
    const int64_t base = int64_t(1023) << cell_bits;
    return larger(((I64)distance >> (52 - cell_bits)) - base + 1, (I64)distance - (I64)distance);
}

// The integer nearest to log2(z), of normal float64 z > 0 given by their bits, and how far that is from what float64
// says.
class Logarithm {
  public:
    Logarithm(const lns::Curve &curve, int frac_bits)
        : curve_(curve), frac_bits_(frac_bits), reciprocal_(curve.reciprocal), logarithm_(curve.logarithm) {}

    // That of a power of two, of one of 16 numbers, and of what is left.
    I64 nearest(I64 bits, F64 &off) const {
        const I64 k = (bits >> 52) - 1023;
        const F64 m = (F64)((bits & 0xfffffffffffff) | 0x3ff0000000000000);
        const F64 u = m * reciprocal_[bits >> 48] - 1.0;
        F64 l = u - u + curve_.series[lns::series_terms - 1];
#pragma GCC unroll 16
        for (int n = lns::series_terms - 2; n >= 0; --n) l = l * u + curve_.series[n];
        const F64 v = l * u + logarithm_[bits >> 48], rounded = round_double(v);
        off = (F64)((I64)(v - rounded) & 0x7fffffffffffffff);
        return to_integer(rounded) + (k << frac_bits_);
    }

    // Where the error may reach a boundary between two integers.
    I64 doubtful(F64 off) const { return (I64)(off > 0.5 - curve_.margin); }

  private:
    const lns::Curve &curve_;
    int frac_bits_;
    Sixteen reciprocal_, logarithm_;
};

// Nearest integers of log2(1 ± 2^-x), computed in float64 with a proved error; where that does not decide they are
// looked up, or reported and computed by who called. See curves.py.
class Curve {
  public:
    Curve(const Gaussian &gaussian, Undecided &undecided)
        : g_(gaussian),
          undecided_(undecided),
          power_(g_.curve.power),
          one_less_(g_.curve.one_less),
          logarithm_(g_.curve, g_.frac_bits) {}

    I64 operator()(I64 t) const {
        const int f = g_.frac_bits;
        const I64 nothing = t - t, subtract = t & 1;
        const I64 d = smaller((t + 1) >> 2, nothing + g_.reach);
        // 2^-x, with x = i + j / 16 + q, is 2^-i (T + T E), where E = 2^-q - 1 is a product with q.
        const I64 i = d >> f, j = d >> (f - 4);
        const F64 q = to_double(d & ((int64_t(1) << (f - 4)) - 1)) * g_.curve.unit;
        F64 e = q - q + g_.curve.exponential[lns::exponential_terms - 1];
#pragma GCC unroll 16
        for (int n = lns::exponential_terms - 2; n >= 0; --n) e = e * q + g_.curve.exponential[n];
        const F64 power = power_[j], rest = power * (e * q);
        const F64 y = (F64)((I64)(power + rest) - (i << 52));
        // 1 ± 2^-x; below x = 1 the difference is made of small numbers, so that it keeps its precision.
        F64 z = (F64)((I64)y ^ (subtract << 63)) + 1.0;
        z = (F64)((subtract > i) ? (I64)(one_less_[j] - rest) : (I64)z);
        F64 off;
        I64 value = logarithm_.nearest((I64)z, off);
        const I64 doubtful = logarithm_.doubtful(off);
        if (any(doubtful)) value = decide(d, subtract, doubtful, value);
        return t == 1 ? nothing + Limits<int64_t>::cancelled : value << 2;
    }

  private:
    const Gaussian &g_;
    Undecided &undecided_;
    Sixteen power_, one_less_;
    Logarithm logarithm_;

    __attribute__((noinline)) I64 decide(I64 d, I64 subtract, I64 doubtful, I64 value) const {
        for (int i = 0; i < lanes<int64_t>; ++i) {
            if (!doubtful[i] || (d[i] == 0 && subtract[i])) continue;
            const int64_t key = 2 * d[i] + subtract[i];
            const auto at = std::lower_bound(g_.decided_keys.begin(), g_.decided_keys.end(), key);
            if (at != g_.decided_keys.end() && *at == key)
                value[i] = g_.decided_values[at - g_.decided_keys.begin()];
            else
                undecided_.push_back(key);
        }
        return value;
    }
};

// Segmented polynomials with integer coefficients: see SegmentedGaussian in xlnstorch/adders/segments.py.
class Segments {
  public:
    static constexpr int cell_bits = 4;

    Segments(const Gaussian &gaussian, Undecided &) : g_(gaussian) {}

    I64 operator()(I64 t) const {
        const I64 nothing = t - t, subtract = t & 1, minus = nothing - subtract;
        const I64 d = smaller((t + 1) >> 2, nothing + g_.reach);
        I64 y;
        if (g_.has_fall) {
            const int top = g_.frac_bits + g_.near, guard_bits = g_.polynomials.guard_bits;
            const I64 near = minus & (d < int64_t(1) << top);
            const I64 octave = ((I64)to_double(d) >> 52) - 1023;
            const I64 shift = near ? top - 1 - octave : nothing;
            y = evaluate(g_.polynomials, d << shift, minus);
            if (any(near)) {
                const I64 complement = near ? (int64_t(1) << top) - 1 - d : nothing;
                const I64 fall = evaluate_row(g_.fall, complement, nothing + g_.fall.regions[0])
                                 << (guard_bits - g_.fall.guard_bits);
                const I64 rest = ((shift - g_.near) << (g_.frac_bits + guard_bits)) + (d << guard_bits >> 1) - fall;
                y = near ? y + rest : y;
            }
        } else {
            y = evaluate(g_.polynomials, d, minus);
        }
        const I64 value = y >> g_.polynomials.guard_bits << 2;
        return t == 1 ? nothing + Limits<int64_t>::cancelled : (value ^ minus) - minus;
    }

  private:
    const Gaussian &g_;

    static I64 evaluate(const Gaussian::Polynomials &p, I64 d, I64 minus) {
        const int64_t cells = int64_t(p.regions.size()) / 2;
        return evaluate_row(p, d, gather(p.regions.data(), cell_of(to_double(d), cell_bits) + (minus & cells)));
    }

    static I64 evaluate_row(const Gaussian::Polynomials &p, I64 d, I64 region) {
        // Segment and offset in it, as a fraction of offset_bits bits, side by side.
        const I64 both = d << p.offset_bits >> (region & 0xff);
        const I64 v = both & ((int64_t(1) << p.offset_bits) - 1), row = (region >> 8) + (both >> p.offset_bits);
        const int64_t *rows = p.rows.data();
        const I64 place = p.degree == 2 ? row << 1 : row;
        const I64 two = gather(rows, place);
        I64 slope = two >> 32;
        if (p.degree == 2) {
            const I64 u = v >> (p.offset_bits - p.inner_bits);
            slope -= product32(gather(rows + 1, place), u) >> p.inner_bits;
        }
        return (two & 0xffffffff) - (product32(slope, v) >> p.offset_bits);
    }
};

// Shifts and adds: see xlnstorch/adders/mitchell.py; for formats whose fraction needs no guard bits.
class Mitchell {
  public:
    Mitchell(const Gaussian &gaussian, Undecided &) : g_(gaussian) {}

    I64 operator()(I64 t) const {
        const int bits = g_.frac_bits;
        const int64_t one = int64_t(1) << bits, half = one >> 1;
        const I64 nothing = t - t, subtract = (t & 1) == 1;
        const I64 x = smaller((t + 1) >> 2, nothing + g_.reach);
        const I64 near = subtract & (x < one);
        I64 p;
        if (g_.corrections) {
            const I64 capped = smaller(x, nothing + 4 * one);
            const I64 m = (2 * one - 1 - (capped & (one - 1))) >> ((capped >> bits) + 1);
            p = subtract ? x - 31 * (one >> 6) - m : x - (half - 1 - (m >> 1));
        } else {
            p = subtract ? x - one : x;
        }
        p = larger(p, nothing);
        const I64 exponent = ((I64)to_double(x) >> 52) - 1022;  // as frexp has it; x = 0 is not near, or cancels
        const I64 k = smaller(larger(bits + 1 - exponent, nothing), nothing + bits + 1);
        const I64 constant = x >= half ? nothing + g_.constants[0] : nothing + g_.constants[1];
        const I64 r = near ? (x << k) - one : p & (one - 1);
        const I64 top = near ? constant + (k << bits) + (x >> 1) : nothing + 2 * one;
        I64 value = top - r - bend(bits, r);
        value = near ? value : value >> ((p >> bits) + 1);
        value = (subtract ? -value : value) << 2;
        return t == 1 ? nothing + Limits<int64_t>::cancelled : value;
    }

  private:
    const Gaussian &g_;

    I64 bend(int bits, I64 r) const {
        if (!g_.corrections) return r - r;
        I64 waves = 2 * triangle(bits, r);
        if (g_.corrections == 2) waves += triangle(bits - 1, r & ((int64_t(1) << (bits - 1)) - 1));
        return (3 * waves) >> 5;
    }

    static I64 triangle(int bits, I64 r) { return (r >> (bits - 1)) == 0 ? r : (int64_t(1) << bits) - 1 - r; }
};

// Calls `function` with the adder's type as its tag.
template <class T, class F>
void with_gaussian(const Gaussian &gaussian, F &&function) {
    if constexpr (sizeof(T) == 8) {
        switch (gaussian.kind) {
            case Gaussian::CURVE:
                return function.template operator()<Curve>();
            case Gaussian::SEGMENTS:
                return function.template operator()<Segments>();
            case Gaussian::MITCHELL:
                return function.template operator()<Mitchell>();
            default:
                break;
        }
    }
    function.template operator()<Table<T>>();
}

}  // namespace LNS_ISA
