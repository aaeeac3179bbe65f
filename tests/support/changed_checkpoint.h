// SPDX-License-Identifier: Apache-2.0
// Copies of checkpoints in which one thing is wrong.
#ifndef TEST_CHANGED_CHECKPOINT_H
#define TEST_CHANGED_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>

#include "support/sandbox.h"

// In a text file: what stands in the place of a text, wherever that occurs.
typedef struct text_change {
    const char *file; // NULL: config.json
    const char *from; // NULL: nothing is changed
    const char *to;
} text_change;

// In model.safetensors, or the file of that name: one tensor is left out, or is given another name,
// another shape (zeros fill what is new), or other bytes from some place on.
typedef struct tensor_change {
    const char *file;   // NULL: model.safetensors
    const char *tensor; // NULL: nothing is changed
    bool is_left_out;
    const char *name;  // NULL: its own
    const char *shape; // "[2, 3]"; NULL: its own
    size_t bytes;      // of that shape
    const char *data;  // NULL: its own
    size_t data_bytes;
    size_t at; // where those begin
} tensor_change;

// Writes the files of the list, ended by NULL, into the sandbox: those of `folder`, changed.
void changed_checkpoint_write(const sandbox *box, const char *folder, const char *const *files,
                              const text_change *text, const tensor_change *tensor);

#endif
