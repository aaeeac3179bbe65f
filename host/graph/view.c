// SPDX-License-Identifier: Apache-2.0
// The rules of views: slices and reshapes of symbolic shapes.
//
// A reshape is allowed when both products of dims are the same for every value of the symbols. Each
// dim without a division is split into a constant and a primitive a * s + b; primitive factors over
// the integers are unique, so the constants must agree and the factors must pair up. Dims with a
// division are paired as they stand, which may refuse an exotic reshape but never allows a wrong
// one.
#include "graph/rules.h"

typedef struct factors {
    int64_t constant;
    berth_dim dims[BERTH_MAX_DIMS];
    uint32_t count;
} factors;

berth_status berth_slice_type(const berth_value_type *source, const berth_graph_node *node,
                              berth_value_type *out_type) {
    char text[BERTH_TYPE_TEXT_BYTES];
    if (node->slice_dim >= source->ndim) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "slice of dimension %llu of %s, which has %u dimensions",
                          (unsigned long long)node->slice_dim, berth_type_text(source, text),
                          (unsigned)source->ndim);
    }
    const berth_dim dim = source->dims[node->slice_dim];
    if (!berth_dim_is_const(dim)) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "slice of dimension %llu of %s: only a constant dimension can be sliced",
                          (unsigned long long)node->slice_dim, berth_type_text(source, text));
    }
    if (node->slice_start < 0 || node->slice_length < 0 || node->slice_start > dim.b ||
        node->slice_length > dim.b - node->slice_start) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "slice of %lld elements from %lld is outside dimension %llu of %s",
                          (long long)node->slice_length, (long long)node->slice_start,
                          (unsigned long long)node->slice_dim, berth_type_text(source, text));
    }
    *out_type = *source;
    out_type->dims[node->slice_dim] = BERTH_DIM_CONST(node->slice_length);
    return BERTH_OK;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    return b == 0 ? a : common_divisor(b, a % b);
}

// False when the constants overflow.
static bool factorise(const berth_dim *dims, uint32_t count, factors *out) {
    *out = (factors){.constant = 1};
    for (uint32_t i = 0; i < count; ++i) {
        berth_dim dim = dims[i];
        int64_t constant = dim.symbol == BERTH_SYMBOL_NONE ? dim.b : 1;
        if (dim.symbol != BERTH_SYMBOL_NONE && dim.c == 1) {
            constant = common_divisor(dim.a, dim.b < 0 ? -dim.b : dim.b);
            dim.a /= constant;
            dim.b /= constant;
        }
        if (dim.symbol != BERTH_SYMBOL_NONE) {
            out->dims[out->count++] = dim;
        }
        if (__builtin_mul_overflow(out->constant, constant, &out->constant)) {
            return false;
        }
    }
    return true;
}

// Whether each factor of `a` has a partner of its own in `b`, which is used up.
static bool pair_up(const factors *a, factors *b) {
    for (uint32_t i = 0; i < a->count; ++i) {
        uint32_t found = 0;
        while (found < b->count && !berth_dim_equal(a->dims[i], b->dims[found])) {
            ++found;
        }
        if (found == b->count) {
            return false;
        }
        b->dims[found] = b->dims[--b->count];
    }
    return b->count == 0;
}

bool berth_dims_match(const berth_dim *a, uint32_t a_count, const berth_dim *b, uint32_t b_count) {
    factors from;
    factors to;
    return factorise(a, a_count, &from) && factorise(b, b_count, &to) &&
           from.constant == to.constant && pair_up(&from, &to);
}

berth_status berth_reshape_check(const berth_value_type *source, const berth_value_type *target) {
    const bool fits = source->dtype == target->dtype &&
                      berth_dims_match(source->dims, source->ndim, target->dims, target->ndim);
    if (!fits) {
        char a[BERTH_TYPE_TEXT_BYTES];
        char b[BERTH_TYPE_TEXT_BYTES];
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "reshape of %s to %s: the number of elements must be the same",
                          berth_type_text(source, a), berth_type_text(target, b));
    }
    return BERTH_OK;
}
