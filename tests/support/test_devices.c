// SPDX-License-Identifier: Apache-2.0
#include "support/test_devices.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include "support/test_ops.h"

#define MAX_HANDLES  4096
#define FIRST_HANDLE 0x1000u
#define MAX_QUEUED   256
#define MAX_TENSORS  40

static void *memories[MAX_HANDLES];
static uint64_t sizes[MAX_HANDLES];
static size_t handle_count;
static size_t live_count;
static size_t allowed_count = SIZE_MAX;
static uint64_t call_count;
static test_content content_now;

typedef struct queued {
    void *self;
    const berth_op_args *args;
} queued;
static queued queue[MAX_QUEUED];
static size_t queue_count;

// A call with everything that it was given, as it was then.
typedef struct frozen {
    void *self;
    berth_tensor tensors[MAX_TENSORS];
    int64_t shapes[MAX_TENSORS][BERTH_MAX_DIMS];
    int64_t strides[MAX_TENSORS][BERTH_MAX_DIMS];
    size_t count;
    const berth_tensor *inputs[BERTH_MAX_INPUTS];
    berth_tensor *outputs[BERTH_MAX_OUTPUTS];
    berth_tensor *states[4];
    const berth_tensor *table;
    const berth_tensor *slots;
    berth_batch_view view;
    berth_batch batch;
    berth_op_args args;
} frozen;

// A recorded step of fake-recording.
typedef struct recorded {
    frozen *calls[MAX_QUEUED];
    size_t count;
} recorded;
static recorded *recording; // NULL: forwards run

// ---- memory of fake-device ----------------------------------------------------------------------

static size_t index_of(const void *base) {
    const uintptr_t handle = (uintptr_t)base;
    CHECK(handle >= FIRST_HANDLE && handle < FIRST_HANDLE + handle_count);
    CHECK(memories[handle - FIRST_HANDLE] != NULL);
    return handle - FIRST_HANDLE;
}

void *test_devices_address(void *base) {
    return memories[index_of(base)];
}

size_t test_devices_live(void) {
    return live_count;
}

void test_devices_allow(size_t allocations) {
    allowed_count = allocations;
}

uint64_t test_devices_calls(void) {
    return call_count;
}

static berth_status allocate(void *self, uint64_t device, uint64_t bytes, void **out_base) {
    (void)self;
    (void)device;
    CHECK(bytes > 0 && handle_count < MAX_HANDLES);
    if (allowed_count == 0) {
        return BERTH_OUT_OF_MEMORY;
    }
    allowed_count -= allowed_count != SIZE_MAX;
    memories[handle_count] = malloc(bytes);
    memset(memories[handle_count], 0xee, bytes);
    sizes[handle_count] = bytes;
    ++live_count;
    *out_base = (void *)(uintptr_t)(FIRST_HANDLE + handle_count++);
    return BERTH_OK;
}

static void release(void *self, uint64_t device, void *base) {
    (void)self;
    (void)device;
    if (base != NULL) {
        const size_t index = index_of(base);
        free(memories[index]);
        memories[index] = NULL;
        --live_count;
    }
}

static char *within(const void *base, uint64_t offset, uint64_t bytes) {
    const size_t index = index_of(base);
    CHECK(offset <= sizes[index] && bytes <= sizes[index] - offset);
    return (char *)memories[index] + offset;
}

static berth_status copy_to_device(void *self, uint64_t device, const berth_copy *copy) {
    (void)self;
    CHECK_UINT(device, 0);
    const char *from = (const char *)copy->source + copy->source_offset;
    memcpy(within(copy->destination, copy->destination_offset, copy->bytes), from, copy->bytes);
    return BERTH_OK;
}

static berth_status copy_to_host(void *self, uint64_t device, const berth_copy *copy) {
    (void)self;
    CHECK_UINT(device, 0);
    char *to = (char *)copy->destination + copy->destination_offset;
    memcpy(to, within(copy->source, copy->source_offset, copy->bytes), copy->bytes);
    return BERTH_OK;
}

static berth_status synchronize(void *self, uint64_t device) {
    (void)self;
    (void)device;
    const size_t count = queue_count;
    queue_count = 0;
    for (size_t i = 0; i < count; ++i) {
        const berth_op_site *site = queue[i].self;
        CHECK_OK(site->op->reference(queue[i].self, queue[i].args));
    }
    return BERTH_OK;
}

// ---- host memory --------------------------------------------------------------------------------

static berth_status allocate_host(void *self, uint64_t device, uint64_t bytes, void **out_base) {
    (void)self;
    (void)device;
    *out_base = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(*out_base, 0xee, bytes);
    return BERTH_OK;
}

static void release_host(void *self, uint64_t device, void *base) {
    (void)self;
    (void)device;
    free(base);
}

// ---- forwards -----------------------------------------------------------------------------------

berth_status test_host_forward(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    ++call_count;
    return site->op->reference(self, args);
}

berth_status test_queued_forward(void *self, const berth_op_args *args) {
    ++call_count;
    CHECK(queue_count < MAX_QUEUED);
    queue[queue_count++] = (queued){.self = self, .args = args};
    return BERTH_OK;
}

// Tensors with addresses in place of handles.
typedef struct resolved {
    berth_tensor tensors[MAX_TENSORS];
    size_t count;
} resolved;

static berth_tensor *resolve(resolved *in, const berth_tensor *tensor) {
    if (tensor == NULL) {
        return NULL;
    }
    CHECK(in->count < MAX_TENSORS);
    CHECK_INT(tensor->device_type, BERTH_MEMORY_EXTENSION);
    berth_tensor *copy = &in->tensors[in->count++];
    *copy = *tensor;
    copy->data = test_devices_address(tensor->data);
    copy->device_type = BERTH_MEMORY_HOST;
    return copy;
}

static berth_tensor *freeze(frozen *in, const berth_tensor *tensor) {
    if (tensor == NULL) {
        return NULL;
    }
    CHECK(in->count < MAX_TENSORS);
    const size_t at = in->count++;
    in->tensors[at] = *tensor;
    for (int32_t i = 0; i < tensor->ndim; ++i) {
        in->shapes[at][i] = tensor->shape[i];
        in->strides[at][i] = tensor->strides[i];
    }
    in->tensors[at].shape = in->shapes[at];
    in->tensors[at].strides = in->strides[at];
    return &in->tensors[at];
}

// Recorded work does not see what the host changes in its tables later.
static frozen *freeze_call(const berth_op_site *site, const berth_op_args *args) {
    frozen *call = calloc(1, sizeof(*call));
    const berth_batch_view *from = args->batch->device;
    call->self = (void *)(uintptr_t)site;
    for (uint64_t i = 0; i < site->op->input_count; ++i) {
        call->inputs[i] = freeze(call, args->inputs[i]);
    }
    for (uint64_t i = 0; i < site->output_count; ++i) {
        call->outputs[i] = freeze(call, args->outputs[i]);
    }
    for (uint64_t i = 0; i < site->op->state_count; ++i) {
        call->states[i] = freeze(call, args->states[i]);
    }
    call->table = site->block_size > 0 ? freeze(call, from->block_tables[0]) : NULL;
    call->slots = site->block_size > 0 ? freeze(call, from->slot_mappings[0]) : NULL;
    call->view = (berth_batch_view){
        .size = sizeof(call->view),
        .token_ids = freeze(call, from->token_ids),
        .positions = freeze(call, from->positions),
        .query_start_loc = freeze(call, from->query_start_loc),
        .seq_lens = freeze(call, from->seq_lens),
        .logits_rows = freeze(call, from->logits_rows),
        .block_tables = &call->table,
        .slot_mappings = &call->slots,
    };
    call->batch = *args->batch;
    call->batch.device = &call->view;
    call->args = *args;
    call->args.inputs = call->inputs;
    call->args.outputs = call->outputs;
    call->args.states = call->states;
    call->args.batch = &call->batch;
    return call;
}

berth_status test_device_forward(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    if (recording != NULL) {
        CHECK(recording->count < MAX_QUEUED);
        recording->calls[recording->count++] = freeze_call(site, args);
        return BERTH_OK;
    }
    resolved all = {.count = 0};
    const berth_tensor *inputs[BERTH_MAX_INPUTS] = {0};
    berth_tensor *outputs[BERTH_MAX_OUTPUTS] = {0};
    berth_tensor *states[4] = {0};
    ++call_count;
    for (uint64_t i = 0; i < site->op->input_count; ++i) {
        inputs[i] = resolve(&all, args->inputs[i]);
    }
    for (uint64_t i = 0; i < site->output_count; ++i) {
        outputs[i] = resolve(&all, args->outputs[i]);
    }
    for (uint64_t i = 0; i < site->op->state_count; ++i) {
        states[i] = resolve(&all, args->states[i]);
    }
    berth_op_args own = *args;
    own.inputs = inputs;
    own.outputs = outputs;
    own.states = states;
    const berth_batch_view *from = args->batch->device;
    const bool has_cache = site->block_size > 0;
    const berth_tensor *table = has_cache ? resolve(&all, from->block_tables[0]) : NULL;
    const berth_tensor *slots = has_cache ? resolve(&all, from->slot_mappings[0]) : NULL;
    const berth_batch_view view = {
        .size = sizeof(view),
        .token_ids = resolve(&all, from->token_ids),
        .positions = resolve(&all, from->positions),
        .query_start_loc = resolve(&all, from->query_start_loc),
        .seq_lens = resolve(&all, from->seq_lens),
        .logits_rows = resolve(&all, from->logits_rows),
        .block_tables = &table,
        .slot_mappings = &slots,
    };
    berth_batch batch = *args->batch;
    batch.host = &view;
    own.batch = &batch;
    return site->op->reference(self, &own);
}

// ---- recordings ---------------------------------------------------------------------------------

static berth_status capture_begin(void *self, uint64_t device) {
    (void)self;
    (void)device;
    CHECK(recording == NULL);
    recording = calloc(1, sizeof(*recording));
    return BERTH_OK;
}

static berth_status capture_end(void *self, uint64_t device, void **out_graph) {
    (void)self;
    (void)device;
    CHECK(recording != NULL);
    *out_graph = recording;
    recording = NULL;
    ++live_count;
    return BERTH_OK;
}

static berth_status replay(void *self, uint64_t device, void *graph) {
    (void)self;
    (void)device;
    const recorded *calls = graph;
    for (size_t i = 0; i < calls->count; ++i) {
        CHECK_OK(test_device_forward(calls->calls[i]->self, &calls->calls[i]->args));
    }
    return BERTH_OK;
}

static void release_graph(void *self, uint64_t device, void *graph) {
    (void)self;
    (void)device;
    recorded *calls = graph;
    for (size_t i = 0; i < calls->count; ++i) {
        free(calls->calls[i]);
    }
    free(calls);
    --live_count;
}

#define DEVICE_IMPL(op_name, bits)                                                                 \
    {                                                                                              \
        .size = sizeof(berth_op_impl), .op = (op_name), .name = "oot." op_name,                    \
        .dispatch_key = BERTH_DISPATCH_OOT, .revision = 1, .forward = test_device_forward,         \
        .flags = (bits) | BERTH_IMPL_CAPTURABLE                                                    \
    }
const berth_op_impl test_device_impls[TEST_DEVICE_IMPLS] = {
    DEVICE_IMPL("norm", BERTH_IMPL_IN_PLACE),
    DEVICE_IMPL("add", BERTH_IMPL_IN_PLACE),
    DEVICE_IMPL("linear", 0),
    DEVICE_IMPL("scale", BERTH_IMPL_IN_PLACE),
    DEVICE_IMPL("row_sum", 0),
    DEVICE_IMPL("contiguous", 0),
    DEVICE_IMPL("embedding", 0),
    DEVICE_IMPL("select_rows", 0),
    DEVICE_IMPL("paged_attention", 0),
    DEVICE_IMPL("accumulate", 0),
    DEVICE_IMPL("pool", 0),
    DEVICE_IMPL("column_sum", 0),
};

// ---- platforms ----------------------------------------------------------------------------------

static const berth_dtype dtypes[] = {BERTH_DTYPE_F32};
static const berth_capabilities host_memory = {
    .size = sizeof(host_memory),
    .flags = BERTH_CAPABILITY_HOST_MEMORY,
    .dtypes = dtypes,
    .dtype_count = 1,
    .memory_type = BERTH_MEMORY_HOST,
};
static const berth_capabilities streams = {
    .size = sizeof(streams),
    .flags = BERTH_CAPABILITY_HOST_MEMORY | BERTH_CAPABILITY_STREAMS,
    .dtypes = dtypes,
    .dtype_count = 1,
    .memory_type = BERTH_MEMORY_HOST,
};
static const berth_capabilities handles = {
    .size = sizeof(handles),
    .dtypes = dtypes,
    .dtype_count = 1,
    .memory_type = BERTH_MEMORY_EXTENSION,
    .alignment_bytes = 256,
};
static const berth_capabilities recorder = {
    .size = sizeof(recorder),
    .flags = BERTH_CAPABILITY_GRAPH_CAPTURE,
    .dtypes = dtypes,
    .dtype_count = 1,
    .memory_type = BERTH_MEMORY_EXTENSION,
    .alignment_bytes = 256,
};
static const berth_device_api host_api = {
    .size = sizeof(host_api),
    .allocate = allocate_host,
    .release = release_host,
    .copy_to_device = copy_to_device,
    .copy_to_host = copy_to_host,
    .synchronize = synchronize,
};
static const berth_device_api device_api = {
    .size = sizeof(device_api),
    .allocate = allocate,
    .release = release,
    .copy_to_device = copy_to_device,
    .copy_to_host = copy_to_host,
    .synchronize = synchronize,
};

static const berth_device_api recorder_api = {
    .size = sizeof(recorder_api),
    .allocate = allocate,
    .release = release,
    .copy_to_device = copy_to_device,
    .copy_to_host = copy_to_host,
    .synchronize = synchronize,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .queue_to_device = copy_to_device,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay = replay,
    .release_graph = release_graph,
};

static berth_status one_device(void *self, uint64_t *out_count) {
    (void)self;
    *out_count = 1;
    return BERTH_OK;
}

static berth_status describe_device(void *self, uint64_t device, berth_device_info *out) {
    (void)self;
    CHECK_UINT(device, 0);
    *out = (berth_device_info){
        .size = sizeof(*out), .name = "fake", .uuid = "", .memory_bytes = UINT64_C(1) << 30};
    return BERTH_OK;
}

static berth_status add(berth_registrar *registrar, const char *name, uint64_t kind,
                        const char *device_type, const berth_capabilities *capabilities) {
    const berth_platform platform = {
        .size = sizeof(platform),
        .name = name,
        .vendor = "berth",
        .kind = kind,
        .device_type = device_type,
        .device_name = "fake",
        .capabilities = capabilities,
        .device = capabilities == &handles    ? &device_api
                  : capabilities == &recorder ? &recorder_api
                                              : &host_api,
        .device_count = one_device,
        .device_info = describe_device,
        .get_attn_backend = content_now.get_attn_backend,
    };
    return registrar->add_platform(registrar, &platform, NULL);
}

static berth_status add_host(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return add(registrar, "fake-host", BERTH_PLATFORM_CPU, "cpu", &host_memory);
}

static berth_status add_rocm(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return add(registrar, "fake-rocm", BERTH_PLATFORM_ROCM, "rocm", &host_memory);
}

static berth_status add_streams(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return add(registrar, "fake-streams", BERTH_PLATFORM_XPU, "xpu", &streams);
}

static berth_status add_device(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return add(registrar, "fake-device", BERTH_PLATFORM_OOT, "fake", &handles);
}

static berth_status add_recording(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return add(registrar, "fake-recording", BERTH_PLATFORM_OOT, "fake", &recorder);
}

static berth_status add_content(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    for (size_t i = 0; i < content_now.op_count; ++i) {
        const berth_status status = registrar->add_op(registrar, content_now.ops[i], 0);
        if (status != BERTH_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < content_now.pass_count; ++i) {
        const berth_status status = registrar->add_pass(registrar, content_now.passes[i], 0);
        if (status != BERTH_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < content_now.impl_count; ++i) {
        const berth_status status = registrar->add_op_impl(registrar, &content_now.impls[i], 0);
        if (status != BERTH_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < content_now.override_count; ++i) {
        const berth_status status =
            registrar->add_op_override(registrar, &content_now.overrides[i], 0);
        if (status != BERTH_OK) {
            return status;
        }
    }
    return BERTH_OK;
}

#define ENTRY(entry_group, entry_name, function)                                                   \
    &(const berth_entry_point) {                                                                   \
        .size = sizeof(berth_entry_point), .group = (entry_group), .name = (entry_name),           \
        .register_plugin = (function)                                                              \
    }
static const berth_entry_point *const entries[] = {
    ENTRY(BERTH_GROUP_PLATFORM, "fake-host", add_host),
    ENTRY(BERTH_GROUP_PLATFORM, "fake-rocm", add_rocm),
    ENTRY(BERTH_GROUP_PLATFORM, "fake-streams", add_streams),
    ENTRY(BERTH_GROUP_PLATFORM, "fake-device", add_device),
    ENTRY(BERTH_GROUP_PLATFORM, "fake-recording", add_recording),
    ENTRY(BERTH_GROUP_GENERAL, "content", add_content),
};
static const berth_plugin plugin = {
    .size = sizeof(plugin),
    .abi_min = BERTH_ABI(1, 0),
    .abi_max = BERTH_ABI_CURRENT,
    .id = "content",
    .version = "2.0.0",
    .vendor = "berth",
    .entry_points = entries,
    .entry_point_count = sizeof(entries) / sizeof(entries[0]),
};

berth_registry *test_devices_registry(const test_content *content) {
    content_now = *content;
    call_count = 0;
    allowed_count = SIZE_MAX;
    queue_count = 0;
    handle_count = live_count == 0 ? 0 : handle_count;
    return test_ops_registry(&plugin);
}

berth_runtime *test_devices_open(const berth_registry *registry, const char *platform) {
    const berth_platform_entry *found = NULL;
    berth_runtime *runtime = NULL;
    for (size_t i = 0; i < berth_registry_platform_count(registry); ++i) {
        const berth_platform_entry *entry = berth_registry_platform_at(registry, i);
        found = strcmp(entry->platform.name, platform) == 0 ? entry : found;
    }
    CHECK(found != NULL);
    CHECK_OK(berth_runtime_open(found, 0, berth_registry_host(registry), &runtime));
    return runtime;
}
