// SPDX-License-Identifier: Apache-2.0
// Input: paths. Output: their content, or a failure that names the path and the reason. Files are
// opened without blocking and only then asked what they are, so that nothing can change in between.
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/memory.h"

#define TEMPORARY_NAMES 100

// The failure of a system call on `path`; `what` is what was being done.
static berth_status system_failure(const char *path, const char *what, int error) {
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return BERTH_FAIL(NOT_FOUND, "%s: no such file or directory", path);
    case EACCES:
    case EPERM:
        return BERTH_FAIL(IO, "%s: cannot %s: permission denied for this user", path, what);
    case ENOSPC:
    case EDQUOT:
        return BERTH_FAIL(IO, "%s: cannot %s: the disk is full; free some space", path, what);
    case ENOMEM:
        return BERTH_FAIL(OUT_OF_MEMORY, "%s: cannot %s: no memory", path, what);
    default:
        return BERTH_FAIL(IO, "%s: cannot %s: %s", path, what, strerror(error));
    }
}

static const char *kind_name(mode_t mode) {
    if (S_ISDIR(mode)) {
        return "a directory";
    }
    return S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : "a device";
}

static berth_status check_regular(int file, const char *path, struct stat *out_info) {
    if (fstat(file, out_info) != 0) {
        return system_failure(path, "read", errno);
    }
    if (!S_ISREG(out_info->st_mode)) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: is %s, a regular file is needed", path,
                          kind_name(out_info->st_mode));
    }
    return BERTH_OK;
}

// Opens a regular file. Why O_NONBLOCK: opening a FIFO without it waits for a writer for ever.
static berth_status open_regular(const char *path, int *out_file, size_t *out_size) {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0 && errno == ENXIO) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: is a socket or a device, a regular file is needed",
                          path);
    }
    if (file < 0) {
        return system_failure(path, "open", errno);
    }
    struct stat info;
    const berth_status status = check_regular(file, path, &info);
    if (status != BERTH_OK) {
        close(file);
        return status;
    }
    *out_file = file;
    *out_size = (size_t)info.st_size;
    return BERTH_OK;
}

// Reads up to `size` bytes; fewer when the file has become shorter.
static berth_status read_fully(int file, const char *path, char *data, size_t *size) {
    size_t done = 0;
    while (done < *size) {
        const ssize_t got = read(file, data + done, *size - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return system_failure(path, "read", errno);
        }
        if (got == 0) {
            break;
        }
        done += (size_t)got;
    }
    *size = done;
    return BERTH_OK;
}

static berth_status read_open(int file, const char *path, char **out_data, size_t *size) {
    char *data = berth_alloc(*size + 1);
    if (data == NULL) {
        return BERTH_FAIL(OUT_OF_MEMORY, "%s: no memory for its %zu bytes", path, *size);
    }
    const berth_status status = read_fully(file, path, data, size);
    if (status != BERTH_OK) {
        berth_free(data);
        return status;
    }
    data[*size] = '\0';
    *out_data = data;
    return BERTH_OK;
}

berth_status berth_file_read(const char *path, size_t limit_bytes, char **out_data,
                             size_t *out_size) {
    int file = -1;
    size_t size = 0;
    BERTH_TRY(open_regular(path, &file, &size));
    berth_status status = BERTH_OK;
    if (size > limit_bytes) {
        status = BERTH_FAIL(OUT_OF_MEMORY, "%s: has %zu bytes, the limit is %zu", path, size,
                            limit_bytes);
    } else {
        status = read_open(file, path, out_data, &size);
    }
    close(file);
    if (status == BERTH_OK) {
        *out_size = size;
    }
    return status;
}

berth_status berth_file_map_open(const char *path, berth_file_map *out_map) {
    int file = -1;
    size_t size = 0;
    BERTH_TRY(open_regular(path, &file, &size));
    void *data = size == 0 ? NULL : mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
    const int error = errno;
    close(file);
    if (data == MAP_FAILED) {
        return system_failure(path, "map", error);
    }
    *out_map = (berth_file_map){.data = data, .size = size};
    return BERTH_OK;
}

void berth_file_map_drop(const berth_file_map *map, size_t offset, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t end = bytes > map->size - offset ? map->size : offset + bytes;
    const size_t first = (offset + page - 1) / page * page;
    const size_t last = end == map->size ? end : end / page * page;
    if (last > first) {
        // Only advice: if the system does not take it, the pages stay.
        (void)madvise((void *)(uintptr_t)(map->data + first), last - first, MADV_DONTNEED);
    }
}

void berth_file_map_close(berth_file_map *map) {
    if (map->data != NULL) {
        munmap((void *)(uintptr_t)map->data, map->size);
    }
    *map = (berth_file_map){0};
}

static berth_status write_fully(int file, const char *path, berth_str content) {
    size_t done = 0;
    while (done < content.size) {
        const ssize_t put = write(file, content.data + done, content.size - done);
        if (put < 0 && errno != EINTR) {
            return system_failure(path, "write", errno);
        }
        done += put > 0 ? (size_t)put : 0;
    }
    return fsync(file) == 0 ? BERTH_OK : system_failure(path, "write", errno);
}

// Opens a new file beside `path` and puts its name into `temporary`.
static berth_status open_temporary(const char *path, char temporary[PATH_MAX], int *out_file) {
    for (int i = 0; i < TEMPORARY_NAMES; ++i) {
        const int size = snprintf(temporary, PATH_MAX, "%s.%d.%d.tmp", path, (int)getpid(), i);
        if (size >= PATH_MAX) {
            return system_failure(path, "write", ENAMETOOLONG);
        }
        *out_file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (*out_file >= 0) {
            return BERTH_OK;
        }
        if (errno != EEXIST) {
            break;
        }
    }
    return system_failure(path, "write", errno);
}

// Makes the rename itself survive a power cut.
static berth_status sync_dir(const char *path) {
    char dir[PATH_MAX];
    const berth_str name = berth_path_dir(path);
    snprintf(dir, sizeof(dir), BERTH_STR_FMT, BERTH_STR_ARG(name));
    const int file = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) {
        return BERTH_OK; // writable but not readable: the system will sync it in its time
    }
    const int error = fsync(file) == 0 ? 0 : errno;
    close(file);
    return error == 0 || error == EINVAL ? BERTH_OK : system_failure(dir, "write", error);
}

static berth_status replace(const char *path, berth_str content, const struct stat *old) {
    char temporary[PATH_MAX];
    int file = -1;
    BERTH_TRY(open_temporary(path, temporary, &file));
    berth_status status = write_fully(file, path, content);
    if (status == BERTH_OK && old != NULL && fchmod(file, old->st_mode & 07777) != 0) {
        status = system_failure(path, "write", errno);
    }
    if (close(file) != 0 && status == BERTH_OK) {
        status = system_failure(path, "write", errno);
    }
    if (status == BERTH_OK && rename(temporary, path) != 0) {
        status = system_failure(path, "write", errno);
    }
    if (status != BERTH_OK) {
        unlink(temporary);
        return status;
    }
    return sync_dir(path);
}

berth_status berth_file_write(const char *path, berth_str content) {
    struct stat old;
    if (stat(path, &old) != 0) {
        return replace(path, content, NULL);
    }
    if (!S_ISREG(old.st_mode)) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: is %s, a regular file is needed", path,
                          kind_name(old.st_mode));
    }
    // Why: a rename onto a symbolic link would replace the link, not the file it leads to.
    char resolved[PATH_MAX];
    if (realpath(path, resolved) == NULL) {
        return system_failure(path, "write", errno);
    }
    return replace(resolved, content, &old);
}

typedef berth_array(char *) name_array;

// Copies the names of an open directory into the arena, in the order of the system.
static berth_status read_names(DIR *dir, const char *path, berth_arena *arena, name_array *names) {
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            return errno == 0 ? BERTH_OK : system_failure(path, "list", errno);
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        char *name = berth_arena_strdup(arena, entry->d_name);
        if (name == NULL) {
            return berth_arena_exhausted(arena, "file names");
        }
        BERTH_TRY(berth_array_push(names, name));
    }
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static berth_status sort_names(const name_array *names, berth_arena *arena,
                               berth_dir_listing *out_listing) {
    char **sorted = BERTH_ARENA_ARRAY(arena, char *, names->count);
    if (sorted == NULL) {
        return berth_arena_exhausted(arena, "file names");
    }
    if (names->count > 0) {
        memcpy(sorted, names->data, names->count * sizeof(*sorted));
        qsort(sorted, names->count, sizeof(*sorted), compare_names);
    }
    *out_listing = (berth_dir_listing){.names = sorted, .count = names->count};
    return BERTH_OK;
}

berth_status berth_dir_list(const char *path, berth_arena *arena, berth_dir_listing *out_listing) {
    DIR *dir = opendir(path);
    if (dir == NULL && errno == ENOTDIR && berth_path_exists(path)) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: is a file, a directory is needed", path);
    }
    if (dir == NULL) {
        return system_failure(path, "list", errno);
    }
    name_array names = {0};
    berth_status status = read_names(dir, path, arena, &names);
    closedir(dir);
    if (status == BERTH_OK) {
        status = sort_names(&names, arena, out_listing);
    }
    berth_array_free(&names);
    return status;
}

// One level, of which another process may be the maker.
static berth_status make_one(const char *path) {
    if (mkdir(path, 0700) == 0 || (errno == EEXIST && berth_path_is_dir(path))) {
        return BERTH_OK;
    }
    return errno == EEXIST || errno == ENOTDIR
               ? BERTH_FAIL(INVALID_ARGUMENT, "%s: is a file or below one, a directory is needed",
                            path)
               : system_failure(path, "make the directory", errno);
}

berth_status berth_dir_make(const char *path) {
    char above[PATH_MAX];
    if (berth_path_is_dir(path)) {
        return BERTH_OK;
    }
    const size_t size = strlen(path);
    if (size == 0 || size >= sizeof(above)) {
        return system_failure(path, "make the directory", size == 0 ? ENOENT : ENAMETOOLONG);
    }
    for (size_t i = 1; i < size; ++i) {
        memcpy(above, path, i);
        above[i] = '\0';
        if (path[i] == '/' && !berth_path_is_dir(above)) {
            BERTH_TRY(make_one(above));
        }
    }
    return make_one(path);
}

bool berth_path_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

bool berth_path_is_dir(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *berth_path_join(berth_arena *arena, const char *dir, const char *name) {
    if (dir[0] == '\0' || name[0] == '/') {
        return berth_arena_strdup(arena, name);
    }
    const bool has_slash = dir[strlen(dir) - 1] == '/';
    return berth_arena_printf(arena, "%s%s%s", dir, has_slash ? "" : "/", name);
}

const char *berth_path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

berth_str berth_path_dir(const char *path) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return BERTH_STR(".");
    }
    const size_t size = (size_t)(slash - path);
    return (berth_str){.data = path, .size = size == 0 ? 1 : size};
}

berth_status berth_path_executable_dir(berth_arena *arena, const char **out_dir) {
    char path[PATH_MAX];
    const ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (size < 0) {
        return system_failure("/proc/self/exe", "read", errno);
    }
    path[size] = '\0';
    char *dir = berth_arena_copy(arena, berth_path_dir(path));
    if (dir == NULL) {
        return berth_arena_exhausted(arena, "the executable's directory");
    }
    *out_dir = dir;
    return BERTH_OK;
}
