// SPDX-License-Identifier: Apache-2.0
// The executor's own steps: copies between the spaces, copies without gaps in host memory, and a
// wait. They look like any other step to the loop that runs them.
#include "executor/stages.h"

#include <string.h>

static char *address(const berth_tensor *tensor) {
    return (char *)tensor->data + tensor->byte_offset;
}

static uint64_t bytes_now(const berth_copy_step *copy) {
    const int64_t elements = copy->plan->extents[copy->value].elements;
    return berth_dtype_bytes(copy->from->tensor.dtype, (uint64_t)elements);
}

berth_status berth_copy_to_device(void *self, const berth_op_args *args) {
    (void)args;
    const berth_copy_step *copy = self;
    return berth_runtime_upload(copy->plan->runtime, copy->plan->device_block,
                                copy->to->tensor.byte_offset, address(&copy->from->tensor),
                                bytes_now(copy));
}

berth_status berth_copy_to_host(void *self, const berth_op_args *args) {
    (void)args;
    const berth_copy_step *copy = self;
    return berth_runtime_download(copy->plan->runtime, address(&copy->to->tensor),
                                  copy->plan->device_block, copy->from->tensor.byte_offset,
                                  bytes_now(copy));
}

// The dims from `inner` on are copied as one run; the odometer counts the others.
berth_status berth_copy_dense(void *self, const berth_op_args *args) {
    (void)args;
    const berth_copy_step *copy = self;
    const berth_tensor *from = &copy->from->tensor;
    const int64_t size = BERTH_DTYPE_BITS(from->dtype) / 8;
    int32_t inner = from->ndim;
    int64_t run = 1;
    while (inner > 0 && (from->strides[inner - 1] == run || from->shape[inner - 1] == 1)) {
        run *= from->shape[--inner];
    }
    int64_t counts[BERTH_MAX_DIMS] = {0};
    char *to = address(&copy->to->tensor);
    int64_t left = copy->plan->extents[copy->value].elements;
    for (int64_t at = 0; left > 0; left -= run) {
        memcpy(to, address(from) + at * size, (size_t)(run * size));
        to += run * size;
        int32_t dim = inner - 1;
        while (dim >= 0 && ++counts[dim] == from->shape[dim]) {
            at -= (counts[dim] - 1) * from->strides[dim];
            counts[dim--] = 0;
        }
        at += dim >= 0 ? from->strides[dim] : 0;
    }
    return BERTH_OK;
}

berth_status berth_copy_wait(void *self, const berth_op_args *args) {
    (void)args;
    const berth_copy_step *copy = self;
    return berth_runtime_wait(copy->plan->runtime);
}
