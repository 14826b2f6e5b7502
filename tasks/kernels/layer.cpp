// The second half of a layer, and the end of both halves, but for matrix products.

#include "common.h"

#include <vector>

namespace {

// Adds the bias to values [tokens, features], writes GELU of them to `active`, and replaces them by GELU' of them.
// The normal distribution's function is that of Abramowitz and Stegun, 7.1.26, with an error of 7.5e-8.
template <class T>
void gelu(int64_t tokens, int64_t features, const float *bias, T *values, T *active) {
    in_parallel(tokens, LEAST / features + 1, [=](int64_t first, int64_t last, int64_t) {
        for (int64_t token = first; token < last; token++) {
            T *in = values + token * features, *out = active + token * features;
#pragma omp simd
            for (int64_t at = 0; at < features; at++) {
                const float x = wide(in[at]) + bias[at], size = std::fabs(x);
                const float bell = exponential(-0.5f * x * x);
                const float t = 1.0f / (1.0f + 0.3275911f * 0.70710678f * size);
                const float tail = 0.5f * bell * t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f
                                   + t * (-1.453152027f + t * 1.061405429f))));
                const float below = 0.5f + std::copysign(0.5f - tail, x);  // the probability of a value below x
                out[at] = narrow<T>(x * below);
                in[at] = narrow<T>(below + x * 0.39894228f * bell);
            }
        }
    });
}

// Multiplies the gradient [tokens, features] by GELU' in place, and sums it over the tokens as the bias's gradient.
template <class T>
void gelu_backward(int64_t tokens, int64_t features, const T *slope, T *gradient, float *of_bias) {
    constexpr int64_t WIDTH = 128;
    in_parallel((features + WIDTH - 1) / WIDTH, 1, [=](int64_t first, int64_t last, int64_t) {
        for (int64_t block = first; block < last; block++) {
            const int64_t start = block * WIDTH, width = std::min(WIDTH, features - start);
            float sums[WIDTH] = {};
            for (int64_t token = 0; token < tokens; token++) {
                T *in = gradient + token * features + start;
                const T *by = slope + token * features + start;
#pragma omp simd
                for (int64_t at = 0; at < width; at++) {
                    const float value = wide(in[at]) * wide(by[at]);
                    in[at] = narrow<T>(value);
                    sums[at] += value;
                }
            }
            std::copy(sums, sums + width, of_bias + start);
        }
    });
}

// Computes norm((product + bias) * dropout + residual). Keeps for the backward pass the normalized values before weight
// and shift, and the inverse deviations [tokens]. Writes the output [tokens, features] in fp32 and in T.
template <class T>
void add_and_norm(int64_t tokens, int64_t features, const T *product, const float *bias, const float *residual,
                  const float *weight, const float *shift, float epsilon, Dropout dropout, float *normalized,
                  float *inverse, float *output, T *copy) {
    in_parallel(tokens, LEAST / features + 1, [=](int64_t first, int64_t last, int64_t) {
        for (int64_t token = first; token < last; token++) {
            const int64_t start = token * features;
            const uint32_t number = uint32_t(start);
            const Dropout draw = dropout;  // in registers: what is stored could otherwise overlap it
            const T *in = product + start;
            const float *other = residual + start;
            float *own = normalized + start, *out = output + start, sum = 0, squares = 0;
            T *narrowed = copy + start;
#pragma omp simd
            for (int32_t at = 0; at < features; at++)
                own[at] = (wide(in[at]) + bias[at]) * draw(number + at) + other[at];
#pragma omp simd reduction(+ : sum)
            for (int64_t at = 0; at < features; at++) sum += own[at];
            const float mean = sum / features;
#pragma omp simd reduction(+ : squares)
            for (int64_t at = 0; at < features; at++) squares += (own[at] - mean) * (own[at] - mean);
            const float scale = 1.0f / std::sqrt(squares / features + epsilon);
            inverse[token] = scale;
#pragma omp simd
            for (int64_t at = 0; at < features; at++) {
                own[at] = (own[at] - mean) * scale;
                const float value = own[at] * weight[at] + shift[at];
                out[at] = value;
                narrowed[at] = narrow<T>(value);
            }
        }
    });
}

// The gradient of the output is `gradient` + `more` (or only the first where `more` is null). Writes that of the residual,
// which may replace `gradient`, that of the product, and the sums over the tokens of bias, weight and shift into
// `of_parameters` [3, features].
template <class T>
void add_and_norm_backward(int64_t tokens, int64_t features, const float *gradient, const T *more,
                           const float *normalized, const float *inverse, const float *weight, Dropout dropout,
                           float *of_residual, T *of_product, float *of_parameters) {
    std::vector<float> sums(3 * features * omp_get_max_threads());
    float *const all = sums.data();
    in_parallel(tokens, LEAST / features + 1, [=](int64_t first, int64_t last, int64_t thread) {
        float *of_bias = all + 3 * features * thread, *of_weight = of_bias + features, *of_shift = of_weight + features;
        for (int64_t token = first; token < last; token++) {
            const int64_t start = token * features;
            const uint32_t number = uint32_t(start);
            const Dropout draw = dropout;
            const float *in = gradient + start, *values = normalized + start;
            float *own = of_residual + start, sum = 0, along = 0;
            T *out = of_product + start;
            if (more) {
                const T *extra = more + start;
#pragma omp simd
                for (int64_t at = 0; at < features; at++) own[at] = in[at] + wide(extra[at]);
                in = own;
            }
#pragma omp simd reduction(+ : sum, along)
            for (int64_t at = 0; at < features; at++) {
                of_shift[at] += in[at];
                of_weight[at] += in[at] * values[at];
                sum += in[at] * weight[at];
                along += in[at] * weight[at] * values[at];
            }
            const float mean = sum / features, slope = along / features, scale = inverse[token];
#pragma omp simd
            for (int32_t at = 0; at < features; at++) {
                const float of_summed = scale * (in[at] * weight[at] - mean - values[at] * slope);
                const float dropped = of_summed * draw(number + at);
                own[at] = of_summed;
                out[at] = narrow<T>(dropped);
                of_bias[at] += dropped;
            }
        }
    });
    for (int64_t at = 0; at < 3 * features; at++) {
        of_parameters[at] = 0;
        for (size_t other = at; other < sums.size(); other += 3 * features) of_parameters[at] += sums[other];
    }
}

// The sums over the tokens of values [tokens, features].
template <class T> void sum_tokens(int64_t tokens, int64_t features, const T *values, float *sums) {
    constexpr int64_t WIDTH = 128;
    in_parallel((features + WIDTH - 1) / WIDTH, 1, [=](int64_t first, int64_t last, int64_t) {
        for (int64_t block = first; block < last; block++) {
            const int64_t start = block * WIDTH, width = std::min(WIDTH, features - start);
            float own[WIDTH] = {};
            for (int64_t token = 0; token < tokens; token++) {
                const T *in = values + token * features + start;
#pragma omp simd
                for (int64_t at = 0; at < width; at++) own[at] += wide(in[at]);
            }
            std::copy(own, own + width, sums + start);
        }
    });
}

// total += more, over `count` values.
template <class T> void add(int64_t count, float *total, const T *more) {
    in_parallel(count, LEAST, [=](int64_t first, int64_t last, int64_t) {
#pragma omp simd
        for (int64_t at = first; at < last; at++) total[at] += wide(more[at]);
    });
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    void gelu_##T(int64_t tokens, int64_t features, const float *bias, T *values, T *active) {                         \
        gelu(tokens, features, bias, values, active);                                                                  \
    }                                                                                                                  \
    void gelu_backward_##T(int64_t tokens, int64_t features, const T *slope, T *gradient, float *of_bias) {            \
        gelu_backward(tokens, features, slope, gradient, of_bias);                                                     \
    }                                                                                                                  \
    void add_and_norm_##T(int64_t tokens, int64_t features, const T *product, const float *bias,                       \
                          const float *residual, const float *weight, const float *shift, double epsilon,              \
                          uint64_t seed, double rate, float *normalized, float *inverse, float *output, T *copy) {     \
        add_and_norm(tokens, features, product, bias, residual, weight, shift, float(epsilon), Dropout(seed, rate),    \
                     normalized, inverse, output, copy);                                                               \
    }                                                                                                                  \
    void add_and_norm_backward_##T(int64_t tokens, int64_t features, const float *gradient, const T *more,             \
                                   const float *normalized, const float *inverse, const float *weight, uint64_t seed,  \
                                   double rate, float *of_residual, T *of_product, float *of_parameters) {             \
        add_and_norm_backward(tokens, features, gradient, more, normalized, inverse, weight, Dropout(seed, rate),      \
                              of_residual, of_product, of_parameters);                                                 \
    }                                                                                                                  \
    void sum_tokens_##T(int64_t tokens, int64_t features, const T *values, float *sums) {                              \
        sum_tokens(tokens, features, values, sums);                                                                    \
    }                                                                                                                  \
    void add_##T(int64_t count, float *total, const T *more) { add(count, total, more); }

extern "C" {
EXPORT(bf16)
EXPORT(float)
}
