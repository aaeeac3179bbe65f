// SPDX-License-Identifier: Apache-2.0
// What plugins keep from one process to the next: files DIR/PLUGIN/NAME, each with all that it was
// made for (base/cache.h). Whatever is wrong with one is worth a line of the log and no failure:
// the plugin measures again, and the file is replaced.
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/cache.h"
#include "base/file.h"
#include "base/frame.h"
#include "base/log.h"
#include "base/memory.h"
#include "registry/registry_private.h"

#define MODULE     "cache"
#define NAME_BYTES 127
#define KEY_BYTES  4096

// One call of a plugin.
typedef struct request {
    berth_registry *registry;
    const berth_owner *owner; // the plugin that asks
    const char *name;
    const char *dir; // NULL: there is no cache
    char folder[PATH_MAX];
    char path[PATH_MAX];
    char key[KEY_BYTES]; // the plugin's, with what the host knows before it
} request;

static bool is_name(const char *name) {
    const size_t size =
        strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return size > 0 && size <= NAME_BYTES && name[size] == '\0' && name[0] != '.';
}

static berth_status check(const char *slot, const char *name, const char *key, const void *data) {
    const berth_frame *frame = berth_frame_top();
    if (name == NULL || key == NULL || data == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: name, key or data is NULL", slot);
    }
    if (!is_name(name)) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "%s: '%.80s' is no name of an entry: up to %d letters, digits, '.', '_' "
                          "and '-', no '.' first",
                          slot, name, NAME_BYTES);
    }
    if (frame == NULL || frame->owner == NULL) {
        return BERTH_FAIL(WRONG_STATE, "%s: only inside of a call from the host", slot);
    }
    return BERTH_OK;
}

// Why the id is looked at: a library without a manifest may call itself anything.
static berth_status open_request(const berth_host *host, const char *name, const char *key,
                                 request *out) {
    out->registry = host->context;
    out->owner = berth_frame_top()->owner;
    out->name = name;
    BERTH_TRY(berth_config_cache_dir(out->registry->config, out->registry->arena, &out->dir));
    if (out->dir == NULL || !is_name(out->owner->id)) {
        out->dir = NULL;
        return BERTH_OK;
    }
    const int folder =
        snprintf(out->folder, sizeof(out->folder), "%s/%s", out->dir, out->owner->id);
    const int path = snprintf(out->path, sizeof(out->path), "%s/%s", out->folder, name);
    const int size = snprintf(out->key, sizeof(out->key), "berth %s\nplugin %s %s\nentry %s\n%s\n",
                              host->version, out->owner->id, out->owner->version, name, key);
    if (folder >= (int)sizeof(out->folder) || path >= (int)sizeof(out->path)) {
        out->dir = NULL;
    }
    return size < KEY_BYTES ? BERTH_OK
                            : BERTH_FAIL(INVALID_ARGUMENT,
                                         "the key of '%s' has %zu bytes, %d are "
                                         "too many",
                                         name, strlen(key), KEY_BYTES);
}

// ---- reading ------------------------------------------------------------------------------------

// Copies what the file has under the request's key; NOT_FOUND with a report is for the log.
static berth_status take(const request *in, berth_str file, void **out_data, uint64_t *out_bytes) {
    berth_cache_entry entry;
    BERTH_TRY(berth_cache_decode(file, &entry));
    if (!berth_str_equal_cstr(entry.key, in->key)) {
        return BERTH_FAIL(NOT_FOUND, "it is of another version or device");
    }
    const berth_host *host = &in->registry->host;
    void *data = host->alloc(host, entry.content.size, 0);
    if (data == NULL) {
        return BERTH_OUT_OF_MEMORY;
    }
    if (entry.content.size > 0) {
        memcpy(data, entry.content.data, entry.content.size);
    }
    *out_data = data;
    *out_bytes = entry.content.size;
    return BERTH_OK;
}

// Stale is what every update makes of a file; damaged is what a person may want to know of.
static void note_ignored(const request *in, berth_status status) {
    if (status == BERTH_NOT_FOUND) {
        BERTH_INFO(MODULE, "%s is ignored and made anew: %s", in->path, berth_status_message());
    } else {
        BERTH_WARN(MODULE, "%s is ignored and made anew: %s", in->path, berth_status_message());
    }
}

berth_status berth_host_cache_read(const berth_host *host, const char *name, const char *key,
                                   void **out_data, uint64_t *out_bytes) {
    request in;
    char *file = NULL;
    size_t size = 0;
    BERTH_TRY(check("cache_read", name, key, out_bytes == NULL ? NULL : out_data));
    BERTH_TRY(open_request(host, name, key, &in));
    if (in.dir == NULL || !berth_path_exists(in.path)) {
        return BERTH_NOT_FOUND;
    }
    berth_status status = berth_file_read(in.path, BERTH_CACHE_LIMIT_BYTES, &file, &size);
    if (status == BERTH_OK) {
        status = take(&in, (berth_str){.data = file, .size = size}, out_data, out_bytes);
        berth_free(file);
    }
    if (status != BERTH_OK) {
        note_ignored(&in, status);
        berth_status_clear();
        return BERTH_NOT_FOUND;
    }
    return BERTH_OK;
}

// ---- writing ------------------------------------------------------------------------------------

static berth_status store(const request *in, berth_str content) {
    const berth_cache_entry entry = {.key = berth_str_from(in->key), .content = content};
    char *file = NULL;
    size_t size = 0;
    BERTH_TRY(berth_cache_encode(&entry, &file, &size));
    berth_status status = berth_dir_make(in->folder);
    if (status == BERTH_OK) {
        status = berth_file_write(in->path, (berth_str){.data = file, .size = size});
    }
    berth_free(file);
    return status;
}

berth_status berth_host_cache_write(const berth_host *host, const char *name, const char *key,
                                    const void *data, uint64_t bytes) {
    request in;
    BERTH_TRY(check("cache_write", name, key, data));
    BERTH_TRY(open_request(host, name, key, &in));
    if (in.dir == NULL) {
        return BERTH_UNAVAILABLE;
    }
    if (store(&in, (berth_str){.data = data, .size = bytes}) == BERTH_OK) {
        return BERTH_OK;
    }
    // Why once: a home that is read-only is so for every entry.
    if (!in.registry->has_cache_note) {
        BERTH_INFO(MODULE, "measurements are not kept: %s", berth_status_message());
        in.registry->has_cache_note = true;
    }
    berth_status_clear();
    return BERTH_UNAVAILABLE;
}
