// Operations element by element: blocks of codes that stay in the cache, whatever the strides of the words.
#pragma once

#include "codes.h"

namespace LNS_ISA {

using lns::Elementwise;

constexpr int64_t block = 512;

// Codes of results that saturate and flush, and flags where they are wanted.
template <class T>
struct Results {
    T codes[block];
    int64_t flags[block];
};

template <class T>
struct Range {
    using V = Vector<T>;
    T last;  // the code of the largest positive number

    explicit Range(const Format &format) : last(T(4 * format.max_field())) {}

    V over(V code) const { return code > last + 1; }
    V fit(V code) const { return over(code) ? (code & 1) | last : (code < 4 ? code - code + Limits<T>::zero : code); }
};

// The flags of one vector of results.
template <class T>
void put_flags(Vector<T> over, Vector<T> under, Vector<T> invalid, Vector<T> by_zero, int64_t *flags) {
    const Vector<T> bits = (over & T(lns::OVERFLOW_FLAG)) | (under & T(lns::UNDERFLOW_FLAG)) |
                           (invalid & T(lns::INVALID_FLAG)) | (by_zero & T(lns::ZERO_DIVIDE_FLAG));
    for (int i = 0; i < lanes<T>; ++i) flags[i] = bits[i];
}

template <class T, class G>
void add(const Format &format, const T *a, const T *b, int64_t count, bool subtract, bool flagged, Results<T> &results,
         Undecided &undecided) {
    using V = Vector<T>;
    const G gaussian(format.gaussian, undecided);
    const Range<T> range(format);
    const V none = load(a) - load(a);
    for (int64_t i = 0; i < count; i += lanes<T>) {
        const V x = load(a + i), y = load(b + i) ^ T(subtract);
        const V large = larger(x, y), t = large - smaller(x, y);
        const V raw = large + gaussian(t);
        store(results.codes + i, range.fit(raw));
        if (flagged) {
            const V number = (large >= 4) & (t != 1);
            put_flags<T>(range.over(raw) & number, (raw < 4) & number, none, none, results.flags + i);
        }
    }
}

template <class T>
void multiply(const Format &format, const T *a, const T *b, int64_t count, bool flagged, Results<T> &results) {
    using V = Vector<T>;
    const Range<T> range(format);
    const T bias = T(4 * format.bias());
    const V none = load(a) - load(a);
    for (int64_t i = 0; i < count; i += lanes<T>) {
        const V raw = ((load(a + i) + load(b + i)) & T(~T(2))) - bias;
        store(results.codes + i, range.fit(raw));
        if (flagged)
            put_flags<T>(range.over(raw), (raw < 4) & (raw > Limits<T>::nothing), none, none, results.flags + i);
    }
}

template <class T>
void divide(const Format &format, const T *a, const T *b, int64_t count, bool flagged, Results<T> &results) {
    using V = Vector<T>;
    const Range<T> range(format);
    const T bias = T(4 * format.bias());
    const V none = load(a) - load(a);
    for (int64_t i = 0; i < count; i += lanes<T>) {
        const V x = load(a + i), y = load(b + i);
        const V zero = x < 0, by_zero = y < 0, sign = (x ^ y) & 1;
        const V raw = (((x & T(~T(1))) - (y & T(~T(1)))) + bias) | sign;
        const V number = ~(zero | by_zero);
        V code = range.fit(raw);
        code = by_zero ? (x & 1) | range.last : code;
        store(results.codes + i, zero ? none + Limits<T>::zero : code);
        if (flagged)
            put_flags<T>(range.over(raw) & number, (raw < 4) & number, zero & by_zero, by_zero & ~zero,
                         results.flags + i);
    }
}

template <class T>
void of_one(const Format &format, lns::Operation operation, const T *a, int64_t count, bool flagged,
            Results<T> &results) {
    using V = Vector<T>;
    const T bias = T(format.bias());
    const V none = load(a) - load(a);
    for (int64_t i = 0; i < count; i += lanes<T>) {
        const V x = load(a + i);
        const V negative = (x & 1) == 1, nothing = none + Limits<T>::zero;
        V code = x;
        V invalid = none;
        if (operation == lns::NEG) code = x ^ 1;
        if (operation == lns::ABS) code = x & T(~T(1));
        if (operation == lns::RELU) code = negative ? nothing : x;
        if (operation == lns::SQRT) {
            const V e = (x >> 2) - bias;
            const V root = (e + ((e >> 1) & 1)) >> 1;  // half to even
            invalid = negative & (x > 0);
            code = (x < 0) | negative ? nothing : (root + bias) << 2;
        }
        store(results.codes + i, code);
        if (flagged) put_flags<T>(none, none, invalid, none, results.flags + i);
    }
}

template <class T>
class ElementwiseRun {
  public:
    ElementwiseRun(const Elementwise &e, Undecided &undecided) : e_(e), undecided_(undecided) {}

    // Elements `begin` to `end` of the index space, row by row of its innermost dimension.
    void run(int64_t begin, int64_t end) {
        while (begin < end) {
            int64_t at[lns::max_dimensions], rest = begin;
            for (int d = 0; d < e_.dimensions; ++d) {
                at[d] = rest % e_.sizes[d];
                rest /= e_.sizes[d];
            }
            const int64_t count = std::min({end - begin, e_.sizes[0] - at[0], block});
            step(at, count);
            begin += count;
        }
    }

  private:
    const Elementwise &e_;
    Undecided &undecided_;
    alignas(64) T a_[block], b_[block];
    Results<T> results_;

    int64_t offset(const int64_t *at, const int64_t *strides) const {
        int64_t sum = 0;
        for (int d = 0; d < e_.dimensions; ++d) sum += at[d] * strides[d];
        return sum;
    }

    void step(const int64_t *at, int64_t count) {
        const Format &format = *e_.format;
        load_codes(format, e_.a, offset(at, e_.a_strides), e_.a_strides[0], count, a_);
        pad(a_, count);
        if (e_.b) {
            load_codes(format, e_.b, offset(at, e_.b_strides), e_.b_strides[0], count, b_);
            pad(b_, count);
        }
        compute(count);
        store_codes(format, results_.codes, count, e_.out, offset(at, e_.out_strides), e_.out_strides[0]);
        if (e_.flags) {
            int64_t *flags = e_.flags + offset(at, e_.flag_strides);
            for (int64_t i = 0; i < count; ++i) flags[i * e_.flag_strides[0]] = results_.flags[i];
        }
    }

    void pad(T *codes, int64_t count) const {
        for (; count % lanes<T>; ++count) codes[count] = Limits<T>::zero;
    }

    void compute(int64_t count) {
        const Format &format = *e_.format;
        const bool flagged = e_.flags != nullptr;
        switch (e_.operation) {
            case lns::ADD:
            case lns::SUB:
                return with_gaussian<T>(format.gaussian, [&]<class G>() {
                    add<T, G>(format, a_, b_, count, e_.operation == lns::SUB, flagged, results_, undecided_);
                });
            case lns::MUL:
                return multiply<T>(format, a_, b_, count, flagged, results_);
            case lns::DIV:
                return divide<T>(format, a_, b_, count, flagged, results_);
            case lns::RELU_GRAD:  // b where a is positive
                for (int64_t i = 0; i < count; ++i) {
                    results_.codes[i] = a_[i] > 0 && !(a_[i] & 1) ? b_[i] : Limits<T>::zero;
                    results_.flags[i] = 0;
                }
                return;
            default:
                return of_one<T>(format, e_.operation, a_, count, flagged, results_);
        }
    }
};

inline void elementwise(const Elementwise &e, int64_t begin, int64_t end, Undecided &undecided) {
    with_codes(*e.format, [&]<class T>() { ElementwiseRun<T>(e, undecided).run(begin, end); });
}

}  // namespace LNS_ISA
