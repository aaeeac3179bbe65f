// SPDX-License-Identifier: Apache-2.0
// A mixture of experts (kernels/moe.h) for every op that is one as a whole: fused_moe,
// unquantized_fused_moe, modular_fused_moe and transformers_fused_moe have the same operands.
//
// The tokens at hand are ordered by expert into slices of rows. W13 lies as panels of its gate's
// and of its up projection's rows in turns, so that a part multiplies both, activates them and has
// columns of what W2 multiplies. Every part then takes its share of the outputs, goes through all
// experts and adds up the tokens' shares, so no two parts write the same sum.
#ifndef BERTH_KERNELS_CPU_EXPERTS_H
#define BERTH_KERNELS_CPU_EXPERTS_H

#include <cpu/experts_pack.h>
#include <cpu/panels.h>
#include <moe.h>

enum { X, W13_WEIGHT, W2_WEIGHT, TOPK_WEIGHTS, TOPK_IDS, W13_BIAS, W2_BIAS, EXPERT_MAP };

#define EXPERTS_TOKENS 512 // at a time
#define EXPERTS_SLICE  256 // rows of an expert at a time
#define EXPERTS_OUT    4   // panels of W2 at a time
#define EXPERTS_ALONE  (1 << 18)

typedef struct experts {
    const berth_host *host;
    berth_cpu *cpu;
    const char *op;
    berth_moe moe;
    int64_t experts;
    int64_t hidden;
    int64_t inner;
    int64_t gates; // 2, or 1 without a gate
    int64_t choices;
    int64_t at_once; // tokens
    berth_dtype dtype;
    int product;
    int inner_places_way; // an expert's W13, as a tile has it
    int outer_places_way; // its W2
} experts;

// Rows of one expert, at most EXPERTS_SLICE.
typedef struct experts_slice {
    int64_t expert;
    int64_t first;
    int64_t rows;
} experts_slice;

// The tokens at hand.
typedef struct experts_job {
    const experts *self;
    const berth_op_args *args;
    int64_t first_token;
    int64_t tokens;
    int64_t *counts; // [experts], room
    int32_t *token;  // [rows], counted from first_token
    float *weight;   // [rows]
    experts_slice *slices;
    int64_t slice_count;
    float *x;         // [rows], packed by slice
    float *activated; // [rows], packed by slice
    char *scratch;    // of part 0
} experts_job;

// ---- instances ----------------------------------------------------------------------------------

static inline berth_status experts_supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const uint64_t weights = UINT64_C(1) << W13_WEIGHT | UINT64_C(1) << W2_WEIGHT;
    if ((site->parameter_mask & weights) != weights) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "the weights are not parameters and cannot be packed");
    }
    return site->inputs[W13_WEIGHT]->dtype == site->inputs[W2_WEIGHT]->dtype
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "the weights differ in dtype");
}

// Tokens at a time.
static inline int64_t experts_at_once(const berth_op_site *site) {
    return at_most(berth_most_rows(site, site->inputs[X]), EXPERTS_TOKENS);
}

static inline berth_status experts_create(const berth_op_site *site, const berth_device *device,
                                          void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(experts), out_self);
    if (status == BERTH_OK) {
        const berth_value_type *w2 = site->inputs[W2_WEIGHT];
        experts *self = *out_self;
        self->cpu = device->self;
        self->op = site->op->name;
        self->moe = berth_moe_read(site);
        self->experts = w2->dims[0].b;
        self->hidden = w2->dims[1].b;
        self->inner = w2->dims[2].b;
        self->gates = 1 + berth_moe_has_gate(self->moe.activation);
        self->choices = site->inputs[TOPK_IDS]->dims[1].b;
        self->dtype = w2->dtype;
        self->inner_places_way =
            places_serve(device->self, pieces(self->inner, PANEL) * self->gates *
                                           panel_bytes(self->hidden, self->dtype));
        self->outer_places_way = places_serve(
            device->self, pieces(self->hidden, PANEL) * panel_bytes(self->inner, self->dtype));
        self->product = product_of_panels(w2->dtype, site->inputs[X]->dtype, self->cpu);
        self->at_once = experts_at_once(site);
    }
    return status;
}

// ---- packing weights ----------------------------------------------------------------------------

static inline uint64_t experts_packed_bytes(const berth_op_site *site, uint64_t input) {
    const berth_value_type *w2 = site->inputs[W2_WEIGHT];
    const int64_t inner = w2->dims[2].b;
    const int64_t gates = site->inputs[W13_WEIGHT]->dims[1].b / inner;
    const int64_t w13_panels = gates * pieces(inner, PANEL);
    const int64_t of_w13 = w13_panels * panel_bytes(w2->dims[1].b, w2->dtype);
    const int64_t of_w2 = pieces(w2->dims[1].b, PANEL) * panel_bytes(inner, w2->dtype);
    return input == W13_WEIGHT  ? (uint64_t)(w2->dims[0].b * of_w13)
           : input == W2_WEIGHT ? (uint64_t)(w2->dims[0].b * of_w2)
                                : 0;
}

static inline experts_stack experts_stack_of(const berth_op_site *site, uint64_t input) {
    const int64_t rows = site->inputs[input]->dims[1].b;
    const int64_t outputs = input == W2_WEIGHT ? rows : site->inputs[W2_WEIGHT]->dims[2].b;
    return (experts_stack){
        .rows = rows,
        .outputs = outputs,
        .matrices = rows / outputs,
        .is_in_turns = input != W2_WEIGHT && berth_moe_read(site).activation == BERTH_MOE_SWIGLUOAI,
    };
}

static inline berth_status experts_pack_rows(const berth_op_site *site, uint64_t input,
                                             const berth_tensor *source, int64_t first,
                                             const berth_tensor *destination) {
    const experts_stack stack = experts_stack_of(site, input);
    experts_put(&stack, source, first, berth_data(destination));
    return BERTH_OK;
}

static inline berth_status experts_pack(const berth_op_site *site, uint64_t input,
                                        const berth_tensor *source,
                                        const berth_tensor *destination) {
    int64_t shape[2];
    int64_t strides[2];
    const berth_tensor rows = experts_all_rows(source, shape, strides);
    return experts_pack_rows(site, input, &rows, 0, destination);
}

// ---- memory -------------------------------------------------------------------------------------

static inline int64_t experts_most_slices(const experts *self) {
    return self->experts + pieces(self->at_once * self->choices, EXPERTS_SLICE);
}

// Of a part: the sums of some panels with a slice, room for widening, and the tokens' sums.
typedef struct experts_room {
    float *sums;
    float *widened;
    float *totals;
} experts_room;

static inline experts_room experts_room_of(const experts *self, float *memory) {
    const int64_t slice = at_most(EXPERTS_SLICE, self->at_once * self->choices);
    float *widened = memory + EXPERTS_OUT * slice * PANEL;
    return (experts_room){memory, widened, widened + 2 * PANEL_CHUNK * PANEL};
}

static inline uint64_t experts_scratch(const experts *self) {
    const int64_t slice = at_most(EXPERTS_SLICE, self->at_once * self->choices);
    return panel_bytes_of((EXPERTS_OUT * (slice + self->at_once) + 2 * PANEL_CHUNK) * PANEL);
}

static inline experts_room experts_room_at(const experts_job *job, int64_t part) {
    char *memory = job->scratch + (uint64_t)part * experts_scratch(job->self);
    return experts_room_of(job->self, (float *)(void *)memory);
}

// Lays out the workspace; returns its bytes.
static inline uint64_t experts_layout(const experts *self, char *memory, experts_job *job) {
    const int64_t rows = self->at_once * self->choices;
    const uint64_t bytes[] = {
        panel_bytes_of(rows),
        panel_bytes_of(rows),
        (uint64_t)experts_most_slices(self) * sizeof(experts_slice),
        panel_bytes_of(rows * panel_floats(self->hidden, self->product)),
        panel_bytes_of(rows * panel_floats(self->inner, self->product)),
        (uint64_t)self->cpu->threads * experts_scratch(self),
        (uint64_t)self->experts * sizeof(int64_t),
    };
    uint64_t at[8] = {0};
    for (int i = 0; i < 7; ++i) {
        at[i + 1] = at[i] + (bytes[i] + 63) / 64 * 64;
    }
    if (memory) {
        job->token = (int32_t *)(void *)memory;
        job->weight = (float *)(void *)(memory + at[1]);
        job->slices = (experts_slice *)(void *)(memory + at[2]);
        job->x = (float *)(void *)(memory + at[3]);
        job->activated = (float *)(void *)(memory + at[4]);
        job->scratch = memory + at[5];
        job->counts = (int64_t *)(void *)(memory + at[6]);
    }
    return at[7];
}

static inline uint64_t experts_workspace(void *state, uint64_t tokens) {
    (void)tokens;
    return experts_layout(state, NULL, NULL);
}

#endif
