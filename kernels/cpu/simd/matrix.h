// SPDX-License-Identifier: Apache-2.0
// The words of simd.h for products of matrices, in AMX: tiles of 16 rows of a line each, whose
// registers no compiled code uses. The instructions are written out, as those of BF16 are in
// avx512.h.
//
// Registers 0 and 1 have the first sums with 32 outputs, 2 and 3 the second ones; 4 and 5 have the
// first and the second x, 6 and 7 the weight.
#ifndef BERTH_KERNELS_CPU_SIMD_MATRIX_H
#define BERTH_KERNELS_CPU_SIMD_MATRIX_H

#include <cpuid.h>
#include <stdint.h>

#include <cpu/inline.h>

#define BERTH_MATRIX_ROWS 16 // of x

// As LDTILECFG wants it.
typedef struct berth_matrix_shape {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} berth_matrix_shape;

_Static_assert(sizeof(berth_matrix_shape) == 64, "a line");

// Linux gives a process the registers when it asks for them, once for all of its threads:
// arch_prctl is call 158, ARCH_REQ_XCOMP_PERM what is asked, 18 the state of the tiles.
static inline int berth_matrix_is_granted(void) {
    int64_t result = 158;
    __asm__ volatile("syscall" : "+a"(result) : "D"(0x1023), "S"(18) : "rcx", "r11", "memory");
    return result == 0;
}

static inline int berth_matrix_is_found(void) {
    enum { BF16 = 1 << 22, TILE = 1 << 24, INT8 = 1 << 25, ALL = BF16 | TILE | INT8 };
    unsigned int a = 0;
    unsigned int b = 0;
    unsigned int c = 0;
    unsigned int d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & ALL) == ALL && berth_matrix_is_granted();
}

// Asked once: a virtual machine takes microseconds to answer, and every create asks. In creates,
// which come one after the other.
static inline int berth_matrix_is_there(void) {
    static int answer; // 1 or -1, 0 before
    if (answer == 0) {
        answer = berth_matrix_is_found() ? 1 : -1;
    }
    return answer > 0;
}

static inline void berth_matrix_begin(int64_t rows) {
    const uint8_t of_x = (uint8_t)rows;
    const berth_matrix_shape shape = {
        .palette = 1,
        .row_bytes = {64,   64,   64,   64,   64,   64,   64, 64},
        .rows = {of_x, of_x, of_x, of_x, of_x, of_x, 16, 16},
    };
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
}

static inline void berth_matrix_end(void) {
    __asm__ volatile("tilerelease");
}

// A tile of lines that are so many bytes apart.
#define BERTH_MATRIX_LOAD(tile, from, step)                                                        \
    __asm__ volatile("tileloadd (%0,%1,1), %%" tile ::"r"(from), "r"((int64_t)(step)) : "memory")
#define BERTH_MATRIX_STORE(tile, to, step)                                                         \
    __asm__ volatile("tilestored %%" tile ", (%0,%1,1)" ::"r"(to), "r"(INT64_C(step)) : "memory")

BERTH_INLINE void berth_matrix_zero(void) {
    __asm__ volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3");
}

BERTH_INLINE void berth_matrix_take(const float *sums, int second) {
    if (second) {
        BERTH_MATRIX_LOAD("tmm2", sums, 128);
        BERTH_MATRIX_LOAD("tmm3", sums + 16, 128);
    } else {
        BERTH_MATRIX_LOAD("tmm0", sums, 128);
        BERTH_MATRIX_LOAD("tmm1", sums + 16, 128);
    }
}

BERTH_INLINE void berth_matrix_keep(float *sums, int second) {
    if (second) {
        BERTH_MATRIX_STORE("tmm2", sums, 128);
        BERTH_MATRIX_STORE("tmm3", sums + 16, 128);
    } else {
        BERTH_MATRIX_STORE("tmm0", sums, 128);
        BERTH_MATRIX_STORE("tmm1", sums + 16, 128);
    }
}

BERTH_INLINE void berth_matrix_x(const void *x, int second) {
    if (second) {
        BERTH_MATRIX_LOAD("tmm5", x, 64);
    } else {
        BERTH_MATRIX_LOAD("tmm4", x, 64);
    }
}

// The weight with outputs [16 half, 16 half + 16) of a panel, whose pairs are `step` bytes apart.
BERTH_INLINE void berth_matrix_weight(const char *weight, int64_t step, int half) {
    if (half) {
        BERTH_MATRIX_LOAD("tmm7", weight + 64, step);
    } else {
        BERTH_MATRIX_LOAD("tmm6", weight, step);
    }
}

#define BERTH_MATRIX_DOT(dot, second, half)                                                        \
    if ((second) && (half)) {                                                                      \
        __asm__ volatile(dot " %tmm7, %tmm5, %tmm3");                                              \
    } else if (second) {                                                                           \
        __asm__ volatile(dot " %tmm6, %tmm5, %tmm2");                                              \
    } else if (half) {                                                                             \
        __asm__ volatile(dot " %tmm7, %tmm4, %tmm1");                                              \
    } else {                                                                                       \
        __asm__ volatile(dot " %tmm6, %tmm4, %tmm0");                                              \
    }

BERTH_INLINE void berth_matrix_dot(int is_bytes, int second, int half) {
    if (is_bytes) {
        BERTH_MATRIX_DOT("tdpbsud", second, half)
    } else {
        BERTH_MATRIX_DOT("tdpbf16ps", second, half)
    }
}

#endif
