// float64 to words and back.
#pragma once

#include "codes.h"
#include "elementwise.h"

namespace LNS_ISA {

// Words of `count` values, which lie side by side; what is subnormal, no number, or not decided is left to who called.
inline void encode(const Format &format, const double *values, int64_t count, void *words, int64_t first,
                   Undecided &undecided) {
    const Logarithm logarithm(format.gaussian.curve, format.gaussian.frac_bits);
    const int64_t largest = 4 * format.max_field(), bias = format.bias();
    for (int64_t begin = 0; begin < count; begin += block) {
        int64_t codes[block];
        const int64_t end = std::min(count - begin, block);
        for (int64_t i = 0; i < end; i += lanes<int64_t>) {
            int64_t at[lanes<int64_t>] = {};
            const int here = int(std::min<int64_t>(lanes<int64_t>, end - i));
            std::memcpy(at, values + begin + i, here * sizeof(double));
            const I64 bits = load(at), magnitude = bits & 0x7fffffffffffffff, none = bits - bits;
            F64 off;
            const I64 log = logarithm.nearest(magnitude, off);
            const I64 field = larger(log + bias, none);
            I64 code = smaller(field << 2, none + largest) | ((bits < 0) & 1);
            const I64 infinite = magnitude == 0x7ff0000000000000, zero = magnitude == 0;
            code = infinite ? ((bits < 0) & 1) | largest : code;
            code = zero | (field < 1) ? none : code;
            const I64 exponent = magnitude >> 52;
            const I64 doubtful = (logarithm.doubtful(off) | (exponent == 0) | (exponent == 2047)) & ~zero & ~infinite;
            if (any(doubtful))
                for (int lane = 0; lane < here; ++lane)
                    if (doubtful[lane]) undecided.push_back(first + begin + i + lane);
            store(at, code);
            std::memcpy(codes + i, at, here * sizeof(int64_t));
        }
        store_codes(format, codes, end, words, first + begin, 1);
    }
}

// The nearest float64 of `count` words, which lie side by side, where all of them are normal numbers; `table` has those
// of 2^(i / 2^frac_bits).
inline void decode(const Format &format, const double *table, const void *words, int64_t first, int64_t count,
                   double *values) {
    const int frac_bits = format.gaussian.frac_bits;
    const int64_t bias = format.bias();
    for (int64_t begin = 0; begin < count; begin += block) {
        int64_t codes[block];
        const int64_t end = std::min(count - begin, block);
        load_codes(format, words, first + begin, 1, end, codes);
        for (int64_t i = end; i % lanes<int64_t>; ++i) codes[i] = -1;
        for (int64_t i = 0; i < end; i += lanes<int64_t>) {
            const I64 code = load(codes + i), none = code - code;
            const I64 e = (code >> 2) - bias;
            I64 bits = (I64)gather(table, e & ((int64_t(1) << frac_bits) - 1));
            bits = (bits + ((e >> frac_bits) << 52)) | (code << 63);
            bits = code < 0 ? none : bits;
            int64_t at[lanes<int64_t>];
            store(at, bits);
            std::memcpy(values + begin + i, at, std::min<int64_t>(lanes<int64_t>, end - i) * sizeof(double));
        }
    }
}

// Numbers ordered as `count` words are, which lie side by side: the field with the sign.
inline void order(const Format &format, const void *words, int64_t first, int64_t count, double *orders) {
    const int64_t max_field = format.max_field();
    const int log_bits = format.log_bits;
    with_words(format, [&]<class W>() {
        const W *from = (const W *)words + first;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t word = from[i], field = word & max_field;
            orders[i] = double((word >> log_bits) & 1 ? -field : field);
        }
    });
}

// The words of which `order` gave these numbers; the largest of what is beyond them, and zero of what is no number.
inline void from_order(const Format &format, const double *orders, int64_t count, void *words, int64_t first) {
    const int log_bits = format.log_bits;
    const double last = double(format.max_field());
    with_words(format, [&]<class W>() {
        W *to = (W *)words + first;
        for (int64_t i = 0; i < count; ++i) {
            const double capped = orders[i] > last ? last : orders[i] < -last ? -last : orders[i];
            const int64_t key = capped == capped ? int64_t(capped) : 0;
            to[i] = W(key < 0 ? -key | int64_t(1) << log_bits : key);
        }
    });
}

}  // namespace LNS_ISA
