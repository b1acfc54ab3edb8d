// Matrix products and sums, each in the order of its format's accumulator.
//
// Lanes lie along the columns: a tile of a few rows by two vectors has its running sums in registers, and every lane
// adds its products one after the other, as a multiply-accumulate unit does. Codes of b are packed into panels as wide
// as a tile, those of a into strips as high. Products that cannot leave the range, which the smallest and the largest
// operands of a block tell, need no comparison.
#pragma once

#include <limits>
#include <memory>
#include <new>

#include "codes.h"

namespace LNS_ISA {

using lns::Product;

constexpr int64_t task_rows = 64, task_panels = 8;

template <class T>
constexpr int panel = 2 * lanes<T>;

inline int64_t ceiling(int64_t n, int64_t step) {
    return (n + step - 1) / step;
}

// The least and the largest nonzero magnitude among codes.
template <class T>
struct Extremes {
    T least = std::numeric_limits<T>::max(), largest = 0;

    void take(const T *codes, int64_t count) {
        T low = least, high = largest;
        for (int64_t i = 0; i < count; ++i) {
            low = codes[i] < 0 ? low : std::min(low, codes[i]);
            high = std::max(high, codes[i]);
        }
        least = low;
        largest = high;
    }
};

template <class T>
class Panels {
  public:
    explicit Panels(int64_t terms) : codes_(new (std::align_val_t(64)) T[terms * panel<T>]), terms_(terms) {}
    ~Panels() { ::operator delete[](codes_, std::align_val_t(64)); }
    Panels(const Panels &) = delete;

    T *data() { return codes_; }

    // Codes of `width` adjacent columns of b, zeros beside them, their fields times 2^guard_bits.
    void fill(const Format &format, int guard_bits, const void *b, int64_t first, int64_t term_stride,
              int64_t column_stride, int64_t width) {
        T *to = codes_;
        if (column_stride == 1 || term_stride != 1) {
            for (int64_t k = 0; k < terms_; ++k, to += panel<T>) {
                load_codes(format, b, first + k * term_stride, column_stride, width, to);
                for (int64_t j = width; j < panel<T>; ++j) to[j] = Limits<T>::zero;
            }
        } else {  // terms are neighbours in memory: read them so
            T column[256];
            std::fill(to, to + terms_ * panel<T>, Limits<T>::zero);
            for (int64_t j = 0; j < width; ++j)
                for (int64_t k = 0; k < terms_; k += 256) {
                    const int64_t count = std::min<int64_t>(256, terms_ - k);
                    load_codes(format, b, first + j * column_stride + k, 1, count, column);
                    for (int64_t i = 0; i < count; ++i) to[(k + i) * panel<T> + j] = column[i];
                }
        }
        if (guard_bits) widen(codes_, terms_ * panel<T>, guard_bits);
    }

    static void widen(T *codes, int64_t count, int guard_bits) {
        for (int64_t i = 0; i < count; ++i)
            if (codes[i] > 0) codes[i] = ((codes[i] >> 2) << (guard_bits + 2)) | (codes[i] & 1);
    }

  private:
    T *codes_;
    int64_t terms_;
};

// How one lane's product becomes a term, and a term part of the sum.
template <class T, class G, bool checked>
class Adding {
  public:
    using V = Vector<T>;

    Adding(const Product &p, Undecided &undecided)
        : gaussian_(p.wide->gaussian, undecided),
          range_(*p.wide),
          largest_term_(T(4 * (p.format->max_field() << p.guard_bits))),
          least_term_(T(4) << p.guard_bits) {}

    V term(V a, V b) const {
        V product = (a + b) & T(~T(2));
        if constexpr (checked) {
            product = product > largest_term_ + 1 ? (product & 1) | largest_term_ : product;
            product = product < least_term_ ? product - product + Limits<T>::zero : product;
        }
        return product;
    }

    V sum(V total, V term) const {
        const V large = larger(total, term), t = large - smaller(total, term);
        const V raw = large + gaussian_(t);
        if constexpr (checked) return range_.fit(raw);
        return raw;
    }

  private:
    G gaussian_;
    Range<T> range_;
    T largest_term_, least_term_;
};

template <class T>
class ProductRun {
  public:
    ProductRun(const Product &p, Undecided &undecided) : p_(p), undecided_(undecided) {}

    void run(int64_t task) {
        const int64_t across = ceiling(p_.columns, task_panels * panel<T>), down = ceiling(p_.rows, task_rows);
        const int64_t batch = task / (across * down), row = task / across % down * task_rows;
        const int64_t first = task % across * task_panels * panel<T>;
        const int64_t rows = std::min(task_rows, p_.rows - row);
        const int64_t end = std::min(p_.columns, first + task_panels * panel<T>);
        std::unique_ptr<T[]> strips;
        Extremes<T> in_a, in_b;
        if (p_.a) {
            strips.reset(new T[ceiling(rows, 4) * 4 * p_.terms]);
            pack(batch * p_.a_strides[0] + row * p_.a_strides[1], rows, strips.get(), in_a);
        }
        Panels<T> panels(p_.terms);
        for (int64_t column = first; column < end; column += panel<T>) {
            const int64_t width = std::min<int64_t>(panel<T>, end - column);
            panels.fill(*p_.format, p_.guard_bits, p_.b, batch * p_.b_strides[0] + column * p_.b_strides[2],
                        p_.b_strides[1], p_.b_strides[2], width);
            in_b = {};
            in_b.take(panels.data(), p_.terms * panel<T>);
            const int64_t out = batch * p_.out_strides[0] + row * p_.out_strides[1] + column * p_.out_strides[2];
            with_gaussian<T>(p_.wide->gaussian, [&]<class G>() {
                if (needs_checks(in_a, in_b))
                    tiles<G, true>(strips.get(), panels.data(), rows, width, out);
                else
                    tiles<G, false>(strips.get(), panels.data(), rows, width, out);
            });
        }
    }

  private:
    const Product &p_;
    Undecided &undecided_;

    // Strips of four rows, each with the codes of one term side by side; less the bias, which a product has twice.
    void pack(int64_t first, int64_t rows, T *strips, Extremes<T> &extremes) const {
        const T bias = T(4 * (p_.format->bias() << p_.guard_bits));
        T row[256];
        for (int64_t r = 0; r < ceiling(rows, 4) * 4; ++r) {
            T *to = strips + (r / 4) * 4 * p_.terms + r % 4;
            for (int64_t k = 0; k < p_.terms; k += 256) {
                const int64_t count = std::min<int64_t>(256, p_.terms - k);
                if (r < rows) {
                    load_codes(*p_.format, p_.a, first + r * p_.a_strides[1] + k * p_.a_strides[2], p_.a_strides[2],
                               count, row);
                    if (p_.guard_bits) Panels<T>::widen(row, count, p_.guard_bits);
                    extremes.take(row, count);
                } else {
                    std::fill(row, row + count, Limits<T>::zero);
                }
                for (int64_t i = 0; i < count; ++i) to[(k + i) * 4] = row[i] - bias;
            }
        }
    }

    // Whether a product may saturate or flush, or a sum. In order, a sum is never further above the largest term than
    // the distance from which an addition changes nothing, plus what one addition adds; nor, unless terms cancel,
    // further below the least one than one subtraction takes. In a tree it is so many additions away as there are
    // levels.
    bool needs_checks(const Extremes<T> &a, const Extremes<T> &b) const {
        if (b.largest == 0 || (p_.a && a.largest == 0)) return false;
        const lns::Gaussian &gaussian = p_.wide->gaussian;
        const int64_t bias = p_.a ? 4 * (p_.format->bias() << p_.guard_bits) : 0;
        const int64_t largest = (p_.a ? a.largest : 0) + b.largest - bias;
        const int64_t least = (p_.a ? a.least : 0) + b.least - bias;
        const int64_t levels = 64 - __builtin_clzll(p_.terms | 1);
        const int64_t above = p_.tree ? levels * gaussian.most_added : gaussian.reach + gaussian.most_added;
        const int64_t below = p_.tree ? levels * gaussian.most_taken : gaussian.most_taken;
        return largest + 4 * above >= 4 * (p_.format->max_field() << p_.guard_bits) ||
               least - 4 * below < 8 << p_.guard_bits;
    }

    template <class G, bool checked>
    void tiles(const T *strips, const T *b, int64_t rows, int64_t width, int64_t out) {
        for (int64_t row = 0; row < rows; row += 4) {
            const int64_t count = std::min<int64_t>(4, rows - row);
            const T *a = strips ? strips + row * p_.terms : nullptr;
            const int64_t to = out + row * p_.out_strides[1];
            if (count > 2)
                tile<G, checked, 4>(a, b, count, width, to);
            else if (count > 1)
                tile<G, checked, 2>(a, b, count, width, to);
            else
                tile<G, checked, 1>(a, b, count, width, to);
        }
    }

    template <class G, bool checked, int R>
    void tile(const T *a, const T *b, int64_t rows, int64_t width, int64_t out) {
        using V = Vector<T>;
        const Adding<T, G, checked> adding(p_, undecided_);
        V sums[R][2];
        if (p_.tree)
            in_tree<G, checked, R>(adding, a, b, sums);
        else
            in_order<G, checked, R>(adding, a, b, sums);
        T codes[panel<T>];
        for (int r = 0; r < rows; ++r) {
            store(codes, sums[r][0]);
            store(codes + lanes<T>, sums[r][1]);
            round(codes);
            store_codes(*p_.format, codes, width, p_.out, out + r * p_.out_strides[1], p_.out_strides[2]);
        }
    }

    template <class G, bool checked, int R>
    void in_order(const Adding<T, G, checked> &adding, const T *a, const T *b, Vector<T> (&sums)[R][2]) const {
        using V = Vector<T>;
        const V zero = V{} + Limits<T>::zero;
        V s[R][2];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) s[r][0] = s[r][1] = zero;
        for (int64_t k = 0; k < p_.terms; ++k, b += panel<T>) {
            const V b0 = load(b), b1 = load(b + lanes<T>);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                s[r][0] = adding.sum(s[r][0], a ? adding.term(V{} + a[4 * k + r], b0) : b0);
                s[r][1] = adding.sum(s[r][1], a ? adding.term(V{} + a[4 * k + r], b1) : b1);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sums[r][0] = s[r][0], sums[r][1] = s[r][1];
    }

    // A balanced tree as a binary counter: two sums of 2^n terms become one of 2^(n + 1), and what is left at the end
    // is added from the right.
    template <class G, bool checked, int R>
    void in_tree(const Adding<T, G, checked> &adding, const T *a, const T *b, Vector<T> (&sums)[R][2]) const {
        using V = Vector<T>;
        V stack[64][R][2];
        int height = 0;
        for (int64_t k = 0; k < p_.terms; ++k, b += panel<T>) {
            for (int r = 0; r < R; ++r)
                for (int half = 0; half < 2; ++half) {
                    const V codes = load(b + half * lanes<T>);
                    stack[height][r][half] = a ? adding.term(V{} + a[4 * k + r], codes) : codes;
                }
            ++height;
            for (int64_t done = k + 1; done % 2 == 0; done /= 2) merge<G, checked, R>(adding, stack, height);
        }
        while (height > 1) merge<G, checked, R>(adding, stack, height);
        for (int r = 0; r < R; ++r)
            for (int half = 0; half < 2; ++half) sums[r][half] = height ? stack[0][r][half] : V{} + Limits<T>::zero;
    }

    template <class G, bool checked, int R>
    static void merge(const Adding<T, G, checked> &adding, Vector<T> (&stack)[64][R][2], int &height) {
        --height;
        for (int r = 0; r < R; ++r)
            for (int half = 0; half < 2; ++half)
                stack[height - 1][r][half] = adding.sum(stack[height - 1][r][half], stack[height][r][half]);
    }

    // The running sum's guard bits go: half to even, then as any result.
    void round(T *codes) const {
        const int guard_bits = p_.guard_bits;
        if (!guard_bits) return;
        const T last = T(p_.format->max_field());
        for (int i = 0; i < panel<T>; ++i) {
            const T field = codes[i] >> 2, kept = field >> guard_bits;
            const T rounded = (field + (T(1) << (guard_bits - 1)) - 1 + (kept & 1)) >> guard_bits;
            codes[i] = codes[i] < 4 ? Limits<T>::zero : T(4 * std::min(rounded, last)) | (codes[i] & 1);
        }
    }
};

inline int64_t product_tasks(const Product &p) {
    int64_t width = 0;
    with_codes(*p.wide, [&]<class T>() { width = task_panels * panel<T>; });
    return p.batches * ceiling(p.rows, task_rows) * ceiling(p.columns, width);
}

inline void product(const Product &p, int64_t task, Undecided &undecided) {
    with_codes(*p.wide, [&]<class T>() { ProductRun<T>(p, undecided).run(task); });
}

}  // namespace LNS_ISA
