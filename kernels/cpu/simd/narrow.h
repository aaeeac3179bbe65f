// SPDX-License-Identifier: Apache-2.0
// The words of simd.h that narrower sets do not have: kernels ask for them first.
#ifndef BERTH_KERNELS_CPU_SIMD_NARROW_H
#define BERTH_KERNELS_CPU_SIMD_NARROW_H

#define BERTH_HAS_TABLE 0

#define BERTH_MATRIX_ROWS                        16
#define berth_matrix_is_there()                  0
#define berth_matrix_begin(rows)                 ((void)(rows))
#define berth_matrix_end()                       ((void)0)
#define berth_matrix_zero()                      ((void)0)
#define berth_matrix_take(sums, second)          ((void)(sums), (void)(second))
#define berth_matrix_keep(sums, second)          ((void)(sums), (void)(second))
#define berth_matrix_x(x, second)                ((void)(x), (void)(second))
#define berth_matrix_weight(weight, step, half)  ((void)(weight), (void)(step), (void)(half))
#define berth_matrix_dot(is_bytes, second, half) ((void)(is_bytes), (void)(second), (void)(half))

// sum += first · first + second · second of each pair of bf16. Only where berth_vec_has_dot holds.
#define berth_vec_dot(sum, a, b)            ((void)(a), (void)(b), (sum))
#define berth_vec_has_dot()                 0
#define berth_vec_dot_bytes(sum, a, b)      ((void)(a), (void)(b), (sum))
#define berth_vec_has_dot_bytes()           0
#define berth_vec_pick_bytes(a, b, indices) ((void)(a), (void)(b), (indices))
#define berth_vec_has_pick_bytes()          0
#define berth_vec_not_at_most(a, b)         ((void)(a), (void)(b), 0U)
#define berth_vec_pack_lanes(to, lanes, a)  ((void)(to), (void)(lanes), (void)(a))
#define berth_vec_spread_lanes(from, lanes) ((void)(from), (void)(lanes), berth_vec_of(0))
#define berth_vec_pack_above(to, a, b)      ((void)(to), (void)(a), (void)(b), 0U)
#define berth_vec_spread_words(from, words) ((void)(from), (void)(words), berth_vec_of(0))
#define berth_vec_has_pack_above()          0
#define berth_vec_if_bytes(a, b)            ((void)(a), (b))
#define berth_vec_are_bytes(a, b)           ((void)(a), (void)(b), 0)
#define berth_vec_add_down(a, b)            ((a) + (b))
#define berth_vec_add_up(a, b)              ((a) + (b))
#define berth_vec_join_bf16(first, second)  ((void)(second), (first))
#define berth_vec_has_subnormal(a, b)       ((void)(a), (void)(b), 0)
#define berth_vec_mix(a)                    (a)

#endif
