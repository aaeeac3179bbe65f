// SPDX-License-Identifier: Apache-2.0
// One vocabulary of float vectors for AVX-512 (F, BW, DQ, VL), AVX2 (with FMA and F16C) and
// portable C. The build compiles every file of this folder once per instruction set and gives its
// entry the suffix of the set; platform-cpu registers the entries of the best set that the machine
// has. So a kernel is written once, in these words or in plain loops, without a condition. Each set
// has a header in simd/, which only this one includes.
//
// How a kernel uses it: + - * / work on berth_vec as on floats; BERTH_LANES floats at a time with
// berth_vec_load … berth_vec_store; rows of any float dtype, up to their end, with the _some forms,
// whose dtype should be a constant where they are inlined. A sum that is kept per lane has the same
// order in every set. For threads see berth_cpu.run in cpu.h.
#ifndef BERTH_KERNELS_CPU_SIMD_H
#define BERTH_KERNELS_CPU_SIMD_H

#include <berth/types.h>

#include <cpu/inline.h>
#include <tensor.h>

// The words that are not operators, in every set:
//   min, max        the second where one is NaN
//   bound           `limit`, which is above 0, with the sign of a where a is larger or NaN
//   larger          the larger of two integers
//   if_less         the third where the first is below the second, else the fourth
//   add_product     sum + a · b, for tiles: the sum stays in its register
//   rest            a less the nearest whole number; of powers where 2^a is 0 or infinite anything
//                   as small, of infinities 0
//   scale           a · 2^(power − rest), rest being that of the power, and a near 1; subnormal, 0
//                   and infinite where that is right
//   reciprocal      within 2 units in the last place
//   divide          a / b by 1 / b, which is rounded; right where neither of the three is subnormal
//                   or infinite, and the quotient above 2^-90
//   estimate        the same within 2^-11; a subnormal one may be 0
//   part            a less the largest whole number that is not above it; of powers that raise has
//                   no right result of, anything as small
//   raise           a · 2^(power − part), part being that of the power, and a from 1 to 2; for
//                   powers below -126 something smaller, from 128 on infinite
//   widen, narrow   numbers of 16 bits as ones of 32, and their lower halves; _twice: bytes
//   pack            of four vectors of numbers below 256, joined two by two, the bytes in order:
//                   pack(join(a, b), join(c, d)); join takes numbers below 2^16, whose order is its
//                   own; join_lower, join_upper: the halves of any numbers in that order
//   turn_lower, turn_upper   the halves of two vectors by turns; pack_turns: the bytes of two of
//                   these, below 256, in order
//   smaller, larger_words    of two words
//   all_less        whether every lane is below the other's
//   power           the power of two with which a begins, at least `least`, a's sign with it; a is
//                   finite
//   round_bf16      the upper half of the result is the bf16 that berth_to_bf16 makes
//   pairs_of        the pairs of bf16 of which two vectors, rounded so, are the members
//   to_f16          as berth_to_f16 does
//   join_bf16       two vectors, rounded so, one behind the other, but that a subnormal number
//                   becomes 0. mix: the halves of such a vector by turns
//   has_subnormal   whether one of two vectors has such a number
//   low, high       the lower, the upper halves of two by turns; even, odd: every second lane of
//                   two, which takes them apart again
//   table           the number of a table of BERTH_TABLE that the lowest bits of each lane name;
//                   fast where BERTH_HAS_TABLE
//   not_at_most     bits: the lanes that are above the other's, or NaN
//   pack_lanes      stores lanes, bits, one behind the other, and anything behind them, a vector at
//                   most; spread_lanes: takes them apart again, 0 in the other lanes
//   pack_above      the same of signed words above the other's, returns their bits; spread_words
//   dot_words       sum + the products of both pairs of signed 16 bits of each lane; _of_two: of
//                   two vectors by one pair in memory, for tiles
//   dot_bytes       sum + the four products of unsigned bytes by signed ones of each lane
//   dot_pairs       of unsigned bytes by signed ones, the sums of both products of each word, which
//                   they have to fit in
//   add_down, add_up   the sum, rounded down and up
//   larger_bytes    of two bytes; if_bytes: the second's where the first's are not 0, else 0
//   are_bytes       whether all bytes of two are the same
//   pick_nibbles    of the sixteen bytes that each quarter of a vector repeats those that the bytes
//                   of a second one name, all below 16
//   pick_bytes      of the bytes of two vectors, one behind the other, those that the lowest bits
//                   of each byte of a third one name
//
// dot, dot_bytes, pick_bytes and pack_above, with spread_words, are for machines that
// berth_vec_has_… them, join_bf16 for those with dot, add_down, add_up, if_bytes and
// are_bytes for those with pick_bytes; not_at_most, …_lanes for sets with BERTH_HAS_TABLE.
//
// And products of matrices, where berth_matrix_is_there, which asks the system for its registers:
// berth_matrix_… begin, for so many rows of x, at most BERTH_MATRIX_ROWS, and end what a thread
// does with them; zero both sums, [rows][32 floats or integers], take and keep the first or the
// second ones; load x, [rows][64 bytes], and a weight, [16][32][4 bytes]; and add their products to
// either sums, dot: of pairs of bf16, or of signed bytes of x by unsigned ones.
//
//   store_past      past the caches, to an address of the vector's own alignment; a part of a
//                   kernel ends with berth_past_end, which orders these stores before what follows

// What is defined with them: BERTH_LANES; BERTH_HAS_TABLE; BERTH_TILE_ROWS, the largest number of
// rows of two vectors whose sums fit in the registers, and BERTH_TILE_HEIGHTS(X), X of each.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include <cpu/simd/avx512.h>
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <cpu/simd/avx2.h>
#else
#include <cpu/simd/portable.h>
#endif

// Whether this machine runs what is compiled for a set (all that have AVX2 have F16C, too).
#if defined(__x86_64__)
#define BERTH_MACHINE_HAS(feature) (__builtin_cpu_supports(feature) != 0)
#define BERTH_PAUSE()              __builtin_ia32_pause()
#define berth_past_end()           __builtin_ia32_sfence()
#define BERTH_FLUSH(address)       __builtin_ia32_clflush(address) // out of all caches
#else
#define BERTH_MACHINE_HAS(feature) 0
#define BERTH_PAUSE()              ((void)0)
#define berth_past_end()           ((void)0)
#define BERTH_FLUSH(address)       ((void)(address))
#endif
#define BERTH_MACHINE_HAS_AVX2 (BERTH_MACHINE_HAS("avx2") && BERTH_MACHINE_HAS("fma"))
#define BERTH_MACHINE_HAS_AVX512                                                                   \
    (BERTH_MACHINE_HAS_AVX2 && BERTH_MACHINE_HAS("avx512f") && BERTH_MACHINE_HAS("avx512bw") &&    \
     BERTH_MACHINE_HAS("avx512dq") && BERTH_MACHINE_HAS("avx512vl"))

#include <cpu/vec.h> // what every set has

#endif
