// Matrix products and sums, each in the order of its format's accumulator.
//
// Lanes lie along the columns: a tile of a few rows has its running sums in registers, and every lane adds its products
// one after the other, as a multiply-accumulate unit does. Codes of b are packed into panels as wide as a tile. Where
// many codes of a are zero, as after a ReLU, a tile has one row and leaves those terms out, since they change no sum.
// Products that cannot leave the range, which the smallest and the largest operands of a block tell, need no
// comparison.
#pragma once

#include <limits>
#include <new>
#include <vector>

#include "codes.h"
#include "elementwise.h"

namespace LNS_ISA {

using lns::ceiling;
using lns::Product;

// Of a task at most; and fewer rows, but no fewer than that, where there would be no task for each thread.
constexpr int64_t task_rows = 64, least_rows = 16, task_panels = 2;

// Terms at a time, so that a panel and a table share the nearest cache; a power of two, so that in a tree they have one
// sum.
constexpr int64_t depth = 32;

// Vectors of a panel: as many sums as the registers hold, and none of them waits for itself.
template <class T>
constexpr int widest = sizeof(T) == 4 ? 8 : 4;

template <class T>
constexpr int64_t panel = widest<T> * lanes<T>;

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
void widen_codes(T *codes, int64_t count, int guard_bits) {
    for (int64_t i = 0; i < count; ++i)
        if (codes[i] > 0) codes[i] = ((codes[i] >> 2) << (guard_bits + 2)) | (codes[i] & 1);
}

// Codes of words of b: for each term those of all columns, zeros beside them.
template <class T>
class Panel {
  public:
    Panel() : codes_(new (std::align_val_t(64)) T[depth * panel<T>]) {}
    ~Panel() { ::operator delete[](codes_, std::align_val_t(64)); }
    Panel(const Panel &) = delete;

    const T *data() const { return codes_; }

    // `terms` times `width` words of lanes that fill `vectors`, their fields times 2^guard_bits.
    void fill(const Format &format, int guard_bits, const void *b, int64_t first, int64_t terms, int64_t term_stride,
              int64_t column_stride, int64_t width, int64_t vectors) {
        const int64_t step = vectors * lanes<T>;
        T *to = codes_;
        if (column_stride == 1 || term_stride != 1) {
            for (int64_t k = 0; k < terms; ++k, to += step) {
                load_codes(format, b, first + k * term_stride, column_stride, width, to);
                std::fill(to + width, to + step, Limits<T>::zero);
            }
        } else {  // terms are neighbours in memory: read them so
            T column[depth];
            if (width < step) std::fill(to, to + terms * step, Limits<T>::zero);
            for (int64_t j = 0; j < width; ++j) {
                load_codes(format, b, first + j * column_stride, 1, terms, column);
                for (int64_t k = 0; k < terms; ++k) to[k * step + j] = column[k];
            }
        }
        if (guard_bits) widen_codes(codes_, terms * step, guard_bits);
    }

  private:
    T *codes_;
};

// Codes of a row of a, less the bias, which a product has twice: of those terms that change a sum.
template <class T>
struct Nonzero {
    int64_t count = 0;
    int32_t terms[depth];
    T codes[depth];
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

    static int64_t tasks(const Product &p) { return p.batches * ceiling(p.rows, rows_of_task(p)) * across(p); }

    void run(int64_t task) {
        const int64_t rows = rows_of_task(p_), down = ceiling(p_.rows, rows);
        batch_ = task / (across(p_) * down);
        row_ = task / across(p_) % down * rows;
        column_ = task % across(p_) * task_panels * panel<T>;
        rows_ = std::min(rows, p_.rows - row_);
        columns_ = std::min(task_panels * panel<T>, p_.columns - column_);
        vectors_ = ceiling(columns_, lanes<T>);
        panels_ = ceiling(vectors_, widest<T>);
        levels_ = p_.tree ? 65 - __builtin_clzll(ceiling(p_.terms, depth) | 1) : 1;
        std::vector<T> sums(rows_ * vectors_ * levels_ * lanes<T>, Limits<T>::zero);
        if (p_.a) a_.resize(rows_ * depth);
        Panel<T> b;
        Extremes<T> in_a, in_b[task_panels];
        for (int64_t term = 0; term < p_.terms; term += depth) {
            const int64_t count = std::min(depth, p_.terms - term);
            if (p_.a) pack(term, count, in_a);
            for (int64_t index = 0; index < panels_; ++index) {
                fill(term, count, index, b);
                in_b[index].take(b.data(), count * width_of(index) * lanes<T>);
                with_gaussian<T>(p_.wide->gaussian, [&]<class G>() {
                    if (needs_checks(in_a, in_b[index]))
                        add_block<G, true>(term, count, b.data(), sums_of(sums, index), width_of(index));
                    else
                        add_block<G, false>(term, count, b.data(), sums_of(sums, index), width_of(index));
                });
            }
        }
        for (int64_t index = 0; index < panels_; ++index) finish(index, sums_of(sums, index));
    }

  private:
    const Product &p_;
    Undecided &undecided_;
    int64_t batch_, row_, column_, rows_, columns_;
    int64_t vectors_, panels_;  // across the columns
    int64_t levels_;            // of a tree of blocks
    std::vector<T> a_;          // codes of a block of terms, row by row, less the bias
    bool is_sparse_ = false;
    std::vector<Nonzero<T>> nonzero_;  // the rows of a sparse block

    static int64_t across(const Product &p) { return ceiling(p.columns, task_panels * panel<T>); }

    static int64_t rows_of_task(const Product &p) {
        const int64_t tasks = ceiling(p.threads, p.batches * across(p));
        return std::clamp(ceiling(p.rows, tasks), least_rows, task_rows);
    }

    // Panels are of the same width, or differ by one vector.
    int64_t width_of(int64_t index) const { return vectors_ / panels_ + (index < vectors_ % panels_); }
    int64_t start_of(int64_t index) const { return index * (vectors_ / panels_) + std::min(index, vectors_ % panels_); }

    T *sums_of(std::vector<T> &sums, int64_t index) const {
        return sums.data() + start_of(index) * rows_ * levels_ * lanes<T>;
    }

    // How many columns of a panel there are.
    int64_t columns_of(int64_t index) const {
        return std::min(width_of(index) * lanes<T>, columns_ - start_of(index) * lanes<T>);
    }

    void fill(int64_t term, int64_t count, int64_t index, Panel<T> &to) const {
        const int64_t column = column_ + start_of(index) * lanes<T>;
        const int64_t first = p_.place_in_b(batch_, term, column);
        to.fill(*p_.format, p_.guard_bits, p_.b, first, count, p_.b_strides[1], p_.b_strides[2], columns_of(index),
                width_of(index));
    }

    void pack(int64_t term, int64_t terms, Extremes<T> &extremes) {
        const T bias = T(4 * (p_.format->bias() << p_.guard_bits));
        int64_t zeros = 0;
        for (int64_t row = 0; row < rows_; ++row) {
            T *codes = a_.data() + row * depth;
            load_codes(*p_.format, p_.a, p_.place_in_a(batch_, row_ + row, term), p_.a_strides[2], terms, codes);
            if (p_.guard_bits) widen_codes(codes, terms, p_.guard_bits);
            extremes.take(codes, terms);
            for (int64_t k = 0; k < terms; ++k) {
                zeros += codes[k] < 0;
                codes[k] -= bias;
            }
        }
        // In a tree, a term's place says what it is added to; and one narrow row waits for itself.
        is_sparse_ = 5 * zeros > rows_ * terms && !p_.tree && 2 * vectors_ >= widest<T>;
        if (is_sparse_) leave_out_zeros(terms);
    }

    void leave_out_zeros(int64_t terms) {
        nonzero_.resize(rows_);
        for (int64_t row = 0; row < rows_; ++row) {
            const T *codes = a_.data() + row * depth;
            Nonzero<T> &to = nonzero_[row];
            to.count = 0;
            for (int64_t k = 0; k < terms; ++k) {
                to.codes[to.count] = codes[k];
                to.terms[to.count] = int32_t(k);
                to.count += codes[k] > Limits<T>::nothing;
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
    void add_block(int64_t term, int64_t terms, const T *b, T *sums, int64_t width) {
        const Adding<T, G, checked> adding(p_, undecided_);
        with_width(width, [&]<int V>() {
            if (p_.tree)
                in_tree<V>(adding, term / depth, terms, b, sums);
            else if (!p_.a)
                add_to_tile<1, V, V>(
                    sums, terms, b, [&](int, int64_t, Vector<T> sum, Vector<T> code) { return adding.sum(sum, code); });
            else if (is_sparse_)
                add_nonzero<V>(adding, b, sums);
            else
                add_all<V>(adding, terms, b, sums);
        });
    }

    template <int V = widest<T>, class F>
    static void with_width(int64_t width, F &&function) {
        if constexpr (V > 1)
            if (width < V) return with_width<V - 1>(width, function);
        function.template operator()<V>();
    }

    template <int V, class A>
    void add_all(const A &adding, int64_t terms, const T *b, T *sums) const {
        for (int64_t row = 0; row < rows_;) {
            const auto add_rows = [&]<int R>() {
                const T *a = a_.data() + row * depth;
                const auto add = [&](int r, int64_t k, Vector<T> sum, Vector<T> code) {
                    return adding.sum(sum, adding.term(Vector<T>{} + a[r * depth + k], code));
                };
                T *to = sums + row * (V * lanes<T>);
                if constexpr (R == 1) {
                    add_to_tile<1, V, V>(to, terms, b, add);
                } else {
                    for (int v = 0; v + 2 <= V; v += 2)
                        add_to_tile<R, 2, V>(to + v * lanes<T>, terms, b + v * lanes<T>, add);
                    if constexpr (V % 2)
                        add_to_tile<R, 1, V>(to + (V - 1) * lanes<T>, terms, b + (V - 1) * lanes<T>, add);
                }
                row += R;
            };
            if (rows_ - row >= 4)
                add_rows.template operator()<4>();
            else if (rows_ - row >= 2)
                add_rows.template operator()<2>();
            else
                add_rows.template operator()<1>();
        }
    }

    template <int V, class A>
    void add_nonzero(const A &adding, const T *b, T *sums) const {
        for (int64_t row = 0; row < rows_; ++row, sums += V * lanes<T>) {
            const Nonzero<T> &a = nonzero_[row];
            Vector<T> s[1][V];
            read<1, V, V>(sums, s);
            for (int64_t n = 0, count = a.count; n < count; ++n) {
                const T *codes = b + a.terms[n] * (V * lanes<T>);
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v)
                    s[0][v] = adding.sum(s[0][v], adding.term(Vector<T>{} + a.codes[n], load(codes + v * lanes<T>)));
            }
            write<1, V, V>(s, sums);
        }
    }

    // Adds terms to a tile of sums, R rows by V of a panel's W vectors, one after the other, with add(row, term, sum,
    // code of b).
    template <int R, int V, int W, class Add>
    static void add_to_tile(T *sums, int64_t terms, const T *b, const Add &add) {
        Vector<T> s[R][V];
        read<R, V, W>(sums, s);
        for (int64_t k = 0; k < terms; ++k, b += W * lanes<T>)
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) {
                const Vector<T> code = load(b + v * lanes<T>);
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) s[r][v] = add(r, k, s[r][v], code);
            }
        write<R, V, W>(s, sums);
    }

    // A balanced tree as a binary counter: two sums of 2^n terms become one of 2^(n + 1), and what is left at the end
    // is added from the right. A block is a tree of its own, and what it leaves counts like a term among blocks.
    template <int V, class A>
    void in_tree(const A &adding, int64_t number, int64_t terms, const T *b, T *sums) const {
        for (int64_t row = 0; row < rows_; ++row, sums += levels_ * V * lanes<T>)
            in_tree<V>(adding, number, terms, p_.a ? a_.data() + row * depth : nullptr, b, sums);
    }

    template <int V, class A>
    void in_tree(const A &adding, int64_t number, int64_t terms, const T *a, const T *b, T *sums) const {
        Vector<T> stack[64][1][V];
        int height = 0;
        for (int64_t k = 0; k < terms; ++k, b += V * lanes<T>) {
            for (int v = 0; v < V; ++v) {
                const Vector<T> code = load(b + v * lanes<T>);
                stack[height][0][v] = a ? adding.term(Vector<T>{} + a[k], code) : code;
            }
            ++height;
            for (int64_t done = k + 1; done % 2 == 0; done /= 2) merge<V>(adding, stack, height);
        }
        while (height > 1) merge<V>(adding, stack, height);
        Vector<T> block[1][V];
        std::memcpy(block, stack[0], sizeof block);
        // Those of the blocks before, with as many sums as their number has ones.
        height = __builtin_popcountll(number);
        for (int level = 0; level < height; ++level) read<1, V, V>(sums + level * (V * lanes<T>), stack[level]);
        std::memcpy(stack[height++], block, sizeof block);
        if (terms == depth)
            for (int64_t done = number + 1; done % 2 == 0; done /= 2) merge<V>(adding, stack, height);
        if ((number + 1) * depth >= p_.terms)
            while (height > 1) merge<V>(adding, stack, height);
        for (int level = 0; level < height; ++level) write<1, V, V>(stack[level], sums + level * (V * lanes<T>));
    }

    template <int V, class A>
    static void merge(const A &adding, Vector<T> (&stack)[64][1][V], int &height) {
        --height;
        for (int v = 0; v < V; ++v) stack[height - 1][0][v] = adding.sum(stack[height - 1][0][v], stack[height][0][v]);
    }

    template <int R, int V, int W>
    static void read(const T *sums, Vector<T> (&to)[R][V]) {
#pragma GCC unroll 8
        for (int i = 0; i < R * V; ++i) to[i / V][i % V] = load(sums + (i / V * W + i % V) * lanes<T>);
    }

    template <int R, int V, int W>
    static void write(const Vector<T> (&from)[R][V], T *sums) {
#pragma GCC unroll 8
        for (int i = 0; i < R * V; ++i) store(sums + (i / V * W + i % V) * lanes<T>, from[i / V][i % V]);
    }

    // Stores the words of a panel's sums.
    void finish(int64_t index, T *sums) const {
        const int64_t step = width_of(index) * lanes<T>, column = column_ + start_of(index) * lanes<T>;
        for (int64_t r = 0; r < rows_; ++r) {
            T *of_row = sums + r * levels_ * step;
            round(of_row, step);
            const int64_t out =
                batch_ * p_.out_strides[0] + (row_ + r) * p_.out_strides[1] + column * p_.out_strides[2];
            store_codes(*p_.format, of_row, columns_of(index), p_.out, out, p_.out_strides[2]);
        }
    }

    // The running sum's guard bits go: half to even, then as any result.
    void round(T *codes, int64_t count) const {
        const int guard_bits = p_.guard_bits;
        if (!guard_bits) return;
        const T last = T(p_.format->max_field());
        for (int64_t i = 0; i < count; ++i) {
            const T field = codes[i] >> 2, kept = field >> guard_bits;
            const T rounded = (field + (T(1) << (guard_bits - 1)) - 1 + (kept & 1)) >> guard_bits;
            codes[i] = codes[i] < 4 ? Limits<T>::zero : T(4 * std::min(rounded, last)) | (codes[i] & 1);
        }
    }
};

inline int64_t product_tasks(const Product &p) {
    int64_t tasks = 0;
    with_codes(*p.wide, [&]<class T>() { tasks = ProductRun<T>::tasks(p); });
    return tasks;
}

inline void product(const Product &p, int64_t task, Undecided &undecided) {
    with_codes(*p.wide, [&]<class T>() { ProductRun<T>(p, undecided).run(task); });
}

}  // namespace LNS_ISA
