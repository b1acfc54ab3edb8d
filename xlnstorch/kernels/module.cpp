// The Python module: checks what it is given, chooses an instruction set, and shares the work among threads.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "kernels.h"

namespace nb = nanobind;
using namespace lns;

namespace {

using Words = nb::ndarray<nb::device::cpu>;
using Flags = nb::ndarray<int64_t, nb::device::cpu>;
using Integers = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Values = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Limbs = nb::ndarray<int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Instruction sets -------------------------------------------------------------------------------------------------

std::vector<const Kernels *> supported() {
    std::vector<const Kernels *> found;
#if defined(LNS_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        found.push_back(&avx512_kernels);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(&avx2_kernels);
#endif
    found.push_back(&plain_kernels);
    return found;
}

const Kernels *chosen = supported().front();

void use(const std::string &name) {
    for (const Kernels *kernels : supported())
        if (name == kernels->name) {
            chosen = kernels;
            return;
        }
    throw std::invalid_argument("this machine has no kernels " + name);
}

// Elements that a thread takes at a time.
constexpr int64_t step = 1 << 15;

// Threads ----------------------------------------------------------------------------------------------------------

// Estimates of how long one element, or one multiply-addition, takes.
constexpr double elementwise_ns = 0.4, tabled_ns = 0.25, computed_ns = 2.5, fixed_ns = 3.5, encoded_ns = 7,
                 decoded_ns = 2;

double addition_ns(const Gaussian &gaussian) {
    return gaussian.kind == Gaussian::TABLE ? tabled_ns : computed_ns;
}

// As many threads as have a millisecond each: on a virtual machine, one takes about as long to start where the
// processor slept.
int threads_for(double ns, int threads) {
    return int(std::clamp(ns / 1e6, 1.0, double(std::max(1, threads))));
}

// Calls function(task, undecided) for every task; on `threads` threads, of which this is one. They end with the call,
// so that a process may fork at any other time.
template <class F>
Undecided shared(int64_t tasks, int threads, F &&function) {
    nb::gil_scoped_release released;
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    Undecided all;
    const auto work = [&] {
        Undecided undecided;
        for (int64_t task; (task = next++) < tasks;) function(task, undecided);
        if (undecided.empty()) return;
        const std::lock_guard<std::mutex> lock(mutex);
        all.insert(all.end(), undecided.begin(), undecided.end());
    };
    std::vector<std::thread> others;
    for (int64_t i = 1; i < std::min<int64_t>(threads, tasks); ++i) {
        try {
            others.emplace_back(work);
        } catch (const std::system_error &) {
            break;  // fewer threads do the same
        }
    }
    work();
    for (std::thread &other : others) other.join();
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

// The same over `total` elements, which take so long each, for function(first, count, undecided).
template <class F>
Undecided in_steps(int64_t total, double ns, int threads, F &&function) {
    return shared(ceiling(total, step), threads_for(double(total) * ns, threads),
                  [&](int64_t task, Undecided &undecided) {
                      function(task * step, std::min(step, total - task * step), undecided);
                  });
}

// Arguments --------------------------------------------------------------------------------------------------------

void check(bool condition, const char *wanted) {
    if (!condition) throw std::invalid_argument(wanted);
}

void check_words(const Format &format, const Words &words) {
    check(int64_t(words.itemsize()) == format.word_bytes, "words must be of the format's dtype");
    check(words.ndim() < size_t(max_dimensions), "words must have fewer than 32 dimensions");
}

// Strides of `operand` over the dimensions of `out`, 0 where it is broadcast; dimension 0 is the last one.
template <class A>
void broadcast(const A &operand, const Words &out, int64_t *strides) {
    check(operand.ndim() <= out.ndim(), "operands must broadcast to the result");
    for (size_t i = 0; i < out.ndim(); ++i) {
        strides[i] = 0;
        if (i >= operand.ndim()) continue;
        const size_t size = operand.shape(operand.ndim() - 1 - i);
        check(size == out.shape(out.ndim() - 1 - i) || size == 1, "operands must broadcast to the result");
        if (size != 1) strides[i] = operand.stride(operand.ndim() - 1 - i);
    }
}

// Sorts dimensions by the result's strides, and makes one of neighbours that lie behind one another in all operands.
void simplify(Elementwise &e) {
    int64_t *all[] = {e.a_strides, e.b_strides, e.out_strides, e.flag_strides};
    const auto exchange = [&](int i, int j) {
        std::swap(e.sizes[i], e.sizes[j]);
        for (int64_t *strides : all) std::swap(strides[i], strides[j]);
    };
    for (int i = 1; i < e.dimensions; ++i)
        for (int j = i; j > 0 && std::abs(e.out_strides[j]) < std::abs(e.out_strides[j - 1]); --j) exchange(j, j - 1);
    int kept = 0;
    for (int d = 0; d < e.dimensions; ++d) {
        if (e.sizes[d] == 1) continue;
        const bool joins = kept && std::all_of(std::begin(all), std::end(all), [&](const int64_t *strides) {
                               return strides[d] == strides[kept - 1] * e.sizes[kept - 1];
                           });
        if (joins) {
            e.sizes[kept - 1] *= e.sizes[d];
            continue;
        }
        e.sizes[kept] = e.sizes[d];
        for (int64_t *strides : all) strides[kept] = strides[d];
        ++kept;
    }
    if (!kept) {
        e.sizes[0] = 1;
        for (int64_t *strides : all) strides[0] = 1;
        kept = 1;
    }
    e.dimensions = kept;
}

Undecided elementwise(const Format &format, int operation, const Words &a, const std::optional<Words> &b,
                      const Words &out, const std::optional<Flags> &flags, int threads) {
    check(operation >= ADD && operation <= RELU_GRAD, "operation must be one of the module's");
    check(b.has_value() == (operation <= DIV || operation == RELU_GRAD),
          "the operation takes another number of operands");
    check_words(format, a);
    check_words(format, out);
    Elementwise e;
    e.operation = Operation(operation);
    e.format = &format;
    e.dimensions = int(out.ndim());
    int64_t total = 1;
    for (int i = 0; i < e.dimensions; ++i) total *= e.sizes[i] = out.shape(out.ndim() - 1 - i);
    if (total == 0) return {};
    e.a = a.data();
    e.out = out.data();
    broadcast(a, out, e.a_strides);
    broadcast(out, out, e.out_strides);
    std::fill(e.b_strides, e.b_strides + max_dimensions, 0);
    std::fill(e.flag_strides, e.flag_strides + max_dimensions, 0);
    if (b) {
        check_words(format, *b);
        e.b = b->data();
        broadcast(*b, out, e.b_strides);
    }
    if (flags) {
        check(flags->ndim() == out.ndim(), "flags must have the shape of the result");
        e.flags = flags->data();
        broadcast(*flags, out, e.flag_strides);
    }
    simplify(e);
    const Kernels *kernels = chosen;
    const double ns = e.operation <= SUB ? elementwise_ns + addition_ns(format.gaussian) : elementwise_ns;
    return in_steps(total, ns, threads, [&](int64_t first, int64_t count, Undecided &undecided) {
        kernels->elementwise(e, first, first + count, undecided);
    });
}

// Takes down factors of (batches, rows, terms) and (batches, terms, columns), or the latter alone.
void take(const Format &format, const std::optional<Words> &a, const Words &b, Factors &factors) {
    check_words(format, b);
    check(b.ndim() == 3 && (!a || a->ndim() == 3), "matrices must have three dimensions");
    factors.batches = b.shape(0);
    factors.rows = 1;
    factors.terms = b.shape(1);
    factors.columns = b.shape(2);
    factors.b = b.data();
    if (a) {
        check_words(format, *a);
        check(a->shape(0) == b.shape(0) && a->shape(2) == b.shape(1), "shapes must match");
        factors.rows = a->shape(1);
        factors.a = a->data();
    }
    for (int i = 0; i < 3; ++i) {
        factors.a_strides[i] = a ? a->stride(i) : 0;
        factors.b_strides[i] = b.stride(i);
    }
}

Undecided product(const Format &format, const Format &wide, int guard_bits, bool tree, const std::optional<Words> &a,
                  const Words &b, const Words &out, int threads) {
    Product p;
    take(format, a, b, p);
    check_words(format, out);
    check(wide.log_bits == format.log_bits + guard_bits, "the running sum must have the guard bits");
    check(out.ndim() == 3 && int64_t(out.shape(0)) == p.batches && int64_t(out.shape(1)) == p.rows &&
              int64_t(out.shape(2)) == p.columns,
          "shapes must match");
    p.format = &format;
    p.wide = &wide;
    p.guard_bits = guard_bits;
    p.tree = tree;
    p.out = out.data();
    for (int i = 0; i < 3; ++i) p.out_strides[i] = out.stride(i);
    if (p.results() == 0) return {};
    p.threads = threads_for(double(p.results() * p.terms) * addition_ns(wide.gaussian), threads);
    const Kernels *kernels = chosen;
    return shared(kernels->product_tasks(p), p.threads,
                  [&](int64_t task, Undecided &undecided) { kernels->product(p, task, undecided); });
}

void accumulate(const Format &format, const Integers &antilog, int64_t shift, int significand_bits,
                const std::optional<Words> &a, const Words &b, const Limbs &out, int threads) {
    Accumulation s;
    take(format, a, b, s);
    check(antilog.size() == size_t(1) << format.gaussian.frac_bits,
          "there must be one antilogarithm for each fraction");
    check(int64_t(out.shape(1)) == s.results(), "there must be as many registers as results");
    const int64_t most = (format.max_field() >> format.gaussian.frac_bits) + shift;
    check(significand_bits <= 63 &&
              int64_t(out.shape(0)) > std::max<int64_t>(0, most) / 32 + digits_of_term(significand_bits) - 1,
          "registers must hold every term");
    s.format = &format;
    s.antilog = antilog.data();
    s.shift = shift;
    s.significand_bits = significand_bits;
    s.limbs = out.shape(0);
    s.out = out.data();
    if (s.results() == 0) return;
    const Kernels *kernels = chosen;
    shared(kernels->accumulate_tasks(s), threads_for(double(s.results() * s.terms) * fixed_ns, threads),
           [&](int64_t task, Undecided &) { kernels->accumulate(s, task); });
}

// The indices of values that are not encoded.
Undecided encode(const Format &format, const Doubles &values, const Words &out, int threads) {
    check_words(format, out);
    check(out.size() == values.size(), "there must be as many words as values");
    check(format.gaussian.curve.margin > 0, "the format has no constants to encode with");
    const Kernels *kernels = chosen;
    return in_steps(int64_t(values.size()), encoded_ns, threads,
                    [&](int64_t first, int64_t count, Undecided &undecided) {
                        kernels->encode(format, values.data() + first, count, out.data(), first, undecided);
                    });
}

void decode(const Format &format, const Doubles &table, const Words &words, const Values &out, int threads) {
    check_words(format, words);
    check(out.size() == words.size(), "there must be as many values as words");
    check(table.size() == size_t(1) << format.gaussian.frac_bits, "the table must have one entry for each fraction");
    const Kernels *kernels = chosen;
    in_steps(int64_t(words.size()), decoded_ns, threads, [&](int64_t first, int64_t count, Undecided &) {
        kernels->decode(format, table.data(), words.data(), first, count, out.data() + first);
    });
}

void order(const Format &format, const Words &words, const Values &out, int threads) {
    check_words(format, words);
    check(out.size() == words.size(), "there must be as many numbers as words");
    const Kernels *kernels = chosen;
    in_steps(int64_t(words.size()), decoded_ns, threads, [&](int64_t first, int64_t count, Undecided &) {
        kernels->order(format, words.data(), first, count, out.data() + first);
    });
}

void from_order(const Format &format, const Doubles &orders, const Words &out, int threads) {
    check_words(format, out);
    check(out.size() == orders.size(), "there must be as many words as numbers");
    const Kernels *kernels = chosen;
    in_steps(int64_t(orders.size()), decoded_ns, threads, [&](int64_t first, int64_t count, Undecided &) {
        kernels->from_order(format, orders.data() + first, count, out.data(), first);
    });
}

// Adders -----------------------------------------------------------------------------------------------------------

template <class A>
std::vector<std::remove_const_t<typename A::Scalar>> vector_of(const A &array) {
    return {array.data(), array.data() + array.size()};
}

Gaussian table(int frac_bits, const Integers &sums, const Integers &differences) {
    check(sums.size() == differences.size() && sums.size() > 0, "there must be as many sums as differences");
    Gaussian g;
    g.kind = Gaussian::TABLE;
    g.frac_bits = frac_bits;
    g.reach = int64_t(sums.size()) - 1;
    g.table.assign(4 * g.reach + 1, 0);
    for (int64_t d = 0; d <= g.reach; ++d) {
        const int64_t added = sums.data()[d], taken = -differences.data()[d];
        check(std::max(std::abs(added), std::abs(taken)) < 1 << 26, "entries must have at most 26 bits");
        g.most_added = std::max({g.most_added, added, -taken});
        if (d) g.most_taken = std::max({g.most_taken, taken, -added});
        g.table[4 * d] = int32_t(4 * added);
        if (d) g.table[4 * d - 1] = int32_t(-4 * taken);
        if (d && d < g.reach) g.table[4 * d + 1] = int32_t(-4 * taken);
    }
    if (g.reach > 0) g.table[1] = -(1 << 29);  // x - x
    return g;
}

// Of an adder that is near the real logarithms: by less than half a unit of one.
void bound(Gaussian &g) {
    const int64_t one = int64_t(1) << g.frac_bits;
    g.most_added = 2 * one;
    g.most_taken = (g.frac_bits + 2) * one;
}

Gaussian curve(int frac_bits, int64_t reach) {
    Gaussian g;
    g.kind = Gaussian::CURVE;
    g.frac_bits = frac_bits;
    g.reach = reach;
    bound(g);
    return g;
}

// The same format that knows what its curve does not decide; a new one, since another thread may be computing.
Format decided(const Format &format, const Integers &keys, const Integers &values) {
    check(keys.size() == values.size(), "there must be as many keys as values");
    Format result = format;
    result.gaussian.decided_keys = vector_of(keys);
    result.gaussian.decided_values = vector_of(values);
    return result;
}

Gaussian::Polynomials polynomials(int degree, int guard_bits, int offset_bits, int inner_bits, const Integers &regions,
                                  const Integers &rows) {
    check(degree == 1 || degree == 2, "polynomials must have degree 1 or 2");
    check(rows.size() % degree == 0, "rows must have one member for degree 1, and two for degree 2");
    return {degree, guard_bits, offset_bits, inner_bits, vector_of(regions), vector_of(rows)};
}

Gaussian segments(int frac_bits, int64_t reach, int near, const Gaussian::Polynomials &of_both,
                  const std::optional<Gaussian::Polynomials> &fall) {
    Gaussian g;
    g.kind = Gaussian::SEGMENTS;
    g.frac_bits = frac_bits;
    g.reach = reach;
    g.near = near;
    g.polynomials = of_both;
    g.has_fall = fall.has_value();
    if (fall) g.fall = *fall;
    bound(g);
    return g;
}

Gaussian mitchell(int frac_bits, int64_t reach, int corrections, int64_t upper, int64_t lower) {
    Gaussian g;
    g.kind = Gaussian::MITCHELL;
    g.frac_bits = frac_bits;
    g.reach = reach;
    g.corrections = corrections;
    g.constants[0] = upper;
    g.constants[1] = lower;
    bound(g);
    return g;
}

}  // namespace

NB_MODULE(_kernels, m) {
    nb::class_<Gaussian>(m, "Gaussian");
    nb::class_<Gaussian::Polynomials>(m, "Polynomials");
    m.def("table", &table);
    m.def("curve", &curve);
    m.def("polynomials", &polynomials);
    m.def("segments", &segments, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
    m.def("mitchell", &mitchell);
    m.attr("EXPONENTIAL_TERMS") = exponential_terms;
    m.attr("SERIES_TERMS") = series_terms;
    m.attr("SEGMENT_CELL_BITS") = 4;
    nb::class_<Format>(m, "Format")
        .def(
            "__init__",
            [](Format *self, int log_bits, int word_bytes, bool wide, const Gaussian &gaussian,
               const std::optional<Doubles> &constants) {
                check(log_bits >= 2 && log_bits <= (wide ? 52 : 24), "codes must hold the field");
                check(wide || gaussian.kind == Gaussian::TABLE, "only tables serve codes of 32 bits");
                check(word_bytes * 8 > log_bits, "words must hold the field");
                check(constants || gaussian.kind != Gaussian::CURVE, "a curve must have its constants");
                new (self) Format{log_bits, word_bytes, wide, gaussian};
                if (!constants) return;
                check(constants->size() * sizeof(double) == sizeof(Curve),
                      "there must be as many constants as a curve has");
                std::memcpy(&self->gaussian.curve, constants->data(), sizeof(Curve));
            },
            nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
    m.def("decided", &decided);
    m.def("elementwise", &elementwise, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none(),
          nb::arg());
    m.def("product", &product, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(),
          nb::arg());
    m.def("accumulate", &accumulate, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(),
          nb::arg());
    m.def("encode", &encode);
    m.def("decode", &decode);
    m.def("order", &order);
    m.def("from_order", &from_order);
    m.def("supported", [] {
        std::vector<std::string> names;
        for (const Kernels *kernels : supported()) names.push_back(kernels->name);
        return names;
    });
    m.def("chosen", [] { return std::string(chosen->name); });
    m.def("use", &use);
    const char *names[] = {"add", "sub", "mul", "div", "neg", "abs", "relu", "sqrt", "relu_grad"};
    nb::dict operations;
    for (int i = 0; i < 9; ++i) operations[names[i]] = i;
    m.attr("OPERATIONS") = operations;
}
