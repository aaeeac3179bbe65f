// SPDX-License-Identifier: Apache-2.0
// Stripes of a convolution (convolution_stripes.h) multiplied by the panels of its weight.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_PRODUCTS_H
#define BERTH_KERNELS_CPU_CONVOLUTION_PRODUCTS_H

#include <cpu/convolution_matrix.h>
#include <cpu/convolution_stripes.h>

// The lines of the kernel that meet lines of x at a line of the stripe.
static inline berth_span conv_lines_met(const convolution *self, const conv_stripe *stripe,
                                        int64_t line) {
    const berth_conv *conv = &self->conv;
    const int64_t top = conv_start(conv, 1, stripe->first[1] + line);
    const int64_t below = conv->size[1] > top ? conv->size[1] - top : 0;
    return (berth_span){
        .first = top < 0 ? pieces(-top, conv->dilation[1]) : 0,
        .end = at_most(conv->kernel[1], pieces(below, conv->dilation[1])),
    };
}

// The taps of these lines that meet x, as seen from where the kernel begins; returns how many.
static inline int64_t conv_find_taps(const convolution *self, const conv_stripe *stripe,
                                     berth_span lines, conv_tap *taps) {
    const berth_conv *conv = &self->conv;
    const int bytes = line_bytes(is_paired(self->product) ? DOT_BF16 : TIMES_F32);
    const int64_t of_line = self->pitch * conv->stride[2];
    int64_t count = 0;
    for (int64_t i = 0; i < conv->kernel[0]; ++i) {
        const int64_t z = conv_start(conv, 0, stripe->first[0]) + i * conv->dilation[0];
        for (int64_t j = lines.first; j < lines.end && z >= 0 && z < conv->size[0]; ++j) {
            const int64_t line = i * self->x_lines + j * conv->dilation[1];
            for (int64_t k = 0, x = 0; k < conv->kernel[2]; ++k, x += conv->dilation[2]) {
                taps[count++] = (conv_tap){
                    .x = line * of_line + x % conv->stride[2] * self->pitch + x / conv->stride[2],
                    .weight = ((i * conv->kernel[1] + j) * conv->kernel[2] + k) * bytes,
                };
            }
        }
    }
    return count;
}

// A stripe and some panels of its group.
typedef struct conv_panels {
    conv_stripe stripe;
    int64_t first;
    int64_t count;
} conv_panels;

// Some channels of one panel, with all positions of a stripe.
typedef struct conv_slice {
    conv_tile piece; // knows the weight, x, the pairs and the sums
    conv_tap *taps;
    berth_span lines; // of the kernel, that these are of
} conv_slice;

static inline int conv_has_taps_of(const convolution *self, const conv_stripe *stripe, int64_t line,
                                   const conv_slice *slice) {
    const berth_span met = conv_lines_met(self, stripe, line);
    return met.first == slice->lines.first && met.end == slice->lines.end;
}

// Those of one pair for all pairs of a slice, so that a tile has one loop of them.
static inline void conv_repeat_taps(const convolution *self, conv_slice *slice) {
    conv_tile *piece = &slice->piece;
    const int64_t of_pair = is_paired(self->product) ? self->x_floats : 2 * self->x_floats;
    const int64_t count = piece->tap_count;
    piece->tap_count = piece->pairs * count;
    for (int64_t i = count; i < piece->tap_count; ++i) {
        const conv_tap before = slice->taps[i - count];
        slice->taps[i] = (conv_tap){before.x + of_pair, before.weight + piece->weight_bytes};
    }
}

static inline void conv_turn_to(const convolution *self, const conv_stripe *stripe, int64_t line,
                                conv_slice *slice) {
    if (!conv_has_taps_of(self, stripe, line, slice)) {
        slice->lines = conv_lines_met(self, stripe, line);
        slice->piece.taps = slice->taps;
        slice->piece.tap_count = conv_find_taps(self, stripe, slice->lines, slice->taps);
        if (!is_matrix(self->product)) {
            conv_repeat_taps(self, slice);
        }
    }
}

static inline void conv_multiply_slice(const convolution *self, const conv_stripe *stripe,
                                       conv_slice *slice) {
    const conv_tile_fn *tiles_of = conv_tiles[self->product == DOT_BF16];
    const int64_t across = pieces(stripe->width, BERTH_TILE_ROWS);
    conv_tile *piece = &slice->piece;
    const float *const x = piece->x;
    piece->next_step = line_bytes(self->product) / (stripe->lines * across);
    for (int64_t line = 0; line < stripe->lines; ++line) {
        conv_turn_to(self, stripe, line, slice);
        for (int64_t i = 0; i < across; ++i) {
            const berth_span rows = berth_share(stripe->width, i, across);
            piece->x = x + line * conv_line_floats(self) + rows.first;
            tiles_of[rows.end - rows.first](piece);
            piece->sums += (rows.end - rows.first) * PANEL;
            piece->next += piece->tap_count * piece->next_step;
        }
    }
}

// Lot `index` of a stripe, `across` of them in a line.
static inline conv_lot conv_lot_at(const convolution *self, const conv_stripe *stripe,
                                   const conv_tile *piece, int64_t index) {
    const int64_t across = pieces(stripe->width, BERTH_MATRIX_ROWS);
    const int64_t line = index / across;
    const berth_span rows = berth_share(stripe->width, index % across, across);
    return (conv_lot){
        .x = piece->x + (line * conv_line_floats(self) + rows.first) * MATRIX_WORDS,
        .sums = piece->sums + (line * stripe->width + rows.first) * PANEL,
        .rows = rows.end - rows.first,
    };
}

// The same by matrices.
static inline void conv_multiply_lines(const convolution *self, const conv_stripe *stripe,
                                       conv_slice *slice) {
    const int64_t across = pieces(stripe->width, BERTH_MATRIX_ROWS);
    const int64_t count = stripe->lines * across;
    conv_tile *piece = &slice->piece;
    conv_lots lots = {.half = conv_lot_rows(self)};
    piece->next_step = MATRIX_STEP / pieces(count, 2);
    for (int64_t i = 0, taken = 0; i < count; i += taken) {
        conv_turn_to(self, stripe, i / across, slice);
        lots.of[0] = conv_lot_at(self, stripe, piece, i);
        lots.of[1] = (conv_lot){.x = lots.of[0].x};
        taken = 1;
        if (i + 1 < count && conv_has_taps_of(self, stripe, (i + 1) / across, slice)) {
            lots.of[1] = conv_lot_at(self, stripe, piece, i + 1);
            taken = 2;
        }
        conv_matrix(piece, &lots);
        piece->next += pieces(piece->pairs, MATRIX_WORDS) * piece->tap_count * piece->next_step;
    }
}

// By the product that the instance has.
static inline void conv_multiply_by(const convolution *self, const conv_stripe *stripe,
                                    const conv_room *room, conv_slice slice) {
    conv_tile *piece = &slice.piece;
    if (is_matrix(self->product)) {
        conv_multiply_lines(self, stripe, &slice);
        return;
    }
    if (self->product == TIMES_BF16 || self->product == TIMES_F16) {
        const int64_t taps = berth_conv_volume(self->conv.kernel);
        piece->weight =
            panel_widen(piece->weight, self->product, piece->pairs * taps, room->widened);
    }
    conv_multiply_slice(self, stripe, &slice);
}

static inline void conv_multiply_panels(const conv_job *job, const conv_panels *of,
                                        const conv_room *room) {
    const convolution *self = job->self;
    const berth_conv *conv = &self->conv;
    const int is_pair = is_paired(self->product);
    const int64_t of_pair = is_pair ? self->x_floats : 2 * self->x_floats;
    const int64_t pairs = pieces(conv->channels, 2);
    const int64_t bytes = berth_conv_volume(conv->kernel) * line_bytes(self->product); // of a pair
    const int64_t of_panel = panel_bytes(self->columns, self->dtype);
    const int64_t panel = of->stripe.group * pieces(self->outputs, PANEL) + of->first;
    const char *weight = (const char *)berth_data(job->args->inputs[WEIGHT]) + panel * of_panel;
    for (int64_t pair = 0; pair < pairs; pair += self->chunk_pairs) {
        for (int64_t i = 0; i < of->count; ++i) {
            conv_slice slice = {.taps = room->taps, .lines.end = -1};
            conv_tile *piece = &slice.piece;
            piece->weight = weight + i * of_panel + pair * bytes;
            piece->weight_bytes =
                berth_conv_volume(conv->kernel) * line_bytes(is_pair ? DOT_BF16 : TIMES_F32);
            piece->x = room->x + pair * of_pair;
            piece->x_floats = self->x_floats;
            piece->pairs = at_most(self->chunk_pairs, pairs - pair);
            piece->sums = room->sums + i * of->stripe.lines * of->stripe.width * PANEL;
            piece->is_first = pair == 0;
            piece->next = i + 1 < of->count ? piece->weight + of_panel
                                            : weight + (pair + piece->pairs) * bytes;
            conv_multiply_by(self, &of->stripe, room, slice);
        }
    }
}

static inline void conv_store_panels(const conv_job *job, const conv_panels *of,
                                     const conv_room *room) {
    const convolution *self = job->self;
    const berth_conv *conv = &self->conv;
    const conv_stripe *at = &of->stripe;
    const int64_t rows = at->lines * at->width;
    const int64_t count = at_most(of->count * PANEL, self->outputs - of->first * PANEL);
    const int64_t plane = at->image * conv->out + at->group * self->outputs + of->first * PANEL;
    const int64_t position =
        (at->first[0] * conv->positions[1] + at->first[1]) * conv->positions[2] + at->first[2];
    for (int64_t i = 0; i < count; ++i) {
        conv_store(job, plane + i, position, rows, conv_sums_of(*room, rows, i));
    }
}

static inline void conv_stripe_part(const void *work, int64_t part, int64_t parts) {
    const conv_job *job = work;
    const convolution *self = job->self;
    const int64_t panels = pieces(self->outputs, PANEL);
    const berth_span share = berth_share(job->rows * panels, part, parts);
    const conv_room room = conv_room_of(self, job->scratch, part);
    conv_panels of = {.count = 0};
    tiles_begin(self->product, conv_lot_rows(self));
    for (int64_t unit = share.first; unit < share.end; unit += of.count) {
        of.first = unit % panels;
        if (unit == share.first || of.first == 0) {
            of.stripe = conv_stripe_at(self, unit / panels);
            conv_pack_stripe(job, &of.stripe, &room);
        }
        of.count = at_most(at_most(CONV_PANELS, panels - of.first), share.end - unit);
        conv_multiply_panels(job, &of, &room);
        conv_store_panels(job, &of, &room);
    }
    tiles_end(self->product);
}

static inline void conv_forward_stripes(conv_job *job) {
    const convolution *self = job->self;
    const int64_t images = job->args->inputs[X]->shape[0];
    const int64_t positions = images * berth_conv_volume(self->conv.positions);
    job->rows = images * self->conv.groups * conv_stripes_of_image(self);
    job->scratch = (char *)job->x;
    const int is_alone = positions * self->columns * self->conv.out < CONV_ALONE;
    berth_run(self->cpu, conv_stripe_part, job, is_alone ? 0 : BERTH_ALONE);
}

#endif
