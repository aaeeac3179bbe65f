// SPDX-License-Identifier: Apache-2.0
// base/memory, base/arena, base/array, base/map and base/hash: growth, limits, and what happens
// when the n-th allocation fails, for every n.
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/cgroup.h"
#include "base/hash.h"
#include "base/map.h"
#include "support/sandbox.h"
#include "support/test.h"

TEST(memory_is_zeroed_and_counted) {
    const uint64_t before = berth_memory_allocations();
    unsigned char *block = berth_alloc(100);
    for (size_t i = 0; i < 100; ++i) {
        CHECK_INT(block[i], 0);
    }
    block = berth_realloc(block, 200);
    void *aligned = berth_alloc_aligned(256, 1);
    CHECK_UINT((uintptr_t)aligned % 256, 0);
    CHECK_UINT(berth_memory_allocations(), before + 3);
    berth_free(block);
    berth_free(aligned);
    berth_free(NULL);
    CHECK_UINT(berth_memory_allocations(), before + 3);
}

TEST(memory_of_any_size_and_place_becomes_zero) {
    static const size_t sizes[] = {1, 4095, 1 << 20, (1 << 20) + 5, (4 << 20) - 1};
    for (size_t i = 0; i < BERTH_COUNT(sizes); ++i) {
        unsigned char *block = berth_alloc_aligned(64, sizes[i] + 65);
        memset(block, 0xaa, sizes[i] + 65);
        berth_memory_zero(block + 64, sizes[i]);
        CHECK_INT(block[63], 0xaa);
        CHECK_INT(block[64 + sizes[i]], 0xaa);
        size_t others = 0;
        for (size_t k = 0; k < sizes[i]; ++k) {
            others += block[64 + k] != 0;
        }
        CHECK_UINT(others, 0);
        berth_free(block);
    }
}

TEST(memory_that_is_available_includes_the_page_cache) {
    unsigned long long kibibytes = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        (void)sscanf(line, "MemAvailable: %llu kB", &kibibytes);
    }
    CHECK(file && fclose(file) == 0);
    const uint64_t available = berth_memory_available();
    const uint64_t total = berth_memory_total();
    CHECK(total > 0 && available > 0 && available <= total);
    // Others of this machine take and give between the two readings.
    const uint64_t allowed =
        berth_cgroup_memory_read("/proc/self/cgroup", "/sys/fs/cgroup").available;
    const uint64_t machine = kibibytes * 1024;
    CHECK(available > (machine < allowed ? machine : allowed) / 2);
}

// ---- control groups -----------------------------------------------------------------------------

#define NONE UINT64_MAX

// Groups of both versions, one inside of the other, below `box`.
static void make_groups(const sandbox *box) {
    (void)sandbox_write(box, "memory.max", "8000\n");
    (void)sandbox_write(box, "memory.current", "7000\n");
    (void)sandbox_write(box, "memory.stat",
                        "anon 500\nfile 6500\ninactive_file 3000\nactive_file 50\n");
    (void)sandbox_write(box, "a/memory.max", "max\n");
    (void)sandbox_write(box, "a/b/memory.max", "5000\n");
    (void)sandbox_write(box, "a/b/memory.current", "100\n");
    (void)sandbox_write(box, "full/memory.max", "600\n");
    (void)sandbox_write(box, "full/memory.current", "700\n");
    (void)sandbox_write(box, "memory/memory.limit_in_bytes", "9223372036854771712\n");
    (void)sandbox_write(box, "memory/c/memory.limit_in_bytes", "900\n");
    (void)sandbox_write(box, "memory/c/memory.usage_in_bytes", "400\n");
    (void)sandbox_write(box, "memory/c/memory.stat", "inactive_file 1\ntotal_inactive_file 30\n");
}

TEST(memory_of_a_control_group_is_that_of_the_tightest) {
    static const struct {
        const char *groups;
        uint64_t limit, available;
    } rows[] = {
        {"0::/\n",                         8000, 4050},
        {"0::/a\n",                        8000, 4050},
        {"0::/a/b\n",                      5000, 4050},
        {"0::/another/machines/path\n",    8000, 4050},
        {"0::/full\n",                     600,  0   },
        {"4:cpu:/c\n3:memory:/c\n",        900,  530 },
        {"4:memory,cpu:/c\n0::/a/b\n",     900,  530 },
        {"4:memory:/\n",                   NONE, NONE},
        {"4:memoryless,name=memory2:/c\n", NONE, NONE},
        {"no groups at all\n4\n4:\n",      NONE, NONE},
        {"",                               NONE, NONE},
    };
    sandbox box;
    sandbox_make(&box);
    make_groups(&box);
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        const char *groups = sandbox_write(&box, "groups", rows[i].groups);
        const berth_cgroup_memory memory = berth_cgroup_memory_read(groups, box.dir);
        CHECK_UINT(memory.limit, rows[i].limit);
        CHECK_UINT(memory.available, rows[i].available);
    }
    CHECK_UINT(berth_cgroup_memory_read("/nonexistent", box.dir).limit, NONE);
    sandbox_remove(&box);
}

// The same for CPUs.
static void make_quotas(const sandbox *box) {
    (void)sandbox_write(box, "cpu.max", "800000 100000\n");
    (void)sandbox_write(box, "a/cpu.max", "max 100000\n");
    (void)sandbox_write(box, "a/b/cpu.max", "150000 100000\n");
    (void)sandbox_write(box, "small/cpu.max", "1000 100000\n");
    (void)sandbox_write(box, "odd/cpu.max", "300000 0\n");
    (void)sandbox_write(box, "wide/cpu.max", "9000000000000000000 1\n");
    (void)sandbox_write(box, "cpu/cpu.cfs_quota_us", "-1\n");
    (void)sandbox_write(box, "cpu/cpu.cfs_period_us", "100000\n");
    (void)sandbox_write(box, "cpu/c/cpu.cfs_quota_us", "400000\n");
    (void)sandbox_write(box, "cpu/c/cpu.cfs_period_us", "100000\n");
    (void)sandbox_write(box, "cpu/half/cpu.cfs_quota_us", "400000\n");
}

TEST(cpus_of_a_control_group_are_those_of_the_tightest_quota) {
    static const struct {
        const char *groups;
        uint32_t cpus;
    } rows[] = {
        {"0::/\n",                      8         },
        {"0::/a\n",                     8         },
        {"0::/a/b\n",                   2         },
        {"0::/small\n",                 1         },
        {"0::/odd\n",                   8         },
        {"0::/wide\n",                  8         },
        {"4:cpuacct,cpu:/c\n0::/a/b\n", 2         },
        {"4:cpu:/c\n3:cpuset:/\n",      4         },
        {"4:cpu:/half\n",               UINT32_MAX},
        {"4:cpuset,cpuacct:/c\n",       UINT32_MAX},
        {"",                            UINT32_MAX},
    };
    sandbox box;
    sandbox_make(&box);
    make_quotas(&box);
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        const char *groups = sandbox_write(&box, "groups", rows[i].groups);
        CHECK_UINT(berth_cgroup_cpus_read(groups, box.dir), rows[i].cpus);
    }
    CHECK_UINT(berth_cgroup_cpus_read("/nonexistent", box.dir), UINT32_MAX);
    sandbox_remove(&box);
}

TEST(memory_fails_the_chosen_allocation_only) {
    CHECK_UINT(berth_memory_fail_after(2), 0);
    void *first = berth_alloc(1);
    CHECK(first != NULL);
    CHECK_NULL(berth_realloc(first, 100));
    void *third = berth_alloc(1);
    CHECK(third != NULL);
    CHECK_UINT(berth_memory_fail_after(5), 0);
    CHECK_UINT(berth_memory_fail_after(0), 5);
    berth_free(first);
    berth_free(third);
}

// Whether there is an object, all zero; fills it so that its reuse would show.
static bool takes_zeroed(unsigned char *object, size_t size) {
    for (size_t i = 0; object != NULL && i < size; ++i) {
        if (object[i] != 0) {
            return false;
        }
        object[i] = 0xee;
    }
    return object != NULL;
}

TEST(arena_gives_zeroed_aligned_objects) {
    berth_arena *arena = NULL;
    CHECK_OK(berth_arena_create(512, 1 << 20, &arena));
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        unsigned char *object = berth_arena_alloc(arena, 100, alignment);
        CHECK_UINT((uintptr_t)object % alignment, 0);
        CHECK(takes_zeroed(object, 100));
    }
    int64_t *numbers = BERTH_ARENA_ARRAY(arena, int64_t, 1000);
    CHECK(takes_zeroed((unsigned char *)numbers, 1000 * sizeof(*numbers)));
    CHECK(BERTH_ARENA_NEW(arena, berth_str) != NULL);
    CHECK(berth_arena_alloc(arena, 0, 1) != NULL);
    berth_arena_destroy(arena);
}

TEST(arena_copies_text) {
    berth_arena *arena = NULL;
    CHECK_OK(berth_arena_create(64, 4096, &arena));
    CHECK_STR(berth_arena_strdup(arena, "abc"), "abc");
    CHECK_STR(berth_arena_copy(arena, (berth_str){.data = "abcdef", .size = 2}), "ab");
    CHECK_STR(berth_arena_copy(arena, (berth_str){0}), "");
    CHECK_STR(berth_arena_printf(arena, "%s/%d", "dir", 7), "dir/7");
    berth_arena_destroy(arena);
}

TEST(arena_keeps_to_its_limit) {
    berth_arena *arena = NULL;
    CHECK_OK(berth_arena_create(256, 1024, &arena));
    CHECK_NULL(berth_arena_alloc(arena, 2000, 1));
    CHECK_NULL(berth_arena_alloc(arena, SIZE_MAX, 16));
    CHECK_NULL(berth_arena_array(arena, SIZE_MAX / 2, 3));
    size_t given = 0;
    while (berth_arena_alloc(arena, 16, 8) != NULL) {
        given += 16;
    }
    CHECK(given >= 512);
    CHECK(berth_arena_bytes(arena) <= 1024);
    CHECK_STATUS(berth_arena_exhausted(arena, "graph nodes"), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "no memory for graph nodes");
    CHECK_CONTAINS(berth_status_message(), "the limit is 1024");
    berth_arena_destroy(arena);
    CHECK_STATUS(berth_arena_create(256, 100, &arena), BERTH_OUT_OF_MEMORY);
}

TEST(arena_is_reused_without_new_memory) {
    berth_arena *arena = NULL;
    CHECK_OK(berth_arena_create(4096, 1 << 20, &arena));
    CHECK(berth_arena_alloc(arena, 10000, 8) != NULL);
    CHECK(berth_arena_alloc(arena, 4000, 8) != NULL);
    berth_arena_reset(arena);
    CHECK_UINT(berth_arena_bytes(arena), 4096);
    const uint64_t before = berth_memory_allocations();
    for (int round = 0; round < 10; ++round) {
        CHECK(takes_zeroed(berth_arena_alloc(arena, 3000, 8), 3000));
        berth_arena_reset(arena);
    }
    CHECK_UINT(berth_memory_allocations(), before);
    berth_arena_destroy(arena);
    berth_arena_destroy(NULL);
}

// Fails unless every allocation succeeds; leaves nothing behind either way.
static berth_status fill_arena(void) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create(128, 1 << 20, &arena));
    berth_status status = BERTH_OK;
    for (size_t size = 1; size < 1000 && status == BERTH_OK; size *= 2) {
        if (berth_arena_alloc(arena, size, 8) == NULL) {
            status = berth_arena_exhausted(arena, "numbers");
        }
    }
    berth_arena_destroy(arena);
    return status;
}

typedef berth_array(int) int_array;

static berth_status fill_array(void) {
    int_array numbers = {0};
    berth_status status = BERTH_OK;
    for (int i = 0; i < 100 && status == BERTH_OK; ++i) {
        status = berth_array_push(&numbers, i);
    }
    for (size_t i = 0; i < numbers.count; ++i) {
        CHECK_INT(numbers.data[i], (int)i);
    }
    berth_array_free(&numbers);
    CHECK_NULL(numbers.data);
    return status;
}

static berth_status fill_map(void) {
    berth_map map;
    berth_map_init(&map);
    static char keys[200][8];
    berth_status status = BERTH_OK;
    for (uint32_t i = 0; i < 200 && status == BERTH_OK; ++i) {
        snprintf(keys[i], sizeof(keys[i]), "key%u", (unsigned)i);
        status = berth_map_add(&map, berth_str_from(keys[i]), i * 3);
    }
    for (uint32_t i = 0; i < map.count; ++i) {
        CHECK_UINT(*berth_map_find(&map, berth_str_from(keys[i])), i * 3);
        CHECK_STR(map.entries[i].key.data, keys[i]);
    }
    berth_map_deinit(&map);
    return status;
}

static void fail_every_allocation(berth_status (*run)(void)) {
    for (uint64_t n = 1;; ++n) {
        berth_memory_fail_after(n);
        const berth_status status = run();
        if (berth_memory_fail_after(0) > 0) {
            CHECK_OK(status);
            return;
        }
        CHECK_STATUS(status, BERTH_OUT_OF_MEMORY);
    }
}

TEST(arena_array_and_map_survive_every_failed_allocation) {
    fail_every_allocation(fill_arena);
    fail_every_allocation(fill_array);
    fail_every_allocation(fill_map);
}

TEST(array_takes_structs_and_reserves) {
    berth_array(berth_str) names = {0};
    CHECK_OK(berth_array_reserve(&names, 20));
    const uint64_t before = berth_memory_allocations();
    for (int i = 0; i < 20; ++i) {
        CHECK_OK(berth_array_push(&names, (berth_str){.data = "x", .size = 1}));
    }
    CHECK_UINT(berth_memory_allocations(), before);
    CHECK_UINT(names.count, 20);
    CHECK_STATUS(berth_array_reserve(&names, SIZE_MAX / 2), BERTH_OUT_OF_MEMORY);
    CHECK_UINT(names.count, 20);
    berth_array_clear(&names);
    CHECK_UINT(names.count, 0);
    berth_array_free(&names);
}

TEST(map_refuses_a_second_key_and_finds_nothing_else) {
    berth_map map;
    berth_map_init(&map);
    CHECK_NULL(berth_map_find(&map, BERTH_STR("a")));
    CHECK_OK(berth_map_add(&map, BERTH_STR("a"), 1));
    CHECK_OK(berth_map_add(&map, BERTH_STR(""), 2));
    CHECK_STATUS(berth_map_add(&map, BERTH_STR("a"), 3), BERTH_ALREADY_EXISTS);
    CHECK_CONTAINS(berth_status_message(), "'a'");
    CHECK_UINT(*berth_map_find(&map, BERTH_STR("a")), 1);
    *berth_map_find(&map, BERTH_STR("a")) = 4;
    CHECK_UINT(*berth_map_find(&map, BERTH_STR("a")), 4);
    CHECK_UINT(*berth_map_find(&map, BERTH_STR("")), 2);
    CHECK_NULL(berth_map_find(&map, BERTH_STR("b")));
    CHECK_UINT(map.count, 2);
    CHECK_STATUS(berth_map_reserve(&map, SIZE_MAX / 2), BERTH_OUT_OF_MEMORY);
    berth_map_deinit(&map);
}

TEST(map_reserved_once_does_not_allocate_again) {
    berth_map map;
    berth_map_init(&map);
    CHECK_OK(berth_map_reserve(&map, 1000));
    const uint64_t before = berth_memory_allocations();
    static char keys[1000][8];
    for (uint32_t i = 0; i < 1000; ++i) {
        snprintf(keys[i], sizeof(keys[i]), "%u", (unsigned)i);
        CHECK_OK(berth_map_add(&map, berth_str_from(keys[i]), i));
    }
    CHECK_UINT(berth_memory_allocations(), before);
    berth_map_deinit(&map);
}

TEST(hash_is_fnv_1a) {
    CHECK_UINT(berth_hash_bytes(BERTH_HASH_START, "", 0), UINT64_C(0xcbf29ce484222325));
    CHECK_UINT(berth_hash_bytes(BERTH_HASH_START, "a", 1), UINT64_C(0xaf63dc4c8601ec8c));
    CHECK_UINT(berth_hash_bytes(BERTH_HASH_START, "foobar", 6), UINT64_C(0x85944171f73967e8));
}

TEST(hash_tells_where_strings_end) {
    const uint64_t start = BERTH_HASH_START;
    const uint64_t ab_c = berth_hash_str(berth_hash_str(start, BERTH_STR("ab")), BERTH_STR("c"));
    const uint64_t a_bc = berth_hash_str(berth_hash_str(start, BERTH_STR("a")), BERTH_STR("bc"));
    CHECK(ab_c != a_bc);
    CHECK(berth_hash_u64(start, 1) != berth_hash_u64(start, 256));
}
