// SPDX-License-Identifier: Apache-2.0
// Convolutions whose patches overlap, or are of one column: some lines of y at a time, the stripe.
// The lines of x that it needs are copied for all channels, as floats or as words of two bf16, with
// zeros beside them, so that every tap of the kernel meets neighbours in them (convolution_tile.h);
// a line of x with a stride is taken apart into as many phases. A part packs the stripes for
// itself: that costs next to nothing, and nobody waits for another.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_STRIPES_H
#define BERTH_KERNELS_CPU_CONVOLUTION_STRIPES_H

#include <cpu/convolution_patches.h>

typedef struct conv_stripe {
    int64_t image;
    int64_t group;
    int64_t first[3]; // position
    int64_t lines;
    int64_t width;
} conv_stripe;

// ---- sizes --------------------------------------------------------------------------------------

// Dimensions in which the kernel does nothing become one, so that lines are long.
static inline void conv_fold(berth_conv *conv) {
    for (int dim = 2; dim > 0; --dim) {
        int is_plain = 1;
        for (int i = dim - 1; i <= dim; ++i) {
            is_plain =
                is_plain && conv->kernel[i] == 1 && conv->stride[i] == 1 && conv->padding[i] == 0;
        }
        if (is_plain) {
            conv->size[dim] *= conv->size[dim - 1];
            conv->positions[dim] *= conv->positions[dim - 1];
            conv->size[dim - 1] = 1;
            conv->positions[dim - 1] = 1;
        }
    }
}

// What `count` positions meet in a dimension of x.
static inline int64_t conv_reach(const berth_conv *conv, int dim, int64_t count) {
    return (count - 1) * conv->stride[dim] + (conv->kernel[dim] - 1) * conv->dilation[dim] + 1;
}

// Equal pieces of no more than `most`.
static inline int64_t conv_even(int64_t count, int64_t most) {
    return pieces(count, pieces(count, most));
}

static inline void conv_size_stripes(convolution *self) {
    berth_conv *conv = &self->conv;
    const int64_t taps = berth_conv_volume(conv->kernel);
    conv_fold(conv);
    self->width = conv_even(conv->positions[2], CONV_ROWS);
    self->lines = conv_even(conv->positions[1], CONV_ROWS / self->width);
    self->pitch = pieces(conv_reach(conv, 2, self->width), conv->stride[2]);
    self->x_lines = conv_reach(conv, 1, self->lines);
    const int64_t floats = conv->kernel[0] * self->x_lines * conv->stride[2] * self->pitch;
    // An odd number of cache lines, so that channels do not meet in few sets of a cache.
    self->x_floats = (pieces(floats, 16) | 1) * 16;
    self->chunk_pairs = taps < PANEL_CHUNK ? PANEL_CHUNK / taps : 1;
}

static inline int64_t conv_stripes_of_image(const convolution *self) {
    const int64_t *positions = self->conv.positions;
    return positions[0] * pieces(positions[1], self->lines) * pieces(positions[2], self->width);
}

static inline conv_stripe conv_stripe_at(const convolution *self, int64_t index) {
    const int64_t *positions = self->conv.positions;
    const int64_t across = pieces(positions[2], self->width);
    const int64_t down = pieces(positions[1], self->lines);
    const int64_t image = index / conv_stripes_of_image(self);
    conv_stripe out = {
        .image = image / self->conv.groups,
        .group = image % self->conv.groups,
        .first = {index / across / down % positions[0], index / across % down * self->lines,
                  index % across * self->width},
    };
    out.lines = at_most(self->lines, positions[1] - out.first[1]);
    out.width = at_most(self->width, positions[2] - out.first[2]);
    return out;
}

// ---- x ------------------------------------------------------------------------------------------

// Bits of pairs of bf16; `second` may be NULL: zeros.
static inline void conv_join(const uint16_t *first, const uint16_t *second, int64_t count,
                             float *to) {
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t upper = second ? second[i] : 0;
        to[i] = berth_float_of_bits(upper << 16 | first[i]);
    }
}

// Elements of x from element `at` on, of one channel or of two with `apart` elements between them,
// of which there may be only one.
typedef struct conv_source {
    const berth_tensor *x;
    int64_t at;
    int64_t apart; // 0: there is no second one
} conv_source;

static inline void conv_load_words(const convolution *self, const conv_source *from, int64_t first,
                                   int64_t count, float *to) {
    const int64_t at = from->at + first;
    if (self->product == DOT_BF16) {
        const uint16_t *words = (const uint16_t *)berth_data(from->x) + at;
        conv_join(words, from->apart ? words + from->apart : NULL, count, to);
    } else {
        berth_load(berth_data(from->x), from->x->dtype, at, count, to);
    }
}

// One line, of which the kernel sees `count` elements from `first` on, that may lie outside.
static inline void conv_pack_line(const convolution *self, const conv_source *from, berth_span seen,
                                  float *room, float *to) {
    const int64_t size = self->conv.size[2];
    const int64_t stride = self->conv.stride[2];
    const int64_t count = seen.end - seen.first;
    const int64_t before = seen.first < 0 ? at_most(-seen.first, count) : 0;
    const int64_t end = seen.end <= size ? count : size > seen.first ? size - seen.first : 0;
    float *line = stride == 1 ? to : room;
    for (int64_t i = 0; i < before; ++i) {
        line[i] = 0;
    }
    if (before < end) {
        conv_load_words(self, from, seen.first + before, end - before, line + before);
    }
    for (int64_t i = before < end ? end : before; i < count; ++i) {
        line[i] = 0;
    }
    for (int64_t phase = 0; phase < stride && stride > 1; ++phase, to += self->pitch) {
        for (int64_t i = 0; phase + i * stride < count; ++i) {
            to[i] = line[phase + i * stride];
        }
    }
}

// Where the kernel begins in a dimension of x, at position `position`.
static inline int64_t conv_start(const berth_conv *conv, int dim, int64_t position) {
    return position * conv->stride[dim] - conv->padding[dim];
}

// What a stripe needs of one channel or one pair of them. Lines outside of x are left out: no tap
// asks for them.
static inline void conv_pack_channel(const convolution *self, const conv_stripe *stripe,
                                     const conv_source *channel, float *room, float *to) {
    const berth_conv *conv = &self->conv;
    const int64_t left = conv_start(conv, 2, stripe->first[2]);
    const berth_span seen = {left, left + conv_reach(conv, 2, stripe->width)};
    const int64_t top = conv_start(conv, 1, stripe->first[1]);
    const int64_t bottom = at_most(top + conv_reach(conv, 1, stripe->lines), conv->size[1]);
    for (int64_t tap = 0; tap < conv->kernel[0]; ++tap) {
        const int64_t z = conv_start(conv, 0, stripe->first[0]) + tap * conv->dilation[0];
        for (int64_t y = top < 0 ? 0 : top; y < bottom && z >= 0 && z < conv->size[0]; ++y) {
            conv_source line = *channel;
            line.at += (z * conv->size[1] + y) * conv->size[2];
            conv_pack_line(self, &line, seen, room,
                           to + (tap * self->x_lines + y - top) * self->pitch * conv->stride[2]);
        }
    }
}

static inline void conv_pack_stripe(const conv_job *job, const conv_stripe *stripe,
                                    const conv_room *room) {
    const convolution *self = job->self;
    const berth_conv *conv = &self->conv;
    const int64_t channels = conv->in / conv->groups;
    const int64_t volume = berth_conv_volume(conv->size);
    const int64_t step = self->product == DOT_BF16 ? 2 : 1;
    const int64_t first = stripe->image * conv->in + stripe->group * channels;
    float *to = room->x;
    for (int64_t i = 0; i < channels; i += step, to += self->x_floats) {
        const conv_source source = {
            .x = job->args->inputs[X],
            .at = (first + i) * volume,
            .apart = i + 1 < channels ? volume : 0,
        };
        conv_pack_channel(self, stripe, &source, room->line, to);
    }
    if (step == 1 && channels % 2) { // beside the weight's zeros
        memset(to, 0, (size_t)self->x_floats * sizeof *to);
    }
}

// ---- products -----------------------------------------------------------------------------------

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
                .weight_bytes = taps * line_bytes(is_dot ? DOT_BF16 : TIMES_F32),
                .x = room->x + pair * self->x_floats * (is_dot ? 1 : 2),
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
