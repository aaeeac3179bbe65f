// SPDX-License-Identifier: Apache-2.0
// Patches of a convolution column by column: where they overlap, neighbours in a line of y read
// neighbours in a line of x.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_COLUMNS_H
#define BERTH_KERNELS_CPU_CONVOLUTION_COLUMNS_H

#include <cpu/convolution_patches.h>

#define CONV_RUNS   4 // no more of them: a vector each
#define CONV_AHEAD  8 // channels of x, that come nearer
#define CONV_ABSENT (-1)

// What one tap of the kernel meets at the rows of a block: elements of x, counted from the first
// channel of the group in the first row's image, or CONV_ABSENT in the padding. A run is one row or
// several that are neighbours in x or all absent, no more than a vector has.
typedef struct conv_tap {
    int64_t at[BERTH_TILE_ROWS];
    int64_t runs[BERTH_TILE_ROWS]; // first row of each
    int64_t run_count;
} conv_tap;

// Where the kernel lies at a row.
typedef struct conv_place {
    int64_t image; // elements of x before its image
    int64_t first[3];
} conv_place;

static inline conv_place conv_place_of(const berth_conv *conv, int64_t row, int64_t first_image) {
    const int64_t positions = berth_conv_volume(conv->positions);
    const int64_t image = row / positions - first_image;
    conv_place place = {.image = image * conv->in * berth_conv_volume(conv->size)};
    berth_conv_split(conv->positions, row % positions, place.first);
    for (int dim = 0; dim < 3; ++dim) {
        place.first[dim] = place.first[dim] * conv->stride[dim] - conv->padding[dim];
    }
    return place;
}

static inline int64_t conv_meet(const berth_conv *conv, const conv_place *place,
                                const int64_t reach[3]) {
    const int64_t z = place->first[0] + reach[0];
    const int64_t y = place->first[1] + reach[1];
    const int64_t x = place->first[2] + reach[2];
    const int is_there =
        z >= 0 && z < conv->size[0] && y >= 0 && y < conv->size[1] && x >= 0 && x < conv->size[2];
    return is_there ? place->image + (z * conv->size[1] + y) * conv->size[2] + x : CONV_ABSENT;
}

static inline void conv_find_runs(conv_tap *tap, int64_t rows) {
    tap->run_count = 0;
    for (int64_t row = 0, first = 0; row < rows; ++row) {
        const int64_t step = tap->at[first] < 0 ? 0 : row - first;
        const int is_next =
            row > first && row - first < BERTH_LANES && tap->at[row] == tap->at[first] + step;
        if (!is_next) {
            first = row;
            tap->runs[tap->run_count++] = row;
        }
    }
}

static inline void conv_find_taps(const conv_job *job, berth_span rows, conv_tap *taps) {
    const berth_conv *conv = &job->self->conv;
    const int64_t image = rows.first / berth_conv_volume(conv->positions);
    const int64_t count = rows.end - rows.first;
    conv_place places[BERTH_TILE_ROWS];
    for (int64_t row = 0; row < count; ++row) {
        places[row] = conv_place_of(conv, rows.first + row, image);
    }
    for (int64_t index = 0; index < berth_conv_volume(conv->kernel); ++index) {
        int64_t reach[3];
        berth_conv_split(conv->kernel, index, reach);
        for (int dim = 0; dim < 3; ++dim) {
            reach[dim] *= conv->dilation[dim];
        }
        for (int64_t row = 0; row < count; ++row) {
            taps[index].at[row] = conv_meet(conv, &places[row], reach);
        }
        conv_find_runs(&taps[index], count);
    }
}

// A column of a block; dtype is constant. With room behind both, whole vectors are moved: what
// stands behind a run is written again by the next one, or by the next column.
BERTH_INLINE void conv_take(const void *channel, berth_dtype dtype, const conv_tap *tap,
                            int64_t rows, float *to) {
    for (int64_t row = 0; row < rows; ++row) {
        to[row] = tap->at[row] < 0 ? 0 : berth_load_at(channel, dtype, tap->at[row]);
    }
}

BERTH_INLINE void conv_take_runs(const void *channel, berth_dtype dtype, const conv_tap *tap,
                                 float *to) {
    for (int64_t run = 0; run < tap->run_count; ++run) {
        const int64_t row = tap->runs[run];
        const int64_t at = tap->at[row];
        berth_vec_store(to + row, at < 0 ? berth_vec_of(0) : berth_vec_load_as(channel, dtype, at));
    }
}

// A block whose columns are written one after the other.
typedef struct conv_block {
    const conv_job *job;
    const conv_tap *taps;
    int64_t rows;
    int64_t safe;  // columns behind which there is room for a vector, in x and in the block
    const char *x; // the group's first channel in the image of the first row
    float *to;
} conv_block;

// Columns of a block that may be moved by whole vectors.
static inline int64_t conv_safe(const conv_job *job, int64_t rows) {
    const berth_conv *conv = &job->self->conv;
    const int64_t volume = berth_conv_volume(conv->size);
    const int64_t last = conv->groups - 1 == job->group ? pieces(BERTH_LANES, volume) : 0;
    const int64_t in_x = (conv->in / conv->groups - last) * berth_conv_volume(conv->kernel);
    return at_most(in_x, job->self->columns - pieces(BERTH_LANES, rows));
}

static inline conv_block conv_block_of(const conv_job *job, berth_span rows, const conv_tap *taps) {
    const convolution *self = job->self;
    const berth_conv *conv = &self->conv;
    const berth_tensor *x = job->args->inputs[X];
    const int64_t image = rows.first / berth_conv_volume(conv->positions);
    const int64_t channel = image * conv->in + job->group * (conv->in / conv->groups);
    return (conv_block){
        .job = job,
        .taps = taps,
        .rows = rows.end - rows.first,
        .safe = conv_safe(job, rows.end - rows.first),
        .x = (const char *)berth_data(x) +
             channel * berth_conv_volume(conv->size) * (int64_t)(BERTH_DTYPE_BITS(x->dtype) / 8),
        .to = job->x + (rows.first - job->first) * panel_floats(self->columns, self->product),
    };
}

// Where a column stands. Why not found by division: that costs as much as to move a column.
typedef struct conv_at {
    int64_t column;
    int64_t tap;
    const char *channel;
} conv_at;

BERTH_INLINE void conv_next(conv_at *at, int64_t taps, int64_t channel_bytes) {
    ++at->column;
    if (++at->tap == taps) {
        at->tap = 0;
        at->channel += channel_bytes;
    }
}

BERTH_INLINE void conv_column(const conv_block *block, berth_dtype dtype, const conv_at *at,
                              float *to) {
    const conv_tap *tap = &block->taps[at->tap];
    if (at->column < block->safe && tap->run_count <= CONV_RUNS) {
        conv_take_runs(at->channel, dtype, tap, to);
    } else if (block->rows == BERTH_TILE_ROWS) {
        conv_take(at->channel, dtype, tap, BERTH_TILE_ROWS, to);
    } else {
        conv_take(at->channel, dtype, tap, block->rows, to);
    }
}

// Some columns as panel_pack has them.
BERTH_INLINE void conv_pack_columns(const conv_block *block, berth_dtype dtype,
                                    berth_span columns) {
    const convolution *self = block->job->self;
    const int64_t taps = berth_conv_volume(self->conv.kernel);
    const int64_t bytes =
        berth_conv_volume(self->conv.size) * (int64_t)(BERTH_DTYPE_BITS(dtype) / 8);
    conv_at at = {
        .column = columns.first,
        .tap = columns.first % taps,
        .channel = block->x + columns.first / taps * bytes,
    };
    float *to = block->to + columns.first * block->rows;
    for (; at.column < columns.end; to += block->rows) {
        if (at.tap == 0) { // the strides defeat the machine's prefetchers
            BERTH_PREFETCH(at.channel + CONV_AHEAD * bytes +
                           block->taps[0].at[0] * (int64_t)(BERTH_DTYPE_BITS(dtype) / 8));
        }
        conv_column(block, dtype, &at, to);
        conv_next(&at, taps, bytes);
    }
    if (columns.end == self->columns && self->columns % 2) {
        memset(to, 0, (size_t)block->rows * sizeof *to);
    }
}

// The same as pairs of bf16; the first is an even one.
static inline void conv_pack_pairs(const conv_block *block, berth_span columns) {
    const convolution *self = block->job->self;
    const int64_t taps = berth_conv_volume(self->conv.kernel);
    const int64_t bytes = berth_conv_volume(self->conv.size) * (int64_t)sizeof(uint16_t);
    conv_at at = {
        .column = columns.first,
        .tap = columns.first % taps,
        .channel = block->x + columns.first / taps * bytes,
    };
    float *to = block->to + columns.first / 2 * block->rows;
    for (; at.column < columns.end; to += block->rows) {
        float pair[2][BERTH_TILE_ROWS + BERTH_LANES] = {{0}};
        for (int half = 0; half < 2 && at.column < columns.end; ++half) {
            conv_column(block, BERTH_DTYPE_BF16, &at, pair[half]);
            conv_next(&at, taps, bytes);
        }
        for (int64_t row = 0; row < block->rows; ++row) {
            to[row] = berth_float_of_bits(berth_bits_of_float(pair[0][row]) >> 16 |
                                          berth_bits_of_float(pair[1][row]));
        }
    }
}

static inline void conv_pack_strip(const conv_block *block, berth_span columns) {
    const berth_dtype dtype = block->job->args->inputs[X]->dtype;
    if (block->job->self->product == DOT_BF16) {
        conv_pack_pairs(block, columns);
    } else if (dtype == BERTH_DTYPE_F32) {
        conv_pack_columns(block, BERTH_DTYPE_F32, columns);
    } else if (dtype == BERTH_DTYPE_BF16) {
        conv_pack_columns(block, BERTH_DTYPE_BF16, columns);
    } else {
        conv_pack_columns(block, BERTH_DTYPE_F16, columns);
    }
}

#endif
