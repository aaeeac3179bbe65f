// SPDX-License-Identifier: Apache-2.0
// Stripes of a convolution (convolution_stripes.h) multiplied by the panels of its weight.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_PRODUCTS_H
#define BERTH_KERNELS_CPU_CONVOLUTION_PRODUCTS_H

#include <cpu/convolution_stripes.h>

// The taps that meet a line of x at a line of the stripe; returns how many.
static inline int64_t conv_find_taps(const convolution *self, const conv_stripe *stripe,
                                     int64_t line, conv_tap *taps) {
    const berth_conv *conv = &self->conv;
    const int64_t line_floats = self->pitch * conv->stride[2];
    const int64_t top = conv_start(conv, 1, stripe->first[1] + line);
    int64_t count = 0;
    for (int64_t tap = 0; tap < berth_conv_volume(conv->kernel); ++tap) {
        int64_t at[3];
        berth_conv_split(conv->kernel, tap, at);
        const int64_t z = conv_start(conv, 0, stripe->first[0]) + at[0] * conv->dilation[0];
        const int64_t y = top + at[1] * conv->dilation[1];
        if (z < 0 || z >= conv->size[0] || y < 0 || y >= conv->size[1]) {
            continue;
        }
        const int64_t x = at[2] * conv->dilation[2];
        const int64_t x_line =
            at[0] * self->x_lines + line * conv->stride[1] + at[1] * conv->dilation[1];
        taps[count++] = (conv_tap){
            .x = x_line * line_floats + x % conv->stride[2] * self->pitch + x / conv->stride[2],
            .weight = tap * line_bytes(self->product == DOT_BF16 ? DOT_BF16 : TIMES_F32),
        };
    }
    return count;
}

// A stripe and some panels of its group.
typedef struct conv_panels {
    conv_stripe stripe;
    int64_t first;
    int64_t count;
} conv_panels;

// A chunk of the channels of one panel with all positions of a stripe. `piece` knows the weight, x,
// the pairs and the sums.
static inline void conv_multiply_chunk(const convolution *self, const conv_stripe *stripe,
                                       conv_tile piece, conv_tap *taps) {
    const conv_tile_fn *tiles_of = conv_tiles[self->product == DOT_BF16];
    const int64_t tiles_across = pieces(stripe->width, BERTH_TILE_ROWS);
    const float *const x = piece.x;
    piece.taps = taps;
    piece.next_step =
        piece.weight_bytes / berth_conv_volume(self->conv.kernel) / (stripe->lines * tiles_across);
    for (int64_t line = 0; line < stripe->lines; ++line) {
        piece.tap_count = conv_find_taps(self, stripe, line, taps);
        for (int64_t i = 0; i < tiles_across; ++i) {
            const berth_span rows = berth_share(stripe->width, i, tiles_across);
            piece.x = x + rows.first;
            tiles_of[rows.end - rows.first](&piece);
            piece.sums += (rows.end - rows.first) * PANEL;
            piece.next += piece.pairs * piece.tap_count * piece.next_step;
        }
    }
}

static inline void conv_multiply_panels(const conv_job *job, const conv_panels *of,
                                        const conv_room *room) {
    const convolution *self = job->self;
    const berth_conv *conv = &self->conv;
    const int is_dot = self->product == DOT_BF16;
    const int64_t of_pair = is_dot ? self->x_floats : 2 * self->x_floats;
    const int step = line_bytes(is_dot ? DOT_BF16 : TIMES_F32); // as it is multiplied
    const int is_widened = self->product == TIMES_BF16 || self->product == TIMES_F16;
    const int64_t pairs = pieces(conv->in / conv->groups, 2);
    const int64_t taps = berth_conv_volume(conv->kernel);
    const int64_t of_panel = panel_bytes(self->columns, self->dtype);
    const int64_t panel = of->stripe.group * pieces(self->outputs, PANEL) + of->first;
    const char *weight = (const char *)berth_data(job->args->inputs[WEIGHT]) + panel * of_panel;
    for (int64_t pair = 0; pair < pairs; pair += self->chunk_pairs) {
        for (int64_t i = 0; i < of->count; ++i) {
            const int64_t first = pair * taps * line_bytes(self->product);
            const int is_last = i + 1 == of->count;
            conv_tile piece = {
                .weight = weight + i * of_panel + first,
                .weight_bytes = taps * step,
                .x = room->x + pair * of_pair,
                .x_floats = self->x_floats,
                .pairs = at_most(self->chunk_pairs, pairs - pair),
                .sums = room->sums + i * of->stripe.lines * of->stripe.width * PANEL,
                .is_first = pair == 0,
            };
            piece.next = is_last ? weight + first + piece.pairs * taps * line_bytes(self->product)
                                 : piece.weight + of_panel;
            if (is_widened) {
                piece.weight =
                    panel_widen(piece.weight, self->product, piece.pairs * taps, room->widened);
            }
            conv_multiply_chunk(self, &of->stripe, piece, room->taps);
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
