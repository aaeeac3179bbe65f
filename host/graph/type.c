// SPDX-License-Identifier: Apache-2.0
// Types of values: dtypes by name, shapes as a whole, the arrays of the batch.
#include "graph/rules.h"

#include <stdio.h>
#include <string.h>

#include "base/array.h"

typedef struct dtype_name {
    berth_dtype dtype;
    const char *name;
} dtype_name;

static const dtype_name dtype_names[] = {
    {.dtype = BERTH_DTYPE_I8,          .name = "i8"         },
    {.dtype = BERTH_DTYPE_I16,         .name = "i16"        },
    {.dtype = BERTH_DTYPE_I32,         .name = "i32"        },
    {.dtype = BERTH_DTYPE_I64,         .name = "i64"        },
    {.dtype = BERTH_DTYPE_U8,          .name = "u8"         },
    {.dtype = BERTH_DTYPE_U16,         .name = "u16"        },
    {.dtype = BERTH_DTYPE_U32,         .name = "u32"        },
    {.dtype = BERTH_DTYPE_U64,         .name = "u64"        },
    {.dtype = BERTH_DTYPE_F16,         .name = "f16"        },
    {.dtype = BERTH_DTYPE_F32,         .name = "f32"        },
    {.dtype = BERTH_DTYPE_F64,         .name = "f64"        },
    {.dtype = BERTH_DTYPE_BF16,        .name = "bf16"       },
    {.dtype = BERTH_DTYPE_BOOL,        .name = "bool"       },
    {.dtype = BERTH_DTYPE_F8_E4M3FN,   .name = "f8_e4m3fn"  },
    {.dtype = BERTH_DTYPE_F8_E4M3FNUZ, .name = "f8_e4m3fnuz"},
    {.dtype = BERTH_DTYPE_F8_E5M2,     .name = "f8_e5m2"    },
    {.dtype = BERTH_DTYPE_F8_E8M0,     .name = "f8_e8m0"    },
    {.dtype = BERTH_DTYPE_F4_E2M1,     .name = "f4_e2m1"    },
};

typedef struct batch_array {
    const char *name;
    uint64_t symbol;
} batch_array;

// All are i32 [symbol].
static const batch_array batch_arrays[] = {
    {.name = "token_ids",   .symbol = BERTH_SYMBOL_TOKENS   },
    {.name = "positions",   .symbol = BERTH_SYMBOL_TOKENS   },
    {.name = "logits_rows", .symbol = BERTH_SYMBOL_SEQUENCES},
};

const char *berth_dtype_name(berth_dtype dtype) {
    for (size_t i = 0; i < BERTH_COUNT(dtype_names); ++i) {
        if (dtype_names[i].dtype == dtype) {
            return dtype_names[i].name;
        }
    }
    return "?";
}

berth_dtype berth_dtype_find(berth_str name) {
    for (size_t i = 0; i < BERTH_COUNT(dtype_names); ++i) {
        if (berth_str_equal_cstr(name, dtype_names[i].name)) {
            return dtype_names[i].dtype;
        }
    }
    return BERTH_DTYPE_NONE;
}

uint64_t berth_dtype_bytes(berth_dtype dtype, uint64_t elements) {
    const uint64_t bits = BERTH_DTYPE_BITS(dtype);
    return elements / 8 * bits + (elements % 8 * bits + 7) / 8;
}

int64_t berth_type_elements(const berth_value_type *type, int64_t tokens, int64_t sequences) {
    int64_t elements = 1;
    for (uint32_t i = 0; i < type->ndim; ++i) {
        const int64_t extent = berth_dim_value(type->dims[i], tokens, sequences);
        if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements)) {
            return -1;
        }
    }
    return elements;
}

bool berth_type_equal(const berth_value_type *a, const berth_value_type *b) {
    if (a->dtype != b->dtype || a->ndim != b->ndim) {
        return false;
    }
    for (uint32_t i = 0; i < a->ndim; ++i) {
        if (!berth_dim_equal(a->dims[i], b->dims[i])) {
            return false;
        }
    }
    return true;
}

void berth_type_print(const berth_value_type *type, berth_text *text) {
    berth_text_add_cstr(text, berth_dtype_name(type->dtype));
    berth_text_add_char(text, '[');
    for (uint32_t i = 0; i < type->ndim; ++i) {
        berth_text_add_cstr(text, i == 0 ? "" : ", ");
        berth_dim_print(type->dims[i], text);
    }
    berth_text_add_char(text, ']');
}

const char *berth_type_text(const berth_value_type *type, char buffer[BERTH_TYPE_TEXT_BYTES]) {
    berth_text text;
    berth_text_init(&text, BERTH_TYPE_TEXT_BYTES - 1);
    berth_type_print(type, &text);
    (void)snprintf(buffer, BERTH_TYPE_TEXT_BYTES, "%s", text.data == NULL ? "" : text.data);
    berth_text_deinit(&text);
    return buffer;
}

berth_status berth_type_normalise(const berth_value_type *type, berth_value_type *out_type) {
    if (strcmp(berth_dtype_name(type->dtype), "?") == 0) {
        return BERTH_FAIL(INVALID_ARGUMENT, "a dtype of number 0x%x is none that berth knows",
                          (unsigned)type->dtype);
    }
    if (type->ndim > BERTH_MAX_DIMS) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%u dimensions: there may be at most %d",
                          (unsigned)type->ndim, BERTH_MAX_DIMS);
    }
    berth_value_type normal = {
        .size = sizeof(normal),
        .dtype = type->dtype,
        .ndim = type->ndim,
    };
    for (uint32_t i = 0; i < type->ndim; ++i) {
        BERTH_TRY_NOTE(berth_dim_normalise(type->dims[i], &normal.dims[i]), "dimension %u",
                       (unsigned)i);
    }
    *out_type = normal;
    return BERTH_OK;
}

berth_status berth_input_type(const char *name, berth_value_type *out_type) {
    for (size_t i = 0; i < BERTH_COUNT(batch_arrays); ++i) {
        if (strcmp(batch_arrays[i].name, name) == 0) {
            *out_type = (berth_value_type){
                .size = sizeof(*out_type),
                .dtype = BERTH_DTYPE_I32,
                .ndim = 1,
                .dims = {{.symbol = batch_arrays[i].symbol, .a = 1, .b = 0, .c = 1}},
            };
            return BERTH_OK;
        }
    }
    return BERTH_FAIL(
        NOT_FOUND, "the batch has no array '%s'; take token_ids, positions or logits_rows", name);
}
