// SPDX-License-Identifier: Apache-2.0
// Tokens that a device draws behind a run: it gets the options of every row and the rows that are
// somebody's, whether the run was recorded or not, and nobody has it where it is not complete.
#include "support/test.h"
#include "support/test_plan.h"

static const char *const graph = "graph \"draw\" {\n"
                                 "  %1 = input token_ids : i32[s0]\n"
                                 "  %2 = parameter \"embed\" : f32[16, 8]\n"
                                 "  %3 = embedding(%1, %2) @\"embed\" : f32[s0, 8]\n"
                                 "  %4 = input logits_rows : i32[s1]\n"
                                 "  %5 = select_rows(%3, %4) : f32[s1, 8]\n"
                                 "  %6 = linear(%5, %2) : f32[s1, 16]\n"
                                 "  output logits = %6\n"
                                 "}\n";

// ---- two ops ------------------------------------------------------------------------------------

enum { LOGITS, TEMPERATURE, TOP_P, MIN_P, TOP_K, SEED, INDEX, INPUT_COUNT };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    out->types[0]->dtype = BERTH_DTYPE_I32;
    out->types[0]->ndim = 1;
    out->types[0]->dims[0] = site->inputs[LOGITS]->dims[0];
    out->count = 1;
    return BERTH_OK;
}

static const void *data_of(const berth_tensor *tensor) {
    return (const char *)tensor->data + tensor->byte_offset;
}

static berth_status pick(void *self, const berth_op_args *args) {
    (void)self;
    int32_t *y = (int32_t *)(uintptr_t)data_of(args->outputs[0]);
    for (int64_t row = 0; row < args->inputs[LOGITS]->shape[0]; ++row) {
        y[row] = 7;
    }
    return BERTH_OK;
}

// A number that all options and the number of rows go into.
static int32_t mixed(const berth_sampling *options, int64_t rows) {
    return (int32_t)(options->temperature + 2 * options->top_p + 4 * options->min_p) +
           (int32_t)(16 * options->top_k + 256 * options->seed + 4096 * options->index) +
           (int32_t)rows * 65536;
}

static berth_status mix(void *self, const berth_op_args *args) {
    (void)self;
    const int64_t rows = args->inputs[LOGITS]->shape[0];
    const double *numbers[INPUT_COUNT];
    const int64_t *integers[INPUT_COUNT];
    int32_t *y = (int32_t *)(uintptr_t)data_of(args->outputs[0]);
    for (int input = TEMPERATURE; input < INPUT_COUNT; ++input) {
        CHECK_INT(args->inputs[input]->shape[0], rows);
        numbers[input] = data_of(args->inputs[input]);
        integers[input] = data_of(args->inputs[input]);
    }
    for (int64_t row = 0; row < rows; ++row) {
        const berth_sampling options = {
            .temperature = numbers[TEMPERATURE][row],
            .top_p = numbers[TOP_P][row],
            .min_p = numbers[MIN_P][row],
            .top_k = (uint64_t)integers[TOP_K][row],
            .seed = (uint64_t)integers[SEED][row],
            .index = (uint64_t)integers[INDEX][row],
        };
        y[row] = mixed(&options, rows);
    }
    return BERTH_OK;
}

#define INPUT(input_name)                                                                          \
    &(const berth_op_argument) {                                                                   \
        .size = sizeof(berth_op_argument), .name = (input_name)                                    \
    }
static const berth_op_argument *const inputs[] = {
    INPUT("logits"), INPUT("temperature"), INPUT("top_p"), INPUT("min_p"),
    INPUT("top_k"),  INPUT("seed"),        INPUT("index"),
};
static const berth_op argmax = {
    .size = sizeof(berth_op),
    .name = "argmax",
    .class_name = "Argmax",
    .revision = 1,
    .inputs = inputs,
    .input_count = 1,
    .infer = infer,
    .reference = pick,
};
static const berth_op draw = {
    .size = sizeof(berth_op),
    .name = "sample",
    .class_name = "Sample",
    .revision = 1,
    .inputs = inputs,
    .input_count = INPUT_COUNT,
    .infer = infer,
    .reference = mix,
};
static const berth_op *const ops[] = {&argmax, &draw};

static uint64_t some_workspace(void *self, uint64_t tokens) {
    (void)self;
    return tokens;
}

// ---- plans --------------------------------------------------------------------------------------

enum { NO_DRAW = TEST_DEVICE_IMPLS + 1, WITH_DRAW = TEST_DEVICE_IMPLS + 2 };

static berth_op_impl impl_of(const char *op, const char *name) {
    return (berth_op_impl){
        .size = sizeof(berth_op_impl),
        .op = op,
        .name = name,
        .dispatch_key = BERTH_DISPATCH_OOT,
        .revision = 1,
        .flags = BERTH_IMPL_CAPTURABLE,
        .forward = test_device_forward,
    };
}

static void open_plan(test_plan *it, size_t impl_count, bool has_workspace) {
    static berth_op_impl impls[WITH_DRAW];
    memcpy(impls, test_device_impls, sizeof test_device_impls);
    impls[TEST_DEVICE_IMPLS] = impl_of("argmax", "oot.argmax");
    impls[NO_DRAW] = impl_of("sample", "oot.sample");
    impls[NO_DRAW].workspace = has_workspace ? some_workspace : NULL;
    const test_content content = {
        .impls = impls,
        .impl_count = impl_count,
        .ops = ops,
        .op_count = sizeof ops / sizeof ops[0],
    };
    test_plan_open(it, &content, "fake-recording");
    test_plan_parse(it, graph);
    it->config.max_num_seqs = 5;
    CHECK_OK(test_plan_create(it));
    test_plan_load(it);
}

static void run(test_plan *it, int sequences) {
    const int fresh[] = {1, 1, 1, 1, 1};
    test_batch batch;
    test_batch_fill(&batch, fresh, fresh, sequences, sequences);
    test_plan_check(it, &batch);
}

static void check_draw(test_plan *it, int64_t rows) {
    berth_sampling options[TEST_MAX_SEQUENCES];
    const int32_t *ids = NULL;
    for (int64_t row = 0; row < rows; ++row) {
        options[row] = (berth_sampling){
            .temperature = (double)(row % 2),
            .top_p = row > 2 ? 1 : 0,
            .min_p = row > 3 ? 1 : 0,
            .top_k = (uint64_t)row,
            .seed = (uint64_t)(rows - row),
            .index = (uint64_t)(2 * row),
        };
        berth_plan_set_draw(it->plan, row, &options[row]);
    }
    CHECK_OK(berth_plan_draw_ids(it->plan, &ids));
    for (int64_t row = 0; row < rows; ++row) {
        CHECK_INT(ids[row], mixed(&options[row], rows));
    }
}

TEST(a_device_draws_with_the_options_of_each_row) {
    test_plan it;
    open_plan(&it, WITH_DRAW, false);
    CHECK(berth_plan_draws(it.plan));
    for (int sequences = 5; sequences > 0; --sequences) {
        run(&it, sequences);
        check_draw(&it, sequences);
    }
    test_plan_close(&it);
}

TEST(a_device_draws_of_rows_that_are_somebodys) {
    test_plan it;
    open_plan(&it, WITH_DRAW, false);
    CHECK_OK(berth_plan_record(it.plan));
    run(&it, 3); // filled up to the next recording
    CHECK(berth_runtime_counted(it.runtime)->replays > 0);
    check_draw(&it, 3);
    test_plan_close(&it);
}

TEST(a_device_draws_again_after_sleep) {
    test_plan it;
    open_plan(&it, WITH_DRAW, false);
    CHECK_OK(berth_plan_sleep(it.plan, BERTH_SLEEP_KEEP));
    CHECK_OK(berth_plan_wake_up(it.plan));
    CHECK_OK(berth_plan_wake_caches(it.plan));
    run(&it, 2);
    check_draw(&it, 2);
    test_plan_close(&it);
}

TEST(nobody_draws_before_a_run_or_without_the_op) {
    const int32_t *ids = NULL;
    test_plan it;
    open_plan(&it, WITH_DRAW, false);
    CHECK_INT(berth_plan_draw_ids(it.plan, &ids), BERTH_WRONG_STATE);
    berth_status_clear();
    test_plan_close(&it);
    open_plan(&it, NO_DRAW, false);
    CHECK(berth_plan_chooses(it.plan));
    CHECK(!berth_plan_draws(it.plan));
    test_plan_close(&it);
}

TEST(an_op_that_wants_a_workspace_does_not_draw) {
    test_plan it;
    open_plan(&it, WITH_DRAW, true);
    CHECK(berth_plan_chooses(it.plan));
    CHECK(!berth_plan_draws(it.plan));
    test_plan_close(&it);
}
