// AdamW (Loshchilov and Hutter 2019) and the norm of the gradient, for all parameters of a model in one pass over them.

#include "common.h"

#include <vector>

namespace {

struct Gradient {  // a row of a table
    const void *values;
    int64_t count, narrow;  // elements, and whether they are in bf16
};

struct Parameter {  // a row of a table: what AdamW updates besides the number of steps of this parameter
    float *weight, *mean, *square, *step;
    bf16 *copy;  // of the weight, or null
};

struct Setting {  // a row of a table
    double rate, decay;
};

struct Block {
    int64_t tensor, start, count;
};

constexpr int64_t BLOCK = 8192;  // elements
constexpr double MEAN = 0.9, SQUARE = 0.999, EPSILON = 1e-8;

std::vector<Block> blocks_of(int64_t tensors, const Gradient *gradients) {
    std::vector<Block> blocks;
    for (int64_t tensor = 0; tensor < tensors; tensor++)
        for (int64_t start = 0; start < gradients[tensor].count; start += BLOCK)
            blocks.push_back({tensor, start, std::min(BLOCK, gradients[tensor].count - start)});
    return blocks;
}

template <class T> double squares(const T *values, int64_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t at = 0; at < count; at++) sum += wide(values[at]) * wide(values[at]);
    return sum;
}

// What an element is updated with.
struct Factors {
    float scale, kept, size, root;  // root: the inverse root of the second moment's correction

    Factors(Setting setting, double divisor, double step)
        : scale(float(1 / divisor)), kept(float(1 - setting.rate * setting.decay)),
          size(float(setting.rate / (1 - std::pow(MEAN, step)))),
          root(float(1 / std::sqrt(1 - std::pow(SQUARE, step)))) {}

    void operator()(float gradient, float &weight, float &mean, float &square) const {
        const float value = gradient * scale;
        mean += float(1 - MEAN) * (value - mean);
        square = float(SQUARE) * square + float(1 - SQUARE) * value * value;
        weight = kept * weight - size * mean / (std::sqrt(square) * root + float(EPSILON));
    }
};

template <class T> void update(int64_t count, const T *gradient, Factors factors, float *weight, float *mean,
                               float *square, bf16 *copy) {
    if (copy) {
#pragma omp simd
        for (int64_t at = 0; at < count; at++) {
            factors(wide(gradient[at]), weight[at], mean[at], square[at]);
            copy[at] = narrow<bf16>(weight[at]);
        }
    } else {
#pragma omp simd
        for (int64_t at = 0; at < count; at++) factors(wide(gradient[at]), weight[at], mean[at], square[at]);
    }
}

// What postponed updates of rows are computed from (RowAdamW says how): five numbers of each of `words` rows.
struct Postponed {
    double *decay, *plain, *harmonic, *first, *root;

    Postponed(double *all, int64_t words)
        : decay(all), plain(all + words), harmonic(all + 2 * words), first(all + 3 * words), root(all + 4 * words) {}

    void clear(int64_t row) const {
        decay[row] = first[row] = root[row] = 1;
        plain[row] = harmonic[row] = 0;
    }
};

}  // namespace

extern "C" {

// Writes the norm of all gradients as one vector. It does not depend on the number of threads.
void norm(int64_t tensors, const Gradient *gradients, double *result) {
    const std::vector<Block> blocks = blocks_of(tensors, gradients);
    std::vector<double> sums(blocks.size());
    in_parallel(blocks.size(), 2, [&](int64_t first, int64_t last, int64_t) {
        for (int64_t at = first; at < last; at++) {
            const Block block = blocks[at];
            const Gradient &own = gradients[block.tensor];
            sums[at] = own.narrow ? squares((const bf16 *)own.values + block.start, block.count)
                                  : squares((const float *)own.values + block.start, block.count);
        }
    });
    double sum = 0;
    for (double each : sums) sum += each;
    *result = std::sqrt(sum);
}

// Takes a step with the gradients divided by `divisor`, and rounds the weights to their copies.
void adamw(int64_t tensors, const Parameter *parameters, const Gradient *gradients, const Setting *settings,
           double divisor) {
    std::vector<Factors> factors;
    for (int64_t tensor = 0; tensor < tensors; tensor++)
        factors.emplace_back(settings[tensor], divisor, *parameters[tensor].step += 1);
    const std::vector<Block> blocks = blocks_of(tensors, gradients);
    in_parallel(blocks.size(), 2, [&](int64_t first, int64_t last, int64_t) {
        for (int64_t at = first; at < last; at++) {
            const Block block = blocks[at];
            const Gradient &from = gradients[block.tensor];
            const Parameter &own = parameters[block.tensor];
            const auto with = [&](auto *gradient) {
                update(block.count, gradient + block.start, factors[block.tensor], own.weight + block.start,
                       own.mean + block.start, own.square + block.start, own.copy ? own.copy + block.start : nullptr);
            };
            from.narrow ? with((const bf16 *)from.values) : with((const float *)from.values);
        }
    });
}

// Applies the postponed updates of `count` of the `words` rows, which may be named more than once, or of all if `rows`
// is null.
void catch_up_rows(int64_t count, int64_t words, int64_t features, const int64_t *rows, float *weight, float *mean,
                   float *square, double *postponed) {
    struct Behind {
        int64_t row;
        float decay, harmonic, epsilon, first, second;
    };
    const Postponed all(postponed, words);
    std::vector<Behind> behind;
    for (int64_t at = 0; at < count; at++) {
        const int64_t row = rows ? rows[at] : at;
        if (all.root[row] < 1) {
            behind.push_back({row, float(all.decay[row]), float(all.harmonic[row]), float(EPSILON / all.plain[row]),
                              float(all.first[row]), float(all.root[row] * all.root[row])});
            all.clear(row);
        }
    }
    in_parallel(behind.size(), LEAST / features + 1, [&](int64_t begin, int64_t end, int64_t) {
        for (int64_t at = begin; at < end; at++) {
            const Behind with = behind[at];
            float *p = weight + with.row * features, *m = mean + with.row * features, *v = square + with.row * features;
#pragma omp simd
            for (int64_t i = 0; i < features; i++) {
                p[i] = with.decay * p[i] - m[i] / (std::sqrt(v[i]) / with.harmonic + with.epsilon);
                m[i] *= with.first;
                v[i] *= with.second;
            }
        }
    });
}

// Takes the step number `step`: updates `count` different rows, caught up, by gradients [count, features] divided by
// `divisor`, and postpones the update of the others. First moments below `forgotten` are.
void step_rows(int64_t count, int64_t words, int64_t features, const int64_t *rows, const float *gradient,
               float *weight, float *mean, float *square, double *postponed, double rate, double decay, double divisor,
               double step, double forgotten) {
    const Factors factors({rate, decay}, divisor, step);
    in_parallel(count, LEAST / features + 1, [=](int64_t first, int64_t last, int64_t) {
        for (int64_t at = first; at < last; at++) {
            const int64_t start = rows[at] * features;
            update(features, gradient + at * features, factors, weight + start, mean + start, square + start, nullptr);
        }
    });
    const double kept = 1 - rate * decay, root = std::sqrt(SQUARE), size = rate / (1 - std::pow(MEAN, step));
    const double harmonic = size * std::sqrt(1 - std::pow(SQUARE, step));
    const Postponed all(postponed, words);
    in_parallel(words, LEAST / 5, [=](int64_t first, int64_t last, int64_t) {
#pragma omp simd
        for (int64_t row = first; row < last; row++) {
            const double mean = all.first[row] * MEAN;
            all.first[row] = mean > forgotten ? mean : 0;
            all.root[row] *= root;
            all.decay[row] *= kept;
            all.plain[row] = all.plain[row] * kept + all.first[row] * size;
            all.harmonic[row] = all.harmonic[row] * kept + all.first[row] / all.root[row] * harmonic;
        }
    });
    for (int64_t at = 0; at < count; at++) all.clear(rows[at]);
}

}
