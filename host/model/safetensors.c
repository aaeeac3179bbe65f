// SPDX-License-Identifier: Apache-2.0
// Input: the path of a safetensors file, possibly hostile. Output: its tensors, pointing into the
// mapped file. Strict as the format's own rules are: what is accepted here is covered byte by byte
// by tensors that do not overlap, so nobody after this looks at a size again.
#include "model/model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/file.h"
#include "base/map.h"

#define LENGTH_BYTES     8
#define MAX_HEADER_BYTES UINT64_C(100000000)
#define MAX_HEADER_DEPTH 8
#define DROP_BYTES       ((uint64_t)128 << 10) // less is not worth a system call
#define TEXT_BYTES       512

struct berth_safetensors {
    berth_arena *arena; // owned, holds this struct
    const char *path;
    berth_file_map map;
    const uint8_t *data; // first byte after the header
    uint64_t data_bytes;
    berth_stored_tensor *tensors; // in the order of their data
    size_t count;
    berth_map by_name;
};

typedef struct stored_dtype {
    const char *name;
    berth_dtype dtype;
} stored_dtype;

static const stored_dtype dtypes[] = {
    {.name = "BF16",        .dtype = BERTH_DTYPE_BF16       },
    {.name = "BOOL",        .dtype = BERTH_DTYPE_BOOL       },
    {.name = "F16",         .dtype = BERTH_DTYPE_F16        },
    {.name = "F32",         .dtype = BERTH_DTYPE_F32        },
    {.name = "F4",          .dtype = BERTH_DTYPE_F4_E2M1    },
    {.name = "F64",         .dtype = BERTH_DTYPE_F64        },
    {.name = "F8_E4M3",     .dtype = BERTH_DTYPE_F8_E4M3FN  },
    {.name = "F8_E4M3FNUZ", .dtype = BERTH_DTYPE_F8_E4M3FNUZ},
    {.name = "F8_E5M2",     .dtype = BERTH_DTYPE_F8_E5M2    },
    {.name = "F8_E8M0",     .dtype = BERTH_DTYPE_F8_E8M0    },
    {.name = "I16",         .dtype = BERTH_DTYPE_I16        },
    {.name = "I32",         .dtype = BERTH_DTYPE_I32        },
    {.name = "I64",         .dtype = BERTH_DTYPE_I64        },
    {.name = "I8",          .dtype = BERTH_DTYPE_I8         },
    {.name = "U16",         .dtype = BERTH_DTYPE_U16        },
    {.name = "U32",         .dtype = BERTH_DTYPE_U32        },
    {.name = "U64",         .dtype = BERTH_DTYPE_U64        },
    {.name = "U8",          .dtype = BERTH_DTYPE_U8         },
};

BERTH_PRINTF(3, 4)
static berth_status broken(const berth_safetensors *file, const char *tensor, const char *format,
                           ...) {
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return BERTH_FAIL(CORRUPT, "%s: tensor '%s' %s; the file is damaged or not safetensors",
                      file->path, tensor, text);
}

// ---- one entry of the header --------------------------------------------------------------------

static berth_status read_dtype(const berth_safetensors *file, const berth_json *entry,
                               berth_stored_tensor *tensor) {
    berth_str name = {0};
    if (berth_json_get_str(entry, "dtype", &name) != BERTH_OK) {
        return broken(file, tensor->name, "has no dtype");
    }
    for (size_t i = 0; i < BERTH_COUNT(dtypes); ++i) {
        if (berth_str_equal_cstr(name, dtypes[i].name)) {
            tensor->dtype = dtypes[i].dtype;
            return BERTH_OK;
        }
    }
    return broken(file, tensor->name, "has the unknown dtype '" BERTH_STR_FMT "'",
                  BERTH_STR_ARG(name));
}

static berth_status read_shape(berth_safetensors *file, const berth_json *entry,
                               berth_stored_tensor *tensor) {
    const berth_json *shape = NULL;
    if (berth_json_get_array(entry, "shape", &shape) != BERTH_OK) {
        return broken(file, tensor->name, "has no list as its shape");
    }
    tensor->ndim = berth_json_size(shape);
    if (tensor->ndim > BERTH_MAX_DIMS) {
        return broken(file, tensor->name, "has %" PRIu64 " dimensions, the limit is %d",
                      tensor->ndim, BERTH_MAX_DIMS);
    }
    int64_t *extents = BERTH_ARENA_ARRAY(file->arena, int64_t, tensor->ndim);
    if (extents == NULL) {
        return berth_arena_exhausted(file->arena, "tensor shapes");
    }
    for (uint64_t i = 0; i < tensor->ndim; ++i) {
        if (berth_json_get_i64(berth_json_at(shape, i), "", &extents[i]) != BERTH_OK ||
            extents[i] < 0) {
            return broken(file, tensor->name,
                          "has a shape whose dimension %" PRIu64 " is not a whole number from 0 on",
                          i);
        }
    }
    tensor->shape = extents;
    return BERTH_OK;
}

// The bytes that shape and dtype ask for; false when no file can have that many.
static bool wanted_bytes(const berth_stored_tensor *tensor, uint64_t *out_bytes) {
    uint64_t bits = BERTH_DTYPE_BITS(tensor->dtype);
    for (uint64_t i = 0; i < tensor->ndim; ++i) {
        if (tensor->shape[i] == 0) {
            *out_bytes = 0;
            return true;
        }
    }
    for (uint64_t i = 0; i < tensor->ndim; ++i) {
        if (__builtin_mul_overflow(bits, (uint64_t)tensor->shape[i], &bits)) {
            return false;
        }
    }
    *out_bytes = bits / 8;
    return bits % 8 == 0;
}

static berth_status read_place(const berth_safetensors *file, const berth_json *entry,
                               berth_stored_tensor *tensor) {
    const berth_json *offsets = NULL;
    int64_t begin = 0;
    int64_t end = 0;
    if (berth_json_get_array(entry, "data_offsets", &offsets) != BERTH_OK ||
        berth_json_size(offsets) != 2 ||
        berth_json_get_i64(berth_json_at(offsets, 0), "", &begin) != BERTH_OK ||
        berth_json_get_i64(berth_json_at(offsets, 1), "", &end) != BERTH_OK) {
        return broken(file, tensor->name, "has no two whole numbers as its data_offsets");
    }
    if (begin < 0 || end < begin || (uint64_t)end > file->data_bytes) {
        return broken(file, tensor->name,
                      "lies at bytes %" PRId64 " to %" PRId64 " of %" PRIu64 " bytes of data",
                      begin, end, file->data_bytes);
    }
    uint64_t wanted = 0;
    if (!wanted_bytes(tensor, &wanted)) {
        return broken(file, tensor->name, "has a shape that no whole number of bytes can hold");
    }
    tensor->bytes = (uint64_t)(end - begin);
    if (tensor->bytes != wanted) {
        return broken(file, tensor->name,
                      "has %" PRIu64 " bytes of data, its shape and dtype need %" PRIu64,
                      tensor->bytes, wanted);
    }
    tensor->data = file->data + begin;
    return BERTH_OK;
}

static berth_status read_tensor(berth_safetensors *file, berth_str name, const berth_json *entry) {
    berth_stored_tensor *tensor = &file->tensors[file->count];
    *tensor = (berth_stored_tensor){.name = berth_arena_copy(file->arena, name), .file = file};
    if (tensor->name == NULL) {
        return berth_arena_exhausted(file->arena, "tensor names");
    }
    if (berth_json_kind_of(entry) != BERTH_JSON_OBJECT) {
        return broken(file, tensor->name, "is %s, an object is needed",
                      berth_json_kind_name(berth_json_kind_of(entry)));
    }
    BERTH_TRY(read_dtype(file, entry, tensor));
    BERTH_TRY(read_shape(file, entry, tensor));
    BERTH_TRY(read_place(file, entry, tensor));
    ++file->count;
    return BERTH_OK;
}

// ---- the whole header ---------------------------------------------------------------------------

static berth_status check_metadata(const berth_safetensors *file, const berth_json *metadata) {
    bool is_good = berth_json_kind_of(metadata) == BERTH_JSON_OBJECT;
    for (size_t i = 0; is_good && i < berth_json_size(metadata); ++i) {
        is_good = berth_json_kind_of(berth_json_at(metadata, i)) == BERTH_JSON_STRING;
    }
    return is_good ? BERTH_OK
                   : BERTH_FAIL(CORRUPT,
                                "%s: __metadata__ is not an object of strings; the file "
                                "is damaged or not safetensors",
                                file->path);
}

static int by_place(const void *a, const void *b) {
    const berth_stored_tensor *left = a;
    const berth_stored_tensor *right = b;
    if (left->data != right->data) {
        return (const uint8_t *)left->data < (const uint8_t *)right->data ? -1 : 1;
    }
    return left->bytes < right->bytes ? -1 : left->bytes > right->bytes;
}

// Every byte of data belongs to exactly one tensor.
static berth_status check_cover(const berth_safetensors *file) {
    uint64_t covered = 0;
    for (size_t i = 0; i < file->count; ++i) {
        const berth_stored_tensor *tensor = &file->tensors[i];
        const uint64_t begin = (uint64_t)((const uint8_t *)tensor->data - file->data);
        if (begin < covered) {
            return broken(file, tensor->name, "overlaps tensor '%.200s'", tensor[-1].name);
        }
        if (begin > covered) {
            return broken(file, tensor->name,
                          "begins at byte %" PRIu64 " of the data, but byte %" PRIu64
                          " belongs to no tensor",
                          begin, covered);
        }
        covered += tensor->bytes;
    }
    if (covered < file->data_bytes) {
        return BERTH_FAIL(CORRUPT,
                          "%s: the last %" PRIu64 " bytes belong to no tensor; the file is damaged",
                          file->path, file->data_bytes - covered);
    }
    return BERTH_OK;
}

static berth_status index_names(berth_safetensors *file) {
    BERTH_TRY(berth_map_reserve(&file->by_name, file->count));
    for (size_t i = 0; i < file->count; ++i) {
        BERTH_TRY(
            berth_map_add(&file->by_name, berth_str_from(file->tensors[i].name), (uint32_t)i));
    }
    return BERTH_OK;
}

static berth_status read_entries(berth_safetensors *file, const berth_json *header) {
    const size_t size = berth_json_size(header);
    file->tensors = BERTH_ARENA_ARRAY(file->arena, berth_stored_tensor, size);
    if (file->tensors == NULL) {
        return berth_arena_exhausted(file->arena, "tensors");
    }
    for (size_t i = 0; i < size; ++i) {
        const berth_str name = berth_json_key_at(header, i);
        const berth_json *entry = berth_json_at(header, i);
        BERTH_TRY(berth_str_equal_cstr(name, "__metadata__") ? check_metadata(file, entry)
                                                             : read_tensor(file, name, entry));
    }
    qsort(file->tensors, file->count, sizeof *file->tensors, by_place);
    BERTH_TRY(check_cover(file));
    return index_names(file);
}

// The header's text, after its length was checked.
static berth_status find_header(berth_safetensors *file, berth_str *out_text) {
    const berth_file_map *map = &file->map;
    if (map->size < LENGTH_BYTES) {
        return BERTH_FAIL(CORRUPT,
                          "%s: %zu bytes are too few for a safetensors file; load it again",
                          file->path, map->size);
    }
    uint64_t length = 0;
    for (size_t i = LENGTH_BYTES; i-- > 0;) {
        length = length << 8 | map->data[i];
    }
    if (length > MAX_HEADER_BYTES || length > map->size - LENGTH_BYTES) {
        return BERTH_FAIL(CORRUPT,
                          "%s: the header has %" PRIu64 " bytes by its length field, the file %zu "
                          "and the limit is %" PRIu64 "; it is truncated or not safetensors",
                          file->path, length, map->size, MAX_HEADER_BYTES);
    }
    const uint8_t *text = map->data + LENGTH_BYTES;
    if (length == 0 || text[0] != '{') {
        return BERTH_FAIL(CORRUPT, "%s: the header does not begin with '{'; it is not safetensors",
                          file->path);
    }
    *out_text = (berth_str){.data = (const char *)text, .size = (size_t)length};
    file->data = text + length;
    file->data_bytes = map->size - LENGTH_BYTES - length;
    return BERTH_OK;
}

static berth_status read_file(berth_safetensors *file) {
    BERTH_TRY(berth_file_map_open(file->path, &file->map));
    berth_str text = {0};
    BERTH_TRY(find_header(file, &text));
    const berth_json_limits limits = {
        .bytes = MAX_HEADER_BYTES,
        .depth = MAX_HEADER_DEPTH,
    };
    berth_json *header = NULL;
    BERTH_TRY_NOTE(berth_json_parse(text, file->path, &limits, &header),
                   "reading the safetensors header");
    const berth_status status = read_entries(file, header);
    berth_json_destroy(header);
    return status;
}

// ---- entry points -------------------------------------------------------------------------------

berth_status berth_safetensors_open(const char *path, berth_safetensors **out_file) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create((size_t)64 << 10, (size_t)2 << 30, &arena));
    berth_safetensors *file = BERTH_ARENA_NEW(arena, berth_safetensors);
    if (file == NULL) {
        berth_arena_destroy(arena);
        return BERTH_FAIL(OUT_OF_MEMORY, "%s: no memory for its list of tensors", path);
    }
    file->arena = arena;
    file->path = berth_arena_strdup(arena, path);
    berth_map_init(&file->by_name);
    const berth_status status =
        file->path == NULL ? berth_arena_exhausted(arena, "a file name") : read_file(file);
    if (status != BERTH_OK) {
        berth_safetensors_close(file);
        return status;
    }
    *out_file = file;
    return BERTH_OK;
}

const char *berth_safetensors_path(const berth_safetensors *file) {
    return file == NULL ? "memory" : file->path;
}

size_t berth_safetensors_count(const berth_safetensors *file) {
    return file->count;
}

const berth_stored_tensor *berth_safetensors_at(const berth_safetensors *file, size_t index) {
    return &file->tensors[index];
}

const berth_stored_tensor *berth_safetensors_find(const berth_safetensors *file, const char *name) {
    const uint32_t *index = berth_map_find(&file->by_name, berth_str_from(name));
    return index == NULL ? NULL : &file->tensors[*index];
}

void berth_stored_tensor_drop(const berth_stored_tensor *tensor, uint64_t first, uint64_t bytes) {
    if (bytes >= DROP_BYTES && tensor->file != NULL) {
        const berth_file_map *map = &tensor->file->map;
        const size_t offset = (size_t)((const uint8_t *)tensor->data - map->data);
        berth_file_map_drop(map, offset + (size_t)first, (size_t)bytes);
    }
}

const char *berth_safetensors_dtype(berth_dtype dtype) {
    for (size_t i = 0; i < BERTH_COUNT(dtypes); ++i) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].name;
        }
    }
    return NULL;
}

void berth_safetensors_close(berth_safetensors *file) {
    if (file == NULL) {
        return;
    }
    berth_map_deinit(&file->by_name);
    berth_file_map_close(&file->map);
    berth_arena_destroy(file->arena);
}
