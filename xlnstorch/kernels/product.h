// Matrix products and sums, each in the order of its format's accumulator.
//
// Lanes lie along the columns: a tile of a few rows by two vectors has its running sums in registers, and every lane
// adds its products one after the other, as a multiply-accumulate unit does. Codes of b are packed into panels as wide
// as a tile, those of a into strips as high. Products that cannot leave the range, which the smallest and the largest
// operands of a block tell, need no comparison.
#pragma once

#include <limits>
#include <new>
#include <vector>

#include "codes.h"

namespace LNS_ISA {

using lns::Product;

constexpr int64_t task_rows = 64, task_panels = 8;

// Terms at a time, so that a panel and a table share the nearest cache; a power of two, so that in a tree they have one
// sum.
constexpr int64_t depth = 128;

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
class Panel {
  public:
    explicit Panel(int64_t terms) : codes_(new (std::align_val_t(64)) T[terms * panel<T>]) {}
    ~Panel() { ::operator delete[](codes_, std::align_val_t(64)); }
    Panel(const Panel &) = delete;

    T *data() { return codes_; }

    // Codes of `terms` times `width` words of b, zeros beside them, their fields times 2^guard_bits.
    void fill(const Format &format, int guard_bits, const void *b, int64_t first, int64_t terms, int64_t term_stride,
              int64_t column_stride, int64_t width) {
        T *to = codes_;
        if (column_stride == 1 || term_stride != 1) {
            for (int64_t k = 0; k < terms; ++k, to += panel<T>) {
                load_codes(format, b, first + k * term_stride, column_stride, width, to);
                for (int64_t j = width; j < panel<T>; ++j) to[j] = Limits<T>::zero;
            }
        } else {  // terms are neighbours in memory: read them so
            T column[256];
            std::fill(to, to + terms * panel<T>, Limits<T>::zero);
            for (int64_t j = 0; j < width; ++j)
                for (int64_t k = 0; k < terms; k += 256) {
                    const int64_t count = std::min<int64_t>(256, terms - k);
                    load_codes(format, b, first + j * column_stride + k, 1, count, column);
                    for (int64_t i = 0; i < count; ++i) to[(k + i) * panel<T> + j] = column[i];
                }
        }
        if (guard_bits) widen(codes_, terms * panel<T>, guard_bits);
    }

    static void widen(T *codes, int64_t count, int guard_bits) {
        for (int64_t i = 0; i < count; ++i)
            if (codes[i] > 0) codes[i] = ((codes[i] >> 2) << (guard_bits + 2)) | (codes[i] & 1);
    }

  private:
    T *codes_;
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
            const V capped = smaller(product, (product & 1) | largest_term_);
            product = product < least_term_ ? V{} + Limits<T>::zero : capped;
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
        batch_ = task / (across * down);
        row_ = task / across % down * task_rows;
        column_ = task % across * task_panels * panel<T>;
        rows_ = std::min(task_rows, p_.rows - row_);
        columns_ = std::min(task_panels * panel<T>, p_.columns - column_);
        const int64_t strips = ceiling(rows_, 4), panels = ceiling(columns_, panel<T>);
        levels_ = p_.tree ? 65 - __builtin_clzll(ceiling(p_.terms, depth) | 1) : 1;
        const int64_t most = std::min(depth, p_.terms);
        std::vector<T> a(p_.a ? strips * 4 * most : 0), sums(strips * panels * levels_ * tile_codes, Limits<T>::zero);
        Panel<T> b(most);
        Extremes<T> in_a, in_b[task_panels];
        for (int64_t term = 0; term < p_.terms; term += depth) {
            const int64_t count = std::min(depth, p_.terms - term);
            if (p_.a) pack(term, count, a.data(), in_a);
            for (int64_t index = 0; index < panels; ++index) {
                fill(term, count, index, b);
                in_b[index].take(b.data(), count * panel<T>);
                with_gaussian<T>(p_.wide->gaussian, [&]<class G>() {
                    T *to = sums.data() + index * strips * levels_ * tile_codes;
                    if (needs_checks(in_a, in_b[index]))
                        add_block<G, true>(term / depth, count, a.data(), b.data(), to);
                    else
                        add_block<G, false>(term / depth, count, a.data(), b.data(), to);
                });
            }
        }
        for (int64_t index = 0; index < panels; ++index)
            for (int64_t strip = 0; strip < strips; ++strip)
                finish(strip, index, sums.data() + (index * strips + strip) * levels_ * tile_codes);
    }

  private:
    static constexpr int64_t tile_codes = 4 * panel<T>;

    const Product &p_;
    Undecided &undecided_;
    int64_t batch_, row_, column_, rows_, columns_;
    int64_t levels_;  // of a tree of blocks

    void fill(int64_t term, int64_t count, int64_t index, Panel<T> &to) const {
        const int64_t column = column_ + index * panel<T>;
        const int64_t first = batch_ * p_.b_strides[0] + term * p_.b_strides[1] + column * p_.b_strides[2];
        to.fill(*p_.format, p_.guard_bits, p_.b, first, count, p_.b_strides[1], p_.b_strides[2],
                std::min<int64_t>(panel<T>, columns_ - index * panel<T>));
    }

    // Strips of four rows, each with the codes of one term side by side; less the bias, which a product has twice.
    void pack(int64_t term, int64_t terms, T *strips, Extremes<T> &extremes) const {
        const T bias = T(4 * (p_.format->bias() << p_.guard_bits));
        const int64_t first = batch_ * p_.a_strides[0] + row_ * p_.a_strides[1] + term * p_.a_strides[2];
        T row[256];
        for (int64_t r = 0; r < ceiling(rows_, 4) * 4; ++r) {
            T *to = strips + (r / 4) * 4 * terms + r % 4;
            for (int64_t k = 0; k < terms; k += 256) {
                const int64_t count = std::min<int64_t>(256, terms - k);
                if (r < rows_) {
                    load_codes(*p_.format, p_.a, first + r * p_.a_strides[1] + k * p_.a_strides[2], p_.a_strides[2],
                               count, row);
                    if (p_.guard_bits) Panel<T>::widen(row, count, p_.guard_bits);
                    extremes.take(row, count);
                } else {
                    std::fill(row, row + count, Limits<T>::zero);
                }
                for (int64_t i = 0; i < count; ++i) to[(k + i) * 4] = row[i] - bias;
            }
        }
    }

    // Whether a product may saturate or flush, or a sum, of all terms so far. In order, a sum is never further above
    // the largest term than the distance from which an addition changes nothing, plus what one addition adds; nor,
    // unless terms cancel, further below the least one than one subtraction takes. In a tree it is so many additions
    // away as there are levels.
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

    // Adds a block of terms to the sums of a panel.
    template <class G, bool checked>
    void add_block(int64_t number, int64_t terms, const T *a, const T *b, T *sums) {
        for (int64_t row = 0; row < rows_; row += 4, sums += levels_ * tile_codes) {
            const T *strip = p_.a ? a + row * terms : nullptr;
            if (rows_ - row > 2)
                add_to_tile<G, checked, 4>(number, terms, strip, b, sums);
            else if (rows_ - row > 1)
                add_to_tile<G, checked, 2>(number, terms, strip, b, sums);
            else
                add_to_tile<G, checked, 1>(number, terms, strip, b, sums);
        }
    }

    template <class G, bool checked, int R>
    void add_to_tile(int64_t number, int64_t terms, const T *a, const T *b, T *sums) {
        const Adding<T, G, checked> adding(p_, undecided_);
        if (p_.tree)
            in_tree<G, checked, R>(adding, number, terms, a, b, sums);
        else
            in_order<G, checked, R>(adding, terms, a, b, sums);
    }

    template <class G, bool checked, int R>
    void in_order(const Adding<T, G, checked> &adding, int64_t terms, const T *a, const T *b, T *sums) const {
        using V = Vector<T>;
        V s[R][2];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            s[r][0] = load(sums + r * panel<T>);
            s[r][1] = load(sums + r * panel<T> + lanes<T>);
        }
        for (int64_t k = 0; k < terms; ++k, b += panel<T>) {
            const V b0 = load(b), b1 = load(b + lanes<T>);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                s[r][0] = adding.sum(s[r][0], a ? adding.term(V{} + a[4 * k + r], b0) : b0);
                s[r][1] = adding.sum(s[r][1], a ? adding.term(V{} + a[4 * k + r], b1) : b1);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            store(sums + r * panel<T>, s[r][0]);
            store(sums + r * panel<T> + lanes<T>, s[r][1]);
        }
    }

    // A balanced tree as a binary counter: two sums of 2^n terms become one of 2^(n + 1), and what is left at the end
    // is added from the right. A block is a tree of its own, and what it leaves counts like a term among blocks.
    template <class G, bool checked, int R>
    void in_tree(const Adding<T, G, checked> &adding, int64_t number, int64_t terms, const T *a, const T *b,
                 T *sums) const {
        using V = Vector<T>;
        V stack[64][R][2];
        int height = 0;
        for (int64_t k = 0; k < terms; ++k, b += panel<T>) {
            for (int r = 0; r < R; ++r)
                for (int half = 0; half < 2; ++half) {
                    const V codes = load(b + half * lanes<T>);
                    stack[height][r][half] = a ? adding.term(V{} + a[4 * k + r], codes) : codes;
                }
            ++height;
            for (int64_t done = k + 1; done % 2 == 0; done /= 2) merge<G, checked, R>(adding, stack, height);
        }
        while (height > 1) merge<G, checked, R>(adding, stack, height);
        V block[R][2];
        std::memcpy(block, stack[0], sizeof block);
        // Those of the blocks before, with as many sums as their number has ones.
        height = __builtin_popcountll(number);
        for (int level = 0; level < height; ++level)
            for (int r = 0; r < R; ++r) read(sums + level * tile_codes, r, stack[level][r]);
        std::memcpy(stack[height++], block, sizeof block);
        if (terms == depth)
            for (int64_t done = number + 1; done % 2 == 0; done /= 2) merge<G, checked, R>(adding, stack, height);
        if ((number + 1) * depth >= p_.terms)
            while (height > 1) merge<G, checked, R>(adding, stack, height);
        for (int level = 0; level < height; ++level)
            for (int r = 0; r < R; ++r) write(sums + level * tile_codes, r, stack[level][r]);
    }

    template <class G, bool checked, int R>
    static void merge(const Adding<T, G, checked> &adding, Vector<T> (&stack)[64][R][2], int &height) {
        --height;
        for (int r = 0; r < R; ++r)
            for (int half = 0; half < 2; ++half)
                stack[height - 1][r][half] = adding.sum(stack[height - 1][r][half], stack[height][r][half]);
    }

    static void read(const T *sums, int row, Vector<T> (&to)[2]) {
        for (int half = 0; half < 2; ++half) to[half] = load(sums + row * panel<T> + half * lanes<T>);
    }

    static void write(T *sums, int row, const Vector<T> (&from)[2]) {
        for (int half = 0; half < 2; ++half) store(sums + row * panel<T> + half * lanes<T>, from[half]);
    }

    // Stores the words of a tile's sums.
    void finish(int64_t strip, int64_t index, T *sums) const {
        const int64_t column = column_ + index * panel<T>,
                      width = std::min<int64_t>(panel<T>, columns_ - index * panel<T>);
        for (int64_t r = strip * 4; r < std::min(rows_, strip * 4 + 4); ++r, sums += panel<T>) {
            round(sums);
            const int64_t out =
                batch_ * p_.out_strides[0] + (row_ + r) * p_.out_strides[1] + column * p_.out_strides[2];
            store_codes(*p_.format, sums, width, p_.out, out, p_.out_strides[2]);
        }
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
