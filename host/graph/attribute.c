// SPDX-License-Identifier: Apache-2.0
// Attributes of a node: from what a call gives, in any order, to one entry per declared attribute
// in the op's order, defaults filled in, owned by the graph. Names come from the op's table.
#include "graph/rules.h"

#include <math.h>
#include <string.h>

static const char *const kind_names[] = {
    [BERTH_ATTRIBUTE_NONE] = "absent",          [BERTH_ATTRIBUTE_I64] = "an integer",
    [BERTH_ATTRIBUTE_F64] = "a real",           [BERTH_ATTRIBUTE_BOOL] = "true or false",
    [BERTH_ATTRIBUTE_STR] = "a text",           [BERTH_ATTRIBUTE_I64S] = "a list of integers",
    [BERTH_ATTRIBUTE_F64S] = "a list of reals",
};

static const char *kind_name(uint64_t kind) {
    return kind <= BERTH_ATTRIBUTE_F64S ? kind_names[kind] : "of an unknown kind";
}

static berth_status check_reals(const char *op, const char *name, const double *values,
                                size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (!isfinite(values[i])) {
            return BERTH_FAIL(INVALID_ARGUMENT, "op '%s': attribute '%s' must be finite", op, name);
        }
    }
    return BERTH_OK;
}

// The content that the kind requires is there and can be printed and read back.
static berth_status check_content(const char *op, const berth_attribute *attribute) {
    const char *name = attribute->name;
    switch (attribute->kind) {
    case BERTH_ATTRIBUTE_BOOL:
        if (attribute->i64 != 0 && attribute->i64 != 1) {
            return BERTH_FAIL(INVALID_ARGUMENT, "op '%s': attribute '%s' is %lld, must be 0 or 1",
                              op, name, (long long)attribute->i64);
        }
        return BERTH_OK;
    case BERTH_ATTRIBUTE_F64:
        return check_reals(op, name, &attribute->f64, 1);
    case BERTH_ATTRIBUTE_STR:
        return attribute->str != NULL
                   ? BERTH_OK
                   : BERTH_FAIL(INVALID_ARGUMENT, "op '%s': attribute '%s' has no text", op, name);
    case BERTH_ATTRIBUTE_I64S:
    case BERTH_ATTRIBUTE_F64S:
        if (attribute->count > 0 &&
            (attribute->kind == BERTH_ATTRIBUTE_I64S ? attribute->i64s == NULL
                                                     : attribute->f64s == NULL)) {
            return BERTH_FAIL(INVALID_ARGUMENT, "op '%s': attribute '%s' has no list", op, name);
        }
        return attribute->kind == BERTH_ATTRIBUTE_I64S
                   ? BERTH_OK
                   : check_reals(op, name, attribute->f64s, attribute->count);
    default:
        return BERTH_OK;
    }
}

// A copy of the content, and only of what the kind uses, in the arena.
static berth_status copy_attribute(const berth_attribute *from, berth_arena *arena,
                                   berth_attribute *to) {
    const bool is_list = from->kind == BERTH_ATTRIBUTE_I64S || from->kind == BERTH_ATTRIBUTE_F64S;
    void *content = NULL;
    if (from->kind == BERTH_ATTRIBUTE_I64 || from->kind == BERTH_ATTRIBUTE_BOOL) {
        to->i64 = from->i64;
    } else if (from->kind == BERTH_ATTRIBUTE_F64) {
        to->f64 = from->f64;
    } else if (from->kind == BERTH_ATTRIBUTE_STR) {
        content = berth_arena_strdup(arena, from->str);
        to->str = content;
    } else if (is_list) {
        content = berth_arena_array(arena, from->count, sizeof(int64_t));
        to->count = from->count;
    }
    if (content == NULL && (is_list || from->kind == BERTH_ATTRIBUTE_STR)) {
        return berth_arena_exhausted(arena, "graph attributes");
    }
    if (from->kind == BERTH_ATTRIBUTE_I64S) {
        to->i64s = content;
    } else if (from->kind == BERTH_ATTRIBUTE_F64S) {
        to->f64s = content;
    }
    if (is_list && from->count > 0) {
        const void *list = to->i64s != NULL ? (const void *)from->i64s : (const void *)from->f64s;
        memcpy(content, list, from->count * sizeof(int64_t));
    }
    return BERTH_OK;
}

static const berth_attribute *find_given(const berth_call *call, const char *name) {
    for (uint64_t i = 0; i < call->attribute_count; ++i) {
        if (strcmp(call->attributes[i]->name, name) == 0) {
            return call->attributes[i];
        }
    }
    return NULL;
}

// One declared attribute: given, default or absent.
static berth_status complete_one(const berth_op *op, const berth_op_attribute *declared,
                                 const berth_attribute *given, berth_arena *arena,
                                 const berth_attribute **out_attribute) {
    berth_attribute *attribute = BERTH_ARENA_NEW(arena, berth_attribute);
    if (attribute == NULL) {
        return berth_arena_exhausted(arena, "graph attributes");
    }
    attribute->size = sizeof(*attribute);
    attribute->name = declared->name;
    *out_attribute = attribute;
    if (given == NULL && declared->is_required != 0) {
        return BERTH_FAIL(INVALID_ARGUMENT, "op '%s' needs the attribute '%s', %s", op->name,
                          declared->name, kind_name(declared->kind));
    }
    if (given == NULL && declared->default_value == NULL) {
        return BERTH_OK;
    }
    // Why: the giver may have been built with another minor of the contract.
    const berth_attribute *source = given != NULL ? given : declared->default_value;
    berth_attribute content = {0};
    memcpy(&content, source, source->size < sizeof(content) ? source->size : sizeof(content));
    if (content.kind != declared->kind) {
        return BERTH_FAIL(INVALID_ARGUMENT, "op '%s': attribute '%s' must be %s, is %s", op->name,
                          declared->name, kind_name(declared->kind), kind_name(content.kind));
    }
    BERTH_TRY(check_content(op->name, &content));
    attribute->kind = content.kind;
    return copy_attribute(&content, arena, attribute);
}

static berth_status refuse_unknown(const berth_op *op, const char *name) {
    const char *names[64];
    size_t count = 0;
    for (uint64_t i = 0; i < op->attribute_count && count < 64; ++i) {
        names[count++] = op->attributes[i]->name;
    }
    const char *nearest = berth_str_nearest(berth_str_from(name), names, count);
    if (nearest != NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT, "op '%s' has no attribute '%s'; did you mean '%s'?",
                          op->name, name, nearest);
    }
    return BERTH_FAIL(INVALID_ARGUMENT, "op '%s' has no attribute '%s'", op->name, name);
}

static bool is_declared(const berth_op *op, const char *name) {
    for (uint64_t i = 0; i < op->attribute_count; ++i) {
        if (strcmp(op->attributes[i]->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_repeated(const berth_call *call, uint64_t index) {
    for (uint64_t i = 0; i < index; ++i) {
        if (strcmp(call->attributes[i]->name, call->attributes[index]->name) == 0) {
            return true;
        }
    }
    return false;
}

berth_status berth_attributes_complete(const berth_op *op, const berth_call *call,
                                       berth_arena *arena,
                                       const berth_attribute *const **out_attributes) {
    for (uint64_t i = 0; i < call->attribute_count; ++i) {
        const char *name = call->attributes[i]->name;
        if (!is_declared(op, name)) {
            return refuse_unknown(op, name);
        }
        if (is_repeated(call, i)) {
            return BERTH_FAIL(INVALID_ARGUMENT, "op '%s': attribute '%s' is given twice", op->name,
                              name);
        }
    }
    const berth_attribute **attributes =
        BERTH_ARENA_ARRAY(arena, const berth_attribute *, op->attribute_count);
    if (attributes == NULL) {
        return berth_arena_exhausted(arena, "graph attributes");
    }
    for (uint64_t i = 0; i < op->attribute_count; ++i) {
        const berth_op_attribute *declared = op->attributes[i];
        BERTH_TRY(
            complete_one(op, declared, find_given(call, declared->name), arena, &attributes[i]));
    }
    *out_attributes = attributes;
    return BERTH_OK;
}
