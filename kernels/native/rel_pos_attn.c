// SPDX-License-Identifier: Apache-2.0
// rel_pos_attn: the core of RelPosAttention. Every pixel of an image sees all pixels; to a score
// comes what the query says about how far the key is away, by rows and by columns.
//
//   qkv        [images, h, w, 3 · dim]  f32, f16 or bf16: queries, keys, values of all heads
//   rel_pos_h  [a, d]                   optional, with rel_pos_w [b, d]: one row per distance
//   y          [images, h, w, dim]      qkv's dtype
//
// With `num_heads` heads of d = dim / num_heads: score = query · key / √d + bias, the bias being
//   query[i, j] · rel_pos_h[i − k + h − 1] + query[i, j] · rel_pos_w[j − l + w − 1]
// for the key at (k, l), the query not scaled. A table that has not 2 · size − 1 rows is stretched
// to that many, linearly, in f32, and rounded to its dtype again.
// Each half of the bias is rounded to qkv's dtype, and their sum; all else in f32 with one
// rounding: vLLM's RelPosAttention.
#include <berth/op.h>

#include "sequence_rules.h"
#include "softmax_sum.h"

enum { QKV, REL_POS_H, REL_POS_W };
enum { NUM_HEADS };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const int64_t heads = site->attributes[NUM_HEADS]->i64;
    BERTH_RULE_TRY(berth_rule_float(site, QKV));
    BERTH_RULE_TRY(berth_rule_rank(site, QKV, 4));
    BERTH_RULE_TRY(berth_rule_width(site, QKV));
    for (uint32_t dim = 1; dim <= 2; ++dim) {
        BERTH_RULE_TRY(berth_rule_constant(site, QKV, dim));
    }
    const int64_t width = berth_last_dim(site->inputs[QKV]).b;
    if (width % 3 != 0) {
        return BERTH_RULE_FAIL(site, QKV,
                               "must have three parts in its last dimension, has %lld "
                               "columns",
                               (long long)width);
    }
    if (heads < 1 || width / 3 % heads != 0) {
        return BERTH_RULE_ATTRIBUTE(site, NUM_HEADS, "must divide %lld, is %lld",
                                    (long long)(width / 3), (long long)heads);
    }
    for (uint64_t input = REL_POS_H; input <= REL_POS_W; ++input) {
        BERTH_RULE_TRY(berth_rule_float(site, input));
        BERTH_RULE_TRY(berth_rule_rank(site, input, 2));
        if (site->inputs[input]) {
            BERTH_RULE_TRY(berth_rule_constant(site, input, 0));
        }
        BERTH_RULE_TRY(berth_rule_dim(site, input, 1, BERTH_DIM_CONST(width / 3 / heads)));
    }
    if (!site->inputs[REL_POS_H] != !site->inputs[REL_POS_W]) {
        return BERTH_RULE_FAIL(site, REL_POS_W, "must be there when 'rel_pos_h' is, and only then");
    }
    berth_rule_give(out, site->inputs[QKV])->dims[3] = BERTH_DIM_CONST(width / 3);
    return BERTH_OK;
}

// One head of one image.
typedef struct head {
    const berth_op_args *args;
    int64_t first; // row of the image's first pixel
    int64_t rows;  // h
    int64_t columns;
    int64_t offset; // of the head in a part
    int64_t dim;
    int64_t width; // d
} head;

// The head's elements of part 0, 1, 2: query, key, value.
static const void *part(const head *self, int64_t pixel, int64_t index) {
    const berth_tensor *qkv = self->args->inputs[QKV];
    const int64_t column = index * self->dim + self->offset;
    return (const char *)berth_row(qkv, self->first + pixel) +
           column * (BERTH_DTYPE_BITS(qkv->dtype) / 8);
}

// Element i of the row for a distance in a table that is stretched to `count` rows.
static float table_at(const berth_tensor *table, int64_t distance, int64_t count, int64_t i) {
    const int64_t rows = table->shape[0];
    if (rows == count) {
        return berth_load_at(berth_row(table, distance), table->dtype, i);
    }
    const float place = ((float)distance + 0.5f) * ((float)rows / (float)count) - 0.5f;
    const float clamped = place > 0 ? place : 0;
    const int64_t below = (int64_t)clamped;
    const int64_t above = below + 1 < rows ? below + 1 : rows - 1;
    const float share = clamped - (float)below;
    const float low = berth_load_at(berth_row(table, below), table->dtype, i);
    const float high = berth_load_at(berth_row(table, above), table->dtype, i);
    return berth_round_to(table->dtype, (1 - share) * low + share * high);
}

static float half_bias(const head *self, uint64_t input, const void *query, int64_t distance,
                       int64_t size) {
    const berth_tensor *table = self->args->inputs[input];
    const berth_dtype dtype = self->args->inputs[QKV]->dtype;
    float sum = 0;
    for (int64_t i = 0; i < self->width; ++i) {
        sum +=
            berth_load_at(query, dtype, i) * table_at(table, distance + size - 1, 2 * size - 1, i);
    }
    return berth_round_to(dtype, sum);
}

static float score(const head *self, int64_t from, int64_t to) {
    const berth_dtype dtype = self->args->inputs[QKV]->dtype;
    const void *query = part(self, from, 0);
    const float product = berth_dot(query, dtype, part(self, to, 1), dtype, self->width);
    float bias = 0;
    if (self->args->inputs[REL_POS_H]) {
        bias = half_bias(self, REL_POS_H, query, from / self->columns - to / self->columns,
                         self->rows) +
               half_bias(self, REL_POS_W, query, from % self->columns - to % self->columns,
                         self->columns);
    }
    return product / sqrtf((float)self->width) + berth_round_to(dtype, bias);
}

static void attend(const head *self) {
    const berth_tensor *y = self->args->outputs[0];
    const berth_dtype dtype = y->dtype;
    const int64_t pixels = self->rows * self->columns;
    for (int64_t from = 0; from < pixels; ++from) {
        berth_softmax_sum sum = berth_softmax_begin(berth_data(self->args->workspace), self->width);
        for (int64_t to = 0; to < pixels; ++to) {
            berth_softmax_take(&sum, score(self, from, to), part(self, to, 2), dtype);
        }
        void *row =
            (char *)berth_row(y, self->first + from) + self->offset * (BERTH_DTYPE_BITS(dtype) / 8);
        berth_softmax_store(&sum, row, dtype);
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    const int64_t dim = berth_last_dim(site->inputs[QKV]).b / 3;
    return (uint64_t)(dim / site->attributes[NUM_HEADS]->i64) * sizeof(double);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *qkv = args->inputs[QKV];
    const int64_t heads = site->attributes[NUM_HEADS]->i64;
    head at = {
        .args = args,
        .rows = qkv->shape[1],
        .columns = qkv->shape[2],
        .dim = qkv->shape[3] / 3,
        .width = qkv->shape[3] / 3 / heads,
    };
    for (int64_t i = 0; i < qkv->shape[0] * heads; ++i) {
        at.first = i / heads * at.rows * at.columns;
        at.offset = i % heads * at.width;
        attend(&at);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("qkv"),
    BERTH_OPTIONAL_INPUT("rel_pos_h"),
    BERTH_OPTIONAL_INPUT("rel_pos_w"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("num_heads", BERTH_ATTRIBUTE_I64),
};

const berth_op berth_op_rel_pos_attn = {
    .size = sizeof(berth_op),
    .name = "rel_pos_attn",
    .class_name = "RelPosAttn",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = workspace,
};
