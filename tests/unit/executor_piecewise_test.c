// SPDX-License-Identifier: Apache-2.0
// Recorded pieces: steps of any batch are cut at attention and at the rows of logits, what lies
// between is recorded for some numbers of tokens and replayed, and the results are those of a step
// that is not, bit for bit.
#include "base/array.h"
#include "support/test.h"
#include "support/test_plan.h"

// Two pieces, of two steps and of three; the scale behind the second attention is alone.
static const char *const graph =
    "graph \"pieces\" {\n"
    "  %1 = input token_ids : i32[s0]\n"
    "  %2 = parameter \"embed\" : f32[16, 8]\n"
    "  %3 = embedding(%1, %2) @\"embed\" : f32[s0, 8]\n"
    "  %4 = scale(%3) {factor = 2.0} : f32[s0, 8]\n"
    "  %5 = reshape %4 : f32[s0, 2, 4]\n"
    "  %6 = state \"one\" 0 : f32[4, 2, 4]\n"
    "  %7 = state \"one\" 1 : f32[4, 2, 4]\n"
    "  %8, %9', %10' = paged_attention(%5, %5, %5; %6, %7) {scale = 0.5} @\"one\" : f32[s0, 2, "
    "4]\n"
    "  %11 = reshape %8 : f32[s0, 8]\n"
    "  %12 = add(%11, %4) : f32[s0, 8]\n"
    "  %13 = norm(%12) {eps = 0.1} : f32[s0, 8]\n"
    "  %14 = parameter \"inner\" : f32[8, 8]\n"
    "  %15 = linear(%13, %14) : f32[s0, 8]\n"
    "  %16 = reshape %15 : f32[s0, 2, 4]\n"
    "  %17 = state \"two\" 0 : f32[4, 2, 4]\n"
    "  %18 = state \"two\" 1 : f32[4, 2, 4]\n"
    "  %19, %20', %21' = paged_attention(%16, %16, %16; %17, %18) {scale = 0.5} @\"two\" : f32[s0, "
    "2, 4]\n"
    "  %22 = reshape %19 : f32[s0, 8]\n"
    "  %23 = scale(%22) {factor = 0.5} : f32[s0, 8]\n"
    "  %24 = input logits_rows : i32[s1]\n"
    "  %25 = select_rows(%23, %24) : f32[s1, 8]\n"
    "  %26 = linear(%25, %2) : f32[s1, 16]\n"
    "  output logits = %26\n"
    "}\n";

#define MOST    5 // sequences
#define PIECES  2
#define NUMBERS 3 // of tokens: 2, 4, 8

static void open_graph(test_plan *it, const berth_op_impl *impls, size_t count, int32_t mode) {
    const test_content content = {.impls = impls, .impl_count = count};
    test_plan_open(it, &content, "fake-recording");
    test_plan_parse(it, graph);
    test_plan_cache(it, "one", 2, 4);
    test_plan_cache(it, "two", 2, 4);
    it->config.allow_fallback = true;
    it->config.max_num_seqs = MOST;
    it->config.capture_mode = mode;
    test_plan_list(it, &it->config.capture_sizes, "2,4,8");
}

static void open_with(test_plan *it, const berth_op_impl *impls, size_t count) {
    open_graph(it, impls, count, BERTH_CAPTURE_FULL_AND_PIECEWISE);
    CHECK_OK(test_plan_create(it));
    test_plan_load(it);
}

static void open_plan(test_plan *it) {
    open_with(it, test_device_impls, TEST_DEVICE_IMPLS);
    CHECK_OK(berth_plan_record(it->plan));
}

static const berth_runtime_counters *counted(const test_plan *it) {
    return berth_runtime_counted(it->runtime);
}

// New tokens of some sequences, and what each has before them.
typedef struct mixture {
    int count;
    int fresh[MOST];
    int before[MOST];
} mixture;

// How often that step replays something.
static uint64_t run(test_plan *it, const mixture *mixed, int rows) {
    int lengths[MOST];
    test_batch batch;
    for (int i = 0; i < mixed->count; ++i) {
        lengths[i] = mixed->fresh[i] + mixed->before[i];
    }
    const uint64_t before = counted(it)->replays;
    test_batch_fill(&batch, mixed->fresh, lengths, mixed->count, rows);
    test_plan_check(it, &batch);
    return counted(it)->replays - before;
}

// What has gone before is in the cache: each sequence grows from nothing.
static const mixture grown[] = {
    {2, {3, 5},          {0, 0}          }, // 8 tokens, as recorded
    {3, {1, 1, 1},       {3, 5, 0}       }, // a first token beside two that decode
    {3, {1, 2, 3},       {4, 6, 1}       }, // 6 of 8
    {1, {2},             {5}             }, // 2, as recorded
    {4, {1, 1, 1, 4},    {7, 8, 4, 0}    }, // 7 of 8
    {1, {3},             {8}             }, // 3 of 4
    {5, {1, 1, 1, 1, 3}, {11, 9, 5, 4, 0}}, // as many sequences as there may be, 7 of 8
};

TEST(executor_replays_the_pieces_of_mixed_steps) {
    test_plan it;
    open_plan(&it);
    CHECK_UINT(counted(&it)->captures, NUMBERS + NUMBERS * PIECES); // and 2, 4, 5 sequences
    CHECK_UINT(berth_plan_captures(it.plan), NUMBERS);
    CHECK_UINT(berth_plan_pieces(it.plan), NUMBERS * PIECES);
    CHECK_UINT(counted(&it)->replays, 0);
    for (size_t i = 0; i < BERTH_COUNT(grown); ++i) {
        const berth_tensor *logits = NULL;
        // The second step decodes one token of each: it is recorded whole.
        CHECK_UINT(run(&it, &grown[i], grown[i].count), i == 1 ? 1 : PIECES);
        CHECK_OK(berth_plan_output(it.plan, "logits", &logits));
        CHECK_INT(logits->shape[0], grown[i].count);
    }
    CHECK_UINT(counted(&it)->captures, NUMBERS + NUMBERS * PIECES);
    test_plan_close(&it);
}

TEST(executor_runs_more_tokens_than_are_recorded_as_ever) {
    static const mixture many = {
        2, {5, 4},
         {0, 0}
    };
    static const mixture few = {
        2, {5, 2},
         {0, 0}
    };
    test_plan it;
    open_plan(&it);
    CHECK_UINT(run(&it, &many, 2), 0);
    CHECK_UINT(run(&it, &few, 2), PIECES);
    CHECK_UINT(run(&it, &few, 0), PIECES); // a prompt that is not whole yet has no rows
    CHECK_UINT(run(&it, &few, 1), PIECES);
    CHECK_UINT(run(&it, &many, 1), 0);
    test_plan_close(&it);
}

TEST(executor_sends_one_copy_and_waits_once_in_a_step_of_pieces) {
    static const mixture mixed = {
        3, {3, 1, 2},
         {0, 0, 0}
    };
    test_plan it;
    open_plan(&it);
    (void)run(&it, &mixed, 3);
    const berth_runtime_counters before = *counted(&it);
    CHECK_UINT(run(&it, &mixed, 3), PIECES);
    CHECK_UINT(counted(&it)->to_device - before.to_device, 1);
    CHECK_UINT(counted(&it)->to_host - before.to_host, 1);
    CHECK_UINT(counted(&it)->waits - before.waits, 0); // beside that of the download
    test_plan_close(&it);
}

TEST(executor_leaves_the_cache_of_others_alone_when_it_fills_up_pieces) {
    enum { CACHE = TEST_MAX_BLOCKS * TEST_BLOCK_SIZE * 8, BLOCK = TEST_BLOCK_SIZE * 8 };
    static const mixture mixed = {1, {3}, {0}};
    float before[CACHE];
    float after[CACHE];
    test_plan it;
    open_plan(&it);
    CHECK_OK(berth_plan_read_state(it.plan, "two", 0, before, sizeof before));
    CHECK_UINT(run(&it, &mixed, 1), PIECES);
    CHECK_OK(berth_plan_read_state(it.plan, "two", 0, after, sizeof after));
    CHECK_BYTES(after, before, BLOCK * sizeof(float)); // the null block
    CHECK(after[BLOCK] != before[BLOCK] && after[BLOCK + 23] != before[BLOCK + 23]);
    CHECK_BYTES(after + BLOCK + 24, before + BLOCK + 24, (CACHE - BLOCK - 24) * sizeof(float));
    test_plan_close(&it);
}

// The room for what steps are filled up with is nobody else's.
TEST(executor_takes_no_more_sequences_than_were_asked_for) {
    const int fresh[MOST] = {1, 1, 1, 1, 3};
    test_batch batch;
    test_plan it;
    open_plan(&it);
    test_batch_fill(&batch, fresh, fresh, MOST, MOST);
    batch.batch.sequence_count = TEST_MAX_SEQUENCES + 1;
    CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "the plan is for at most 6");
    CHECK_UINT(counted(&it)->replays, 0);
    test_plan_close(&it);
}

// What has no kernel is one more place to cut at; then nothing is recorded whole.
TEST(executor_cuts_at_what_runs_on_the_host) {
    test_plan it;
    static const mixture decode = {
        2, {1, 1},
         {0, 0}
    };
    static const mixture mixed = {
        2, {1, 4},
         {1, 1}
    };
    open_with(&it, test_device_impls + 1, TEST_DEVICE_IMPLS - 1); // all but norm
    CHECK_OK(berth_plan_record(it.plan));
    CHECK_UINT(berth_plan_captures(it.plan), 0);
    CHECK_UINT(berth_plan_pieces(it.plan), NUMBERS);
    CHECK_UINT(run(&it, &decode, 2), 1);
    CHECK_UINT(run(&it, &mixed, 2), 1);
    test_plan_close(&it);
}

// What is recorded of which steps, for each mode of the configuration.
typedef struct mode_case {
    const char *name;
    int32_t mode;
    bool is_eager;
    size_t whole;
    size_t pieces;
    uint64_t decode; // replays of a step that decodes
    uint64_t mixed;
} mode_case;

static mode_case mode_cases[] = {
    {
     .name = "executor_records_decode_steps_only_by_default",
     .whole = NUMBERS,
     .decode = 1,
     },
    {
     .name = "executor_records_both_when_asked_for",
     .mode = BERTH_CAPTURE_FULL_AND_PIECEWISE,
     .whole = NUMBERS,
     .pieces = NUMBERS * PIECES,
     .decode = 1,
     .mixed = PIECES,
     },
    {
     .name = "executor_records_decode_steps_in_pieces_too",
     .mode = BERTH_CAPTURE_PIECEWISE,
     .pieces = NUMBERS * PIECES,
     .decode = PIECES,
     .mixed = PIECES,
     },
    {
     .name = "executor_records_nothing_where_the_mode_is_none",
     .mode = BERTH_CAPTURE_NONE,
     },
    {
     .name = "executor_records_no_pieces_where_steps_are_eager",
     .mode = BERTH_CAPTURE_FULL_AND_PIECEWISE,
     .is_eager = true,
     },
};

static void check_mode_case(void **state) {
    static const mixture decode = {
        3, {1, 1, 1},
         {0, 0, 0}
    };
    static const mixture mixed = {
        3, {1, 4, 1},
         {1, 1, 1}
    };
    const mode_case *wanted = *state;
    test_plan it;
    open_graph(&it, test_device_impls, TEST_DEVICE_IMPLS, wanted->mode);
    it.config.enforce_eager = wanted->is_eager;
    CHECK_OK(test_plan_create(&it));
    test_plan_load(&it);
    CHECK_OK(berth_plan_record(it.plan));
    CHECK_UINT(berth_plan_captures(it.plan), wanted->whole);
    CHECK_UINT(berth_plan_pieces(it.plan), wanted->pieces);
    for (int i = 0; i < 3; ++i) {
        CHECK_UINT(run(&it, &decode, 3), wanted->decode);
        CHECK_UINT(run(&it, &mixed, 2), wanted->mixed);
    }
    CHECK_UINT(counted(&it)->captures, wanted->whole + wanted->pieces);
    test_plan_close(&it);
}

TEST_CASES(executor_records_what_the_mode_says) {
    for (size_t i = 0; i < BERTH_COUNT(mode_cases); ++i) {
        test_add(cases, mode_cases[i].name, check_mode_case, &mode_cases[i]);
    }
}

TEST(executor_records_pieces_again_for_another_cache_and_after_sleeping) {
    const berth_kv_cache_config caches = {
        .size = sizeof(caches),
        .num_blocks = TEST_MAX_BLOCKS,
        .group_count = 1,
    };
    test_plan it;
    open_plan(&it);
    CHECK_OK(berth_plan_set_cache(it.plan, &caches));
    CHECK_UINT(berth_plan_pieces(it.plan), 0);
    CHECK_UINT(run(&it, &grown[0], 2), 0);
    CHECK_OK(berth_plan_record(it.plan));
    CHECK_UINT(run(&it, &grown[0], 2), PIECES);
    CHECK_OK(berth_plan_sleep(it.plan, BERTH_SLEEP_KEEP));
    CHECK_UINT(berth_plan_pieces(it.plan), 0);
    CHECK_OK(berth_plan_wake_up(it.plan));
    CHECK_OK(berth_plan_wake_caches(it.plan));
    CHECK_UINT(run(&it, &grown[0], 2), 0);
    CHECK_OK(berth_plan_record(it.plan));
    CHECK_UINT(run(&it, &grown[0], 2), PIECES);
    test_plan_close(&it);
}

// ---- failures -----------------------------------------------------------------------------------

static int calls_left;

static berth_status fail_later(void *self, const berth_op_args *args) {
    return calls_left-- > 0 ? test_device_forward(self, args) : BERTH_UNAVAILABLE;
}

TEST(executor_keeps_no_piece_when_one_fails) {
    berth_op_impl impls[TEST_DEVICE_IMPLS];
    test_plan it;
    for (size_t i = 0; i < TEST_DEVICE_IMPLS; ++i) {
        impls[i] = test_device_impls[i];
        impls[i].forward = fail_later;
    }
    open_with(&it, impls, TEST_DEVICE_IMPLS);
    // Without rows a step has 8 calls, and 5 are recorded: run, or within either piece.
    for (int calls = 13; calls < 26; ++calls) {
        calls_left = calls;
        CHECK_STATUS(berth_plan_record(it.plan), BERTH_UNAVAILABLE);
        CHECK_CONTAINS(berth_status_message(), "recording the pieces of a step of 4 tokens; "
                                               "--enforce-eager goes without");
        CHECK_UINT(berth_plan_pieces(it.plan), 0);
    }
    calls_left = 1000;
    CHECK_OK(berth_plan_record(it.plan));
    CHECK_UINT(run(&it, &grown[0], 2), PIECES);
    test_plan_close(&it);
}
