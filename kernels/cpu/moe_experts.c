// SPDX-License-Identifier: Apache-2.0
// moe_experts: a mixture (experts.h) in which every row is a token with one choice of weight 1, the
// expert whose row it is. So the site and a call are shown to experts.h with the operands of a
// mixture.
#include <cpu/experts_run.h>

enum { ROWS_X, ROWS_FIRST, ROWS_W13, ROWS_W2, ROWS_W13_BIAS, ROWS_W2_BIAS };

// As experts.h numbers them; the ids are made by forward.
typedef struct mixture {
    berth_op_site site;
    const berth_value_type *inputs[EXPERT_MAP + 1];
    berth_value_type ids;
} mixture;

static const berth_op_site *as_mixture(const berth_op_site *site, mixture *out) {
    const uint64_t packed = site->parameter_mask >> ROWS_W13 & 3;
    *out = (mixture){.site = *site, .ids = *site->inputs[ROWS_X]};
    out->ids.dtype = BERTH_DTYPE_I32;
    out->ids.dims[1] = BERTH_DIM_CONST(1);
    out->inputs[X] = site->inputs[ROWS_X];
    out->inputs[W13_WEIGHT] = site->inputs[ROWS_W13];
    out->inputs[W2_WEIGHT] = site->inputs[ROWS_W2];
    out->inputs[TOPK_IDS] = &out->ids;
    out->inputs[W13_BIAS] = site->inputs[ROWS_W13_BIAS];
    out->inputs[W2_BIAS] = site->inputs[ROWS_W2_BIAS];
    out->site.inputs = out->inputs;
    out->site.input_count = sizeof out->inputs / sizeof out->inputs[0];
    out->site.parameter_mask = packed << W13_WEIGHT;
    return &out->site;
}

static uint64_t as_input(uint64_t input) {
    return input == ROWS_W13 ? W13_WEIGHT : input == ROWS_W2 ? W2_WEIGHT : X;
}

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    mixture as;
    return experts_supports(as_mixture(site, &as), device);
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    mixture as;
    return experts_create(as_mixture(site, &as), device, out_self);
}

static uint64_t packed_bytes(const berth_op_site *site, uint64_t input) {
    mixture as;
    return experts_packed_bytes(as_mixture(site, &as), as_input(input));
}

static berth_status pack(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                         const berth_tensor *destination) {
    mixture as;
    return experts_pack(as_mixture(site, &as), as_input(input), source, destination);
}

static berth_status pack_rows(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                              int64_t first, const berth_tensor *destination) {
    mixture as;
    return experts_pack_rows(as_mixture(site, &as), as_input(input), source, first, destination);
}

// The expert of every row at hand.
static uint64_t workspace(void *state, uint64_t tokens) {
    const experts *self = state;
    return experts_workspace(state, tokens) + (uint64_t)self->at_once * sizeof(int32_t);
}

// Experts of rows [first, first + count), −1 behind the last.
static void fill_ids(const berth_op_args *args, int64_t count, berth_span rows, int32_t *ids) {
    const int32_t *first = berth_data(args->inputs[ROWS_FIRST]);
    int64_t expert = 0;
    for (int64_t row = rows.first; row < rows.end; ++row) {
        while (expert < count && row >= first[expert + 1]) {
            ++expert;
        }
        ids[row - rows.first] = expert < count ? (int32_t)expert : -1;
    }
}

// Some rows of a matrix.
static berth_tensor rows_of(const berth_tensor *all, berth_span rows, int64_t shape[2]) {
    berth_tensor out = *all;
    shape[0] = rows.end - rows.first;
    shape[1] = all->shape[1];
    out.shape = shape;
    out.byte_offset += (uint64_t)(rows.first * all->strides[0]) * BERTH_DTYPE_BITS(all->dtype) / 8;
    return out;
}

static berth_status run_rows(experts *self, const berth_op_args *args, berth_span rows) {
    static const int64_t steps[2][2] = {
        {0, 1},
        {1, 1}
    };
    const float one = 1;
    int64_t shapes[3][2] = {
        {0},
        {                     0},
        { rows.end - rows.first, 1}
    };
    int32_t *ids =
        (int32_t *)(void *)((char *)berth_data(args->workspace) + experts_workspace(self, 0));
    const berth_tensor x = rows_of(args->inputs[ROWS_X], rows, shapes[0]);
    berth_tensor y = rows_of(args->outputs[0], rows, shapes[1]);
    const berth_tensor weights = {
        .size = sizeof(berth_tensor),
        .data = (void *)&one,
        .ndim = 2,
        .dtype = BERTH_DTYPE_F32,
        .shape = shapes[2],
        .strides = steps[0],
    };
    berth_tensor chosen = weights;
    chosen.data = ids;
    chosen.dtype = BERTH_DTYPE_I32;
    chosen.strides = steps[1];
    fill_ids(args, self->experts, rows, ids);
    const berth_tensor *const inputs[EXPERT_MAP + 1] = {
        [X] = &x,
        [W13_WEIGHT] = args->inputs[ROWS_W13],
        [W2_WEIGHT] = args->inputs[ROWS_W2],
        [TOPK_WEIGHTS] = &weights,
        [TOPK_IDS] = &chosen,
        [W13_BIAS] = args->inputs[ROWS_W13_BIAS],
        [W2_BIAS] = args->inputs[ROWS_W2_BIAS],
    };
    berth_tensor *const outputs[] = {&y};
    berth_op_args of = *args;
    of.inputs = inputs;
    of.outputs = outputs;
    return experts_forward(self, &of);
}

static berth_status forward(void *state, const berth_op_args *args) {
    experts *self = state;
    const int64_t rows = args->inputs[ROWS_X]->shape[0];
    berth_status status = BERTH_OK;
    for (int64_t row = 0; row < rows && status == BERTH_OK; row += self->at_once) {
        status = run_rows(self, args, (berth_span){row, at_most(row + self->at_once, rows)});
    }
    return status;
}

const berth_op_impl berth_kernel_moe_experts = {
    .size = sizeof(berth_op_impl),
    .op = "moe_experts",
    .name = "cpu.moe_experts",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .pack_rows = pack_rows,
};
