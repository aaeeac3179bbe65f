// SPDX-License-Identifier: Apache-2.0
// What products by a weight of codes share before they are multiplied (packed_run.h): the instance,
// and what an op tells of one forward.
#ifndef BERTH_KERNELS_CPU_PACKED_JOB_H
#define BERTH_KERNELS_CPU_PACKED_JOB_H

#include <cpu/packed_tiles.h>
#include <cpu/panels.h>

#define PACKED_ROWS 512 // at a time, at most

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
    int64_t at_once; // rows
    int64_t steps;
    int64_t group; // steps, until packed_create columns
    int64_t groups;
    int64_t step_words;   // of x
    int64_t panels_bytes; // of two
    int has_sums;         // of x are needed
    int is_fixed;         // x: packed_fixed.h
    int places_way;       // as a tile has it
    uint8_t table[PACKED_TABLE];
} packed;

typedef struct packed_job packed_job;

// Words [first, first + count) of row `row` of x, as the product wants them: of TIMES_F32, pairs of
// bf16 and fixed point columns as floats.
typedef void (*packed_load_fn)(const packed_job *job, int64_t row, int64_t first, int64_t count,
                               float *to);

// One forward, at_once rows of it at a time.
struct packed_job {
    const packed *self;
    const berth_op_args *args;
    packed_load_fn load;       // words
    packed_load_fn floats;     // columns
    const berth_tensor *plain; // x, where it is floats in the weight's order, else NULL
    const int32_t *order;      // the row of x that is a row here; NULL: the same
    const berth_tensor *weight;
    const berth_tensor *scales;
    const berth_tensor *zeros;    // or NULL
    const berth_tensor *x_scales; // or NULL: 1
    const berth_tensor *sum_bias; // or NULL
    const berth_tensor *bias;     // or NULL
    const berth_tensor *factors;  // of outputs, before the bias; or NULL: 1
    int64_t first;
    int64_t rows;
    float *x;           // packed
    float *sums;        // of its groups: [groups][rows]
    float *scales_of_x; // the same
    float *scratch;     // of part 0
};

// So few that codes are widened as they are multiplied: in registers, or a line ahead of matrices.
static inline int packed_are_few(const packed_job *in) {
    const packed *self = in->self;
    return self->kind != PACKED_I8 &&
           in->rows <= (is_matrix(self->product) ? BERTH_MATRIX_ROWS : PACKED_FEW);
}

// Whether rows are multiplied by shifts (packed_e4m3.h), and x is packed for it: x with scales is
// codes, none of which is too large.
static inline int packed_by_shifts(const packed_job *in) {
    const packed *self = in->self;
    return self->kind == PACKED_E4M3 && self->product == TIMES_F32 && in->x_scales &&
           packed_are_few(in) && self->cpu->e4m3_shifts_win > 0;
}

// ---- instances ----------------------------------------------------------------------------------

// Groups can be multiplied as matrices only where they end with a line of x, of bytes or of bf16.
static inline int packed_is_of_lines(const packed *known, int product) {
    const int64_t columns = MATRIX_WORDS * (product == MATRIX_BYTES ? 4 : 2);
    return known->group >= known->in || known->group % columns == 0;
}

static inline int packed_product_of_integers(const packed *known, berth_cpu *cpu) {
    return packed_is_of_lines(known, MATRIX_BYTES) && matrices_win(cpu) ? MATRIX_BYTES
           : berth_vec_has_dot_bytes()                                  ? DOT_BYTES
                                                                        : DOT_WORDS;
}

static inline int packed_product_of_floats(const packed *known, berth_cpu *cpu) {
    const int product = product_of_panels(BERTH_DTYPE_BF16, BERTH_DTYPE_BF16, cpu);
    return product == MATRIX_BF16 && !packed_is_of_lines(known, MATRIX_BF16)
               ? product_of_floats(BERTH_DTYPE_BF16, BERTH_DTYPE_BF16, cpu)
               : product;
}

// The power of two below which whole numbers stay whose products with codes of four bits in so many
// columns have a sum in an integer.
static inline float packed_fixed_limit(packed_kind kind, int64_t columns) {
    float limit = 0x1p15f;
    while (limit * packed_largest(kind) * (float)columns > 0x1p31f) {
        limit /= 2;
    }
    return limit;
}

// Whether x loses nothing that counts in fixed point: not f32, and not down to fewer bits than f16
// has (packed_fixed.h).
static inline int packed_can_fix(const packed *known, berth_dtype x) {
    return packed_is_half(known->kind) && x != BERTH_DTYPE_F32 &&
           packed_fixed_limit(known->kind, at_most(known->group, known->in)) >= 0x1p12f;
}

// The product for what is known when x is of that dtype.
static inline int packed_product_of(const packed *known, berth_dtype x, berth_cpu *cpu) {
    const packed_kind kind = known->kind;
    if (kind == PACKED_I8) {
        return packed_product_of_integers(known, cpu);
    }
    const int is_exact = x == BERTH_DTYPE_BF16 || x == BERTH_DTYPE_F8_E4M3FN;
    const int can_widen = kind == PACKED_U4 || (kind != PACKED_E2M1 && berth_vec_has_pick_bytes());
    const int product = is_exact && can_widen ? packed_product_of_floats(known, cpu) : TIMES_F32;
    if (kind == PACKED_E4M3 && !is_paired(product) && cpu->e4m3_shifts_win == 0) {
        cpu->e4m3_shifts_win = e4m3_choose();
    }
    return is_paired(product) ? product : packed_can_fix(known, x) ? DOT_WORDS : TIMES_F32;
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

static inline void packed_init(packed *self, int product, berth_cpu *cpu) {
    const int64_t columns = packed_columns(self->kind);
    self->product = product;
    self->steps = pieces(self->in, columns);
    self->group = pieces(at_most(self->group, self->in), columns);
    self->groups = pieces(self->steps, self->group);
    self->is_fixed = packed_is_fixed(self->kind, self->product);
    self->step_words = self->product == TIMES_F32                              ? columns
                       : self->kind == PACKED_I8 && self->product != DOT_WORDS ? 1
                                                                               : columns / 2;
    self->panels_bytes = packed_panels_bytes(self->kind, self->in);
    self->places_way = places_serve(cpu, pieces(self->out, PACKED_WIDTH) * self->panels_bytes);
    self->has_sums = packed_has_sums(self->kind, self->product);
    packed_fill_table(self);
}

// Of what is known: kind, zero, sizes and the columns of a group. The op's first input is x.
static inline berth_status packed_create(const berth_op_site *site, const berth_device *device,
                                         const packed *known, void **out_self) {
    const berth_status status = berth_instance_new(site, 2 * sizeof(packed), out_self);
    if (status == BERTH_OK) {
        packed *self = *out_self;
        const int product =
            packed_product_of(known, site->inputs[0]->dtype, (berth_cpu *)device->self);
        for (int i = 0; i < 2; ++i) {
            self[i] = *known;
            self[i].host = site->host;
            self[i].at_once = at_most(berth_most_rows(site, site->inputs[0]), PACKED_ROWS);
            packed_init(&self[i], i == 0 ? product : TIMES_F32, device->self);
        }
    }
    return status;
}

// Columns of a group, of which the last may have fewer.
static inline int64_t packed_group_columns(const packed *self) {
    return self->group * packed_columns(self->kind);
}

// Words of a packed row.
static inline int64_t packed_x_words(const packed *self) {
    return tile_words(self->product, self->steps * self->step_words);
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
