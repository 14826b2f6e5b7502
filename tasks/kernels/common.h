// What the kernels share: they are the parts of a training step on a CPU that are not matrix products, each in one pass
// over its values.
//
// Values between layers are fp32. Those that matrix products read or write are of a type T, bf16 or fp32, and every
// calculation with them is done in fp32. Functions are named for what they compute, with the suffix of T.
//
// Results do not depend on the number of threads, except for sums over tokens, which are added by thread.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <omp.h>

using bf16 = uint16_t;  // the upper half of the bits of an fp32 number

inline float wide(float value) { return value; }
inline float wide(bf16 value) { return __builtin_bit_cast(float, uint32_t(value) << 16); }

template <class T> inline T narrow(float value);
template <> inline float narrow<float>(float value) { return value; }
template <> inline bf16 narrow<bf16>(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    // To nearest, and to even between two. Adding to the bits of a NaN could make it infinite.
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return value == value ? rounded : 0x7fc0;
}

// Calls work(first, last, thread) for equal parts of 0..count on every thread, if there are at least two times `least`.
template <class Work> void in_parallel(int64_t count, int64_t least, Work work) {
    const int threads = std::max<int64_t>(1, std::min<int64_t>(omp_get_max_threads(), count / least));
#pragma omp parallel num_threads(threads)
    {
        const int64_t given = omp_get_num_threads();  // fewer than asked for where OMP_THREAD_LIMIT says so
        const int64_t thread = omp_get_thread_num(), part = (count + given - 1) / given;
        const int64_t first = std::min(count, thread * part);
        work(first, std::min(count, first + part), thread);
    }
}

constexpr int64_t LEAST = 16384;  // values for a thread, below which starting it takes longer than it saves

// Dropout: the multiplier of an element is drawn from a hash of its number, so that both passes get the same one.
struct Dropout {
    uint32_t low, high, dropped, kept;  // the last as the bits of a float

    Dropout(uint64_t seed, double rate)
        : low(uint32_t(seed)), high(uint32_t(seed >> 32)), dropped(uint32_t(rate * 4294967296.0)),
          kept(__builtin_bit_cast(uint32_t, float(1 / (1 - rate)))) {}

    // The mixing function lowbias32 of Wellons, "Prospecting for Hash Functions" (2018), with a second key inside.
    float operator()(uint32_t element) const {
        uint32_t x = element + low;
        x = (x ^ (x >> 16)) * 0x7feb352dU;
        x ^= high;
        x = (x ^ (x >> 15)) * 0x846ca68bU;
        x ^= x >> 16;
        return __builtin_bit_cast(float, kept & -uint32_t(x >= dropped));  // without a branch
    }
};

// e^x for x <= 0, where it is a normal number: Cephes' polynomial, with an error of 2 units in the last place.
[[gnu::always_inline]] inline float exponential(float wanted) {
    const float x = wanted < -87.0f ? -87.0f : wanted;
    const float whole = std::floor(x * 1.44269504f + 0.5f);
    const float rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1.0f;
    const float power = __builtin_bit_cast(float, uint32_t(int32_t(whole) + 127) << 23);
    return wanted < -87.0f ? 0.0f : sum * power;
}
