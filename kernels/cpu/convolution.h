// SPDX-License-Identifier: Apache-2.0
// conv2d and conv3d: where patches do not overlap, as products of gathered rows
// (convolution_patches.h), by a kernel of one element plane by plane where matrices are multiplied
// (convolution_planes.h), else stripe by stripe (convolution_stripes.h). The kernels of all
// outputs of a group lie as panels of a weight (linear_panel.h): the columns of patches are those
// of the weight, of stripes pairs of channels for each tap, of which an odd one's second is zero.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_H
#define BERTH_KERNELS_CPU_CONVOLUTION_H

#include <cpu/convolution_planes.h>
#include <cpu/convolution_products.h>

// ---- instances ----------------------------------------------------------------------------------

static inline berth_status conv_supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return site->parameter_mask & UINT64_C(1) << WEIGHT
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "'weight' is not a parameter and cannot be packed");
}

// What the site says, whatever the device.
static inline convolution conv_read(const berth_op_site *site) {
    const berth_value_type *weight = site->inputs[WEIGHT];
    convolution self = {.dtype = weight->dtype};
    berth_conv_read(site, (int)weight->ndim - 2, &self.conv);
    const int64_t channels = self.conv.channels;
    self.is_patches = berth_conv_is_patches(&self.conv) && self.conv.kernel[2] > 1;
    self.columns = (self.is_patches ? channels : 2 * pieces(channels, 2)) *
                   berth_conv_volume(self.conv.kernel);
    self.outputs = self.conv.out / self.conv.groups;
    return self;
}

static inline uint64_t conv_packed_bytes(const berth_op_site *site, uint64_t input) {
    const convolution self = conv_read(site);
    const int64_t panels = self.conv.groups * pieces(self.outputs, PANEL);
    return input == WEIGHT ? (uint64_t)(panels * panel_bytes(self.columns, self.dtype)) : 0;
}

// One output of a panel, its channels in pairs for each tap: to[pair][tap], as a panel has them.
static inline void conv_pack_output(const convolution *self, const char *from, char *to) {
    const int64_t bytes = BERTH_DTYPE_BITS(self->dtype) / 8;
    const int64_t taps = berth_conv_volume(self->conv.kernel);
    // From one of a pair to the other, and from a pair to the next.
    const int64_t second = self->dtype == BERTH_DTYPE_BF16 ? bytes : PANEL * bytes;
    const int64_t step = 2 * PANEL * bytes;
    for (int64_t channel = 0; channel < self->conv.channels; ++channel) {
        char *at = to + channel / 2 * taps * step + channel % 2 * second;
        for (int64_t tap = 0; tap < taps; ++tap, from += bytes) {
            memcpy(at + tap * step, from, (size_t)bytes);
        }
    }
}

static inline berth_status conv_pack(const berth_op_site *site, uint64_t input,
                                     const berth_tensor *source, const berth_tensor *destination) {
    const convolution self = conv_read(site);
    const int64_t bytes = BERTH_DTYPE_BITS(self.dtype) / 8;
    const int64_t row = self.conv.channels * berth_conv_volume(self.conv.kernel);
    const int64_t of_panel = panel_bytes(self.columns, self.dtype);
    const int64_t outputs = pieces(self.outputs, PANEL) * PANEL; // of a group
    char *to = berth_data(destination);
    if (self.is_patches) {
        const int64_t shape[] = {self.outputs, self.columns};
        const int64_t strides[] = {self.columns, 1};
        berth_tensor kernels = *source;
        kernels.ndim = 2;
        kernels.shape = shape;
        kernels.strides = strides;
        pack_panels(&kernels, to);
        return BERTH_OK;
    }
    memset(to, 0, (size_t)conv_packed_bytes(site, input));
    for (int64_t i = 0; i < self.conv.out; ++i) {
        const int64_t output = i / self.outputs * outputs + i % self.outputs;
        const int64_t place = self.dtype == BERTH_DTYPE_BF16 ? 2 * bytes : bytes;
        conv_pack_output(&self, (const char *)berth_data(source) + i * row * bytes,
                         to + output / PANEL * of_panel + output % PANEL * place);
    }
    return BERTH_OK;
}

// Fewer channels than half a line of words would leave most of every matrix empty.
static inline int conv_product(const convolution *self, berth_dtype x) {
    const int64_t channels = self->is_patches ? self->columns : self->conv.channels;
    return channels >= MATRIX_WORDS ? product_of_panels(self->dtype, x, self->cpu)
                                    : product_of_floats(self->dtype, x, self->cpu);
}

static inline berth_status conv_create(const berth_op_site *site, const berth_device *device,
                                       void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(convolution), out_self);
    if (status == BERTH_OK) {
        convolution *self = *out_self;
        *self = conv_read(site);
        self->host = site->host;
        self->cpu = device->self;
        self->product = conv_product(self, site->inputs[X]->dtype);
        if (!self->is_patches) {
            conv_size_stripes(self);
            self->is_planes = conv_is_planes(self);
        }
    }
    return status;
}

static inline uint64_t conv_workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const convolution *self = state;
    const uint64_t threads = (uint64_t)self->cpu->threads;
    const uint64_t of_patches =
        panel_bytes_of(CONV_ROWS * panel_floats(self->columns, self->product));
    if (self->is_planes) {
        return conv_rows_bytes(self) + threads * conv_block_bytes(self);
    }
    return (self->is_patches ? of_patches : 0) + threads * conv_lay_out(self, NULL, NULL);
}

static inline berth_status conv_forward(void *state, const berth_op_args *args) {
    const convolution *self = state;
    conv_job job = {.self = self, .args = args, .x = berth_data(args->workspace)};
    if (self->is_patches) {
        conv_forward_patches(&job);
    } else if (self->is_planes) {
        conv_forward_planes(&job);
    } else {
        conv_forward_stripes(&job);
    }
    return BERTH_OK;
}

#endif
