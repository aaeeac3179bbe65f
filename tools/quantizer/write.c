// SPDX-License-Identifier: Apache-2.0
// Input: a plan. Output: a folder with the new checkpoint, complete or not at all. One tensor at a
// time is in memory, as codes; the checkpoint's own are mapped and let go behind the work. Rows of
// a tensor are made on all threads.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/convert.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "base/thread.h"
#include "quantizer/quantizer.h"

#define HEADER_LIMIT ((size_t)100000000) // of the format
#define CONFIG_LIMIT ((size_t)16 << 20)
#define THREADS      64

// The work and what it holds. `file` < 0: none is open.
typedef struct writing {
    quantizer_plan *plan;
    const quantizer_output *output;
    const char *folder; // that is renamed in the end
    const char *path;   // of the open file
    int file;
    uint64_t data; // where its tensors begin
    uint64_t done_bytes;
} writing;

static berth_status cannot(const char *path, const char *what) {
    return errno == ENOSPC || errno == EDQUOT
               ? BERTH_FAIL(IO, "%s: cannot be %s: the disk is full; free some space", path, what)
               : BERTH_FAIL(IO, "%s: cannot be %s: %s", path, what, strerror(errno));
}

// ---- one tensor ---------------------------------------------------------------------------------

// What a weight becomes in memory, and the rows that one thread makes of it.
typedef struct codes {
    uint8_t *codes;
    void *scales; // as they are stored
    uint8_t *zeros;
} codes;

typedef struct part {
    const quantizer_form *form;
    const berth_stored_tensor *from;
    const codes *to;
    int64_t first;
    int64_t end;
    berth_thread thread;
    quantizer_error error;
    int64_t bad_row;  // −1: none
    bool is_starving; // of memory
} part;

static void make_rows(void *context) {
    part *own = context;
    const berth_stored_tensor *from = own->from;
    const int64_t columns = from->shape[1];
    const int64_t groups = quantizer_groups(own->form, columns);
    const uint64_t width = BERTH_DTYPE_BITS(from->dtype) / 8;
    const int64_t code_bytes = own->form->scheme == QUANTIZER_INT4 ? columns / 2 : columns;
    float *room = berth_alloc((size_t)(columns + groups) * sizeof *room);
    own->is_starving = room == NULL;
    for (int64_t row = own->first; room != NULL && row < own->end; ++row) {
        const quantizer_row one = {
            .weight = room,
            .columns = columns,
            .codes = own->to->codes + row * code_bytes,
            .scales = room + columns,
            .zeros = own->to->zeros == NULL ? NULL : own->to->zeros + row * groups,
            .dtype = from->dtype,
        };
        berth_convert(from->dtype, (const char *)from->data + (uint64_t)(row * columns) * width,
                      BERTH_DTYPE_F32, room, (uint64_t)columns);
        if (!quantizer_make_row(own->form, &one, &own->error)) {
            own->bad_row = row;
            break;
        }
        berth_convert(BERTH_DTYPE_F32, one.scales, from->dtype,
                      (char *)own->to->scales + (uint64_t)(row * groups) * width, (uint64_t)groups);
    }
    berth_free(room);
}

static berth_status take_part(const part *own, quantizer_item *item) {
    if (own->is_starving) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for a row of '%s'", item->from->name);
    }
    if (own->bad_row >= 0) {
        return BERTH_FAIL(CORRUPT,
                          "%s: tensor '%s' has a number that is not finite in row %" PRId64
                          "; it has no code",
                          berth_safetensors_path(item->from->file), item->from->name, own->bad_row);
    }
    item->error.squares += own->error.squares;
    item->error.plain += own->error.plain;
    item->error.energy += own->error.energy;
    return BERTH_OK;
}

static berth_status make_codes(const writing *w, quantizer_item *item, const codes *to) {
    part parts[THREADS];
    const int64_t rows = item->from->shape[0];
    const int64_t wanted = w->output->threads < THREADS ? w->output->threads : THREADS;
    const int64_t count = wanted > rows ? rows : wanted;
    berth_status status = BERTH_OK;
    int64_t started = 1; // the first is this thread's own
    for (int64_t i = 0; i < count; ++i) {
        parts[i] = (part){
            .form = &w->plan->form,
            .from = item->from,
            .to = to,
            .first = rows * i / count,
            .end = rows * (i + 1) / count,
            .bad_row = -1,
        };
    }
    while (status == BERTH_OK && started < count) {
        part *next = &parts[started];
        status = berth_thread_start(&next->thread, "quantize", make_rows, next);
        started += status == BERTH_OK;
    }
    if (status == BERTH_OK && count > 0) {
        make_rows(&parts[0]);
    }
    for (int64_t i = 1; i < started; ++i) {
        berth_thread_join(&parts[i].thread);
    }
    for (int64_t i = 0; status == BERTH_OK && i < count; ++i) {
        status = take_part(&parts[i], item);
    }
    return status;
}

// Zero points lie eight to a word along the outputs.
static void pack_zeros(const uint8_t *zeros, int64_t rows, int64_t groups, uint32_t *words) {
    memset(words, 0, (size_t)((rows + 7) / 8 * groups) * sizeof *words);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t group = 0; group < groups; ++group) {
            words[row / 8 * groups + group] |= (uint32_t)zeros[row * groups + group]
                                               << 4 * (row % 8);
        }
    }
}

static berth_status put(const writing *w, const quantizer_tensor *tensor, const void *from) {
    const char *at = from;
    uint64_t left = tensor->bytes;
    off_t to = (off_t)(w->data + tensor->offset);
    while (left > 0) {
        const ssize_t written = pwrite(w->file, at, left, to);
        if (written < 0 && errno != EINTR) {
            return cannot(w->path, "written");
        }
        if (written > 0) {
            at += written;
            to += written;
            left -= (uint64_t)written;
        }
    }
    return BERTH_OK;
}

static berth_status put_codes(const writing *w, quantizer_item *item, const codes *to) {
    const quantizer_tensor *tensors = item->tensors;
    BERTH_TRY(make_codes(w, item, to));
    BERTH_TRY(put(w, &tensors[QUANTIZER_CODES], to->codes));
    BERTH_TRY(put(w, &tensors[QUANTIZER_SCALE], to->scales));
    if (item->count > QUANTIZER_SHAPE) {
        BERTH_TRY(put(w, &tensors[QUANTIZER_SHAPE], item->from->shape));
    }
    if (item->count > QUANTIZER_ZERO) {
        const int64_t rows = item->from->shape[0];
        uint32_t *words = berth_alloc(tensors[QUANTIZER_ZERO].bytes);
        if (words == NULL) {
            return BERTH_FAIL(OUT_OF_MEMORY, "no memory for the zero points of '%s'", item->module);
        }
        pack_zeros(to->zeros, rows, tensors[QUANTIZER_ZERO].shape[1], words);
        const berth_status status = put(w, &tensors[QUANTIZER_ZERO], words);
        berth_free(words);
        return status;
    }
    return BERTH_OK;
}

static berth_status quantize_item(const writing *w, quantizer_item *item) {
    const int64_t zeros =
        item->count > QUANTIZER_ZERO
            ? item->from->shape[0] * quantizer_groups(&w->plan->form, item->from->shape[1])
            : 0;
    const codes to = {
        .codes = berth_alloc(item->tensors[QUANTIZER_CODES].bytes),
        .scales = berth_alloc(item->tensors[QUANTIZER_SCALE].bytes),
        .zeros = zeros > 0 ? berth_alloc((size_t)zeros) : NULL,
    };
    const bool is_complete =
        to.codes != NULL && to.scales != NULL && (zeros == 0 || to.zeros != NULL);
    const berth_status status =
        is_complete ? put_codes(w, item, &to)
                    : BERTH_FAIL(OUT_OF_MEMORY, "no memory for the codes of '%s'", item->module);
    berth_free(to.codes);
    berth_free(to.scales);
    berth_free(to.zeros);
    return status;
}

// ---- files of tensors ---------------------------------------------------------------------------

static void add_entry(berth_json_writer *json, const quantizer_tensor *tensor) {
    berth_json_put_key(json, tensor->name);
    berth_json_begin_object(json);
    berth_json_put_key(json, "dtype");
    berth_json_put_cstr(json, tensor->dtype);
    berth_json_put_key(json, "shape");
    berth_json_begin_array(json);
    for (uint64_t i = 0; i < tensor->ndim; ++i) {
        berth_json_put_i64(json, tensor->shape[i]);
    }
    berth_json_end_array(json);
    berth_json_put_key(json, "data_offsets");
    berth_json_begin_array(json);
    berth_json_put_u64(json, tensor->offset);
    berth_json_put_u64(json, tensor->offset + tensor->bytes);
    berth_json_end_array(json);
    berth_json_end_object(json);
}

// The length, the header, blanks up to a multiple of 8.
static berth_status write_header(writing *w, size_t file) {
    berth_text text;
    berth_json_writer json;
    berth_text_init(&text, HEADER_LIMIT);
    berth_json_writer_init(&json, &text, 0);
    berth_json_begin_object(&json);
    berth_json_put_key(&json, "__metadata__");
    berth_json_begin_object(&json);
    berth_json_put_key(&json, "format");
    berth_json_put_cstr(&json, "pt");
    berth_json_end_object(&json);
    for (size_t i = 0; i < w->plan->count; ++i) {
        const quantizer_item *item = &w->plan->items[i];
        for (size_t k = 0; item->file == file && k < item->count; ++k) {
            add_entry(&json, &item->tensors[k]);
        }
    }
    berth_json_end_object(&json);
    while (text.failed == BERTH_OK && text.size % 8 != 0) {
        berth_text_add_char(&text, ' ');
    }
    berth_status status = berth_text_finish(&text, NULL);
    const uint64_t length = text.size;
    const quantizer_tensor parts[] = {
        {.bytes = sizeof length  },
        { .bytes = length, .offset = sizeof length},
    };
    w->data = 0;
    if (status == BERTH_OK) {
        status = put(w, &parts[0], &length);
    }
    if (status == BERTH_OK) {
        status = put(w, &parts[1], text.data);
    }
    w->data = sizeof length + length;
    berth_text_deinit(&text);
    return status;
}

static berth_status close_file(writing *w) {
    const int file = w->file;
    w->file = -1;
    if (file < 0) {
        return BERTH_OK;
    }
    const bool is_synced = fsync(file) == 0;
    const int error = errno;
    const bool is_closed = close(file) == 0;
    errno = is_synced ? errno : error;
    return is_synced && is_closed ? BERTH_OK : cannot(w->path, "written");
}

// Room for all of the file: a disk that is too small says so at the start.
static berth_status open_file(writing *w, size_t file) {
    const quantizer_file *of = &w->plan->files.data[file];
    BERTH_TRY(close_file(w));
    w->path = berth_path_join(w->plan->arena, w->folder, of->name);
    if (w->path == NULL) {
        return berth_arena_exhausted(w->plan->arena, "names of files");
    }
    w->file = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->file < 0) {
        return cannot(w->path, "created");
    }
    BERTH_TRY(write_header(w, file));
    const int error = posix_fallocate(w->file, 0, (off_t)(w->data + of->bytes));
    if (error == ENOSPC || error == EFBIG || error == EDQUOT) {
        errno = error;
        return cannot(w->path, "written");
    }
    return BERTH_OK;
}

static berth_status write_items(writing *w) {
    for (size_t i = 0; i < w->plan->count; ++i) {
        quantizer_item *item = &w->plan->items[i];
        if (i == 0 || item->file != w->plan->items[i - 1].file) {
            BERTH_TRY(open_file(w, item->file));
        }
        BERTH_TRY(w->output->progress(w->output->context, item, w->done_bytes));
        BERTH_TRY(item->module != NULL ? quantize_item(w, item)
                                       : put(w, &item->tensors[0], item->from->data));
        berth_stored_tensor_drop(item->from, 0, item->from->bytes);
        w->done_bytes += item->from->bytes;
    }
    return close_file(w);
}

// ---- the other files ----------------------------------------------------------------------------

static berth_status write_text(const writing *w, const char *name, const berth_text *text) {
    const char *path = berth_path_join(w->plan->arena, w->folder, name);
    BERTH_TRY(berth_text_finish(text, NULL));
    return path == NULL ? berth_arena_exhausted(w->plan->arena, "names of files")
                        : berth_file_write(path, berth_text_str(text));
}

static void add_index(const quantizer_plan *plan, berth_text *text) {
    berth_json_writer json;
    berth_json_writer_init(&json, text, 2);
    berth_json_begin_object(&json);
    berth_json_put_key(&json, "metadata");
    berth_json_begin_object(&json);
    berth_json_put_key(&json, "total_size");
    berth_json_put_u64(&json, plan->total_bytes);
    berth_json_end_object(&json);
    berth_json_put_key(&json, "weight_map");
    berth_json_begin_object(&json);
    for (size_t i = 0; i < plan->count; ++i) {
        for (size_t k = 0; k < plan->items[i].count; ++k) {
            berth_json_put_key(&json, plan->items[i].tensors[k].name);
            berth_json_put_cstr(&json, plan->files.data[plan->items[i].file].name);
        }
    }
    berth_json_end_object(&json);
    berth_json_end_object(&json);
    berth_text_add_char(text, '\n');
}

static berth_status write_documents(const writing *w) {
    berth_text text;
    berth_text_init(&text, CONFIG_LIMIT);
    berth_status status = quantizer_config(w->plan, &text);
    if (status == BERTH_OK) {
        status = write_text(w, "config.json", &text);
    }
    berth_text_deinit(&text);
    if (status == BERTH_OK && w->plan->files.count > 1) {
        berth_text_init(&text, HEADER_LIMIT);
        add_index(w->plan, &text);
        status = write_text(w, "model.safetensors.index.json", &text);
        berth_text_deinit(&text);
    }
    return status;
}

// Weights in whatever form, and what is written anew.
static bool is_left_out(const char *name) {
    static const char *const ends[] = {".safetensors", ".safetensors.index.json",
                                       ".bin",         ".bin.index.json",
                                       ".pt",          ".pth",
                                       ".gguf",        ".h5",
                                       ".msgpack",     ".onnx"};
    bool is_weight = strcmp(name, "config.json") == 0;
    for (size_t i = 0; i < BERTH_COUNT(ends); ++i) {
        is_weight = is_weight || berth_str_ends_with(berth_str_from(name), berth_str_from(ends[i]));
    }
    return is_weight;
}

static berth_status copy_file(const writing *w, const char *from, const char *name) {
    berth_file_map map = {.data = NULL};
    const char *path = berth_path_join(w->plan->arena, w->folder, name);
    if (path == NULL) {
        return berth_arena_exhausted(w->plan->arena, "names of files");
    }
    BERTH_TRY(berth_file_map_open(from, &map));
    const berth_status status =
        berth_file_write(path, (berth_str){.data = (const char *)map.data, .size = map.size});
    berth_file_map_close(&map);
    return status;
}

// Folders in the checkpoint are none of its files.
static berth_status copy_others(const writing *w) {
    const char *directory = berth_checkpoint_directory(w->plan->from);
    berth_dir_listing listing = {.names = NULL};
    BERTH_TRY(berth_dir_list(directory, w->plan->arena, &listing));
    for (size_t i = 0; i < listing.count; ++i) {
        const char *path = berth_path_join(w->plan->arena, directory, listing.names[i]);
        if (path == NULL) {
            return berth_arena_exhausted(w->plan->arena, "names of files");
        }
        if (!is_left_out(listing.names[i]) && !berth_path_is_dir(path)) {
            BERTH_TRY(copy_file(w, path, listing.names[i]));
        }
    }
    return BERTH_OK;
}

// ---- complete or not at all ---------------------------------------------------------------------

// What was written is a model to the class that built the first.
static berth_status read_back(const writing *w) {
    berth_checkpoint *checkpoint = NULL;
    berth_model_build *build = NULL;
    BERTH_TRY(berth_checkpoint_open(w->folder, &checkpoint));
    const berth_status status = berth_model_create(w->plan->registry, w->plan->config, checkpoint,
                                                   berth_checkpoint_dtype(w->plan->from), &build);
    berth_model_destroy(build);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void remove_folder(const char *folder) {
    berth_arena *arena = NULL;
    berth_dir_listing listing = {.names = NULL};
    berth_status_report report;
    berth_status_take(&report); // what went wrong is what is told
    if (berth_arena_create((size_t)4 << 10, (size_t)16 << 20, &arena) == BERTH_OK &&
        berth_dir_list(folder, arena, &listing) == BERTH_OK) {
        for (size_t i = 0; i < listing.count; ++i) {
            const char *path = berth_path_join(arena, folder, listing.names[i]);
            (void)(path != NULL && unlink(path));
        }
    }
    (void)rmdir(folder);
    berth_arena_destroy(arena);
    (void)berth_status_restore(&report);
}

static berth_status write_all(writing *w) {
    BERTH_TRY(write_documents(w));
    BERTH_TRY(copy_others(w));
    BERTH_TRY(write_items(w));
    BERTH_TRY_NOTE(read_back(w), "reading back what was written; %s was not made",
                   w->output->directory);
    return rename(w->folder, w->output->directory) == 0 ? BERTH_OK
                                                        : cannot(w->output->directory, "made");
}

berth_status quantizer_write(quantizer_plan *plan, const quantizer_output *output) {
    char *folder = berth_arena_printf(plan->arena, "%s.part-XXXXXX", output->directory);
    if (folder == NULL) {
        return berth_arena_exhausted(plan->arena, "names of files");
    }
    if (mkdtemp(folder) == NULL) {
        return cannot(output->directory, "made");
    }
    writing w = {.plan = plan, .output = output, .folder = folder, .file = -1};
    berth_status status =
        chmod(folder, 0755) == 0 ? write_all(&w) : cannot(output->directory, "made");
    if (w.file >= 0) {
        (void)close(w.file);
    }
    if (status != BERTH_OK) {
        remove_folder(folder);
    }
    return status;
}
