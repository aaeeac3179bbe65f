// SPDX-License-Identifier: Apache-2.0
// quant_fp8. Two sweeps of what shares a scale, the second out of the cache: the largest magnitude,
// then the codes, while the next row is fetched. The operations are the reference's, so codes and
// scales are its bits.
#include <cpu/cpu.h>
#include <cpu/fp8_codes.h>
#include <cpu/magnitude.h>
#include <cpu/simd.h>

#include <fp8.h>

enum { X, SCALE, SCALE_UB };
enum { Q, SCALE_OUT };

#define ALONE 4096 // so few elements a part are not worth waking other threads

typedef struct quant {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t group;    // columns of a dynamic group, 0: whole rows
    int64_t channels; // columns, where each has a scale of its own, else 0
    int is_static;
    int is_per_tensor;
    int is_by_column;
    int is_ue8m0;
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

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(quant), out_self);
    if (status == BERTH_OK) {
        const int64_t *group = berth_site_attribute(site, "group_shape")->i64s;
        const berth_value_type *x = site->inputs[X];
        quant *self = *out_self;
        self->cpu = device->self;
        self->is_static = berth_site_attribute(site, "static")->i64 != 0;
        self->is_per_tensor = group[0] == -1;
        self->channels = self->is_static && group[1] == 1 ? x->dims[x->ndim - 1].b : 0;
        self->group = group[1] > 0 ? group[1] : 0;
        self->is_by_column = berth_site_attribute(site, "column_major_scales")->i64 != 0;
        self->is_ue8m0 = berth_site_attribute(site, "use_ue8m0")->i64 != 0;
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
} sweep;

// Columns of a row, and the number, or the vector, that they are divided or multiplied by.
typedef struct piece {
    const void *row;
    const void *next; // the row whose largest magnitude is found meanwhile
    uint8_t *q;
    berth_span columns;
    float scale;
    float one_over;       // 1 / scale, of one that divides
    const float *factors; // of the whole row, by channel, in order
    const float *turned;  // the same as bf16 is loaded
    int is_past;          // codes go past the caches
} piece;

#define TWO  ((int64_t)(2 * BERTH_LANES))
#define FOUR ((int64_t)(4 * BERTH_LANES))

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
    vec_f8_bytes even;
    for (int i = 0; i < 4 * BERTH_LANES; ++i) {
        even[i] = (uint8_t)(2 * i);
    }
    const berth_vec_bits made =
        berth_vec_pick_bytes((berth_vec_bits)a.of, (berth_vec_bits)b.of, (berth_vec_bits)even);
    const berth_vec_bits signs = berth_vec_pick_bytes(
        (berth_vec_bits)a.upper, (berth_vec_bits)b.upper, (berth_vec_bits)(even + 1));
    return signs ^ ((signs ^ made) & 0x7f7f7f7fu);
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

// Returns the largest magnitude of the next row, if it is TURNING.
BERTH_INLINE float quantise_as(sweep as, const piece *all) {
    piece of = *all; // no store changes it, for all that the compiler knows
    berth_vec_words largest = {0};
    berth_vec_largest_so_far next = {0};
    int64_t i = of.columns.first;
    of.is_past = of.is_past && berth_vec_can_pass(of.q + i);
    for (; i + FOUR <= of.columns.end; i += FOUR) {
        if (as.way == TURNING) {
            berth_vec_look_on(of.next, as.dtype, i, &next);
        } else {
            berth_vec_fetch(of.row, as.dtype, (berth_span){i, i + FOUR}, BERTH_SWEEP_LEAD);
        }
        quantise_four(as, &of, i, &largest);
    }
    const berth_span rest = {i, of.columns.end};
    if (is_any(as) && has_nan(largest)) {
        berth_past_end();
        quantise_slowly(as, all, of.columns);
    } else if (i < of.columns.end) {
        quantise_slowly(as, all, rest);
    }
    return as.way == TURNING ? berth_vec_look_end(of.next, as.dtype, rest, &next) : 0;
}

BERTH_INLINE float quantise_way(quant_way way, berth_dtype dtype, const piece *of) {
    if (dtype == BERTH_DTYPE_F32) {
        return quantise_as((sweep){BERTH_DTYPE_F32, way, 0}, of);
    }
    if (dtype == BERTH_DTYPE_F16) {
        return quantise_as((sweep){BERTH_DTYPE_F16, way, 0}, of);
    }
    return berth_vec_has_pick_bytes() ? quantise_as((sweep){BERTH_DTYPE_BF16, way, 1}, of)
                                      : quantise_as((sweep){BERTH_DTYPE_BF16, way, 0}, of);
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
        quantise_slowly((sweep){dtype, MULTIPLIED, 0}, of, of->columns);
    }
}

static void multiply_channels(berth_dtype dtype, const piece *of) {
    (void)quantise_way(BY_CHANNEL, dtype, of);
}

// All of a row of some; the last one is its own next.
static piece piece_of(const job *in, berth_span rows, int64_t row) {
    const berth_tensor *x = in->args->inputs[X];
    const int64_t elements = berth_row_count(x) * berth_row_length(x);
    return (piece){
        .row = berth_row(x, row),
        .next = berth_row(x, row + 1 < rows.end ? row + 1 : row),
        .q = berth_row(in->args->outputs[Q], row),
        .columns = {0, berth_row_length(x)},
        .is_past = berth_is_past(elements, BERTH_DTYPE_F8_E4M3FN),
    };
}

// ---- groups -------------------------------------------------------------------------------------

// As many groups of a row as a vector has lanes: one by one the scale of each would wait for its
// own steps. `overs` are 1 / scale.
typedef struct lot {
    int64_t row;
    int64_t first; // column
    int64_t count; // groups
    float scales[BERTH_LANES];
    float overs[BERTH_LANES];
} lot;

static berth_span group_of(const job *in, const lot *of, int64_t group) {
    const int64_t width = berth_row_length(in->args->inputs[X]);
    const int64_t first = of->first + group * in->self->group;
    const int64_t end = first + in->self->group;
    return (berth_span){first, end < width ? end : width};
}

BERTH_INLINE berth_vec largest_of_groups(berth_dtype dtype, const job *in, const lot *of) {
    const void *row = berth_row(in->args->inputs[X], of->row);
    berth_vec_ints each[BERTH_LANES];
    for (int64_t group = 0; group < of->count; ++group) {
        const berth_span columns = group_of(in, of, group);
        berth_vec_largest_so_far largest = {0};
        int64_t i = columns.first;
        for (; i + BERTH_LARGEST_STEP <= columns.end; i += BERTH_LARGEST_STEP) {
            berth_vec_look(row, dtype, i, &largest);
        }
        each[group] = berth_vec_look_rest(row, dtype, (berth_span){i, columns.end}, &largest);
    }
    for (int64_t group = of->count; group < BERTH_LANES; ++group) {
        each[group] = (berth_vec_ints){0};
    }
    return berth_vec_largest_each(each, BERTH_LANES);
}

// berth_f8_scale of every lane.
BERTH_INLINE void make_scales(berth_dtype dtype, const job *in, lot *of) {
    const quant *self = in->self;
    const int64_t width = berth_row_length(in->args->inputs[X]);
    const int64_t groups = (width - of->first + self->group - 1) / self->group;
    of->count = groups < BERTH_LANES ? groups : BERTH_LANES;
    const berth_vec least = berth_vec_of(BERTH_F8_LEAST_SCALE);
    const berth_vec wanted = largest_of_groups(dtype, in, of) / berth_vec_of(BERTH_F8_MAX);
    const berth_vec scales = berth_vec_if_less(wanted, least, least, wanted);
    berth_vec_store(of->scales, scales);
    for (int64_t i = 0; i < of->count && self->is_ue8m0; ++i) {
        of->scales[i] = berth_f8_power_of_two(of->scales[i]);
    }
    berth_vec_store(of->overs, berth_vec_of(1) / berth_vec_load(of->scales));
}

static void write_scales(const job *in, const lot *of) {
    const quant *self = in->self;
    const berth_tensor *scales = in->args->outputs[SCALE_OUT];
    float *to =
        self->is_by_column ? (float *)berth_data(scales) + of->row : berth_row(scales, of->row);
    const int64_t step = self->is_by_column ? scales->strides[0] : 1;
    for (int64_t i = 0; i < of->count; ++i) {
        to[(of->first / self->group + i) * step] = of->scales[i];
    }
}

// Why no call of quantise_as: a group is so few steps that what comes before them counts. What is
// not finite makes a scale that is not.
BERTH_INLINE void quantise_lot(sweep as, const job *in, berth_span rows, const lot *of) {
    const int64_t lead = as.dtype == BERTH_DTYPE_F32 ? 24576 : 16384; // behind the next lot
    const piece row = piece_of(in, rows, of->row);
    berth_vec_words unbound = {0}; // no code is out of range
    piece group = row;
    group.is_past = row.is_past && berth_vec_can_pass(row.q) && in->self->group % FOUR == 0;
    for (int64_t i = 0; i < of->count; ++i) {
        const berth_span columns = group_of(in, of, i);
        int64_t at = columns.first;
        group.scale = of->scales[i];
        group.one_over = of->overs[i];
        for (; at + FOUR <= columns.end && group.scale < INFINITY; at += FOUR) {
            berth_vec_fetch(group.row, as.dtype, (berth_span){at, at + FOUR}, lead);
            quantise_four(as, &group, at, &unbound);
        }
        if (at < columns.end) {
            piece rest = row;
            rest.scale = group.scale;
            quantise_slowly(as, &rest, (berth_span){at, columns.end});
        }
    }
}

// The lot behind one, in the next row if there is none in this one.
static lot lot_behind(const job *in, const lot *of) {
    const int64_t first = of->first + BERTH_LANES * in->self->group;
    return first < berth_row_length(in->args->inputs[X]) ? (lot){.row = of->row, .first = first}
                                                         : (lot){.row = of->row + 1};
}

// Why the next lot's scales come before this one's codes: what they are made of waits for each
// other, and codes do not.
BERTH_INLINE void quantise_groups_as(sweep as, const job *in, berth_span rows) {
    lot now = {.row = rows.first};
    if (rows.first < rows.end) {
        make_scales(as.dtype, in, &now);
    }
    while (now.row < rows.end) {
        lot next = lot_behind(in, &now);
        if (next.row < rows.end) {
            make_scales(as.dtype, in, &next);
        }
        write_scales(in, &now);
        quantise_lot(as, in, rows, &now);
        now = next;
    }
}

static void quantise_groups(const job *in, berth_span rows) {
    const berth_dtype dtype = in->args->inputs[X]->dtype;
    if (dtype == BERTH_DTYPE_F32) {
        quantise_groups_as((sweep){BERTH_DTYPE_F32, DIVIDED, 0}, in, rows);
    } else if (dtype == BERTH_DTYPE_F16) {
        quantise_groups_as((sweep){BERTH_DTYPE_F16, DIVIDED, 0}, in, rows);
    } else if (berth_vec_has_pick_bytes()) {
        quantise_groups_as((sweep){BERTH_DTYPE_BF16, DIVIDED, 1}, in, rows);
    } else {
        quantise_groups_as((sweep){BERTH_DTYPE_BF16, DIVIDED, 0}, in, rows);
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
            quantise_slowly((sweep){x->dtype, BY_CHANNEL, 0}, &of, of.columns);
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
        const float of_row = berth_vec_largest_of(berth_row(x, row), x->dtype, columns);
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
