// SPDX-License-Identifier: Apache-2.0
// The geometry of a convolution, for the references and kernels of conv2d and conv3d: three
// dimensions, of which conv2d's first has one element.
//
//   x       [batch, in, depth, height, width]
//   weight  [out, in / groups, kernel depth, height, width]
//   y       [batch, out, ...]: floor((size + 2 padding − dilation (kernel − 1) − 1) / stride) + 1
#ifndef BERTH_KERNELS_CONV_H
#define BERTH_KERNELS_CONV_H

#include <berth/op.h>

typedef struct berth_conv {
    int64_t in; // channels
    int64_t out;
    int64_t groups;
    int64_t channels; // of a kernel: in / groups
    int64_t size[3];  // of x
    int64_t kernel[3];
    int64_t stride[3];
    int64_t padding[3];
    int64_t dilation[3];
    int64_t positions[3]; // of y
} berth_conv;

// Elements of a box.
static inline int64_t berth_conv_volume(const int64_t box[3]) {
    return box[0] * box[1] * box[2];
}

// Index `index` of a box as three.
static inline void berth_conv_split(const int64_t box[3], int64_t index, int64_t out[3]) {
    out[2] = index % box[2];
    out[1] = index / box[2] % box[1];
    out[0] = index / box[2] / box[1];
}

// A list of `rank` sizes, or of one for all; what is missing in front is `first`.
static inline void berth_conv_list(const berth_attribute *list, int rank, int64_t first,
                                   int64_t out[3]) {
    for (int dim = 0; dim < 3; ++dim) {
        const int place = dim - (3 - rank);
        out[dim] = place < 0 ? first : list->i64s[list->count == 1 ? 0 : place];
    }
}

// Whether patches neither overlap nor leave a gap, so that the product is one of matrices. vLLM
// leaves the dilation out there, and so does this.
static inline int berth_conv_is_patches(const berth_conv *self) {
    int is_so = self->groups == 1;
    for (int dim = 0; dim < 3; ++dim) {
        is_so = is_so && self->kernel[dim] == self->stride[dim] && self->padding[dim] == 0;
    }
    return is_so;
}

// The site's geometry: inputs x and weight of rank + 2 dimensions, all but the batch constant.
// positions may be less than 1 where the kernel does not fit.
static inline void berth_conv_read(const berth_op_site *site, int rank, berth_conv *out) {
    const berth_value_type *x = site->inputs[0];
    const berth_value_type *weight = site->inputs[1];
    out->in = x->dims[1].b;
    out->out = weight->dims[0].b;
    out->groups = berth_site_attribute(site, "groups")->i64;
    out->channels = weight->dims[1].b;
    berth_conv_list(berth_site_attribute(site, "stride"), rank, 1, out->stride);
    berth_conv_list(berth_site_attribute(site, "padding"), rank, 0, out->padding);
    berth_conv_list(berth_site_attribute(site, "dilation"), rank, 1, out->dilation);
    for (int dim = 0; dim < 3; ++dim) {
        const int place = dim - (3 - rank);
        out->size[dim] = place < 0 ? 1 : x->dims[2 + place].b;
        out->kernel[dim] = place < 0 ? 1 : weight->dims[2 + place].b;
    }
    for (int dim = 0; dim < 3; ++dim) {
        out->dilation[dim] = berth_conv_is_patches(out) ? 1 : out->dilation[dim];
        const int64_t reach = out->dilation[dim] * (out->kernel[dim] - 1) + 1;
        const int64_t room = out->size[dim] + 2 * out->padding[dim] - reach;
        out->positions[dim] = room < 0 ? 0 : room / out->stride[dim] + 1;
    }
}

// The element of a channel of x that tap `tap` of the kernel meets at a position of y; −1 in the
// padding.
static inline int64_t berth_conv_source(const berth_conv *self, const int64_t position[3],
                                        const int64_t tap[3]) {
    int64_t index = 0;
    for (int dim = 0; dim < 3; ++dim) {
        const int64_t at =
            position[dim] * self->stride[dim] - self->padding[dim] + tap[dim] * self->dilation[dim];
        if (at < 0 || at >= self->size[dim]) {
            return -1;
        }
        index = index * self->size[dim] + at;
    }
    return index;
}

#endif
