// SPDX-License-Identifier: Apache-2.0
// The default worker: model build, plan and executor on any device runtime. A platform that
// overrides one slot keeps all the others, so nobody copies a runner.
//
// Read from the table at the end: the slots stand there in the order of a worker's life.
#include "worker/worker_private.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "passes/passes.h"

// ---- device and model ---------------------------------------------------------------------------

static berth_status init_device(berth_worker *worker) {
    berth_default_worker *base = berth_worker_base(worker);
    BERTH_TRY(berth_activation_check(base->config, base->platform));
    return berth_runtime_open(base->platform, 0, worker->host, &base->runtime);
}

static int64_t model_length(const berth_config *config, const berth_model_build *build) {
    const int64_t of_model = build->description.max_model_len;
    return config->max_model_len > 0 && config->max_model_len < of_model ? config->max_model_len
                                                                         : of_model;
}

// Rows of one step whose logits may be wanted: one per sequence, or more where a command asks.
static int64_t max_rows(const berth_config *config) {
    return config->max_logits_rows > config->max_num_seqs ? config->max_logits_rows
                                                          : config->max_num_seqs;
}

static berth_plan_request plan_request(const berth_default_worker *base,
                                       const berth_model_build *build) {
    return (berth_plan_request){
        .registry = base->registry,
        .config = base->config,
        .graph = build->graph,
        .runtime = base->runtime,
        .kv_caches = build->kv_caches,
        .kv_cache_count = build->kv_cache_count,
        .max_tokens = base->config->max_num_batched_tokens,
        .max_sequences = max_rows(base->config),
        .max_seq_len = model_length(base->config, build),
    };
}

static berth_status create_plan(berth_default_worker *base) {
    const berth_config *config = base->config;
    const berth_plan_request request = plan_request(base, base->build);
    if (config->max_model_len > request.max_seq_len) {
        return BERTH_FAIL(
            INVALID_ARGUMENT,
            "--max-model-len %lld: the model was made for %lld tokens, use at most that",
            (long long)config->max_model_len, (long long)request.max_seq_len);
    }
    base->max_model_len = request.max_seq_len;
    return berth_plan_create(&request, &base->plan);
}

static berth_status check_heads(const berth_default_worker *base) {
    const uint64_t max = base->platform ? base->platform->capabilities.max_head_size : 0;
    for (size_t i = 0; max > 0 && i < base->build->kv_cache_count; ++i) {
        const berth_kv_cache_spec *spec = &base->build->kv_caches[i];
        if ((uint64_t)spec->head_size > max) {
            return BERTH_FAIL(UNSUPPORTED,
                              "platform '%s' has heads of at most %llu elements, those of layer "
                              "'%s' have %lld; take another with --platform",
                              base->platform->platform.name, (unsigned long long)max, spec->layer,
                              (long long)spec->head_size);
        }
    }
    return BERTH_OK;
}

berth_status berth_worker_create_build(const berth_default_worker *base,
                                       const berth_checkpoint *checkpoint,
                                       berth_model_build **out_build) {
    const berth_model_request request = {
        .registry = base->registry,
        .config = base->config,
        .checkpoint = checkpoint,
        .activation = base->activation,
    };
    berth_scheme scheme = {.entry = NULL};
    BERTH_TRY(berth_scheme_choose(&request, &scheme));
    const berth_status status =
        berth_platform_verify(base->platform, NULL, scheme.entry->config.name);
    if (status != BERTH_OK) {
        berth_scheme_deinit(&scheme);
        return status;
    }
    return berth_model_create_of(&request, &scheme, out_build);
}

berth_status berth_worker_run_passes(const berth_default_worker *base, berth_model_build *build) {
    const berth_plan_request request = plan_request(base, build);
    berth_graph *better = NULL;
    BERTH_TRY(berth_passes_run(&request, &better));
    return better != NULL ? berth_model_adopt(build, better) : BERTH_OK;
}

// The first build for the device decides the type of activations.
static berth_status begin_build(berth_default_worker *base, const berth_checkpoint *checkpoint,
                                berth_model_build **out_build) {
    BERTH_TRY(
        berth_platform_verify(base->platform, berth_checkpoint_architecture(checkpoint), NULL));
    base->activation =
        berth_activation_choose(base->config, base->platform, berth_checkpoint_dtype(checkpoint));
    BERTH_TRY(berth_worker_create_build(base, checkpoint, out_build));
    return berth_worker_run_passes(base, *out_build);
}

berth_status berth_worker_build_model(berth_worker *worker, berth_model_build **out_build) {
    berth_default_worker *base = berth_worker_base(worker);
    berth_checkpoint *checkpoint = NULL;
    BERTH_TRY(berth_checkpoint_open(base->config->model, &checkpoint));
    const berth_status status = begin_build(base, checkpoint, out_build);
    berth_checkpoint_close(checkpoint);
    return status;
}

static berth_status build_from(berth_default_worker *base, const berth_checkpoint *checkpoint) {
    BERTH_TRY(begin_build(base, checkpoint, &base->build));
    BERTH_TRY(check_heads(base));
    BERTH_TRY(create_plan(base));
    BERTH_TRY(berth_worker_load_weights(base, base->build));
    BERTH_TRY(berth_plan_ready(base->plan));
    return berth_sampler_init(&base->sampler, (size_t)base->build->description.vocab_size,
                              (size_t)max_rows(base->config), base->arena);
}

static berth_status load_model(berth_worker *worker) {
    berth_default_worker *base = berth_worker_base(worker);
    if (!base->config->model) {
        return BERTH_FAIL(INVALID_ARGUMENT, "no model given: use --model DIR");
    }
    berth_checkpoint *checkpoint = NULL;
    BERTH_TRY(berth_checkpoint_open(base->config->model, &checkpoint));
    const berth_status status = build_from(base, checkpoint);
    berth_checkpoint_close(checkpoint);
    if (status != BERTH_OK) {
        berth_status_note(__FILE__, __LINE__, "loading %s", base->config->model);
    }
    return status;
}

static berth_status get_model(berth_worker *worker, berth_model_info *out) {
    const berth_default_worker *base = berth_worker_base(worker);
    const berth_model_info info = {
        .size = sizeof info,
        .architecture = base->build->architecture,
        .vocab_size = base->build->description.vocab_size,
        .max_model_len = base->max_model_len,
        .layer_count = (int64_t)base->build->kv_cache_count,
        .parameter_count = base->build->weight_count,
        .parameter_bytes = berth_plan_parameter_bytes(base->plan),
        .activation_dtype = berth_dtype_name(base->activation),
    };
    *out = info;
    return BERTH_OK;
}

// ---- caches -------------------------------------------------------------------------------------

static berth_status get_kv_cache_spec(berth_worker *worker, berth_kv_cache_spec *const *specs,
                                      uint64_t capacity, uint64_t *out_count) {
    const berth_model_build *build = berth_worker_base(worker)->build;
    for (size_t i = 0; i < build->kv_cache_count && i < capacity; ++i) {
        *specs[i] = build->kv_caches[i];
    }
    *out_count = build->kv_cache_count;
    return BERTH_OK;
}

// What the user's share of the device leaves beside weights and activations, which are resident by
// now.
static berth_status determine_available_memory(berth_worker *worker, uint64_t *out_bytes) {
    const berth_default_worker *base = berth_worker_base(worker);
    uint64_t available = 0;
    uint64_t total = 0;
    BERTH_TRY(berth_runtime_memory(base->runtime, &available, &total));
    const uint64_t kept = (uint64_t)((double)total * (1.0 - base->config->memory_utilization));
    *out_bytes = available > kept ? available - kept : 0;
    return BERTH_OK;
}

static berth_status initialize_from_config(berth_worker *worker,
                                           const berth_kv_cache_config *config) {
    berth_default_worker *base = berth_worker_base(worker);
    // As many slots as the caller's release of the contract can ask for.
    const berth_kv_cache_config own = {
        .size = sizeof own,
        .num_blocks = config->num_blocks,
        .group_count = config->group_count,
        .state_slots = BERTH_HAS(config, state_slots) ? config->state_slots : 0,
        .group_blocks = BERTH_HAS(config, group_blocks) ? config->group_blocks : NULL,
    };
    if (config->num_blocks < 2) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "KV cache: %lld blocks, at least 2 are needed: block 0 is the null block",
                          (long long)config->num_blocks);
    }
    const uint64_t before = berth_runtime_counted(base->runtime)->held;
    BERTH_TRY(berth_plan_set_cache(base->plan, &own));
    base->cache_bytes = berth_runtime_counted(base->runtime)->held - before;
    base->num_blocks = config->num_blocks;
    return BERTH_OK;
}

static berth_status initialize_cache(berth_worker *worker, int64_t device_blocks,
                                     int64_t host_blocks) {
    const berth_default_worker *base = berth_worker_base(worker);
    if (device_blocks != base->num_blocks || host_blocks != 0) {
        return BERTH_FAIL(
            INVALID_ARGUMENT, "KV cache: %lld device and %lld host blocks wanted, %lld and 0 exist",
            (long long)device_blocks, (long long)host_blocks, (long long)base->num_blocks);
    }
    return BERTH_OK;
}

// ---- steps --------------------------------------------------------------------------------------

// A step of one token of one sequence that reads no cache and writes none; the state that it leaves
// is in the null slot.
static berth_status execute_dummy_batch(berth_worker *worker) {
    int32_t zero[1] = {0};
    int32_t one[1] = {1};
    int32_t bounds[2] = {0, 1};
    int32_t block[1] = {0};
    int64_t slot[1] = {-1};
    const int64_t strides[2] = {1, 1};
    const int64_t shape[2] = {1, 1};
    const int64_t two[1] = {2};
#define ARRAY(values, rank, extents, type)                                                         \
    {                                                                                              \
        .size = sizeof(berth_tensor), .data = (values), .device_type = BERTH_MEMORY_HOST,          \
        .ndim = (rank), .dtype = (type), .shape = (extents), .strides = strides                    \
    }
    const berth_tensor token = ARRAY(zero, 1, shape, BERTH_DTYPE_I32);
    const berth_tensor length = ARRAY(one, 1, shape, BERTH_DTYPE_I32);
    const berth_tensor start = ARRAY(bounds, 1, two, BERTH_DTYPE_I32);
    const berth_tensor table = ARRAY(block, 2, shape, BERTH_DTYPE_I32);
    const berth_tensor mapping = ARRAY(slot, 1, shape, BERTH_DTYPE_I64);
#undef ARRAY
    const berth_tensor *tables[BERTH_CACHE_GROUPS_MAX];
    const berth_tensor *mappings[BERTH_CACHE_GROUPS_MAX];
    for (size_t i = 0; i < BERTH_CACHE_GROUPS_MAX; ++i) {
        tables[i] = &table;
        mappings[i] = &mapping;
    }
    const berth_batch_view view = {
        .size = sizeof view,
        .token_ids = &token,
        .positions = &token,
        .query_start_loc = &start,
        .seq_lens = &length,
        .logits_rows = &token,
        .block_tables = tables,
        .slot_mappings = mappings,
    };
    const berth_batch batch = {
        .size = sizeof batch,
        .host = &view,
        .token_count = 1,
        .sequence_count = 1,
        .logits_row_count = 1,
        .group_count = BERTH_CACHE_GROUPS_MAX,
        .max_query_len = 1,
        .max_seq_len = 1,
    };
    berth_default_worker *base = berth_worker_base(worker);
    return berth_plan_run(base->plan, &batch);
}

static void report_memory(const berth_default_worker *base) {
    const berth_runtime_counters *counters = berth_runtime_counted(base->runtime);
    BERTH_INFO("worker",
               "%llu bytes of device memory, %llu at most: weights %llu, caches %llu, activations "
               "%llu",
               (unsigned long long)counters->held, (unsigned long long)counters->peak,
               (unsigned long long)berth_plan_parameter_bytes(base->plan),
               (unsigned long long)base->cache_bytes,
               (unsigned long long)berth_plan_activation_bytes(base->plan));
}

static uint64_t free_bytes(const berth_default_worker *base) {
    uint64_t available = 0;
    uint64_t total = 0;
    if (berth_runtime_memory(base->runtime, &available, &total) != BERTH_OK) {
        berth_status_clear();
    }
    return available;
}

berth_status berth_worker_record(berth_default_worker *base) {
    const uint64_t start = berth_clock_ns();
    const uint64_t before = free_bytes(base);
    BERTH_TRY(berth_plan_record(base->plan));
    const uint64_t after = free_bytes(base);
    if (berth_plan_captures(base->plan) + berth_plan_pieces(base->plan) > 0) {
        BERTH_INFO("worker",
                   "records %zu decode steps and %zu pieces of others in %llu ms and %llu bytes of "
                   "the device",
                   berth_plan_captures(base->plan), berth_plan_pieces(base->plan),
                   (unsigned long long)((berth_clock_ns() - start) / 1000000),
                   (unsigned long long)(before > after ? before - after : 0));
    }
    return BERTH_OK;
}

static berth_status compile_or_warm_up_model(berth_worker *worker) {
    berth_default_worker *base = berth_worker_base(worker);
    BERTH_TRY_NOTE(worker->api->execute_dummy_batch(worker), "warming up");
    if (base->plan != NULL) {
        BERTH_TRY(berth_worker_record(base));
    }
    if (base->platform != NULL) {
        report_memory(base);
    }
    return BERTH_OK;
}

static berth_status fill_logits(const berth_default_worker *base, berth_model_output *out) {
    const berth_tensor *logits = NULL;
    BERTH_TRY(berth_plan_output(base->plan, "logits", &logits));
    out->logits = (const float *)((const char *)logits->data + logits->byte_offset);
    return BERTH_OK;
}

static berth_status execute_model(berth_worker *worker, const berth_scheduler_output *input,
                                  berth_model_output *out) {
    berth_default_worker *base = berth_worker_base(worker);
    BERTH_TRY(berth_plan_run(base->plan, input->batch));
    const bool is_sampled = input->sampling && input->batch->logits_row_count > 0;
    out->state = is_sampled ? BERTH_OUTPUT_PENDING : BERTH_OUTPUT_READY;
    out->row_count = (uint64_t)input->batch->logits_row_count;
    out->vocab_size = (uint64_t)base->build->description.vocab_size;
    return !is_sampled && input->want_logits && out->row_count > 0 ? fill_logits(base, out)
                                                                   : BERTH_OK;
}

// Whether it holds for every row that gets a token.
static bool are_all(const berth_scheduler_output *input,
                    bool (*is_it)(const berth_sampling *sampling)) {
    for (int64_t row = 0; row < input->batch->logits_row_count; ++row) {
        if (input->sampling[row] && !is_it(input->sampling[row])) {
            return false;
        }
    }
    return true;
}

static void set_draws(berth_plan *plan, const berth_scheduler_output *input) {
    for (int64_t row = 0; row < input->batch->logits_row_count; ++row) {
        berth_plan_set_draw(plan, row, input->sampling[row]);
    }
}

// On the device, when it can and nobody wants logits; else *out_ids stays NULL.
static berth_status choose(berth_default_worker *base, const berth_scheduler_output *input,
                           const int32_t **out_ids) {
    if (input->want_logits) {
        return BERTH_OK;
    }
    if (berth_plan_chooses(base->plan) && are_all(input, berth_sampling_is_greedy)) {
        return berth_plan_choices(base->plan, out_ids);
    }
    if (berth_plan_draws(base->plan) && are_all(input, berth_sampling_is_plain)) {
        set_draws(base->plan, input);
        return berth_plan_draw_ids(base->plan, out_ids);
    }
    return BERTH_OK;
}

// Where the device has chosen, only ids come here.
static berth_status take_ids(berth_default_worker *base, const berth_scheduler_output *input,
                             const int32_t *ids, berth_model_output *out) {
    for (uint64_t row = 0; row < out->row_count; ++row) {
        base->sampler.token_ids[row] = input->sampling[row] ? ids[row] : -1;
        if (input->sampling[row] && ids[row] < 0) {
            return berth_sampler_no_choice();
        }
    }
    out->token_ids = base->sampler.token_ids;
    return BERTH_OK;
}

static berth_status sample_tokens(berth_worker *worker, const berth_scheduler_output *input,
                                  berth_model_output *out) {
    berth_default_worker *base = berth_worker_base(worker);
    out->row_count = (uint64_t)input->batch->logits_row_count;
    out->vocab_size = (uint64_t)base->build->description.vocab_size;
    const int32_t *ids = NULL;
    BERTH_TRY(choose(base, input, &ids));
    if (ids) {
        return take_ids(base, input, ids, out);
    }
    BERTH_TRY(fill_logits(base, out));
    BERTH_TRY(berth_sampler_run(&base->sampler, input->sampling, out));
    if (!input->want_logits) {
        out->logits = NULL;
    }
    return BERTH_OK;
}

// ---- what a device may add ----------------------------------------------------------------------

static berth_status not_provided(const berth_worker *worker, const char *slot) {
    const berth_default_worker *base = berth_worker_base(worker);
    return BERTH_FAIL(UNSUPPORTED, "worker slot '%s' is not provided by platform '%s'", slot,
                      base->platform ? base->platform->platform.name : "unspecified");
}

static berth_status take_draft_token_ids(berth_worker *worker, berth_model_output *out) {
    (void)out;
    return not_provided(worker, "take_draft_token_ids");
}

// Another worker's model sleeps by the slots of that worker.
static berth_status sleep_at(berth_worker *worker, uint64_t level) {
    berth_default_worker *base = berth_worker_base(worker);
    return base->plan ? berth_worker_fall_asleep(base, level) : not_provided(worker, "sleep");
}

static berth_status wake_up(berth_worker *worker, uint64_t tags) {
    berth_default_worker *base = berth_worker_base(worker);
    return base->plan ? berth_worker_wake(base, tags) : not_provided(worker, "wake_up");
}

static berth_status add_lora(berth_worker *worker, const berth_lora_request *request) {
    (void)request;
    return not_provided(worker, "add_lora");
}

static berth_status remove_lora(berth_worker *worker, int64_t id) {
    (void)id;
    return not_provided(worker, "remove_lora");
}

static berth_status list_loras(berth_worker *worker, int64_t *ids, uint64_t capacity,
                               uint64_t *out_count) {
    (void)ids;
    (void)capacity;
    *out_count = 0;
    return not_provided(worker, "list_loras");
}

static berth_status pin_lora(berth_worker *worker, int64_t id) {
    (void)id;
    return not_provided(worker, "pin_lora");
}

static berth_status profile(berth_worker *worker, uint64_t is_start) {
    (void)is_start;
    return not_provided(worker, "profile");
}

// ---- the rest of a life -------------------------------------------------------------------------

// Shorter only, and before the plan's step sizes matter to anybody: the plan was made for the
// longest.
static berth_status update_max_model_len(berth_worker *worker, int64_t max_model_len) {
    berth_default_worker *base = berth_worker_base(worker);
    if (max_model_len < 1 || max_model_len > base->max_model_len) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "model length %lld: the worker was loaded for 1 to %lld",
                          (long long)max_model_len, (long long)base->max_model_len);
    }
    base->max_model_len = max_model_len;
    return BERTH_OK;
}

static berth_status check_health(berth_worker *worker) {
    return berth_runtime_wait(berth_worker_base(worker)->runtime);
}

// The default worker keeps no cache beside the KV blocks, which the engine owns.
static berth_status reset_caches(berth_worker *worker) {
    (void)worker;
    return BERTH_OK;
}

static void shutdown(berth_worker *worker) {
    berth_default_worker *base = berth_worker_base(worker);
    // Nothing that is still queued may find its memory gone.
    if (base->runtime && berth_runtime_wait(base->runtime) != BERTH_OK) {
        BERTH_WARN("worker", "shutting down: %s", berth_status_message());
        berth_status_clear();
    }
    berth_plan_destroy(base->plan);
    berth_model_destroy(base->build);
    berth_runtime_close(base->runtime);
    base->plan = NULL;
    base->build = NULL;
    base->runtime = NULL;
}

const berth_worker_api berth_worker_default = {
    .size = sizeof(berth_worker_api),
    .init_device = init_device,
    .load_model = load_model,
    .get_model = get_model,
    .get_kv_cache_spec = get_kv_cache_spec,
    .determine_available_memory = determine_available_memory,
    .initialize_from_config = initialize_from_config,
    .initialize_cache = initialize_cache,
    .compile_or_warm_up_model = compile_or_warm_up_model,
    .execute_model = execute_model,
    .sample_tokens = sample_tokens,
    .take_draft_token_ids = take_draft_token_ids,
    .execute_dummy_batch = execute_dummy_batch,
    .sleep = sleep_at,
    .wake_up = wake_up,
    .add_lora = add_lora,
    .remove_lora = remove_lora,
    .list_loras = list_loras,
    .pin_lora = pin_lora,
    .update_max_model_len = update_max_model_len,
    .profile = profile,
    .check_health = check_health,
    .reset_caches = reset_caches,
    .shutdown = shutdown,
};
