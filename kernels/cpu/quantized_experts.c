// SPDX-License-Identifier: Apache-2.0
// quantized_experts: a mixture of experts whose weights are codes, with the tiles of packed_linear
// and scaled_linear.
//
// The rows of the tokens at hand, ordered by expert, go through all first matrices, are kept in x's
// dtype, activated and put, as codes or floats, into their own places; then they go through all
// second matrices, whose outputs every part adds up for its own columns of all tokens. Where codes
// are multiplied as more than they are, an infinite row gives NaN.
#include <cpu/coded_input.h>

// ---- instances ----------------------------------------------------------------------------------

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_status status = coded_supports_stack(site, 0);
    return status == BERTH_OK ? coded_supports_stack(site, 1) : status;
}

// What numbers of the input are to the product: codes of eight bits are exact in bf16.
static berth_dtype number_dtype(const berth_op_site *site) {
    return codes_rule_of(site) == CODES_INPUT_FLOAT ? site->inputs[CODED_X]->dtype
                                                    : BERTH_DTYPE_BF16;
}

static void make_stack(const berth_op_site *site, berth_cpu *cpu, int stack, coded_stack *out) {
    const coded_place *at = &coded_places[stack];
    const berth_code code = coded_code(site);
    const packed_kind kind = coded_kind(site);
    out->weight_bytes = coded_bytes(site, at->weight);
    out->scale_bytes = coded_bytes(site, at->scale);
    out->zero_bytes = coded_bytes(site, at->zeros);
    out->product = (packed){
        .host = site->host,
        .cpu = cpu,
        .kind = kind,
        .zero = packed_zero_of(code),
        .in = coded_width(site, stack),
        .out = coded_outputs(site, stack),
        .group = coded_groups(site, stack).columns,
        .at_once = EXPERTS_SLICE,
    };
    packed_init(&out->product, packed_product_of(&out->product, number_dtype(site), cpu), cpu);
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(coded), out_self);
    if (status == BERTH_OK) {
        coded *self = *out_self;
        self->rule = codes_rule_of(site);
        self->is_e4m3 = coded_code(site) == BERTH_CODE_E4M3;
        self->of.cpu = device->self;
        self->of.op = site->op->name;
        self->of.moe = berth_moe_read(site);
        self->of.experts = site->inputs[CODED_W2]->dims[0].b;
        self->of.hidden = coded_width(site, 0);
        self->of.inner = coded_width(site, 1);
        self->of.gates = coded_gates(site);
        self->of.choices = site->inputs[CODED_TOPK_IDS]->dims[1].b;
        self->of.at_once = at_most(experts_at_once(site), CODED_TOKENS);
        self->of.dtype = site->inputs[CODED_X]->dtype;
        make_stack(site, device->self, 0, &self->stacks[0]);
        make_stack(site, device->self, 1, &self->stacks[1]);
    }
    return status;
}

// ---- memory -------------------------------------------------------------------------------------

// Floats of a part: the room of a product and the sums of all tokens, or a row and its activation.
static int64_t part_floats(const coded *self) {
    const int64_t sums =
        packed_room_floats(EXPERTS_SLICE) + EXPERTS_OUT * self->of.at_once * PACKED_WIDTH;
    const int64_t row = self->of.hidden + self->of.inner + PANEL;
    return row > sums ? row : sums;
}

static float *part_memory(const coded_job *in, int64_t part) {
    return (float *)(void *)(in->scratch + (uint64_t)part * panel_bytes_of(part_floats(in->self)));
}

// Whether x must be made before it is multiplied.
static int changes_x(const coded *self) {
    return self->rule != CODES_INPUT_FLOAT || self->of.moe.is_weighted_first;
}

// What is multiplied: floats, or the bits of codes.
static berth_dtype element_dtype(const coded *self) {
    return self->rule == CODES_INPUT_FLOAT ? self->of.dtype : BERTH_DTYPE_U8;
}

static int64_t element_bytes(const coded *self) {
    return BERTH_DTYPE_BITS(element_dtype(self)) / 8;
}

// Memory that is handed out piece by piece; NULL: only counted.
typedef struct supply {
    char *memory;
    uint64_t used;
} supply;

static void *take(supply *from, int64_t bytes) {
    void *taken = from->memory ? from->memory + from->used : NULL;
    from->used += ((uint64_t)bytes + 63) / 64 * 64;
    return taken;
}

// Of a stack's side, for so many rows.
static void take_side(supply *from, const packed *product, int64_t rows, coded_side *out) {
    const int64_t of_groups = rows * product->groups * (int64_t)sizeof(float);
    out->packed = take(from, rows * packed_x_words(product) * (int64_t)sizeof(float));
    out->sums = take(from, of_groups);
    out->scales_of_x = take(from, of_groups);
}

// Lays out the workspace; returns its bytes.
static uint64_t lay_out(const coded *self, char *memory, coded_job *job) {
    const experts *of = &self->of;
    const int64_t tokens = of->at_once;
    const int64_t rows = tokens * of->choices;
    const int64_t rows_of_x = coded_is_by_row(self->rule) ? rows : tokens;
    supply from = {.memory = memory};
    job->of.token = take(&from, rows * (int64_t)sizeof(int32_t));
    job->of.weight = take(&from, rows * (int64_t)sizeof(float));
    job->of.slices = take(&from, experts_most_slices(of) * (int64_t)sizeof(experts_slice));
    job->of.counts = take(&from, of->experts * (int64_t)sizeof(int64_t));
    job->sides[0].x.tensor.data =
        take(&from, changes_x(self) ? rows_of_x * of->hidden * element_bytes(self) : 0);
    job->inner.tensor.data =
        take(&from, rows * self->stacks[0].product.out * BERTH_DTYPE_BITS(of->dtype) / 8);
    for (int stack = 0; stack < 2; ++stack) {
        const packed *product = &self->stacks[stack].product;
        job->sides[stack].scales.tensor.data =
            take(&from, (stack == 0 ? rows_of_x : rows) * product->groups * (int64_t)sizeof(float));
        take_side(&from, product, rows, &job->sides[stack]);
    }
    job->scratch = take(&from, of->cpu->threads * (int64_t)panel_bytes_of(part_floats(self)));
    return from.used;
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    coded_job job;
    return lay_out(state, NULL, &job);
}

// ---- what is multiplied -------------------------------------------------------------------------

static void set_rows(coded_rows *out, berth_dtype dtype, int64_t rows, int64_t columns,
                     int64_t step) {
    out->shape[0] = rows;
    out->shape[1] = columns;
    out->strides[0] = step;
    out->strides[1] = 1;
    out->tensor.size = sizeof out->tensor;
    out->tensor.ndim = 2;
    out->tensor.dtype = dtype;
    out->tensor.shape = out->shape;
    out->tensor.strides = out->strides;
}

// The tensors of the tokens at hand. A row's activation lies where w13 has put what it is of.
static void begin(coded_job *in) {
    const coded *self = in->self;
    const berth_tensor *x = in->args->inputs[CODED_X];
    const int64_t outputs = self->stacks[0].product.out;
    const int64_t bytes = BERTH_DTYPE_BITS(x->dtype) / 8;
    const berth_dtype dtype = element_dtype(self);
    const int64_t rows_of_x = coded_is_by_row(self->rule) ? in->rows : in->of.tokens;
    coded_side *sides = in->sides;
    set_rows(&in->inner, x->dtype, in->rows, outputs, outputs);
    set_rows(&sides[0].x, dtype, rows_of_x, self->of.hidden, self->of.hidden);
    set_rows(&sides[1].x, dtype, in->rows, self->of.inner, outputs * bytes / element_bytes(self));
    sides[1].x.tensor.data = in->inner.tensor.data;
    for (int stack = 0; stack < 2; ++stack) {
        const int64_t rows = stack == 0 ? rows_of_x : in->rows;
        const int64_t groups =
            coded_has_groups(self->rule) ? self->stacks[stack].product.groups : 1;
        set_rows(&sides[stack].scales, BERTH_DTYPE_F32, rows, groups, groups);
    }
    if (!changes_x(self)) {
        sides[0].x.tensor.data = berth_row(x, in->of.first_token);
        sides[0].x.strides[0] = x->strides[0];
    }
}

static void take_part(const void *work, int64_t part, int64_t parts) {
    const coded_job *in = work;
    const berth_tensor *x = in->args->inputs[CODED_X];
    const berth_tensor *weights = in->args->inputs[CODED_TOPK_WEIGHTS];
    const int64_t width = in->self->of.hidden;
    float *row = part_memory(in, part);
    const berth_span rows = berth_share(in->sides[0].x.shape[0], part, parts);
    for (int64_t i = rows.first; i < rows.end; ++i) {
        const int64_t at =
            in->of.first_token + (coded_is_by_row(in->self->rule) ? in->of.token[i] : i);
        berth_load(berth_row(x, at), x->dtype, 0, width, row);
        if (in->self->of.moe.is_weighted_first) {
            const float weight = berth_round_to(x->dtype, *(const float *)berth_row(weights, at));
            for (int64_t k = 0; k < width; ++k) {
                row[k] = berth_round_to(x->dtype, row[k] * weight);
            }
        }
        coded_keep(in, 0, i, row);
    }
}

// Blocks of rows of all slices, as a stack's product wants them.
static void pack_part(const void *work, int64_t part, int64_t parts) {
    const coded_job *in = work;
    const int product = in->self->stacks[in->stack].product.product;
    int64_t blocks = 0;
    for (int64_t i = 0; i < in->of.slice_count; ++i) {
        blocks += pieces(in->of.slices[i].rows, tile_height(product, in->of.slices[i].rows));
    }
    const berth_span share = berth_share(blocks, part, parts);
    int64_t block = 0;
    for (int64_t i = 0; i < in->of.slice_count; ++i) {
        const int64_t rows = in->of.slices[i].rows;
        const int64_t height = tile_height(product, rows);
        coded_call call;
        coded_begin(in, in->stack, &in->of.slices[i], &call);
        for (int64_t row = 0; row < rows; row += height, ++block) {
            const int64_t end = at_most(row + height, rows);
            if (block >= share.first && block < share.end) {
                packed_sum_rows(&call.job, row, end);
                packed_pack_block(&call.job, row, end);
            }
        }
    }
}

// ---- W13 ----------------------------------------------------------------------------------------

static void inner_part(const void *work, int64_t part, int64_t parts) {
    const coded_job *in = work;
    const int64_t panels = pieces(in->self->stacks[0].product.out, PACKED_WIDTH);
    const packed_room room = packed_room_at(part_memory(in, part), EXPERTS_SLICE);
    int64_t cost = 0;
    for (int64_t i = 0; i < in->of.slice_count; ++i) {
        cost += panels * experts_cost(&in->of.slices[i]);
    }
    const berth_span share = berth_share(cost, part, parts);
    cost = 0;
    for (int64_t i = 0; i < in->of.slice_count; ++i) {
        const experts_slice *slice = &in->of.slices[i];
        coded_call call;
        coded_begin(in, 0, slice, &call);
        tiles_begin(call.job.self->product, slice->rows);
        for (int64_t panel = 0; panel < panels; ++panel) {
            if (cost >= share.first && cost < share.end) {
                packed_multiply_panels(&call.job, panel, 1, &room);
                packed_store(&call.job, panel, room.totals);
            }
            cost += experts_cost(slice);
        }
        tiles_end(call.job.self->product);
    }
}

// Columns of a row of the gate and the up projection as floats, zero behind the last.
static void split(const coded_job *in, int64_t row, int64_t first, float both[2][PANEL]) {
    const experts *of = &in->self->of;
    const void *from = berth_row(&in->inner.tensor, row);
    const int64_t count = at_most(PANEL, of->inner - first);
    memset(both, 0, 2 * sizeof both[0]);
    if (of->moe.activation == BERTH_MOE_SWIGLUOAI) {
        float turns[2 * PANEL];
        berth_load(from, of->dtype, 2 * first, 2 * count, turns);
        for (int64_t i = 0; i < 2 * count; ++i) {
            both[i % 2][i / 2] = turns[i];
        }
        return;
    }
    for (int64_t gate = 0; gate < of->gates; ++gate) {
        berth_load(from, of->dtype, gate * of->inner + first, count, both[gate]);
    }
}

static void activate_part(const void *work, int64_t part, int64_t parts) {
    const coded_job *in = work;
    const experts *of = &in->self->of;
    float *numbers = part_memory(in, part);
    const berth_span rows = berth_share(in->rows, part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        for (int64_t first = 0; first < of->inner; first += PANEL) {
            float both[2][PANEL];
            split(in, row, first, both);
            experts_activate(&of->moe, of->dtype, both[0], both[1], numbers + first);
        }
        coded_keep(in, 1, row, numbers);
    }
}

// ---- W2 -----------------------------------------------------------------------------------------

// Adds a slice's share of two panels of outputs to the tokens' sums [tokens][PACKED_WIDTH].
static void add(const coded_job *in, const packed_job *of, int64_t panel, const float *totals,
                float *to) {
    const int64_t output = panel * PACKED_WIDTH;
    float start[PACKED_WIDTH] = {0};
    if (of->bias) {
        berth_load(berth_data(of->bias), of->bias->dtype, output,
                   at_most(PACKED_WIDTH, of->self->out - output), start);
    }
    for (int64_t i = 0; i < of->rows * (PACKED_WIDTH / PANEL); ++i) {
        const int64_t first = i / of->rows * PANEL;
        const int64_t row = of->first + i % of->rows;
        const float weight = in->self->of.moe.is_weighted_first ? 1.0f : in->of.weight[row];
        float *sums = to + in->of.token[row] * PACKED_WIDTH + first;
        float y[PANEL];
        for (int64_t k = 0; k < PANEL; ++k) {
            y[k] = totals[i * PANEL + k] + start[first + k];
        }
        experts_round(in->self->of.dtype, y);
        for (int64_t k = 0; k < PANEL; ++k) {
            sums[k] += y[k] * weight;
        }
    }
}

static void store(const coded_job *in, int64_t panel, const float *sums) {
    const berth_tensor *y = in->args->outputs[0];
    const int64_t output = panel * PACKED_WIDTH;
    const int64_t count = at_most(PACKED_WIDTH, in->self->of.hidden - output);
    for (int64_t token = 0; token < in->of.tokens; ++token) {
        berth_store(berth_row(y, in->of.first_token + token), y->dtype, output, count,
                    sums + token * PACKED_WIDTH);
    }
}

static void outer_part(const void *work, int64_t part, int64_t parts) {
    const coded_job *in = work;
    const int64_t of_panel = in->of.tokens * PACKED_WIDTH;
    const berth_span share = berth_share(pieces(in->self->of.hidden, PACKED_WIDTH), part, parts);
    float *sums = part_memory(in, part);
    const packed_room room =
        packed_room_at(sums + EXPERTS_OUT * in->self->of.at_once * PACKED_WIDTH, EXPERTS_SLICE);
    for (int64_t panel = share.first, count = 0; panel < share.end; panel += count) {
        count = at_most(EXPERTS_OUT, share.end - panel);
        memset(sums, 0, (size_t)(count * of_panel) * sizeof *sums);
        for (int64_t i = 0; i < in->of.slice_count; ++i) {
            coded_call call;
            coded_begin(in, 1, &in->of.slices[i], &call);
            tiles_begin(call.job.self->product, call.job.rows);
            for (int64_t j = 0; j < count; ++j) {
                packed_multiply_panels(&call.job, panel + j, 1, &room);
                add(in, &call.job, panel + j, room.totals, sums + j * of_panel);
            }
            tiles_end(call.job.self->product);
        }
        for (int64_t j = 0; j < count; ++j) {
            store(in, panel + j, sums + j * of_panel);
        }
    }
}

// ---- a step -------------------------------------------------------------------------------------

static void run(coded_job *in) {
    const berth_cpu *cpu = in->self->of.cpu;
    const int64_t hidden = in->self->of.hidden;
    const int64_t outputs = in->self->stacks[0].product.out;
    if (changes_x(in->self)) {
        berth_run(cpu, take_part, in, in->of.tokens * hidden);
    }
    in->stack = 0;
    berth_run(cpu, pack_part, in, in->rows * hidden);
    berth_run(cpu, inner_part, in, in->rows * hidden * outputs);
    berth_run(cpu, activate_part, in, in->rows * outputs);
    in->stack = 1;
    berth_run(cpu, pack_part, in, in->rows * in->self->of.inner);
    berth_run(cpu, outer_part, in, in->rows * hidden * outputs);
}

static berth_status forward(void *state, const berth_op_args *args) {
    const coded *self = state;
    const int64_t tokens = berth_row_count(args->inputs[CODED_X]);
    const berth_tensor *const inputs[EXPERT_MAP + 1] = {
        [X] = args->inputs[CODED_X],
        [TOPK_WEIGHTS] = args->inputs[CODED_TOPK_WEIGHTS],
        [TOPK_IDS] = args->inputs[CODED_TOPK_IDS],
    };
    const berth_op_args as_experts = {.inputs = inputs, .outputs = args->outputs};
    coded_job in = {
        .of = {.self = &self->of, .args = &as_experts},
          .self = self, .args = args
    };
    (void)lay_out(self, berth_data(args->workspace), &in);
    for (; in.of.first_token < tokens; in.of.first_token += in.of.tokens) {
        in.of.tokens = at_most(self->of.at_once, tokens - in.of.first_token);
        const berth_status status = experts_count(&in.of);
        if (status != BERTH_OK) {
            return status;
        }
        experts_slice_up(&in.of);
        experts_place(&in.of);
        in.rows = 0;
        for (int64_t i = 0; i < in.of.slice_count; ++i) {
            in.rows += in.of.slices[i].rows;
        }
        begin(&in);
        run(&in);
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_quantized_experts = {
    .size = sizeof(berth_op_impl),
    .op = "quantized_experts",
    .name = "cpu.quantized_experts",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 2,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
    .packed_bytes = coded_packed_bytes,
    .pack = coded_pack,
    .pack_rows = coded_pack_rows,
};
