// SPDX-License-Identifier: Apache-2.0
// linear for x, weight and bias of any float dtype: y = x · weightᵀ + bias, sums in float32, one
// rounding at the end. The weight stays in its dtype, in panels (linear_panel.h).
//
// x is packed first: blocks of as many rows as a tile has (linear_matrix.h), which a tile reads
// front to back. Then every part of the pool takes its share of the panels, and sums of
// all rows over one chunk of the columns at a time: the chunk of a panel stays in the first cache
// for all rows, the chunk of x in the second for a group of panels. With many rows the chunk is
// widened to floats once; with few, the tile does it as it goes.
#include <cpu/cpu.h>

#include <cpu/linear_choice.h>
#include <cpu/linear_panel.h>

enum { X, WEIGHT, BIAS };

#define CHUNK_PAIRS 256       // of columns, with many rows
#define BLOCK_PAIRS 64        // fewer with few: so many for every block of them
#define AHEAD_BYTES 8192      // of the weight, when it is read once
#define GROUP       4         // panels that take turns with a chunk of x
#define FEW_ROWS    64        // no more of them: panels one by one, widened by the tiles
#define MOST_ROWS   512       // at a time
#define ALONE       (1 << 18) // so few products are not worth waking other threads

typedef struct linear {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t in;
    int64_t out;
    int64_t pairs;
    int64_t panels;
    berth_dtype dtype; // of the weight
    int product;       // TIMES_*, DOT_BF16 or MATRIX_BF16
    int64_t at_once;   // rows
    int64_t x_floats;  // of a packed row
    int places_way;    // as a tile has it
} linear;

// One forward, or MOST_ROWS rows of it.
typedef struct job {
    const linear *self;
    const berth_op_args *args;
    int64_t first; // row of x
    int64_t rows;
    int64_t height; // of a block, the last may have less
    float *x;       // packed
    char *scratch;  // of part 0
} job;

// ---- instances ----------------------------------------------------------------------------------

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    if (!(site->parameter_mask & UINT64_C(1) << WEIGHT)) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "'weight' is not a parameter and cannot be packed");
    }
    return BERTH_OK;
}

static uint64_t packed_bytes(const berth_op_site *site, uint64_t input) {
    const berth_value_type *type = site->inputs[WEIGHT];
    return input == WEIGHT ? (uint64_t)(pieces(type->dims[0].b, PANEL) *
                                        panel_bytes(type->dims[1].b, type->dtype))
                           : 0;
}

static berth_status pack(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                         const berth_tensor *destination) {
    (void)site;
    (void)input; // the weight is the only one with a packed size
    pack_panels(source, berth_data(destination));
    return BERTH_OK;
}

_Static_assert(BERTH_PACK_ROWS % PANEL == 0, "rows begin with a panel");

static berth_status pack_rows(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                              int64_t first, const berth_tensor *destination) {
    (void)site;
    (void)input;
    char *packed = berth_data(destination);
    pack_panels(source, packed + first / PANEL * panel_bytes(source->shape[1], source->dtype));
    return BERTH_OK;
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(linear), out_self);
    if (status == BERTH_OK) {
        const berth_value_type *weight = site->inputs[WEIGHT];
        linear *self = *out_self;
        self->cpu = device->self;
        self->dtype = weight->dtype;
        self->out = weight->dims[0].b;
        self->in = weight->dims[1].b;
        self->pairs = pieces(self->in, 2);
        self->panels = pieces(self->out, PANEL);
        self->product = product_of_panels(weight->dtype, site->inputs[X]->dtype, device->self);
        self->places_way =
            places_serve(device->self, self->panels * self->pairs * line_bytes(self->product));
        self->at_once = at_most(berth_most_rows(site, site->inputs[X]), MOST_ROWS);
        self->x_floats = panel_floats(self->in, self->product);
    }
    return status;
}

static uint64_t aligned(int64_t floats) {
    return ((uint64_t)floats * sizeof(float) + 63) / 64 * 64;
}

// Of one part: the sums of a group of panels, and a widened chunk of a panel.
static uint64_t scratch_bytes(const linear *self) {
    return aligned(GROUP * self->at_once * PANEL) + aligned(2 * CHUNK_PAIRS * PANEL);
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const linear *self = state;
    return aligned(self->at_once * self->x_floats) +
           (uint64_t)self->cpu->threads * scratch_bytes(self);
}

// ---- packing x ----------------------------------------------------------------------------------

#define PACKED_WORDS 64 // of a row at a time

// Words of a packed row: floats, or pairs of bf16; a column that x does not have is zero.
static void load_words(const job *in, int64_t row, berth_span words, float *to) {
    const berth_tensor *x = in->args->inputs[X];
    const int is_two = is_paired(in->self->product);
    const int64_t column = words.first * (1 + is_two);
    const int64_t end = words.end * (1 + is_two);
    const int64_t columns = at_most(end, in->self->in) - column;
    if (end > in->self->in) {
        memset(to, 0, (size_t)(words.end - words.first) * sizeof *to);
    }
    if (is_two) {
        memcpy(to, (const uint16_t *)berth_row(x, row) + column,
               (size_t)columns * sizeof(uint16_t));
    } else {
        berth_load(berth_row(x, row), x->dtype, column, columns, to);
    }
}

static void pack_block(const job *in, int64_t block) {
    const int64_t end = in->self->x_floats;
    const int64_t start = block * in->height;
    const int64_t rows = at_most(in->height, in->rows - start);
    float *to = in->x + start * end;
    _Alignas(64) float piece[MOST_TILE_ROWS][PACKED_WORDS];
    for (berth_span words = {0}; words.first < end; words.first = words.end) {
        words.end = at_most(words.first + PACKED_WORDS, end);
        for (int64_t row = 0; row < rows; ++row) {
            load_words(in, in->first + start + row, words, piece[row]);
        }
        tile_pack(in->self->product, piece[0], PACKED_WORDS, words.end - words.first,
                  (tile_block){to + words.first * rows, rows});
    }
}

static void pack_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_span blocks = berth_share(pieces(in->rows, in->height), part, parts);
    for (int64_t block = blocks.first; block < blocks.end; ++block) {
        pack_block(in, block);
    }
}

// ---- multiplying --------------------------------------------------------------------------------

// A chunk of the columns of a panel times all rows. `sums`: [rows][PANEL]. Every block of rows
// brings its share of what comes next nearer; a single one, what it needs itself in a moment.
static void multiply_chunk(const job *in, tile piece, int product, int64_t first_pair) {
    const int64_t words = is_paired(in->self->product) ? 1 : 2; // of x in a pair
    const int64_t blocks = pieces(in->rows, in->height);
    float *const sums = piece.sums;
    if (blocks == 1) {
        piece.next = piece.weight + AHEAD_BYTES;
    }
    piece.next_step = line_bytes(product) / blocks;
    for (int64_t start = 0; start < in->rows; start += in->height) {
        const int64_t rows = at_most(in->height, in->rows - start);
        piece.x = in->x + start * in->self->x_floats + first_pair * words * rows;
        piece.sums = sums + start * PANEL;
        piece.rows = rows;
        tile_of(product, rows)(&piece);
        piece.next += piece.pairs * piece.next_step;
    }
}

static void widen(const char *weight, int product, int64_t pairs, float *to) {
    for (int64_t column = 0; column < 2 * pairs; ++column) {
        for (int64_t output = 0; output < PANEL; output += BERTH_LANES) {
            const char *pair = weight + column / 2 * line_bytes(product);
            const int index = (int)(output / BERTH_LANES);
            berth_vec_store(to + column * PANEL + output,
                            product == TIMES_F16 ? weight_at(pair, TIMES_F16, column % 2, index)
                                                 : weight_at(pair, TIMES_BF16, column % 2, index));
        }
    }
}

// A group of panels, and where their sums go.
typedef struct group {
    int64_t first; // panel
    int64_t count;
    int64_t pairs;  // of a chunk
    float *sums;    // [count][rows][PANEL]
    float *widened; // [2 * CHUNK_PAIRS][PANEL]
} group;

static const char *weight_chunk(const job *in, int64_t panel, int64_t pair) {
    const linear *self = in->self;
    return (const char *)berth_data(in->args->inputs[WEIGHT]) +
           panel * panel_bytes(self->in, self->dtype) + pair * pair_bytes(self->dtype);
}

// The chunk that is multiplied after this one; it may lie behind the weight's end.
static const char *next_chunk(const job *in, const group *of, int64_t panel, int64_t pair) {
    const int64_t next_pair = pair + of->pairs;
    return panel + 1 < of->count         ? weight_chunk(in, of->first + panel + 1, pair)
           : next_pair < in->self->pairs ? weight_chunk(in, of->first, next_pair)
                                         : weight_chunk(in, of->first + of->count, 0);
}

static void multiply_group(const job *in, const group *of) {
    const linear *self = in->self;
    const int is_widened =
        in->rows > FEW_ROWS && (self->product == TIMES_BF16 || self->product == TIMES_F16);
    for (int64_t pair = 0; pair < self->pairs; pair += of->pairs) {
        for (int64_t panel = 0; panel < of->count; ++panel) {
            tile piece = {
                .weight = weight_chunk(in, of->first + panel, pair),
                .sums = of->sums + panel * in->rows * PANEL,
                .next = next_chunk(in, of, panel, pair),
                .pairs = at_most(of->pairs, self->pairs - pair),
                .half = tile_half(in->rows),
                .is_first = pair == 0,
                .places_way = self->places_way,
            };
            if (is_widened) {
                widen(piece.weight, self->product, piece.pairs, of->widened);
                piece.weight = (const char *)of->widened;
            }
            multiply_chunk(in, piece, is_widened ? TIMES_F32 : self->product, pair);
        }
    }
}

// One row of a panel to its place in y, `count` outputs of it; dtype is constant.
BERTH_INLINE void store_row(const float *sums, const float *bias, berth_dtype dtype, void *y,
                            int64_t count) {
    for (int64_t i = 0; i < count; i += BERTH_LANES) {
        const berth_vec sum = berth_vec_load(sums + i) + berth_vec_load(bias + i);
        if (count - i >= BERTH_LANES) {
            berth_vec_store_as(y, dtype, i, sum);
        } else {
            berth_vec_store_part(y, dtype, i, count - i, sum);
        }
    }
}

static void store_panel(const job *in, int64_t panel, const float *sums) {
    const berth_tensor *y = in->args->outputs[0];
    const berth_tensor *bias = in->args->inputs[BIAS];
    const int64_t output = panel * PANEL;
    const int64_t count = at_most(PANEL, in->self->out - output);
    const int64_t element = BERTH_DTYPE_BITS(y->dtype) / 8;
    float start[PANEL] = {0};
    if (bias) {
        berth_load(berth_data(bias), bias->dtype, output, count, start);
    }
    for (int64_t row = 0; row < in->rows; ++row, sums += PANEL) {
        void *to = (char *)berth_row(y, in->first + row) + output * element;
        if (y->dtype == BERTH_DTYPE_F32) {
            store_row(sums, start, BERTH_DTYPE_F32, to, count);
        } else if (y->dtype == BERTH_DTYPE_BF16) {
            store_row(sums, start, BERTH_DTYPE_BF16, to, count);
        } else {
            store_row(sums, start, BERTH_DTYPE_F16, to, count);
        }
    }
}

// Why equal shares: turns of a few panels, taken by whoever comes next, were no faster for one row
// and 5 % slower for sixteen (measured on two threads).
static void multiply_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const linear *self = in->self;
    const berth_span panels = berth_share(self->panels, part, parts);
    const int64_t together = in->rows > FEW_ROWS ? GROUP : 1;
    char *scratch = in->scratch + (uint64_t)part * scratch_bytes(self);
    const int64_t blocks = pieces(in->rows, in->height);
    group of = {
        .pairs = blocks == 1 ? self->pairs : at_most(BLOCK_PAIRS * blocks, CHUNK_PAIRS),
        .sums = (float *)(void *)scratch,
        .widened = (float *)(void *)(scratch + aligned(GROUP * self->at_once * PANEL)),
    };
    tiles_begin(self->product, in->rows);
    for (of.first = panels.first; of.first < panels.end; of.first += of.count) {
        of.count = at_most(together, panels.end - of.first);
        multiply_group(in, &of);
        for (int64_t panel = 0; panel < of.count; ++panel) {
            store_panel(in, of.first + panel, of.sums + panel * in->rows * PANEL);
        }
    }
    tiles_end(self->product);
}

static void run(const linear *self, berth_work_fn work, const job *in, int64_t products) {
    if (products < ALONE) {
        work(in, 0, 1);
    } else {
        self->cpu->run(self->cpu, work, in);
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const linear *self = state;
    const int64_t rows = berth_row_count(args->inputs[X]);
    job in = {.self = self, .args = args, .x = berth_data(args->workspace)};
    in.scratch = (char *)in.x + aligned(self->at_once * self->x_floats);
    for (; in.first < rows; in.first += in.rows) {
        in.rows = at_most(self->at_once, rows - in.first);
        in.height = tile_height(self->product, in.rows);
        run(self, pack_part, &in, in.rows * self->in);
        run(self, multiply_part, &in, in.rows * self->in * self->out);
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_linear = {
    .size = sizeof(berth_op_impl),
    .op = "linear",
    .name = "cpu.linear",
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
