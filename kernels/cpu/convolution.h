// SPDX-License-Identifier: Apache-2.0
// conv2d and conv3d as products: a row is the patch of x under the kernel at one position of y,
// channels first, and meets the kernels of all outputs of its group as panels of a weight
// (panels.h). Patches are gathered as they are packed, so none is kept: row by row where they do
// not overlap, since then lines of the kernel are lines of x; else column by column, since then
// neighbours in a line of y read neighbours in a line of x.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_H
#define BERTH_KERNELS_CPU_CONVOLUTION_H

#include <conv.h>
#include <cpu/panels.h>

enum { X, WEIGHT, BIAS };

#define CONV_ROWS   256 // at a time
#define CONV_STRIP  32  // columns of all blocks of a part, before the next ones
#define CONV_PANELS 4   // that take turns with a chunk of the rows
#define CONV_ALONE  (1 << 18)
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

typedef struct convolution {
    const berth_host *host;
    berth_cpu *cpu;
    berth_conv conv;
    int64_t columns; // of a patch
    int64_t outputs; // of a group
    berth_dtype dtype;
    int product;
} convolution;

// Some rows of one group.
typedef struct conv_job {
    const convolution *self;
    const berth_op_args *args;
    int64_t group;
    int64_t first; // row: image by image, position by position
    int64_t rows;
    float *x; // packed
    char *scratch;
} conv_job;

// ---- instances ----------------------------------------------------------------------------------

static inline berth_status conv_supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return site->parameter_mask & UINT64_C(1) << WEIGHT
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "'weight' is not a parameter and cannot be packed");
}

static inline int64_t conv_columns(const berth_value_type *weight) {
    int64_t columns = 1;
    for (uint32_t dim = 1; dim < weight->ndim; ++dim) {
        columns *= weight->dims[dim].b;
    }
    return columns;
}

static inline uint64_t conv_packed_bytes(const berth_op_site *site, uint64_t input) {
    const berth_value_type *weight = site->inputs[WEIGHT];
    const int64_t groups = berth_site_attribute(site, "groups")->i64;
    const int64_t panels = pieces(weight->dims[0].b / groups, PANEL);
    return input == WEIGHT
               ? (uint64_t)(groups * panels * panel_bytes(conv_columns(weight), weight->dtype))
               : 0;
}

static inline berth_status conv_pack(const berth_op_site *site, uint64_t input,
                                     const berth_tensor *source, const berth_tensor *destination) {
    (void)input; // the weight is the only one with a packed size
    const int64_t groups = berth_site_attribute(site, "groups")->i64;
    const int64_t columns = conv_columns(site->inputs[WEIGHT]);
    const int64_t shape[] = {source->shape[0] / groups, columns};
    const int64_t strides[] = {columns, 1};
    const uint64_t bytes = conv_packed_bytes(site, WEIGHT) / (uint64_t)groups;
    berth_tensor kernels = *source;
    kernels.ndim = 2;
    kernels.shape = shape;
    kernels.strides = strides;
    for (int64_t group = 0; group < groups; ++group) {
        pack_panels(&kernels, (char *)berth_data(destination) + (uint64_t)group * bytes);
        kernels.byte_offset += (uint64_t)(shape[0] * columns) * BERTH_DTYPE_BITS(source->dtype) / 8;
    }
    return BERTH_OK;
}

static inline berth_status conv_create(const berth_op_site *site, const berth_device *device,
                                       void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(convolution), out_self);
    if (status == BERTH_OK) {
        const berth_value_type *weight = site->inputs[WEIGHT];
        convolution *self = *out_self;
        self->cpu = device->self;
        berth_conv_read(site, (int)weight->ndim - 2, &self->conv);
        self->columns = conv_columns(weight);
        self->outputs = self->conv.out / self->conv.groups;
        self->dtype = weight->dtype;
        self->product = panel_product_of(weight->dtype, site->inputs[X]->dtype, self->cpu);
    }
    return status;
}

// Of a part: the sums of some panels and room for widening, or the taps of all blocks.
static inline uint64_t conv_scratch(const convolution *self) {
    const int64_t blocks = pieces(CONV_ROWS, BERTH_TILE_ROWS);
    const int64_t taps = berth_conv_volume(self->conv.kernel);
    const uint64_t of_taps = ((uint64_t)(blocks * taps) * sizeof(conv_tap) + 63) / 64 * 64;
    const uint64_t of_sums =
        panel_bytes_of(CONV_PANELS * CONV_ROWS * PANEL) + panel_bytes_of(2 * PANEL_CHUNK * PANEL);
    return of_taps > of_sums ? of_taps : of_sums;
}

static inline uint64_t conv_workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const convolution *self = state;
    return panel_bytes_of(CONV_ROWS * panel_floats(self->columns, self->product)) +
           (uint64_t)self->cpu->threads * conv_scratch(self);
}

// ---- patches ------------------------------------------------------------------------------------

// `count` elements of a line of x from `at` on, each `step` further; zero outside of [0, size).
static inline void conv_load_line(const berth_tensor *x, int64_t line, int64_t at,
                                  const int64_t run[3], float *to) {
    const int64_t size = run[0];
    const int64_t step = run[1];
    const int64_t count = run[2];
    if (step == 1 && at >= 0 && at + count <= size) {
        berth_load(berth_data(x), x->dtype, line + at, count, to);
        return;
    }
    for (int64_t i = 0; i < count; ++i, at += step) {
        to[i] = at < 0 || at >= size ? 0 : berth_load_at(berth_data(x), x->dtype, line + at);
    }
}

// Columns of a patch: lines of the kernel, channel by channel.
static inline void conv_load(const void *context, int64_t row, int64_t first, int64_t count,
                             float *to) {
    const conv_job *job = context;
    const berth_conv *conv = &job->self->conv;
    const int64_t positions = berth_conv_volume(conv->positions);
    const int64_t taps = berth_conv_volume(conv->kernel);
    const int64_t channels = conv->in / conv->groups;
    const int64_t image = row / positions * conv->in + job->group * channels;
    int64_t position[3];
    berth_conv_split(conv->positions, row % positions, position);
    const int64_t left = position[2] * conv->stride[2] - conv->padding[2];
    for (int64_t column = first, taken = 0; column < first + count; column += taken, to += taken) {
        int64_t tap[3];
        berth_conv_split(conv->kernel, column % taps, tap);
        taken = at_most(conv->kernel[2] - tap[2], first + count - column);
        const int64_t z =
            position[0] * conv->stride[0] - conv->padding[0] + tap[0] * conv->dilation[0];
        const int64_t y =
            position[1] * conv->stride[1] - conv->padding[1] + tap[1] * conv->dilation[1];
        const int is_there = z >= 0 && z < conv->size[0] && y >= 0 && y < conv->size[1];
        const int64_t plane = (image + column / taps) * conv->size[0] + z;
        const int64_t run[] = {is_there ? conv->size[2] : 0, conv->dilation[2], taken};
        conv_load_line(job->args->inputs[X], (plane * conv->size[1] + y) * conv->size[2],
                       left + tap[2] * conv->dilation[2], run, to);
    }
}

// ---- columns ------------------------------------------------------------------------------------

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

static inline berth_span conv_rows_of(const conv_job *job, int64_t block) {
    const int64_t height = panel_height(job->rows);
    return (berth_span){job->first + block * height,
                        job->first + at_most((block + 1) * height, job->rows)};
}

// Strip by strip, so that lines of x that two blocks share are still near.
static inline void conv_pack_blocks(const conv_job *job, berth_span blocks, conv_tap *taps) {
    const convolution *self = job->self;
    const int64_t of_block = berth_conv_volume(self->conv.kernel);
    for (int64_t block = blocks.first; block < blocks.end; ++block) {
        conv_find_taps(job, conv_rows_of(job, block), taps + (block - blocks.first) * of_block);
    }
    for (int64_t column = 0; column < self->columns; column += CONV_STRIP) {
        const berth_span strip = {column, at_most(column + CONV_STRIP, self->columns)};
        for (int64_t block = blocks.first; block < blocks.end; ++block) {
            const conv_block at = conv_block_of(job, conv_rows_of(job, block),
                                                taps + (block - blocks.first) * of_block);
            conv_pack_strip(&at, strip);
        }
    }
}

static inline void conv_pack_part(const void *work, int64_t part, int64_t parts) {
    const conv_job *job = work;
    const convolution *self = job->self;
    const panel_rows patches = {conv_load, job, self->columns, self->product};
    const int64_t words = panel_floats(self->columns, self->product);
    const berth_span blocks = berth_share(pieces(job->rows, panel_height(job->rows)), part, parts);
    char *scratch = job->scratch + (uint64_t)part * conv_scratch(self);
    if (!berth_conv_is_patches(&self->conv) || self->conv.kernel[2] == 1) {
        conv_pack_blocks(job, blocks, (conv_tap *)(void *)scratch);
        return;
    }
    for (int64_t block = blocks.first; block < blocks.end; ++block) {
        const berth_span rows = conv_rows_of(job, block);
        panel_pack(&patches, rows.first, rows.end, job->x + (rows.first - job->first) * words);
    }
}

// ---- products -----------------------------------------------------------------------------------

// The sums of one output to their positions of y.
static inline void conv_store(const conv_job *job, int64_t output, float *sums) {
    const berth_tensor *y = job->args->outputs[0];
    const berth_tensor *bias = job->args->inputs[BIAS];
    const berth_conv *conv = &job->self->conv;
    const int64_t positions = berth_conv_volume(conv->positions);
    const float start = bias ? berth_load_at(berth_data(bias), bias->dtype, output) : 0;
    for (int64_t row = 0; row < job->rows && bias; ++row) {
        sums[row] += start;
    }
    for (int64_t row = 0, taken = 0; row < job->rows; row += taken) {
        const int64_t position = (job->first + row) % positions;
        const int64_t image = (job->first + row) / positions;
        taken = at_most(positions - position, job->rows - row);
        berth_store(berth_data(y), y->dtype, (image * conv->out + output) * positions + position,
                    taken, sums + row);
    }
}

static inline void conv_multiply_part(const void *work, int64_t part, int64_t parts) {
    const conv_job *job = work;
    const convolution *self = job->self;
    const int64_t panels = pieces(self->outputs, PANEL);
    const berth_span share = berth_share(panels, part, parts);
    float *sums = (float *)(void *)(job->scratch + (uint64_t)part * conv_scratch(self));
    panel_work product = {
        .columns = self->columns,
        .product = self->product,
        .x = job->x,
        .rows = job->rows,
        .sums = sums,
        .widened = sums + CONV_PANELS * CONV_ROWS * PANEL,
    };
    for (int64_t panel = share.first; panel < share.end; panel += product.count) {
        product.count = at_most(CONV_PANELS, share.end - panel);
        product.weight = (const char *)berth_data(job->args->inputs[WEIGHT]) +
                         (job->group * panels + panel) * panel_bytes(self->columns, self->dtype);
        panel_multiply(&product);
        const int64_t count = at_most(product.count * PANEL, self->outputs - panel * PANEL);
        for (int64_t i = 0; i < count; ++i) {
            float *lines = product.widened; // [PANEL][rows], free again
            if (i % PANEL == 0) {
                berth_transpose(sums + i * job->rows, PANEL, job->rows, PANEL, lines);
            }
            conv_store(job, job->group * self->outputs + panel * PANEL + i,
                       lines + i % PANEL * job->rows);
        }
    }
}

static inline berth_status conv_forward(void *state, const berth_op_args *args) {
    const convolution *self = state;
    const berth_conv *conv = &self->conv;
    const int64_t rows = args->inputs[X]->shape[0] * berth_conv_volume(conv->positions);
    conv_job job = {.self = self, .args = args, .x = berth_data(args->workspace)};
    job.scratch =
        (char *)job.x + panel_bytes_of(CONV_ROWS * panel_floats(self->columns, self->product));
    for (; job.group < conv->groups; ++job.group) {
        for (job.first = 0; job.first < rows; job.first += job.rows) {
            job.rows = at_most(CONV_ROWS, rows - job.first);
            const int is_alone = job.rows * self->columns * self->outputs < CONV_ALONE;
            berth_run(self->cpu, conv_pack_part, &job, is_alone ? 0 : BERTH_ALONE);
            berth_run(self->cpu, conv_multiply_part, &job, is_alone ? 0 : BERTH_ALONE);
        }
    }
    return BERTH_OK;
}

#endif
