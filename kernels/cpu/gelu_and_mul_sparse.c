// SPDX-License-Identifier: Apache-2.0
// gelu_and_mul_sparse: gelu of what stands above the row's cutoff, rounded, times the second half.
// The gates of a row are read twice: for the cutoff, and for the result. Few of them are above it:
// where the lanes of a vector, or words of bf16, can be packed, gelu is computed of those alone.
#include <cpu/elementwise.h>
#include <cpu/reads.h>

#include <quantile.h>

enum { MULTIPLIER, CUTOFF }; // the numbers of an instance

#define PAIR  (2 * (int64_t)BERTH_LANES)  // columns: two vectors
#define BLOCK (64 * (int64_t)BERTH_LANES) // elements that are added up in float32
#define AHEAD 8192                        // bytes
#define FAR   4                           // deviations² of a mean whose squares are taken anew

// Columns of a row.
typedef struct piece {
    const char *x; // its gates
    const char *up;
    char *y;
    berth_span columns;
    berth_ahead ahead;
} piece;

// ---- the cutoff ---------------------------------------------------------------------------------

// Of distances from a number.
typedef struct sums {
    berth_vec sum[2];
    berth_vec squares[2];
} sums;

BERTH_INLINE void add_to(sums *to, int at, berth_vec distance) {
    to->sum[at] = to->sum[at] + distance;
    to->squares[at] = berth_vec_fma(distance, distance, to->squares[at]);
}

// Two vectors of columns, in bf16 the even and the odd ones.
typedef struct two {
    berth_vec of[2];
} two;

BERTH_INLINE two load_two(const void *x, berth_dtype dtype, int64_t first) {
    if (dtype == BERTH_DTYPE_BF16) {
        const berth_vec pairs = berth_vec_load((const uint16_t *)x + first);
        return (two){
            {berth_vec_first_of(pairs), berth_vec_second_of(pairs)}
        };
    }
    return (two){
        {berth_vec_load_as(x, dtype, first), berth_vec_load_as(x, dtype, first + BERTH_LANES)}
    };
}

// In 16 bits half of what the gates are multiplied by is fetched meanwhile, the other half when
// they are packed: memory is read all the time. In float32 the gates themselves: the second cache,
// where the row before left them, is too far.
BERTH_INLINE sums sums_of(const piece *of, berth_dtype dtype, berth_vec from) {
    const berth_span columns = of->columns;
    const berth_vec zero = berth_vec_of(0);
    sums all[2] = {
        {{zero, zero}, {zero, zero}},
        {{zero, zero}, {zero, zero}}
    };
    int64_t i = columns.first;
    for (; i + 2 * PAIR <= columns.end; i += 2 * PAIR) {
        if (dtype == BERTH_DTYPE_F32) {
            berth_fetch(of->x, dtype, i, 2 * PAIR, of->ahead);
        } else {
            berth_fetch_far(of->up, dtype, i / 2, PAIR, 0);
        }
        BERTH_UNROLL
        for (int k = 0; k < 2; ++k) {
            const two x = load_two(of->x, dtype, i + k * PAIR);
            add_to(&all[k], 0, x.of[0] - from);
            add_to(&all[k], 1, x.of[1] - from);
        }
    }
    for (; i < columns.end; i += BERTH_LANES) {
        const berth_vec distance = berth_vec_load_some(of->x, dtype, i, columns.end) - from;
        const int64_t left = columns.end - i;
        add_to(&all[0], 0, left < BERTH_LANES ? berth_vec_cut(distance, left) : distance);
    }
    return (sums){
        {all[0].sum[0] + all[1].sum[0],         all[0].sum[1] + all[1].sum[1]        },
        {all[0].squares[0] + all[1].squares[0], all[0].squares[1] + all[1].squares[1]}
    };
}

// The mean of the distances from a number and of their squares, from block to block in doubles:
// what a gate is above the cutoff is a small part of both.
typedef struct moments {
    double mean;
    double squares;
} moments;

BERTH_INLINE moments moments_of(const piece *row, berth_dtype dtype, float from) {
    const int64_t width = row->columns.end;
    moments all = {0};
    piece of = *row;
    for (int64_t first = 0; first < width; first += BLOCK) {
        of.columns = (berth_span){first, first + BLOCK < width ? first + BLOCK : width};
        const sums some = sums_of(&of, dtype, berth_vec_of(from));
        all.mean += (double)berth_vec_sum(some.sum[0] + some.sum[1]);
        all.squares += (double)berth_vec_sum(some.squares[0] + some.squares[1]);
    }
    return (moments){all.mean / (double)width, all.squares / (double)width};
}

// Why the first sums are about 0: most gates have a mean near it. Else, or where squares are too
// large for a float, they are taken once more about the mean, which then is exact, too.
BERTH_INLINE float cutoff_of(const piece *row, berth_dtype dtype, float multiplier) {
    float from = 0;
    moments about = moments_of(row, dtype, from);
    if (!(about.squares < (FAR + 1) * (about.squares - about.mean * about.mean))) {
        from = (float)about.mean;
        about = moments_of(row, dtype, from);
    }
    const float mean = (float)((double)from + about.mean);
    const double difference = about.squares - about.mean * about.mean;
    const double variance = difference < 0 ? 0 : difference; // all are the same, but for roundings
    const float deviation = berth_round_to(dtype, (float)sqrt(variance));
    return berth_round_to(dtype, berth_round_to(dtype, mean) +
                                     berth_round_to(dtype, deviation * multiplier));
}

// ---- results ------------------------------------------------------------------------------------

// Rounded where the reference does, in bf16 too: so few results are not 0 that the last place of
// the largest one is much beside their mean.
BERTH_INLINE berth_vec kept_of(const berth_activation *self, berth_dtype dtype, berth_vec a) {
    const berth_vec above = a - berth_vec_of(self->numbers[CUTOFF]);
    return berth_vec_max(berth_vec_of(0), berth_vec_round_to(dtype, above));
}

// Of gates, rounded.
typedef berth_vec (*gelu_formula)(const berth_activation *self, berth_dtype dtype, berth_vec a);

BERTH_INLINE berth_vec gelu_by_tanh(const berth_activation *self, berth_dtype dtype, berth_vec a) {
    return berth_vec_round_to(dtype, berth_vec_gelu_tanh(kept_of(self, dtype, a)));
}

BERTH_INLINE berth_vec gelu_by_erf(const berth_activation *self, berth_dtype dtype, berth_vec a) {
    return berth_vec_round_to(dtype, berth_vec_gelu_erf(kept_of(self, dtype, a)));
}

BERTH_INLINE berth_vec by_tanh(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    return gelu_by_tanh(self, dtype, a) * b;
}

BERTH_INLINE berth_vec by_erf(const berth_activation *self, berth_dtype dtype, berth_vec a,
                              berth_vec b) {
    return gelu_by_erf(self, dtype, a) * b;
}

// ---- packed -------------------------------------------------------------------------------------

// Columns that are worked at together, at most, and what is kept of their gates: first themselves,
// then gelu of them. They are floats with the bits of each vector, or words with those of each
// pair.
#define SPAN 2048

// Why few in float32: memory reads while gates are packed and writes while results are, and takes
// both faster the more often they take turns: 0.81 of a copy's speed, by 4096 columns 0.72. In 16
// bits 1024 are slower, 0.74 and not 0.77: the gelu of few waits for its own steps.
BERTH_INLINE int64_t span_of(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_F32 ? 512 : SPAN;
}
typedef struct packed {
    _Alignas(64) unsigned char kept[(SPAN + BERTH_LANES) * sizeof(float)];
    uint32_t bits[SPAN / BERTH_LANES];
    int64_t count;
} packed;

BERTH_INLINE void pack(const piece *of, berth_dtype dtype, float cutoff, packed *out) {
    float *kept = (float *)(void *)out->kept;
    float *to = kept;
    uint32_t *bits = out->bits;
    for (int64_t i = of->columns.first; i < of->columns.end; i += PAIR) {
        const two gates = load_two(of->x, dtype, i);
        berth_fetch(of->up, dtype, i, PAIR, of->ahead);
        BERTH_UNROLL
        for (int k = 0; k < 2; ++k) {
            *bits = berth_vec_not_at_most(gates.of[k], berth_vec_of(cutoff));
            berth_vec_pack_lanes(to, *bits, gates.of[k]);
            to += __builtin_popcount(*bits++);
        }
    }
    out->count = to - kept;
}

// Of bf16 as integers, which order as the numbers do above a cutoff that is not below 0.
BERTH_INLINE void pack_words(const piece *of, float cutoff, packed *out) {
    const berth_vec least = (berth_vec)((berth_vec_words){0} + berth_to_bf16(cutoff));
    uint16_t *kept = (uint16_t *)(void *)out->kept;
    uint16_t *to = kept;
    uint32_t *bits = out->bits;
    for (int64_t i = of->columns.first; i < of->columns.end; i += PAIR) {
        berth_fetch(of->up, BERTH_DTYPE_BF16, i, PAIR, of->ahead);
        *bits = berth_vec_pack_above(to, berth_vec_load((const uint16_t *)of->x + i), least);
        to += __builtin_popcount(*bits++);
    }
    out->count = to - kept;
}

BERTH_INLINE void make_gelu(const berth_activation *self, gelu_formula formula, berth_dtype dtype,
                            packed *gates) {
    float *kept = (float *)(void *)gates->kept;
    for (int64_t i = 0; i < gates->count; i += BERTH_LANES) {
        berth_vec_store(kept + i, formula(self, dtype, berth_vec_load(kept + i)));
    }
}

BERTH_INLINE void make_gelu_words(const berth_activation *self, gelu_formula formula,
                                  packed *gates) {
    for (int64_t i = 0; i < gates->count; i += PAIR) {
        uint16_t *at = (uint16_t *)(void *)gates->kept + i;
        const berth_vec pairs = berth_vec_load(at);
        const berth_vec one = formula(self, BERTH_DTYPE_BF16, berth_vec_first_of(pairs));
        const berth_vec other = formula(self, BERTH_DTYPE_BF16, berth_vec_second_of(pairs));
        const berth_vec made = (berth_vec)((berth_vec_bits)one >> 16 | (berth_vec_bits)other);
        berth_vec_store((float *)(void *)at, made); // both are rounded
    }
}

// The next two vectors of what was packed.
typedef struct unpacking {
    const unsigned char *from;
    const uint32_t *bits;
} unpacking;

BERTH_INLINE two unpack(unpacking *at, int are_words) {
    if (are_words) {
        const uint32_t words = *at->bits++;
        const berth_vec pairs = berth_vec_spread_words(at->from, words);
        at->from += sizeof(uint16_t) * (size_t)__builtin_popcount(words);
        return (two){
            {berth_vec_first_of(pairs), berth_vec_second_of(pairs)}
        };
    }
    two both;
    BERTH_UNROLL
    for (int k = 0; k < 2; ++k) {
        const uint32_t lanes = *at->bits++;
        both.of[k] = berth_vec_spread_lanes((const void *)at->from, lanes);
        at->from += sizeof(float) * (size_t)__builtin_popcount(lanes);
    }
    return both;
}

// Why the next row's gates are fetched meanwhile: memory is read all the time, and the cutoff's
// sweep finds them.
BERTH_INLINE void write_packed(const piece *of, berth_sweep_kind as, int are_words,
                               const packed *gates) {
    unpacking at = {gates->kept, gates->bits};
    for (int64_t i = of->columns.first; i < of->columns.end; i += PAIR) {
        const two up = load_two(of->up, as.dtype, i);
        const two kept = unpack(&at, are_words);
        const berth_vec one = kept.of[0] * up.of[0];
        const berth_vec other = kept.of[1] * up.of[1];
        berth_fetch_far(of->up, as.dtype, i, PAIR, of->up - of->x);
        if (as.dtype == BERTH_DTYPE_BF16) {
            const berth_sweep_kind pairs = {.dtype = BERTH_DTYPE_F32, .is_past = as.is_past};
            berth_sweep_store(pairs, of->y + 2 * i, 0, berth_sweep_pairs_of(as, one, other));
        } else {
            berth_sweep_store(as, of->y, i, one);
            berth_sweep_store(as, of->y, i + BERTH_LANES, other);
        }
    }
}

BERTH_INLINE void write_span(const berth_activation *self, gelu_formula formula,
                             berth_sweep_kind as, const piece *of) {
    const float cutoff = self->numbers[CUTOFF];
    packed gates;
    if (as.dtype == BERTH_DTYPE_BF16 && berth_vec_has_pack_above() && cutoff >= 0) {
        pack_words(of, cutoff, &gates);
        make_gelu_words(self, formula, &gates);
        write_packed(of, as, 1, &gates);
    } else {
        pack(of, as.dtype, cutoff, &gates);
        make_gelu(self, formula, as.dtype, &gates);
        write_packed(of, as, 0, &gates);
    }
}

// Returns the end of what are whole pairs of vectors.
BERTH_INLINE int64_t write_pairs(const berth_activation *self, gelu_formula formula,
                                 berth_sweep_kind as, const piece *row) {
    const int64_t end = row->columns.end / PAIR * PAIR;
    const int64_t span = span_of(as.dtype);
    piece of = *row;
    for (of.columns.first = 0; of.columns.first < end; of.columns.first += span) {
        of.columns.end = of.columns.first + span < end ? of.columns.first + span : end;
        write_span(self, formula, as, &of);
    }
    return end;
}

BERTH_INLINE void write_rest(const berth_activation *self, gelu_formula formula,
                             berth_sweep_kind as, const piece *of) {
    for (int64_t i = of->columns.first; i < of->columns.end; i += BERTH_LANES) {
        const berth_vec a = berth_vec_load_some(of->x, as.dtype, i, of->columns.end);
        const berth_vec b = berth_vec_load_some(of->up, as.dtype, i, of->columns.end);
        berth_vec_store_some(of->y, as.dtype, i, of->columns.end, formula(self, as.dtype, a) * b);
    }
}

BERTH_INLINE void write_row(const berth_activation *self, gelu_formula formula, berth_sweep_kind as,
                            const piece *row) {
    piece rest = *row;
    rest.columns.first = write_pairs(self, formula, as, row);
    write_rest(self, formula, as, &rest);
}

BERTH_INLINE void berth_sweep_sparse_row(const berth_sweep *all, berth_vec_formula formula,
                                         berth_sweep_kind as, const void *x, void *y) {
    const int64_t bytes = BERTH_DTYPE_BITS(as.dtype) / 8;
    const piece row = {
        .x = x,
        .up = (const char *)x + all->width * bytes,
        .y = y,
        .columns = {0, all->width},
        .ahead = reads_ahead(all->self->cpu, AHEAD, AHEAD),
    };
    berth_activation self = *all->self;
    berth_sweep in = *all;
    self.numbers[CUTOFF] = cutoff_of(&row, as.dtype, self.numbers[MULTIPLIER]);
    in.self = &self;
    if (BERTH_HAS_TABLE) {
        write_row(&self, formula == by_tanh ? gelu_by_tanh : gelu_by_erf, as, &row);
    } else {
        berth_sweep_gated_row(&in, formula, as, x, y);
    }
}

BERTH_SWEEP_EITHER(sparse, by_tanh, by_erf)

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_gelu_create(site, device, out_self);
    if (status == BERTH_OK) {
        reads_begin(site, site->inputs[0], device->self);
        ((berth_activation *)*out_self)->numbers[MULTIPLIER] =
            (float)berth_normal_quantile(berth_site_attribute(site, "activation_sparsity")->f64);
    }
    return status;
}

const berth_op_impl berth_kernel_gelu_and_mul_sparse = {
    BERTH_ACTIVATION_KERNEL("gelu_and_mul_sparse", create),
    .revision = 1,
};
