// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "support/alloc.h"
#include "support/test.h"
#include "support/test_plan.h"

#define IMPL(op_name, key, run, bits)                                                              \
    {                                                                                              \
        .size = sizeof(berth_op_impl), .op = (op_name), .name = key "." op_name,                   \
        .dispatch_key = (key), .revision = 1, .forward = (run), .flags = (bits)                    \
    }

static const char *const block =
    "graph \"block\" {\n"
    "  %1 = input token_ids : i32[s0]\n"
    "  %2 = parameter \"embed\" : f32[16, 8]\n"
    "  %3 = embedding(%1, %2) @\"embed\" : f32[s0, 8]\n"
    "  %4 = parameter \"norm\" : f32[8]\n"
    "  %5 = norm(%3, _, %4) {eps = 0.001} : f32[s0, 8]\n"
    "  %6 = parameter \"qkv\" : f32[24, 8]\n"
    "  %7 = linear(%5, %6) : f32[s0, 24]\n"
    "  %8 = slice %7 dim 1 from 0 length 8 : f32[s0, 8]\n"
    "  %9 = reshape %8 : f32[s0, 2, 4]\n"
    "  %10 = slice %7 dim 1 from 8 length 8 : f32[s0, 8]\n"
    "  %11 = reshape %10 : f32[s0, 2, 4]\n"
    "  %12 = slice %7 dim 1 from 16 length 8 : f32[s0, 8]\n"
    "  %13 = reshape %12 : f32[s0, 2, 4]\n"
    "  %14 = state \"attn\" 0 : f32[4, 2, 4]\n"
    "  %15 = state \"attn\" 1 : f32[4, 2, 4]\n"
    "  %16, %17', %18' = paged_attention(%9, %11, %13; %14, %15) "
    "{scale = 0.5} @\"attn\" : f32[s0, 2, 4]\n"
    "  %19 = reshape %16 : f32[s0, 8]\n"
    "  %20, %21 = norm(%19, %3) {eps = 0.001} : f32[s0, 8], f32[s0, 8]\n"
    "  %22 = add(%20, %21) : f32[s0, 8]\n"
    "  %23 = input logits_rows : i32[s1]\n"
    "  %24 = select_rows(%22, %23) : f32[s1, 8]\n"
    "  %25 = linear(%24, %2) : f32[s1, 16]\n"
    "  output logits = %25\n"
    "}\n";

static void open_block(test_plan *it, const test_content *content, const char *platform) {
    test_plan_open(it, content, platform);
    test_plan_parse(it, block);
    test_plan_cache(it, "attn", 2, 4);
    it->config.allow_fallback = true;
    const berth_status status = test_plan_create(it);
    CHECK_STR(status == BERTH_OK ? "" : berth_status_message(), "");
    test_plan_load(it);
}

// Prefill of two sequences, a chunk without logits, a decode step of both, of one.
static void run_block(test_plan *it) {
    test_batch batch;
    test_batch_fill(&batch, (const int[]){5, 3}, (const int[]){5, 3}, 2, 2);
    test_plan_check(it, &batch);
    test_batch_fill(&batch, (const int[]){4}, (const int[]){9}, 1, 0);
    test_plan_check(it, &batch);
    test_batch_fill(&batch, (const int[]){1, 1}, (const int[]){10, 4}, 2, 2);
    test_plan_check(it, &batch);
    test_batch_fill(&batch, (const int[]){1}, (const int[]){11}, 1, 1);
    test_plan_check(it, &batch);
}

static const berth_op_impl host_impls[] = {
    IMPL("norm", "cpu", test_host_forward, BERTH_IMPL_IN_PLACE),
    IMPL("add", "cpu", test_host_forward, BERTH_IMPL_IN_PLACE),
    IMPL("linear", "cpu", test_host_forward, 0),
};
static const berth_op_impl queued_impls[] = {
    IMPL("norm", "xpu", test_queued_forward, 0),
    IMPL("linear", "xpu", test_queued_forward, 0),
    IMPL("select_rows", "xpu", test_queued_forward, 0),
};

TEST(executor_runs_a_block_natively_on_the_host) {
    test_plan it;
    open_block(&it, NULL, NULL);
    run_block(&it);
    test_plan_close(&it);
}

TEST(executor_runs_a_block_on_a_platform_with_host_memory) {
    test_plan it;
    const test_content content = {.impls = host_impls, .impl_count = 3};
    open_block(&it, &content, "fake-host");
    run_block(&it);
    CHECK_UINT(test_devices_calls(), 4 * 5 - 1); // five sites, one of them without a row once
    test_plan_close(&it);
}

TEST(executor_waits_for_streams_before_it_reads_their_results) {
    test_plan it;
    const test_content content = {.impls = queued_impls, .impl_count = 3};
    open_block(&it, &content, "fake-streams");
    run_block(&it);
    test_plan_close(&it);
}

// Every number of device implementations, from none (all bounced) to all.
TEST(executor_runs_a_block_on_handles_with_any_ops_bounced) {
    for (size_t count = 0; count <= TEST_DEVICE_IMPLS; ++count) {
        test_plan it;
        const test_content content = {.impls = test_device_impls, .impl_count = count};
        open_block(&it, &content, "fake-device");
        run_block(&it);
        test_plan_close(&it);
    }
}

// On a device whose work goes on behind the call, too: every site is waited for.
TEST(executor_tells_how_long_the_sites_of_a_timed_run_take) {
    test_plan it;
    const test_content content = {.impls = queued_impls, .impl_count = 3};
    open_block(&it, &content, "fake-streams");
    run_block(&it);
    uint64_t sum = 0;
    for (size_t i = 0; i < berth_plan_site_count(it.plan); ++i) {
        sum += berth_plan_site_ns(it.plan, i);
    }
    CHECK_UINT(sum, 0);
    berth_plan_set_timed(it.plan, true);
    const uint64_t start = berth_clock_ns();
    run_block(&it);
    const uint64_t whole = berth_clock_ns() - start;
    const uint64_t waits = berth_runtime_counted(it.runtime)->waits;
    CHECK(waits >= berth_plan_site_count(it.plan));
    for (size_t i = 0; i < berth_plan_site_count(it.plan); ++i) {
        sum += berth_plan_site_ns(it.plan, i);
    }
    CHECK(sum > 0 && sum <= whole);
    test_plan_close(&it);
}

TEST(executor_copies_nothing_between_ops_of_the_device) {
    test_plan it;
    const test_content content = {.impls = test_device_impls, .impl_count = TEST_DEVICE_IMPLS};
    open_block(&it, &content, "fake-device");
    test_batch batch;
    test_batch_fill(&batch, (const int[]){3}, (const int[]){3}, 1, 1);
    const berth_runtime_counters before = *berth_runtime_counted(it.runtime);
    test_plan_check(&it, &batch);
    const berth_runtime_counters *after = berth_runtime_counted(it.runtime);
    CHECK_UINT(after->to_device - before.to_device, 1); // the arrays of the batch
    CHECK_UINT(after->to_host - before.to_host, 1);     // the logits
    test_plan_close(&it);
}

TEST(executor_allocates_nothing_in_a_step) {
    const char *const platforms[] = {NULL, "fake-host", "fake-device"};
    for (size_t i = 0; i < 3; ++i) {
        test_plan it;
        const test_content content = {
            .impls = i == 2 ? test_device_impls : host_impls,
            .impl_count = 3,
        };
        open_block(&it, &content, platforms[i]);
        test_batch batches[3];
        test_batch_fill(&batches[0], (const int[]){2, 1}, (const int[]){2, 1}, 2, 2);
        test_batch_fill(&batches[1], (const int[]){1, 1}, (const int[]){3, 2}, 2, 2);
        test_batch_fill(&batches[2], (const int[]){4}, (const int[]){7}, 1, 0);
        const berth_tensor *logits = NULL;
        const uint64_t before = test_alloc_count();
        for (size_t j = 0; j < 3; ++j) {
            CHECK_OK(berth_plan_run(it.plan, &batches[j].batch));
            CHECK_OK(berth_plan_output(it.plan, "logits", &logits));
        }
        CHECK_UINT(test_alloc_count() - before, 0);
        test_plan_close(&it);
    }
}

TEST(executor_refuses_batches_that_the_plan_is_not_for) {
    test_plan it;
    open_block(&it, NULL, NULL);
    test_batch batch;
    test_batch_fill(&batch, (const int[]){1}, (const int[]){1}, 1, 1);
    batch.batch.token_count = TEST_MAX_TOKENS + 1;
    CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "a step of 13 tokens: the plan is for 1 to 12");
    batch.batch.token_count = 0;
    CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), BERTH_INVALID_ARGUMENT);
    batch.batch.token_count = 1;
    batch.batch.logits_row_count = TEST_MAX_SEQUENCES + 1;
    CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), BERTH_INVALID_ARGUMENT);
    batch.batch.logits_row_count = 1;
    batch.batch.group_count = 0;
    CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "0 cache groups: the model has 1");
    const berth_tensor *none = NULL;
    CHECK_STATUS(berth_plan_output(it.plan, "logits", &none), BERTH_WRONG_STATE);
    batch.batch.group_count = 1;
    CHECK_OK(berth_plan_run(it.plan, &batch.batch));
    CHECK_STATUS(berth_plan_output(it.plan, "logit", &none), BERTH_NOT_FOUND);
    test_plan_close(&it);
}

TEST(executor_keeps_its_order) {
    test_plan it;
    test_plan_open(&it, NULL, NULL);
    test_plan_parse(&it, block);
    test_plan_cache(&it, "attn", 2, 4);
    CHECK_OK(test_plan_create(&it));
    test_batch batch;
    test_batch_fill(&batch, (const int[]){1}, (const int[]){1}, 1, 1);
    CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), BERTH_WRONG_STATE);
    CHECK_STATUS(berth_plan_ready(it.plan), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "parameter 'embed' has not been set");
    const float few[4] = {0};
    CHECK_STATUS(berth_plan_set_parameter(it.plan, 4, few, sizeof(few)), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "parameter 'norm' has 32 bytes, 16 were given");
    CHECK_STATUS(berth_plan_set_parameter(it.plan, 3, few, sizeof(few)), BERTH_INVALID_ARGUMENT);
    const berth_kv_cache_config caches = {.size = sizeof(caches), .num_blocks = 4};
    CHECK_STATUS(berth_plan_set_cache(it.plan, &caches), BERTH_WRONG_STATE);
    float weight[128] = {0};
    CHECK_OK(berth_plan_set_parameter(it.plan, 2, weight, sizeof(weight)));
    CHECK_STATUS(berth_plan_set_parameter(it.plan, 2, weight, sizeof(weight)), BERTH_WRONG_STATE);
    CHECK_OK(berth_plan_set_parameter(it.plan, 4, weight, 32));
    float large[192] = {0};
    CHECK_OK(berth_plan_set_parameter(it.plan, 6, large, sizeof(large)));
    CHECK_OK(berth_plan_ready(it.plan));
    CHECK_STATUS(berth_plan_ready(it.plan), BERTH_WRONG_STATE);
    CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "berth_plan_set_cache");
    CHECK_OK(berth_plan_set_cache(it.plan, &caches));
    CHECK_OK(berth_plan_set_cache(it.plan, &caches));
    CHECK_OK(berth_plan_run(it.plan, &batch.batch));
    test_plan_close(&it);
}

// ---- failures -----------------------------------------------------------------------------------

static berth_status fail_with_text(void *self, const berth_op_args *args) {
    (void)args;
    const berth_op_site *site = self;
    return BERTH_PLUGIN_FAIL(site->host, BERTH_UNAVAILABLE, "the unit is on fire");
}

static berth_status fail_silently(void *self, const berth_op_args *args) {
    (void)self;
    (void)args;
    return BERTH_IO;
}

TEST(executor_names_op_layer_and_plugin_of_a_failure) {
    const berth_op_forward_fn forwards[] = {fail_with_text, fail_silently};
    const char *const texts[] = {
        "the unit is on fire (while calling forward of plugin 'content'; while running op "
        "'paged_attention' of layer 'attn' by 'cpu.paged_attention' of plugin content 2.0.0)",
        "forward of plugin 'content' failed with IO and gave no reason (while running op "
        "'paged_attention' of layer 'attn'",
    };
    for (size_t i = 0; i < 2; ++i) {
        test_plan it;
        const berth_op_impl impl = IMPL("paged_attention", "cpu", forwards[i], 0);
        const test_content content = {.impls = &impl, .impl_count = 1};
        open_block(&it, &content, "fake-host");
        test_batch batch;
        test_batch_fill(&batch, (const int[]){1}, (const int[]){1}, 1, 1);
        CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), i == 0 ? BERTH_UNAVAILABLE : BERTH_IO);
        CHECK_CONTAINS(berth_status_message(), texts[i]);
        test_plan_close(&it);
    }
}

// ---- in place -----------------------------------------------------------------------------------

static char aliases[64]; // per call: which input shares the memory of output 0

static berth_status record_aliases(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    char shared = '-';
    for (uint64_t i = 0; i < site->input_count; ++i) {
        if (args->inputs[i] != NULL &&
            args->inputs[i]->byte_offset == args->outputs[0]->byte_offset &&
            args->inputs[i]->data == args->outputs[0]->data) {
            shared = (char)('0' + i);
        }
    }
    aliases[strlen(aliases)] = shared;
    return test_host_forward(self, args);
}

TEST(executor_works_in_place_only_where_the_input_dies) {
    const berth_op_impl impls[] = {
        IMPL("add", "cpu", record_aliases, BERTH_IMPL_IN_PLACE),
        IMPL("scale", "cpu", record_aliases, BERTH_IMPL_IN_PLACE),
        IMPL("norm", "cpu", record_aliases, 0),
    };
    test_plan it;
    const test_content content = {.impls = impls, .impl_count = 3};
    test_plan_open(&it, &content, "fake-host");
    test_plan_parse(&it, "graph \"g\" {\n"
                         "%1 = input token_ids : i32[s0]\n"
                         "%2 = parameter \"w\" : f32[16, 8]\n"
                         "%3 = scale(%2) {factor = 2.0} : f32[16, 8]\n" // a weight is no scratch
                         "%4 = embedding(%1, %3) : f32[s0, 8]\n"
                         "%5 = scale(%4) {factor = 2.0} : f32[s0, 8]\n" // %4 dies
                         "%6 = scale(%5) {factor = 2.0} : f32[s0, 8]\n" // %5 is used again
                         "%7 = add(%6, %6) : f32[s0, 8]\n"              // it is the other input too
                         "%8 = add(%7, %5) : f32[s0, 8]\n"              // %7 dies
                         "%9 = norm(%8) {eps = 1.0} : f32[s0, 8]\n"     // not allowed to
                         "%10 = reshape %9 : f32[8*s0]\n"
                         "%11 = scale(%10) {factor = 2.0} : f32[8*s0]\n" // all of %9 dies
                         "%12 = reshape %11 : f32[s0, 8]\n"
                         "%13 = slice %12 dim 1 from 0 length 4 : f32[s0, 4]\n"
                         "%14 = scale(%13) {factor = 2.0} : f32[s0, 4]\n" // a part only
                         "%15 = scale(%14) {factor = 2.0} : f32[s0, 4]\n" // %14 is a result
                         "output a = %14 output b = %15 }");
    CHECK_OK(test_plan_create(&it));
    test_plan_load(&it);
    test_batch batch;
    test_batch_fill(&batch, (const int[]){3}, (const int[]){3}, 1, 0);
    memset(aliases, 0, sizeof(aliases));
    test_plan_check(&it, &batch);
    CHECK_STR(aliases, "-0--0-0--");
    test_plan_close(&it);
}

// ---- packing, workspaces, instances -------------------------------------------------------------

typedef struct reversed {
    const berth_op_site *site;
    uint64_t workspace;
} reversed;

static int instances;

static uint64_t packed_bytes(const berth_op_site *site, uint64_t input) {
    const berth_value_type *type = site->inputs[input];
    return input == 1 ? 8 + (uint64_t)(type->dims[0].b * type->dims[1].b) * sizeof(float) : 0;
}

// Eight bytes of a mark, then the elements in reverse.
static berth_status pack(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                         const berth_tensor *destination) {
    const int64_t count = source->shape[0] * source->shape[1];
    CHECK_UINT((uint64_t)destination->shape[0], packed_bytes(site, input));
    char *to = (char *)destination->data + destination->byte_offset;
    memcpy(to, "reversed", 8);
    for (int64_t i = 0; i < count; ++i) {
        memcpy(to + 8 + i * 4, (const float *)source->data + count - 1 - i, 4);
    }
    return BERTH_OK;
}

// From the end of all of them on.
static berth_status pack_rows(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                              int64_t first, const berth_tensor *destination) {
    const int64_t length = source->shape[1];
    const int64_t count = source->shape[0] * length;
    const int64_t all = ((int64_t)packed_bytes(site, input) - 8) / 4;
    char *to = (char *)destination->data + destination->byte_offset;
    CHECK_INT(first % BERTH_PACK_ROWS, 0);
    memcpy(to, "reversed", 8);
    for (int64_t i = 0; i < count; ++i) {
        memcpy(to + 8 + (all - 1 - first * length - i) * 4, (const float *)source->data + i, 4);
    }
    return BERTH_OK;
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    (void)device;
    reversed *self = site->host->alloc(site->host, sizeof(*self), 0);
    *self = (reversed){.site = site, .workspace = (uint64_t)site->inputs[1]->dims[0].b * 4};
    *out_self = self;
    ++instances;
    return BERTH_OK;
}

static void destroy(void *self) {
    const reversed *in = self;
    --instances;
    in->site->host->free(in->site->host, self);
}

static uint64_t workspace(void *self, uint64_t tokens) {
    return ((const reversed *)self)->workspace * tokens;
}

// Computes into the workspace first, so that one that overlaps with an operand is seen.
static berth_status run_reversed(void *self, const berth_op_args *args) {
    const bool is_handle = args->workspace->device_type == BERTH_MEMORY_EXTENSION;
#define ADDRESS(tensor)                                                                            \
    ((char *)(is_handle ? test_devices_address((tensor)->data) : (tensor)->data) +                 \
     (tensor)->byte_offset)
    const char *packed = ADDRESS(args->inputs[1]);
    const float *x = (const float *)(void *)ADDRESS(args->inputs[0]);
    float *y = (float *)(void *)ADDRESS(args->outputs[0]);
    float *sums = (float *)(void *)ADDRESS(args->workspace);
#undef ADDRESS
    const int64_t in = args->inputs[1]->shape[1];
    const int64_t out = args->inputs[1]->shape[0];
    const int64_t rows = args->inputs[0]->shape[0];
    CHECK_BYTES(packed, "reversed", 8);
    CHECK(args->workspace->shape[0] >= rows * out * 4 && self != NULL);
    for (int64_t i = 0; i < rows * out; ++i) {
        sums[i] = 0.0F;
        for (int64_t j = 0; j < in; ++j) {
            float weight = 0.0F;
            memcpy(&weight, packed + 8 + (in * out - 1 - (i % out * in + j)) * 4, 4);
            sums[i] += x[i / out * in + j] * weight;
        }
    }
    memcpy(y, sums, (size_t)(rows * out) * sizeof(float));
    return BERTH_OK;
}

TEST(executor_packs_weights_for_the_sites_that_want_it) {
    const char *const platforms[] = {"fake-host", "fake-device", "fake-host"};
    for (size_t i = 0; i < 3; ++i) {
        const berth_op_impl impls[] = {
            {
             .size = sizeof(berth_op_impl),
             .op = "linear",
             .name = "reversed",
             .dispatch_key = i == 1 ? "oot" : "cpu",
             .revision = 1,
             .create = create,
             .workspace = workspace,
             .forward = run_reversed,
             .destroy = destroy,
             .packed_bytes = packed_bytes,
             .pack = pack,
             .pack_rows = i == 2 ? pack_rows : NULL,
             },
        };
        test_plan it;
        const test_content content = {.impls = impls, .impl_count = 1};
        open_block(&it, &content, platforms[i]);
        CHECK_INT(instances, 2);
        // "embed" is read by the embedding and by a linear, "qkv" by a linear alone.
        CHECK_UINT(berth_plan_parameter_bytes(it.plan), 512 + 32 + (8 + 512) + (8 + 768));
        run_block(&it);
        test_plan_close(&it);
        CHECK_INT(instances, 0);
    }
}

static berth_status fail_create(const berth_op_site *site, const berth_device *device,
                                void **out_self) {
    (void)device;
    (void)out_self;
    if (instances == 1) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_OUT_OF_MEMORY, "no unit is free");
    }
    return create(site, device, out_self);
}

TEST(executor_destroys_what_it_created_when_a_later_create_fails) {
    const berth_op_impl impl = {
        .size = sizeof(impl),
        .op = "linear",
        .name = "scarce",
        .dispatch_key = "cpu",
        .revision = 1,
        .create = fail_create,
        .forward = test_host_forward,
        .destroy = destroy,
    };
    test_plan it;
    const test_content content = {.impls = &impl, .impl_count = 1};
    test_plan_open(&it, &content, "fake-host");
    test_plan_parse(&it, block);
    test_plan_cache(&it, "attn", 2, 4);
    CHECK_OK(test_plan_create(&it));
    float weight[192] = {0};
    CHECK_OK(berth_plan_set_parameter(it.plan, 2, weight, 512));
    CHECK_OK(berth_plan_set_parameter(it.plan, 4, weight, 32));
    CHECK_OK(berth_plan_set_parameter(it.plan, 6, weight, 768));
    CHECK_STATUS(berth_plan_ready(it.plan), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "no unit is free");
    CHECK_CONTAINS(berth_status_message(), "creating 'scarce' for op 'linear'");
    test_plan_close(&it);
    CHECK_INT(instances, 0);
}

// Every allocation of a plan's life fails once: it is refused, and nothing leaks.
TEST(executor_survives_every_failing_allocation) {
    const test_content content = {.impls = test_device_impls, .impl_count = 3};
    berth_status status = BERTH_OUT_OF_MEMORY;
    uint64_t n = 0;
    while (status != BERTH_OK) {
        test_plan it;
        test_plan_open(&it, &content, "fake-device");
        test_plan_parse(&it, block);
        test_plan_cache(&it, "attn", 2, 4);
        it.config.allow_fallback = true;
        const float weight[192] = {0};
        const berth_kv_cache_config caches = {.size = sizeof(caches), .num_blocks = 4};
        (void)berth_memory_fail_after(++n);
        status = test_plan_create(&it);
        for (berth_value i = 2; i <= 6 && status == BERTH_OK; i += 2) {
            status = berth_plan_set_parameter(it.plan, i, weight,
                                              (const uint64_t[]){0, 512, 32, 768}[i / 2]);
        }
        status = status == BERTH_OK ? berth_plan_ready(it.plan) : status;
        status = status == BERTH_OK ? berth_plan_set_cache(it.plan, &caches) : status;
        const bool has_failed = berth_memory_fail_after(0) == 0;
        CHECK_STATUS(status, has_failed ? BERTH_OUT_OF_MEMORY : BERTH_OK);
        test_plan_close(&it);
    }
    CHECK(n > 10);
}

// ---- states -------------------------------------------------------------------------------------

static const char *const two_users = "graph \"two\" {\n"
                                     "  %1 = input token_ids : i32[s0]\n"
                                     "  %2 = parameter \"embed\" : f32[16, 8]\n"
                                     "  %3 = embedding(%1, %2) : f32[s0, 8]\n"
                                     "  %4 = state \"sum\" 0 : f32[8]\n"
                                     "  %5, %6' = accumulate(%3; %4) @\"sum\" : f32[s0, 8]\n"
                                     "  %7, %8' = accumulate(%5; %6) @\"sum\" : f32[s0, 8]\n"
                                     "  output y = %7\n"
                                     "}\n";

TEST(executor_keeps_states_from_step_to_step_in_either_space) {
    const char *const platforms[] = {NULL, "fake-device", "fake-device"};
    for (size_t i = 0; i < 3; ++i) {
        test_plan it;
        const test_content content = {.impls = test_device_impls,
                                      .impl_count = i == 2 ? TEST_DEVICE_IMPLS : 0};
        test_plan_open(&it, &content, platforms[i]);
        it.config.allow_fallback = true;
        test_plan_parse(&it, two_users);
        CHECK_OK(test_plan_create(&it));
        test_plan_load(&it);
        test_batch batch;
        for (int step = 1; step < 6; ++step) {
            test_batch_fill(&batch, &step, (const int[]){6}, 1, 0);
            test_plan_check(&it, &batch);
        }
        test_plan_close(&it);
    }
}

static berth_status only_with_offset(const berth_op_site *site, const berth_device *device) {
    (void)device;
    static int asked;
    return ++asked % 2 == 1 ? BERTH_OK
                            : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "every other one");
}

TEST(executor_refuses_to_split_a_state_between_device_and_host) {
    const berth_op_impl impl = {
        .size = sizeof(impl),
        .op = "accumulate",
        .name = "half",
        .dispatch_key = "oot",
        .revision = 1,
        .supports = only_with_offset,
        .forward = test_device_forward,
    };
    test_plan it;
    const test_content content = {.impls = &impl, .impl_count = 1};
    test_plan_open(&it, &content, "fake-device");
    it.config.allow_fallback = true;
    test_plan_parse(&it, two_users);
    CHECK_STATUS(test_plan_create(&it), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(),
                   "state 0 of layer 'sum' is used by op 'accumulate' on the device and by op "
                   "'accumulate' on the host");
    test_plan_close(&it);
}
