// SPDX-License-Identifier: Apache-2.0
// A worker's table and life: a platform's slots over the default ones, called in the stated order.
//
// The order stands in the one table below; every facade function is two lines over it.
#include "worker/worker_private.h"

#include <string.h>

#define FIRST_SLOT         offsetof(berth_worker_api, init_device)
#define WORKER_BLOCK_BYTES (64u << 10)
#define WORKER_LIMIT_BYTES (256u << 20) // a step's results for the largest batch and vocabulary
#define ANY_OPEN                                                                                   \
    (BERTH_WORKER_BOUND | BERTH_WORKER_LOADED | BERTH_WORKER_CACHED | BERTH_WORKER_READY |         \
     BERTH_WORKER_PENDING | BERTH_WORKER_ASLEEP)
#define ALL_ASLEEP ((uint64_t)(BERTH_SLEEP_WEIGHTS | BERTH_SLEEP_KV_CACHE))
#define HAS_MODEL  (ANY_OPEN & ~BERTH_WORKER_BOUND)

typedef void (*slot_fn)(void); // as stored; never called as such

// One slot: when it may be called, and where success leads. `next` 0 stays.
typedef struct lifecycle_row {
    const char *name;
    size_t offset;
    unsigned allowed;
    berth_worker_state next;
    const char *before; // what must have happened, for the error
} lifecycle_row;

typedef enum slot {
    SLOT_INIT_DEVICE,
    SLOT_LOAD_MODEL,
    SLOT_GET_MODEL,
    SLOT_GET_KV_CACHE_SPEC,
    SLOT_DETERMINE_AVAILABLE_MEMORY,
    SLOT_INITIALIZE_FROM_CONFIG,
    SLOT_INITIALIZE_CACHE,
    SLOT_WARM_UP,
    SLOT_EXECUTE_MODEL,
    SLOT_SAMPLE_TOKENS,
    SLOT_EXECUTE_DUMMY_BATCH,
    SLOT_SLEEP,
    SLOT_WAKE_UP,
    SLOT_CHECK_HEALTH,
    SLOT_COUNT,
} slot;

#define ROW(slot_name, states, after, text)                                                        \
    {                                                                                              \
        .name = #slot_name, .offset = offsetof(berth_worker_api, slot_name), .allowed = (states),  \
        .next = (after), .before = (text)                                                          \
    }
static const lifecycle_row lifecycle[SLOT_COUNT] = {
    [SLOT_INIT_DEVICE] =
        ROW(init_device, BERTH_WORKER_CREATED, BERTH_WORKER_BOUND, "it comes first, once"),
    [SLOT_LOAD_MODEL] = ROW(load_model, BERTH_WORKER_BOUND, BERTH_WORKER_LOADED,
                            "init_device comes before it, and it is called once"),
    [SLOT_GET_MODEL] = ROW(get_model, HAS_MODEL, 0, "load_model comes before it"),
    [SLOT_GET_KV_CACHE_SPEC] = ROW(get_kv_cache_spec, HAS_MODEL, 0, "load_model comes before it"),
    [SLOT_DETERMINE_AVAILABLE_MEMORY] = ROW(determine_available_memory, BERTH_WORKER_LOADED, 0,
                                            "load_model comes before it, the caches after it"),
    [SLOT_INITIALIZE_FROM_CONFIG] = ROW(initialize_from_config, BERTH_WORKER_LOADED,
                                        BERTH_WORKER_CACHED, "load_model comes before it"),
    [SLOT_INITIALIZE_CACHE] =
        ROW(initialize_cache, BERTH_WORKER_CACHED, 0, "initialize_from_config comes before it"),
    [SLOT_WARM_UP] = ROW(compile_or_warm_up_model, BERTH_WORKER_CACHED, BERTH_WORKER_READY,
                         "initialize_from_config comes before it"),
    [SLOT_EXECUTE_MODEL] = ROW(execute_model, BERTH_WORKER_READY, 0,
                               "compile_or_warm_up_model comes before it, and a pending step is "
                               "finished by sample_tokens"),
    [SLOT_SAMPLE_TOKENS] = ROW(sample_tokens, BERTH_WORKER_PENDING, BERTH_WORKER_READY,
                               "it follows an execute_model that was pending"),
    [SLOT_EXECUTE_DUMMY_BATCH] =
        ROW(execute_dummy_batch, BERTH_WORKER_READY, 0, "compile_or_warm_up_model comes before it"),
    [SLOT_SLEEP] = ROW(sleep, BERTH_WORKER_READY, BERTH_WORKER_ASLEEP, "no step may be pending"),
    [SLOT_WAKE_UP] = ROW(wake_up, BERTH_WORKER_ASLEEP, 0, "sleep comes before it"),
    [SLOT_CHECK_HEALTH] = ROW(check_health, ANY_OPEN, 0, "init_device comes before it"),
};

static berth_worker_object *object_of(const berth_worker *worker) {
    return (berth_worker_object *)worker;
}

static slot_fn slot_at(const berth_worker_api *api, size_t offset) {
    slot_fn function;
    memcpy(&function, (const char *)api + offset, sizeof function);
    return function;
}

static bool is_overridden(const berth_worker_object *object, const lifecycle_row *row) {
    return slot_at(&object->merged, row->offset) != slot_at(&berth_worker_default, row->offset);
}

// Around every call of a slot: the order before it, the plugin's text and the new state after it.
static berth_status enter(const berth_worker *worker, slot which) {
    const berth_worker_object *object = object_of(worker);
    const lifecycle_row *row = &lifecycle[which];
    if (!(object->state & row->allowed) && object->state == BERTH_WORKER_ASLEEP) {
        return BERTH_FAIL(WRONG_STATE, "worker: %s while it sleeps: wake_up comes before it",
                          row->name);
    }
    if (!(object->state & row->allowed)) {
        return BERTH_FAIL(WRONG_STATE, "worker: %s is called out of order: %s", row->name,
                          row->before);
    }
    if (is_overridden(object, row)) {
        berth_plugin_enter(object->owner, row->name);
    }
    return BERTH_OK;
}

static berth_status leave(const berth_worker *worker, slot which, berth_status status) {
    berth_worker_object *object = object_of(worker);
    const lifecycle_row *row = &lifecycle[which];
    if (is_overridden(object, row)) {
        status = berth_plugin_leave(status);
    }
    if (status == BERTH_OK && row->next) {
        object->state = row->next;
    }
    return status;
}

berth_status berth_worker_init_device(berth_worker *worker) {
    BERTH_TRY(enter(worker, SLOT_INIT_DEVICE));
    return leave(worker, SLOT_INIT_DEVICE, worker->api->init_device(worker));
}

berth_status berth_worker_load_model(berth_worker *worker) {
    BERTH_TRY(enter(worker, SLOT_LOAD_MODEL));
    return leave(worker, SLOT_LOAD_MODEL, worker->api->load_model(worker));
}

berth_status berth_worker_get_model(berth_worker *worker, berth_model_info *out) {
    BERTH_TRY(enter(worker, SLOT_GET_MODEL));
    return leave(worker, SLOT_GET_MODEL, worker->api->get_model(worker, out));
}

berth_status berth_worker_get_kv_cache_spec(berth_worker *worker, berth_kv_cache_spec *const *specs,
                                            uint64_t capacity, uint64_t *out_count) {
    BERTH_TRY(enter(worker, SLOT_GET_KV_CACHE_SPEC));
    return leave(worker, SLOT_GET_KV_CACHE_SPEC,
                 worker->api->get_kv_cache_spec(worker, specs, capacity, out_count));
}

berth_status berth_worker_available_memory(berth_worker *worker, uint64_t *out_bytes) {
    BERTH_TRY(enter(worker, SLOT_DETERMINE_AVAILABLE_MEMORY));
    return leave(worker, SLOT_DETERMINE_AVAILABLE_MEMORY,
                 worker->api->determine_available_memory(worker, out_bytes));
}

berth_status berth_worker_initialize_cache(berth_worker *worker,
                                           const berth_kv_cache_config *config) {
    BERTH_TRY(enter(worker, SLOT_INITIALIZE_FROM_CONFIG));
    BERTH_TRY(leave(worker, SLOT_INITIALIZE_FROM_CONFIG,
                    worker->api->initialize_from_config(worker, config)));
    BERTH_TRY(enter(worker, SLOT_INITIALIZE_CACHE));
    return leave(worker, SLOT_INITIALIZE_CACHE,
                 worker->api->initialize_cache(worker, config->num_blocks, 0));
}

berth_status berth_worker_warm_up(berth_worker *worker) {
    BERTH_TRY(enter(worker, SLOT_WARM_UP));
    return leave(worker, SLOT_WARM_UP, worker->api->compile_or_warm_up_model(worker));
}

berth_status berth_worker_execute(berth_worker *worker, const berth_scheduler_output *input,
                                  berth_model_output *out) {
    BERTH_TRY(enter(worker, SLOT_EXECUTE_MODEL));
    *out = (berth_model_output){.size = sizeof *out};
    BERTH_TRY(leave(worker, SLOT_EXECUTE_MODEL, worker->api->execute_model(worker, input, out)));
    if (out->state == BERTH_OUTPUT_PENDING) {
        object_of(worker)->state = BERTH_WORKER_PENDING;
    } else if (out->state == BERTH_OUTPUT_ASYNC && !out->wait) {
        return BERTH_FAIL(INTERNAL,
                          "worker: execute_model returned an asynchronous output without a "
                          "way to wait for it");
    }
    return BERTH_OK;
}

berth_status berth_worker_sample(berth_worker *worker, const berth_scheduler_output *input,
                                 berth_model_output *out) {
    BERTH_TRY(enter(worker, SLOT_SAMPLE_TOKENS));
    *out = (berth_model_output){.size = sizeof *out};
    return leave(worker, SLOT_SAMPLE_TOKENS, worker->api->sample_tokens(worker, input, out));
}

berth_status berth_worker_wait(berth_worker *worker, berth_model_output *out) {
    berth_worker_object *object = object_of(worker);
    berth_plugin_enter(object->owner, "wait");
    BERTH_TRY(berth_plugin_leave(out->wait(out->completion)));
    out->state = BERTH_OUTPUT_READY;
    return BERTH_OK;
}

berth_status berth_worker_execute_dummy(berth_worker *worker) {
    BERTH_TRY(enter(worker, SLOT_EXECUTE_DUMMY_BATCH));
    return leave(worker, SLOT_EXECUTE_DUMMY_BATCH, worker->api->execute_dummy_batch(worker));
}

berth_status berth_worker_sleep(berth_worker *worker, uint64_t level) {
    if (level != 1 && level != 2) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "sleep level %llu: 1 keeps the weights in host memory, 2 discards them",
                          (unsigned long long)level);
    }
    BERTH_TRY(enter(worker, SLOT_SLEEP));
    BERTH_TRY(leave(worker, SLOT_SLEEP, worker->api->sleep(worker, level)));
    object_of(worker)->asleep = ALL_ASLEEP;
    return BERTH_OK;
}

static berth_status wake_up(berth_worker *worker, uint64_t tag) {
    berth_worker_object *object = object_of(worker);
    if (tag == 0) {
        return BERTH_OK;
    }
    BERTH_TRY(enter(worker, SLOT_WAKE_UP));
    BERTH_TRY(leave(worker, SLOT_WAKE_UP, worker->api->wake_up(worker, tag)));
    object->asleep &= ~tag;
    object->state = object->asleep ? BERTH_WORKER_ASLEEP : BERTH_WORKER_READY;
    return BERTH_OK;
}

berth_status berth_worker_wake_up(berth_worker *worker, uint64_t tags) {
    const uint64_t asleep = object_of(worker)->asleep;
    const uint64_t wanted = (tags != 0 ? tags : ALL_ASLEEP) & asleep;
    if (tags & ~ALL_ASLEEP) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "wake_up of %llu: tags are 1, weights, 2, the KV cache, or 0, all",
                          (unsigned long long)tags);
    }
    if (!wanted) {
        return BERTH_FAIL(WRONG_STATE, "worker: wake_up: %s awake already",
                          asleep == 0                   ? "the worker is"
                          : tags == BERTH_SLEEP_WEIGHTS ? "the weights are"
                                                        : "the KV cache is");
    }
    // One at a time, so that after a failure it is known what is awake.
    BERTH_TRY(wake_up(worker, wanted & BERTH_SLEEP_WEIGHTS));
    return wake_up(worker, wanted & BERTH_SLEEP_KV_CACHE);
}

uint64_t berth_worker_asleep(const berth_worker *worker) {
    return object_of(worker)->asleep;
}

berth_status berth_worker_check_health(berth_worker *worker) {
    BERTH_TRY(enter(worker, SLOT_CHECK_HEALTH));
    return leave(worker, SLOT_CHECK_HEALTH, worker->api->check_health(worker));
}

const berth_plan *berth_worker_plan(const berth_worker *worker) {
    return berth_worker_base(worker)->plan;
}

const berth_graph *berth_worker_graph(const berth_worker *worker) {
    const berth_model_build *build = berth_worker_base(worker)->build;
    return build ? build->graph : NULL;
}

const berth_model_build *berth_worker_build(const berth_worker *worker) {
    return berth_worker_base(worker)->build;
}

berth_runtime *berth_worker_runtime(const berth_worker *worker) {
    return berth_worker_base(worker)->runtime;
}

const berth_layer_scheme *berth_worker_scheme(const berth_worker *worker, const char *layer) {
    const berth_model_build *build = berth_worker_base(worker)->build;
    for (size_t i = 0; build && i < build->scheme_count; ++i) {
        if (strcmp(build->schemes[i].layer, layer) == 0) {
            return &build->schemes[i];
        }
    }
    return NULL;
}

void berth_worker_set_timed(const berth_worker *worker, bool is_timed) {
    berth_plan *plan = berth_worker_base(worker)->plan;
    if (plan) {
        berth_plan_set_timed(plan, is_timed);
    }
}

// ---- creation -----------------------------------------------------------------------------------

// Every slot of the platform's table that is set, over the default's.
static void merge(const berth_worker_api *given, berth_worker_api *out) {
    *out = berth_worker_default;
    for (size_t offset = FIRST_SLOT; offset < sizeof *out; offset += sizeof(slot_fn)) {
        if (slot_at(given, offset)) {
            memcpy((char *)out + offset, (const char *)given + offset, sizeof(slot_fn));
        }
    }
    out->features = given->features;
}

berth_status berth_worker_create(const berth_config *config, berth_registry *registry,
                                 const berth_platform_entry *platform, berth_worker **out_worker) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create(WORKER_BLOCK_BYTES, WORKER_LIMIT_BYTES, &arena));
    berth_worker_object *object = BERTH_ARENA_NEW(arena, berth_worker_object);
    if (!object) {
        const berth_status status = berth_arena_exhausted(arena, "a worker");
        berth_arena_destroy(arena);
        return status;
    }
    *object = (berth_worker_object){.arena = arena, .state = BERTH_WORKER_CREATED};
    object->merged = berth_worker_default;
    if (platform) {
        merge(&platform->worker, &object->merged);
        object->owner = platform->owner;
    }
    object->base = (berth_default_worker){
        .config = config,
        .registry = registry,
        .platform = platform,
        .arena = arena,
    };
    object->worker = (berth_worker){
        .size = sizeof(berth_worker),
        .api = &object->merged,
        .host = berth_registry_host(registry),
        .platform = platform ? platform->self : NULL,
        .base = &object->base,
    };
    *out_worker = &object->worker;
    return BERTH_OK;
}

void berth_worker_destroy(berth_worker *worker) {
    if (!worker) {
        return;
    }
    worker->api->shutdown(worker);
    // Why twice: a shutdown of a plugin need not call the inherited one, and what the base holds is
    // the host's to free. It takes what is already gone.
    berth_worker_default.shutdown(worker);
    berth_arena_destroy(object_of(worker)->arena);
}
