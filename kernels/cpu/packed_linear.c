// SPDX-License-Identifier: Apache-2.0
// packed_linear: codes stay as they are in memory (packed_tile.h) and become numbers in registers.
//
// x is packed first, its columns in the weight's order. Then every part of the pool takes its share
// of the panels, group after group: the sums of a group's codes, then those by the group's scale.
// A row's sums are in the same order whatever is beside it: its result depends on nothing but the
// row.
#include <cpu/cpu.h>

#include <cpu/packed_tile.h>
#include <cpu/panels.h>

enum { X, WEIGHT, WEIGHT_SCALE, ZERO_POINTS, PERMUTATION, BIAS };

#define MOST_ROWS 128 // at a time

typedef struct packed {
    const berth_host *host;
    const berth_cpu *cpu;
    packed_kind kind;
    float zero; // without zero points
    int64_t in;
    int64_t out;
    int64_t pairs;
    int64_t group; // pairs
    int64_t groups;
} packed;

// One forward, or MOST_ROWS rows of it.
typedef struct job {
    const packed *self;
    const berth_op_args *args;
    int64_t first; // row of x
    int64_t rows;
    float *x;       // packed
    float *scratch; // of part 0
} job;

// Scratch of a part.
typedef struct room {
    float *totals; // [PACKED_WIDTH / PANEL][rows][PANEL]
    float *sums;   // the same, of a group
    float *zeros;  // [PACKED_WIDTH]
    float *widened;
} room;

#define ROOM_FLOATS ((int64_t)2 * MOST_ROWS * PACKED_WIDTH + PACKED_WIDTH + PACKED_WIDENED)

// ---- instances ----------------------------------------------------------------------------------

static berth_code code_of(const berth_op_site *site) {
    return berth_code_of(berth_site_attribute(site, "code")->str);
}

static int64_t width_of(const berth_op_site *site) {
    const berth_value_type *x = site->inputs[X];
    return x->dims[x->ndim - 1].b;
}

static berth_code_scales groups_of(const berth_op_site *site) {
    return berth_code_scales_of(site, NULL, site->inputs[WEIGHT]->dims[0].b, width_of(site));
}

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const uint64_t needed = UINT64_C(1) << WEIGHT | UINT64_C(1) << WEIGHT_SCALE |
                            (uint64_t)(site->inputs[ZERO_POINTS] != NULL) << ZERO_POINTS;
    if ((site->parameter_mask & needed) != needed) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "codes, scales or zero points are no parameters and cannot be "
                                 "packed");
    }
    const int64_t columns = groups_of(site).columns;
    return columns % 2 == 0 || columns >= width_of(site)
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "groups of %lld columns: columns are multiplied in pairs",
                                   (long long)columns);
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(packed), out_self);
    if (status == BERTH_OK) {
        const berth_code code = code_of(site);
        packed *self = *out_self;
        self->cpu = device->self;
        self->kind = packed_kind_of(code);
        self->zero = code == BERTH_CODE_I8 ? 128 : berth_code_zero(code);
        self->in = width_of(site);
        self->out = site->inputs[WEIGHT]->dims[0].b;
        self->pairs = pieces(self->in, 2);
        self->group = pieces(at_most(groups_of(site).columns, self->in), 2);
        self->groups = pieces(self->pairs, self->group);
    }
    return status;
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const packed *self = state;
    return panel_bytes_of(MOST_ROWS * 2 * self->pairs) +
           (uint64_t)self->cpu->threads * panel_bytes_of(ROOM_FLOATS);
}

// ---- packing the weight -------------------------------------------------------------------------

static uint64_t packed_bytes(const berth_op_site *site, uint64_t input) {
    const packed_kind kind = packed_kind_of(code_of(site));
    const int64_t panels = pieces(site->inputs[WEIGHT]->dims[0].b, PACKED_WIDTH);
    if (input == WEIGHT) {
        return (uint64_t)(panels * pieces(width_of(site), 2) * packed_pair(kind));
    }
    if (input == WEIGHT_SCALE || input == ZERO_POINTS) {
        const berth_value_type *type = site->inputs[input];
        return (uint64_t)(panels * type->dims[1].b * PACKED_WIDTH) * BERTH_DTYPE_BITS(type->dtype) /
               8;
    }
    return 0;
}

// Rows become columns of panels; row n of the panels is row n / repeats of the source.
static void pack_columns(const berth_tensor *from, int64_t outputs, int64_t repeats,
                         int64_t columns, char *to) {
    const int64_t element = BERTH_DTYPE_BITS(from->dtype) / 8;
    for (int64_t output = 0; output < outputs; ++output) {
        const char *row = berth_row(from, output / repeats);
        char *place =
            to + (output / PACKED_WIDTH * columns * PACKED_WIDTH + output % PACKED_WIDTH) * element;
        for (int64_t i = 0; i < from->shape[1]; ++i) {
            memcpy(place + i * PACKED_WIDTH * element, row + i * element, (size_t)element);
        }
    }
}

static berth_status pack(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                         const berth_tensor *destination) {
    const berth_code code = code_of(site);
    const int64_t outputs = site->inputs[WEIGHT]->dims[0].b;
    const uint64_t bytes = packed_bytes(site, input);
    uint8_t *to = berth_data(destination);
    memset(to, 0, (size_t)bytes);
    if (input != WEIGHT) {
        pack_columns(source, outputs, groups_of(site).rows, source->shape[1], (char *)to);
        return BERTH_OK;
    }
    const int64_t pairs = pieces(width_of(site), 2);
    pack_columns(source, outputs, 1, berth_code_is_half(code) ? pairs : 2 * pairs, (char *)to);
    for (uint64_t i = 0; code == BERTH_CODE_I8 && i < bytes; ++i) {
        to[i] ^= 0x80;
    }
    return BERTH_OK;
}

// ---- packing x ----------------------------------------------------------------------------------

static void load_row(const void *context, int64_t row, int64_t first, int64_t count, float *to) {
    const job *in = context;
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *permutation = in->args->inputs[PERMUTATION];
    const void *from = berth_row(x, in->first + row);
    if (!permutation) {
        berth_load(from, x->dtype, first, count, to);
        return;
    }
    const int32_t *of_column = (const int32_t *)berth_data(permutation) + first;
    for (int64_t i = 0; i < count; ++i) {
        to[i] = berth_load_at(from, x->dtype, of_column[i]);
    }
}

static void pack_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const panel_rows rows = {load_row, in, in->self->in, TIMES_F32};
    const int64_t height = panel_height(in->rows);
    const berth_span blocks = berth_share(pieces(in->rows, height), part, parts);
    for (int64_t block = blocks.first; block < blocks.end; ++block) {
        const int64_t first = block * height;
        panel_pack(&rows, first, at_most(first + height, in->rows),
                   in->x + first * 2 * in->self->pairs);
    }
}

// ---- multiplying --------------------------------------------------------------------------------

// All rows with a chunk that begins at a pair, widened once.
static void multiply_widened(const job *in, const packed_chunk *of, int64_t pair, float *widened) {
    const int64_t height = panel_height(in->rows);
    packed_widen(in->self->kind, of, widened);
    for (int64_t half = 0; half < PACKED_WIDTH / PANEL; ++half) {
        const char *weight = (const char *)(widened + half * of->pairs * 2 * PANEL);
        for (int64_t row = 0; row < in->rows; row += height) {
            const int64_t rows = at_most(height, in->rows - row);
            const tile piece = {
                .weight = weight,
                .x = in->x + row * 2 * in->self->pairs + pair * 2 * rows,
                .sums = of->sums + (half * in->rows + row) * PANEL,
                .next = weight,
                .pairs = of->pairs,
                .is_first = of->is_first,
            };
            tiles[TIMES_F32][rows](&piece);
        }
    }
}

// The sums of one group of a panel.
static void multiply_group(const job *in, int64_t panel, berth_span pairs, const room *scratch) {
    const packed *self = in->self;
    const uint8_t *codes = berth_data(in->args->inputs[WEIGHT]);
    const int64_t bytes = packed_pair(self->kind);
    for (int64_t pair = pairs.first; pair < pairs.end; pair += PACKED_CHUNK) {
        const packed_chunk chunk = {
            .codes = codes + (panel * self->pairs + pair) * bytes,
            .zeros = scratch->zeros,
            .x = in->x + pair * 2 * in->rows,
            .sums = scratch->sums,
            .pairs = at_most(PACKED_CHUNK, pairs.end - pair),
            .is_first = pair == pairs.first,
        };
        if (in->rows <= PACKED_FEW) {
            packed_few[self->kind][in->rows](&chunk);
        } else {
            multiply_widened(in, &chunk, pair, scratch->widened);
        }
    }
}

// The zero points of group `at` of all panels, one behind the other.
static void load_zeros(const job *in, int64_t at, float *to) {
    const berth_tensor *zeros = in->args->inputs[ZERO_POINTS];
    const uint8_t *codes = zeros ? (const uint8_t *)berth_data(zeros) + at * PACKED_WIDTH : NULL;
    for (int64_t i = 0; i < PACKED_WIDTH; ++i) {
        to[i] = PACKED_WHOLE + (codes ? (float)codes[i] : in->self->zero);
    }
}

static void add_group(const job *in, int64_t at, const room *scratch) {
    const berth_tensor *scales = in->args->inputs[WEIGHT_SCALE];
    const berth_vec factor = berth_vec_of(packed_factor(in->self->kind));
    for (int64_t output = 0; output < PACKED_WIDTH; output += BERTH_LANES) {
        const berth_vec scale = factor * berth_vec_load_as(berth_data(scales), scales->dtype,
                                                           at * PACKED_WIDTH + output);
        const int64_t first = output / PANEL * in->rows * PANEL + output % PANEL;
        for (int64_t i = first; i < first + in->rows * PANEL; i += PANEL) {
            berth_vec_store(scratch->totals + i,
                            berth_vec_fma(berth_vec_load(scratch->sums + i), scale,
                                          berth_vec_load(scratch->totals + i)));
        }
    }
}

static void store_panel(const job *in, int64_t panel, const float *totals) {
    const berth_tensor *y = in->args->outputs[0];
    const berth_tensor *bias = in->args->inputs[BIAS];
    const int64_t output = panel * PACKED_WIDTH;
    const int64_t count = at_most(PACKED_WIDTH, in->self->out - output);
    float start[PACKED_WIDTH] = {0};
    if (bias) {
        berth_load(berth_data(bias), bias->dtype, output, count, start);
    }
    for (int64_t row = 0; row < in->rows; ++row) {
        void *to = berth_row(y, in->first + row);
        for (int64_t i = 0; i < count; i += BERTH_LANES) {
            const float *sums = totals + (i / PANEL * in->rows + row) * PANEL + i % PANEL;
            berth_vec_store_some(to, y->dtype, output + i, output + count,
                                 berth_vec_load(sums) + berth_vec_load(start + i));
        }
    }
}

static void multiply_panel(const job *in, int64_t panel, const room *scratch) {
    const packed *self = in->self;
    memset(scratch->totals, 0, (size_t)(in->rows * PACKED_WIDTH) * sizeof(float));
    for (int64_t group = 0; group < self->groups; ++group) {
        const int64_t at = panel * self->groups + group;
        const int64_t first = group * self->group;
        if (group == 0 || in->args->inputs[ZERO_POINTS]) {
            load_zeros(in, at, scratch->zeros);
        }
        multiply_group(in, panel, (berth_span){first, at_most(first + self->group, self->pairs)},
                       scratch);
        add_group(in, at, scratch);
    }
    store_panel(in, panel, scratch->totals);
}

static void multiply_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_span panels = berth_share(pieces(in->self->out, PACKED_WIDTH), part, parts);
    room scratch = {.totals = in->scratch + part * ROOM_FLOATS};
    scratch.sums = scratch.totals + MOST_ROWS * PACKED_WIDTH;
    scratch.zeros = scratch.sums + MOST_ROWS * PACKED_WIDTH;
    scratch.widened = scratch.zeros + PACKED_WIDTH;
    for (int64_t panel = panels.first; panel < panels.end; ++panel) {
        multiply_panel(in, panel, &scratch);
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const packed *self = state;
    const int64_t rows = berth_row_count(args->inputs[X]);
    job in = {.self = self, .args = args, .x = berth_data(args->workspace)};
    in.scratch = in.x + MOST_ROWS * 2 * self->pairs;
    for (; in.first < rows; in.first += in.rows) {
        in.rows = at_most(MOST_ROWS, rows - in.first);
        berth_run(self->cpu, pack_part, &in, in.rows * self->in);
        berth_run(self->cpu, multiply_part, &in, in.rows * self->in * self->out);
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_packed_linear = {
    .size = sizeof(berth_op_impl),
    .op = "packed_linear",
    .name = "cpu.packed_linear",
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
};
