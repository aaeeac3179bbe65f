// SPDX-License-Identifier: Apache-2.0
// From the sums of a group of columns with two panels of codes (packed_rows.h, packed_matrix.h) to
// totals: as numbers, by the scales of the group.
#ifndef BERTH_KERNELS_CPU_PACKED_SUMS_H
#define BERTH_KERNELS_CPU_PACKED_SUMS_H

#include <cpu/packed_job.h>

static inline berth_span packed_group_steps(const packed *self, int64_t group) {
    const int64_t first = group * self->group;
    return (berth_span){first, at_most(first + self->group, self->steps)};
}

// What sums are, constants of the loops below.
typedef struct packed_meaning {
    berth_dtype scales;
    int are_integers;
    int are_turned; // not in order before packed_order
    int are_fixed;  // integers that are numbers
} packed_meaning;

// Sums as numbers; `less` is as packed_less gives it, or of integers what is added.
BERTH_INLINE berth_vec packed_take(packed_meaning of, berth_vec sums, berth_vec less, float of_x) {
    if (of.are_integers) {
        const uint32_t excess = (uint32_t)((int32_t)of_x * (int32_t)packed_excess(PACKED_I8, 0));
        const berth_vec_bits whole = (berth_vec_bits)sums + (berth_vec_bits)less - excess;
        return __builtin_convertvector((berth_vec_ints)whole, berth_vec);
    }
    return berth_vec_fma(less, berth_vec_of(of_x), packed_as_numbers(of.are_fixed, sums));
}

// Of two vectors of outputs from `output` on, of all rows.
BERTH_INLINE void packed_add_some(packed_meaning of, const packed_groups *by, berth_span at,
                                  int64_t rows, const float *sums_of) {
    const int64_t group = at.first;
    const int64_t output = at.end;
    const int64_t first = output / PANEL * rows * PANEL + output % PANEL;
    berth_vec scale[2];
    berth_vec less[2];
    for (int i = 0; i < 2; ++i) {
        const int64_t lane = output + i * BERTH_LANES;
        scale[i] = packed_scale(by, group, lane);
        less[i] = of.are_integers ? berth_vec_load(by->bias + lane)
                                  : packed_less(by, packed_zeros(by, group, lane));
    }
    for (int64_t row = 0; row < rows; ++row) {
        const float *from = sums_of + first + row * PANEL;
        float *total = by->totals + first + row * PANEL;
        berth_vec sums[2] = {berth_vec_load(from), berth_vec_load(from + BERTH_LANES)};
        if (of.are_turned) {
            packed_order(sums);
        }
        for (int i = 0; i < 2; ++i) {
            const float of_x = by->x_sums[group * rows + row];
            packed_add_total(total + i * BERTH_LANES, packed_take(of, sums[i], less[i], of_x),
                             scale[i], by->x_scales[group * rows + row], group == 0);
        }
    }
}

BERTH_INLINE void packed_add_as(packed_meaning of, const packed_groups *all, int64_t group,
                                int64_t rows, const float *sums) {
    packed_groups by = *all;
    by.dtype = of.scales;
    for (int64_t output = 0; output < PACKED_WIDTH; output += 2 * BERTH_LANES) {
        packed_add_some(of, &by, (berth_span){group, output}, rows, sums);
    }
}

// Of a pair of panels. What there is most has loops of its own.
static inline void packed_add_group(const packed_job *in, const packed_groups *by, int64_t group,
                                    const float *sums) {
    const int are_integers = in->self->kind == PACKED_I8;
    const int are_turned = packed_is_turned(in->self->kind, in->self->product);
    const int are_fixed = packed_is_fixed(in->self->kind, in->self->product);
    if (are_integers && by->dtype == BERTH_DTYPE_F32) {
        packed_add_as((packed_meaning){BERTH_DTYPE_F32, 1, 0, 0}, by, group, in->rows, sums);
    } else if (are_turned && by->dtype == BERTH_DTYPE_F32) {
        packed_add_as((packed_meaning){BERTH_DTYPE_F32, 0, 1, 0}, by, group, in->rows, sums);
    } else if (are_fixed && by->dtype == BERTH_DTYPE_BF16) {
        packed_add_as((packed_meaning){BERTH_DTYPE_BF16, 0, 0, 1}, by, group, in->rows, sums);
    } else if (!are_integers && !are_turned && by->dtype == BERTH_DTYPE_BF16) {
        packed_add_as((packed_meaning){BERTH_DTYPE_BF16, 0, 0, 0}, by, group, in->rows, sums);
    } else {
        packed_add_as((packed_meaning){by->dtype, are_integers, are_turned, are_fixed}, by, group,
                      in->rows, sums);
    }
}

#endif
