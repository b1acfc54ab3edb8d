// Sums of products in fixed point. Vectors of columns find what each term adds, and where; registers are in memory.
#pragma once

#include <vector>

#include "codes.h"

namespace LNS_ISA {

using lns::Accumulation;
using lns::ceiling;

class AccumulateRun {
  public:
    static constexpr int64_t tile_rows = 16, tile_columns = 16, depth = 256;

    explicit AccumulateRun(const Accumulation &sums) : s_(sums) {}

    static int64_t tasks(const Accumulation &s) { return s.batches * down(s) * across(s); }

    void run(int64_t task) {
        batch_ = task / across(s_) / down(s_);
        row_ = task / across(s_) % down(s_) * tile_rows;
        column_ = task % across(s_) * tile_columns;
        rows_ = std::min(tile_rows, s_.rows - row_);
        columns_ = std::min(tile_columns, s_.columns - column_);
        registers_.assign(rows_ * columns_ * s_.limbs, 0);
        std::vector<int64_t> a(rows_ * depth), b(depth * tile_columns, Limits<int64_t>::zero);
        for (int64_t term = 0; term < s_.terms; term += depth) {
            const int64_t count = std::min(depth, s_.terms - term);
            for (int64_t k = 0; k < count; ++k)
                load_codes(*s_.format, s_.b, s_.place_in_b(batch_, term + k, column_), s_.b_strides[2], columns_,
                           b.data() + k * tile_columns);
            for (int64_t row = 0; row < rows_; ++row) pack(row, term, count, a.data() + row * depth);
            switch (lns::digits_of_term(s_.significand_bits)) {
                case 1:
                    add<1>(count, a.data(), b.data());
                    break;
                case 2:
                    add<2>(count, a.data(), b.data());
                    break;
                default:
                    add<3>(count, a.data(), b.data());
            }
        }
        for (int64_t row = 0; row < rows_; ++row)
            for (int64_t column = 0; column < columns_; ++column)
                for (int64_t limb = 0; limb < s_.limbs; ++limb)
                    s_.out[limb * s_.results() + (batch_ * s_.rows + row_ + row) * s_.columns + column_ + column] +=
                        register_of(row, column)[limb];
    }

  private:
    static constexpr int64_t low = 0xffffffff;

    // What one term adds to registers side by side.
    struct Terms {
        int64_t integers[tile_columns], limbs[tile_columns], places[tile_columns];
    };

    const Accumulation &s_;
    int64_t batch_, row_, column_, rows_, columns_;
    std::vector<int64_t> registers_;

    static int64_t down(const Accumulation &s) { return ceiling(s.rows, tile_rows); }
    static int64_t across(const Accumulation &s) { return ceiling(s.columns, tile_columns); }

    int64_t *register_of(int64_t row, int64_t column) {
        return registers_.data() + (row * columns_ + column) * s_.limbs;
    }

    // Codes of a row of a less the bias, which a product has twice; without a those of one.
    void pack(int64_t row, int64_t term, int64_t count, int64_t *codes) const {
        if (!s_.a) {
            std::fill(codes, codes + count, 0);
            return;
        }
        load_codes(*s_.format, s_.a, s_.place_in_a(batch_, row_ + row, term), s_.a_strides[2], count, codes);
        for (int64_t k = 0; k < count; ++k) codes[k] -= 4 * s_.format->bias();
    }

    template <int digits>
    void add(int64_t terms, const int64_t *a, const int64_t *b) {
        Terms parts;
        for (int64_t row = 0; row < rows_; ++row, a += depth) {
            for (int64_t k = 0; k < terms; ++k) {
                if (a[k] < Limits<int64_t>::nothing) continue;
                split(a[k], b + k * tile_columns, parts);
                int64_t *limbs = register_of(row, 0);
                for (int64_t column = 0; column < columns_; ++column, limbs += s_.limbs)
                    add_to<digits>(limbs + parts.limbs[column], parts.integers[column], int(parts.places[column]));
            }
            for (int64_t column = 0; digits == 1 && column < columns_; ++column) carry(register_of(row, column));
        }
    }

    void split(int64_t factor, const int64_t *codes, Terms &parts) const {
        const int64_t last = 4 * s_.format->max_field(), fractions = (int64_t(1) << s_.format->gaussian.frac_bits) - 1;
        const int frac_bits = s_.format->gaussian.frac_bits;
        for (int64_t column = 0; column < columns_; column += lanes<int64_t>) {
            const I64 product = (load(codes + column) + factor) & ~int64_t(2), nothing = product - product;
            const I64 code = smaller(product, (product & 1) | last), field = code >> 2, minus = nothing - (code & 1);
            const I64 shift = (field >> frac_bits) + s_.shift;
            I64 integer = gather(s_.antilog, field & fractions);
            integer = integer >> smaller(larger(nothing - shift, nothing), nothing + 62);
            const I64 up = code >= 4 ? larger(shift, nothing) : nothing;
            store(parts.integers + column, code >= 4 ? (integer ^ minus) - minus : nothing);
            store(parts.limbs + column, up >> 5);
            store(parts.places + column, up & 31);
        }
    }

    template <int digits>
    static void add_to(int64_t *limbs, int64_t integer, int place) {
        const auto up = [=](int64_t v) { return int64_t(uint64_t(v) << place); };
        if constexpr (digits == 1) {
            limbs[0] += up(integer);
        } else if constexpr (digits == 2) {
            const int64_t part = up(integer);
            limbs[0] += part & low;
            limbs[1] += part >> 32;
        } else {
            const int64_t part = up(integer & low), rest = up(integer >> 32);
            limbs[0] += part & low;
            limbs[1] += (part >> 32) + (rest & low);
            limbs[2] += rest >> 32;
        }
    }

    void carry(int64_t *limbs) const {
        for (int64_t i = 0; i + 1 < s_.limbs; ++i) {
            limbs[i + 1] += limbs[i] >> 32;
            limbs[i] &= low;
        }
    }
};

inline void accumulate(const Accumulation &sums, int64_t task) {
    AccumulateRun(sums).run(task);
}

inline int64_t accumulate_tasks(const Accumulation &sums) {
    return AccumulateRun::tasks(sums);
}

}  // namespace LNS_ISA
