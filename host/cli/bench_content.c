// SPDX-License-Identifier: Apache-2.0
// Content for `berth bench host`: what a vendor would bring, made up in numbers.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "cli/bench.h"

#define ARENA_BLOCK_BYTES ((size_t)1 << 20)
#define ARENA_LIMIT_BYTES ((size_t)64 << 20)
#define NAME_BYTES        32

// ---- the op -------------------------------------------------------------------------------------

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    *out->types[0] = *site->inputs[0];
    out->count = 1;
    return BERTH_OK;
}

// Counts itself in the one place that all sites share, so that the cost of a call is not hidden
// behind the cost of reaching its operands.
static berth_status count_call(void *self, const berth_op_args *args) {
    (void)self;
    ++*(int32_t *)args->batch->host->token_ids->data;
    return BERTH_OK;
}

static const berth_op_argument *const op_inputs[] = {BERTH_INPUT("x")};

static const char *name_of(berth_arena *arena, const char *stem, size_t index) {
    return berth_arena_printf(arena, "%s_%zu", stem, index);
}

static berth_status make_ops(berth_bench *bench) {
    bench->ops = BERTH_ARENA_ARRAY(bench->arena, berth_op, BERTH_BENCH_OPS);
    bench->impls = BERTH_ARENA_ARRAY(bench->arena, berth_op_impl, BERTH_BENCH_IMPLS);
    for (size_t i = 0; bench->ops && bench->impls && i < BERTH_BENCH_OPS; ++i) {
        bench->ops[i] = (berth_op){
            .size = sizeof(berth_op),
            .name = name_of(bench->arena, "bench_op", i),
            .class_name = name_of(bench->arena, "BenchOp", i),
            .revision = 1,
            .inputs = op_inputs,
            .input_count = BERTH_COUNT(op_inputs),
            .infer = infer,
            .reference = count_call,
        };
    }
    for (size_t i = 0; bench->ops && bench->impls && i < BERTH_BENCH_IMPLS; ++i) {
        bench->impls[i] = (berth_op_impl){
            .size = sizeof(berth_op_impl),
            .op = bench->ops[i % BERTH_BENCH_OPS].name,
            .name = name_of(bench->arena, "impl", i),
            .dispatch_key = BERTH_DISPATCH_OOT,
            .revision = 1,
            .priority = (int64_t)(i / BERTH_BENCH_OPS),
            .forward = count_call,
        };
    }
    return bench->ops && bench->impls ? BERTH_OK : berth_arena_exhausted(bench->arena, "bench ops");
}

// ---- life ---------------------------------------------------------------------------------------

berth_status berth_bench_open(berth_session *session, berth_bench *bench) {
    *bench = (berth_bench){.session = session};
    BERTH_TRY(berth_arena_create(ARENA_BLOCK_BYTES, ARENA_LIMIT_BYTES, &bench->arena));
    BERTH_TRY(berth_config_init(&bench->config, bench->arena));
    bench->config.allow_fallback = true; // everything here runs natively
    bench->owner = (berth_owner){
        .id = "bench",
        .version = BERTH_VERSION,
        .entry = "bench",
        .group = BERTH_GROUP_GENERAL,
    };
    return make_ops(bench);
}

static void remove_manifests(berth_bench *bench) {
    berth_dir_listing listing;
    if (!bench->directory || berth_dir_list(bench->directory, bench->arena, &listing) != BERTH_OK) {
        return;
    }
    for (size_t i = 0; i < listing.count; ++i) {
        const char *path = berth_path_join(bench->arena, bench->directory, listing.names[i]);
        if (path) {
            unlink(path);
        }
    }
    rmdir(bench->directory);
}

static void drop_plan(berth_bench *bench) {
    berth_plan_destroy(bench->plan);
    bench->plan = NULL;
}

static void drop_registry(berth_bench *bench) {
    drop_plan(bench);
    berth_graph_destroy(bench->graph);
    berth_runtime_close(bench->runtime);
    berth_registry_destroy(bench->registry);
    bench->graph = NULL;
    bench->runtime = NULL;
    bench->registry = NULL;
}

void berth_bench_close(berth_bench *bench) {
    drop_registry(bench);
    if (bench->arena) {
        remove_manifests(bench);
    }
    berth_arena_destroy(bench->arena);
}

// ---- manifests ----------------------------------------------------------------------------------

static berth_status write_manifest(berth_bench *bench, size_t index) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "bench-%02zu.plugin.yaml", index);
    const char *path = berth_path_join(bench->arena, bench->directory, name);
    const char *text = berth_arena_printf(bench->arena,
                                          "berth: 1\n"
                                          "id: bench-%02zu\n"
                                          "version: 1.4.0\n"
                                          "vendor: Bench\n"
                                          "library: libberth-bench-%02zu.so\n"
                                          "abi: \"1.0\"\n"
                                          "activation: named\n"
                                          "entry_points:\n"
                                          "  berth.platform_plugins: [bench-%02zu]\n"
                                          "  berth.general_plugins: [bench-%02zu-models]\n",
                                          index, index, index, index);
    const char *library =
        berth_arena_printf(bench->arena, "%s/libberth-bench-%02zu.so", bench->directory, index);
    if (!path || !text || !library) {
        return berth_arena_exhausted(bench->arena, "bench manifests");
    }
    BERTH_TRY(berth_file_write(library, BERTH_STR(""))); // only looked for, never opened
    return berth_file_write(path, berth_str_from(text));
}

berth_status berth_bench_write_manifests(berth_bench *bench) {
    const char *place = getenv("TMPDIR");
    const char *directory = berth_arena_printf(bench->arena, "%s/berth-bench-%ld",
                                               place && place[0] ? place : "/tmp", (long)getpid());
    if (!directory) {
        return berth_arena_exhausted(bench->arena, "bench manifests");
    }
    if (mkdir(directory, 0700) != 0) {
        return BERTH_FAIL(IO, "%s: cannot be made: %s; set TMPDIR to a place where it can",
                          directory, strerror(errno));
    }
    bench->directory = directory;
    bench->config.plugin_search = directory;
    for (size_t i = 0; i < BERTH_BENCH_MANIFESTS; ++i) {
        BERTH_TRY(write_manifest(bench, i));
    }
    return BERTH_OK;
}

// ---- registries ---------------------------------------------------------------------------------

berth_status berth_bench_renew_registry(berth_bench *bench) {
    drop_registry(bench);
    bench->config.is_configured = false;
    return berth_registry_create(&bench->config, NULL, &bench->registry);
}

typedef struct additions {
    const berth_bench *bench;
    size_t impl_count;
} additions;

static berth_status add_all(void *self, berth_registrar *registrar) {
    const additions *in = self;
    for (size_t i = 0; i < BERTH_BENCH_OPS; ++i) {
        BERTH_TRY(registrar->add_op(registrar, &in->bench->ops[i], 0));
    }
    for (size_t i = 0; i < in->impl_count; ++i) {
        BERTH_TRY(registrar->add_op_impl(registrar, &in->bench->impls[i], 0));
    }
    return BERTH_OK;
}

berth_status berth_bench_add_ops(berth_bench *bench, size_t impl_count) {
    additions in = {.bench = bench, .impl_count = impl_count};
    return berth_registry_transaction(bench->registry, &bench->owner, add_all, &in);
}

// ---- platforms ----------------------------------------------------------------------------------

static berth_status no_device(void) {
    return BERTH_UNAVAILABLE;
}

static berth_status allocate(void *self, uint64_t device, uint64_t bytes, void **out_base) {
    (void)self, (void)device, (void)bytes, (void)out_base;
    return no_device();
}

static void release(void *self, uint64_t device, void *base) {
    (void)self, (void)device, (void)base;
}

static berth_status copy(void *self, uint64_t device, const berth_copy *what) {
    (void)self, (void)device, (void)what;
    return no_device();
}

static berth_status synchronize(void *self, uint64_t device) {
    (void)self, (void)device;
    return no_device();
}

static berth_status device_count(void *self, uint64_t *out_count) {
    (void)self;
    *out_count = 0;
    return BERTH_OK;
}

static berth_status device_info(void *self, uint64_t device, berth_device_info *out) {
    (void)self, (void)device, (void)out;
    return no_device();
}

static const berth_device_api device = {
    .size = sizeof(berth_device_api),
    .allocate = allocate,
    .release = release,
    .copy_to_device = copy,
    .copy_to_host = copy,
    .synchronize = synchronize,
};

static const berth_dtype dtypes[] = {BERTH_DTYPE_F32};

static const berth_capabilities capabilities = {
    .size = sizeof(berth_capabilities),
    .dtypes = dtypes,
    .dtype_count = BERTH_COUNT(dtypes),
    .memory_type = BERTH_MEMORY_EXTENSION,
};

// An entry point has no argument that could say which platform it is, so each is a function.
#define EACH_PLATFORM(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#define PLATFORM(n)                                                                                \
    static berth_status register_##n(const berth_host *host, berth_registrar *registrar) {         \
        static const berth_platform platform = {                                                   \
            .size = sizeof(berth_platform),                                                        \
            .name = "bench-" #n,                                                                   \
            .vendor = "Bench",                                                                     \
            .kind = BERTH_PLATFORM_OOT,                                                            \
            .device_type = "bench",                                                                \
            .device_name = "bench",                                                                \
            .capabilities = &capabilities,                                                         \
            .device = &device,                                                                     \
            .device_count = device_count,                                                          \
            .device_info = device_info,                                                            \
        };                                                                                         \
        (void)host;                                                                                \
        return registrar->add_platform(registrar, &platform, NULL);                                \
    }                                                                                              \
    static const berth_entry_point entry_##n = {                                                   \
        .size = sizeof(berth_entry_point),                                                         \
        .group = BERTH_GROUP_PLATFORM,                                                             \
        .name = "bench-" #n,                                                                       \
        .register_plugin = register_##n,                                                           \
    };
#define POINTER(n) &entry_##n,

EACH_PLATFORM(PLATFORM)
static const berth_entry_point *const entries[] = {EACH_PLATFORM(POINTER)};

static const berth_plugin plugin = {
    .size = sizeof(berth_plugin),
    .abi_min = BERTH_ABI(1, 0),
    .abi_max = BERTH_ABI_CURRENT,
    .id = "bench",
    .version = BERTH_VERSION,
    .vendor = "Bench",
    .entry_points = entries,
    .entry_point_count = BERTH_COUNT(entries),
};
_Static_assert(BERTH_COUNT(entries) == BERTH_BENCH_PLATFORMS, "as many as the header says");

berth_status berth_bench_add_platforms(berth_bench *bench) {
    static const berth_plugin *const plugins[] = {&plugin};
    BERTH_TRY(berth_registry_add_core(bench->registry, plugins, BERTH_COUNT(plugins)));
    bench->candidates = *berth_registry_core(bench->registry);
    bench->config.platform = "bench-7";
    return BERTH_OK;
}

// ---- graph and plan -----------------------------------------------------------------------------

berth_status berth_bench_build_graph(berth_bench *bench) {
    berth_graph_builder *builder = NULL;
    BERTH_TRY(berth_bench_renew_registry(bench));
    BERTH_TRY(berth_bench_add_ops(bench, 0));
    BERTH_TRY(berth_registry_freeze(bench->registry));
    BERTH_TRY(berth_graph_begin(bench->registry, "bench", &builder));
    berth_value value = berth_graph_input(builder, "token_ids");
    for (size_t i = 0; i < BERTH_BENCH_SITES; ++i) {
        value = berth_graph_op(builder, &(berth_call){
                                            .size = sizeof(berth_call),
                                            .name = bench->ops[i % BERTH_BENCH_OPS].name,
                                            .prefix = "bench",
                                            .inputs = &value,
                                            .input_count = 1,
                                        });
    }
    berth_graph_output_add(builder, "last", value);
    BERTH_TRY(berth_graph_finish(builder, &bench->graph));
    return berth_runtime_open(NULL, 0, berth_registry_host(bench->registry), &bench->runtime);
}

berth_status berth_bench_renew_plan(berth_bench *bench) {
    drop_plan(bench);
    return berth_plan_create(
        &(berth_plan_request){
            .registry = bench->registry,
            .config = &bench->config,
            .graph = bench->graph,
            .runtime = bench->runtime,
            .max_tokens = 1,
            .max_sequences = 1,
            .max_seq_len = 1,
        },
        &bench->plan);
}

// ---- calls --------------------------------------------------------------------------------------

// A call's operands, as far apart in memory as a plan's.
typedef struct operands {
    berth_op_args args;
    berth_tensor tensors[2];
} operands;

// A batch of one token, whose id is the counter.
static void make_batch(berth_bench_batch *in) {
    static const int64_t one[] = {1, 1};
    static const int64_t two[] = {2};
    const berth_tensor array = {
        .size = sizeof array,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = 1,
        .dtype = BERTH_DTYPE_I32,
        .shape = one,
        .strides = one,
    };
    in->length = 1;
    in->bounds[1] = 1;
    in->token_ids = in->zeros = in->lengths = in->starts = array;
    in->token_ids.data = &in->counter;
    in->zeros.data = &in->zero;
    in->lengths.data = &in->length;
    in->starts.data = in->bounds;
    in->starts.shape = two;
    in->view = (berth_batch_view){
        .size = sizeof in->view,
        .token_ids = &in->token_ids,
        .positions = &in->zeros,
        .query_start_loc = &in->starts,
        .seq_lens = &in->lengths,
        .logits_rows = &in->zeros,
    };
    in->batch = (berth_batch){
        .size = sizeof in->batch,
        .host = &in->view,
        .token_count = 1,
        .sequence_count = 1,
        .logits_row_count = 1,
        .max_query_len = 1,
        .max_seq_len = 1,
    };
}

berth_status berth_bench_ready_plan(berth_bench *bench) {
    operands *all = BERTH_ARENA_ARRAY(bench->arena, operands, BERTH_BENCH_SITES);
    bench->calls = BERTH_ARENA_ARRAY(bench->arena, berth_bench_call, BERTH_BENCH_SITES);
    bench->batch = BERTH_ARENA_NEW(bench->arena, berth_bench_batch);
    if (!all || !bench->calls || !bench->batch) {
        return berth_arena_exhausted(bench->arena, "bench calls");
    }
    make_batch(bench->batch);
    for (size_t i = 0; i < BERTH_BENCH_SITES; ++i) {
        all[i].args = (berth_op_args){.size = sizeof all->args, .batch = &bench->batch->batch};
        bench->calls[i] = (berth_bench_call){
            .forward = bench->ops[i % BERTH_BENCH_OPS].reference,
            .self = all[i].tensors,
            .args = &all[i].args,
        };
    }
    BERTH_TRY(berth_bench_renew_plan(bench));
    return berth_plan_ready(bench->plan);
}

static berth_status check_count(const berth_bench *bench, uint64_t runs) {
    const uint64_t wanted = runs * BERTH_BENCH_SITES;
    const int32_t counted = bench->batch->counter;
    return (uint64_t)counted == wanted ? BERTH_OK
                                       : BERTH_FAIL(INTERNAL, "of %llu calls %d were made",
                                                    (unsigned long long)wanted, (int)counted);
}

// Why noinline, here and below: callgrind counts what is inside these functions.
static __attribute__((noinline)) berth_status bench_bound(berth_plan *plan,
                                                          const berth_batch *batch, uint64_t runs) {
    for (uint64_t i = 0; i < runs; ++i) {
        BERTH_TRY(berth_plan_run(plan, batch));
    }
    return BERTH_OK;
}

berth_status berth_bench_bound_calls(berth_bench *bench, uint64_t runs) {
    bench->batch->counter = 0;
    BERTH_TRY(bench_bound(bench->plan, &bench->batch->batch, runs));
    return check_count(bench, runs);
}

static __attribute__((noinline)) void bench_plain(const berth_bench_call *calls, uint64_t runs) {
    const berth_bench_call *end = calls + BERTH_BENCH_SITES;
    for (uint64_t i = 0; i < runs; ++i) {
        for (const berth_bench_call *one = calls; one != end; ++one) {
            (void)one->forward(one->self, one->args);
        }
    }
}

berth_status berth_bench_plain_calls(berth_bench *bench, uint64_t runs) {
    bench->batch->counter = 0;
    bench_plain(bench->calls, runs);
    return check_count(bench, runs);
}
