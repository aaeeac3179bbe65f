// SPDX-License-Identifier: Apache-2.0
// Reads golden.json and the tensors beside it.
#include "cli/golden.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"

#define SUFFIX  ".json"
#define TENSORS ".safetensors"

// ---- arrays of golden.json ----------------------------------------------------------------------

static berth_status read_ids(const berth_json *node, const char *path, berth_arena *arena,
                             const int32_t **out_ids, size_t *out_count) {
    const berth_json *array = NULL;
    BERTH_TRY(berth_json_get_array(node, path, &array));
    const size_t count = berth_json_size(array);
    int32_t *ids = BERTH_ARENA_ARRAY(arena, int32_t, count);
    if (!ids) {
        return berth_arena_exhausted(arena, "golden ids");
    }
    for (size_t i = 0; i < count; ++i) {
        int64_t id = 0;
        BERTH_TRY(berth_json_get_i64(berth_json_at(array, i), "", &id));
        if (id < 0 || id > INT32_MAX) {
            return berth_json_fail(BERTH_INVALID_ARGUMENT, berth_json_at(array, i),
                                   "is no token id");
        }
        ids[i] = (int32_t)id;
    }
    *out_ids = ids;
    *out_count = count;
    return BERTH_OK;
}

static berth_status read_margins(const berth_json *node, berth_arena *arena,
                                 berth_golden_prompt *prompt) {
    const berth_json *array = NULL;
    BERTH_TRY(berth_json_get_array(node, "margins", &array));
    if (berth_json_size(array) != prompt->greedy_count) {
        return berth_json_fail(BERTH_CORRUPT, array, "%zu margins of %zu greedy_ids",
                               berth_json_size(array), prompt->greedy_count);
    }
    double *margins = BERTH_ARENA_ARRAY(arena, double, prompt->greedy_count);
    if (!margins) {
        return berth_arena_exhausted(arena, "golden margins");
    }
    for (size_t i = 0; i < prompt->greedy_count; ++i) {
        BERTH_TRY(berth_json_get_f64(berth_json_at(array, i), "", &margins[i]));
    }
    prompt->margins = margins;
    return BERTH_OK;
}

// ---- tensors ------------------------------------------------------------------------------------

// The tensor "<stem>_<index>" with a dtype and a shape; a size of -1 fits any.
typedef struct wanted {
    const char *stem;
    size_t index;
    berth_dtype dtype;
    int64_t shape[2]; // shape[1] 0: one dimension
    bool is_optional;
} wanted;

static bool fits(const berth_stored_tensor *tensor, const wanted *want) {
    const uint64_t ndim = want->shape[1] == 0 ? 1 : 2;
    if (tensor->dtype != want->dtype || tensor->ndim != ndim) {
        return false;
    }
    for (uint64_t i = 0; i < ndim; ++i) {
        if (want->shape[i] >= 0 && tensor->shape[i] != want->shape[i]) {
            return false;
        }
    }
    return true;
}

static berth_status find_tensor(const berth_golden *golden, const wanted *want,
                                const berth_stored_tensor **out) {
    char name[64];
    snprintf(name, sizeof name, "%s_%zu", want->stem, want->index);
    *out = berth_safetensors_find(golden->file, name);
    if (!*out && want->is_optional) {
        return BERTH_OK;
    }
    if (!*out) {
        return BERTH_FAIL(NOT_FOUND, "%s: its tensors have no '%s'", golden->path, name);
    }
    if (!fits(*out, want)) {
        return BERTH_FAIL(CORRUPT, "%s: tensor '%s' has not the dtype and shape of its prompt",
                          golden->path, name);
    }
    return BERTH_OK;
}

static berth_status find_tensors(berth_golden *golden, size_t index) {
    berth_golden_prompt *prompt = &golden->prompts[index];
    const int64_t rows = (int64_t)prompt->id_count;
    const int64_t columns = golden->columns ? (int64_t)golden->column_count : -1;
    BERTH_TRY(find_tensor(
        golden,
        &(wanted){
            .stem = "logits", .index = index, .dtype = BERTH_DTYPE_F32, .shape = {rows, columns}
    },
        &prompt->logits));
    BERTH_TRY(find_tensor(golden,
                          &(wanted){.stem = "logsumexp",
                                    .index = index,
                                    .dtype = BERTH_DTYPE_F32,
                                    .shape = {rows},
                                    .is_optional = true},
                          &prompt->logsumexp));
    BERTH_TRY(find_tensor(golden,
                          &(wanted){
                              .stem = "top_ids",
                              .index = index,
                              .dtype = BERTH_DTYPE_I32,
                              .shape = {rows, -1},
                              .is_optional = true
    },
                          &prompt->top_ids));
    if (!prompt->top_ids) {
        return BERTH_OK;
    }
    prompt->top_count = (size_t)prompt->top_ids->shape[1];
    return find_tensor(golden,
                       &(wanted){
                           .stem = "top_logits",
                           .index = index,
                           .dtype = BERTH_DTYPE_F32,
                           .shape = {rows, prompt->top_ids->shape[1]}
    },
                       &prompt->top_logits);
}

static berth_status open_tensors(berth_golden *golden, berth_arena *arena) {
    berth_str stem = berth_str_from(golden->path);
    if (berth_str_ends_with(stem, BERTH_STR(SUFFIX))) {
        stem.size -= strlen(SUFFIX);
    }
    const char *path = berth_arena_printf(arena, BERTH_STR_FMT TENSORS, BERTH_STR_ARG(stem));
    if (!path) {
        return berth_arena_exhausted(arena, "paths");
    }
    BERTH_TRY(berth_safetensors_open(path, &golden->file));
    golden->columns = berth_safetensors_find(golden->file, "columns");
    if (!golden->columns) {
        return BERTH_OK;
    }
    if (golden->columns->dtype != BERTH_DTYPE_I32 || golden->columns->ndim != 1) {
        return BERTH_FAIL(CORRUPT, "%s: tensor 'columns' is not one row of i32", path);
    }
    golden->column_count = (size_t)golden->columns->shape[0];
    return BERTH_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

static berth_status read_prompt(berth_golden *golden, const berth_json *node, size_t index,
                                berth_arena *arena) {
    berth_golden_prompt *prompt = &golden->prompts[index];
    BERTH_TRY(read_ids(node, "prompt_ids", arena, &prompt->ids, &prompt->id_count));
    BERTH_TRY(read_ids(node, "greedy_ids", arena, &prompt->greedy_ids, &prompt->greedy_count));
    BERTH_TRY(read_margins(node, arena, prompt));
    if (prompt->id_count == 0 || prompt->greedy_count == 0) {
        return berth_json_fail(BERTH_CORRUPT, node, "has no prompt_ids or no greedy_ids");
    }
    return find_tensors(golden, index);
}

// What the file of a quantized checkpoint says about quantizers.
static berth_status read_steps(berth_golden *golden) {
    const berth_json *root = golden->root;
    golden->is_quantized = berth_json_has(root, "steady_tokens");
    BERTH_TRY(berth_json_f64_or(root, "steady_tokens", 1, &golden->steady_tokens));
    BERTH_TRY(berth_json_f64_or(root, "f32.rms", 0, &golden->f32_rms));
    BERTH_TRY(berth_json_f64_or(root, "wrong_rms.inputs_not_quantized", 0, &golden->wrong_rms));
    return berth_json_f64_or(root, "bf16.largest_missed_margin", 0, &golden->bf16_margin);
}

// A name that may be null.
static berth_status read_name(const berth_golden *golden, const char *key, berth_arena *arena,
                              const char **out) {
    const berth_json *node = berth_json_find(golden->root, key);
    berth_str name;
    *out = NULL;
    if (!node || berth_json_kind_of(node) == BERTH_JSON_NULL) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_json_get_str(node, "", &name));
    *out = berth_arena_copy(arena, name);
    return *out ? BERTH_OK : berth_arena_exhausted(arena, "names");
}

static berth_status read_all(berth_golden *golden, berth_arena *arena) {
    const berth_json *prompts = NULL;
    berth_str name;
    BERTH_TRY(berth_json_load(golden->path, NULL, &golden->root));
    BERTH_TRY(berth_json_str_or(golden->root, "name", BERTH_STR(""), &name));
    BERTH_TRY(berth_json_f64_or(golden->root, "val_loss", 0, &golden->val_loss));
    BERTH_TRY(berth_json_i64_or(golden->root, "val_tokens", 0, &golden->val_tokens));
    BERTH_TRY(berth_json_i64_or(golden->root, "seq", 0, &golden->seq));
    BERTH_TRY(berth_json_f64_or(golden->root, "bf16.rms", 0, &golden->bf16_rms));
    BERTH_TRY(read_steps(golden));
    BERTH_TRY(read_name(golden, "probe", arena, &golden->probe));
    BERTH_TRY(read_name(golden, "probe_expert", arena, &golden->probe_expert));
    BERTH_TRY(berth_json_get_array(golden->root, "prompts", &prompts));
    golden->name = berth_arena_copy(arena, name);
    golden->prompt_count = berth_json_size(prompts);
    golden->prompts = BERTH_ARENA_ARRAY(arena, berth_golden_prompt, golden->prompt_count);
    if (!golden->name || !golden->prompts) {
        return berth_arena_exhausted(arena, "golden prompts");
    }
    BERTH_TRY(open_tensors(golden, arena));
    for (size_t i = 0; i < golden->prompt_count; ++i) {
        BERTH_TRY(read_prompt(golden, berth_json_at(prompts, i), i, arena));
    }
    return BERTH_OK;
}

berth_status berth_golden_open(const char *path, berth_arena *arena, berth_golden *out) {
    *out = (berth_golden){.path = path};
    const berth_status status = read_all(out, arena);
    if (status != BERTH_OK) {
        berth_golden_close(out);
    }
    return status;
}

void berth_golden_close(berth_golden *golden) {
    berth_json_destroy(golden->root);
    berth_safetensors_close(golden->file);
    golden->root = NULL;
    golden->file = NULL;
}

// Why the folder: a checkpoint may carry the name of its kind, of which there are several.
static const char *entry_of(const berth_golden *golden, const berth_json *root, char *resolved) {
    if (berth_json_member(root, berth_str_from(golden->name))) {
        return golden->name;
    }
    char *end = realpath(golden->path, resolved) ? strrchr(resolved, '/') : NULL;
    if (end) {
        *end = '\0';
        const char *folder = berth_path_name(resolved);
        return berth_json_member(root, berth_str_from(folder)) ? folder : "micro";
    }
    return "micro";
}

berth_status berth_golden_read_ids(const berth_golden *golden, const char *path, berth_arena *arena,
                                   const int32_t **out_ids, size_t *out_count) {
    berth_json *root = NULL;
    char resolved[PATH_MAX];
    BERTH_TRY(berth_json_load(path, NULL, &root));
    const berth_status status =
        read_ids(root, entry_of(golden, root, resolved), arena, out_ids, out_count);
    berth_json_destroy(root);
    return status;
}

float berth_stored_f32(const berth_stored_tensor *tensor, size_t index) {
    float value;
    memcpy(&value, (const char *)tensor->data + index * sizeof value, sizeof value);
    return value;
}

int32_t berth_stored_i32(const berth_stored_tensor *tensor, size_t index) {
    int32_t value;
    memcpy(&value, (const char *)tensor->data + index * sizeof value, sizeof value);
    return value;
}
