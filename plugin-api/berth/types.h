// SPDX-License-Identifier: Apache-2.0
// The plain data of the contract: dtypes, tensors, symbolic shapes, attributes and tagged tables.
//
// Everything here crosses the boundary between the host and a plugin, so only fixed-width integers,
// IEEE floats, pointers and opaque handles appear. Every struct begins with its own size in bytes;
// members are 8 bytes wide (or two 4-byte halves) and are only ever appended. A reader copies
// min(its own size, the given size) and takes what is missing as zero, and zero always means
// "absent" or "default". Arrays of structs cross as arrays of pointers.
//
// Tags in comments of all headers of this directory:
//   [required]  the table is refused, naming the slot, when it is NULL
//   [inherit]   NULL: the host uses its own implementation
//   [optional]  NULL: calling it gives BERTH_UNSUPPORTED naming the slot
//   [startup]   called on the main thread before the first step; may block and allocate
//   [engine]    called on the engine thread during a step; blocks on nothing but the device
//   [any]       called from any thread at any time; never blocks
#ifndef BERTH_TYPES_H
#define BERTH_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Whether a table, possibly built against an older header, has a slot and the slot is not NULL.
#define BERTH_HAS(table, slot)                                                                     \
    ((uint64_t)((const char *)&(table)->slot - (const char *)(table)) + sizeof((table)->slot) <=   \
         (table)->size &&                                                                          \
     (table)->slot != 0)

// ABI versions: major in the upper, minor in the lower 32 bits.
#define BERTH_ABI(major, minor) ((uint64_t)(major) << 32 | (uint64_t)(minor))
#define BERTH_ABI_MAJOR(abi)    ((uint32_t)((abi) >> 32))
#define BERTH_ABI_MINOR(abi)    ((uint32_t)(abi))
#define BERTH_ABI_CURRENT       BERTH_ABI(1, 1)

// ---- dtypes -------------------------------------------------------------------------------------

// DLPack's DLDataType {uint8 code, uint8 bits, uint16 lanes} read as one little-endian word.
typedef uint32_t berth_dtype;

#define BERTH_DTYPE(code, bits) ((berth_dtype)((uint32_t)(code) | (uint32_t)(bits) << 8 | 1u << 16))
#define BERTH_DTYPE_BITS(dtype) ((uint32_t)(dtype) >> 8 & 0xffu)

#define BERTH_DTYPE_NONE        ((berth_dtype)0)
#define BERTH_DTYPE_I8          BERTH_DTYPE(0, 8)
#define BERTH_DTYPE_I16         BERTH_DTYPE(0, 16)
#define BERTH_DTYPE_I32         BERTH_DTYPE(0, 32)
#define BERTH_DTYPE_I64         BERTH_DTYPE(0, 64)
#define BERTH_DTYPE_U8          BERTH_DTYPE(1, 8)
#define BERTH_DTYPE_U16         BERTH_DTYPE(1, 16)
#define BERTH_DTYPE_U32         BERTH_DTYPE(1, 32)
#define BERTH_DTYPE_U64         BERTH_DTYPE(1, 64)
#define BERTH_DTYPE_F16         BERTH_DTYPE(2, 16)
#define BERTH_DTYPE_F32         BERTH_DTYPE(2, 32)
#define BERTH_DTYPE_F64         BERTH_DTYPE(2, 64)
#define BERTH_DTYPE_BF16        BERTH_DTYPE(4, 16)
#define BERTH_DTYPE_BOOL        BERTH_DTYPE(6, 8)
#define BERTH_DTYPE_F8_E4M3FN   BERTH_DTYPE(10, 8)
#define BERTH_DTYPE_F8_E4M3FNUZ BERTH_DTYPE(11, 8)
#define BERTH_DTYPE_F8_E5M2     BERTH_DTYPE(12, 8)
#define BERTH_DTYPE_F8_E8M0     BERTH_DTYPE(14, 8)
#define BERTH_DTYPE_F4_E2M1     BERTH_DTYPE(17, 4)

// ---- tensors ------------------------------------------------------------------------------------

#define BERTH_MAX_DIMS 8

// DLPack's device types; a device that has none of its own is BERTH_MEMORY_EXTENSION.
#define BERTH_MEMORY_HOST      1
#define BERTH_MEMORY_CUDA      2
#define BERTH_MEMORY_OPENCL    4
#define BERTH_MEMORY_ROCM      10
#define BERTH_MEMORY_EXTENSION 12

// A view of memory: size, then the 48 bytes of DLPack's DLTensor, then what is appended.
// The bytes of element i are at (data, byte_offset + dot(i, strides) * element bytes). `data` is an
// opaque base: only the device that allocated it may turn it into an address. On host memory
// (device_type BERTH_MEMORY_HOST) it is an address.
typedef struct berth_tensor {
    uint64_t size;
    void *data;
    int32_t device_type; // BERTH_MEMORY_*
    int32_t device_id;
    int32_t ndim; // 0 .. BERTH_MAX_DIMS
    berth_dtype dtype;
    const int64_t *shape;   // [ndim], elements
    const int64_t *strides; // [ndim], elements, never NULL when ndim > 0
    uint64_t byte_offset;
} berth_tensor;

// A tensor as rows along its last dimension, counted in row-major order over all others: how many
// there are, and where one begins, in elements from the tensor's first. A rank of 0 or 1 is one
// row.
static inline int64_t berth_tensor_row_count(const berth_tensor *tensor) {
    int64_t count = 1;
    for (int32_t dim = 0; dim < tensor->ndim - 1; ++dim) {
        count *= tensor->shape[dim];
    }
    return count;
}
static inline int64_t berth_tensor_row_offset(const berth_tensor *tensor, int64_t row) {
    int64_t offset = 0;
    for (int32_t dim = tensor->ndim - 2; dim >= 0; --dim) {
        offset += row % tensor->shape[dim] * tensor->strides[dim];
        row /= tensor->shape[dim];
    }
    return offset;
}

// ---- symbolic shapes ----------------------------------------------------------------------------

#define BERTH_SYMBOL_NONE      0u // the dimension is the constant b
#define BERTH_SYMBOL_TOKENS    1u // s0: tokens in the batch
#define BERTH_SYMBOL_SEQUENCES 2u // s1: rows whose logits are wanted, at most one per sequence

// One dimension: ceil((a * symbol + b) / c). A constant has symbol 0, a 0, c 1.
typedef struct berth_dim {
    uint64_t symbol; // BERTH_SYMBOL_*
    int64_t a;
    int64_t b;
    int64_t c;
} berth_dim;

#define BERTH_DIM_CONST(n)  ((berth_dim){BERTH_SYMBOL_NONE, 0, (n), 1})
#define BERTH_DIM_TOKENS    ((berth_dim){BERTH_SYMBOL_TOKENS, 1, 0, 1})
#define BERTH_DIM_SEQUENCES ((berth_dim){BERTH_SYMBOL_SEQUENCES, 1, 0, 1})

// The type of a graph value: a dtype and a symbolic shape.
typedef struct berth_value_type {
    uint64_t size;
    berth_dtype dtype;
    uint32_t ndim;
    berth_dim dims[BERTH_MAX_DIMS];
} berth_value_type;

// ---- attributes ---------------------------------------------------------------------------------

#define BERTH_ATTRIBUTE_NONE 0u // absent
#define BERTH_ATTRIBUTE_I64  1u
#define BERTH_ATTRIBUTE_F64  2u
#define BERTH_ATTRIBUTE_BOOL 3u // i64 is 0 or 1
#define BERTH_ATTRIBUTE_STR  4u
#define BERTH_ATTRIBUTE_I64S 5u // list: i64s, count
#define BERTH_ATTRIBUTE_F64S 6u // list: f64s, count

// One named, typed constant of an op site or a layer.
typedef struct berth_attribute {
    uint64_t size;
    const char *name;
    uint64_t kind; // BERTH_ATTRIBUTE_*
    int64_t i64;
    double f64;
    const char *str;
    const int64_t *i64s;
    const double *f64s;
    uint64_t count;
} berth_attribute;

// The attribute of that name in an array of `count`, or NULL.
static inline const berth_attribute *berth_attribute_find(const berth_attribute *const *attributes,
                                                          uint64_t count, const char *name) {
    for (uint64_t i = 0; i < count; ++i) {
        if (strcmp(attributes[i]->name, name) == 0) {
            return attributes[i];
        }
    }
    return NULL;
}

#endif
