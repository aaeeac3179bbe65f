// SPDX-License-Identifier: Apache-2.0
// Input: a Hugging Face folder. Output: its normalised configuration and all its tensors, from one
// safetensors file or from the shards that an index lists. The index is checked both ways, so that
// a tensor is found exactly where the index says and nowhere else.
#include "model/building.h"

#include "base/array.h"
#include "base/file.h"
#include "model/config_json.h"

#define ARENA_LIMIT     ((size_t)1 << 30)
#define MAX_INDEX_BYTES ((size_t)64 << 20)
#define WEIGHTS         "model.safetensors"
#define INDEX           "model.safetensors.index.json"

struct berth_checkpoint {
    berth_arena *arena; // owned, holds this struct
    const char *directory;
    berth_json *config;
    const char *architecture;
    berth_array(berth_safetensors *) files;
    berth_array(const berth_stored_tensor *) tensors;
};

static berth_status path_of(const berth_checkpoint *checkpoint, const char *name,
                            const char **out_path) {
    *out_path = berth_path_join(checkpoint->arena, checkpoint->directory, name);
    return *out_path == NULL ? berth_arena_exhausted(checkpoint->arena, "file names") : BERTH_OK;
}

// ---- config.json --------------------------------------------------------------------------------

static berth_status read_config(berth_checkpoint *checkpoint) {
    const char *path = NULL;
    BERTH_TRY(path_of(checkpoint, "config.json", &path));
    BERTH_TRY(berth_config_json_load(path, &checkpoint->config));
    berth_str name = {0};
    const bool is_listed = berth_json_has(checkpoint->config, "architectures.0");
    const char *key = is_listed ? "architectures.0" : "model_type";
    if (berth_json_get_str(checkpoint->config, key, &name) != BERTH_OK || name.size == 0) {
        return BERTH_FAIL(CORRUPT,
                          "%s: architectures is missing or no list of names, a model class such as "
                          "[\"LlamaForCausalLM\"] is needed, or a model_type",
                          path);
    }
    checkpoint->architecture = name.data;
    return BERTH_OK;
}

// ---- weights ------------------------------------------------------------------------------------

static berth_status open_file(berth_checkpoint *checkpoint, const char *path) {
    BERTH_TRY(berth_array_reserve(&checkpoint->files, checkpoint->files.count + 1));
    berth_safetensors *file = NULL;
    BERTH_TRY(berth_safetensors_open(path, &file));
    checkpoint->files.data[checkpoint->files.count++] = file;
    const size_t count = berth_safetensors_count(file);
    BERTH_TRY(berth_array_reserve(&checkpoint->tensors, checkpoint->tensors.count + count));
    for (size_t i = 0; i < count; ++i) {
        BERTH_TRY(berth_array_push(&checkpoint->tensors, berth_safetensors_at(file, i)));
    }
    return BERTH_OK;
}

// A shard is a file beside the index, never a path that leads elsewhere.
static berth_status check_shard_name(const berth_json *entry, berth_str *out_name) {
    if (berth_json_get_str(entry, "", out_name) != BERTH_OK ||
        !berth_str_ends_with(*out_name, BERTH_STR(".safetensors")) ||
        berth_str_find(*out_name, '/') < out_name->size) {
        return berth_json_fail(BERTH_CORRUPT, entry,
                               "is not the name of a .safetensors file beside the index");
    }
    return BERTH_OK;
}

static berth_safetensors *find_file(const berth_checkpoint *checkpoint, berth_str name) {
    for (size_t i = checkpoint->files.count; i-- > 0;) {
        berth_safetensors *file = checkpoint->files.data[i];
        if (berth_str_equal_cstr(name, berth_path_name(berth_safetensors_path(file)))) {
            return file;
        }
    }
    return NULL;
}

static berth_status check_entry(berth_checkpoint *checkpoint, const berth_json *map, size_t i) {
    const berth_json *entry = berth_json_at(map, i);
    berth_str name = {0};
    BERTH_TRY(check_shard_name(entry, &name));
    if (find_file(checkpoint, name) == NULL) {
        const char *path = NULL;
        BERTH_TRY(path_of(checkpoint, name.data, &path));
        BERTH_TRY_NOTE(open_file(checkpoint, path), "opening the shards that %s lists", INDEX);
    }
    const char *tensor = berth_json_key_at(map, i).data;
    if (berth_safetensors_find(find_file(checkpoint, name), tensor) == NULL) {
        return BERTH_FAIL(CORRUPT, "%s: tensor '%s' is not in %s; the index and its shards differ",
                          berth_json_file(map), tensor, name.data);
    }
    return BERTH_OK;
}

static berth_status check_index(berth_checkpoint *checkpoint, const berth_json *index) {
    const berth_json *map = NULL;
    if (berth_json_get_object(index, "weight_map", &map) != BERTH_OK) {
        return BERTH_FAIL(CORRUPT, "%s: weight_map is missing or no object of file names",
                          berth_json_file(index));
    }
    for (size_t i = 0; i < berth_json_size(map); ++i) {
        BERTH_TRY(check_entry(checkpoint, map, i));
    }
    for (size_t i = 0; i < checkpoint->tensors.count; ++i) {
        const berth_stored_tensor *tensor = checkpoint->tensors.data[i];
        const char *file = berth_path_name(berth_safetensors_path(tensor->file));
        const berth_json *entry = berth_json_member(map, berth_str_from(tensor->name));
        berth_str listed = {0};
        if (entry == NULL || berth_json_get_str(entry, "", &listed) != BERTH_OK ||
            !berth_str_equal_cstr(listed, file)) {
            return BERTH_FAIL(CORRUPT, "%s: tensor '%s' is in %s, but the index does not say so",
                              berth_json_file(map), tensor->name, file);
        }
    }
    return BERTH_OK;
}

static berth_status open_shards(berth_checkpoint *checkpoint, const char *path) {
    const berth_json_limits limits = {.bytes = MAX_INDEX_BYTES, .depth = 8};
    berth_json *index = NULL;
    BERTH_TRY(berth_json_load(path, &limits, &index));
    const berth_status status = check_index(checkpoint, index);
    berth_json_destroy(index);
    return status;
}

static berth_status open_weights(berth_checkpoint *checkpoint) {
    const char *weights = NULL;
    const char *index = NULL;
    BERTH_TRY(path_of(checkpoint, WEIGHTS, &weights));
    BERTH_TRY(path_of(checkpoint, INDEX, &index));
    if (berth_path_exists(weights)) {
        return open_file(checkpoint, weights);
    }
    if (berth_path_exists(index)) {
        return open_shards(checkpoint, index);
    }
    return BERTH_FAIL(NOT_FOUND,
                      "%s: has neither " WEIGHTS " nor " INDEX
                      "; only weights in safetensors files can be loaded",
                      checkpoint->directory);
}

static berth_status read_directory(berth_checkpoint *checkpoint, const char *directory) {
    checkpoint->directory = berth_arena_strdup(checkpoint->arena, directory);
    if (checkpoint->directory == NULL) {
        return berth_arena_exhausted(checkpoint->arena, "file names");
    }
    if (!berth_path_is_dir(directory)) {
        return BERTH_FAIL(
            NOT_FOUND, "%s: no such directory, the folder of a Hugging Face checkpoint is needed",
            directory);
    }
    BERTH_TRY(read_config(checkpoint));
    return open_weights(checkpoint);
}

// ---- entry points -------------------------------------------------------------------------------

berth_status berth_checkpoint_open(const char *directory, berth_checkpoint **out_checkpoint) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create((size_t)16 << 10, ARENA_LIMIT, &arena));
    berth_checkpoint *checkpoint = BERTH_ARENA_NEW(arena, berth_checkpoint);
    if (checkpoint == NULL) {
        berth_arena_destroy(arena);
        return BERTH_FAIL(OUT_OF_MEMORY, "%s: no memory for the checkpoint", directory);
    }
    checkpoint->arena = arena;
    const berth_status status = read_directory(checkpoint, directory);
    if (status != BERTH_OK) {
        berth_checkpoint_close(checkpoint);
        return status;
    }
    *out_checkpoint = checkpoint;
    return BERTH_OK;
}

berth_status berth_checkpoint_of(const berth_stored_tensor *const *tensors, size_t count,
                                 berth_checkpoint **out_checkpoint) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create((size_t)4 << 10, ARENA_LIMIT, &arena));
    berth_checkpoint *checkpoint = BERTH_ARENA_NEW(arena, berth_checkpoint);
    if (checkpoint == NULL) {
        berth_arena_destroy(arena);
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for %zu tensors", count);
    }
    checkpoint->arena = arena;
    checkpoint->directory = "given tensors";
    checkpoint->architecture = "";
    berth_status status =
        berth_json_parse(BERTH_STR("{}"), "no config.json", NULL, &checkpoint->config);
    for (size_t i = 0; status == BERTH_OK && i < count; ++i) {
        status = berth_array_push(&checkpoint->tensors, tensors[i]);
    }
    if (status != BERTH_OK) {
        berth_checkpoint_close(checkpoint);
        return status;
    }
    *out_checkpoint = checkpoint;
    return BERTH_OK;
}

const char *berth_checkpoint_directory(const berth_checkpoint *checkpoint) {
    return checkpoint->directory;
}

const berth_json *berth_checkpoint_config(const berth_checkpoint *checkpoint) {
    return checkpoint->config;
}

const char *berth_checkpoint_architecture(const berth_checkpoint *checkpoint) {
    return checkpoint->architecture;
}

berth_dtype berth_checkpoint_dtype(const berth_checkpoint *checkpoint) {
    static const struct {
        const char *name;
        berth_dtype dtype;
    } kinds[] = {
        {"float32",  BERTH_DTYPE_F32 },
        {"bfloat16", BERTH_DTYPE_BF16},
        {"float16",  BERTH_DTYPE_F16 },
    };
    berth_str named = {0};
    berth_dtype most = BERTH_DTYPE_F32;
    uint64_t most_bytes = 0;
    const bool is_named = berth_json_get_str(checkpoint->config, "dtype", &named) == BERTH_OK;
    for (size_t kind = 0; kind < BERTH_COUNT(kinds); ++kind) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < checkpoint->tensors.count; ++i) {
            const berth_stored_tensor *tensor = checkpoint->tensors.data[i];
            bytes += tensor->dtype == kinds[kind].dtype ? tensor->bytes : 0;
        }
        if (is_named && berth_str_equal_cstr(named, kinds[kind].name)) {
            return kinds[kind].dtype;
        }
        most = bytes > most_bytes ? kinds[kind].dtype : most;
        most_bytes = bytes > most_bytes ? bytes : most_bytes;
    }
    return most;
}

size_t berth_checkpoint_count(const berth_checkpoint *checkpoint) {
    return checkpoint->tensors.count;
}

const berth_stored_tensor *berth_checkpoint_at(const berth_checkpoint *checkpoint, size_t index) {
    return checkpoint->tensors.data[index];
}

void berth_checkpoint_close(berth_checkpoint *checkpoint) {
    if (checkpoint == NULL) {
        return;
    }
    for (size_t i = 0; i < checkpoint->files.count; ++i) {
        berth_safetensors_close(checkpoint->files.data[i]);
    }
    berth_array_free(&checkpoint->files);
    berth_array_free(&checkpoint->tensors);
    berth_json_destroy(checkpoint->config);
    berth_arena_destroy(checkpoint->arena);
}
