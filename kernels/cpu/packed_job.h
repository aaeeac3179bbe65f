// SPDX-License-Identifier: Apache-2.0
// What products by a weight of codes share before they are multiplied (packed_run.h): the instance,
// what an op tells of one forward, and how x is packed.
#ifndef BERTH_KERNELS_CPU_PACKED_JOB_H
#define BERTH_KERNELS_CPU_PACKED_JOB_H

#include <cpu/packed_tile.h>
#include <cpu/panels.h>

#define PACKED_ROWS 256 // at a time

// The instance of both ops: two of these, the second with the product of floats, for rows of x that
// are not finite.
typedef struct packed {
    const berth_host *host;
    const berth_cpu *cpu;
    packed_kind kind;
    int product;
    float zero; // of codes without zero points
    int64_t in;
    int64_t out;
    int64_t steps;
    int64_t group; // steps, until packed_create columns
    int64_t groups;
    int64_t step_words; // of x
    int64_t panel_bytes;
    int has_sums; // of x are needed
    uint8_t table[PACKED_TABLE];
} packed;

typedef struct packed_job packed_job;

// Words [first, first + count) of row `row` of x, as the product wants them: of TIMES_F32 and
// DOT_BF16 columns as floats.
typedef void (*packed_load_fn)(const packed_job *job, int64_t row, int64_t first, int64_t count,
                               float *to);

// One forward, PACKED_ROWS rows of it at a time.
struct packed_job {
    const packed *self;
    const berth_op_args *args;
    packed_load_fn load;       // words
    packed_load_fn floats;     // columns
    const berth_tensor *plain; // x, where it is floats in the weight's order, else NULL
    const berth_tensor *weight;
    const berth_tensor *scales;
    const berth_tensor *zeros;    // or NULL
    const berth_tensor *x_scales; // or NULL: 1
    const berth_tensor *sum_bias; // or NULL
    const berth_tensor *bias;     // or NULL
    int64_t first;
    int64_t rows;
    float *x;           // packed
    float *sums;        // of its groups: [groups][rows]
    float *scales_of_x; // the same
    float *scratch;     // of part 0
};

// ---- instances ----------------------------------------------------------------------------------

// The product for codes of that kind when x is of that dtype.
static inline int packed_product_of(packed_kind kind, berth_dtype x, berth_cpu *cpu) {
    if (kind == PACKED_I8) {
        return berth_vec_has_dot_bytes() ? DOT_BYTES : DOT_WORDS;
    }
    const int is_exact = x == BERTH_DTYPE_BF16 || x == BERTH_DTYPE_F8_E4M3FN;
    const int can_widen = kind == PACKED_U4 || (kind != PACKED_E2M1 && berth_vec_has_pick_bytes());
    return is_exact && can_widen &&
                   panel_product_of(BERTH_DTYPE_BF16, BERTH_DTYPE_BF16, cpu) == DOT_BF16
               ? DOT_BF16
               : TIMES_F32;
}

static inline void packed_fill_table(packed *self) {
    for (int i = 0; i < PACKED_TABLE / 2; ++i) {
        const float number = self->kind == PACKED_U8 ? (float)i + 0.5f : berth_from_f8((uint8_t)i);
        const uint16_t bits = berth_to_bf16(number);
        self->table[i] = (uint8_t)bits;
        self->table[PACKED_TABLE / 2 + i] = (uint8_t)(bits >> 8);
    }
}

// Groups can be multiplied by themselves only where they end with a step.
static inline int packed_has_group(packed_kind kind, int64_t group, int64_t in) {
    return group >= in || group % packed_columns(kind) == 0;
}

static inline void packed_init(packed *self, int product) {
    const int64_t columns = packed_columns(self->kind);
    self->product = product;
    self->steps = pieces(self->in, columns);
    self->group = pieces(at_most(self->group, self->in), columns);
    self->groups = pieces(self->steps, self->group);
    self->step_words = self->product == TIMES_F32   ? columns
                       : self->product == DOT_BYTES ? 1
                       : self->product == DOT_WORDS ? 2
                                                    : columns / 2;
    self->panel_bytes = packed_panel_bytes(self->kind, self->in);
    self->has_sums = packed_excess(self->kind, self->product) != 0;
    packed_fill_table(self);
}

// Of what is known: kind, zero, sizes and the columns of a group. The op's first input is x.
static inline berth_status packed_create(const berth_op_site *site, const berth_device *device,
                                         const packed *known, void **out_self) {
    const berth_status status = berth_instance_new(site, 2 * sizeof(packed), out_self);
    if (status == BERTH_OK) {
        packed *self = *out_self;
        const int product =
            packed_product_of(known->kind, site->inputs[0]->dtype, (berth_cpu *)device->self);
        for (int i = 0; i < 2; ++i) {
            self[i] = *known;
            self[i].host = site->host;
            packed_init(&self[i], i == 0 ? product : TIMES_F32);
        }
    }
    return status;
}

// Words of a packed row.
static inline int64_t packed_x_words(const packed *self) {
    return self->steps * self->step_words;
}

// ---- packing x ----------------------------------------------------------------------------------

#define PACKED_WORDS 64 // of a row at a time

static inline void packed_load_words(const packed_job *in, int64_t row, int64_t first,
                                     int64_t count, float *to) {
    float values[2 * PACKED_WORDS] = {0};
    const int is_paired = in->self->product == DOT_BF16;
    if (!is_paired && in->self->product != TIMES_F32) {
        in->load(in, row, first, count, to);
        return;
    }
    const int64_t column = first * (1 + is_paired);
    if (is_paired && in->plain && column + 2 * count <= in->self->in) { // bf16 by bf16
        memcpy(to, (const uint16_t *)berth_row(in->plain, row) + column, (size_t)count * 4);
        return;
    }
    const int64_t there = at_most(count * (1 + is_paired), in->self->in - column);
    if (there > 0) {
        in->load(in, row, column, there, values);
    }
    if (is_paired) {
        panel_join(values, count, to);
    } else {
        memcpy(to, values, (size_t)count * sizeof(float));
    }
}

static inline void packed_pack_block(const packed_job *in, int64_t first, int64_t end) {
    const int64_t words = packed_x_words(in->self);
    float *to = in->x + first * words;
    float piece[BERTH_TILE_ROWS][PACKED_WORDS];
    for (int64_t word = 0; word < words; word += PACKED_WORDS) {
        const int64_t count = at_most(PACKED_WORDS, words - word);
        for (int64_t row = first; row < end; ++row) {
            packed_load_words(in, in->first + row, word, count, piece[row - first]);
        }
        berth_transpose(piece[0], PACKED_WORDS, end - first, count, to + word * (end - first));
    }
}

// The sum of columns [first, end) of a row, lane by lane.
static inline float packed_sum_plain(const packed_job *in, int64_t row, int64_t first,
                                     int64_t end) {
    const void *x = berth_row(in->plain, row);
    berth_vec sum = berth_vec_of(0);
    for (int64_t i = first; i < end; i += BERTH_LANES) {
        sum += berth_vec_load_some(x, in->plain->dtype, i, end);
    }
    return berth_vec_sum(sum);
}

static inline float packed_sum(const packed_job *in, int64_t row, int64_t first, int64_t end) {
    if (in->plain) {
        return packed_sum_plain(in, row, first, end);
    }
    berth_vec sum = berth_vec_of(0);
    float values[PACKED_WORDS];
    for (int64_t column = first; column < end; column += PACKED_WORDS) {
        const int64_t count = at_most(PACKED_WORDS, end - column);
        in->floats(in, row, column, count, values);
        for (int64_t i = 0; i < count; i += BERTH_LANES) {
            sum += berth_vec_load_some(values, BERTH_DTYPE_F32, i, count);
        }
    }
    return berth_vec_sum(sum);
}

// The scale of a row of x for a group.
static inline float packed_x_scale(const packed_job *in, int64_t row, int64_t group) {
    const berth_tensor *scales = in->x_scales;
    if (!scales) {
        return 1;
    }
    const int64_t length = berth_row_length(scales);
    const int is_one = length == 1 && berth_row_count(scales) == 1;
    const float *of_row = berth_row(scales, is_one ? 0 : row);
    return of_row[length == 1 ? 0 : group];
}

static inline void packed_pack_part(const void *work, int64_t part, int64_t parts) {
    const packed_job *in = work;
    const packed *self = in->self;
    const int64_t group = self->group * packed_columns(self->kind);
    const int64_t height = panel_height(in->rows);
    const berth_span blocks = berth_share(pieces(in->rows, height), part, parts);
    for (int64_t first = blocks.first * height; first < at_most(blocks.end * height, in->rows);
         first += height) {
        packed_pack_block(in, first, at_most(first + height, in->rows));
    }
    const berth_span rows = berth_share(in->rows, part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        for (int64_t i = 0; i < self->groups; ++i) {
            const int64_t at = in->first + row;
            in->scales_of_x[i * in->rows + row] = packed_x_scale(in, at, i);
            in->sums[i * in->rows + row] =
                self->has_sums ? packed_sum(in, at, i * group, at_most((i + 1) * group, self->in))
                               : 0;
        }
    }
}

// ---- beside the codes ---------------------------------------------------------------------------

static inline packed_groups packed_groups_of(const packed_job *in, int64_t panel, float *totals) {
    const packed *self = in->self;
    const int64_t at = panel * self->groups * PACKED_WIDTH;
    return (packed_groups){
        .scales = (const char *)berth_data(in->scales) +
                  at * (int64_t)(BERTH_DTYPE_BITS(in->scales->dtype) / 8),
        .dtype = in->scales->dtype,
        .zeros = in->zeros ? (const uint8_t *)berth_data(in->zeros) + at : NULL,
        .zero = self->zero,
        .factor = packed_factor(self->kind, self->product),
        .excess = packed_excess(self->kind, self->product),
        .x_sums = in->sums,
        .x_scales = in->scales_of_x,
        .totals = totals,
    };
}

#endif
