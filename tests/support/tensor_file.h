// SPDX-License-Identifier: Apache-2.0
// Writes small, correct safetensors files for tests of checkpoints.
#ifndef TEST_TENSOR_FILE_H
#define TEST_TENSOR_FILE_H

#include <stddef.h>

typedef struct tensor_row {
    const char *name;
    const char *dtype; // as in the format, "BF16"
    const char *shape; // as in the format, "[2, 3]"
    size_t bytes;
    const void *data; // NULL: zeros
} tensor_row;

void tensor_file_write(const char *path, const tensor_row *rows, size_t count);

#endif
