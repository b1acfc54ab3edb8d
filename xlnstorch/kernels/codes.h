// Words to codes and back, of any width and strides.
#pragma once

#include "gaussian.h"

namespace LNS_ISA {

using lns::Format;

// Calls `function` with the type of the format's words as its tag.
template <class F>
inline void with_words(const Format &format, F &&function) {
    switch (format.word_bytes) {
        case 1:
            return function.template operator()<int8_t>();
        case 2:
            return function.template operator()<int16_t>();
        case 4:
            return function.template operator()<int32_t>();
        default:
            return function.template operator()<int64_t>();
    }
}

// Calls `function` with the type of the format's codes as its tag.
template <class F>
inline void with_codes(const Format &format, F &&function) {
    if (format.wide)
        function.template operator()<int64_t>();
    else
        function.template operator()<int32_t>();
}

// The codes of words side by side.
template <class T, class W>
class CodesOf {
  public:
    explicit CodesOf(const Format &format)
        : log_bits_(Shift<T>{} + T(format.log_bits)), max_field_(Vector<T>{} + T(format.max_field())) {}

    Vector<T> operator()(const W *words) const {
        const Vector<T> word = widen<T>(words), field = word & max_field_;
        // A zero may keep its sign: it stays far below all else.
        return field << 2 | ((word >> log_bits_) & 1) | (field == 0 ? zero_ : Vector<T>{});
    }

  private:
    Shift<T> log_bits_;
    Vector<T> max_field_, zero_ = Vector<T>{} + Limits<T>::zero;
};

// The words of codes in range, and of those below 4 that of zero.
template <class T, class W>
class WordsOf {
  public:
    explicit WordsOf(const Format &format) : log_bits_(Shift<T>{} + T(format.log_bits)) {}

    void operator()(Vector<T> codes, W *words) const {
        narrow<T>(words, codes >= 4 ? codes >> 2 | (codes & 1) << log_bits_ : Vector<T>{});
    }

  private:
    Shift<T> log_bits_;
};

// The codes of `count` words, from element `first` on, `stride` elements apart.
template <class T>
void load_codes(const Format &format, const void *words, int64_t first, int64_t stride, int64_t count, T *codes) {
    const int log_bits = format.log_bits;
    const T max_field = T(format.max_field());
    with_words(format, [&]<class W>() {
        const W *from = (const W *)words + first;
        const auto code_of = [=](W word) {
            const T field = T(word) & max_field, sign = (T(word) >> log_bits) & 1;
            return field == 0 ? Limits<T>::zero : T(4 * field + sign);
        };
        if (stride == 1)
            for (int64_t i = 0; i < count; ++i) codes[i] = code_of(from[i]);
        else if (stride == 0)
            std::fill(codes, codes + count, code_of(from[0]));
        else
            for (int64_t i = 0; i < count; ++i) codes[i] = code_of(from[i * stride]);
    });
}

// The words of codes in range, and of anything below 4 that of zero.
template <class T>
void store_codes(const Format &format, const T *codes, int64_t count, void *words, int64_t first, int64_t stride) {
    const int log_bits = format.log_bits;
    with_words(format, [&]<class W>() {
        W *to = (W *)words + first;
        const auto word_of = [=](T code) { return code < 4 ? W(0) : W((code >> 2) | (code & 1) << log_bits); };
        if (stride == 1)
            for (int64_t i = 0; i < count; ++i) to[i] = word_of(codes[i]);
        else
            for (int64_t i = 0; i < count; ++i) to[i * stride] = word_of(codes[i]);
    });
}

}  // namespace LNS_ISA
