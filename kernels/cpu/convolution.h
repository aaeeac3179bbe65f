// SPDX-License-Identifier: Apache-2.0
// conv2d and conv3d as products: a row is the patch of x under the kernel at one position of y,
// channels first, and meets the kernels of all outputs of its group as panels of a weight
// (panels.h). Patches are gathered as they are packed, so none is kept.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_H
#define BERTH_KERNELS_CPU_CONVOLUTION_H

#include <conv.h>
#include <cpu/panels.h>

enum { X, WEIGHT, BIAS };

#define CONV_ROWS   256 // at a time
#define CONV_PANELS 4   // that take turns with a chunk of the rows
#define CONV_ALONE  (1 << 18)

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

static inline uint64_t conv_scratch(void) {
    return panel_bytes_of(CONV_PANELS * CONV_ROWS * PANEL) +
           panel_bytes_of(2 * PANEL_CHUNK * PANEL);
}

static inline uint64_t conv_workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const convolution *self = state;
    return panel_bytes_of(CONV_ROWS * panel_floats(self->columns, self->product)) +
           (uint64_t)self->cpu->threads * conv_scratch();
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

static inline void conv_pack_part(const void *work, int64_t part, int64_t parts) {
    const conv_job *job = work;
    const convolution *self = job->self;
    const panel_rows rows = {conv_load, job, self->columns, self->product};
    const int64_t height = panel_height(job->rows);
    const int64_t words = panel_floats(self->columns, self->product);
    const berth_span blocks = berth_share(pieces(job->rows, height), part, parts);
    for (int64_t block = blocks.first; block < blocks.end; ++block) {
        const int64_t row = block * height;
        panel_pack(&rows, job->first + row, job->first + at_most(row + height, job->rows),
                   job->x + row * words);
    }
}

// ---- products -----------------------------------------------------------------------------------

// The sums of one output, `step` apart, to their positions of y.
static inline void conv_store(const conv_job *job, int64_t output, const float *sums) {
    const berth_tensor *y = job->args->outputs[0];
    const berth_tensor *bias = job->args->inputs[BIAS];
    const berth_conv *conv = &job->self->conv;
    const int64_t positions = berth_conv_volume(conv->positions);
    const float start = bias ? berth_load_at(berth_data(bias), bias->dtype, output) : 0;
    float line[CONV_ROWS];
    for (int64_t row = 0; row < job->rows; ++row) {
        line[row] = sums[row * PANEL] + start;
    }
    for (int64_t row = 0, taken = 0; row < job->rows; row += taken) {
        const int64_t position = (job->first + row) % positions;
        const int64_t image = (job->first + row) / positions;
        taken = at_most(positions - position, job->rows - row);
        berth_store(berth_data(y), y->dtype, (image * conv->out + output) * positions + position,
                    taken, line + row);
    }
}

static inline void conv_multiply_part(const void *work, int64_t part, int64_t parts) {
    const conv_job *job = work;
    const convolution *self = job->self;
    const int64_t panels = pieces(self->outputs, PANEL);
    const berth_span share = berth_share(panels, part, parts);
    float *sums = (float *)(void *)(job->scratch + (uint64_t)part * conv_scratch());
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
            conv_store(job, job->group * self->outputs + panel * PANEL + i,
                       sums + i / PANEL * job->rows * PANEL + i % PANEL);
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
