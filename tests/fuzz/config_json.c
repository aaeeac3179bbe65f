// SPDX-License-Identifier: Apache-2.0
// Any bytes as a config.json: refused with a text, or a document without the keys of
// transformers 4, from which the core models are built beside the weights of a small checkpoint:
// refused with a text again, or a graph.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/config_json.h"
#include "model/model.h"
#include "registry/registry.h"

#define WEIGHTS     "tests/data/models/llama/model.safetensors"
#define LIMIT_BYTES ((size_t)1 << 26)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const berth_plugin *const berth_core_plugins[];
extern const size_t berth_core_plugins_count;

// The folder of a checkpoint, config.json in it a link to memory that no disk sees.
typedef struct rig {
    char folder[40];
    char config_link[64];
    char weights_link[64];
    int file;
    berth_arena *arena;
    berth_config config;
    berth_registry *registry;
} rig;

static rig the_rig;

static void must(bool holds) {
    if (!holds) {
        abort();
    }
}

static void remove_folder(void) {
    (void)unlink(the_rig.config_link);
    (void)unlink(the_rig.weights_link);
    (void)rmdir(the_rig.folder);
}

static void make_folder(rig *made) {
    char target[PATH_MAX];
    made->file = memfd_create("config", MFD_CLOEXEC);
    (void)snprintf(made->folder, sizeof made->folder, "/tmp/berth-fuzz-config-%d", (int)getpid());
    must(made->file >= 0 && mkdir(made->folder, 0700) == 0 && atexit(remove_folder) == 0);
    (void)snprintf(made->config_link, sizeof made->config_link, "%s/config.json", made->folder);
    (void)snprintf(made->weights_link, sizeof made->weights_link, "%s/model.safetensors",
                   made->folder);
    (void)snprintf(target, sizeof target, "/proc/self/fd/%d", made->file);
    must(symlink(target, made->config_link) == 0);
    must(realpath(WEIGHTS, target) != NULL && symlink(target, made->weights_link) == 0);
}

static void make_registry(rig *made) {
    must(berth_arena_create((size_t)64 << 10, LIMIT_BYTES, &made->arena) == BERTH_OK);
    must(berth_config_init(&made->config, made->arena) == BERTH_OK);
    must(berth_registry_create(&made->config, NULL, &made->registry) == BERTH_OK);
    must(berth_registry_add_core(made->registry, berth_core_plugins, berth_core_plugins_count) ==
         BERTH_OK);
    must(berth_registry_freeze(made->registry) == BERTH_OK);
}

static void check(const berth_json *config) {
    static const char *const old[] = {"torch_dtype", "rope_theta", "rope_scaling"};
    for (size_t i = 0; i < sizeof old / sizeof old[0]; ++i) {
        must(berth_json_member(config, berth_str_from(old[i])) == NULL);
    }
    const berth_json *rope = berth_json_member(config, BERTH_STR("rope_parameters"));
    must(rope == NULL || berth_json_kind_of(rope) == BERTH_JSON_OBJECT);
}

static void build(const rig *with, const uint8_t *data, size_t size) {
    berth_checkpoint *checkpoint = NULL;
    berth_model_build *model = NULL;
    must(ftruncate(with->file, 0) == 0 && pwrite(with->file, data, size, 0) == (ssize_t)size);
    berth_status status = berth_checkpoint_open(with->folder, &checkpoint);
    if (status == BERTH_OK) {
        status =
            berth_model_create(with->registry, &with->config, checkpoint, BERTH_DTYPE_F32, &model);
    }
    must(status == BERTH_OK || berth_status_message()[0] != '\0');
    berth_model_destroy(model);
    berth_checkpoint_close(checkpoint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    berth_json *config = NULL;
    const berth_str text = {.data = (const char *)data, .size = size};
    if (the_rig.registry == NULL) {
        make_folder(&the_rig);
        make_registry(&the_rig);
    }
    if (berth_config_json_parse(text, "config.json", &config) == BERTH_OK) {
        check(config);
        berth_json_destroy(config);
        build(&the_rig, data, size);
    } else {
        must(berth_status_message()[0] != '\0');
    }
    return 0;
}
