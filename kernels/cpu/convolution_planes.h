// SPDX-License-Identifier: Apache-2.0
// Convolutions by a kernel of one element as products of matrices: y = weight · x, of which each
// already lies as one of them wants it. Outputs are the rows; what is a panel elsewhere
// (linear_panel.h) is PANEL positions of x, whose channels only have to be joined two by two; and
// sums are lines of y. So nothing is transposed but the weight, which is small beside them.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_PLANES_H
#define BERTH_KERNELS_CPU_CONVOLUTION_PLANES_H

#include <cpu/convolution_stripes.h>

#define CONV_BLOCK  256         // positions that a part takes at once
#define CONV_PLANE  (2 * PANEL) // positions, fewer are not worth it
#define CONV_BEFORE 16          // channels of x that come from afar while others are joined

// ---- sizes --------------------------------------------------------------------------------------

// Whether it is done so, of an instance whose product is known. Why not by more outputs than an
// image has positions: turning the weight then takes longer than turning x.
static inline int conv_is_planes(const convolution *self) {
    const berth_conv *conv = &self->conv;
    int is_plain = berth_conv_volume(conv->kernel) == 1;
    for (int dim = 0; dim < 3; ++dim) {
        is_plain = is_plain && conv->stride[dim] == 1 && conv->padding[dim] == 0;
    }
    const int64_t positions = berth_conv_volume(conv->positions);
    return is_plain && self->product == MATRIX_BF16 && positions >= CONV_PLANE &&
           positions >= self->outputs;
}

static inline int64_t conv_row_words(const convolution *self) {
    return panel_floats(self->conv.channels, self->product);
}

static inline int64_t conv_pairs(const convolution *self) {
    return pieces(self->conv.channels, 2);
}

// Of the weight's rows, which all parts share; then of the sums and the panels of a part.
static inline uint64_t conv_rows_bytes(const convolution *self) {
    return panel_bytes_of(self->conv.out * conv_row_words(self) + CONV_BEHIND);
}

static inline uint64_t conv_sums_bytes(void) {
    return panel_bytes_of(CONV_ROWS * CONV_BLOCK);
}

static inline uint64_t conv_block_bytes(const convolution *self) {
    return conv_sums_bytes() + panel_bytes_of(conv_pairs(self) * CONV_BLOCK);
}

// ---- the weight ---------------------------------------------------------------------------------

// A line of words of some rows, of which a panel has as many pairs as are left.
static inline void conv_turn_line(const float *panel, int64_t pairs, int64_t rows, float *to) {
    _Alignas(BERTH_LINE) float last[MATRIX_WORDS][PANEL];
    if (pairs < MATRIX_WORDS) {
        memcpy(last, panel, (size_t)pairs * sizeof last[0]);
        memset(last[pairs], 0, (size_t)(MATRIX_WORDS - pairs) * sizeof last[0]);
        panel = last[0];
    }
    berth_transpose(panel, PANEL, MATRIX_WORDS, rows, to);
}

// Outputs of a panel become a block of rows: [lines][rows][16 words].
static inline void conv_turn_part(const void *work, int64_t part, int64_t parts) {
    const conv_job *job = work;
    const convolution *self = job->self;
    const int64_t panels = pieces(self->outputs, PANEL); // of a group
    const int64_t pairs = conv_pairs(self);
    const berth_span share = berth_share(self->conv.groups * panels, part, parts);
    for (int64_t i = share.first; i < share.end; ++i) {
        const int64_t first = i % panels * PANEL;
        const int64_t rows = at_most(PANEL, self->outputs - first);
        const char *panel = (const char *)berth_data(job->args->inputs[WEIGHT]) +
                            i * panel_bytes(self->columns, self->dtype);
        float *to = job->x + (i / panels * self->outputs + first) * conv_row_words(self);
        for (int64_t pair = 0; pair < pairs; pair += MATRIX_WORDS, to += rows * MATRIX_WORDS) {
            conv_turn_line((const float *)(const void *)(panel + pair * MATRIX_PAIR), pairs - pair,
                           rows, to);
        }
    }
}

// ---- a block ------------------------------------------------------------------------------------

// Positions of an image, and a group's channels.
typedef struct conv_block {
    int64_t image;
    int64_t group;
    int64_t first;
    int64_t count;
    float *sums;   // [panels][rows][PANEL]
    float *panels; // [panels][pairs][PANEL]
} conv_block;

static inline conv_block conv_block_at(const conv_job *job, int64_t index, char *room) {
    const convolution *self = job->self;
    const int64_t positions = berth_conv_volume(self->conv.positions);
    const int64_t blocks = pieces(positions, CONV_BLOCK); // of an image's group
    const int64_t first = index % blocks * CONV_BLOCK;
    return (conv_block){
        .image = index / blocks / self->conv.groups,
        .group = index / blocks % self->conv.groups,
        .first = first,
        .count = at_most(CONV_BLOCK, positions - first),
        .sums = (float *)(void *)room,
        .panels = (float *)(void *)(room + conv_sums_bytes()),
    };
}

// Two channels of a block, the second one NULL for zeros, to their places in its panels.
static inline void conv_join_block(const conv_block *of, const uint16_t *first,
                                   const uint16_t *second, int64_t of_panel, float *to) {
    int64_t at = 0;
    for (; at + PANEL <= of->count; at += PANEL, to += of_panel) {
        conv_join(first + at, second ? second + at : NULL, PANEL, to);
    }
    if (at < of->count) {
        const int64_t rest = of->count - at;
        conv_join(first + at, second ? second + at : NULL, rest, to);
        memset(to + rest, 0, (size_t)(PANEL - rest) * sizeof *to);
    }
}

static inline void conv_pack_block(const conv_job *job, const conv_block *of) {
    const convolution *self = job->self;
    const int64_t channels = self->conv.channels;
    const int64_t apart = berth_conv_volume(self->conv.size);
    const int64_t plane = of->image * self->conv.in + of->group * channels;
    const int64_t pairs = conv_pairs(self);
    const uint16_t *x =
        (const uint16_t *)berth_data(job->args->inputs[X]) + plane * apart + of->first;
    for (int64_t pair = 0; pair < pairs; ++pair, x += 2 * apart) {
        berth_fetch_far(x, BERTH_DTYPE_BF16, CONV_BEFORE * apart, CONV_BLOCK, 0);
        berth_fetch_far(x, BERTH_DTYPE_BF16, (CONV_BEFORE + 1) * apart, CONV_BLOCK, 0);
        conv_join_block(of, x, 2 * pair + 1 < channels ? x + apart : NULL, pairs * PANEL,
                        of->panels + pair * PANEL);
    }
}

// Two vectors of bf16; the machine rounds subnormal numbers to 0, which stay here.
BERTH_INLINE void conv_store_two(int is_joined, uint16_t *y, berth_vec first, berth_vec second) {
    if (is_joined && !berth_vec_has_subnormal(first, second)) {
        berth_vec_store((float *)(void *)y, berth_vec_join_bf16(first, second));
    } else {
        berth_vec_store_as(y, BERTH_DTYPE_BF16, 0, first);
        berth_vec_store_as(y, BERTH_DTYPE_BF16, BERTH_LANES, second);
    }
}

// The sums of an output to its line of y.
static inline void conv_store_line(const conv_job *job, const conv_block *of, int64_t output,
                                   int64_t of_panel, const float *sums) {
    const berth_conv *conv = &job->self->conv;
    const berth_tensor *bias = job->args->inputs[BIAS];
    const int64_t plane = of->image * conv->out + output;
    const berth_vec start =
        berth_vec_of(bias ? berth_load_at(berth_data(bias), bias->dtype, output) : 0);
    uint16_t *y = (uint16_t *)berth_data(job->args->outputs[0]) +
                  plane * berth_conv_volume(conv->positions) + of->first;
    const int is_joined = berth_vec_has_dot();
    int64_t i = 0;
    for (; i + PANEL <= of->count; i += PANEL, sums += of_panel) {
        BERTH_UNROLL
        for (int64_t k = 0; k < PANEL; k += 2 * BERTH_LANES) {
            conv_store_two(is_joined, y + i + k, berth_vec_load(sums + k) + start,
                           berth_vec_load(sums + k + BERTH_LANES) + start);
        }
    }
    for (; i < of->count; i += BERTH_LANES, sums += BERTH_LANES) {
        berth_vec_store_some(y, BERTH_DTYPE_BF16, i, of->count, berth_vec_load(sums) + start);
    }
}

// Some outputs of a group by a block that is packed.
static inline void conv_multiply_block(const conv_job *job, const conv_block *of,
                                       berth_span outputs) {
    const convolution *self = job->self;
    const int64_t output = of->group * self->outputs + outputs.first;
    const panel_work product = {
        .weight = (const char *)of->panels,
        .count = pieces(of->count, PANEL),
        .columns = self->conv.channels,
        .product = self->product,
        .x = job->x + output * conv_row_words(self),
        .rows = outputs.end - outputs.first,
        .sums = of->sums,
    };
    panel_multiply(&product);
    for (int64_t i = 0; i < product.rows; ++i) {
        conv_store_line(job, of, output + i, product.rows * PANEL, of->sums + i * PANEL);
    }
}

static inline void conv_planes_part(const void *work, int64_t part, int64_t parts) {
    const conv_job *job = work;
    const convolution *self = job->self;
    const berth_span share = berth_share(job->rows, part, parts);
    char *room = job->scratch + (uint64_t)part * conv_block_bytes(self);
    for (int64_t i = share.first; i < share.end; ++i) {
        const conv_block block = conv_block_at(job, i, room);
        conv_pack_block(job, &block);
        for (int64_t first = 0; first < self->outputs; first += CONV_ROWS) {
            const int64_t end = at_most(first + CONV_ROWS, self->outputs);
            conv_multiply_block(job, &block, (berth_span){first, end});
        }
    }
}

static inline void conv_forward_planes(conv_job *job) {
    const convolution *self = job->self;
    const int64_t positions = berth_conv_volume(self->conv.positions);
    const int64_t images = job->args->inputs[X]->shape[0];
    const int is_alone = images * positions * self->columns * self->conv.out < CONV_ALONE;
    job->rows = images * self->conv.groups * pieces(positions, CONV_BLOCK);
    job->scratch = (char *)job->x + conv_rows_bytes(self);
    berth_run(self->cpu, conv_turn_part, job, is_alone ? 0 : BERTH_ALONE);
    berth_run(self->cpu, conv_planes_part, job, is_alone ? 0 : BERTH_ALONE);
}

#endif
