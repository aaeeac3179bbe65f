// SPDX-License-Identifier: Apache-2.0
// ssd: Mamba-2's recurrence over the tokens of each sequence. A head has one decay per token and a
// state of head size by n.
//
//   x                  [tokens, heads, p]   f32, f16 or bf16
//   dt                 [tokens, heads]      x's dtype
//   A                  [heads]              any float dtype, usually below 0
//   B, C               [tokens, groups, n]  x's dtype; [tokens, n] for one group
//   D                  [heads]              optional: adds D · x
//   dt_bias            [heads]              optional
//   initial_states     [s, heads, p, n]     optional, beside cu_seqlens only; otherwise zeros
//   cu_seqlens         [s + 1]              optional: where the sequences begin
//   y                  like x
//   final_states       [s, heads, p, n] f32, an output where cu_seqlens is given
//   state ssm_states   [slots, heads, p, n], any float dtype, used where cu_seqlens is not given:
//                      then the sequences are those of the batch, see kernels/sequences.h
//
// With d = max(dt + dt_bias, 0), through softplus when `dt_softplus`, and then between the two
// numbers of `dt_limit` where there are such:
//   M ← exp(d · A) · M + d · x ⊗ B;   y = M · C + D · x
// Head i reads group i / (heads / groups). `chunk_size` is for kernels that work in chunks; the
// result does not depend on it.
// All in f32, token by token, one rounding of y: vLLM's mamba_chunk_scan_fwd_cpu. Its GPU kernel
// works in chunks and rounds operands inside them.
#include <berth/op.h>

#include <matrices.h>
#include <recurrence.h>

#include "sequence_rules.h"

enum { X, DT, A, B, C, D, DT_BIAS, INITIAL_STATES, CU_SEQLENS };
enum { DT_SOFTPLUS, CHUNK_SIZE, DT_LIMIT };

// ---- shape rule ---------------------------------------------------------------------------------

static berth_status check_selector(const berth_op_site *site, uint64_t input) {
    const berth_value_type *type = site->inputs[input];
    const int64_t heads = site->inputs[X]->dims[1].b;
    BERTH_RULE_TRY(berth_rule_same_dtype(site, input, X));
    BERTH_RULE_TRY(berth_rule_width(site, input));
    BERTH_RULE_TRY(berth_rule_rank(site, input, type->ndim == 2 ? 2 : 3));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 0, site->inputs[X]->dims[0]));
    BERTH_RULE_TRY(berth_rule_constant(site, input, 1));
    return type->ndim == 2 || heads % type->dims[1].b == 0
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, input, "must have a number of groups that divides %lld",
                                 (long long)heads);
}

static berth_status check_limit(const berth_op_site *site) {
    const berth_attribute *limit = site->attributes[DT_LIMIT];
    return limit->kind == BERTH_ATTRIBUTE_NONE ||
                   (limit->count == 2 && limit->f64s[0] >= 0 && limit->f64s[0] <= limit->f64s[1])
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, DT_LIMIT,
                                      "must be two numbers, neither negative nor falling, has %llu",
                                      (unsigned long long)limit->count);
}

// initial_states, and final_states where there are such.
static berth_status infer_states(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *x = site->inputs[X];
    const berth_value_type *starts = site->inputs[CU_SEQLENS];
    BERTH_RULE_TRY(berth_rule_starts(site, CU_SEQLENS));
    if (!starts) {
        return site->inputs[INITIAL_STATES]
                   ? BERTH_RULE_FAIL(site, INITIAL_STATES, "must stand beside 'cu_seqlens'")
                   : BERTH_OK;
    }
    const berth_dim count = BERTH_DIM_CONST(starts->dims[0].b - 1);
    const berth_dim width = berth_last_dim(site->inputs[B]);
    BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, INITIAL_STATES, count, x->dims[1], x->dims[2], width));
    berth_value_type *final = berth_rule_give(out, x);
    *final = (berth_value_type){
        .size = final->size,
        .dtype = BERTH_DTYPE_F32,
        .ndim = 4,
        .dims = {count, x->dims[1], x->dims[2], width},
    };
    return BERTH_OK;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *x = site->inputs[X];
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_rank(site, X, 3));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(berth_rule_constant(site, X, 1));
    BERTH_RULE_TRY(berth_rule_same_dtype(site, DT, X));
    BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, DT, x->dims[0], x->dims[1]));
    BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, A, x->dims[1]));
    BERTH_RULE_TRY(check_selector(site, B));
    BERTH_RULE_TRY(check_selector(site, C));
    BERTH_RULE_TRY(berth_rule_same_shape(site, C, B));
    BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, D, x->dims[1]));
    BERTH_RULE_TRY(BERTH_RULE_SHAPE(site, DT_BIAS, x->dims[1]));
    if (site->attributes[CHUNK_SIZE]->i64 < 1) {
        return BERTH_RULE_ATTRIBUTE(site, CHUNK_SIZE, "must be at least 1, is %lld",
                                    (long long)site->attributes[CHUNK_SIZE]->i64);
    }
    BERTH_RULE_TRY(check_limit(site));
    berth_rule_give(out, x);
    return infer_states(site, out);
}

// ---- reference ----------------------------------------------------------------------------------

typedef struct head {
    const berth_op_args *args;
    int64_t index;
    int64_t heads;
    int64_t group;
    int64_t groups;
    int64_t size;  // p
    int64_t width; // n
    int is_softplus;
    berth_step_range steps;
} head;

static float per_head(const head *self, uint64_t input) {
    const berth_tensor *x = self->args->inputs[input];
    return x ? berth_load_at(berth_data(x), x->dtype, self->index) : 0;
}

// One token: renews M [p, n], writes the head's row of y.
static void step(const head *self, int64_t token, float *m) {
    const berth_op_args *args = self->args;
    const berth_dtype dtype = args->inputs[X]->dtype;
    const void *x = berth_row(args->inputs[X], token * self->heads + self->index);
    const void *b = berth_row(args->inputs[B], token * self->groups + self->group);
    const void *c = berth_row(args->inputs[C], token * self->groups + self->group);
    void *y = berth_row(args->outputs[0], token * self->heads + self->index);
    float delta = berth_load_at(berth_row(args->inputs[DT], token), dtype, self->index);
    delta += per_head(self, DT_BIAS);
    delta = berth_step_within(self->steps, self->is_softplus ? berth_softplus(delta) : delta);
    const float kept = expf(delta * per_head(self, A));
    for (int64_t i = 0; i < self->size; ++i) {
        const float value = berth_load_at(x, dtype, i);
        float sum = 0;
        for (int64_t j = 0; j < self->width; ++j) {
            float *at = &m[i * self->width + j];
            *at = kept * *at + delta * value * berth_load_at(b, dtype, j);
            sum += *at * berth_load_at(c, dtype, j);
        }
        berth_store_at(y, dtype, i, sum + per_head(self, D) * value);
    }
}

// The state of a head of a sequence in `from`, slot by slot; zeros where there is none.
static void load_state(const head *self, const berth_tensor *from, int64_t slot, float *m) {
    const int64_t first = (slot * self->heads + self->index) * self->size;
    for (int64_t i = 0; i < self->size; ++i) {
        float *row = m + i * self->width;
        if (from) {
            berth_load(berth_row(from, first + i), from->dtype, 0, self->width, row);
        } else {
            memset(row, 0, (size_t)self->width * sizeof *row);
        }
    }
}

static void store_state(const head *self, const berth_tensor *to, int64_t slot, const float *m) {
    const int64_t first = (slot * self->heads + self->index) * self->size;
    for (int64_t i = 0; i < self->size; ++i) {
        berth_store(berth_row(to, first + i), to->dtype, 0, self->width, m + i * self->width);
    }
}

static void scan(const head *self, const berth_sequence *sequence, int64_t index, float *m) {
    const berth_op_args *args = self->args;
    const berth_matrices its = berth_matrices_of(args, args->inputs[CU_SEQLENS],
                                                 args->inputs[INITIAL_STATES], sequence, index);
    load_state(self, its.from, its.slot, m);
    for (int64_t token = sequence->first; token < sequence->end; ++token) {
        step(self, token, m);
    }
    store_state(self, its.to, its.slot, m);
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)(berth_last_dim(site->inputs[X]).b * berth_last_dim(site->inputs[B]).b) *
           sizeof(float);
}

static berth_status begin(const berth_op_site *site, const berth_op_args *args,
                          berth_sequences *out) {
    const berth_tensor *x = args->inputs[X];
    *out = (berth_sequences){
        .host = site->host,
        .op = "ssd",
        .cache_group = site->cache_group,
        .starts = args->inputs[CU_SEQLENS],
    };
    return BERTH_MATRICES_OPEN(out, args, x->shape[0], x->shape[1], x->shape[2],
                               berth_row_length(args->inputs[B]));
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *b = args->inputs[B];
    berth_sequences sequences;
    BERTH_RULE_TRY(begin(site, args, &sequences));
    head at = {
        .args = args,
        .heads = x->shape[1],
        .groups = b->ndim == 3 ? b->shape[1] : 1,
        .size = x->shape[2],
        .width = berth_row_length(b),
        .is_softplus = site->attributes[DT_SOFTPLUS]->i64 != 0,
        .steps = berth_step_range_of(site),
    };
    for (int64_t i = 0; i < sequences.count; ++i) {
        const berth_sequence sequence = berth_sequence_at(&sequences, i);
        const int is_there = berth_matrices_has(args->inputs[CU_SEQLENS], &sequence);
        for (at.index = 0; at.index < at.heads && is_there; ++at.index) {
            at.group = at.index / (at.heads / at.groups);
            scan(&at, &sequence, i, berth_data(args->workspace));
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {BERTH_STRIDED_INPUT("x"),
                                                  BERTH_STRIDED_INPUT("dt"),
                                                  BERTH_INPUT("A"),
                                                  BERTH_STRIDED_INPUT("B"),
                                                  BERTH_STRIDED_INPUT("C"),
                                                  BERTH_OPTIONAL_INPUT("D"),
                                                  BERTH_OPTIONAL_INPUT("dt_bias"),
                                                  BERTH_OPTIONAL_INPUT("initial_states"),
                                                  BERTH_OPTIONAL_INPUT("cu_seqlens")};
static const berth_op_argument *const states[] = {BERTH_OPTIONAL_INPUT("ssm_states")};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("dt_softplus", BERTH_ATTRIBUTE_BOOL, .i64 = 0),
    BERTH_OPTIONAL_ATTRIBUTE("chunk_size", BERTH_ATTRIBUTE_I64, .i64 = 256),
    BERTH_LATER_ATTRIBUTE("dt_limit", BERTH_ATTRIBUTE_F64S, 2),
};

const berth_op berth_op_ssd = {
    .size = sizeof(berth_op),
    .name = "ssd",
    .class_name = "SSD",
    .revision = 2,
    .compatible_revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .states = states,
    .state_count = sizeof states / sizeof states[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = workspace,
};
