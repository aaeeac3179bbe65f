// SPDX-License-Identifier: Apache-2.0
// Input: rows of tensors. Output: their header and data, one after another.
#include "support/tensor_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "support/test.h"

#define LIMIT ((size_t)16 << 20)

static void add_header(berth_text *header, const tensor_row *rows, size_t count) {
    size_t offset = 0;
    berth_text_add_char(header, '{');
    for (size_t i = 0; i < count; ++i) {
        berth_text_add_format(header,
                              "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                              i == 0 ? "" : ",", rows[i].name, rows[i].dtype, rows[i].shape, offset,
                              offset + rows[i].bytes);
        offset += rows[i].bytes;
    }
    berth_text_add_char(header, '}');
}

void tensor_file_write(const char *path, const tensor_row *rows, size_t count) {
    berth_text header;
    berth_text file;
    berth_text_init(&header, LIMIT);
    berth_text_init(&file, LIMIT);
    add_header(&header, rows, count);
    for (size_t i = 0; i < 8; ++i) {
        berth_text_add_char(&file, (char)((uint64_t)header.size >> 8 * i));
    }
    berth_text_add(&file, berth_text_str(&header));
    for (size_t i = 0; i < count; ++i) {
        for (size_t byte = 0; byte < rows[i].bytes; ++byte) {
            berth_text_add_char(&file, rows[i].data ? ((const char *)rows[i].data)[byte] : 0);
        }
    }
    CHECK_OK(berth_text_finish(&file, NULL));
    CHECK_OK(berth_file_write(path, berth_text_str(&file)));
    berth_text_deinit(&header);
    berth_text_deinit(&file);
}
