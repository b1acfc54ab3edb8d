// Kernels over buffers that end where their words end, of random shapes and strides, for a sanitizer to watch.
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "accumulate.h"
#include "convert.h"
#include "elementwise.h"
#include "product.h"

namespace {

std::mt19937_64 engine(1);

int64_t random(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
}

// Random bytes that reach just to the last of the elements that strides lead to.
struct Buffer {
    std::unique_ptr<char[]> bytes;
    int64_t count;

    Buffer(int word_bytes, int dimensions, const int64_t *sizes, const int64_t *strides) {
        int64_t last = 0;
        for (int d = 0; d < dimensions; ++d) {
            if (sizes[d] == 0) last = -1;
            if (last >= 0) last += (sizes[d] - 1) * strides[d];
        }
        count = (last + 1) * word_bytes;
        bytes.reset(new char[count]);
        for (int64_t i = 0; i < count; ++i) bytes[i] = char(random(0, 255));
    }

    char *end() const { return bytes.get() + count; }
};

// Strides of a tensor in any order of its dimensions, with gaps, or of a broadcast one.
void choose_strides(int dimensions, const int64_t *sizes, int64_t *strides, bool broadcasts) {
    std::vector<int> order(dimensions);
    for (int d = 0; d < dimensions; ++d) order[d] = d;
    std::shuffle(order.begin(), order.end(), engine);
    int64_t step = random(1, 2);
    for (int d : order) {
        strides[d] = broadcasts && random(0, 3) == 0 ? 0 : step;
        step *= std::max<int64_t>(1, sizes[d]) + random(0, 1);
    }
}

lns::Gaussian adder(bool wide) {
    lns::Gaussian g;
    g.frac_bits = 5;
    g.reach = 37;
    g.most_added = 64;
    g.most_taken = 256;
    if (wide && random(0, 1)) {
        g.kind = lns::Gaussian::MITCHELL;
        g.corrections = int(random(0, 2));
        g.reach = 7 << 5;
    }
    g.table.resize(4 * g.reach + 1);
    for (int32_t &entry : g.table) entry = 4 * int32_t(random(-40, 40));
    return g;
}

void elementwise(const lns::Format &format) {
    lns::Elementwise e;
    e.operation = lns::Operation(random(lns::ADD, lns::RELU_GRAD));
    e.format = &format;
    e.dimensions = int(random(1, 3));
    int64_t total = 1;
    for (int d = 0; d < e.dimensions; ++d) total *= e.sizes[d] = random(1, d ? 5 : 700);
    choose_strides(e.dimensions, e.sizes, e.a_strides, true);
    choose_strides(e.dimensions, e.sizes, e.b_strides, true);
    choose_strides(e.dimensions, e.sizes, e.out_strides, false);
    choose_strides(e.dimensions, e.sizes, e.flag_strides, false);
    const Buffer a(format.word_bytes, e.dimensions, e.sizes, e.a_strides);
    const Buffer b(format.word_bytes, e.dimensions, e.sizes, e.b_strides);
    const Buffer out(format.word_bytes, e.dimensions, e.sizes, e.out_strides);
    const Buffer flags(8, e.dimensions, e.sizes, e.flag_strides);
    e.a = a.bytes.get();
    e.b = e.operation <= lns::DIV || e.operation == lns::RELU_GRAD ? b.bytes.get() : nullptr;
    e.out = out.bytes.get();
    e.flags = random(0, 1) ? (int64_t *)flags.bytes.get() : nullptr;
    lns::Undecided undecided;
    const int64_t middle = random(0, total);
    LNS_ISA::elementwise(e, 0, middle, undecided);
    LNS_ISA::elementwise(e, middle, total, undecided);
}

void product(const lns::Format &format) {
    lns::Format wide = format;
    lns::Product p;
    p.guard_bits = format.wide == (format.log_bits > 22) ? int(random(0, 2)) : 0;
    wide.log_bits += p.guard_bits;
    p.format = &format;
    p.wide = &wide;
    p.tree = random(0, 1);
    p.threads = int(random(1, 8));
    p.batches = random(1, 2);
    p.rows = random(1, 70);
    p.terms = random(0, 40);
    p.columns = random(1, 300);
    if (random(0, 9) == 0) {  // in several blocks
        p.rows = random(1, 5);
        p.terms = random(2040, 4200);
        p.columns = random(1, 5);
    }
    const bool sums = random(0, 2) == 0;
    if (sums) p.rows = 1;
    const int64_t a_sizes[] = {p.batches, p.rows, p.terms}, b_sizes[] = {p.batches, p.terms, p.columns},
                  out_sizes[] = {p.batches, p.rows, p.columns};
    choose_strides(3, a_sizes, p.a_strides, true);
    choose_strides(3, b_sizes, p.b_strides, true);
    choose_strides(3, out_sizes, p.out_strides, false);
    const Buffer a(format.word_bytes, 3, a_sizes, p.a_strides), b(format.word_bytes, 3, b_sizes, p.b_strides);
    const Buffer out(format.word_bytes, 3, out_sizes, p.out_strides);
    if (random(0, 1))  // many zeros, which are left out
        for (char *byte = a.bytes.get(); byte < a.end(); byte += format.word_bytes)
            if (random(0, 1)) std::memset(byte, 0, format.word_bytes);
    p.a = sums ? nullptr : a.bytes.get();
    p.b = b.bytes.get();
    p.out = out.bytes.get();
    lns::Undecided undecided;
    for (int64_t task = 0; task < LNS_ISA::product_tasks(p); ++task) LNS_ISA::product(p, task, undecided);
}

void accumulate(const lns::Format &format) {
    lns::Accumulation s;
    s.format = &format;
    s.batches = random(1, 2);
    s.rows = random(1, 40);
    s.terms = random(0, 300);
    s.columns = random(1, 40);
    const int64_t a_sizes[] = {s.batches, s.rows, s.terms}, b_sizes[] = {s.batches, s.terms, s.columns};
    choose_strides(3, a_sizes, s.a_strides, true);
    choose_strides(3, b_sizes, s.b_strides, true);
    const Buffer a(format.word_bytes, 3, a_sizes, s.a_strides), b(format.word_bytes, 3, b_sizes, s.b_strides);
    s.a = a.bytes.get();
    if (random(0, 2) == 0) {
        s.a = nullptr;
        s.rows = 1;
    }
    s.b = b.bytes.get();
    s.significand_bits = int(random(1, 61));
    const int frac_bits = format.gaussian.frac_bits;
    const std::vector<int64_t> antilog(size_t(1) << frac_bits, (int64_t(1) << s.significand_bits) - 1);
    s.antilog = antilog.data();
    // Integer parts that a register of a few hundred bits has place for.
    s.shift = random(-80, 80) - (format.log_bits > 20 ? format.max_field() >> frac_bits : 0);
    const int64_t most = std::max<int64_t>(0, (format.max_field() >> frac_bits) + s.shift);
    s.limbs = std::max<int64_t>(3, (most + s.significand_bits + 31) / 32 + 1);
    std::vector<int64_t> out(s.limbs * s.batches * s.rows * s.columns);
    s.out = out.data();
    for (int64_t task = 0; task < LNS_ISA::accumulate_tasks(s); ++task) LNS_ISA::accumulate(s, task);
}

void convert(lns::Format format) {
    format.gaussian.curve = {};
    const int64_t count = random(1, 1100), one = 1;
    const Buffer words(format.word_bytes, 1, &count, &one), values(8, 1, &count, &one);
    const std::vector<double> table(size_t(1) << format.gaussian.frac_bits, 1.0);
    lns::Undecided undecided;
    LNS_ISA::encode(format, (const double *)values.bytes.get(), count, words.bytes.get(), 0, undecided);
    LNS_ISA::decode(format, table.data(), words.bytes.get(), 0, count, (double *)values.bytes.get());
    LNS_ISA::order(format, words.bytes.get(), 0, count, (double *)values.bytes.get());
    LNS_ISA::from_order(format, (const double *)values.bytes.get(), count, words.bytes.get(), 0);
}

}  // namespace

int main() {
    const struct {
        int log_bits, word_bytes;
        bool wide;
    } shapes[] = {{7, 1, false}, {15, 2, false}, {20, 4, false}, {31, 4, true}, {50, 8, true}};
    for (int round = 0; round < 150; ++round)
        for (const auto &shape : shapes) {
            const lns::Format format{shape.log_bits, shape.word_bytes, shape.wide, adder(shape.wide)};
            elementwise(format);
            product(format);
            if (round % 4 == 0) accumulate(format);
            convert(format);
        }
    std::puts("done");
}
