// SPDX-License-Identifier: Apache-2.0
#include <assert.h>
#include <string.h>

#include "base/array.h"
#include "base/stream.h"
#include "support/test.h"

#define BYTES ((size_t)16 * BERTH_STREAM_GRAIN)

TEST(stream_memory_is_fresh_and_its_numbers_are_small) {
    float *memory = berth_stream_map(BYTES);
    CHECK(memory != NULL);
    assert(memory);
    CHECK(memory[0] == 0.0F && memory[BYTES / sizeof *memory - 1] == 0.0F);
    berth_stream_fill(memory, BYTES);
    for (size_t i = 0; i < BYTES / sizeof *memory; ++i) {
        CHECK(memory[i] >= 0x1p-7F && memory[i] < 0x1p-6F);
    }
    berth_stream_unmap(memory, BYTES);
    berth_stream_unmap(NULL, BYTES);
}

// A reader that left a line out would give another sum when that line changes.
TEST(stream_readers_read_every_line) {
    float *memory = berth_stream_map(BYTES);
    CHECK(memory != NULL);
    assert(memory);
    for (int way = 0; way < BERTH_STREAM_WAYS; ++way) {
        memset(memory, 0, BYTES);
        for (size_t i = 0; i < BYTES / sizeof *memory; i += 16) {
            const size_t lines = i / 16 + 1;
            memory[i] = 1; // of lanes the first and the last are given back
            CHECK(berth_stream_read(memory, BYTES, (berth_stream_way)way) == (float)lines);
        }
    }
    berth_stream_unmap(memory, BYTES);
}

TEST(stream_copies_copy) {
    void (*const copies[])(void *, const void *, size_t) = {berth_stream_copy,
                                                            berth_stream_copy_past};
    unsigned char *memory = berth_stream_map(2 * BYTES);
    CHECK(memory != NULL);
    assert(memory);
    for (size_t i = 0; i < BERTH_COUNT(copies); ++i) {
        memset(memory, 0, BYTES);
        berth_stream_fill(memory + BYTES, BYTES);
        memory[2 * BYTES - 1] = (unsigned char)(i + 1);
        copies[i](memory, memory + BYTES, BYTES);
        CHECK(memcmp(memory, memory + BYTES, BYTES) == 0);
    }
    berth_stream_unmap(memory, 2 * BYTES);
}

// Three lines are read, and their sum is written twice; nothing behind that is.
TEST(stream_passes_write_sums) {
    enum { LINE = 64, READS = 3, WRITES = 2, TURNS = 8 };
    unsigned char *memory = berth_stream_map(2 * BYTES);
    CHECK(memory != NULL);
    assert(memory);
    for (int way = 0; way < 2; ++way) {
        const berth_stream_mix mix = {.reads = READS, .writes = WRITES, .is_past = way == 1};
        memset(memory, 0, 2 * BYTES);
        for (int line = 0; line < READS * TURNS; ++line) {
            memory[BYTES + line * LINE] = (unsigned char)(line / READS + 1);
            memory[BYTES + line * LINE + LINE - 1] = 1;
        }
        berth_stream_pass(memory, memory + BYTES, TURNS, &mix);
        for (int line = 0; line < WRITES * TURNS; ++line) {
            CHECK(memory[line * LINE] == READS * (line / WRITES + 1));
            CHECK(memory[line * LINE + LINE - 1] == READS);
        }
        CHECK(memory[WRITES * TURNS * LINE] == 0 && memory[WRITES * TURNS * LINE + LINE - 1] == 0);
    }
    berth_stream_unmap(memory, 2 * BYTES);
}

// 0.5 s + 0.5 comes nearer to 1 with every round, from 0.5 on; both are 12 sums.
TEST(stream_multiplies_what_it_says) {
    float sink = 0;
    const double flops = berth_stream_multiply_f32(40, &sink);
    CHECK(sink > 11.99F && sink <= 12.0F);
    CHECK(flops > 0 && berth_stream_multiply_f32(80, &sink) == 2 * flops);
    sink = 0;
    const double pairs = berth_stream_multiply_bf16(40, &sink);
    CHECK(pairs == 0 ? sink == 0 : sink > 0 && berth_stream_multiply_bf16(80, &sink) == 2 * pairs);
}
