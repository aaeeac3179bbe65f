// SPDX-License-Identifier: Apache-2.0
#include "support/test_ops.h"

#include <math.h>
#include <string.h>

#include "support/test.h"

#define MAX_COLUMNS 1024

// ---- shape rules --------------------------------------------------------------------------------

static const berth_op_site *site_of(void *self) {
    return self;
}

static int is_same(const berth_value_type *a, const berth_value_type *b) {
    int same = a->dtype == b->dtype && a->ndim == b->ndim;
    for (uint32_t i = 0; same && i < a->ndim; ++i) {
        same = memcmp(&a->dims[i], &b->dims[i], sizeof(a->dims[i])) == 0;
    }
    return same;
}

static void give(berth_op_result *out, const berth_value_type *type) {
    berth_value_type *to = out->types[out->count++];
    to->dtype = type->dtype;
    to->ndim = type->ndim;
    memcpy(to->dims, type->dims, sizeof(to->dims));
}

static berth_status check_rank(const berth_op_site *site, uint64_t input, uint32_t rank) {
    if (site->inputs[input] != NULL && site->inputs[input]->ndim != rank) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                 "%s: '%s' has rank %u, must have %u", site->op->name,
                                 site->op->inputs[input]->name, site->inputs[input]->ndim, rank);
    }
    return BERTH_OK;
}

static berth_status infer_same(const berth_op_site *site, berth_op_result *out) {
    give(out, site->inputs[0]);
    return BERTH_OK;
}

static berth_status infer_add(const berth_op_site *site, berth_op_result *out) {
    if (!is_same(site->inputs[0], site->inputs[1])) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                 "add: both inputs must have the same type");
    }
    return infer_same(site, out);
}

static berth_status infer_linear(const berth_op_site *site, berth_op_result *out) {
    berth_status status = check_rank(site, 1, 2);
    if (status != BERTH_OK) {
        return status;
    }
    give(out, site->inputs[0]);
    berth_value_type *y = out->types[0];
    if (y->ndim == 0 || y->dims[y->ndim - 1].b != site->inputs[1]->dims[1].b) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                 "linear: 'x' does not fit the weight");
    }
    y->dims[y->ndim - 1] = site->inputs[1]->dims[0];
    return BERTH_OK;
}

static berth_status infer_norm(const berth_op_site *site, berth_op_result *out) {
    if (site->inputs[1] != NULL && !is_same(site->inputs[0], site->inputs[1])) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                 "norm: 'residual' must have the type of 'x'");
    }
    give(out, site->inputs[0]);
    if (site->inputs[1] != NULL) {
        give(out, site->inputs[1]);
    }
    return check_rank(site, 2, 1);
}

static berth_status infer_rows(const berth_op_site *site, berth_op_result *out) {
    const uint64_t rows = strcmp(site->op->name, "embedding") == 0 ? 0 : 1;
    berth_status status = check_rank(site, rows, 1);
    if (status == BERTH_OK) {
        status = check_rank(site, 1 - rows, 2);
    }
    if (status == BERTH_OK) {
        give(out, site->inputs[1 - rows]);
        out->types[0]->dims[0] = site->inputs[rows]->dims[0];
    }
    return status;
}

static berth_status infer_pool(const berth_op_site *site, berth_op_result *out) {
    give(out, site->inputs[0]);
    out->types[0]->dims[0].c *= 2;
    return check_rank(site, 0, 2);
}

static berth_status infer_column_sum(const berth_op_site *site, berth_op_result *out) {
    give(out, site->inputs[0]);
    out->types[0]->dims[0] = BERTH_DIM_CONST(1);
    return check_rank(site, 0, 2);
}

static berth_status infer_row_sum(const berth_op_site *site, berth_op_result *out) {
    give(out, site->inputs[0]);
    out->types[0]->ndim = 2;
    out->types[0]->dims[1] = BERTH_DIM_CONST(1);
    return BERTH_OK;
}

// ---- references ---------------------------------------------------------------------------------

static float *floats(const berth_tensor *tensor) {
    return (float *)(void *)((char *)tensor->data + tensor->byte_offset);
}

static const int32_t *integers(const berth_tensor *tensor) {
    return (const int32_t *)(const void *)((char *)tensor->data + tensor->byte_offset);
}

static int64_t count(const berth_tensor *tensor) {
    int64_t elements = 1;
    for (int32_t i = 0; i < tensor->ndim; ++i) {
        elements *= tensor->shape[i];
    }
    return elements;
}

static int64_t columns(const berth_tensor *tensor) {
    return tensor->ndim == 0 ? 1 : tensor->shape[tensor->ndim - 1];
}

static berth_status run_add(void *self, const berth_op_args *args) {
    (void)self;
    const float *a = floats(args->inputs[0]);
    const float *b = floats(args->inputs[1]);
    float *y = floats(args->outputs[0]);
    for (int64_t i = 0; i < count(args->outputs[0]); ++i) {
        y[i] = a[i] + b[i];
    }
    return BERTH_OK;
}

static berth_status run_scale(void *self, const berth_op_args *args) {
    const berth_op_site *site = site_of(self);
    const float *x = floats(args->inputs[0]);
    float *y = floats(args->outputs[0]);
    for (int64_t i = 0; i < count(args->outputs[0]); ++i) {
        y[i] = (float)((double)x[i] * site->attributes[0]->f64 + site->attributes[1]->f64);
    }
    return BERTH_OK;
}

static berth_status run_linear(void *self, const berth_op_args *args) {
    (void)self;
    const int64_t in = args->inputs[1]->shape[1];
    const int64_t out = args->inputs[1]->shape[0];
    const int64_t rows = count(args->inputs[0]) / in;
    for (int64_t i = 0; i < rows * out; ++i) {
        const float *x = floats(args->inputs[0]) + i / out * in;
        const float *weight = floats(args->inputs[1]) + i % out * in;
        float sum = args->inputs[2] != NULL ? floats(args->inputs[2])[i % out] : 0.0F;
        for (int64_t j = 0; j < in; ++j) {
            sum += x[j] * weight[j];
        }
        floats(args->outputs[0])[i] = sum;
    }
    return BERTH_OK;
}

// The sum goes to the residual's output first, so that in-place use is seen when it is wrong.
static berth_status run_norm(void *self, const berth_op_args *args) {
    const double eps = site_of(self)->attributes[0]->f64;
    const int64_t width = columns(args->inputs[0]);
    for (int64_t row = 0; row < count(args->inputs[0]) / width; ++row) {
        float sums[MAX_COLUMNS];
        double squares = 0.0;
        for (int64_t i = 0; i < width; ++i) {
            const float residual =
                args->inputs[1] != NULL ? floats(args->inputs[1])[row * width + i] : 0.0F;
            sums[i] = floats(args->inputs[0])[row * width + i] + residual;
            squares += (double)sums[i] * (double)sums[i];
        }
        const double factor = 1.0 / sqrt(squares / (double)width + eps);
        for (int64_t i = 0; i < width; ++i) {
            const float weight = args->inputs[2] != NULL ? floats(args->inputs[2])[i] : 1.0F;
            floats(args->outputs[0])[row * width + i] = (float)(sums[i] * factor) * weight;
            if (args->inputs[1] != NULL) {
                floats(args->outputs[1])[row * width + i] = sums[i];
            }
        }
    }
    return BERTH_OK;
}

static berth_status run_rows(void *self, const berth_op_args *args) {
    const uint64_t rows = strcmp(site_of(self)->op->name, "embedding") == 0 ? 0 : 1;
    const int64_t width = columns(args->outputs[0]);
    for (int64_t i = 0; i < args->inputs[rows]->shape[0]; ++i) {
        memcpy(floats(args->outputs[0]) + i * width,
               floats(args->inputs[1 - rows]) + integers(args->inputs[rows])[i] * width,
               (size_t)width * sizeof(float));
    }
    return BERTH_OK;
}

static berth_status run_accumulate(void *self, const berth_op_args *args) {
    (void)self;
    const int64_t width = columns(args->inputs[0]);
    float *total = floats(args->states[0]);
    for (int64_t i = 0; i < count(args->inputs[0]); ++i) {
        total[i % width] += floats(args->inputs[0])[i];
        floats(args->outputs[0])[i] = total[i % width];
    }
    return BERTH_OK;
}

static berth_status run_pool(void *self, const berth_op_args *args) {
    (void)self;
    const int64_t width = columns(args->inputs[0]);
    const int64_t rows = args->inputs[0]->shape[0];
    for (int64_t i = 0; i < count(args->outputs[0]); ++i) {
        const int64_t row = i / width * 2;
        const float *x = floats(args->inputs[0]) + row * width + i % width;
        floats(args->outputs[0])[i] = x[0] + (row + 1 < rows ? x[width] : 0.0F);
    }
    return BERTH_OK;
}

static berth_status run_column_sum(void *self, const berth_op_args *args) {
    (void)self;
    const int64_t width = columns(args->inputs[0]);
    memset(floats(args->outputs[0]), 0, (size_t)width * sizeof(float));
    for (int64_t i = 0; i < count(args->inputs[0]); ++i) {
        floats(args->outputs[0])[i % width] += floats(args->inputs[0])[i];
    }
    return BERTH_OK;
}

// All but the first dimension as one run without gaps.
static berth_status run_row_sum(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[0];
    const int64_t width = x->shape[0] == 0 ? 0 : count(x) / x->shape[0];
    for (int64_t row = 0; row < x->shape[0]; ++row) {
        float sum = 0.0F;
        for (int64_t i = 0; i < width; ++i) {
            sum += floats(x)[row * x->strides[0] + i];
        }
        floats(args->outputs[0])[row] = sum;
    }
    return BERTH_OK;
}

// Element by element through the strides, whatever they are.
static berth_status run_copy(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[0];
    for (int64_t i = 0; i < count(x); ++i) {
        int64_t rest = i;
        int64_t at = 0;
        for (int32_t d = x->ndim - 1; d >= 0; --d) {
            at += rest % x->shape[d] * x->strides[d];
            rest /= x->shape[d];
        }
        floats(args->outputs[0])[i] = floats(x)[at];
    }
    return BERTH_OK;
}

// ---- tables -------------------------------------------------------------------------------------

static const berth_op_argument any_x = {
    .size = sizeof(any_x),
    .name = "x",
    .layout = BERTH_LAYOUT_ANY,
};
static const berth_op_argument *const x_only[] = {BERTH_INPUT("x")};
static const berth_op_argument *const x_any[] = {&any_x};
static const berth_op_argument *const x_strided[] = {BERTH_STRIDED_INPUT("x")};
static const berth_op_argument *const a_b[] = {BERTH_INPUT("a"), BERTH_INPUT("b")};
static const berth_op_argument *const x_rows[] = {BERTH_INPUT("x"), BERTH_INPUT("rows")};
static const berth_op_argument *const ids_weight[] = {BERTH_INPUT("token_ids"),
                                                      BERTH_INPUT("weight")};
static const berth_op_argument *const linear_inputs[] = {
    BERTH_INPUT("x"),
    BERTH_INPUT("weight"),
    BERTH_OPTIONAL_INPUT("bias"),
};
static const berth_op_argument *const norm_inputs[] = {
    BERTH_INPUT("x"),
    BERTH_OPTIONAL_INPUT("residual"),
    BERTH_OPTIONAL_INPUT("weight"),
};
static const berth_op_argument *const total[] = {BERTH_INPUT("total")};

static const berth_op_attribute *const scale_attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("factor", BERTH_ATTRIBUTE_F64),
    BERTH_OPTIONAL_ATTRIBUTE("bias", BERTH_ATTRIBUTE_F64, .f64 = 0.0),
};
static const berth_op_attribute *const norm_attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("eps", BERTH_ATTRIBUTE_F64),
};
static const int64_t default_sizes[] = {3, -4};
static const berth_op_attribute weights_attribute = {
    .size = sizeof(weights_attribute),
    .name = "weights",
    .kind = BERTH_ATTRIBUTE_F64S,
};
static const berth_attribute seven = {
    .size = sizeof(seven),
    .name = "count",
    .kind = BERTH_ATTRIBUTE_I64,
    .i64 = 7,
};
static const berth_op_attribute count_attribute = {
    .size = sizeof(count_attribute),
    .name = "count",
    .kind = BERTH_ATTRIBUTE_I64,
    .default_value = &seven,
    .since = 2,
};
static const berth_op_attribute *const describe_attributes[] = {
    &count_attribute,
    BERTH_OPTIONAL_ATTRIBUTE("ratio", BERTH_ATTRIBUTE_F64, .f64 = 0.5),
    BERTH_OPTIONAL_ATTRIBUTE("flag", BERTH_ATTRIBUTE_BOOL, .i64 = 1),
    BERTH_OPTIONAL_ATTRIBUTE("label", BERTH_ATTRIBUTE_STR, .str = "plain"),
    BERTH_OPTIONAL_ATTRIBUTE("sizes", BERTH_ATTRIBUTE_I64S, .i64s = default_sizes, .count = 2),
    &weights_attribute,
};

// Their second revision, beside which implementations of the first still run.
#define OP(id, class, shape_rule, run, ...)                                                        \
    {                                                                                              \
        .size = sizeof(berth_op), .name = (id), .class_name = (class), .revision = 2,              \
        .compatible_revision = 1, .infer = (shape_rule), .reference = (run), __VA_ARGS__           \
    }
#define INPUTS(table) .inputs = (table), .input_count = sizeof(table) / sizeof((table)[0])
#define STATES(table) .states = (table), .state_count = sizeof(table) / sizeof((table)[0])
#define ATTRIBUTES(table)                                                                          \
    .attributes = (table), .attribute_count = sizeof(table) / sizeof((table)[0])

static const berth_op ops[] = {
    OP("add", "Add", infer_add, run_add, INPUTS(a_b)),
    OP("scale", "Scale", infer_same, run_scale, INPUTS(x_only), ATTRIBUTES(scale_attributes)),
    OP("linear", "Linear", infer_linear, run_linear, INPUTS(linear_inputs)),
    OP("norm", "Norm", infer_norm, run_norm, INPUTS(norm_inputs), ATTRIBUTES(norm_attributes),
       .has_decomposition = 1),
    OP("embedding", "Embedding", infer_rows, run_rows, INPUTS(ids_weight)),
    OP("accumulate", "Accumulate", infer_same, run_accumulate, INPUTS(x_only), STATES(total)),
    OP("select_rows", "SelectRows", infer_rows, run_rows, INPUTS(x_rows)),
    OP("pool", "Pool", infer_pool, run_pool, INPUTS(x_only)),
    OP("row_sum", "RowSum", infer_row_sum, run_row_sum, INPUTS(x_strided)),
    OP("column_sum", "ColumnSum", infer_column_sum, run_column_sum, INPUTS(x_only)),
    OP("contiguous", "Contiguous", infer_same, run_copy, INPUTS(x_any)),
    OP("describe", "Describe", infer_same, run_copy, INPUTS(x_only),
       ATTRIBUTES(describe_attributes), .has_decomposition = 1),
};

static berth_status register_ops(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); ++i) {
        const berth_status status = registrar->add_op(registrar, &ops[i], 0);
        if (status != BERTH_OK) {
            return status;
        }
    }
    return registrar->add_op(registrar, &test_paged_attention, 0);
}

static const berth_entry_point entry = {
    .size = sizeof(entry),
    .group = BERTH_GROUP_GENERAL,
    .name = "test-ops",
    .register_plugin = register_ops,
};
static const berth_entry_point *const entries[] = {&entry};

const berth_plugin test_ops_plugin = {
    .size = sizeof(test_ops_plugin),
    .abi_min = BERTH_ABI(1, 0),
    .abi_max = BERTH_ABI_CURRENT,
    .id = "test-ops",
    .version = "1.0.0",
    .vendor = "berth",
    .entry_points = entries,
    .entry_point_count = 1,
};

berth_registry *test_ops_registry(const berth_plugin *also) {
    static berth_arena *arena;  // of all registries of the executable
    static berth_config config; // no plugin of the tests reads it
    if (arena == NULL) {
        CHECK_OK(berth_arena_create(1 << 16, 1 << 26, &arena));
        CHECK_OK(berth_config_init(&config, arena));
    }
    const berth_plugin *const plugins[] = {&test_ops_plugin, also};
    berth_registry *registry = NULL;
    CHECK_OK(berth_registry_create(&config, NULL, &registry));
    CHECK_OK(berth_registry_add_core(registry, plugins, also == NULL ? 1 : 2));
    CHECK_OK(berth_registry_freeze(registry));
    return registry;
}
