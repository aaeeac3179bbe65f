// SPDX-License-Identifier: Apache-2.0
// conv2d and conv3d as products: a row is the patch of x under the kernel at one position of y,
// channels first, and meets the kernels of all outputs of its group as panels of a weight
// (panels.h). Patches are gathered as they are packed, so none is kept: row by row where they do
// not overlap (convolution_patches.h), else column by column (convolution_columns.h).
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_H
#define BERTH_KERNELS_CPU_CONVOLUTION_H

#include <cpu/convolution_columns.h>

#define CONV_ROWS   256 // at a time
#define CONV_STRIP  32  // columns of all blocks of a part, before the next ones
#define CONV_PANELS 4   // that take turns with a chunk of the rows
#define CONV_ALONE  (1 << 18)

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

// ---- packing ------------------------------------------------------------------------------------

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
