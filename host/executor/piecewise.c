// SPDX-License-Identifier: Apache-2.0
// Recorded pieces: a step of any batch, prompts among it, cut at what depends on more than the
// number of its tokens. That is whatever has states, since those ops alone look at the batch
// (attention, scans, convolutions), whatever has a row for each of the logits, and whatever cannot
// be recorded at all. The runs of steps between are recorded for some numbers of tokens,
// beforehand; a batch in between is filled up with sequences of one token that are nobody's, and
// the steps between the pieces are called as ever, on the batch as it is.
//
// Where a piece's operands lie follows from the number of tokens alone: the arrays that it may
// read, ids and positions, are the first of a batch.
#include "executor/stages.h"

// Why two: a graph of one step costs what the step does.
#define FEWEST_STEPS 2

// ---- where a plan is cut ------------------------------------------------------------------------

static bool has_rows_of_logits(const berth_value_type *const *types, uint64_t count) {
    bool has = false;
    for (uint64_t i = 0; i < count; ++i) {
        for (uint32_t dim = 0; types[i] != NULL && dim < types[i]->ndim; ++dim) {
            has = has || types[i]->dims[dim].symbol == BERTH_SYMBOL_SEQUENCES;
        }
    }
    return has;
}

static bool is_by_tokens(const berth_step_note *note) {
    if (!berth_step_is_recordable(note) || note->has_states ||
        note->binding->op->op.state_count > 0) {
        return false;
    }
    const berth_op_site *site = &note->binding->site;
    return !has_rows_of_logits(site->inputs, site->input_count) &&
           !has_rows_of_logits(site->outputs, site->output_count);
}

static berth_status find_pieces(berth_plan *plan) {
    uint32_t first = 0;
    for (uint32_t i = 0; i <= plan->steps.count; ++i) {
        if (i < plan->steps.count && is_by_tokens(&plan->step_notes.data[i])) {
            continue;
        }
        if (i - first >= FEWEST_STEPS) {
            BERTH_TRY(berth_array_push(&plan->pieces, (berth_piece){.first = first, .end = i}));
        }
        first = i + 1;
    }
    return BERTH_OK;
}

// ---- numbers of tokens --------------------------------------------------------------------------

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// Of each of the sequences that a number of tokens is recorded with, but the last.
static int64_t length_of(const berth_plan *plan, int64_t tokens) {
    return smaller(tokens, plan->request.max_seq_len);
}

static int64_t sequences_of(const berth_plan *plan, int64_t tokens) {
    const int64_t length = length_of(plan, tokens);
    return (tokens + length - 1) / length;
}

static berth_status choose_numbers(berth_plan *plan) {
    berth_capture_sizes given;
    BERTH_TRY(berth_config_capture_sizes(plan->request.config, plan->arena, &given));
    plan->piecewise = BERTH_ARENA_ARRAY(plan->arena, berth_piecewise, given.count);
    if (plan->piecewise == NULL) {
        return berth_arena_exhausted(plan->arena, "recorded pieces");
    }
    for (size_t i = 0; i < given.count; ++i) {
        berth_piecewise *next = &plan->piecewise[plan->piecewise_count];
        if (given.sizes[i] > plan->request.max_tokens ||
            sequences_of(plan, given.sizes[i]) > plan->most_sequences) {
            break;
        }
        next->tokens = given.sizes[i];
        next->graphs = BERTH_ARENA_ARRAY(plan->arena, void *, plan->pieces.count);
        if (next->graphs == NULL) {
            return berth_arena_exhausted(plan->arena, "recorded pieces");
        }
        ++plan->piecewise_count;
    }
    return BERTH_OK;
}

berth_status berth_piecewise_create(berth_plan *plan) {
    if (plan->is_host || !berth_config_records_pieces(plan->request.config) ||
        !berth_runtime_records(plan->runtime) || !berth_plan_can_be_filled_up(plan)) {
        return BERTH_OK;
    }
    BERTH_TRY(find_pieces(plan));
    return plan->pieces.count > 0 ? choose_numbers(plan) : BERTH_OK;
}

const berth_piecewise *berth_piecewise_find(const berth_plan *plan, const berth_batch *batch) {
    size_t at = 0;
    while (at < plan->piecewise_count && plan->piecewise[at].tokens < batch->token_count) {
        ++at;
    }
    if (at == plan->piecewise_count || !plan->piecewise[at].is_there) {
        return NULL;
    }
    const int64_t padding = plan->piecewise[at].tokens - batch->token_count;
    return batch->sequence_count <= plan->most_sequences &&
                   batch->sequence_count + padding <= plan->request.max_sequences
               ? &plan->piecewise[at]
               : NULL;
}

void berth_piecewise_drop(berth_plan *plan) {
    for (size_t i = 0; i < plan->piecewise_count; ++i) {
        for (size_t k = 0; k < plan->pieces.count; ++k) {
            berth_runtime_free_graph(plan->runtime, plan->piecewise[i].graphs[k]);
            plan->piecewise[i].graphs[k] = NULL;
        }
        plan->piecewise[i].is_there = false;
    }
}

size_t berth_plan_pieces(const berth_plan *plan) {
    size_t count = 0;
    for (size_t i = 0; i < plan->piecewise_count; ++i) {
        count += plan->piecewise[i].is_there ? plan->pieces.count : 0;
    }
    return count;
}

// ---- running ------------------------------------------------------------------------------------

// The first active step from `at` on that is not before `step` of the plan.
static size_t skip(const berth_plan *plan, size_t at, uint32_t step) {
    while (at < plan->active_count &&
           plan->active_notes[at] - plan->step_notes.data < (ptrdiff_t)step) {
        ++at;
    }
    return at;
}

berth_status berth_piecewise_run(const berth_plan *plan, const berth_piecewise *recorded) {
    size_t at = 0;
    for (size_t i = 0; i < plan->pieces.count; ++i) {
        const size_t begin = skip(plan, at, plan->pieces.data[i].first);
        BERTH_TRY(berth_steps_run(plan, at, begin - at));
        BERTH_TRY(berth_runtime_replay(plan->runtime, recorded->graphs[i]));
        at = skip(plan, begin, plan->pieces.data[i].end);
    }
    return berth_steps_run(plan, at, plan->active_count - at);
}

// ---- recording ----------------------------------------------------------------------------------

enum {
    TOKEN_IDS,
    POSITIONS,
    STARTS,
    LENGTHS,
    ROWS,
    MAPPING,
    TABLES,
    ARRAYS = TABLES + BERTH_CACHE_GROUPS_MAX
};

// Sequences of nobody's, of the first tokens of a prompt, that read the null block and are stored
// nowhere.
typedef struct prompt_batch {
    int32_t *zeros; // [tokens]
    int32_t *positions;
    int32_t *starts; // [sequences + 1]
    int32_t *lengths;
    int64_t *slots; // [tokens], -1
    int64_t shapes[ARRAYS][2];
    int64_t strides[ARRAYS][2];
    berth_tensor arrays[ARRAYS];
    const berth_tensor *tables[BERTH_CACHE_GROUPS_MAX];
    const berth_tensor *mappings[BERTH_CACHE_GROUPS_MAX];
    berth_batch_view view;
    berth_batch batch;
} prompt_batch;

static berth_status open_prompts(berth_plan *plan, int64_t most, prompt_batch *it) {
    const size_t tokens = (size_t)most;
    it->zeros = BERTH_ARENA_ARRAY(plan->arena, int32_t, tokens);
    it->positions = BERTH_ARENA_ARRAY(plan->arena, int32_t, tokens);
    it->starts = BERTH_ARENA_ARRAY(plan->arena, int32_t, tokens + 1);
    it->lengths = BERTH_ARENA_ARRAY(plan->arena, int32_t, tokens);
    it->slots = BERTH_ARENA_ARRAY(plan->arena, int64_t, tokens);
    if (it->zeros == NULL || it->positions == NULL || it->starts == NULL || it->lengths == NULL ||
        it->slots == NULL) {
        return berth_arena_exhausted(plan->arena, "a step to record");
    }
    for (size_t i = 0; i < tokens; ++i) {
        it->slots[i] = -1;
    }
    return BERTH_OK;
}

static void describe(prompt_batch *it, int which, void *data, int64_t count) {
    it->shapes[which][0] = count;
    it->strides[which][0] = 1;
    it->strides[which][1] = 1;
    it->arrays[which] = (berth_tensor){
        .size = sizeof(berth_tensor),
        .data = data,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = 1,
        .dtype = which == MAPPING ? BERTH_DTYPE_I64 : BERTH_DTYPE_I32,
        .shape = it->shapes[which],
        .strides = it->strides[which],
    };
}

// Why one row for all tables: they are zeros.
static void describe_table(const berth_plan *plan, prompt_batch *it, size_t group, int64_t rows,
                           int64_t columns) {
    const int which = TABLES + (int)group;
    const int64_t widest =
        group < plan->device_batch.group_count
            ? (int64_t)(plan->device_batch.capacities[BERTH_BATCH_ARRAYS + group] /
                        sizeof(int32_t)) /
                  plan->request.max_sequences
            : 1;
    describe(it, which, it->zeros, rows);
    it->arrays[which].ndim = 2;
    it->shapes[which][1] = smaller(columns, widest);
    it->strides[which][0] = 0;
    it->tables[group] = &it->arrays[which];
    it->mappings[group] = &it->arrays[MAPPING];
}

static void describe_all(const berth_plan *plan, prompt_batch *it, int64_t tokens,
                         int64_t sequences) {
    describe(it, TOKEN_IDS, it->zeros, tokens);
    describe(it, POSITIONS, it->positions, tokens);
    describe(it, STARTS, it->starts, sequences + 1);
    describe(it, LENGTHS, it->lengths, sequences);
    describe(it, ROWS, it->zeros, 0);
    describe(it, MAPPING, it->slots, tokens);
    for (size_t i = 0; i < BERTH_CACHE_GROUPS_MAX; ++i) {
        describe_table(plan, it, i, sequences, length_of(plan, tokens));
    }
}

static void fill_prompts(const berth_plan *plan, int64_t tokens, prompt_batch *it) {
    const int64_t length = length_of(plan, tokens);
    const int64_t sequences = sequences_of(plan, tokens);
    for (int64_t i = 0; i < tokens; ++i) {
        it->positions[i] = (int32_t)(i % length);
    }
    for (int64_t i = 0; i < sequences; ++i) {
        it->starts[i] = (int32_t)(i * length);
        it->lengths[i] = (int32_t)smaller(length, tokens - i * length);
    }
    it->starts[sequences] = (int32_t)tokens;
    describe_all(plan, it, tokens, sequences);
    it->view = (berth_batch_view){
        .size = sizeof it->view,
        .token_ids = &it->arrays[TOKEN_IDS],
        .positions = &it->arrays[POSITIONS],
        .query_start_loc = &it->arrays[STARTS],
        .seq_lens = &it->arrays[LENGTHS],
        .logits_rows = &it->arrays[ROWS],
        .block_tables = it->tables,
        .slot_mappings = it->mappings,
    };
    it->batch = (berth_batch){
        .size = sizeof it->batch,
        .host = &it->view,
        .token_count = tokens,
        .sequence_count = sequences,
        .group_count = BERTH_CACHE_GROUPS_MAX,
        .max_query_len = length,
        .max_seq_len = length,
    };
}

// Run once, for what is made at the first call, then recorded piece by piece.
static berth_status record_number(berth_plan *plan, berth_piecewise *number, prompt_batch *with) {
    fill_prompts(plan, number->tokens, with);
    BERTH_TRY(berth_batch_begin(plan, &with->batch, (berth_padding){0, 0}));
    BERTH_TRY(berth_steps_run(plan, 0, plan->active_count));
    for (size_t i = 0; i < plan->pieces.count; ++i) {
        const size_t begin = skip(plan, 0, plan->pieces.data[i].first);
        const size_t end = skip(plan, begin, plan->pieces.data[i].end);
        BERTH_TRY(berth_steps_record(plan, begin, end - begin, &number->graphs[i]));
    }
    number->is_there = true;
    return BERTH_OK;
}

berth_status berth_piecewise_record(berth_plan *plan) {
    prompt_batch with = {0};
    if (plan->piecewise_count == 0) {
        return BERTH_OK;
    }
    BERTH_TRY(open_prompts(plan, plan->piecewise[plan->piecewise_count - 1].tokens, &with));
    for (size_t i = plan->piecewise_count; i-- > 0;) {
        BERTH_TRY_NOTE(
            record_number(plan, &plan->piecewise[i], &with),
            "recording the pieces of a step of %lld tokens; --enforce-eager goes without",
            (long long)plan->piecewise[i].tokens);
    }
    return berth_runtime_wait(plan->runtime);
}
