// What the kernels are given: plain data, the same for every instruction set.
#pragma once

#include <cstdint>
#include <vector>

namespace lns {

inline int64_t ceiling(int64_t n, int64_t step) {
    return (n + step - 1) / step;
}

constexpr int exponential_terms = 8, series_terms = 9;

// Constants of the exact Gaussian logarithms: see curves.py.
struct Curve {
    double unit;                            // one unit of the last place, 2^-frac_bits
    double power[16], one_less[16];         // 2^-(j / 16), and what it lacks to 1
    double exponential[exponential_terms];  // of (2^-q - 1) / q, ascending powers of q
    double reciprocal[16], logarithm[16];   // c near the reciprocal of 1 + (j + 1/2) / 16; -log2(c), in units
    double series[series_terms];            // of log2(1 + u) / u, in units, ascending powers of u
    double margin;                          // what all of it differs from the logarithm by at most, in units
};

// Where words are computed with, a number is a *code*, 4 field + sign, so that the larger of two codes is that of the
// larger magnitude with its sign, and the difference of two says distance and signs at once. Zero is far below all.
// Bit 1 is 0 but in the sum of two codes, where it takes up the carry of the two signs.

// The Gaussian logarithms of an adder, from the difference of two codes to four times what the larger one changes by.
struct Gaussian {
    enum Kind { TABLE, CURVE, SEGMENTS, MITCHELL };
    Kind kind = TABLE;
    int64_t reach = 0;                       // the distance from which both are zero
    int64_t most_added = 0, most_taken = 0;  // bounds of s(d), and of t(d) from d = 1 on
    int frac_bits = 0;
    // TABLE: by the difference of the codes, up to 4 reach.
    std::vector<int32_t> table;
    // CURVE: log2(1 ± 2^-x), and what that does not decide; with any kind, of base 2, it encodes.
    Curve curve = {};
    std::vector<int64_t> decided_keys, decided_values;  // 2 d + subtract, ascending; what the larger field changes by
    // SEGMENTS: those of xlnstorch/adders/segments.py.
    struct Polynomials {
        int degree = 1, guard_bits = 0, offset_bits = 0, inner_bits = 0;
        std::vector<int64_t> regions;  // by cell, s before t: row of distance 0 in it << 8 | width
        std::vector<int64_t> rows;     // c0 | c1 << 32 of each row, and c2 after it if there is one
    };
    Polynomials polynomials, fall;
    bool has_fall = false;
    int near = 0;
    // MITCHELL
    int corrections = 0;
    int64_t constants[2] = {0, 0};
};

struct Format {
    int log_bits = 0;
    int word_bytes = 0;
    bool wide = false;  // whether codes are int64
    Gaussian gaussian;

    int64_t max_field() const { return (int64_t(1) << log_bits) - 1; }
    int64_t bias() const { return int64_t(1) << (log_bits - 1); }
};

enum Operation { ADD, SUB, MUL, DIV, NEG, ABS, RELU, SQRT, RELU_GRAD };
enum Flag { OVERFLOW_FLAG = 1, UNDERFLOW_FLAG = 2, INVALID_FLAG = 4, ZERO_DIVIDE_FLAG = 8 };

constexpr int max_dimensions = 32;

// Result and operands over the same index space, of which dimension 0 is the innermost; strides are in elements.
struct Elementwise {
    Operation operation;
    const Format *format;
    int dimensions = 0;
    int64_t sizes[max_dimensions];
    const void *a, *b = nullptr;
    void *out;
    int64_t *flags = nullptr;  // or none are wanted
    int64_t a_strides[max_dimensions], b_strides[max_dimensions], out_strides[max_dimensions],
        flag_strides[max_dimensions];
};

// The factors of matrix products over batches, or, without a, the terms of sums, which are b's columns.
struct Factors {
    int64_t batches, rows, terms, columns;
    const void *a = nullptr, *b;
    int64_t a_strides[3], b_strides[3];  // in elements: batch, row and term of a; batch, term and column of b

    int64_t results() const { return batches * rows * columns; }
    int64_t place_in_a(int64_t batch, int64_t row, int64_t term) const {
        return batch * a_strides[0] + row * a_strides[1] + term * a_strides[2];
    }
    int64_t place_in_b(int64_t batch, int64_t term, int64_t column) const {
        return batch * b_strides[0] + term * b_strides[1] + column * b_strides[2];
    }
};

// Their sums as words.
struct Product : Factors {
    const Format *format, *wide;  // of the words, and of the running sum: that with the guard bits
    int guard_bits = 0;
    bool tree = false;
    int threads = 1;  // that share the work
    void *out;
    int64_t out_strides[3];  // batch, row and column
};

// How many digits of a register a term adds to. Significands of 23 bits are added as they are, up to 31 places further
// up, as 256 of them fit int64; others are cut into digits.
constexpr int digits_of_term(int significand_bits) {
    return significand_bits <= 23 ? 1 : significand_bits <= 32 ? 2 : 3;
}

// Their sums in fixed point: see xlnstorch/accumulators/linear.py.
struct Accumulation : Factors {
    const Format *format;
    const int64_t *antilog;  // by the fraction of a logarithm
    int64_t shift;           // of a field of 0; where one is negative, bits are cut off
    int significand_bits;    // of the largest antilogarithm
    // Digits of 32 bits that take up carries, the lowest first: those of all results one after the other.
    int64_t limbs, *out;
};

// What cannot be decided, by distance as in Gaussian::decided_keys, or by index.
using Undecided = std::vector<int64_t>;

// One instruction set's functions, each over a part of the work, which any thread may do.
struct Kernels {
    const char *name;
    void (*elementwise)(const Elementwise &, int64_t begin, int64_t end, Undecided &);
    void (*product)(const Product &, int64_t task, Undecided &);
    int64_t (*product_tasks)(const Product &);
    void (*accumulate)(const Accumulation &, int64_t task);
    int64_t (*accumulate_tasks)(const Accumulation &);
    void (*encode)(const Format &, const double *values, int64_t count, void *words, int64_t first, Undecided &);
    void (*decode)(const Format &, const double *table, const void *words, int64_t first, int64_t count,
                   double *values);
    void (*order)(const Format &, const void *words, int64_t first, int64_t count, double *orders);
    void (*from_order)(const Format &, const double *orders, int64_t count, void *words, int64_t first);
};

extern const Kernels avx512_kernels, avx2_kernels, plain_kernels;

}  // namespace lns
