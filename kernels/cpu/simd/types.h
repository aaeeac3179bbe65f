// SPDX-License-Identifier: Apache-2.0
// What goes with berth_vec in every set of simd.h: its bits, and as many numbers of other widths.
#ifndef BERTH_KERNELS_CPU_SIMD_TYPES_H
#define BERTH_KERNELS_CPU_SIMD_TYPES_H

#include <berth/types.h>

#include <cpu/inline.h>
#include <tensor.h>

#define BERTH_VEC_TYPES                                                                            \
    typedef uint32_t berth_vec_bits __attribute__((vector_size(BERTH_LANES * 4)));                 \
    typedef int32_t berth_vec_ints __attribute__((vector_size(BERTH_LANES * 4)));                  \
    typedef uint16_t berth_vec_halves __attribute__((vector_size(BERTH_LANES * 2)));               \
    typedef uint16_t berth_vec_words __attribute__((vector_size(BERTH_LANES * 4)));                \
    typedef uint8_t berth_vec_bytes __attribute__((vector_size(BERTH_LANES)));

#define BERTH_TABLE 32

#endif
