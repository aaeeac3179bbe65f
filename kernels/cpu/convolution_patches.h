// SPDX-License-Identifier: Apache-2.0
// Patches of a convolution row by row: where they do not overlap, lines of the kernel are lines of
// x.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_PATCHES_H
#define BERTH_KERNELS_CPU_CONVOLUTION_PATCHES_H

#include <conv.h>
#include <cpu/panels.h>

enum { X, WEIGHT, BIAS };

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

#endif
