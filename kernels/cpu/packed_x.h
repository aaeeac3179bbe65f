// SPDX-License-Identifier: Apache-2.0
// How x is packed for products by a weight of codes (packed_run.h): its rows in blocks, what each
// is scaled by, and where the arithmetic needs them the sums of its groups.
#ifndef BERTH_KERNELS_CPU_PACKED_X_H
#define BERTH_KERNELS_CPU_PACKED_X_H

#include <cpu/packed_fixed.h>

#define PACKED_WORDS 64 // of a row at a time

_Static_assert(2 * PACKED_WORDS <= FIXED_COLUMNS, "words of a row are packed at once");

// The row of x that is row `row` of those at hand.
static inline int64_t packed_row_at(const packed_job *in, int64_t row) {
    return in->order ? in->order[in->first + row] : in->first + row;
}

// Columns of a row as floats; with a permutation those of inputs in another order.
static inline void packed_load_floats(const berth_tensor *x, const berth_tensor *permutation,
                                      int64_t row, berth_span columns, float *to) {
    const void *from = berth_row(x, row);
    const int64_t count = columns.end - columns.first;
    if (!permutation) {
        berth_load(from, x->dtype, columns.first, count, to);
        return;
    }
    const int32_t *of_column = (const int32_t *)berth_data(permutation) + columns.first;
    for (int64_t i = 0; i < count; ++i) {
        to[i] = berth_load_at(from, x->dtype, of_column[i]);
    }
}

static inline void packed_load_words(const packed_job *in, int64_t row, int64_t first,
                                     int64_t count, float *to) {
    const int64_t at = packed_row_at(in, row);
    float values[2 * PACKED_WORDS] = {0};
    const int is_two = is_paired(in->self->product);
    if (in->self->is_fixed) {
        const berth_span columns = {2 * first, 2 * (first + count)};
        fixed_load(&(fixed_row){in, at, columns}, row, to);
        return;
    }
    if (!is_two && in->self->product != TIMES_F32) {
        in->load(in, at, first, count, to);
        return;
    }
    const int64_t column = first * (1 + is_two);
    if (is_two && in->plain && column + 2 * count <= in->self->in) { // bf16 by bf16
        memcpy(to, (const uint16_t *)berth_row(in->plain, at) + column, (size_t)count * 4);
        return;
    }
    const int64_t there = at_most(count * (1 + is_two), in->self->in - column);
    if (there > 0) {
        in->load(in, at, column, there, values);
    }
    if (is_two) {
        panel_join(values, count, to);
    } else {
        memcpy(to, values, (size_t)count * sizeof(float));
    }
}

static inline void packed_pack_block(const packed_job *in, int64_t first, int64_t end) {
    const int64_t words = packed_x_words(in->self);
    float *to = in->x + first * words;
    _Alignas(64) float piece[MOST_TILE_ROWS][PACKED_WORDS];
    for (int64_t word = 0; word < words; word += PACKED_WORDS) {
        const int64_t count = at_most(PACKED_WORDS, words - word);
        for (int64_t row = first; row < end; ++row) {
            packed_load_words(in, row, word, count, piece[row - first]);
        }
        tile_pack(in->self->product, piece[0], PACKED_WORDS, count,
                  (tile_block){to + word * (end - first), end - first});
    }
    if (packed_is_by_bytes(in->self->kind, in->self->product, in->rows)) {
        fixed_split(in->self, to);
    }
}

// The sum of columns [first, end) of a row, lane by lane.
static inline float packed_sum_plain(const packed_job *in, int64_t row, int64_t first,
                                     int64_t end) {
    const void *x = berth_row(in->plain, row);
    berth_vec sum = berth_vec_of(0);
    for (int64_t i = first; i < end; i += BERTH_LANES) {
        sum += berth_vec_load_some(x, in->plain->dtype, i, end);
    }
    return berth_vec_sum(sum);
}

static inline float packed_sum(const packed_job *in, int64_t row, int64_t first, int64_t end) {
    if (in->plain) {
        return packed_sum_plain(in, row, first, end);
    }
    berth_vec sum = berth_vec_of(0);
    float values[PACKED_WORDS];
    for (int64_t column = first; column < end; column += PACKED_WORDS) {
        const int64_t count = at_most(PACKED_WORDS, end - column);
        in->floats(in, row, column, count, values);
        for (int64_t i = 0; i < count; i += BERTH_LANES) {
            sum += berth_vec_load_some(values, BERTH_DTYPE_F32, i, count);
        }
    }
    return berth_vec_sum(sum);
}

// The scale of a row of x for a group.
static inline float packed_x_scale(const packed_job *in, int64_t row, int64_t group) {
    const berth_tensor *scales = in->x_scales;
    if (!scales) {
        return 1;
    }
    const int64_t length = berth_row_length(scales);
    const int is_one = length == 1 && berth_row_count(scales) == 1;
    const float *of_row = berth_row(scales, is_one ? 0 : row);
    return of_row[length == 1 ? 0 : group];
}

// What stands beside rows [first, end): scales, and sums of groups. In fixed point before the rows
// are packed.
static inline void packed_sum_rows(const packed_job *in, int64_t first, int64_t end) {
    const packed *self = in->self;
    const int64_t group = packed_group_columns(self);
    for (int64_t row = first; row < end; ++row) {
        const int64_t at = packed_row_at(in, row);
        for (int64_t i = 0; i < self->groups; ++i) {
            const berth_span columns = {i * group, at_most((i + 1) * group, self->in)};
            const int64_t place = i * in->rows + row;
            float scale = 1;
            in->sums[place] = self->is_fixed   ? fixed_group(&(fixed_row){in, at, columns}, &scale)
                              : self->has_sums ? packed_sum(in, at, columns.first, columns.end)
                                               : 0;
            in->scales_of_x[place] = scale * packed_x_scale(in, at, i);
        }
    }
}

static inline void packed_pack_part(const void *work, int64_t part, int64_t parts) {
    const packed_job *in = work;
    const int64_t height = tile_height(in->self->product, in->rows);
    const berth_span blocks = berth_share(pieces(in->rows, height), part, parts);
    for (int64_t first = blocks.first * height; first < at_most(blocks.end * height, in->rows);
         first += height) {
        const int64_t end = at_most(first + height, in->rows);
        if (in->self->is_fixed) {
            packed_sum_rows(in, first, end);
        }
        packed_pack_block(in, first, end);
    }
    if (!in->self->is_fixed) {
        const berth_span rows = berth_share(in->rows, part, parts);
        packed_sum_rows(in, rows.first, rows.end);
    }
}

#endif
