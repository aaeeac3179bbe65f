// SPDX-License-Identifier: Apache-2.0
// What the kernels of convolutions know of an instance, and patches that do not overlap: rows of a
// product (panels.h), since lines of the kernel are lines of x there.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_PATCHES_H
#define BERTH_KERNELS_CPU_CONVOLUTION_PATCHES_H

#include <conv.h>
#include <cpu/convolution_tile.h>
#include <cpu/fetch.h>
#include <cpu/panels.h>

enum { X, WEIGHT, BIAS };

#define CONV_ROWS   256        // at a time
#define CONV_PANELS 4          // that take turns with a chunk of the rows
#define CONV_CHUNK  (16 << 10) // bytes of a panel's chunk, with x what the first cache can keep
#define CONV_LINES  20         // of a chunk by matrices
#define CONV_AHEAD  4          // channels of x that are on their way while one is packed
#define CONV_ALONE  (1 << 18)
#define CONV_BEHIND 256 // floats behind a stripe of x, which a half of matrices may read

typedef struct convolution {
    const berth_host *host;
    berth_cpu *cpu;
    berth_conv conv;
    int64_t columns; // of a panel
    int64_t outputs; // of a group
    berth_dtype dtype;
    int product;
    int is_patches; // rows are patches
    int is_planes;  // as convolution_planes.h has them; else as convolution_stripes.h does
    // Of a stripe, the largest.
    int64_t width;       // positions of a line of y
    int64_t lines;       // of y
    int64_t pitch;       // floats of every phase of a line of x
    int64_t x_lines;     // of x
    int64_t x_floats;    // of a channel, or of a pair of them as words of two
    int64_t chunk_pairs; // channels multiplied before the next ones, in pairs
} convolution;

// One forward, of patches some rows of it.
typedef struct conv_job {
    const convolution *self;
    const berth_op_args *args;
    int64_t first; // row: image by image, position by position
    int64_t rows;
    float *x; // packed
    char *scratch;
} conv_job;

// ---- what both ways share -----------------------------------------------------------------------

// Of a part.
typedef struct conv_room {
    float *sums;    // [CONV_PANELS][rows][PANEL]
    float *widened; // a chunk of a panel; then the sums of a panel, [PANEL][rows]
    float *line;    // of x, or as many as matrices take at once, twice
    float *x;       // of a stripe
    conv_tap *taps;
} conv_room;

// The largest chunk of a stripe, in taps of pairs of channels: all of a pair at least.
static inline int64_t conv_chunk(const convolution *self) {
    const int64_t taps = berth_conv_volume(self->conv.kernel);
    const int64_t most = CONV_CHUNK / line_bytes(is_paired(self->product) ? DOT_BF16 : TIMES_F32);
    return taps < most ? most / taps * taps : taps;
}

// Floats of a chunk that is widened, or of the sums of a panel.
static inline int64_t conv_widened(const convolution *self) {
    const int64_t pairs = self->is_patches ? PANEL_CHUNK : conv_chunk(self);
    return (2 * pairs > CONV_ROWS ? 2 * pairs : CONV_ROWS) * PANEL;
}

// Lays a part's room out; returns its bytes.
static inline uint64_t conv_lay_out(const convolution *self, char *memory, conv_room *out) {
    const berth_conv *conv = &self->conv;
    const int64_t words = panel_floats(conv->channels, self->product);
    const int64_t lines = is_matrix(self->product) ? 2 * MATRIX_WORDS : 1;
    const uint64_t bytes[] = {
        panel_bytes_of(CONV_PANELS * CONV_ROWS * PANEL),
        panel_bytes_of(conv_widened(self)),
        panel_bytes_of(lines * conv->stride[2] * self->pitch),
        panel_bytes_of(self->is_patches ? 0 : words * self->x_floats + CONV_BEHIND),
        ((uint64_t)conv_chunk(self) * sizeof(conv_tap) + 63) / 64 * 64,
    };
    uint64_t at[6] = {0};
    for (int i = 0; i < 5; ++i) {
        at[i + 1] = at[i] + bytes[i];
    }
    if (memory) {
        out->sums = (float *)(void *)memory;
        out->widened = (float *)(void *)(memory + at[1]);
        out->line = (float *)(void *)(memory + at[2]);
        out->x = (float *)(void *)(memory + at[3]);
        out->taps = (conv_tap *)(void *)(memory + at[4]);
    }
    return at[5];
}

static inline conv_room conv_room_of(const convolution *self, char *scratch, int64_t part) {
    conv_room room = {NULL};
    (void)conv_lay_out(self, scratch + (uint64_t)part * conv_lay_out(self, NULL, NULL), &room);
    return room;
}

// The sums of output `output` of some panels, asked for in order.
static inline float *conv_sums_of(conv_room room, int64_t rows, int64_t output) {
    if (output % PANEL == 0) {
        berth_transpose(room.sums + output * rows, PANEL, rows, PANEL, room.widened);
    }
    return room.widened + output % PANEL * rows;
}

// The sums of one output of an image to its positions from `position` on.
static inline void conv_store(const conv_job *job, int64_t plane, int64_t position, int64_t count,
                              float *sums) {
    const berth_tensor *y = job->args->outputs[0];
    const berth_tensor *bias = job->args->inputs[BIAS];
    const berth_conv *conv = &job->self->conv;
    const float start = bias ? berth_load_at(berth_data(bias), bias->dtype, plane % conv->out) : 0;
    for (int64_t i = 0; i < count && bias; ++i) {
        sums[i] += start;
    }
    berth_store(berth_data(y), y->dtype, plane * berth_conv_volume(conv->positions) + position,
                count, sums);
}

// ---- patches ------------------------------------------------------------------------------------

// Columns of a patch: lines of the kernel, channel by channel, which lie in x as they are.
static inline void conv_load(const void *context, int64_t row, int64_t first, int64_t count,
                             void *to) {
    const conv_job *job = context;
    const berth_conv *conv = &job->self->conv;
    const berth_tensor *x = job->args->inputs[X];
    const int64_t positions = berth_conv_volume(conv->positions);
    const int64_t taps = berth_conv_volume(conv->kernel);
    const int64_t image = row / positions * conv->in;
    int64_t position[3];
    berth_conv_split(conv->positions, row % positions, position);
    for (int64_t column = first, taken = 0; column < first + count; column += taken) {
        int64_t tap[3];
        berth_conv_split(conv->kernel, column % taps, tap);
        taken = at_most(conv->kernel[2] - tap[2], first + count - column);
        int64_t at = image + column / taps;
        for (int dim = 0; dim < 3; ++dim) {
            at = at * conv->size[dim] + position[dim] * conv->stride[dim] + tap[dim];
        }
        if (is_paired(job->self->product)) {
            memcpy((uint16_t *)to + (column - first), (const uint16_t *)berth_data(x) + at,
                   (size_t)taken * sizeof(uint16_t));
        } else {
            berth_load(berth_data(x), x->dtype, at, taken, (float *)to + (column - first));
        }
    }
}

static inline void conv_pack_part(const void *work, int64_t part, int64_t parts) {
    const conv_job *job = work;
    const convolution *self = job->self;
    const panel_rows patches = {conv_load, job, self->columns, self->product};
    const int64_t words = panel_floats(self->columns, self->product);
    const int64_t height = tile_height(self->product, job->rows);
    const berth_span blocks = berth_share(pieces(job->rows, height), part, parts);
    for (int64_t block = blocks.first; block < blocks.end; ++block) {
        const int64_t row = block * height;
        const int64_t end = at_most(row + height, job->rows);
        panel_pack(&patches, job->first + row, job->first + end, job->x + row * words);
    }
}

static inline void conv_multiply_part(const void *work, int64_t part, int64_t parts) {
    const conv_job *job = work;
    const convolution *self = job->self;
    const int64_t positions = berth_conv_volume(self->conv.positions);
    const berth_span share = berth_share(pieces(self->outputs, PANEL), part, parts);
    const conv_room room = conv_room_of(self, job->scratch, part);
    panel_work product = {
        .columns = self->columns,
        .product = self->product,
        .x = job->x,
        .rows = job->rows,
        .sums = room.sums,
        .widened = room.widened,
    };
    for (int64_t panel = share.first; panel < share.end; panel += product.count) {
        product.count = at_most(CONV_PANELS, share.end - panel);
        product.weight = (const char *)berth_data(job->args->inputs[WEIGHT]) +
                         panel * panel_bytes(self->columns, self->dtype);
        panel_multiply(&product);
        const int64_t count = at_most(product.count * PANEL, self->outputs - panel * PANEL);
        for (int64_t i = 0; i < count; ++i) {
            float *sums = conv_sums_of(room, job->rows, i);
            for (int64_t row = 0, taken = 0; row < job->rows; row += taken) {
                const int64_t at = job->first + row;
                taken = at_most(positions - at % positions, job->rows - row);
                conv_store(job, at / positions * self->conv.out + panel * PANEL + i, at % positions,
                           taken, sums + row);
            }
        }
    }
}

static inline void conv_forward_patches(conv_job *job) {
    const convolution *self = job->self;
    const int64_t rows = job->args->inputs[X]->shape[0] * berth_conv_volume(self->conv.positions);
    job->scratch =
        (char *)job->x + panel_bytes_of(CONV_ROWS * panel_floats(self->columns, self->product));
    for (; job->first < rows; job->first += job->rows) {
        job->rows = at_most(CONV_ROWS, rows - job->first);
        const int is_alone = job->rows * self->columns * self->outputs < CONV_ALONE;
        berth_run(self->cpu, conv_pack_part, job, is_alone ? 0 : BERTH_ALONE);
        berth_run(self->cpu, conv_multiply_part, job, is_alone ? 0 : BERTH_ALONE);
    }
}

#endif
