// SPDX-License-Identifier: Apache-2.0
// sampling_top_k_top_p. The k-th largest logit is found by its bits, eight at a time from the top,
// in sweeps of the row; only what stays is then put in order, by its bits from the bottom.
#include <cpu/cpu.h>
#include <cpu/sampling_rows.h>

#include <sampling_key.h>

enum { LOGITS, K, P };

#define DIGITS 256

typedef struct sampler {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t vocabulary;
} sampler;

// A token that stays: `key` orders as its logit does.
typedef struct entry {
    uint32_t key;
    int32_t id;
} entry;

typedef struct job {
    const sampler *self;
    const berth_op_args *args;
} job;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(sampler), out_self);
    if (status == BERTH_OK) {
        sampler *self = *out_self;
        self->cpu = device->self;
        self->vocabulary = site->inputs[LOGITS]->dims[1].b;
    }
    return status;
}

// Of every part: what stays, twice.
static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const sampler *self = state;
    return (uint64_t)(2 * self->cpu->threads * self->vocabulary) * sizeof(entry);
}

// ---- order --------------------------------------------------------------------------------------

// The k-th largest of at least k logits.
static float find_kth(const float *logits, int64_t count, int64_t k) {
    uint32_t prefix = 0;
    uint32_t mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t counts[DIGITS] = {0};
        for (int64_t i = 0; i < count; ++i) {
            const uint32_t key = sampling_key_of(logits[i]);
            counts[key >> shift & (DIGITS - 1)] += (key & mask) == prefix;
        }
        uint32_t digit = DIGITS - 1;
        for (; counts[digit] < k; --digit) {
            k -= counts[digit];
        }
        prefix |= digit << shift;
        mask |= UINT32_C(0xff) << shift;
    }
    return sampling_logit_of(prefix);
}

// By key, equals as they were, with as much room again behind the entries. Four rounds: the result
// is where it began.
static void sort_entries(entry *entries, int64_t count) {
    entry *from = entries;
    entry *to = entries + count;
    for (int shift = 0; shift < 32; shift += 8) {
        int64_t places[DIGITS + 1] = {0};
        for (int64_t i = 0; i < count; ++i) {
            ++places[(from[i].key >> shift & (DIGITS - 1)) + 1];
        }
        for (int digit = 0; digit < DIGITS; ++digit) {
            places[digit + 1] += places[digit];
        }
        for (int64_t i = 0; i < count; ++i) {
            to[places[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
        }
        entry *const swapped = from;
        from = to;
        to = swapped;
    }
}

// ---- cuts ---------------------------------------------------------------------------------------

static void keep_k(float *logits, int64_t count, int64_t k) {
    if (k < 1 || k >= count) {
        return;
    }
    const float least = find_kth(logits, count, k);
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
        logits[i] = logits[i] < least ? -INFINITY : logits[i];
    }
}

// What is minus infinity already has no probability, so it need not be put in order.
static void keep_p(float *logits, int64_t count, float p, entry *entries) {
    int64_t left = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (logits[i] != -INFINITY) {
            entries[left++] = (entry){sampling_key_of(logits[i]), (int32_t)i};
        }
    }
    if (left == 0) {
        return;
    }
    sort_entries(entries, left);
    const float largest = logits[entries[left - 1].id];
    const float sum = sampling_sum(logits, count, largest);
    float gone = 0;
    for (int64_t i = 0; i < left - 1; ++i) {
        gone += berth_exp_f32(logits[entries[i].id] - largest) / sum;
        if (!(gone <= 1.0f - p)) {
            return;
        }
        logits[entries[i].id] = -INFINITY;
    }
}

static void cut_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *logits = in->args->inputs[LOGITS];
    const berth_tensor *k = in->args->inputs[K];
    const berth_tensor *p = in->args->inputs[P];
    const int64_t count = logits->shape[1];
    entry *entries = (entry *)berth_data(in->args->workspace) + 2 * part * in->self->vocabulary;
    const berth_span rows = berth_share(logits->shape[0], part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        float *to = berth_row(in->args->outputs[0], row);
        memcpy(to, berth_row(logits, row), (size_t)count * sizeof *to);
        if (k) {
            keep_k(to, count, berth_integer_at(berth_data(k), k->dtype, row));
        }
        if (p) {
            keep_p(to, count, ((const float *)berth_data(p))[row], entries);
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const job in = {.self = state, .args = args};
    const berth_tensor *logits = args->inputs[LOGITS];
    berth_run(in.self->cpu, cut_part, &in, logits->shape[0] * logits->shape[1]);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_sampling_top_k_top_p = {
    .size = sizeof(berth_op_impl),
    .op = "sampling_top_k_top_p",
    .name = "cpu.sampling_top_k_top_p",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
