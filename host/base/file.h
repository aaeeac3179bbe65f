// SPDX-License-Identifier: Apache-2.0
// Files and directories: read whole, mapped, listed, written as one step. Every failure names the
// path and what to do. Only regular files are read (a directory, a FIFO or a device is refused
// without waiting for it), and nothing here looks at the working directory unless the path says so.
#ifndef BERTH_BASE_FILE_H
#define BERTH_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

// A file mapped read-only. Zeroed is closed. `data` is NULL for an empty file.
typedef struct berth_file_map {
    const uint8_t *data; // owned; page-aligned
    size_t size;         // bytes
} berth_file_map;

typedef struct berth_dir_listing {
    char **names; // owned by the arena
    size_t count;
} berth_dir_listing;

// Codes of all of these: NOT_FOUND (no such path), INVALID_ARGUMENT (not a regular file, not a
// directory), OUT_OF_MEMORY (larger than the limit), IO (permission, disk full, anything else).

// The whole content, followed by a NUL that is not counted. berth_free it.
BERTH_MUST_CHECK berth_status berth_file_read(const char *path, size_t limit_bytes, char **out_data,
                                              size_t *out_size);
BERTH_MUST_CHECK berth_status berth_file_map_open(const char *path, berth_file_map *out_map);
// Tells the system that these bytes will not be read again soon; their content stays valid.
void berth_file_map_drop(const berth_file_map *map, size_t offset, size_t bytes);
void berth_file_map_close(berth_file_map *map);
// Readers see the old file or the whole new one: temporary file beside it, sync, rename.
BERTH_MUST_CHECK berth_status berth_file_write(const char *path, berth_str content);

// The directory and whatever is missing above it, for this user alone (mode 0700); OK when it is
// there. Several processes may make it at once.
BERTH_MUST_CHECK berth_status berth_dir_make(const char *path);
// The names in a directory without "." and "..", sorted by byte order, copied into the arena.
BERTH_MUST_CHECK berth_status berth_dir_list(const char *path, berth_arena *arena,
                                             berth_dir_listing *out_listing);

// True for anything at the path, symbolic links followed.
bool berth_path_exists(const char *path);
bool berth_path_is_dir(const char *path);
// "dir/name" with one slash; `name` alone when it is absolute or `dir` is "". NULL when exhausted.
char *berth_path_join(berth_arena *arena, const char *dir, const char *name);
// What follows the last slash, borrowed; what stands before it ("." when there is none, "/" at the
// root).
const char *berth_path_name(const char *path);
berth_str berth_path_dir(const char *path);
// The directory of the running executable with symbolic links resolved.
BERTH_MUST_CHECK berth_status berth_path_executable_dir(berth_arena *arena, const char **out_dir);

#endif
