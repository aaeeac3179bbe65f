// SPDX-License-Identifier: Apache-2.0
// Tensors for op tests: elements between guards, with or without gaps, read one by one as doubles.
#include "support/op_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tensor.h>

#include "support/test.h"

#define GUARD 64 // bytes before and after the elements, and the alignment of the first
#define MARK  0xA5

static int64_t dim_value(berth_dim dim, const op_case *symbols) {
    const int64_t symbol = dim.symbol == BERTH_SYMBOL_TOKENS      ? symbols->tokens
                           : dim.symbol == BERTH_SYMBOL_SEQUENCES ? symbols->rows
                                                                  : 0;
    return (dim.a * symbol + dim.b + dim.c - 1) / dim.c;
}

bool op_tensor_is_present(const op_tensor *tensor) {
    return tensor->tensor.data != NULL;
}

int64_t op_tensor_count(const op_tensor *tensor) {
    int64_t count = 1;
    for (int32_t dim = 0; dim < tensor->tensor.ndim; ++dim) {
        count *= tensor->shape[dim];
    }
    return count;
}

void op_tensor_make(op_tensor *tensor, const op_shape *shape, const op_case *symbols) {
    *tensor = (op_tensor){
        .type = {.size = sizeof(berth_value_type), .dtype = shape->dtype, .ndim = shape->ndim},
    };
    memcpy(tensor->type.dims, shape->dims, sizeof tensor->type.dims);
    const int64_t element_bytes = BERTH_DTYPE_BITS(shape->dtype) / 8;
    int64_t stride = 1;
    for (uint32_t dim = shape->ndim; dim-- > 0;) {
        tensor->shape[dim] = dim_value(shape->dims[dim], symbols);
        tensor->strides[dim] = stride;
        stride *= tensor->shape[dim];
        stride += dim > 0 ? shape->row_gap : 0;
    }
    tensor->bytes = (size_t)((stride + shape->offset) * element_bytes);
    tensor->memory = aligned_alloc(GUARD, (tensor->bytes + 3 * GUARD) / GUARD * GUARD);
    CHECK(tensor->memory != NULL);
    memset(tensor->memory, MARK, tensor->bytes + 2 * GUARD);
    memset(tensor->memory + GUARD, 0xff, tensor->bytes);
    tensor->tensor = (berth_tensor){
        .size = sizeof(berth_tensor),
        .data = tensor->memory + GUARD,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = (int32_t)shape->ndim,
        .dtype = shape->dtype,
        .shape = tensor->shape,
        .strides = tensor->strides,
        .byte_offset = (uint64_t)(shape->offset * element_bytes),
    };
}

void op_tensor_free(op_tensor *tensor) {
    free(tensor->memory);
    *tensor = (op_tensor){0};
}

void op_tensor_check_guards(const op_tensor *tensor) {
    for (size_t i = 0; tensor->memory != NULL && i < GUARD; ++i) {
        CHECK_INT(tensor->memory[i], MARK);
        CHECK_INT(tensor->memory[GUARD + tensor->bytes + i], MARK);
    }
}

// ---- elements -----------------------------------------------------------------------------------

static double value_at(const void *row, berth_dtype dtype, int64_t column) {
    if (BERTH_DTYPE_BITS(dtype) == 8) {
        const uint8_t byte = ((const uint8_t *)row)[column];
        return dtype == BERTH_DTYPE_F8_E4M3FN ? (double)berth_from_f8(byte)
               : dtype == BERTH_DTYPE_I8      ? (double)(int8_t)byte
                                              : (double)byte;
    }
    return dtype == BERTH_DTYPE_F64 ? ((const double *)row)[column]
           : berth_is_float(dtype)  ? (double)berth_load_at(row, dtype, column)
                                    : (double)berth_integer_at(row, dtype, column);
}

static void put_at(void *row, berth_dtype dtype, int64_t column, double value) {
    if (dtype == BERTH_DTYPE_F8_E4M3FN) {
        ((uint8_t *)row)[column] = berth_to_f8((float)value);
    } else if (BERTH_DTYPE_BITS(dtype) == 8) {
        ((uint8_t *)row)[column] = (uint8_t)(int)value;
    } else if (berth_is_float(dtype)) {
        berth_store_at(row, dtype, column, (float)value);
    } else if (dtype == BERTH_DTYPE_F64) {
        ((double *)row)[column] = value;
    } else if (dtype == BERTH_DTYPE_I64) {
        ((int64_t *)row)[column] = (int64_t)value;
    } else {
        ((int32_t *)row)[column] = (int32_t)value;
    }
}

double op_tensor_get(const op_tensor *tensor, int64_t index) {
    const int64_t width = berth_row_length(&tensor->tensor);
    return value_at(berth_row(&tensor->tensor, index / width), tensor->tensor.dtype, index % width);
}

void op_tensor_set(op_tensor *tensor, int64_t index, double value) {
    const int64_t width = berth_row_length(&tensor->tensor);
    put_at(berth_row(&tensor->tensor, index / width), tensor->tensor.dtype, index % width, value);
}

// ---- whole tensors, row by row ------------------------------------------------------------------

static size_t row_bytes(const op_tensor *tensor) {
    return (size_t)berth_row_length(&tensor->tensor) * BERTH_DTYPE_BITS(tensor->tensor.dtype) / 8;
}

void op_tensor_copy(op_tensor *to, const op_tensor *from, bool is_widened) {
    *to = (op_tensor){0};
    if (!op_tensor_is_present(from)) {
        return;
    }
    const bool is_changed = is_widened && berth_is_float(from->tensor.dtype);
    op_shape shape = {
        .dtype = is_changed ? BERTH_DTYPE_F32 : from->tensor.dtype,
        .ndim = from->type.ndim,
    };
    for (uint32_t dim = 0; dim < shape.ndim; ++dim) {
        shape.dims[dim] = BERTH_DIM_CONST(from->shape[dim]);
    }
    op_tensor_make(to, &shape, NULL);
    memcpy(to->type.dims, from->type.dims, sizeof to->type.dims);
    to->is_parameter = from->is_parameter;
    for (int64_t row = 0; row < berth_row_count(&from->tensor); ++row) {
        const void *of_from = berth_row(&from->tensor, row);
        void *of_to = berth_row(&to->tensor, row);
        if (!is_changed) {
            memcpy(of_to, of_from, row_bytes(from));
            continue;
        }
        for (int64_t i = 0; i < berth_row_length(&from->tensor); ++i) {
            put_at(of_to, to->tensor.dtype, i, value_at(of_from, from->tensor.dtype, i));
        }
    }
}

void op_tensor_take_row(op_tensor *to, const op_tensor *from, int64_t row) {
    op_shape shape = {.dtype = from->tensor.dtype, .ndim = from->type.ndim};
    for (uint32_t dim = 0; dim < shape.ndim; ++dim) {
        shape.dims[dim] = BERTH_DIM_CONST(dim > 0 ? from->shape[dim] : 1);
    }
    op_tensor_make(to, &shape, NULL);
    memcpy(to->type.dims, from->type.dims, sizeof to->type.dims);
    to->is_parameter = from->is_parameter;
    memcpy(to->tensor.data, (const char *)from->tensor.data + (size_t)row * to->bytes, to->bytes);
}

// The next of a sequence of numbers in [0, 1).
static double next_unit(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*seed >> 33) / 0x1p31;
}

void op_tensor_randomise(op_tensor *tensor, uint64_t *seed, int64_t limit) {
    const berth_dtype dtype = tensor->tensor.dtype;
    const bool is_float =
        berth_is_float(dtype) || dtype == BERTH_DTYPE_F8_E4M3FN || dtype == BERTH_DTYPE_F64;
    for (int64_t row = 0; row < berth_row_count(&tensor->tensor); ++row) {
        void *to = berth_row(&tensor->tensor, row);
        for (int64_t i = 0; i < berth_row_length(&tensor->tensor); ++i) {
            const double unit = next_unit(seed);
            put_at(to, dtype, i, is_float ? unit * 4.0 - 2.0 : floor(unit * (double)limit));
        }
    }
}

static bool is_close(double got, double wanted, double atol, double rtol) {
    if (isnan(got) || isnan(wanted)) {
        return isnan(got) && isnan(wanted);
    }
    if (isinf(got) || isinf(wanted)) {
        return got == wanted;
    }
    return fabs(got - wanted) <= atol + rtol * fabs(wanted);
}

void op_tensor_compare(const op_tensor *got, const op_tensor *wanted, double atol, double rtol) {
    const int64_t width = berth_row_length(&wanted->tensor);
    CHECK_INT(op_tensor_count(got), op_tensor_count(wanted));
    CHECK_INT(berth_row_length(&got->tensor), width);
    for (int64_t row = 0; row < berth_row_count(&wanted->tensor); ++row) {
        const void *of_got = berth_row(&got->tensor, row);
        const void *of_wanted = berth_row(&wanted->tensor, row);
        const bool is_alike = got->tensor.dtype == wanted->tensor.dtype;
        if (is_alike && memcmp(of_got, of_wanted, row_bytes(wanted)) == 0) {
            continue;
        }
        for (int64_t i = 0; i < width; ++i) {
            const double value = value_at(of_got, got->tensor.dtype, i);
            const double should = value_at(of_wanted, wanted->tensor.dtype, i);
            if (!is_close(value, should, atol, rtol)) {
                print_error("element %lld of row %lld is %.9g, must be %.9g within %g\n",
                            (long long)i, (long long)row, value, should,
                            atol + rtol * fabs(should));
                CHECK(is_close(value, should, atol, rtol));
            }
        }
    }
}
