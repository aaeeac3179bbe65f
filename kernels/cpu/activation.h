// SPDX-License-Identifier: Apache-2.0
// The instance of an activation: what `create` made of the attributes.
#ifndef BERTH_KERNELS_CPU_ACTIVATION_H
#define BERTH_KERNELS_CPU_ACTIVATION_H

#include <cpu/cpu.h>

#define BERTH_ACTIVATION_NUMBERS 4

typedef struct berth_activation { // begins as berth_instance does
    const berth_host *host;
    const berth_cpu *cpu;
    float numbers[BERTH_ACTIVATION_NUMBERS]; // what `create` made of the attributes
    int64_t flag;
} berth_activation;

static inline berth_status berth_activation_new(const berth_op_site *site,
                                                const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(berth_activation), out_self);
    if (status == BERTH_OK) {
        ((berth_activation *)*out_self)->cpu = device->self;
    }
    return status;
}

// The f64 attributes of the op, in its order, as numbers; an absent one is 0.
static inline berth_status berth_activation_create(const berth_op_site *site,
                                                   const berth_device *device, void **out_self) {
    const berth_status status = berth_activation_new(site, device, out_self);
    uint64_t count = 0;
    for (uint64_t i = 0; status == BERTH_OK && i < site->op->attribute_count; ++i) {
        if (site->op->attributes[i]->kind == BERTH_ATTRIBUTE_F64 &&
            count < BERTH_ACTIVATION_NUMBERS) {
            ((berth_activation *)*out_self)->numbers[count++] = (float)site->attributes[i]->f64;
        }
    }
    return status;
}

// The same, and in `flag` whether the attribute `approximate` is tanh.
static inline berth_status berth_gelu_create(const berth_op_site *site, const berth_device *device,
                                             void **out_self) {
    const berth_status status = berth_activation_create(site, device, out_self);
    if (status == BERTH_OK) {
        ((berth_activation *)*out_self)->flag =
            strcmp(berth_site_attribute(site, "approximate")->str, "tanh") == 0;
    }
    return status;
}

#endif
