// SPDX-License-Identifier: Apache-2.0
// Input: a folder of a checkpoint, a change of one of its texts, of one of its tensors. Output: its
// files with the changes, in a sandbox. A change that finds nothing to change ends the test.
#include "support/changed_checkpoint.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/model.h"
#include "support/tensor_file.h"
#include "support/test.h"

#define LIMIT   ((size_t)4 << 20)
#define TENSORS 1024

// Names of the format.
static const struct {
    berth_dtype dtype;
    const char *name;
} dtypes[] = {
    {BERTH_DTYPE_F32,       "F32"    },
    {BERTH_DTYPE_F16,       "F16"    },
    {BERTH_DTYPE_BF16,      "BF16"   },
    {BERTH_DTYPE_F8_E4M3FN, "F8_E4M3"},
    {BERTH_DTYPE_I8,        "I8"     },
    {BERTH_DTYPE_U8,        "U8"     },
    {BERTH_DTYPE_I32,       "I32"    },
    {BERTH_DTYPE_I64,       "I64"    },
};

static const char *name_of(berth_dtype dtype) {
    size_t i = 0;
    while (i + 1 < BERTH_COUNT(dtypes) && dtypes[i].dtype != dtype) {
        ++i;
    }
    CHECK(dtypes[i].dtype == dtype);
    return dtypes[i].name;
}

// ---- texts --------------------------------------------------------------------------------------

static void write_text(const sandbox *box, const char *name, berth_str text,
                       const text_change *change) {
    const size_t length = change ? strlen(change->from) : 0;
    size_t found = 0;
    berth_text out;
    berth_text_init(&out, LIMIT);
    for (size_t at = 0; at < text.size;) {
        const bool is_here = change && text.size - at >= length &&
                             strncmp(text.data + at, change->from, length) == 0;
        found += is_here;
        if (is_here) {
            berth_text_add_cstr(&out, change->to);
        } else {
            berth_text_add_char(&out, text.data[at]);
        }
        at += is_here ? length : 1;
    }
    CHECK(!change || found > 0);
    CHECK_OK(berth_file_write(sandbox_path(box, name), berth_text_str(&out)));
    berth_text_deinit(&out);
}

// ---- tensors ------------------------------------------------------------------------------------

// Room for what a row of the new file points to.
typedef struct row_texts {
    char shape[96];
    char *data;
} row_texts;

static tensor_row row_of(const berth_stored_tensor *tensor, row_texts *room) {
    size_t size = (size_t)snprintf(room->shape, sizeof room->shape, "[");
    for (uint64_t i = 0; i < tensor->ndim; ++i) {
        size += (size_t)snprintf(room->shape + size, sizeof room->shape - size, "%s%lld",
                                 i == 0 ? "" : ",", (long long)tensor->shape[i]);
    }
    (void)snprintf(room->shape + size, sizeof room->shape - size, "]");
    return (tensor_row){
        .name = tensor->name,
        .dtype = name_of(tensor->dtype),
        .shape = room->shape,
        .bytes = (size_t)tensor->bytes,
        .data = tensor->data,
    };
}

static void change_row(tensor_row *row, const tensor_change *change, row_texts *room) {
    const size_t bytes = change->shape ? change->bytes : row->bytes;
    room->data = berth_alloc(bytes + 1);
    assert(room->data != NULL);
    memset(room->data, 0, bytes + 1);
    memcpy(room->data, row->data, row->bytes < bytes ? row->bytes : bytes);
    if (change->data) {
        CHECK(change->at + change->data_bytes <= bytes);
        memcpy(room->data + change->at, change->data, change->data_bytes);
    }
    row->data = room->data;
    row->bytes = bytes;
    row->shape = change->shape ? change->shape : row->shape;
    row->name = change->name ? change->name : row->name;
}

static void write_tensors(const char *path, const berth_safetensors *file,
                          const tensor_change *change) {
    static tensor_row rows[TENSORS];
    static row_texts rooms[TENSORS];
    row_texts *changed = NULL;
    size_t count = 0;
    bool is_found = false;
    CHECK(berth_safetensors_count(file) <= TENSORS);
    for (size_t i = 0; i < berth_safetensors_count(file); ++i) {
        const berth_stored_tensor *tensor = berth_safetensors_at(file, i);
        const bool is_it = strcmp(tensor->name, change->tensor) == 0;
        is_found = is_found || is_it;
        if (is_it && change->is_left_out) {
            continue;
        }
        rows[count] = row_of(tensor, &rooms[count]);
        if (is_it) {
            changed = &rooms[count];
            change_row(&rows[count], change, changed);
        }
        ++count;
    }
    CHECK(is_found);
    tensor_file_write(path, rows, count);
    berth_free(changed ? changed->data : NULL);
}

// ---- entry point --------------------------------------------------------------------------------

static bool is_file(const char *name, const char *of_change, const char *usual) {
    return strcmp(name, of_change ? of_change : usual) == 0;
}

void changed_checkpoint_write(const sandbox *box, const char *folder, const char *const *files,
                              const text_change *text, const tensor_change *tensor) {
    for (size_t i = 0; files[i]; ++i) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        if (tensor && tensor->tensor && is_file(files[i], tensor->file, "model.safetensors")) {
            berth_safetensors *file = NULL;
            CHECK_OK(berth_safetensors_open(path, &file));
            write_tensors(sandbox_path(box, files[i]), file, tensor);
            berth_safetensors_close(file);
            continue;
        }
        const bool is_changed = text && text->from && is_file(files[i], text->file, "config.json");
        char *data = NULL;
        size_t size = 0;
        CHECK_OK(berth_file_read(path, LIMIT, &data, &size));
        write_text(box, files[i], (berth_str){.data = data, .size = size},
                   is_changed ? text : NULL);
        berth_free(data);
    }
}
