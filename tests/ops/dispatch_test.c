// SPDX-License-Identifier: Apache-2.0
// Every op of the catalogue through dispatch: a graph of its first case that has elements is
// planned on a stub platform of each kind and run. An implementation of the platform's key runs, on
// ROCm that of cuda when there is no other; an override runs, by the op's id and by its class name,
// and with -op the native reference; each time the provenance says so.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <berth/plugin.h>

#include "base/file.h"
#include "executor/executor.h"
#include "support/core_registry.h"
#include "support/op_case.h"
#include "support/test.h"

#define LAYER   "site"
#define MAX_OPS 256

extern const berth_op *const berth_native_ops[]; // ends with NULL
extern const size_t berth_native_ops_count;

// ---- stub platforms -----------------------------------------------------------------------------

static berth_status allocate(void *self, uint64_t device, uint64_t bytes, void **out_base) {
    (void)self;
    (void)device;
    *out_base = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *out_base == NULL ? BERTH_OUT_OF_MEMORY : BERTH_OK;
}

static void release(void *self, uint64_t device, void *base) {
    (void)self;
    (void)device;
    free(base);
}

static berth_status copy(void *self, uint64_t device, const berth_copy *what) {
    (void)self;
    (void)device;
    memcpy((char *)what->destination + what->destination_offset,
           (const char *)what->source + what->source_offset, what->bytes);
    return BERTH_OK;
}

static berth_status synchronize(void *self, uint64_t device) {
    (void)self;
    (void)device;
    return BERTH_OK;
}

static berth_status one_device(void *self, uint64_t *out_count) {
    (void)self;
    *out_count = 1;
    return BERTH_OK;
}

static berth_status describe_device(void *self, uint64_t device, berth_device_info *out) {
    (void)self;
    (void)device;
    *out = (berth_device_info){
        .size = sizeof *out, .name = "stub", .uuid = "", .memory_bytes = UINT64_C(1) << 30};
    return BERTH_OK;
}

typedef struct stub {
    const char *platform;
    uint64_t kind;
    const char *device_type;
    const char *key; // that its implementations are registered under
} stub;

static const stub stubs[] = {
    {.platform = "stub-cpu",  .kind = BERTH_PLATFORM_CPU,  .device_type = "cpu",  .key = "cpu" },
    {.platform = "stub-cuda", .kind = BERTH_PLATFORM_CUDA, .device_type = "cuda", .key = "cuda"},
    {.platform = "stub-rocm", .kind = BERTH_PLATFORM_ROCM, .device_type = "rocm", .key = "hip" },
    {.platform = "stub-xpu",  .kind = BERTH_PLATFORM_XPU,  .device_type = "xpu",  .key = "xpu" },
    {.platform = "stub-tpu",  .kind = BERTH_PLATFORM_TPU,  .device_type = "tpu",  .key = "tpu" },
    {.platform = "stub-oot",  .kind = BERTH_PLATFORM_OOT,  .device_type = "oot",  .key = "oot" },
};
#define STUB_COUNT (sizeof stubs / sizeof stubs[0])

static berth_status add_stub(berth_registrar *registrar, const stub *which) {
    static const berth_dtype dtypes[] = {BERTH_DTYPE_F32};
    static const berth_capabilities capabilities = {
        .size = sizeof capabilities,
        .flags = BERTH_CAPABILITY_HOST_MEMORY,
        .dtypes = dtypes,
        .dtype_count = 1,
        .memory_type = BERTH_MEMORY_HOST,
    };
    static const berth_device_api device = {
        .size = sizeof device,
        .allocate = allocate,
        .release = release,
        .copy_to_device = copy,
        .copy_to_host = copy,
        .synchronize = synchronize,
    };
    const berth_platform platform = {
        .size = sizeof platform,
        .name = which->platform,
        .vendor = "berth",
        .kind = which->kind,
        .device_type = which->device_type,
        .device_name = "stub",
        .capabilities = &capabilities,
        .device = &device,
        .device_count = one_device,
        .device_info = describe_device,
    };
    return registrar->add_platform(registrar, &platform, NULL);
}

#define STUB_ENTRY(index)                                                                          \
    static berth_status add_stub_##index(const berth_host *host, berth_registrar *registrar) {     \
        (void)host;                                                                                \
        return add_stub(registrar, &stubs[index]);                                                 \
    }
STUB_ENTRY(0)
STUB_ENTRY(1)
STUB_ENTRY(2)
STUB_ENTRY(3)
STUB_ENTRY(4)
STUB_ENTRY(5)

// ---- what is registered -------------------------------------------------------------------------

static size_t call_count;

static berth_status count_call(void *self, const berth_op_args *args) {
    (void)self;
    (void)args;
    ++call_count;
    return BERTH_OK;
}

// What the plugin below adds for every op.
typedef enum content {
    CONTENT_KEYS,     // an implementation of each key
    CONTENT_CUDA,     // one of key cuda
    CONTENT_BY_ID,    // an override
    CONTENT_BY_CLASS, // the same under the class name
} content;

static content content_now;

// Names are borrowed, so they stay.
static berth_status add_impl(berth_registrar *registrar, const berth_op *op, const char *key) {
    static char names[MAX_OPS * STUB_COUNT][96];
    static size_t used;
    char *name = names[used++ % (MAX_OPS * STUB_COUNT)];
    (void)snprintf(name, sizeof names[0], "%s.%s", key, op->name);
    const berth_op_impl impl = {
        .size = sizeof impl,
        .op = op->name,
        .name = name,
        .dispatch_key = key,
        .revision = op->revision,
        .forward = count_call,
    };
    return registrar->add_op_impl(registrar, &impl, 0);
}

static berth_status add_override(berth_registrar *registrar, const berth_op *op, const char *name) {
    static const char *const device_types[] = {"cpu", "cuda", "rocm", "xpu", "tpu", "oot"};
    const berth_op_impl impl = {
        .size = sizeof impl,
        .op = name,
        .name = "replacement",
        .revision = op->revision,
        .device_types = device_types,
        .device_type_count = sizeof device_types / sizeof device_types[0],
        .forward = count_call,
    };
    return registrar->add_op_override(registrar, &impl, 0);
}

static berth_status add_for(berth_registrar *registrar, const berth_op *op) {
    berth_status status = BERTH_OK;
    switch (content_now) {
    case CONTENT_KEYS:
        for (size_t i = 0; status == BERTH_OK && i < STUB_COUNT; ++i) {
            status = add_impl(registrar, op, stubs[i].key);
        }
        return status;
    case CONTENT_CUDA:
        return add_impl(registrar, op, BERTH_DISPATCH_CUDA);
    case CONTENT_BY_ID:
        return add_override(registrar, op, op->name);
    default:
        return add_override(registrar, op, op->class_name);
    }
}

static berth_status add_content(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    berth_status status = BERTH_OK;
    for (size_t i = 0; status == BERTH_OK && i < berth_native_ops_count; ++i) {
        status = add_for(registrar, berth_native_ops[i]);
    }
    return status;
}

#define ENTRY(entry_group, entry_name, function)                                                   \
    &(const berth_entry_point) {                                                                   \
        .size = sizeof(berth_entry_point), .group = (entry_group), .name = (entry_name),           \
        .register_plugin = (function)                                                              \
    }
static const berth_entry_point *const entries[] = {
    ENTRY(BERTH_GROUP_PLATFORM, "stub-cpu", add_stub_0),
    ENTRY(BERTH_GROUP_PLATFORM, "stub-cuda", add_stub_1),
    ENTRY(BERTH_GROUP_PLATFORM, "stub-rocm", add_stub_2),
    ENTRY(BERTH_GROUP_PLATFORM, "stub-xpu", add_stub_3),
    ENTRY(BERTH_GROUP_PLATFORM, "stub-tpu", add_stub_4),
    ENTRY(BERTH_GROUP_PLATFORM, "stub-oot", add_stub_5),
    ENTRY(BERTH_GROUP_GENERAL, "stub-content", add_content),
};
static const berth_plugin plugin = {
    .size = sizeof plugin,
    .abi_min = BERTH_ABI(1, 0),
    .abi_max = BERTH_ABI_CURRENT,
    .id = "stub",
    .version = "3.1.4",
    .vendor = "berth",
    .entry_points = entries,
    .entry_point_count = sizeof entries / sizeof entries[0],
};

// ---- a graph of one op --------------------------------------------------------------------------

typedef struct fixture {
    core_registry core;
    op_case at;
    berth_graph *graph;
    berth_runtime *runtime;
    berth_plan *plan;
    berth_kv_cache_spec cache;
} fixture;

static berth_value_type constant_type(const op_tensor *tensor, uint32_t from_dim) {
    berth_value_type type = {
        .size = sizeof type,
        .dtype = tensor->type.dtype,
        .ndim = tensor->type.ndim - from_dim,
    };
    for (uint32_t i = from_dim; i < tensor->type.ndim; ++i) {
        type.dims[i - from_dim] = BERTH_DIM_CONST(tensor->shape[i]);
    }
    return type;
}

// A case with a block table has paged caches, declared as one block.
static void declare_states(fixture *it, berth_graph_builder *builder) {
    const bool is_paged = op_tensor_is_present(&it->at.block_table);
    for (uint64_t i = 0; i < it->at.op->state_count; ++i) {
        const op_tensor *state = &it->at.states[i];
        if (!op_tensor_is_present(state)) {
            continue;
        }
        const bool is_cache = is_paged && state->type.ndim == 4;
        const berth_value_type type = constant_type(state, is_cache ? 1 : 0);
        berth_graph_state(builder, LAYER, i, &type);
        if (is_cache) {
            it->cache = (berth_kv_cache_spec){
                .size = sizeof it->cache,
                .layer = LAYER,
                .num_heads = state->shape[2],
                .num_kv_heads = state->shape[2],
                .head_size = state->shape[3],
                .block_size = state->shape[1],
                .dtype = state->type.dtype,
            };
        }
    }
}

static void build_graph(fixture *it) {
    const berth_op *op = it->at.op;
    berth_graph_builder *builder = NULL;
    berth_value inputs[BERTH_MAX_INPUTS] = {0};
    const berth_attribute *attributes[OP_MAX_ATTRIBUTES];
    uint64_t count = 0;
    CHECK_OK(berth_graph_begin(it->core.registry, op->name, &builder));
    declare_states(it, builder);
    for (uint64_t i = 0; i < op->input_count; ++i) {
        const berth_value_type type = constant_type(&it->at.inputs[i], 0);
        inputs[i] = op_tensor_is_present(&it->at.inputs[i])
                        ? berth_graph_parameter(builder, op->inputs[i]->name, &type)
                        : BERTH_VALUE_NONE;
    }
    for (uint64_t i = 0; i < op->attribute_count; ++i) {
        if (it->at.attributes[i].kind != BERTH_ATTRIBUTE_NONE) {
            attributes[count++] = &it->at.attributes[i];
        }
    }
    const berth_call call = {
        .size = sizeof call,
        .name = op->name,
        .prefix = LAYER,
        .inputs = inputs,
        .input_count = op->input_count,
        .attributes = attributes,
        .attribute_count = count,
    };
    (void)berth_graph_op(builder, &call);
    CHECK_OK(berth_graph_finish(builder, &it->graph));
}

static void open_platform(fixture *it, const char *platform) {
    const berth_platform_entry *found = NULL;
    for (size_t i = 0; i < berth_registry_platform_count(it->core.registry); ++i) {
        const berth_platform_entry *entry = berth_registry_platform_at(it->core.registry, i);
        found = strcmp(entry->platform.name, platform) == 0 ? entry : found;
    }
    CHECK(found != NULL);
    CHECK_OK(berth_runtime_open(found, 0, berth_registry_host(it->core.registry), &it->runtime));
}

static void feed(fixture *it) {
    for (size_t i = 1; i < it->graph->value_count; ++i) {
        const berth_graph_value *value = &it->graph->values[i];
        if (value->kind == BERTH_VALUE_PARAMETER) {
            const uint64_t bytes = berth_dtype_bytes(
                value->type.dtype, (uint64_t)berth_type_elements(&value->type, 0, 0));
            void *zeros = calloc(1, bytes);
            CHECK_OK(berth_plan_set_parameter(it->plan, (berth_value)i, zeros, bytes));
            free(zeros);
        }
    }
    CHECK_OK(berth_plan_ready(it->plan));
    if (it->cache.layer != NULL) {
        const berth_kv_cache_config caches = {
            .size = sizeof caches, .num_blocks = 2, .group_count = 1};
        CHECK_OK(berth_plan_set_cache(it->plan, &caches));
    }
}

// The plan of the case's op on a stub platform; `custom_ops` is one item, "" for none.
static void open_fixture(fixture *it, const op_line *line, content what, const char *platform,
                         const char *custom_ops) {
    *it = (fixture){.graph = NULL};
    content_now = what;
    call_count = 0;
    core_registry_init(&it->core, &plugin);
    op_line_build(line, &it->at);
    build_graph(it);
    open_platform(it, platform);
    it->core.config.custom_ops = (berth_option_list){
        .items = &custom_ops,
        .count = custom_ops[0] != 0,
    };
    it->core.config.allow_fallback = true;
    const berth_plan_request request = {
        .registry = it->core.registry,
        .config = &it->core.config,
        .graph = it->graph,
        .runtime = it->runtime,
        .kv_caches = &it->cache,
        .kv_cache_count = it->cache.layer != NULL,
        .max_tokens = 1,
        .max_sequences = 1,
        .max_seq_len = 16,
    };
    CHECK_OK(berth_plan_create(&request, &it->plan));
}

static void close_fixture(fixture *it) {
    berth_plan_destroy(it->plan);
    berth_graph_destroy(it->graph);
    berth_runtime_close(it->runtime);
    op_case_free(&it->at);
    core_registry_deinit(&it->core);
}

// One step of one token; the implementations above look at nothing.
static void run(fixture *it) {
    static int32_t numbers[2] = {0, 1};
    static int64_t slot = -1;
    static const int64_t ones[] = {1, 1};
    static const int64_t two[] = {2};
    const berth_tensor one = {.size = sizeof one,
                              .data = numbers,
                              .device_type = BERTH_MEMORY_HOST,
                              .ndim = 1,
                              .dtype = BERTH_DTYPE_I32,
                              .shape = ones,
                              .strides = ones};
    berth_tensor length = one;
    berth_tensor starts = one;
    berth_tensor table = one;
    berth_tensor slots = one;
    length.data = numbers + 1;
    starts.shape = two;
    table.ndim = 2;
    slots.data = &slot;
    slots.dtype = BERTH_DTYPE_I64;
    const berth_tensor *tables[] = {&table};
    const berth_tensor *mappings[] = {&slots};
    const berth_batch_view view = {
        .size = sizeof view,
        .token_ids = &one,
        .positions = &one,
        .query_start_loc = &starts,
        .seq_lens = &length,
        .logits_rows = &one,
        .block_tables = tables,
        .slot_mappings = mappings,
    };
    const berth_batch batch = {
        .size = sizeof batch,
        .host = &view,
        .token_count = 1,
        .sequence_count = 1,
        .logits_row_count = 1,
        .group_count = 1,
        .max_query_len = 1,
        .max_seq_len = 1,
    };
    CHECK_OK(berth_plan_run(it->plan, &batch));
}

// ---- what must be so ----------------------------------------------------------------------------

// That the site is run by `name`, for a reason that has `reason` in it.
static void check_runs(fixture *it, const char *name, const char *reason) {
    const berth_site_record *site = berth_plan_site(it->plan, 0);
    CHECK_UINT(berth_plan_site_count(it->plan), 1);
    CHECK_STR(site->op, it->at.op->name);
    CHECK_STR(site->layer, LAYER);
    CHECK_STR(site->implementation, name);
    CHECK_CONTAINS(site->reason, reason);
    CHECK_STR(site->plugin, site->is_native ? "core-ops" : "stub");
    CHECK_STR(site->version, site->is_native ? BERTH_VERSION : "3.1.4");
    if (!site->is_native) {
        feed(it);
        run(it);
        CHECK_UINT(call_count, 1);
    }
}

static void check_keys(const op_line *line) {
    for (size_t i = 0; i < STUB_COUNT; ++i) {
        fixture it;
        char name[96];
        char reason[32];
        open_fixture(&it, line, CONTENT_KEYS, stubs[i].platform, "");
        (void)snprintf(name, sizeof name, "%s.%s", stubs[i].key, line->op->name);
        (void)snprintf(reason, sizeof reason, "key %s", stubs[i].key);
        check_runs(&it, name, reason);
        close_fixture(&it);
    }
}

static void check_rocm_falls_back_to_cuda(const op_line *line) {
    fixture it;
    char name[96];
    open_fixture(&it, line, CONTENT_CUDA, "stub-rocm", "");
    (void)snprintf(name, sizeof name, "cuda.%s", line->op->name);
    check_runs(&it, name, "key cuda");
    close_fixture(&it);
    open_fixture(&it, line, CONTENT_CUDA, "stub-xpu", "");
    check_runs(&it, "native", "");
    CHECK(berth_plan_site(it.plan, 0)->is_native);
    close_fixture(&it);
}

static void check_override(const op_line *line, content what) {
    for (size_t i = 0; i < STUB_COUNT; i += STUB_COUNT - 1) { // CPU and OOT
        fixture it;
        char minus[96];
        char reason[96]; // by its id, whatever the user wrote
        open_fixture(&it, line, what, stubs[i].platform, "");
        check_runs(&it, "replacement", "override");
        CHECK(berth_plan_site(it.plan, 0)->is_override);
        close_fixture(&it);
        (void)snprintf(minus, sizeof minus, "-%s",
                       what == CONTENT_BY_ID ? line->op->class_name : line->op->name);
        open_fixture(&it, line, what, stubs[i].platform, minus);
        (void)snprintf(reason, sizeof reason, "-%s", line->op->name);
        check_runs(&it, "native", reason);
        CHECK(berth_plan_site(it.plan, 0)->is_native && !berth_plan_site(it.plan, 0)->is_enabled);
        close_fixture(&it);
    }
}

static void run_op(void **state) {
    const op_line *line = *state;
    check_keys(line);
    check_rocm_falls_back_to_cuda(line);
    check_override(line, CONTENT_BY_ID);
    check_override(line, CONTENT_BY_CLASS);
}

// ---- the list of tests --------------------------------------------------------------------------

static op_line lines[MAX_OPS];
static size_t line_count;
static const berth_op *op_at_hand; // whose line is still wanted

static void take_line(const op_line *line, void *cases) {
    const bool is_empty = strstr(line->body, "T=0 ") != NULL || strstr(line->body, "S=0 ") != NULL;
    if (op_at_hand == NULL || line->kind == OP_LINE_REFUSE || is_empty || line_count == MAX_OPS) {
        return;
    }
    op_at_hand = NULL;
    lines[line_count] = *line;
    test_add(cases, line->op->name, run_op, &lines[line_count++]);
}

TEST_CASES(dispatch) {
    for (const berth_op *const *op = berth_native_ops; *op != NULL; ++op) {
        char path[128];
        (void)snprintf(path, sizeof path, "tests/ops/%s.txt", (*op)->name);
        op_at_hand = *op;
        if (berth_path_exists(path)) {
            op_lines_read(*op, path, take_line, cases);
        }
    }
}

TEST(every_op_has_a_case_to_dispatch) {
    CHECK_UINT(line_count, berth_native_ops_count);
}
