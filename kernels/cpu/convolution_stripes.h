// SPDX-License-Identifier: Apache-2.0
// Convolutions whose patches overlap, or are of one column: some lines of y at a time, the stripe.
// The lines of x that it needs are copied for all channels, as floats or as words of two bf16, with
// zeros beside them, so that every tap of the kernel meets neighbours in them (convolution_tile.h),
// or element by element, for matrices (convolution_matrix.h); a line of x with a stride is taken
// apart into as many phases. A part packs the stripes for itself: that costs little, and nobody
// waits for another.
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
    self->chunk_pairs = conv_chunk(self) / taps;
    if (is_matrix(self->product)) {
        self->chunk_pairs = taps < CONV_LINES ? CONV_LINES / taps * MATRIX_WORDS : MATRIX_WORDS;
    }
}

// Words from what a line of y meets first to what the next one does.
static inline int64_t conv_line_floats(const convolution *self) {
    return self->pitch * self->conv.stride[2] * self->conv.stride[1];
}

// Positions of a line of y that matrices take at once, at most.
static inline int64_t conv_lot_rows(const convolution *self) {
    return conv_even(self->width, BERTH_MATRIX_ROWS);
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

// Channels that are packed together, and the floats that they take.
static inline int64_t conv_channels_packed(const convolution *self) {
    return is_matrix(self->product) ? 2 * MATRIX_WORDS : is_paired(self->product) ? 2 : 1;
}

static inline int64_t conv_words_packed(const convolution *self) {
    return is_matrix(self->product) ? MATRIX_WORDS * self->x_floats : self->x_floats;
}

// Bits of pairs of bf16; `second` may be NULL: zeros.
static inline void conv_join(const uint16_t *first, const uint16_t *second, int64_t count,
                             float *to) {
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t upper = second ? second[i] : 0;
        to[i] = berth_float_of_bits(upper << 16 | first[i]);
    }
}

// Elements of x from element `at` on, of so many channels, which are `apart` elements apart.
typedef struct conv_source {
    const berth_tensor *x;
    int64_t at;
    int64_t apart;
    int64_t channels;
} conv_source;

// One channel as floats, or two as words.
static inline void conv_load_words(const convolution *self, const conv_source *from, int64_t first,
                                   int64_t count, float *to) {
    const int64_t at = from->at + first;
    if (count == 0) {
        return;
    }
    const berth_ahead here = {0};
    berth_fetch(berth_data(from->x), from->x->dtype, at + CONV_AHEAD * from->apart, count, here);
    if (is_paired(self->product)) {
        const uint16_t *words = (const uint16_t *)berth_data(from->x) + at;
        conv_join(words, from->channels > 1 ? words + from->apart : NULL, count, to);
    } else {
        berth_load(berth_data(from->x), from->x->dtype, at, count, to);
    }
}

// What of `seen` is in a line of `size` elements, counted from where it begins.
static inline berth_span conv_inside(berth_span seen, int64_t size) {
    const int64_t count = seen.end - seen.first;
    const int64_t first = seen.first < 0 ? at_most(-seen.first, count) : 0;
    const int64_t end = seen.end <= size ? count : size > seen.first ? size - seen.first : 0;
    return (berth_span){first, end > first ? end : first};
}

// Packs one line, of which the kernel sees elements that may lie outside.
typedef void (*conv_pack_fn)(const convolution *self, const conv_source *from, berth_span seen,
                             float *room, float *to);

static inline void conv_pack_line(const convolution *self, const conv_source *from, berth_span seen,
                                  float *room, float *to) {
    const int64_t stride = self->conv.stride[2];
    const int64_t count = seen.end - seen.first;
    const berth_span inside = conv_inside(seen, self->conv.size[2]);
    float *line = stride == 1 ? to : room;
    memset(line, 0, (size_t)inside.first * sizeof *line);
    conv_load_words(self, from, seen.first + inside.first, inside.end - inside.first,
                    line + inside.first);
    memset(line + inside.end, 0, (size_t)(count - inside.end) * sizeof *line);
    for (int64_t phase = 0; phase < stride && stride > 1; ++phase, to += self->pitch) {
        for (int64_t i = 0; phase + i * stride < count; ++i) {
            to[i] = line[phase + i * stride];
        }
    }
}

// Of as many channels as a line of words has, element by element.
static inline void conv_pack_elements(const convolution *self, const conv_source *from,
                                      berth_span seen, float *room, float *to) {
    const int64_t stride = self->conv.stride[2];
    const int64_t count = seen.end - seen.first;
    const berth_span inside = conv_inside(seen, self->conv.size[2]);
    const int64_t width = inside.end - inside.first;
    float *elements = stride == 1 ? to : room + MATRIX_WORDS * stride * self->pitch;
    for (int64_t i = 0; i < MATRIX_WORDS; ++i) {
        conv_source pair = *from;
        pair.at += 2 * i * from->apart;
        pair.channels -= 2 * i;
        if (pair.channels > 0) {
            conv_load_words(self, &pair, seen.first + inside.first, width, room + i * width);
        } else {
            memset(room + i * width, 0, (size_t)width * sizeof *room);
        }
    }
    memset(elements, 0, (size_t)(inside.first * BERTH_LINE));
    berth_transpose(room, width, MATRIX_WORDS, width, elements + inside.first * MATRIX_WORDS);
    memset(elements + inside.end * MATRIX_WORDS, 0, (size_t)((count - inside.end) * BERTH_LINE));
    for (int64_t phase = 0; phase < stride && stride > 1; ++phase) {
        for (int64_t i = 0; phase + i * stride < count; ++i) {
            memcpy(to + (phase * self->pitch + i) * MATRIX_WORDS,
                   elements + (phase + i * stride) * MATRIX_WORDS, BERTH_LINE);
        }
    }
}

// Where the kernel begins in a dimension of x, at position `position`.
static inline int64_t conv_start(const berth_conv *conv, int dim, int64_t position) {
    return position * conv->stride[dim] - conv->padding[dim];
}

// What a stripe needs of one channel, pair or line of them; for lines outside of x no tap asks.
static inline void conv_pack_channels(const convolution *self, const conv_stripe *stripe,
                                      const conv_source *channels, float *room, float *to) {
    const berth_conv *conv = &self->conv;
    const int64_t left = conv_start(conv, 2, stripe->first[2]);
    const berth_span seen = {left, left + conv_reach(conv, 2, stripe->width)};
    const int64_t top = conv_start(conv, 1, stripe->first[1]);
    const int64_t bottom = at_most(top + conv_reach(conv, 1, stripe->lines), conv->size[1]);
    const conv_pack_fn pack = is_matrix(self->product) ? conv_pack_elements : conv_pack_line;
    const int64_t of_element = is_matrix(self->product) ? MATRIX_WORDS : 1;
    for (int64_t tap = 0; tap < conv->kernel[0]; ++tap) {
        const int64_t z = conv_start(conv, 0, stripe->first[0]) + tap * conv->dilation[0];
        for (int64_t y = top < 0 ? 0 : top; y < bottom && z >= 0 && z < conv->size[0]; ++y) {
            const int64_t at = (tap * self->x_lines + y - top) * self->pitch * conv->stride[2];
            conv_source line = *channels;
            line.at += (z * conv->size[1] + y) * conv->size[2];
            pack(self, &line, seen, room, to + at * of_element);
        }
    }
}

static inline void conv_pack_stripe(const conv_job *job, const conv_stripe *stripe,
                                    const conv_room *room) {
    const convolution *self = job->self;
    const berth_conv *conv = &self->conv;
    const int64_t channels = conv->channels;
    const int64_t volume = berth_conv_volume(conv->size);
    const int64_t step = conv_channels_packed(self);
    const int64_t first = stripe->image * conv->in + stripe->group * channels;
    float *to = room->x;
    for (int64_t i = 0; i < channels; i += step, to += conv_words_packed(self)) {
        const conv_source source = {
            .x = job->args->inputs[X],
            .at = (first + i) * volume,
            .apart = volume,
            .channels = channels - i,
        };
        conv_pack_channels(self, stripe, &source, room->line, to);
    }
    if (step == 1 && channels % 2) { // beside the weight's zeros
        memset(to, 0, (size_t)self->x_floats * sizeof *to);
    }
}

#endif
