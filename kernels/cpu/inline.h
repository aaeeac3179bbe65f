// SPDX-License-Identifier: Apache-2.0
// How loops of kernels are written: what is inlined, what is unrolled, what is fetched ahead.
#ifndef BERTH_KERNELS_CPU_INLINE_H
#define BERTH_KERNELS_CPU_INLINE_H

#define BERTH_INLINE static inline __attribute__((always_inline))

// For functions that hardly ever run: ends of rows.
#define BERTH_SELDOM static __attribute__((noinline, unused))

// Unrolls the loop that follows, whose bounds are constants: what it indexes stays in registers.
#define BERTH_UNROLL _Pragma("GCC unroll 16")

// Into the first cache, and into the second; the address need not be valid.
#define BERTH_PREFETCH(address)     __builtin_prefetch((address), 0, 3)
#define BERTH_PREFETCH_FAR(address) __builtin_prefetch((address), 0, 2)

#endif
