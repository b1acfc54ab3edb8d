// Operations element by element: vectors of codes, made of the words and made words again, whatever the strides.
#pragma once

#include "codes.h"

namespace LNS_ISA {

using lns::Elementwise;

// Elements at a time, so that what lies apart is brought together in the cache.
constexpr int64_t block = 512;

template <class T>
struct Range {
    using V = Vector<T>;
    T last;  // the code of the largest positive number

    explicit Range(const Format &format) : last(T(4 * format.max_field())) {}

    V over(V code) const { return code > last + 1; }
    V cap(V code) const { return smaller(code, (code & 1) | last); }
    V fit(V code) const { return code < 4 ? V{} + Limits<T>::zero : cap(code); }
};

// Codes of results, those below 4 of zero, and where they raise flags, which costs nothing where nobody asks.
template <class T>
struct Results {
    Vector<T> codes, over = Vector<T>{}, under = Vector<T>{}, invalid = Vector<T>{}, by_zero = Vector<T>{};
};

template <class T, class G>
struct Addition {
    using V = Vector<T>;
    G gaussian;
    Range<T> range;
    T flip;  // 1 to subtract

    Addition(const Format &format, bool subtract, Undecided &undecided)
        : gaussian(format.gaussian, undecided), range(format), flip(subtract) {}

    Results<T> operator()(V x, V y) const {
        y ^= flip;
        const V large = larger(x, y), t = large - smaller(x, y);
        const V raw = large + gaussian(t);
        const V number = (large >= 4) & (t != 1);
        return {range.cap(raw), range.over(raw) & number, (raw < 4) & number};
    }
};

template <class T>
struct Multiplication {
    using V = Vector<T>;
    Range<T> range;
    T bias;

    explicit Multiplication(const Format &format) : range(format), bias(T(4 * format.bias())) {}

    Results<T> operator()(V x, V y) const {
        const V raw = ((x + y) & T(~T(2))) - bias;
        return {range.cap(raw), range.over(raw), (raw < 4) & (raw > Limits<T>::nothing)};
    }
};

template <class T>
struct Division {
    using V = Vector<T>;
    Range<T> range;
    T bias;

    explicit Division(const Format &format) : range(format), bias(T(4 * format.bias())) {}

    Results<T> operator()(V x, V y) const {
        const V zero = x < 0, by_zero = y < 0, sign = (x ^ y) & 1;
        const V raw = (((x & T(~T(1))) - (y & T(~T(1)))) + bias) | sign;
        const V number = ~(zero | by_zero);
        V code = range.cap(raw);
        code = by_zero ? (x & 1) | range.last : code;
        code = zero ? V{} + Limits<T>::zero : code;
        return {code, range.over(raw) & number, (raw < 4) & number, zero & by_zero, by_zero & ~zero};
    }
};

template <class T>
struct SquareRoot {
    using V = Vector<T>;
    T bias;

    Results<T> operator()(V x, V) const {
        const V negative = (x & 1) == 1, e = (x >> 2) - bias;
        const V root = (e + ((e >> 1) & 1)) >> 1;  // half to even
        const V code = (x < 0) | negative ? V{} + Limits<T>::zero : (root + bias) << 2;
        return {code, V{}, V{}, negative & (x > 0)};
    }
};

// Calls `function` with the operation.
template <class T, class F>
void with_operation(const Elementwise &e, Undecided &undecided, F &&function) {
    using V = Vector<T>;
    const Format &format = *e.format;
    const V nothing = V{} + Limits<T>::zero;
    switch (e.operation) {
        case lns::ADD:
        case lns::SUB:
            return with_gaussian<T>(format.gaussian, [&]<class G>() {
                function(Addition<T, G>(format, e.operation == lns::SUB, undecided));
            });
        case lns::MUL:
            return function(Multiplication<T>(format));
        case lns::DIV:
            return function(Division<T>(format));
        case lns::NEG:
            return function([](V x, V) { return Results<T>{x ^ 1}; });
        case lns::ABS:
            return function([](V x, V) { return Results<T>{x & T(~T(1))}; });
        case lns::RELU:
            return function([=](V x, V) { return Results<T>{(x & 1) == 1 ? nothing : x}; });
        case lns::SQRT:
            return function(SquareRoot<T>{T(format.bias())});
        case lns::RELU_GRAD:  // y where x is positive
            return function([=](V x, V y) { return Results<T>{((x > 0) & ((x & 1) == 0)) ? y : nothing}; });
    }
}

template <class T, class W>
class ElementwiseRun {
  public:
    explicit ElementwiseRun(const Elementwise &e) : e_(e), codes_of_(*e.format), words_of_(*e.format) {}

    // Elements `begin` to `end` of the index space, row by row of its innermost dimension.
    template <class Operation>
    void run(const Operation &operation, int64_t begin, int64_t end) {
        while (begin < end) {
            int64_t at[lns::max_dimensions], rest = begin;
            for (int d = 0; d < e_.dimensions; ++d) {
                at[d] = rest % e_.sizes[d];
                rest /= e_.sizes[d];
            }
            const int64_t count = std::min({end - begin, e_.sizes[0] - at[0], block});
            step(operation, at, count);
            begin += count;
        }
    }

  private:
    using V = Vector<T>;

    const Elementwise &e_;
    const CodesOf<T, W> codes_of_;
    const WordsOf<T, W> words_of_;
    W a_[block], b_[block], out_[block];

    int64_t offset(const int64_t *at, const int64_t *strides) const {
        int64_t sum = 0;
        for (int d = 0; d < e_.dimensions; ++d) sum += at[d] * strides[d];
        return sum;
    }

    // An operand's words one after the other, as many as fill vectors; of a broadcast one, a vector.
    const W *beside(const void *words, const int64_t *at, const int64_t *strides, int64_t count, W *copy) const {
        if (!words) return copy;
        const W *from = (const W *)words + offset(at, strides);
        const int64_t stride = strides[0];
        if (stride == 1 && count % lanes<T> == 0) return from;
        if (stride == 0) count = lanes<T>;
        for (int64_t i = 0; i < count; ++i) copy[i] = from[i * stride];
        for (; count % lanes<T>; ++count) copy[count] = 0;
        return copy;
    }

    template <class Operation>
    void step(const Operation &operation, const int64_t *at, int64_t count) {
        const W *a = beside(e_.a, at, e_.a_strides, count, a_), *b = beside(e_.b, at, e_.b_strides, count, b_);
        const int64_t next_a = e_.a_strides[0] ? lanes<T> : 0, next_b = e_.b && e_.b_strides[0] ? lanes<T> : 0;
        W *out = (W *)e_.out + offset(at, e_.out_strides);
        const bool is_apart = e_.out_strides[0] != 1 || count % lanes<T>;
        W *to = is_apart ? out_ : out;
        const Operation here = operation;  // in registers, where no store of a word can change it
        const CodesOf<T, W> codes_of = codes_of_;
        const WordsOf<T, W> words_of = words_of_;
        if (e_.flags) {
            int64_t *flags = e_.flags + offset(at, e_.flag_strides);
            for (int64_t i = 0; i < count; i += lanes<T>, a += next_a, b += next_b) {
                const Results<T> results = here(codes_of(a), codes_of(b));
                words_of(results.codes, to + i);
                put_flags(results, i, count, flags);
            }
        } else {
            for (int64_t i = 0; i < count; i += lanes<T>, a += next_a, b += next_b)
                words_of(here(codes_of(a), codes_of(b)).codes, to + i);
        }
        if (is_apart)
            for (int64_t i = 0; i < count; ++i) out[i * e_.out_strides[0]] = out_[i];
    }

    __attribute__((noinline)) void put_flags(const Results<T> &results, int64_t first, int64_t count,
                                             int64_t *flags) const {
        const V bits = (results.over & T(lns::OVERFLOW_FLAG)) | (results.under & T(lns::UNDERFLOW_FLAG)) |
                       (results.invalid & T(lns::INVALID_FLAG)) | (results.by_zero & T(lns::ZERO_DIVIDE_FLAG));
        for (int64_t i = first; i < std::min(first + lanes<T>, count); ++i)
            flags[i * e_.flag_strides[0]] = bits[i - first];
    }
};

inline void elementwise(const Elementwise &e, int64_t begin, int64_t end, Undecided &undecided) {
    with_codes(*e.format, [&]<class T>() {
        with_words(*e.format, [&]<class W>() {
            if constexpr (sizeof(W) <= sizeof(T))
                with_operation<T>(e, undecided,
                                  [&](const auto &operation) { ElementwiseRun<T, W>(e).run(operation, begin, end); });
        });
    });
}

}  // namespace LNS_ISA
