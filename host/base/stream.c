// SPDX-License-Identifier: Apache-2.0
// Input: memory. Output: it has been read or written as fast as one thread can. Each loop stands
// here once, as an inline function of lines of 64 bytes, and is compiled for each instruction set.
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
typedef float half_floats __attribute__((vector_size(LINE / 2)));
typedef uint64_t words __attribute__((vector_size(LINE)));
typedef uint64_t half_words __attribute__((vector_size(LINE / 2)));

// What a loop is compiled for: lines by one vector or by two. Why not one of 64 bytes everywhere:
// where registers are half of that, gcc keeps such vectors in memory, and a reader has a third of
// its speed.
typedef enum width { BY_HALVES, BY_LINES } width;

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

// The members of the other width are never there.
typedef struct line_sums {
    floats line[4];
    half_floats half[8];
} line_sums;

INLINE void read_at(line_sums *sums, const char *at, width by, size_t ahead) {
    UNROLL for (size_t line = 0; line < 4; ++line) {
        const char *from = at + line * LINE;
        if (ahead) {
            __builtin_prefetch(from + ahead, 0, 3);
        }
        if (by == BY_LINES) {
            sums->line[line] += *(const floats *)(const void *)from;
        } else {
            const half_floats *halves = (const void *)from;
            sums->half[2 * line] += halves[0];
            sums->half[2 * line + 1] += halves[1];
        }
    }
}

INLINE float total_of(const line_sums *sums, width by) {
    float total = 0;
    UNROLL for (size_t i = 0; i < 4; ++i) {
        total +=
            by == BY_LINES ? sums->line[i][0] : sums->half[2 * i][0] + sums->half[2 * i + 1][0];
    }
    return total;
}

INLINE float read_places(const char *from, size_t bytes, width by, size_t places, size_t ahead) {
    line_sums sums = {0};
    const size_t part = bytes / places;
    for (size_t i = 0; i < part; i += (size_t)4 * LINE) {
        for (size_t place = 0; place < places; ++place) {
            read_at(&sums, from + place * part + i, by, ahead);
        }
    }
    return total_of(&sums, by);
}

INLINE float read_way(const char *from, size_t bytes, width by, berth_stream_way way) {
    switch (way) {
    case BERTH_STREAM_NEAR:
        return read_places(from, bytes, by, 1, 256);
    case BERTH_STREAM_FAR:
        return read_places(from, bytes, by, 1, PAGE);
    case BERTH_STREAM_EIGHT:
        return read_places(from, bytes, by, 8, 0);
    default:
        return read_places(from, bytes, by, 1, 0);
    }
}

INLINE void copy_lines(char *to, const char *from, size_t bytes, width by) {
    const size_t step = by == BY_LINES ? LINE : LINE / 2;
    for (size_t i = 0; i < bytes; i += step) {
        if (by == BY_LINES) {
            *(floats *)(void *)(to + i) = *(const floats *)(const void *)(from + i);
        } else {
            *(half_floats *)(void *)(to + i) = *(const half_floats *)(const void *)(from + i);
        }
    }
}

// The sum of lines, so that none is left out. Why not what they differ in: that may be nothing, and
// some machines write zeros faster.
typedef struct line_kept {
    words line;
    half_words half[2];
} line_kept;

INLINE line_kept read_lines(const char *from, size_t lines, width by, size_t ahead) {
    line_kept kept = {0};
    for (size_t line = 0; line < lines; ++line) {
        const char *at = from + line * LINE;
        if (ahead) {
            __builtin_prefetch(at + ahead, 0, 3);
        }
        if (by == BY_LINES) {
            kept.line += *(const words *)(const void *)at;
        } else {
            kept.half[0] += *(const half_words *)(const void *)at;
            kept.half[1] += *(const half_words *)(const void *)(at + LINE / 2);
        }
    }
    return kept;
}

// How a set of instructions goes through lines.
typedef struct line_way {
    width by;
    void (*store)(char *to, const line_kept *kept);
} line_way;

INLINE void store_line(char *to, const line_kept *kept) {
    *(words *)(void *)to = kept->line;
}

INLINE void store_halves(char *to, const line_kept *kept) {
    *(half_words *)(void *)to = kept->half[0];
    *(half_words *)(void *)(to + LINE / 2) = kept->half[1];
}

INLINE void pass_lines(char *to, const char *from, size_t turns, const berth_stream_mix *mix,
                       line_way way) {
    const size_t ahead = mix->is_past ? PAGE : 0;
    for (size_t turn = 0; turn < turns; ++turn) {
        const line_kept kept = ahead ? read_lines(from, mix->reads, way.by, PAGE)
                                     : read_lines(from, mix->reads, way.by, 0);
        for (size_t line = 0; line < mix->writes; ++line) {
            way.store(to + line * LINE, &kept);
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

#define AVX512_INLINE static inline __attribute__((target("avx512f" FULL_WIDTH), always_inline))
#define AVX2_INLINE   static inline __attribute__((target("avx2,fma"), always_inline))

AVX512 static float read_avx512(const char *from, size_t bytes, berth_stream_way way) {
    return read_way(from, bytes, BY_LINES, way);
}

AVX2 static float read_avx2(const char *from, size_t bytes, berth_stream_way way) {
    return read_way(from, bytes, BY_HALVES, way);
}

AVX512 static void copy_avx512(char *to, const char *from, size_t bytes) {
    copy_lines(to, from, bytes, BY_LINES);
}

AVX2 static void copy_avx2(char *to, const char *from, size_t bytes) {
    copy_lines(to, from, bytes, BY_HALVES);
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

AVX512_INLINE void store_line_past(char *to, const line_kept *kept) {
    _mm512_stream_si512((__m512i *)(void *)to, (__m512i)kept->line);
}

AVX2_INLINE void store_halves_past(char *to, const line_kept *kept) {
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)kept->half[0]);
    _mm256_stream_si256((__m256i *)(void *)(to + LINE / 2), (__m256i)kept->half[1]);
}

AVX512 static void pass_avx512(char *to, const char *from, size_t turns,
                               const berth_stream_mix *mix) {
    pass_lines(to, from, turns, mix, (line_way){BY_LINES, store_line});
}

AVX512 static void pass_past_avx512(char *to, const char *from, size_t turns,
                                    const berth_stream_mix *mix) {
    pass_lines(to, from, turns, mix, (line_way){BY_LINES, store_line_past});
    _mm_sfence();
}

AVX2 static void pass_avx2(char *to, const char *from, size_t turns, const berth_stream_mix *mix) {
    pass_lines(to, from, turns, mix, (line_way){BY_HALVES, store_halves});
}

AVX2 static void pass_past_avx2(char *to, const char *from, size_t turns,
                                const berth_stream_mix *mix) {
    pass_lines(to, from, turns, mix, (line_way){BY_HALVES, store_halves_past});
    _mm_sfence();
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

// Exact products of bytes go by way of words.
AVX2 static double multiply_words(uint64_t rounds, float *sink) {
    __m256i sums[SUMS];
    const __m256i factor = _mm256_set1_epi16(3);
    UNROLL for (int k = 0; k < SUMS; ++k) {
        sums[k] = _mm256_set1_epi16((short)k);
    }
    for (uint64_t i = 0; i < rounds; ++i) {
        UNROLL for (int k = 0; k < SUMS; ++k) {
            sums[k] = _mm256_add_epi32(sums[k], _mm256_madd_epi16(sums[k], factor));
        }
    }
    UNROLL for (int k = 0; k < SUMS; ++k) {
        *sink += (float)_mm256_extract_epi32(sums[k], 0);
    }
    return (double)rounds * SUMS * 32;
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
                                             : read_way(from, bytes, BY_HALVES, way);
}

void berth_stream_copy(void *to, const void *from, size_t bytes) {
    if (__builtin_cpu_supports("avx512f")) {
        copy_avx512(to, from, bytes);
    } else if (__builtin_cpu_supports("avx2")) {
        copy_avx2(to, from, bytes);
    } else {
        copy_lines(to, from, bytes, BY_HALVES);
    }
}

void berth_stream_copy_past(void *to, const void *from, size_t bytes) {
    if (__builtin_cpu_supports("avx512f")) {
        copy_past_avx512(to, from, bytes);
    } else if (__builtin_cpu_supports("avx2")) {
        copy_past_avx2(to, from, bytes);
    } else {
        copy_lines(to, from, bytes, BY_HALVES);
    }
}

void berth_stream_pass(void *to, const void *from, size_t turns, const berth_stream_mix *mix) {
    if (__builtin_cpu_supports("avx512f")) {
        (mix->is_past ? pass_past_avx512 : pass_avx512)(to, from, turns, mix);
    } else if (__builtin_cpu_supports("avx2")) {
        (mix->is_past ? pass_past_avx2 : pass_avx2)(to, from, turns, mix);
    } else {
        pass_lines(to, from, turns, mix, (line_way){BY_HALVES, store_halves});
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
    return __builtin_cpu_supports("avx512vnni") ? multiply_bytes(rounds, sink)
           : __builtin_cpu_supports("avx2")     ? multiply_words(rounds, sink)
                                                : 0;
}

#else

float berth_stream_read(const void *from, size_t bytes, berth_stream_way way) {
    return read_way(from, bytes, BY_HALVES, way);
}

void berth_stream_copy(void *to, const void *from, size_t bytes) {
    copy_lines(to, from, bytes, BY_HALVES);
}

void berth_stream_copy_past(void *to, const void *from, size_t bytes) {
    copy_lines(to, from, bytes, BY_HALVES);
}

void berth_stream_pass(void *to, const void *from, size_t turns, const berth_stream_mix *mix) {
    pass_lines(to, from, turns, mix, (line_way){BY_HALVES, store_halves});
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
