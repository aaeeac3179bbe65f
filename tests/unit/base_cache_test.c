// SPDX-License-Identifier: Apache-2.0
// base/cache: what is written is read back, and nothing else is taken for an entry. Beside it what
// cuBLASLt's choices are read from, which needs no GPU.
#include "base/cache.h"

#include <math.h>
#include <string.h>

#include <cuda/product/choices.h>

#include "base/array.h"
#include "base/memory.h"
#include "support/test.h"

static berth_str encode(const char *key, berth_str content) {
    const berth_cache_entry entry = {.key = berth_str_from(key), .content = content};
    char *file = NULL;
    size_t size = 0;
    CHECK_OK(berth_cache_encode(&entry, &file, &size));
    return (berth_str){.data = file, .size = size};
}

static void release(berth_str file) {
    berth_free((void *)(uintptr_t)file.data);
}

static void check_refused(berth_str file, const char *why) {
    berth_cache_entry entry = {0};
    CHECK_STATUS(berth_cache_decode(file, &entry), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), why);
    CHECK_NULL(entry.content.data);
}

TEST(cache_reads_back_what_was_written) {
    static const berth_str contents[] = {
        {"",            0 },
        {"a",           1 },
        {"with\0a NUL", 10},
        {NULL,          0 }
    };
    for (size_t i = 0; i < BERTH_COUNT(contents); ++i) {
        const berth_str file = encode("any key\n", contents[i]);
        berth_cache_entry entry = {0};
        CHECK_OK(berth_cache_decode(file, &entry));
        CHECK(berth_str_equal_cstr(entry.key, "any key\n"));
        CHECK(berth_str_equal(entry.content, contents[i]));
        release(file);
    }
}

TEST(cache_refuses_every_cut) {
    const berth_str file = encode("key", BERTH_STR("content"));
    for (size_t size = 0; size < file.size; ++size) {
        check_refused(berth_str_slice(file, 0, size), size < 32 ? "less than a header" : "sizes");
    }
    release(file);
}

TEST(cache_refuses_every_changed_bit) {
    const berth_str file = encode("key", BERTH_STR("content"));
    char *bytes = (char *)(uintptr_t)file.data;
    for (size_t bit = 0; bit < 8 * file.size; ++bit) {
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        check_refused(file, bit < 64 ? "no entry of this version" : "its ");
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
    }
    berth_cache_entry entry;
    CHECK_OK(berth_cache_decode(file, &entry));
    release(file);
}

// The same bytes with the border elsewhere are another entry.
TEST(cache_keeps_key_and_content_apart) {
    const berth_str file = encode("ab", BERTH_STR("c"));
    char *bytes = (char *)(uintptr_t)file.data;
    bytes[8] = 1;
    bytes[16] = 2;
    check_refused(file, "checksum");
    release(file);
}

TEST(cache_refuses_sizes_that_overflow) {
    const berth_str file = encode("key", BERTH_STR("content"));
    char *bytes = (char *)(uintptr_t)file.data;
    memset(bytes + 8, 0xff, 8);
    bytes[16] = 11; // -1 + 11 bytes would be what is there
    check_refused(file, "sizes");
    release(file);
}

TEST(cache_refuses_what_is_too_large) {
    static char large[1];
    const berth_cache_entry entry = {
        .key = BERTH_STR("key"), .content = {large, BERTH_CACHE_LIMIT_BYTES - 34}
    };
    const berth_cache_entry huge = {
        .key = {large, SIZE_MAX},
          .content = {large, 2       }
    };
    char *file = NULL;
    size_t size = 0;
    CHECK_STATUS(berth_cache_encode(&entry, &file, &size), BERTH_OUT_OF_MEMORY);
    CHECK_STATUS(berth_cache_encode(&huge, &file, &size), BERTH_OUT_OF_MEMORY);
    CHECK_NULL(file);
}

// ---- choices of cuBLASLt ------------------------------------------------------------------------

static const cuda_choice good[] = {
    {16,  0.01f, {1, 2, 3, 4, 5, 6, 7, 8}},
    {24,  0.02f, {2}                     },
    {512, 1.5f,  {UINT64_MAX}            },
};

static int take(const cuda_choice *choices, uint64_t size, cuda_choice *out) {
    return cuda_choices_take(choices, size, 512, out);
}

TEST(choices_come_back_as_they_were) {
    cuda_choice out[CUDA_CHOICES_MAX];
    CHECK_INT(take(good, sizeof(good), out), 3);
    CHECK_BYTES(out, good, sizeof(good));
    CHECK_INT(cuda_choices_take(good, sizeof(good[0]), 16, out), 1);
}

TEST(choices_of_another_size_or_shape_are_refused) {
    cuda_choice out[CUDA_CHOICES_MAX];
    cuda_choice many[CUDA_CHOICES_MAX + 1];
    for (int i = 0; i <= CUDA_CHOICES_MAX; ++i) {
        many[i] = (cuda_choice){.rows = i + 1, .milliseconds = 1};
    }
    for (uint64_t size = 0; size < sizeof(good); ++size) {
        CHECK_INT(take(good, size, out), 0);
    }
    CHECK_INT(cuda_choices_take(good, sizeof(good), 511, out), 0);
    CHECK_INT(cuda_choices_take(good, sizeof(good), 513, out), 0);
    CHECK_INT(cuda_choices_take(many, sizeof(many), CUDA_CHOICES_MAX + 1, out), 0);
    CHECK_INT(cuda_choices_take(many, sizeof(many) - sizeof(many[0]), CUDA_CHOICES_MAX, out),
              CUDA_CHOICES_MAX);
}

TEST(choices_that_make_no_sense_are_refused) {
    static const float times[] = {0, -1, -0.0f, 4e6f, (float)INFINITY, (float)NAN};
    cuda_choice out[CUDA_CHOICES_MAX];
    cuda_choice bad[3];
    for (size_t i = 0; i < BERTH_COUNT(times); ++i) {
        memcpy(bad, good, sizeof(bad));
        bad[1].milliseconds = times[i];
        CHECK_INT(take(bad, sizeof(bad), out), 0);
    }
    for (int32_t rows = -1; rows <= 16; ++rows) { // not above the rows before
        memcpy(bad, good, sizeof(bad));
        bad[1].rows = rows;
        CHECK_INT(take(bad, sizeof(bad), out), 0);
    }
    memcpy(bad, good, sizeof(bad));
    bad[0].rows = 0;
    CHECK_INT(take(bad, sizeof(bad), out), 0);
}
