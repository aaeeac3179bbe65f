// SPDX-License-Identifier: Apache-2.0
// embedding: rows of a table of the output's dtype are copied, others converted.
#include <cpu/cpu.h>
#include <cpu/simd.h>

enum { TOKEN_IDS, WEIGHT };

static int64_t id_at(const berth_op_args *args, int64_t token) {
    const berth_tensor *ids = args->inputs[TOKEN_IDS];
    return berth_integer_at(berth_data(ids), ids->dtype, token);
}

// ---- past the caches ----------------------------------------------------------------------------

// Rows of the table, what they become, and as many that come after them. Why several by turns, and
// the next ones fetched: rows stand anywhere, and the processor takes the beginning of each to see
// that there is something to foresee; one after the other is half as fast.
#define ROWS  4
#define STRIP 256 // bytes of a row by turns, a whole number of vectors

typedef struct rows {
    const char *from[ROWS];
    const char *next[ROWS];
    char *to[ROWS];
    int64_t width;
    int count;
} rows;

// `from` is constant, float32 where the table has y's dtype, whatever that is.
BERTH_INLINE void copy_strip(const rows *of, int row, berth_dtype from, int64_t first) {
    const int64_t size = (int64_t)sizeof(berth_vec);
    for (int64_t byte = first; byte < first + STRIP; byte += size) {
        BERTH_PREFETCH_FAR(of->next[row] + byte);
        if (from == BERTH_DTYPE_F32) {
            berth_vec_store_past(of->to[row] + byte, berth_vec_load(of->from[row] + byte));
        } else {
            const char *low = of->from[row] + byte;
            char *to = of->to[row] + 2 * byte;
            berth_vec_store_past(to, berth_vec_load_as(low, from, 0));
            berth_vec_store_past(to + size, berth_vec_load_as(low, from, BERTH_LANES));
        }
    }
}

// Returns how many bytes of each row it has done; the others are less than a strip.
BERTH_INLINE int64_t copy_strips(const rows *of, berth_dtype from, int64_t bytes) {
    int64_t first = 0;
    for (; first + STRIP <= bytes; first += STRIP) {
        for (int row = 0; row < of->count; ++row) {
            copy_strip(of, row, from, first);
        }
    }
    return first;
}

static void copy_rows(const rows *of, berth_dtype to, berth_dtype from) {
    const int64_t from_bytes = BERTH_DTYPE_BITS(from) / 8;
    const int64_t to_bytes = BERTH_DTYPE_BITS(to) / 8;
    const int64_t bytes = of->width * from_bytes;
    const int64_t done = (to == from                 ? copy_strips(of, BERTH_DTYPE_F32, bytes)
                          : from == BERTH_DTYPE_BF16 ? copy_strips(of, BERTH_DTYPE_BF16, bytes)
                                                     : copy_strips(of, BERTH_DTYPE_F16, bytes)) /
                         from_bytes;
    for (int row = 0; row < of->count; ++row) {
        berth_vec_copy(of->to[row] + done * to_bytes, to, of->from[row] + done * from_bytes, from,
                       of->width - done);
    }
}

static const char *table_row(const berth_op_args *args, int64_t token) {
    return berth_row(args->inputs[WEIGHT], id_at(args, token));
}

static void copy_past(const berth_op_args *args, berth_span tokens) {
    const berth_tensor *y = args->outputs[0];
    rows of = {.width = y->shape[1]};
    for (int64_t token = tokens.first; token < tokens.end; token += of.count) {
        const int64_t left = tokens.end - token;
        of.count = left < ROWS ? (int)left : ROWS;
        for (int row = 0; row < of.count; ++row) {
            const int64_t next = token + ROWS + row;
            of.from[row] = table_row(args, token + row);
            of.next[row] = next < tokens.end ? table_row(args, next) : of.from[row];
            of.to[row] = berth_row(y, token + row);
        }
        copy_rows(&of, y->dtype, args->inputs[WEIGHT]->dtype);
    }
    berth_past_end();
}

// Why these: models have tables of their activations' dtype, or of 16 bits for activations of
// float32.
static int can_pass(const berth_tensor *weight, const berth_tensor *y) {
    const berth_rows to = berth_rows_of(y);
    return berth_is_past(y->shape[0] * y->shape[1], y->dtype) && berth_vec_can_pass(to.first) &&
           to.step % (int64_t)sizeof(berth_vec) == 0 &&
           (y->dtype == weight->dtype || y->dtype == BERTH_DTYPE_F32);
}

// ---- all tokens ---------------------------------------------------------------------------------

static void copy_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *y = args->outputs[0];
    const berth_span tokens = berth_share(y->shape[0], part, parts);
    if (can_pass(weight, y)) {
        copy_past(args, tokens);
        return;
    }
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        berth_vec_copy(berth_row(y, token), y->dtype, table_row(args, token), weight->dtype,
                       y->shape[1]);
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const berth_instance *self = state;
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *y = args->outputs[0];
    for (int64_t token = 0; token < y->shape[0]; ++token) {
        const int64_t id = id_at(args, token);
        if (id < 0 || id >= weight->shape[0]) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "embedding: token id %lld is not in the vocabulary of %lld",
                                     (long long)id, (long long)weight->shape[0]);
        }
    }
    berth_run(self->cpu, copy_part, args, y->shape[0] * y->shape[1]);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_embedding = {
    .size = sizeof(berth_op_impl),
    .op = "embedding",
    .name = "cpu.embedding",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
