// Self-attention, whose weights are computed again in the backward pass instead of being kept.

#include "common.h"

#include <limits>
#include <vector>

namespace {

typedef float Vector __attribute__((vector_size(64), aligned(4)));
constexpr int64_t LANES = 16, ROWS = 32;  // numbers in a Vector; queries that are computed together
constexpr float NONE = -std::numeric_limits<float>::infinity();

inline int64_t whole(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

// C [m, n] = A B, or C += A B where `adds`. The element i, j of A [m, k] is at a[i * row + j * column]; the rows of B
// and C follow each other, and n is a multiple of LANES.
template <int COUNT>
inline void multiply_rows(int64_t k, int64_t n, const float *a, int64_t row, int64_t column, const float *b, float *c,
                          bool adds) {
    for (int64_t at = 0; at < n; at += LANES) {
        Vector sums[COUNT] = {};
        if (adds)
            for (int i = 0; i < COUNT; i++) sums[i] = *(const Vector *)(c + i * n + at);
        for (int64_t j = 0; j < k; j++) {
            const Vector other = *(const Vector *)(b + j * n + at);
            for (int i = 0; i < COUNT; i++) sums[i] += a[i * row + j * column] * other;
        }
        for (int i = 0; i < COUNT; i++) *(Vector *)(c + i * n + at) = sums[i];
    }
}

void multiply(int64_t m, int64_t k, int64_t n, const float *a, int64_t row, int64_t column, const float *b, float *c,
              bool adds = false) {
    int64_t i = 0;
    for (; i + 8 <= m; i += 8) multiply_rows<8>(k, n, a + i * row, row, column, b, c + i * n, adds);
    for (; i + 4 <= m; i += 4) multiply_rows<4>(k, n, a + i * row, row, column, b, c + i * n, adds);
    for (; i + 2 <= m; i += 2) multiply_rows<2>(k, n, a + i * row, row, column, b, c + i * n, adds);
    for (; i < m; i++) multiply_rows<1>(k, n, a + i * row, row, column, b, c + i * n, adds);
}

// What attention is computed from: queries, keys and values [rows * tokens, 3, heads, size] without their bias
// [3, heads, size]; which keys there are [rows, tokens], or null for all; and what is added to the scores,
// [heads, tokens, tokens] for every row, `row_stride` numbers apart, or null.
template <class T> struct Input {
    int64_t rows, tokens, heads, size;
    const T *projected;
    const float *projected_bias;
    const uint8_t *present;
    const float *score_bias;
    int64_t row_stride;
    Dropout dropout;

    // Copies queries, keys or values of a row and a head into [tokens, whole(size)], with zeros at the end.
    void copy(int part, int64_t row, int64_t head, float *to) const {
        const int64_t features = heads * size, width = whole(size);
        const T *from = projected + row * tokens * 3 * features + part * features + head * size;
        const float *bias = projected_bias + part * features + head * size;
        for (int64_t token = 0; token < tokens; token++) {
            for (int64_t at = 0; at < size; at++)
                to[token * width + at] = wide(from[token * 3 * features + at]) + bias[at];
            std::fill(to + token * width + size, to + (token + 1) * width, 0.0f);
        }
    }

    // Writes what is added to the scores of a row's keys, [whole(tokens)]: minus infinity where there is no key.
    void mask(int64_t row, float *to) const {
        for (int64_t key = 0; key < whole(tokens); key++)
            to[key] = key < tokens && (!present || present[row * tokens + key]) ? 0.0f : NONE;
    }

    // Turns scores of `count` queries from `first` on into probabilities, both [count, whole(tokens)].
    void softmax(int64_t row, int64_t head, int64_t first, int64_t count, const float *mask, float *scores) const {
        const int64_t width = whole(tokens);
        const float scale = 1.0f / std::sqrt(float(size));
        for (int64_t query = 0; query < count; query++) {
            float *own = scores + query * width, largest = NONE, sum = 0;
            for (int64_t key = 0; key < width; key++) own[key] = own[key] * scale + mask[key];
            if (score_bias) {
                const float *bias = score_bias + row * row_stride + (head * tokens + first + query) * tokens;
                for (int64_t key = 0; key < tokens; key++) own[key] += bias[key];
            }
#pragma omp simd reduction(max : largest)
            for (int64_t key = 0; key < width; key++) largest = std::max(largest, own[key]);
            if (largest == NONE) largest = 0;  // a row without any key
#pragma omp simd reduction(+ : sum)
            for (int64_t key = 0; key < width; key++) {
                own[key] = exponential(own[key] - largest);
                sum += own[key];
            }
            const float factor = sum == 0 ? 0.0f : 1.0f / sum;
            for (int64_t key = 0; key < width; key++) own[key] *= factor;
        }
    }

    // Multiplies the values of `count` queries by dropout.
    void drop(int64_t row, int64_t head, int64_t first, int64_t count, const float *from, float *to) const {
        const int64_t width = whole(tokens);
        const Dropout draw = dropout;
        for (int64_t query = 0; query < count; query++) {
            const uint32_t start = uint32_t(((row * heads + head) * tokens + first + query) * tokens);
#pragma omp simd
            for (int32_t key = 0; key < tokens; key++)
                to[query * width + key] = from[query * width + key] * draw(start + key);
            for (int64_t key = tokens; key < width; key++) to[query * width + key] = 0;
        }
    }
};

// Memory for one thread, taken in pieces.
class Scratch {
  public:
    explicit Scratch(int64_t size) : memory(size) {}
    float *take(int64_t size) {
        taken += size;
        return memory.data() + taken - size;
    }

  private:
    std::vector<float> memory;
    int64_t taken = 0;
};

// [tokens, whole(size)] as [whole(size), whole(tokens)], with zeros at the end of the rows.
void transpose(int64_t tokens, int64_t size, const float *from, float *to) {
    const int64_t width = whole(size), length = whole(tokens);
    for (int64_t at = 0; at < width; at++)
        for (int64_t token = 0; token < length; token++)
            to[at * length + token] = token < tokens ? from[token * width + at] : 0.0f;
}

// Writes the context [rows * tokens, heads, size].
template <class T> void attention(const Input<T> &in, T *context) {
    const int64_t tokens = in.tokens, width = whole(in.size), length = whole(tokens);
    in_parallel(in.rows * in.heads, 1, [&, context](int64_t begin, int64_t end, int64_t) {
        Scratch scratch(3 * tokens * width + width * length + length + ROWS * (length + width));
        float *query = scratch.take(tokens * width), *key = scratch.take(tokens * width);
        float *value = scratch.take(tokens * width), *turned = scratch.take(width * length);
        float *mask = scratch.take(length);
        float *weights = scratch.take(ROWS * length), *result = scratch.take(ROWS * width);
        for (int64_t place = begin; place < end; place++) {
            const int64_t row = place / in.heads, head = place % in.heads;
            in.copy(0, row, head, query);
            in.copy(1, row, head, key);
            in.copy(2, row, head, value);
            transpose(tokens, in.size, key, turned);
            in.mask(row, mask);
            for (int64_t first = 0; first < tokens; first += ROWS) {
                const int64_t count = std::min(ROWS, tokens - first);
                multiply(count, in.size, length, query + first * width, width, 1, turned, weights);
                in.softmax(row, head, first, count, mask, weights);
                in.drop(row, head, first, count, weights, weights);
                multiply(count, tokens, width, weights, length, 1, value, result);
                for (int64_t at = 0; at < count; at++) {
                    T *to = context + ((row * tokens + first + at) * in.heads + head) * in.size;
                    for (int64_t i = 0; i < in.size; i++) to[i] = narrow<T>(result[at * width + i]);
                }
            }
        }
    });
}

// From the context's gradient, writes that of queries, keys and values in their layout, and, unless it is null, that of
// the scores' bias, [rows, heads, tokens, tokens].
template <class T>
void attention_backward(const Input<T> &in, const T *gradient, T *of_projected, float *of_score_bias) {
    const int64_t tokens = in.tokens, size = in.size, width = whole(size), length = whole(tokens);
    in_parallel(in.rows * in.heads, 1, [&, gradient, of_projected, of_score_bias](int64_t begin, int64_t end, int64_t) {
        Scratch scratch(7 * tokens * width + 2 * width * length + length + 3 * ROWS * length);
        float *query = scratch.take(tokens * width), *key = scratch.take(tokens * width);
        float *value = scratch.take(tokens * width), *of_context = scratch.take(tokens * width);
        float *of[3];
        for (float *&each : of) each = scratch.take(tokens * width);
        float *turned_key = scratch.take(width * length), *turned_value = scratch.take(width * length);
        float *weights = scratch.take(ROWS * length), *dropped = scratch.take(ROWS * length);
        float *of_weights = scratch.take(ROWS * length), *mask = scratch.take(length);
        for (int64_t place = begin; place < end; place++) {
            const int64_t row = place / in.heads, head = place % in.heads;
            in.copy(0, row, head, query);
            in.copy(1, row, head, key);
            in.copy(2, row, head, value);
            for (int64_t token = 0; token < tokens; token++) {
                const T *from = gradient + ((row * tokens + token) * in.heads + head) * size;
                for (int64_t at = 0; at < width; at++)
                    of_context[token * width + at] = at < size ? wide(from[at]) : 0.0f;
            }
            transpose(tokens, size, key, turned_key);
            transpose(tokens, size, value, turned_value);
            in.mask(row, mask);
            for (int64_t first = 0; first < tokens; first += ROWS) {
                const int64_t count = std::min(ROWS, tokens - first);
                const float *queries = query + first * width, *of_contexts = of_context + first * width;
                multiply(count, size, length, queries, width, 1, turned_key, weights);
                in.softmax(row, head, first, count, mask, weights);
                in.drop(row, head, first, count, weights, dropped);
                multiply(tokens, count, width, dropped, 1, length, of_contexts, of[2], first > 0);
                multiply(count, size, length, of_contexts, width, 1, turned_value, of_weights);
                in.drop(row, head, first, count, of_weights, of_weights);
                const float scale = 1.0f / std::sqrt(float(size));
                for (int64_t at = 0; at < count; at++) {
                    float *own = of_weights + at * length;
                    const float *weight = weights + at * length;
                    float sum = 0;
#pragma omp simd reduction(+ : sum)
                    for (int64_t i = 0; i < tokens; i++) sum += own[i] * weight[i];
                    for (int64_t i = 0; i < tokens; i++) own[i] = weight[i] * (own[i] - sum);
                    if (of_score_bias)
                        std::copy(own, own + tokens,
                                  of_score_bias + ((row * in.heads + head) * tokens + first + at) * tokens);
                    for (int64_t i = 0; i < tokens; i++) own[i] *= scale;
                }
                multiply(count, tokens, width, of_weights, length, 1, key, of[0] + first * width);
                multiply(tokens, count, width, of_weights, 1, length, queries, of[1], first > 0);
            }
            for (int part = 0; part < 3; part++)
                for (int64_t token = 0; token < tokens; token++) {
                    T *to = of_projected + (((row * tokens + token) * 3 + part) * in.heads + head) * size;
                    for (int64_t at = 0; at < size; at++) to[at] = narrow<T>(of[part][token * width + at]);
                }
        }
    });
}

}  // namespace

#define EXPORT(T)                                                                                                      \
    void attention_##T(int64_t rows, int64_t tokens, int64_t heads, int64_t size, const T *projected,                  \
                       const float *projected_bias, const uint8_t *present, const float *score_bias,                   \
                       int64_t row_stride, uint64_t seed, double rate, T *context) {                                   \
        attention(Input<T>{rows, tokens, heads, size, projected, projected_bias, present, score_bias, row_stride,      \
                           Dropout(seed, rate)},                                                                       \
                  context);                                                                                            \
    }                                                                                                                  \
    void attention_backward_##T(int64_t rows, int64_t tokens, int64_t heads, int64_t size, const T *projected,         \
                                const float *projected_bias, const uint8_t *present, const float *score_bias,          \
                                int64_t row_stride, uint64_t seed, double rate, const T *gradient, T *of_projected,    \
                                float *of_score_bias) {                                                                \
        attention_backward(Input<T>{rows, tokens, heads, size, projected, projected_bias, present, score_bias,         \
                                    row_stride, Dropout(seed, rate)},                                                  \
                           gradient, of_projected, of_score_bias);                                                     \
    }

extern "C" {
EXPORT(bf16)
EXPORT(float)
}
