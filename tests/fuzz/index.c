// SPDX-License-Identifier: Apache-2.0
// Any bytes as a model.safetensors.index.json beside two shards: refused with a text, or exactly
// the tensors of the shards that it lists, once each.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTE(key, first, end)                                                                      \
    "\"" key "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" first "," end "]}"

// Names in the folder; the index is a link to memory that no disk sees.
static const char *const names[] = {"config.json", "m-1.safetensors", "m-2.safetensors",
                                    "model.safetensors.index.json"};
enum { CONFIG, FIRST, SECOND, INDEX };
static char folder[40];

static void must(bool holds) {
    if (!holds) {
        abort();
    }
}

static const char *path_of(int which) {
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, names[which]);
    return path;
}

static void remove_folder(void) {
    for (int i = CONFIG; i <= INDEX; ++i) {
        (void)unlink(path_of(i));
    }
    (void)rmdir(folder);
}

// `header` behind its size if it is one, then `bytes` bytes.
static void make_file(int which, const char *header, uint64_t bytes) {
    const uint64_t size = strlen(header);
    FILE *file = fopen(path_of(which), "wb");
    must(file != NULL);
    if (bytes > 0) {
        must(fwrite(&size, sizeof size, 1, file) == 1);
    }
    must(fwrite(header, 1, size, file) == size && fwrite("abc", 1, bytes, file) == bytes);
    must(fclose(file) == 0);
}

static int make_folder(void) {
    char link[64];
    const int index = memfd_create("index", MFD_CLOEXEC);
    (void)snprintf(folder, sizeof folder, "/tmp/berth-fuzz-index-%d", (int)getpid());
    must(index >= 0 && mkdir(folder, 0700) == 0 && atexit(remove_folder) == 0);
    make_file(CONFIG, "{\"architectures\":[\"ToyForCausalLM\"]}", 0);
    make_file(FIRST, "{" BYTE("a", "0", "1") "," BYTE("b", "1", "2") "}", 2);
    make_file(SECOND, "{" BYTE("c", "0", "1") "}", 1);
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", index);
    must(symlink(link, path_of(INDEX)) == 0);
    return index;
}

// Of the first shard come a and b, of the second c; neither comes without the index naming all.
static void check(const berth_checkpoint *checkpoint) {
    unsigned seen = 0;
    for (size_t i = 0; i < berth_checkpoint_count(checkpoint); ++i) {
        const berth_stored_tensor *tensor = berth_checkpoint_at(checkpoint, i);
        const unsigned bit = 1u << (tensor->name[0] - 'a');
        must(tensor->name[1] == '\0' && tensor->bytes == 1 && bit <= 4 && !(seen & bit));
        must(*(const char *)tensor->data == (tensor->name[0] == 'b' ? 'b' : 'a'));
        seen |= bit;
    }
    must(seen == 0 || seen == 3 || seen == 4 || seen == 7);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int index = -1;
    index = index < 0 ? make_folder() : index;
    must(ftruncate(index, 0) == 0 && pwrite(index, data, size, 0) == (ssize_t)size);
    berth_checkpoint *checkpoint = NULL;
    if (berth_checkpoint_open(folder, &checkpoint) == BERTH_OK) {
        check(checkpoint);
        berth_checkpoint_close(checkpoint);
    } else {
        must(berth_status_message()[0] != '\0');
    }
    return 0;
}
