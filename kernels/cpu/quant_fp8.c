// SPDX-License-Identifier: Apache-2.0
// quant_fp8. Two sweeps of what shares a scale, the second out of the cache: the largest magnitude,
// then the codes, while the next row is fetched. The operations are the reference's, so codes and
// scales are its bits.
#include <cpu/cpu.h>
#include <cpu/fp8_codes.h>
#include <cpu/fp8_table.h>
#include <cpu/magnitude.h>
#include <cpu/simd.h>

#include <fp8.h>

enum { X, SCALE, SCALE_UB };
enum { Q, SCALE_OUT };

#define TWO          ((int64_t)(2 * BERTH_LANES))
#define FOUR         ((int64_t)(4 * BERTH_LANES))
#define COMMON_GROUP 128  // columns
#define ALONE        4096 // so few elements a part are not worth waking other threads

typedef struct quant {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t group;    // columns of a dynamic group, 0: whole rows
    int64_t channels; // columns, where each has a scale of its own, else 0
    int is_static;
    int is_per_tensor;
    int is_by_column;
    int is_ue8m0;
    int has_table;
    vec_f8_table table[]; // 1 or 0
} quant;

typedef struct job {
    const quant *self;
    const berth_op_args *args;
    float *largest; // [parts], per tensor
    float *factors; // [parts, 2, columns], by channel: 1 / scale
} job;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return !berth_site_attribute(site, "column_major_scales")->i64 || site->inputs[X]->ndim == 2
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "scales by column are of one matrix here");
}

// For bf16 by the scales of the common group.
static int needs_table(const berth_op_site *site) {
    return berth_site_attribute(site, "group_shape")->i64s[1] == COMMON_GROUP &&
           !berth_site_attribute(site, "static")->i64 &&
           site->inputs[X]->dtype == BERTH_DTYPE_BF16 && berth_vec_has_pick_bytes();
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const int has_table = needs_table(site);
    const uint64_t bytes = sizeof(quant) + (has_table ? sizeof(vec_f8_table) : 0);
    const berth_status status = berth_instance_new(site, bytes, out_self);
    if (status == BERTH_OK) {
        const int64_t *group = berth_site_attribute(site, "group_shape")->i64s;
        const berth_value_type *x = site->inputs[X];
        quant *self = *out_self;
        self->cpu = device->self;
        reads_begin(site, x, device->self);
        self->is_static = berth_site_attribute(site, "static")->i64 != 0;
        self->is_per_tensor = group[0] == -1;
        self->channels = self->is_static && group[1] == 1 ? x->dims[x->ndim - 1].b : 0;
        self->group = group[1] > 0 ? group[1] : 0;
        self->is_by_column = berth_site_attribute(site, "column_major_scales")->i64 != 0;
        self->is_ue8m0 = berth_site_attribute(site, "use_ue8m0")->i64 != 0;
        self->has_table = has_table;
        if (has_table) {
            vec_f8_make_table(self->table);
        }
    }
    return status;
}

// ---- elements -----------------------------------------------------------------------------------

// What becomes of x before it is a code: it is divided or multiplied by a scale that was made from
// it, or multiplied by one that may be any, so that codes may be out of range, or NaN. TURNING: the
// second, while the next row's largest magnitude is found.
typedef enum quant_way { DIVIDED, TURNING, MULTIPLIED, BY_CHANNEL } quant_way;

// What a sweep is compiled for.
typedef struct sweep {
    berth_dtype dtype;
    quant_way way;
    int is_picked; // the machine picks bytes of bf16
    int64_t group; // of so many columns are all groups of a row; 0: of as many as there are
    int is_past;   // codes of groups go past the caches
} sweep;

// Columns of a row, and the number, or the vector, that they are divided or multiplied by.
typedef struct piece {
    const void *row;
    berth_next_row next;
    uint8_t *q;
    berth_span columns;
    float scale;
    float one_over;       // 1 / scale, of one that divides
    const float *factors; // of the whole row, by channel, in order
    const float *turned;  // the same as bf16 is loaded
    int is_past;          // codes go past the caches
} piece;

// Whatever x and the scale are.
BERTH_SELDOM void quantise_slowly(sweep as, const piece *of, berth_span columns) {
    const berth_vec scale = berth_vec_of(of->scale);
    for (int64_t i = columns.first; i < columns.end; i += BERTH_LANES) {
        const int64_t left = columns.end - i;
        const berth_vec x = berth_vec_load_some(of->row, as.dtype, i, columns.end);
        const berth_vec factors =
            as.way == BY_CHANNEL ? berth_vec_load_some(of->factors, BERTH_DTYPE_F32, i, columns.end)
                                 : scale;
        const berth_vec_bytes codes = vec_to_f8(as.way == DIVIDED ? x / scale : x * factors);
        memcpy(of->q + i, &codes, (size_t)(left < BERTH_LANES ? left : BERTH_LANES));
    }
}

BERTH_INLINE int is_by_turns(sweep as) {
    return as.dtype == BERTH_DTYPE_BF16;
}

BERTH_INLINE int is_any(sweep as) {
    return as.way == MULTIPLIED || as.way == BY_CHANNEL;
}

BERTH_INLINE berth_vec_bits sum_of(sweep as, const piece *of, berth_vec x, int64_t first) {
    const berth_vec scale = berth_vec_of(of->scale);
    if (as.way == DIVIDED) {
        return vec_f8_beside(berth_vec_divide(x, scale, berth_vec_of(of->one_over)));
    }
    const float *factors = is_by_turns(as) ? of->turned : of->factors;
    return vec_f8_beside(x * (as.way == BY_CHANNEL ? berth_vec_load(factors + first) : scale));
}

// The codes of two vectors, and the halves of the sums that have their signs.
typedef struct codes {
    berth_vec_words of;
    berth_vec_words upper;
} codes;

BERTH_INLINE codes codes_of_sums(sweep as, berth_vec_words upper, berth_vec_words lower,
                                 berth_vec_words *largest) {
    if (!is_any(as)) {
        return (codes){vec_f8_codes(upper, lower), upper};
    }
    // What stands at the end of a NaN: nothing, of bf16.
    const berth_vec_words rest = as.dtype == BERTH_DTYPE_BF16 ? lower : lower & 0x3f;
    const berth_vec_words made = vec_f8_codes(upper & 0x7fff, rest);
    const berth_vec_words most = (berth_vec_words){0} + (VEC_F8_BASE + 0x7e);
    *largest = berth_vec_larger_words(made, *largest);
    return (codes){berth_vec_smaller(made, most), upper};
}

// Whether one of the codes was that of a NaN.
static int has_nan(berth_vec_words largest) {
    const berth_vec_words infinity = (berth_vec_words){0} + VEC_F8_INFINITY;
    const berth_vec_words is_nan = (berth_vec_words)(largest > infinity);
    uint64_t parts[sizeof is_nan / sizeof(uint64_t)];
    uint64_t any = 0;
    memcpy(parts, &is_nan, sizeof parts);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) {
        any |= parts[i];
    }
    return any != 0;
}

// Two vectors of columns, in bf16 the even and the odd ones. `largest` is that of all codes before
// they are bound.
BERTH_INLINE codes codes_of_two(sweep as, const piece *of, int64_t first,
                                berth_vec_words *largest) {
    const int64_t second = first + BERTH_LANES;
    if (is_by_turns(as)) {
        const berth_vec pairs = berth_vec_load((const uint16_t *)of->row + first);
        const berth_vec_bits even = sum_of(as, of, berth_vec_first_of(pairs), first);
        const berth_vec_bits odd = sum_of(as, of, berth_vec_second_of(pairs), second);
        return codes_of_sums(as, berth_vec_turn_upper(even, odd), berth_vec_turn_lower(even, odd),
                             largest);
    }
    const berth_vec_bits a = sum_of(as, of, berth_vec_load_as(of->row, as.dtype, first), first);
    const berth_vec_bits b = sum_of(as, of, berth_vec_load_as(of->row, as.dtype, second), second);
    return codes_of_sums(as, berth_vec_join_upper(a, b), berth_vec_join_lower(a, b), largest);
}

// Of words the lower bytes of the codes and the upper ones of what has the signs.
BERTH_INLINE berth_vec_bits pick_codes(codes a, codes b) {
    const vec_f8_bytes even = vec_f8_lower_bytes();
    const berth_vec_bits made =
        berth_vec_pick_bytes((berth_vec_bits)a.of, (berth_vec_bits)b.of, (berth_vec_bits)even);
    const berth_vec_bits signs = berth_vec_pick_bytes(
        (berth_vec_bits)a.upper, (berth_vec_bits)b.upper, (berth_vec_bits)(even + 1));
    return vec_f8_signed_bytes(made, signs);
}

BERTH_INLINE void quantise_four(sweep as, const piece *of, int64_t first,
                                berth_vec_words *largest) {
    const codes a = codes_of_two(as, of, first, largest);
    const codes b = codes_of_two(as, of, first + TWO, largest);
    if (as.is_picked) {
        berth_vec_put_codes(of->is_past, of->q + first, (berth_vec)pick_codes(a, b));
        return;
    }
    const berth_vec_words low = vec_f8_signed(a.of, a.upper);
    const berth_vec_words high = vec_f8_signed(b.of, b.upper);
    berth_vec_put_codes(of->is_past, of->q + first,
                        (berth_vec)berth_vec_pack_as(as.dtype, low, high));
}

// Returns the largest magnitude of the next row, if it is TURNING. Why both halves side by side: by
// one scale in float32 on one thread of a Sapphire Rapids that is 0.9 to 1.09 of a copy's speed,
// one behind the other 0.87.
BERTH_INLINE float quantise_as(sweep as, const piece *all) {
    piece of = *all; // no store changes it, for all that the compiler knows
    berth_vec_words largest = {0};
    berth_vec_largest_so_far next = {0};
    const int64_t steps = (of.columns.end - of.columns.first) / FOUR;
    of.is_past = of.is_past && berth_vec_can_pass(of.q + of.columns.first);
    for (int64_t turn = 0; turn < steps; ++turn) {
        const int64_t step = berth_step_at(turn, steps, of.next.ahead.is_far);
        const int64_t i = of.columns.first + step * FOUR;
        if (as.way == TURNING) {
            berth_vec_look_on(&of.next, as.dtype, i, &next);
        } else {
            berth_fetch(of.row, as.dtype, i, FOUR, of.next.ahead);
        }
        quantise_four(as, &of, i, &largest);
    }
    const berth_span rest = {of.columns.first + steps * FOUR, of.columns.end};
    if (is_any(as) && has_nan(largest)) {
        berth_past_end();
        quantise_slowly(as, all, of.columns);
    } else if (rest.first < rest.end) {
        quantise_slowly(as, all, rest);
    }
    return as.way == TURNING ? berth_vec_look_end(&of.next, as.dtype, rest, &next) : 0;
}

BERTH_INLINE float quantise_way(quant_way way, berth_dtype dtype, const piece *of) {
    if (dtype == BERTH_DTYPE_F32) {
        return quantise_as((sweep){.dtype = BERTH_DTYPE_F32, .way = way}, of);
    }
    if (dtype == BERTH_DTYPE_F16) {
        return quantise_as((sweep){.dtype = BERTH_DTYPE_F16, .way = way}, of);
    }
    return berth_vec_has_pick_bytes()
               ? quantise_as((sweep){.dtype = BERTH_DTYPE_BF16, .way = way, .is_picked = 1}, of)
               : quantise_as((sweep){.dtype = BERTH_DTYPE_BF16, .way = way}, of);
}

static float multiply_turning(berth_dtype dtype, const piece *of) {
    return quantise_way(TURNING, dtype, of);
}

// By 1 / scale.
static void multiply(berth_dtype dtype, piece *of, float scale) {
    of->scale = 1.0f / scale;
    if (isfinite(of->scale)) {
        (void)quantise_way(MULTIPLIED, dtype, of);
    } else {
        quantise_slowly((sweep){.dtype = dtype, .way = MULTIPLIED}, of, of->columns);
    }
}

static void multiply_channels(berth_dtype dtype, const piece *of) {
    (void)quantise_way(BY_CHANNEL, dtype, of);
}

static berth_ahead lead_of(const job *in) {
    return reads_ahead(in->self->cpu, BERTH_SWEEP_LEAD, BERTH_SWEEP_LEAD_FAR);
}

// All of a row of some; the last one is its own next.
static piece piece_of(const job *in, berth_span rows, int64_t row) {
    const berth_tensor *x = in->args->inputs[X];
    const int64_t elements = berth_row_count(x) * berth_row_length(x);
    return (piece){
        .row = berth_row(x, row),
        .next.row = berth_row(x, row + 1 < rows.end ? row + 1 : row),
        .next.ahead = lead_of(in),
        .q = berth_row(in->args->outputs[Q], row),
        .columns = {0, berth_row_length(x)},
        .is_past = berth_is_past(elements, BERTH_DTYPE_F8_E4M3FN),
    };
}

// ---- groups -------------------------------------------------------------------------------------

// Bytes from what is looked at to what is fetched: in 16 bits 8192 and 16384 are slower, in float32
// it is the same place of the next lot.
static berth_ahead group_lead(const job *in) {
    const int64_t near = in->args->inputs[X]->dtype == BERTH_DTYPE_F32 ? 8192 : 12288;
    return reads_ahead(in->self->cpu, near, BERTH_SWEEP_LEAD_FAR);
}

// What all groups of a part have in common.
typedef struct groups {
    const job *in;
    berth_rows x;
    berth_rows q;
    berth_rows scales;
    int64_t scale_step; // from a group's to that of the next one
    berth_span rows;
    int64_t width;
    int64_t group; // columns
    berth_ahead lead;
    const vec_f8_table *table; // NULL: none
} groups;

// As many groups of a row as a vector has lanes: one by one the scale of each would wait for its
// own steps. `overs` are 1 / scale.
typedef struct lot {
    const void *x;
    uint8_t *q;
    int64_t row;
    int64_t first; // column
    int64_t count; // groups, 0 behind the last row
    float largest[BERTH_LANES];
    float scales[BERTH_LANES];
    float overs[BERTH_LANES];
    int32_t table_rows[BERTH_LANES];
    uint32_t unknown; // bits: the table has no row for the scale
} lot;

BERTH_INLINE berth_span group_of(sweep as, const groups *in, const lot *of, int64_t at) {
    const int64_t width = as.group > 0 ? as.group : in->group;
    const int64_t first = of->first + at * width;
    const int64_t end = first + width;
    return (berth_span){first, as.group > 0 || end < in->width ? end : in->width};
}

static void lot_begin(const groups *in, lot *of, int64_t row, int64_t first) {
    const int64_t left = (in->width - first + in->group - 1) / in->group;
    of->row = row;
    of->first = first;
    of->count = 0;
    if (row < in->rows.end) {
        of->x = berth_rows_at(&in->x, row);
        of->q = berth_rows_at(&in->q, row);
        of->count = left < BERTH_LANES ? left : BERTH_LANES;
    }
}

// To the lot behind one, in the next row if there is none in this one.
static void lot_behind(const groups *in, const lot *of, lot *behind) {
    const int64_t first = of->first + BERTH_LANES * in->group;
    const int is_same = first < in->width;
    lot_begin(in, behind, is_same ? of->row : of->row + 1, is_same ? first : 0);
}

// What is largest in every lane of a group.
BERTH_INLINE berth_vec_ints look_at_group(sweep as, const groups *in, const lot *of, int64_t at) {
    const berth_dtype dtype = as.dtype;
    const berth_span columns = group_of(as, in, of, at);
    berth_vec_largest_so_far largest = {0};
    int64_t i = columns.first;
    BERTH_UNROLL
    for (int64_t k = 0; k < as.group; k += BERTH_LARGEST_STEP, i += BERTH_LARGEST_STEP) {
        berth_fetch(of->x, dtype, i, BERTH_LARGEST_STEP, in->lead);
        berth_vec_look(of->x, dtype, i, &largest);
    }
    for (; as.group == 0 && i + BERTH_LARGEST_STEP <= columns.end; i += BERTH_LARGEST_STEP) {
        berth_fetch(of->x, dtype, i, BERTH_LARGEST_STEP, in->lead);
        berth_vec_look(of->x, dtype, i, &largest);
    }
    return berth_vec_look_rest(of->x, dtype, (berth_span){i, as.group > 0 ? i : columns.end},
                               &largest);
}

// berth_f8_scale of every lane, of what was found in the groups.
BERTH_INLINE void make_scales(const job *in, lot *of, const berth_vec_ints found[BERTH_LANES]) {
    berth_vec_ints each[BERTH_LANES];
    BERTH_UNROLL
    for (int i = 0; i < BERTH_LANES; ++i) {
        each[i] = found[i];
    }
    const berth_vec largest = berth_vec_largest_each(each, BERTH_LANES, 0);
    const berth_vec least = berth_vec_of(BERTH_F8_LEAST_SCALE);
    const berth_vec wanted = largest / berth_vec_of(BERTH_F8_MAX);
    const berth_vec scales = berth_vec_if_less(wanted, least, least, wanted);
    berth_vec_store(of->largest, largest);
    berth_vec_store(of->scales, scales);
    for (int64_t i = 0; i < of->count && in->self->is_ue8m0; ++i) {
        of->scales[i] = berth_f8_power_of_two(of->scales[i]);
    }
    berth_vec_store(of->overs, berth_vec_of(1) / berth_vec_load(of->scales));
    if (in->self->has_table) {
        of->unknown = vec_f8_rows(largest, berth_vec_load(of->scales), of->table_rows);
    }
}

BERTH_INLINE void write_scales(const groups *in, const lot *of) {
    const int64_t first = of->first / in->group;
    if (of->count == BERTH_LANES && in->scale_step == 1) {
        berth_vec_store((float *)berth_rows_at(&in->scales, of->row) + first,
                        berth_vec_load(of->scales));
        return;
    }
    float *to = in->in->self->is_by_column ? (float *)berth_data(in->scales.tensor) + of->row
                                           : berth_rows_at(&in->scales, of->row);
    for (int64_t i = 0; i < of->count; ++i) {
        to[(first + i) * in->scale_step] = of->scales[i];
    }
}

// Why no call of quantise_as: a group is so few steps that what comes before them counts. What is
// not finite makes a scale that is not.
BERTH_INLINE void divide_group(sweep as, const groups *in, const lot *of, int64_t at) {
    const piece group = {
        .row = of->x,
        .q = of->q,
        .columns = group_of(as, in, of, at),
        .scale = of->scales[at],
        .one_over = of->overs[at],
        .is_past = as.is_past,
    };
    berth_vec_words unbound = {0}; // no code is out of range
    int64_t i = group.columns.first;
    for (; i + FOUR <= group.columns.end && group.scale < INFINITY; i += FOUR) {
        quantise_four(as, &group, i, &unbound);
    }
    if (i < group.columns.end) {
        quantise_slowly(as, &group, (berth_span){i, group.columns.end});
    }
}

// Groups of a lot whose codes the table has not: bits.
BERTH_SELDOM void divide_groups(const groups *in, const lot *of, uint32_t which) {
    for (int64_t i = 0; i < of->count; ++i) {
        if (which >> i & 1) {
            divide_group((sweep){.dtype = BERTH_DTYPE_BF16, .is_picked = 1}, in, of, i);
        }
    }
}

// Codes of a group out of the table; 1: not all of them are there, and none is written.
BERTH_INLINE uint32_t look_up_group(sweep as, const uint16_t *x, uint8_t *q, const uint8_t *row,
                                    float scale) {
    const vec_f8_lookup by = vec_f8_lookup_of(row, scale);
    berth_vec_bits made[COMMON_GROUP / FOUR];
    berth_vec_bits most = {0};
    BERTH_UNROLL
    for (int64_t i = 0; i < COMMON_GROUP / FOUR; ++i) {
        const berth_vec_words a = (berth_vec_words)berth_vec_load(x + i * FOUR);
        const berth_vec_words b = (berth_vec_words)berth_vec_load(x + i * FOUR + TWO);
        made[i] = vec_f8_look_up(&by, a, b, &most);
    }
    if (!vec_f8_are_found(most)) {
        return 1;
    }
    BERTH_UNROLL
    for (int64_t i = 0; i < COMMON_GROUP / FOUR; ++i) {
        berth_vec_put_codes(as.is_past, q + i * FOUR, (berth_vec)made[i]);
    }
    return 0;
}

// A lot's codes out of the table, while the groups of another one are looked at. Why what is left
// over comes last: a call would take all registers.
BERTH_INLINE void look_up_lot(sweep as, const groups *in, const lot *of, const lot *ahead,
                              berth_vec_ints found[BERTH_LANES]) {
    const uint16_t *x = (const uint16_t *)of->x + of->first;
    const vec_f8_table *table = in->table;
    uint8_t *q = of->q + of->first;
    uint32_t left = of->unknown;
    for (int64_t i = 0; i < BERTH_LANES; ++i, x += as.group, q += as.group) {
        found[i] = look_at_group(as, in, ahead, i);
        left |= look_up_group(as, x, q, table->of[of->table_rows[i]], of->scales[i]) << i;
    }
    if (left != 0) {
        divide_groups(in, of, left);
    }
}

// A lot's codes, while the groups of one two lots ahead are looked at.
BERTH_INLINE void quantise_lot(sweep as, const groups *in, const lot *of, const lot *ahead,
                               berth_vec_ints found[BERTH_LANES]) {
    if (as.is_picked && as.group > 0 && of->count == BERTH_LANES && ahead->count == BERTH_LANES) {
        look_up_lot(as, in, of, ahead, found);
        return;
    }
    // In 16 bits the halves of a lot are in one page.
    const int is_straight = as.dtype != BERTH_DTYPE_F32 || in->lead.is_far;
    for (int64_t turn = 0; turn < BERTH_LANES; ++turn) {
        const int64_t i = berth_step_at(turn, BERTH_LANES, is_straight);
        if (i < ahead->count) {
            found[i] = look_at_group(as, in, ahead, i);
        }
        if (i < of->count) {
            divide_group(as, in, of, i);
        }
    }
}

// Why the next lot's scales come before this one's codes: what they are made of waits for each
// other, and codes do not. Why the lot after it is looked at meanwhile: memory is read all the
// time.
BERTH_INLINE void quantise_groups_as(sweep as, const job *all, berth_span rows) {
    const berth_tensor *x = all->args->inputs[X];
    const berth_tensor *scales = all->args->outputs[SCALE_OUT];
    const groups in = {
        .in = all,
        .x = berth_rows_of(x),
        .q = berth_rows_of(all->args->outputs[Q]),
        .scales = berth_rows_of(scales),
        .scale_step = all->self->is_by_column ? scales->strides[0] : 1,
        .rows = rows,
        .width = berth_row_length(x),
        .group = all->self->group,
        .lead = group_lead(all),
        .table = all->self->has_table ? all->self->table : NULL,
    };
    berth_vec_ints found[BERTH_LANES] = {{0}};
    lot lots[4] = {{0}};
    lot_begin(&in, &lots[0], rows.first, 0);
    quantise_lot(as, &in, &lots[3], &lots[0], found);
    make_scales(all, &lots[0], found);
    lot_behind(&in, &lots[0], &lots[1]);
    quantise_lot(as, &in, &lots[3], &lots[1], found);
    for (int i = 0; lots[i].count > 0; i = (i + 1) % 4) {
        lot *next = &lots[(i + 1) % 4];
        lot *ahead = &lots[(i + 2) % 4];
        lot_behind(&in, next, ahead);
        make_scales(all, next, found);
        write_scales(&in, &lots[i]);
        quantise_lot(as, &in, &lots[i], ahead, found);
    }
}

// Whether codes of all groups of a step are stored past the caches.
static int groups_are_past(const job *in) {
    const int64_t step = (int64_t)sizeof(berth_vec);
    const berth_tensor *x = in->args->inputs[X];
    const berth_rows q = berth_rows_of(in->args->outputs[Q]);
    return berth_is_past(berth_row_count(x) * berth_row_length(x), BERTH_DTYPE_F8_E4M3FN) &&
           in->self->group % step == 0 && q.is_even && q.step % step == 0 &&
           berth_vec_can_pass(q.first);
}

BERTH_INLINE void quantise_groups_of(sweep as, const job *in, berth_span rows) {
    const int64_t width = berth_row_length(in->args->inputs[X]);
    const int is_past = groups_are_past(in);
    if (as.dtype == BERTH_DTYPE_F16 || in->self->group != COMMON_GROUP ||
        width % COMMON_GROUP != 0) {
        as.is_past = is_past;
        quantise_groups_as(as, in, rows);
        return;
    }
    as.group = COMMON_GROUP;
    if (is_past) {
        as.is_past = 1;
        quantise_groups_as(as, in, rows);
    } else {
        quantise_groups_as(as, in, rows);
    }
}

static void quantise_groups(const job *in, berth_span rows) {
    const berth_dtype dtype = in->args->inputs[X]->dtype;
    if (dtype == BERTH_DTYPE_F32) {
        quantise_groups_of((sweep){.dtype = BERTH_DTYPE_F32}, in, rows);
    } else if (dtype == BERTH_DTYPE_F16) {
        quantise_groups_of((sweep){.dtype = BERTH_DTYPE_F16}, in, rows);
    } else if (berth_vec_has_pick_bytes()) {
        quantise_groups_of((sweep){.dtype = BERTH_DTYPE_BF16, .is_picked = 1}, in, rows);
    } else {
        quantise_groups_of((sweep){.dtype = BERTH_DTYPE_BF16}, in, rows);
    }
}

// ---- rows ---------------------------------------------------------------------------------------

static void quantise_tokens(const job *in, berth_span rows) {
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *bound = in->args->inputs[SCALE_UB];
    const float most = bound ? *(const float *)berth_data(bound) : INFINITY;
    float largest = NAN;
    int is_known = 0;
    for (int64_t row = rows.first; row < rows.end; ++row) {
        piece of = piece_of(in, rows, row);
        largest = is_known ? largest : berth_vec_largest_of(of.row, x->dtype, of.columns);
        const float used = berth_f8_scale(largest > most ? most : largest);
        *(float *)berth_row(in->args->outputs[SCALE_OUT], row) = used;
        is_known = !(largest > most) && used < INFINITY;
        if (is_known) {
            of.scale = 1.0f / used;
            largest = multiply_turning(x->dtype, &of);
        } else {
            multiply(x->dtype, &of, used);
        }
    }
}

// By scales that are there: one, or blocks of which each dimension has equally large ones.
static void quantise_blocks(const job *in, berth_span rows, int64_t row) {
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *scales = in->args->outputs[SCALE_OUT];
    const int is_one = scales->ndim < 2;
    const int64_t down = is_one ? 1 : scales->shape[0];
    const int64_t across = is_one ? 1 : scales->shape[1];
    const int64_t height = (berth_row_count(x) + down - 1) / down;
    const float *used = (const float *)berth_data(scales) + row / height * across;
    piece of = piece_of(in, rows, row);
    const int64_t width = of.columns.end / across;
    for (int64_t block = 0; block < across; ++block) {
        of.columns = (berth_span){block * width, (block + 1) * width};
        multiply(x->dtype, &of, used[block]);
    }
}

// The factors of the columns, and once more as bf16 is loaded; whether all are finite.
static int make_factors(const float *scales, int64_t width, float *factors) {
    float *turned = factors + width;
    int is_finite = 1;
    for (int64_t i = 0; i < width; ++i) {
        factors[i] = 1.0f / scales[i];
        is_finite &= isfinite(factors[i]) != 0;
    }
    for (int64_t i = 0; i + TWO <= width; i += TWO) {
        for (int64_t lane = 0; lane < BERTH_LANES; ++lane) {
            turned[i + lane] = factors[i + 2 * lane];
            turned[i + BERTH_LANES + lane] = factors[i + 2 * lane + 1];
        }
    }
    return is_finite;
}

// By scales that are there, of every column one, the same for `height` rows each.
static void quantise_channels(const job *in, berth_span rows, float *factors) {
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *scales = in->args->outputs[SCALE_OUT];
    const int64_t height = (berth_row_count(x) + scales->shape[0] - 1) / scales->shape[0];
    int is_finite = 0;
    for (int64_t row = rows.first; row < rows.end; ++row) {
        piece of = piece_of(in, rows, row);
        const int64_t width = of.columns.end;
        of.factors = factors;
        of.turned = factors + width;
        if (row == rows.first || row % height == 0) {
            is_finite = make_factors(berth_row(scales, row / height), width, factors);
        }
        if (is_finite) {
            multiply_channels(x->dtype, &of);
        } else {
            quantise_slowly((sweep){.dtype = x->dtype, .way = BY_CHANNEL}, &of, of.columns);
        }
    }
}

static void find_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *x = in->args->inputs[X];
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    const berth_span columns = {0, berth_row_length(x)};
    float largest = 0;
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const float of_row =
            berth_vec_largest_ahead(berth_row(x, row), x->dtype, columns, lead_of(in));
        largest = berth_max_or_nan(of_row, largest);
    }
    in->largest[part] = largest;
}

static void quantise_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *scales = in->args->outputs[SCALE_OUT];
    berth_span rows = berth_share(berth_row_count(x), part, parts);
    if (in->self->channels > 0 && berth_row_length(scales) == in->self->channels) {
        quantise_channels(in, rows, in->factors + part * 2 * in->self->channels);
        rows.first = rows.end;
    }
    if (in->self->is_static || in->self->is_per_tensor) {
        for (int64_t row = rows.first; row < rows.end; ++row) {
            quantise_blocks(in, rows, row);
        }
    } else if (in->self->group > 0) {
        quantise_groups(in, rows);
    } else {
        quantise_tokens(in, rows);
    }
    berth_past_end();
}

// ---- a step -------------------------------------------------------------------------------------

static int64_t run(const job *in, berth_work_fn work) {
    const berth_cpu *cpu = in->self->cpu;
    const berth_tensor *x = in->args->inputs[X];
    if (berth_row_count(x) * berth_row_length(x) < ALONE * cpu->threads) {
        work(in, 0, 1);
        return 1;
    }
    cpu->run(cpu, work, in);
    return cpu->threads;
}

// The given scales are those that are used.
static void hand_on_scales(const berth_op_args *args) {
    const berth_tensor *used = args->outputs[SCALE_OUT];
    const int64_t count = berth_row_count(used) * berth_row_length(used);
    memcpy(berth_data(used), berth_data(args->inputs[SCALE]), (size_t)count * sizeof(float));
}

static void scale_tensor(const job *in) {
    float *used = berth_data(in->args->outputs[SCALE_OUT]);
    const int64_t parts = run(in, find_part);
    float largest = 0;
    for (int64_t part = 0; part < parts; ++part) {
        largest = berth_max_or_nan(in->largest[part], largest);
    }
    *used = berth_f8_scale(largest);
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const quant *self = state;
    const int64_t each = self->channels > 0 ? 2 * self->channels : 1;
    return (uint64_t)(self->cpu->threads * each) * sizeof(float);
}

static berth_status forward(void *state, const berth_op_args *args) {
    float *room = berth_data(args->workspace);
    const job in = {.self = state, .args = args, .largest = room, .factors = room};
    const berth_tensor *q = args->outputs[Q];
    for (int64_t row = berth_row_count(args->inputs[X]); row < berth_row_count(q); ++row) {
        memset(berth_row(q, row), 0, (size_t)berth_row_length(q));
    }
    if (in.self->is_static) {
        hand_on_scales(args);
    } else if (in.self->is_per_tensor) {
        scale_tensor(&in);
    }
    (void)run(&in, quantise_part);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_quant_fp8 = {
    .size = sizeof(berth_op_impl),
    .op = "quant_fp8",
    .name = "cpu.quant_fp8",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
