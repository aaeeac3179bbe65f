// SPDX-License-Identifier: Apache-2.0
// Input: memory. Output: it has been read or written as fast as one thread can. Each loop stands
// here once, as an inline function of 64-byte vectors, and is compiled for each instruction set.
#include "base/stream.h"

#include <sys/mman.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16") // what the next loop indexes stays in registers
#define LINE   64                       // bytes
#define PAGE   4096                     // of them: how far ahead is prefetched

typedef float floats __attribute__((vector_size(LINE)));
typedef uint64_t words __attribute__((vector_size(LINE)));

// ---- memory -------------------------------------------------------------------------------------

void *berth_stream_map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE); // a wish
    return memory;
}

void berth_stream_unmap(void *memory, size_t bytes) {
    if (memory) {
        (void)munmap(memory, bytes);
    }
}

void berth_stream_fill(void *memory, size_t bytes) {
    uint16_t *halves = memory; // 0x3c00 is 2^-7 as bf16, and as the upper half of an f32
    for (size_t i = 0; i < bytes / sizeof *halves; ++i) {
        halves[i] = (uint16_t)(0x3c00 + (i * 37 & 0x7f));
    }
}

// ---- loops --------------------------------------------------------------------------------------

INLINE void read_at(floats *sums, const char *at, size_t ahead) {
    UNROLL for (size_t line = 0; line < 4; ++line) {
        if (ahead) {
            __builtin_prefetch(at + ahead + line * LINE, 0, 3);
        }
        sums[line] += *(const floats *)(const void *)(at + line * LINE);
    }
}

INLINE float read_places(const char *from, size_t bytes, size_t places, size_t ahead) {
    floats sums[4] = {{0}};
    const size_t part = bytes / places;
    for (size_t i = 0; i < part; i += sizeof sums) {
        for (size_t place = 0; place < places; ++place) {
            read_at(sums, from + place * part + i, ahead);
        }
    }
    const floats sum = sums[0] + sums[1] + sums[2] + sums[3];
    return sum[0] + sum[LINE / sizeof(float) - 1];
}

INLINE float read_way(const char *from, size_t bytes, berth_stream_way way) {
    switch (way) {
    case BERTH_STREAM_NEAR:
        return read_places(from, bytes, 1, 256);
    case BERTH_STREAM_FAR:
        return read_places(from, bytes, 1, PAGE);
    case BERTH_STREAM_EIGHT:
        return read_places(from, bytes, 8, 0);
    default:
        return read_places(from, bytes, 1, 0);
    }
}

INLINE void copy_lines(char *to, const char *from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += sizeof(floats)) {
        *(floats *)(void *)(to + i) = *(const floats *)(const void *)(from + i);
    }
}

// Added up, so that none is left out. Why not what they differ in: that may be nothing, and some
// machines write zeros faster.
INLINE void read_lines(words *kept, const char *from, size_t lines, size_t ahead) {
    for (size_t line = 0; line < lines; ++line) {
        if (ahead) {
            __builtin_prefetch(from + ahead + line * LINE, 0, 3);
        }
        *kept += *(const words *)(const void *)(from + line * LINE);
    }
}

INLINE void pass_lines(char *to, const char *from, size_t turns, const berth_stream_mix *mix) {
    for (size_t turn = 0; turn < turns; ++turn) {
        words kept = {0};
        read_lines(&kept, from, mix->reads, 0);
        for (size_t line = 0; line < mix->writes; ++line) {
            *(words *)(void *)(to + line * LINE) = kept;
        }
        from += mix->reads * LINE;
        to += mix->writes * LINE;
    }
}

// More sums than multiply units times the latency of one, and few enough for the registers.
#define SUMS 12

#if defined(__x86_64__)

// Clang ignores a target with a word that it does not know, and takes the full width unasked.
#if defined(__clang__)
#define FULL_WIDTH
#else
#define FULL_WIDTH ",prefer-vector-width=512"
#endif

#define AVX512      __attribute__((target("avx512f" FULL_WIDTH), noinline))
#define AVX512_BF16 __attribute__((target("avx512f,avx512bf16" FULL_WIDTH), noinline))
#define AVX512_VNNI __attribute__((target("avx512f,avx512vnni" FULL_WIDTH), noinline))
#define AVX2        __attribute__((target("avx2,fma"), noinline))

AVX512 static float read_avx512(const char *from, size_t bytes, berth_stream_way way) {
    return read_way(from, bytes, way);
}

AVX2 static float read_avx2(const char *from, size_t bytes, berth_stream_way way) {
    return read_way(from, bytes, way);
}

AVX512 static void copy_avx512(char *to, const char *from, size_t bytes) {
    copy_lines(to, from, bytes);
}

AVX2 static void copy_avx2(char *to, const char *from, size_t bytes) {
    copy_lines(to, from, bytes);
}

AVX512 static void copy_past_avx512(char *to, const char *from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += LINE) {
        _mm512_stream_ps((float *)(void *)(to + i), _mm512_loadu_ps(from + i));
    }
    _mm_sfence();
}

AVX2 static void copy_past_avx2(char *to, const char *from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += LINE / 2) {
        const __m256 half = _mm256_loadu_ps((const float *)(const void *)(from + i));
        _mm256_stream_ps((float *)(void *)(to + i), half);
    }
    _mm_sfence();
}

AVX512 static void pass_avx512(char *to, const char *from, size_t turns,
                               const berth_stream_mix *mix) {
    pass_lines(to, from, turns, mix);
}

AVX512 static void pass_past_avx512(char *to, const char *from, size_t turns,
                                    const berth_stream_mix *mix) {
    for (size_t turn = 0; turn < turns; ++turn) {
        words kept = {0};
        read_lines(&kept, from, mix->reads, PAGE);
        for (size_t line = 0; line < mix->writes; ++line) {
            _mm512_stream_si512((__m512i *)(void *)(to + line * LINE), (__m512i)kept);
        }
        from += mix->reads * LINE;
        to += mix->writes * LINE;
    }
    _mm_sfence();
}

AVX2 static void pass_avx2(char *to, const char *from, size_t turns, const berth_stream_mix *mix) {
    pass_lines(to, from, turns, mix);
}

AVX512 static double multiply_avx512(uint64_t rounds, float *sink) {
    __m512 sums[SUMS];
    const __m512 factor = _mm512_set1_ps(0.5F);
    UNROLL for (int k = 0; k < SUMS; ++k) {
        sums[k] = _mm512_set1_ps(*sink + (float)k); // equal ones would be computed once
    }
    for (uint64_t i = 0; i < rounds; ++i) {
        UNROLL for (int k = 0; k < SUMS; ++k) {
            sums[k] = _mm512_fmadd_ps(sums[k], factor, factor);
        }
    }
    UNROLL for (int k = 0; k < SUMS; ++k) {
        *sink += sums[k][0];
    }
    return (double)rounds * SUMS * 32;
}

AVX2 static double multiply_avx2(uint64_t rounds, float *sink) {
    __m256 sums[SUMS];
    const __m256 factor = _mm256_set1_ps(0.5F);
    UNROLL for (int k = 0; k < SUMS; ++k) {
        sums[k] = factor;
    }
    for (uint64_t i = 0; i < rounds; ++i) {
        UNROLL for (int k = 0; k < SUMS; ++k) {
            sums[k] = _mm256_fmadd_ps(sums[k], factor, factor);
            __asm__("" : "+x"(sums[k]));
        }
    }
    UNROLL for (int k = 0; k < SUMS; ++k) {
        *sink += sums[k][0];
    }
    return (double)rounds * SUMS * 16;
}

AVX512_BF16 static double multiply_pairs(uint64_t rounds, float *sink) {
    __m512 sums[SUMS];
    const __m512bh factor = (__m512bh)_mm512_set1_epi16(0x3c00);
    UNROLL for (int k = 0; k < SUMS; ++k) {
        sums[k] = _mm512_set1_ps(*sink + (float)k);
    }
    for (uint64_t i = 0; i < rounds; ++i) {
        UNROLL for (int k = 0; k < SUMS; ++k) {
            sums[k] = _mm512_dpbf16_ps(sums[k], factor, factor);
        }
    }
    UNROLL for (int k = 0; k < SUMS; ++k) {
        *sink += sums[k][0];
    }
    return (double)rounds * SUMS * 64;
}

AVX512_VNNI static double multiply_bytes(uint64_t rounds, float *sink) {
    __m512i sums[SUMS];
    const __m512i factor = _mm512_set1_epi8(3);
    UNROLL for (int k = 0; k < SUMS; ++k) {
        sums[k] = _mm512_set1_epi32((int)*sink + k);
    }
    for (uint64_t i = 0; i < rounds; ++i) {
        UNROLL for (int k = 0; k < SUMS; ++k) {
            sums[k] = _mm512_dpbusd_epi32(sums[k], factor, factor);
        }
    }
    UNROLL for (int k = 0; k < SUMS; ++k) {
        *sink += (float)_mm512_cvtsi512_si32(sums[k]);
    }
    return (double)rounds * SUMS * 128;
}

#endif

typedef float quad __attribute__((vector_size(16)));

// Why volatile: what is multiplied must not be known to the compiler.
static double multiply_portable(uint64_t rounds, float *sink) {
    volatile float half = 0.5F;
    const quad factor = {half, half, half, half};
    quad sums[SUMS];
    UNROLL for (int k = 0; k < SUMS; ++k) {
        sums[k] = factor;
    }
    for (uint64_t i = 0; i < rounds; ++i) {
        UNROLL for (int k = 0; k < SUMS; ++k) {
            sums[k] = sums[k] * factor + factor;
        }
    }
    UNROLL for (int k = 0; k < SUMS; ++k) {
        *sink += sums[k][0];
    }
    return (double)rounds * SUMS * 8;
}

// ---- the best that the machine has --------------------------------------------------------------

#if defined(__x86_64__)

float berth_stream_read(const void *from, size_t bytes, berth_stream_way way) {
    return __builtin_cpu_supports("avx512f") ? read_avx512(from, bytes, way)
           : __builtin_cpu_supports("avx2")  ? read_avx2(from, bytes, way)
                                             : read_way(from, bytes, way);
}

void berth_stream_copy(void *to, const void *from, size_t bytes) {
    if (__builtin_cpu_supports("avx512f")) {
        copy_avx512(to, from, bytes);
    } else if (__builtin_cpu_supports("avx2")) {
        copy_avx2(to, from, bytes);
    } else {
        copy_lines(to, from, bytes);
    }
}

void berth_stream_copy_past(void *to, const void *from, size_t bytes) {
    if (__builtin_cpu_supports("avx512f")) {
        copy_past_avx512(to, from, bytes);
    } else if (__builtin_cpu_supports("avx2")) {
        copy_past_avx2(to, from, bytes);
    } else {
        copy_lines(to, from, bytes);
    }
}

void berth_stream_pass(void *to, const void *from, size_t turns, const berth_stream_mix *mix) {
    if (__builtin_cpu_supports("avx512f")) {
        (mix->is_past ? pass_past_avx512 : pass_avx512)(to, from, turns, mix);
    } else if (__builtin_cpu_supports("avx2")) {
        pass_avx2(to, from, turns, mix);
    } else {
        pass_lines(to, from, turns, mix);
    }
}

double berth_stream_multiply_f32(uint64_t rounds, float *sink) {
    return __builtin_cpu_supports("avx512f") ? multiply_avx512(rounds, sink)
           : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
               ? multiply_avx2(rounds, sink)
               : multiply_portable(rounds, sink);
}

double berth_stream_multiply_bf16(uint64_t rounds, float *sink) {
    return __builtin_cpu_supports("avx512bf16") ? multiply_pairs(rounds, sink) : 0;
}

double berth_stream_multiply_i8(uint64_t rounds, float *sink) {
    return __builtin_cpu_supports("avx512vnni") ? multiply_bytes(rounds, sink) : 0;
}

#else

float berth_stream_read(const void *from, size_t bytes, berth_stream_way way) {
    return read_way(from, bytes, way);
}

void berth_stream_copy(void *to, const void *from, size_t bytes) {
    copy_lines(to, from, bytes);
}

void berth_stream_copy_past(void *to, const void *from, size_t bytes) {
    copy_lines(to, from, bytes);
}

void berth_stream_pass(void *to, const void *from, size_t turns, const berth_stream_mix *mix) {
    pass_lines(to, from, turns, mix);
}

double berth_stream_multiply_f32(uint64_t rounds, float *sink) {
    return multiply_portable(rounds, sink);
}

double berth_stream_multiply_bf16(uint64_t rounds, float *sink) {
    (void)rounds;
    (void)sink;
    return 0;
}

double berth_stream_multiply_i8(uint64_t rounds, float *sink) {
    (void)rounds;
    (void)sink;
    return 0;
}

#endif
