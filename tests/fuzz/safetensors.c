// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: refused with a text, or tensors that lie inside the file, do not
// overlap and have the bytes that their shape needs.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The bytes as a file that no disk sees.
static int make_file(const uint8_t *data, size_t size) {
    const int file = memfd_create("safetensors", MFD_CLOEXEC);
    if (file < 0 || write(file, data, size) != (ssize_t)size) {
        abort();
    }
    return file;
}

static void check(const berth_safetensors *file, size_t size) {
    uint64_t total = 0;
    const uint8_t *end = NULL;
    for (size_t i = 0; i < berth_safetensors_count(file); ++i) {
        const berth_stored_tensor *tensor = berth_safetensors_at(file, i);
        const uint8_t *first = tensor->data;
        uint64_t bits = BERTH_DTYPE_BITS(tensor->dtype);
        for (uint64_t dim = 0; dim < tensor->ndim; ++dim) {
            bits *= (uint64_t)tensor->shape[dim];
        }
        volatile uint8_t touched = 0;
        for (uint64_t byte = 0; byte < tensor->bytes; ++byte) {
            touched = (uint8_t)(touched + first[byte]);
        }
        if (bits != 8 * tensor->bytes || (end != NULL && first != end) ||
            berth_safetensors_find(file, tensor->name) != tensor) {
            abort();
        }
        end = first + tensor->bytes;
        total += tensor->bytes;
    }
    if (total > size) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    const int descriptor = make_file(data, size);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    berth_safetensors *file = NULL;
    if (berth_safetensors_open(path, &file) == BERTH_OK) {
        check(file, size);
        berth_safetensors_close(file);
    } else if (berth_status_message()[0] == '\0') {
        abort();
    }
    close(descriptor);
    return 0;
}
