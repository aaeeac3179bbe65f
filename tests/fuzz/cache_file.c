// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of the cache: refused with a text, or an entry whose file is these bytes and
// no others. Since no bytes by chance have the right checksum, those with a header get it first;
// and whatever content there is goes on to where cuBLASLt's choices are read.
#include <stdlib.h>
#include <string.h>

#include <cuda/product/choices.h>

#include "base/cache.h"
#include "base/hash.h"
#include "base/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEADER_BYTES 32
#define SUM_AT       24

static void must(bool holds) {
    if (!holds) {
        abort();
    }
}

static void check_choices(berth_str content) {
    cuda_choice choices[CUDA_CHOICES_MAX];
    cuda_choice last = {0};
    if (content.size >= sizeof(last) && content.size % sizeof(last) == 0) {
        memcpy(&last, content.data + content.size - sizeof(last), sizeof(last));
    }
    const int count = cuda_choices_take(content.data, content.size, last.rows, choices);
    must(count >= 0 && count <= CUDA_CHOICES_MAX);
    for (int i = 0; i < count; ++i) {
        must(choices[i].rows > (i > 0 ? choices[i - 1].rows : 0) && choices[i].milliseconds > 0);
    }
}

static void check(berth_str file) {
    berth_cache_entry entry = {0};
    if (berth_cache_decode(file, &entry) != BERTH_OK) {
        must(berth_status_message()[0] != '\0' && entry.content.data == NULL);
        return;
    }
    char *again = NULL;
    size_t bytes = 0;
    must(berth_cache_encode(&entry, &again, &bytes) == BERTH_OK);
    must(bytes == file.size && memcmp(again, file.data, bytes) == 0);
    berth_free(again);
    check_choices(entry.content);
}

// The checksum that the header's own sizes would have.
static void set_sum(char *file, size_t size) {
    uint64_t key = 0;
    memcpy(&key, file + 8, sizeof(key));
    const size_t rest = size - HEADER_BYTES;
    const berth_str all = {.data = file + HEADER_BYTES, .size = rest};
    const berth_str first = berth_str_slice(all, 0, key < rest ? key : rest);
    const berth_str second = berth_str_slice(all, first.size, rest);
    const uint64_t sum = berth_hash_str(berth_hash_str(BERTH_HASH_START, first), second);
    memcpy(file + SUM_AT, &sum, sizeof(sum));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *file = malloc(size + 1);
    must(file != NULL);
    if (size > 0) {
        memcpy(file, data, size);
    }
    check((berth_str){.data = file, .size = size});
    if (size >= HEADER_BYTES) {
        set_sum(file, size);
        check((berth_str){.data = file, .size = size});
    }
    free(file);
    return 0;
}
