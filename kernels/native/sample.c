// SPDX-License-Identifier: Apache-2.0
// sample: the token after each row of logits, as a request's options say, where the logits are.
// What a worker does on the host by berth_sampling (plugin-api/berth/worker.h), but for bans and
// penalties, so the text of a request does not depend on where it is drawn.
//
//   logits       [rows, n]  f32, f16 or bf16; NaN is as good as −inf
//   temperature  [rows]     f64; not above 0: the likeliest
//   top_p        [rows]     f64; off unless between 0 and 1
//   min_p        [rows]     f64
//   top_k        [rows]     i64; 0: off
//   seed         [rows]     i64, the bits of an unsigned number, as is
//   index        [rows]     i64  of the token in the request's output
//   y            [rows]     i32; −1 where no logit is finite, or the largest is not
//
// In the order of falling logits, of equal ones the lower id first, a token's weight is
// e^((logit − largest) / temperature). Of these stay what is at least min_p times as likely as the
// first, and e^−40 times in any case; of them the first top_k; of them the fewest that together
// have at least top_p of the weight. The token is the first with which the weights come to more
// than u times their sum, u being the first word of Philox4x32-10 with the key `seed` and the
// counter `index`, over 2^32. Weights and sums are f64.
#include <berth/op.h>

#include "rules.h"
#include "sampling_order.h"

#include <math.h>

enum { LOGITS, TEMPERATURE, TOP_P, MIN_P, TOP_K, SEED, INDEX, INPUT_COUNT };

#define DEPTH 40.0 // powers of e below the likeliest

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, LOGITS));
    BERTH_RULE_TRY(berth_rule_rank(site, LOGITS, 2));
    BERTH_RULE_TRY(berth_rule_width(site, LOGITS));
    for (uint64_t input = TEMPERATURE; input < INPUT_COUNT; ++input) {
        const berth_dtype wanted = input < TOP_K ? BERTH_DTYPE_F64 : BERTH_DTYPE_I64;
        if (site->inputs[input]->dtype != wanted) {
            return BERTH_RULE_FAIL(site, input, "must be %s", input < TOP_K ? "f64" : "i64");
        }
        BERTH_RULE_TRY(berth_rule_rank(site, input, 1));
        BERTH_RULE_TRY(berth_rule_dim(site, input, 0, site->inputs[LOGITS]->dims[0]));
    }
    berth_value_type *y = berth_rule_give(out, site->inputs[LOGITS]);
    y->dtype = BERTH_DTYPE_I32;
    y->ndim = 1;
    return BERTH_OK;
}

// ---- the random number --------------------------------------------------------------------------

// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, table 2.
static uint32_t first_word(uint64_t key, uint64_t counter) {
    uint32_t words[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    for (uint32_t round = 0; round < 10; ++round) {
        const uint64_t even = UINT64_C(0xD2511F53) * words[0];
        const uint64_t odd = UINT64_C(0xCD9E8D57) * words[2];
        words[0] = (uint32_t)(odd >> 32) ^ words[1] ^ ((uint32_t)key + round * 0x9E3779B9U);
        words[1] = (uint32_t)odd;
        words[2] =
            (uint32_t)(even >> 32) ^ words[3] ^ ((uint32_t)(key >> 32) + round * 0xBB67AE85U);
        words[3] = (uint32_t)even;
    }
    return words[0];
}

// ---- a row --------------------------------------------------------------------------------------

// The options of a row and what is drawn from, likeliest first.
typedef struct drawing {
    double temperature;
    double top_p;
    double min_p;
    int64_t top_k;
    uint32_t random;
    int64_t count;
    float *logits;   // [count]
    int32_t *order;  // [count], and as much room again
    double *weights; // [count], in that order
} drawing;

// How many of the first may be drawn.
static int64_t admit(const drawing *self) {
    const double largest = (double)self->logits[self->order[0]];
    const double lowest = fmin(log(fmax(self->min_p, exp(-DEPTH))), 0) * self->temperature;
    int64_t count = 0;
    while (count < self->count && !((double)self->logits[self->order[count]] - largest < lowest)) {
        ++count;
    }
    return self->top_k > 0 && self->top_k < count ? self->top_k : count;
}

// The first with which the weights come to more than the target, else the last; *out_sum: up to it.
static int64_t find(const drawing *self, int64_t count, double target, double *out_sum) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        sum += self->weights[i];
        *out_sum = sum;
        if (sum > target) {
            return i;
        }
    }
    return count - 1;
}

static int32_t draw_row(const drawing *self) {
    const float largest = self->logits[self->order[0]];
    if (!isfinite(largest) || !(self->temperature > 0)) {
        return isfinite(largest) ? self->order[0] : -1;
    }
    int64_t count = admit(self);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        const double below = (double)self->logits[self->order[i]] - (double)largest;
        self->weights[i] = exp(below / self->temperature);
        sum += self->weights[i];
    }
    if (self->top_p > 0 && self->top_p < 1) {
        // Why nextafter: a share that is reached exactly is enough.
        count = find(self, count, nextafter(self->top_p * sum, 0), &sum) + 1;
    }
    return self->order[find(self, count, (double)self->random * 0x1p-32 * sum, &sum)];
}

// ---- all rows -----------------------------------------------------------------------------------

static double option_at(const berth_op_args *args, uint64_t input, int64_t row) {
    return ((const double *)berth_data(args->inputs[input]))[row];
}
static int64_t integer_at(const berth_op_args *args, uint64_t input, int64_t row) {
    return ((const int64_t *)berth_data(args->inputs[input]))[row];
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *logits = args->inputs[LOGITS];
    const int64_t count = berth_row_length(logits);
    double *memory = berth_data(args->workspace);
    int32_t *y = berth_data(args->outputs[0]);
    for (int64_t i = 0; i < berth_row_count(logits); ++i) {
        const drawing at = {
            .temperature = option_at(args, TEMPERATURE, i),
            .top_p = option_at(args, TOP_P, i),
            .min_p = option_at(args, MIN_P, i),
            .top_k = integer_at(args, TOP_K, i),
            .random = first_word((uint64_t)integer_at(args, SEED, i),
                                 (uint64_t)integer_at(args, INDEX, i)),
            .count = count,
            .weights = memory,
            .logits = (float *)(memory + count),
            .order = (int32_t *)(void *)((float *)(memory + count) + count),
        };
        berth_load(berth_row(logits, i), logits->dtype, 0, count, at.logits);
        for (int64_t k = 0; k < count; ++k) {
            at.logits[k] = isnan(at.logits[k]) ? -INFINITY : at.logits[k];
        }
        sampling_sort(at.logits, 1, count, at.order, at.order + count);
        y[i] = draw_row(&at);
    }
    return BERTH_OK;
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)berth_last_dim(site->inputs[LOGITS]).b *
           (sizeof(double) + sizeof(float) + 2 * sizeof(int32_t));
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("logits"), BERTH_INPUT("temperature"), BERTH_INPUT("top_p"),
    BERTH_INPUT("min_p"),          BERTH_INPUT("top_k"),       BERTH_INPUT("seed"),
    BERTH_INPUT("index"),
};

const berth_op berth_op_sample = {
    .size = sizeof(berth_op),
    .name = "sample",
    .class_name = "Sample",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = workspace,
};
