// SPDX-License-Identifier: Apache-2.0
// model/safetensors: good files in every dtype and shape that the format allows, and one line for
// every way to break its rules.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/text.h"
#include "model/model.h"
#include "support/sandbox.h"
#include "support/test.h"

#define HEADER_BYTES (1u << 16)

static void put_length(char *bytes, uint64_t length) {
    for (size_t i = 0; i < 8; ++i) {
        bytes[i] = (char)(length >> 8 * i);
    }
}

// A file with this header and so many bytes of data: 0, 1, 2, …
static const char *make_file(const sandbox *box, const char *header, size_t data_bytes) {
    static char bytes[8 + 2 * HEADER_BYTES];
    const size_t length = strlen(header);
    CHECK(length <= HEADER_BYTES && data_bytes <= HEADER_BYTES);
    put_length(bytes, length);
    for (size_t i = 0; i < length; ++i) {
        bytes[8 + i] = header[i];
    }
    for (size_t i = 0; i < data_bytes; ++i) {
        bytes[8 + length + i] = (char)i;
    }
    const char *path = sandbox_path(box, "a.safetensors");
    CHECK_OK(berth_file_write(path, (berth_str){.data = bytes, .size = 8 + length + data_bytes}));
    return path;
}

// Refused with these words in one line that names the file; nothing is leaked or left behind.
static void check_refused(const char *path, const char *words) {
    berth_safetensors *file = NULL;
    CHECK_STATUS(berth_safetensors_open(path, &file), BERTH_CORRUPT);
    CHECK_NULL(file);
    CHECK_CONTAINS(berth_status_message(), words);
    CHECK_CONTAINS(berth_status_message(), berth_path_name(path));
    CHECK_NULL(strchr(berth_status_message(), '\n'));
}

TEST(safetensors_gives_names_types_shapes_and_data) {
    sandbox box;
    sandbox_make(&box);
    const char *path =
        make_file(&box,
                  "{\"__metadata__\":{\"format\":\"pt\"},"
                  "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                  "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                  "\"none\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                  "\"c\\u00e9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[16,17]}}   ",
                  17);
    berth_safetensors *file = NULL;
    CHECK_OK(berth_safetensors_open(path, &file));
    CHECK_UINT(berth_safetensors_count(file), 4);
    CHECK_STR(berth_safetensors_path(file), path);
    const berth_stored_tensor *b = berth_safetensors_find(file, "b");
    CHECK_UINT(b->dtype, BERTH_DTYPE_BF16);
    CHECK_UINT(b->ndim, 2);
    CHECK_INT(b->shape[0], 2);
    CHECK_INT(b->shape[1], 3);
    CHECK_UINT(b->bytes, 12);
    CHECK_BYTES(b->data, "\4\5\6\7\10\11\12\13\14\15\16\17", 12);
    CHECK_PTR(b->file, file);
    CHECK_UINT(berth_safetensors_find(file, "a")->ndim, 0);
    CHECK_UINT(berth_safetensors_find(file, "none")->bytes, 0);
    CHECK_BYTES(berth_safetensors_find(file, "c\303\251")->data, "\20", 1);
    CHECK_NULL(berth_safetensors_find(file, "d"));
    CHECK_NULL(berth_safetensors_find(file, "__metadata__"));
    CHECK_STR(berth_safetensors_at(file, 0)->name, "a");
    berth_safetensors_close(file);
    berth_safetensors_close(NULL);
    sandbox_remove(&box);
}

TEST(safetensors_knows_every_dtype_of_the_format_that_fits_a_tensor) {
    static const struct {
        const char *name;
        berth_dtype dtype;
        unsigned bytes; // of 4 elements
    } rows[] = {
        {"BOOL",        BERTH_DTYPE_BOOL,        4 },
        {"U8",          BERTH_DTYPE_U8,          4 },
        {"I8",          BERTH_DTYPE_I8,          4 },
        {"U16",         BERTH_DTYPE_U16,         8 },
        {"I16",         BERTH_DTYPE_I16,         8 },
        {"U32",         BERTH_DTYPE_U32,         16},
        {"I32",         BERTH_DTYPE_I32,         16},
        {"U64",         BERTH_DTYPE_U64,         32},
        {"I64",         BERTH_DTYPE_I64,         32},
        {"F4",          BERTH_DTYPE_F4_E2M1,     2 },
        {"F8_E4M3",     BERTH_DTYPE_F8_E4M3FN,   4 },
        {"F8_E4M3FNUZ", BERTH_DTYPE_F8_E4M3FNUZ, 4 },
        {"F8_E5M2",     BERTH_DTYPE_F8_E5M2,     4 },
        {"F8_E8M0",     BERTH_DTYPE_F8_E8M0,     4 },
        {"F16",         BERTH_DTYPE_F16,         8 },
        {"BF16",        BERTH_DTYPE_BF16,        8 },
        {"F32",         BERTH_DTYPE_F32,         16},
        {"F64",         BERTH_DTYPE_F64,         32},
    };
    sandbox box;
    sandbox_make(&box);
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        char header[128];
        (void)snprintf(header, sizeof header,
                       "{\"t\":{\"dtype\":\"%s\",\"shape\":[2,2],\"data_offsets\":[0,%u]}}",
                       rows[i].name, rows[i].bytes);
        berth_safetensors *file = NULL;
        CHECK_OK(berth_safetensors_open(make_file(&box, header, rows[i].bytes), &file));
        CHECK_UINT(berth_safetensors_at(file, 0)->dtype, rows[i].dtype);
        berth_safetensors_close(file);
    }
    sandbox_remove(&box);
}

// A header, the data behind it, and what is said of them.
typedef struct bad_file {
    const char *header;
    size_t data_bytes;
    const char *words;
} bad_file;

#define BAD(text, bytes, wanted_words)                                                             \
    { .header = (text), .data_bytes = (bytes), .words = (wanted_words) }

#define T(rest) "{\"t\":{" rest "}}"
static const bad_file bad_files[] = {
    BAD("", 0, "does not begin with '{'"),
    BAD(" {}", 0, "does not begin with '{'"),
    BAD("[]", 0, "does not begin with '{'"),
    BAD("{\"t\":", 0, "a.safetensors"),
    BAD("{} {}", 0, "a.safetensors"),
    BAD("{}", 3, "the last 3 bytes belong to no tensor"),
    BAD("{\"t\":7}", 0, "tensor 't' is a"),
    BAD("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ is not an object of strings"),
    BAD("{\"__metadata__\":\"a\"}", 0, "__metadata__ is not an object of strings"),
    BAD(T("\"shape\":[1],\"data_offsets\":[0,4]"), 4, "has no dtype"),
    BAD(T("\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "has no dtype"),
    BAD(T("\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "unknown dtype 'F33'"),
    BAD(T("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "has no list as its shape"),
    BAD(T("\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]"), 4, "has no list as its shape"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4, "dimension 0"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[1,1.0],\"data_offsets\":[0,4]"), 4, "dimension 1"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]"), 4, "dimension 0"),
    BAD(T("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"), 1,
        "has 9 dimensions, the limit is 8"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[1]"), 4, "no two whole numbers"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, "no two whole numbers"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4, "no two whole numbers"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]"), 4, "no two whole numbers"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4, "lies at bytes 4 to 0"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]"), 4, "lies at bytes -4 to 0"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), 4, "lies at bytes 4 to 8"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]"), 4,
        "of 4 bytes of data"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4,
        "has 4 bytes of data, its shape and dtype need 8"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,4]"), 4,
        "has 4 bytes of data, its shape and dtype need 0"),
    // 2^62 * 4 elements of 4 bytes are 0 modulo 2^64.
    BAD(T("\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]"), 0,
        "no whole number of bytes"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,4]"), 4,
        "no whole number of bytes"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[18446744073709551617],\"data_offsets\":[0,4]"), 4,
        "a.safetensors"),
    BAD(T("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), 2, "no whole number of bytes"),
    BAD(T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), 8,
        "but byte 0 belongs to no tensor"),
    BAD("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
        7, "'b' overlaps tensor 'a'"),
    BAD("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
        4, "overlaps tensor"),
    BAD("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}",
        4, "'b' overlaps tensor 'a'"),
    BAD("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
        3, "but byte 1 belongs to no tensor"),
    BAD("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
        2, "a.safetensors"),
};
#undef T

TEST(safetensors_refuses_a_header_that_breaks_a_rule) {
    sandbox box;
    sandbox_make(&box);
    for (size_t i = 0; i < BERTH_COUNT(bad_files); ++i) {
        check_refused(make_file(&box, bad_files[i].header, bad_files[i].data_bytes),
                      bad_files[i].words);
    }
    sandbox_remove(&box);
}

TEST(safetensors_refuses_a_file_that_is_too_short_for_its_header) {
    sandbox box;
    sandbox_make(&box);
    const char *path = sandbox_path(&box, "a.safetensors");
    char bytes[16] = {0};
    for (size_t size = 0; size < 8; ++size) {
        CHECK_OK(berth_file_write(path, (berth_str){.data = bytes, .size = size}));
        check_refused(path, "too few");
    }
    static const uint64_t lengths[] = {9, 100000000, 100000001, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 8; i < sizeof bytes; ++i) {
        bytes[i] = i < 10 ? "{}"[i - 8] : ' ';
    }
    for (size_t i = 0; i < BERTH_COUNT(lengths); ++i) {
        put_length(bytes, lengths[i]);
        CHECK_OK(berth_file_write(path, (berth_str){.data = bytes, .size = sizeof bytes}));
        check_refused(path, "by its length field");
    }
    sandbox_remove(&box);
}

TEST(safetensors_refuses_every_truncation_of_a_good_file) {
    sandbox box;
    sandbox_make(&box);
    const char *path =
        make_file(&box, "{\"t\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}", 8);
    char *whole = NULL;
    size_t size = 0;
    berth_arena *arena = NULL;
    CHECK_OK(berth_arena_create(4096, 4096, &arena));
    berth_file_map map = {0};
    CHECK_OK(berth_file_map_open(path, &map));
    size = map.size;
    whole = berth_arena_copy(arena, (berth_str){.data = (const char *)map.data, .size = size});
    berth_file_map_close(&map);
    for (size_t cut = 0; cut < size; ++cut) {
        CHECK_OK(berth_file_write(path, (berth_str){.data = whole, .size = cut}));
        check_refused(path, "a.safetensors");
    }
    berth_arena_destroy(arena);
    sandbox_remove(&box);
}

TEST(safetensors_refuses_what_nests_too_deep_without_going_there) {
    static char header[4096];
    for (size_t i = 0; i < sizeof header - 1; ++i) {
        header[i] = i < 5 ? "{\"t\":"[i] : '[';
    }
    sandbox box;
    sandbox_make(&box);
    berth_safetensors *file = NULL;
    CHECK(berth_safetensors_open(make_file(&box, header, 0), &file) != BERTH_OK);
    CHECK_CONTAINS(berth_status_message(), "a.safetensors");
    sandbox_remove(&box);
}

TEST(safetensors_says_when_the_file_is_not_there) {
    berth_safetensors *file = NULL;
    CHECK_STATUS(berth_safetensors_open("tests/data/none.safetensors", &file), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "tests/data/none.safetensors");
    CHECK_STATUS(berth_safetensors_open("tests/data", &file), BERTH_INVALID_ARGUMENT);
}

TEST(safetensors_reads_the_checkpoints_of_the_tests) {
    berth_safetensors *file = NULL;
    CHECK_OK(berth_safetensors_open("tests/data/models/llama/model.safetensors", &file));
    CHECK_UINT(berth_safetensors_count(file), 29);
    const berth_stored_tensor *table = berth_safetensors_find(file, "model.embed_tokens.weight");
    CHECK_UINT(table->bytes, 512 * 64 * 2);
    berth_stored_tensor_drop(table, 0, table->bytes);
    berth_safetensors_close(file);
    CHECK_OK(berth_safetensors_open("tests/data/models/shakespeare/golden.safetensors", &file));
    berth_safetensors_close(file);
}

// What the fuzzer starts from: there is an answer, and a text when it is no.
TEST(safetensors_of_the_fuzzer_are_read_or_refused) {
    berth_arena *arena = NULL;
    berth_dir_listing files = {0};
    CHECK_OK(berth_arena_create(4096, (size_t)1 << 20, &arena));
    CHECK_OK(berth_dir_list("tests/fuzz/safetensors", arena, &files));
    CHECK(files.count > 0);
    for (size_t i = 0; i < files.count; ++i) {
        berth_safetensors *file = NULL;
        const char *path = berth_path_join(arena, "tests/fuzz/safetensors", files.names[i]);
        if (berth_safetensors_open(path, &file) != BERTH_OK) {
            CHECK_CONTAINS(berth_status_message(), path);
        }
        berth_safetensors_close(file);
    }
    berth_arena_destroy(arena);
}
