// SPDX-License-Identifier: Apache-2.0
// Input: an entry, or the bytes of a file. Output: the other one. A file is the header below, the
// key, the content, and not a byte more; so an entry has one form, and whatever is taken as one is
// byte for byte what was written.
#include "base/cache.h"

#include <stdint.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

// All that follows it depends on its last byte, the version of this format.
static const char magic[8] = {'b', 'e', 'r', 't', 'h', 'c', 'e', 1};

typedef struct header {
    char magic[8];
    uint64_t key_bytes;
    uint64_t content_bytes;
    uint64_t sum; // of the two sizes, the key and the content
} header;

static uint64_t sum_of(const berth_cache_entry *entry) {
    return berth_hash_str(berth_hash_str(BERTH_HASH_START, entry->key), entry->content);
}

// Why: an empty string may have no address.
static char *append(char *to, berth_str from) {
    if (from.size > 0) {
        memcpy(to, from.data, from.size);
    }
    return to + from.size;
}

berth_status berth_cache_encode(const berth_cache_entry *entry, char **out_file,
                                size_t *out_bytes) {
    const size_t room = BERTH_CACHE_LIMIT_BYTES - sizeof(header);
    if (entry->key.size > room || entry->content.size > room - entry->key.size) {
        return BERTH_FAIL(OUT_OF_MEMORY, "%zu bytes under a key of %zu: a cache's file has %zu",
                          entry->content.size, entry->key.size, BERTH_CACHE_LIMIT_BYTES);
    }
    const size_t bytes = sizeof(header) + entry->key.size + entry->content.size;
    char *file = berth_alloc(bytes);
    if (file == NULL) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for a cache's file of %zu bytes", bytes);
    }
    header first = {
        .key_bytes = entry->key.size,
        .content_bytes = entry->content.size,
        .sum = sum_of(entry),
    };
    memcpy(first.magic, magic, sizeof(magic));
    memcpy(file, &first, sizeof(first));
    append(append(file + sizeof(first), entry->key), entry->content);
    *out_file = file;
    *out_bytes = bytes;
    return BERTH_OK;
}

berth_status berth_cache_decode(berth_str file, berth_cache_entry *out) {
    header first;
    if (file.size < sizeof(first)) {
        return BERTH_FAIL(CORRUPT, "%zu bytes are less than a header", file.size);
    }
    memcpy(&first, file.data, sizeof(first));
    if (memcmp(first.magic, magic, sizeof(magic)) != 0) {
        return BERTH_FAIL(CORRUPT, "it is no entry of this version's cache");
    }
    const size_t rest = file.size - sizeof(first);
    if (first.key_bytes > rest || first.content_bytes != rest - first.key_bytes) {
        return BERTH_FAIL(CORRUPT, "its header stands for other sizes than its %zu bytes",
                          file.size);
    }
    const char *key = file.data + sizeof(first);
    const berth_cache_entry entry = {
        .key = {.data = key,                   .size = first.key_bytes    },
        .content = {.data = key + first.key_bytes, .size = first.content_bytes},
    };
    if (first.sum != sum_of(&entry)) {
        return BERTH_FAIL(CORRUPT, "its checksum is not that of its bytes");
    }
    *out = entry;
    return BERTH_OK;
}
