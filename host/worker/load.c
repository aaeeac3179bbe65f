// SPDX-License-Identifier: Apache-2.0
// Input: weights that are mapped, and a plan. Output: the plan's parameters. What both have by rows
// goes to its place in pieces, on all threads, straight from where it lies mapped; everything else
// before that, one weight after the other. Nothing is kept: beside the resident weights there is
// never more than a piece for every thread.
#include "worker/worker_private.h"

#include <assert.h>

#include "base/array.h"
#include "base/interrupt.h"
#include "base/thread.h"

#define PIECE_BYTES ((uint64_t)2 << 20)
#define WORTH_BYTES ((uint64_t)16 << 20) // less is not worth another thread
#define MAX_THREADS 64

typedef berth_array(unsigned char) piece_buffer;

// ---- rows ---------------------------------------------------------------------------------------

static uint64_t row_bytes(const berth_weight *weight) {
    const berth_value_type *type = &weight->type;
    return (uint64_t)type->dims[type->ndim - 1].b * BERTH_DTYPE_BITS(type->dtype) / 8;
}

static uint64_t row_count(const berth_weight *weight) {
    return weight->bytes / row_bytes(weight);
}

// So many that they are about PIECE_BYTES.
static uint64_t rows_of_piece(const berth_weight *weight) {
    const uint64_t unit = row_bytes(weight) * BERTH_PACK_ROWS;
    assert(unit > 0);
    return (unit < PIECE_BYTES ? PIECE_BYTES / unit : 1) * BERTH_PACK_ROWS;
}

// Rows [first, first + count) of a weight; count 0: there are no more.
typedef struct piece {
    const berth_weight *weight;
    uint64_t first;
    uint64_t count;
} piece;

// What the threads share. They take pieces in the order of the graph.
typedef struct loader {
    const berth_default_worker *base;
    const berth_weight *const *weights; // that come in rows
    size_t weight_count;
    berth_mutex mutex;           // of everything below
    size_t at;                   // weight that is being taken
    uint64_t row;                // of it
    berth_status_report failure; // the first
} loader;

static piece take_piece(loader *self) {
    piece out = {.count = 0};
    berth_mutex_lock(&self->mutex);
    while (self->at < self->weight_count && out.count == 0 && self->failure.code == BERTH_OK) {
        out.weight = self->weights[self->at];
        out.first = self->row;
        const uint64_t left = row_count(out.weight) - self->row;
        const uint64_t most = rows_of_piece(out.weight);
        out.count = left < most ? left : most;
        self->row += out.count;
        if (out.count == left) {
            ++self->at;
            self->row = 0;
        }
    }
    berth_mutex_unlock(&self->mutex);
    return out;
}

static berth_status load_piece(const berth_default_worker *base, const piece *one,
                               piece_buffer *buffer) {
    const berth_weight *weight = one->weight;
    if (berth_interrupt_signal()) {
        return BERTH_FAIL(UNAVAILABLE, "interrupted");
    }
    BERTH_TRY(berth_array_reserve(buffer, one->count * row_bytes(weight)));
    const void *rows = berth_weight_rows(weight, one->first, one->count, buffer->data);
    BERTH_TRY(berth_plan_set_rows(base->plan, weight->value, (int64_t)one->first,
                                  (int64_t)one->count, rows));
    berth_weight_drop_rows(weight, one->first, one->count);
    return BERTH_OK;
}

static void keep_failure(loader *self, const berth_weight *weight) {
    berth_status_note(__FILE__, __LINE__, "loading '%s'", weight->name);
    berth_mutex_lock(&self->mutex);
    if (self->failure.code == BERTH_OK) {
        berth_status_take(&self->failure);
    }
    berth_mutex_unlock(&self->mutex);
}

static void load_pieces(void *context) {
    loader *self = context;
    piece_buffer buffer = {0};
    for (piece one = take_piece(self); one.count > 0; one = take_piece(self)) {
        if (load_piece(self->base, &one, &buffer) != BERTH_OK) {
            keep_failure(self, one.weight);
        }
    }
    berth_array_free(&buffer);
}

// ---- all of them --------------------------------------------------------------------------------

// This thread and as many more as the user allows and the bytes are worth.
static size_t thread_count(const loader *self) {
    const uint64_t allowed = (uint64_t)berth_config_threads(self->base->config);
    uint64_t bytes = 0;
    for (size_t i = 0; i < self->weight_count; ++i) {
        bytes += self->weights[i]->bytes;
    }
    const uint64_t most = allowed < MAX_THREADS ? allowed : MAX_THREADS;
    const uint64_t worth = 1 + bytes / WORTH_BYTES;
    return (size_t)(worth < most ? worth : most);
}

// A thread that the system refuses leaves its pieces to the others.
static berth_status load_rows(loader *self) {
    berth_thread threads[MAX_THREADS];
    const size_t wanted = thread_count(self) - 1;
    size_t started = 0;
    berth_mutex_init(&self->mutex);
    while (started < wanted &&
           berth_thread_start(&threads[started], "load", load_pieces, self) == BERTH_OK) {
        ++started;
    }
    load_pieces(self);
    for (size_t i = 0; i < started; ++i) {
        berth_thread_join(&threads[i]);
    }
    berth_mutex_deinit(&self->mutex);
    return self->failure.code == BERTH_OK ? BERTH_OK : berth_status_restore(&self->failure);
}

// ---- the others ---------------------------------------------------------------------------------

static bool comes_in_rows(const void *context, const berth_weight *weight) {
    const berth_default_worker *base = context;
    return weight->made_by == NULL && weight->bytes > 0 && berth_weight_has_rows(weight) &&
           berth_plan_takes_rows(base->plan, weight->value);
}

static berth_status accept_whole(void *context, const berth_weight *weight, const void *data) {
    const berth_default_worker *base = context;
    return berth_interrupt_signal()
               ? BERTH_FAIL(UNAVAILABLE, "interrupted")
               : berth_plan_set_parameter(base->plan, weight->value, data, weight->bytes);
}

typedef berth_array(const berth_weight *) weight_list;

static berth_status begin_rows(const berth_default_worker *base, const berth_model_build *build,
                               weight_list *out) {
    for (size_t i = 0; i < build->weight_count; ++i) {
        const berth_weight *weight = &build->weights[i];
        if (comes_in_rows(base, weight)) {
            BERTH_TRY_NOTE(berth_plan_begin_rows(base->plan, weight->value), "loading '%s'",
                           weight->name);
            BERTH_TRY(berth_array_push(out, weight));
        }
    }
    return BERTH_OK;
}

berth_status berth_worker_load_weights(const berth_default_worker *base,
                                       const berth_model_build *build) {
    const berth_weight_taker taker = {
        .context = (void *)(uintptr_t)base,
        .has_rows = comes_in_rows,
        .accept = accept_whole,
    };
    weight_list in_rows = {0};
    berth_status status = begin_rows(base, build, &in_rows);
    if (status == BERTH_OK) {
        status = berth_model_load(build, &taker);
    }
    if (status == BERTH_OK) {
        loader self = {.base = base, .weights = in_rows.data, .weight_count = in_rows.count};
        status = load_rows(&self);
    }
    berth_array_free(&in_rows);
    return status;
}
