// SPDX-License-Identifier: Apache-2.0
// Input: a checkpoint folder, the registered schemes. Output: the document that says how the
// checkpoint is quantized: config.json, or where that says nothing the first file beside it that a
// scheme knows, put where config.json would have it.
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/building.h"

#define MAX_BYTES ((size_t)64 << 20)

static berth_status wrap(const char *path, const char *name, berth_json **out) {
    char *data = NULL;
    size_t size = 0;
    BERTH_TRY(berth_file_read(path, MAX_BYTES, &data, &size));
    berth_text text;
    berth_text_init(&text, size + strlen(name) + 128);
    berth_text_add_cstr(&text, "{\"quantization_config\": ");
    berth_text_add(&text, (berth_str){.data = data, .size = size});
    berth_text_add_format(&text, ", \"quantization_file\": \"%s\"}", name);
    const char *whole = NULL;
    berth_status status = berth_text_finish(&text, &whole);
    if (status == BERTH_OK) {
        status = berth_json_parse(berth_str_from(whole), path, NULL, out);
    }
    berth_text_deinit(&text);
    berth_free(data);
    return status;
}

static berth_status read_file(const berth_checkpoint *checkpoint, const berth_quant_config *config,
                              berth_arena *arena, berth_json **out) {
    for (uint64_t i = 0; i < config->config_file_count && *out == NULL; ++i) {
        const char *name = config->config_files[i];
        const char *path = berth_path_join(arena, berth_checkpoint_directory(checkpoint), name);
        if (path == NULL) {
            return berth_arena_exhausted(arena, "file names");
        }
        if (berth_path_exists(path)) {
            BERTH_TRY(wrap(path, name, out));
        }
    }
    return BERTH_OK;
}

berth_status berth_quant_document_read(const berth_registry *registry,
                                       const berth_checkpoint *checkpoint,
                                       const berth_json **out_document, berth_json **out_own) {
    *out_document = berth_checkpoint_config(checkpoint);
    if (berth_json_has(*out_document, "quantization_config")) {
        return BERTH_OK;
    }
    berth_arena *arena = NULL;
    berth_status status = berth_arena_create((size_t)4 << 10, (size_t)1 << 20, &arena);
    for (size_t i = 0; status == BERTH_OK && *out_own == NULL; ++i) {
        if (i == berth_registry_quant_count(registry)) {
            break;
        }
        const berth_quant_entry *entry = berth_registry_quant_at(registry, i);
        status = read_file(checkpoint, &entry->config, arena, out_own);
    }
    berth_arena_destroy(arena);
    if (status == BERTH_OK && *out_own != NULL) {
        *out_document = *out_own;
    }
    return status;
}
