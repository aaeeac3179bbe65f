// SPDX-License-Identifier: Apache-2.0
// Input: the text of a *.plugin.yaml. Output: a candidate, complete or with the first thing that is
// wrong. Every key is read even after a failure: a refused manifest that names a platform must be
// known as one, or the user would silently get another.
#include "discovery/search.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <berth/plugin.h>

#include "base/array.h"
#include "base/file.h"
#include "base/yaml.h"

#define FORMAT         1 // of the manifest
#define MAX_NAME_BYTES 64

#define ID_LETTERS   "abcdefghijklmnopqrstuvwxyz0123456789-"
#define NAME_LETTERS ID_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ._"

typedef struct reader {
    const berth_yaml *root;
    const char *path;
    berth_arena *arena;
    berth_candidate *out;
    berth_demands *demands;
} reader;

typedef berth_status (*step_fn)(reader *in);

static const char *const keys[] = {
    "berth", "id",         "version",    "vendor",     "library", "abi",          "arch",
    "cpu",   "importance", "activation", "variant_of", "score",   "entry_points",
};

static const char *const groups[] = {
    BERTH_GROUP_PLATFORM,        BERTH_GROUP_GENERAL,      "berth.io_processor_plugins",
    "berth.stat_logger_plugins", "berth.endpoint_plugins", "berth.logits_processors",
};
#define SERVED_GROUPS 2 // the first ones

// ---- scalars ------------------------------------------------------------------------------------

// The value under a key, NULL when it is missing or null.
static const berth_yaml *value(const reader *in, const char *key) {
    const berth_yaml *node = berth_yaml_member(in->root, berth_str_from(key));
    return node == NULL || berth_yaml_is_null(node) ? NULL : node;
}

static berth_status missing(const reader *in, const char *key, const char *example) {
    return berth_yaml_fail(BERTH_INVALID_ARGUMENT, in->root,
                           "required key '%s' is missing, add for instance %s", key, example);
}

static berth_status copy_text(const reader *in, const berth_yaml *node, const char **out) {
    berth_str text;
    BERTH_TRY(berth_yaml_get_str(node, "", &text));
    if (text.size == 0) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node, "is empty");
    }
    for (size_t i = 0; i < text.size; ++i) {
        if ((unsigned char)text.data[i] < ' ' || text.data[i] == '\x7f') {
            return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node, "has a control character");
        }
    }
    const char *copy = berth_arena_copy(in->arena, text);
    if (copy == NULL) {
        return berth_arena_exhausted(in->arena, "a manifest");
    }
    *out = copy;
    return BERTH_OK;
}

// Leaves `out` as it is when the key is missing.
static berth_status read_text(const reader *in, const char *key, const char **out) {
    const berth_yaml *node = value(in, key);
    return node == NULL ? BERTH_OK : copy_text(in, node, out);
}

// A text made of `letters` only, short enough for a table's column.
static berth_status read_name(const reader *in, const berth_yaml *node, const char *letters,
                              const char **out) {
    const char *name = NULL;
    BERTH_TRY(copy_text(in, node, &name));
    const size_t good = strspn(name, letters);
    if (name[good] != '\0') {
        return berth_yaml_fail(
            BERTH_INVALID_ARGUMENT, node, "'%s' has the character '%c', use %s", name, name[good],
            letters[sizeof(ID_LETTERS) - 1] == '\0' ? "a-z, 0-9 and -" : "A-Z, a-z, 0-9, . _ -");
    }
    if (strlen(name) > MAX_NAME_BYTES) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node, "is longer than %d bytes",
                               MAX_NAME_BYTES);
    }
    *out = name;
    return BERTH_OK;
}

// One of `count` words; `out` is its index.
static berth_status read_choice(const reader *in, const char *key, const char *const *words,
                                size_t count, size_t *out) {
    const char *text = NULL;
    BERTH_TRY(read_text(in, key, &text));
    if (text == NULL) {
        return BERTH_OK;
    }
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(words[i], text) == 0) {
            *out = i;
            return BERTH_OK;
        }
    }
    const char *nearest = berth_str_nearest(berth_str_from(text), words, count);
    return berth_yaml_fail(BERTH_INVALID_ARGUMENT, value(in, key),
                           "there is no '%s', the choices are %s, %s%s%s%s%s%s", text, words[0],
                           words[1], count > 2 ? ", " : "", count > 2 ? words[2] : "",
                           nearest == NULL ? "" : "; did you mean '",
                           nearest == NULL ? "" : nearest, nearest == NULL ? "" : "'?");
}

// ---- the keys -----------------------------------------------------------------------------------

static berth_status check_format(reader *in) {
    const berth_yaml *node = value(in, "berth");
    if (node == NULL) {
        return missing(in, "berth", "berth: 1");
    }
    int64_t format = 0;
    BERTH_TRY(berth_yaml_get_i64(node, "", &format));
    if (format != FORMAT) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node,
                               "this host reads manifest format %d only, not %lld", FORMAT,
                               (long long)format);
    }
    return BERTH_OK;
}

static berth_status check_keys(reader *in) {
    return berth_yaml_check_keys(in->root, keys, BERTH_COUNT(keys));
}

static berth_status read_id(reader *in) {
    const berth_yaml *node = value(in, "id");
    return node == NULL ? missing(in, "id", "id: acme")
                        : read_name(in, node, ID_LETTERS, &in->out->id);
}

static berth_status read_version(reader *in) {
    return value(in, "version") == NULL ? missing(in, "version", "version: 1.0.0")
                                        : read_text(in, "version", &in->out->version);
}

static berth_status read_vendor(reader *in) {
    return read_text(in, "vendor", &in->out->vendor);
}

static berth_status read_importance(reader *in) {
    static const char *const words[] = {
        [BERTH_IMPORTANCE_OPTIONAL] = "optional",
        [BERTH_IMPORTANCE_REQUIRED] = "required",
        [BERTH_IMPORTANCE_QUIET] = "quiet",
    };
    size_t choice = BERTH_IMPORTANCE_OPTIONAL;
    BERTH_TRY(read_choice(in, "importance", words, BERTH_COUNT(words), &choice));
    in->out->importance = (berth_importance)choice;
    return BERTH_OK;
}

static berth_status read_activation(reader *in) {
    static const char *const words[] = {"auto", "named"};
    size_t choice = 0;
    BERTH_TRY(read_choice(in, "activation", words, BERTH_COUNT(words), &choice));
    in->out->is_named = choice == 1;
    return BERTH_OK;
}

// "1.3"
static bool parse_abi(berth_str text, uint64_t *out_abi) {
    const size_t dot = berth_str_find(text, '.');
    uint64_t major = 0;
    uint64_t minor = 0;
    if (dot == text.size ||
        berth_str_parse_u64(berth_str_slice(text, 0, dot), &major) != BERTH_OK ||
        berth_str_parse_u64(berth_str_slice(text, dot + 1, text.size), &minor) != BERTH_OK ||
        major == 0 || major > UINT16_MAX || minor > UINT16_MAX) {
        berth_status_clear();
        return false;
    }
    *out_abi = BERTH_ABI(major, minor);
    return true;
}

static berth_status read_abi(reader *in) {
    const char *text = NULL;
    BERTH_TRY(read_text(in, "abi", &text));
    if (text == NULL) {
        return BERTH_OK;
    }
    const berth_str whole = berth_str_from(text);
    const size_t dash = berth_str_find(whole, '-');
    const berth_str first = berth_str_slice(whole, 0, dash);
    const berth_str last =
        dash == whole.size ? first : berth_str_slice(whole, dash + 1, whole.size);
    uint64_t min = 0;
    uint64_t max = 0;
    if (!parse_abi(first, &min) || !parse_abi(last, &max) || min > max) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, value(in, "abi"),
                               "'%s' is no ABI range, write \"1.0\" or \"1.0-1.3\"", text);
    }
    in->out->abi_min = min;
    in->out->abi_max = max;
    return BERTH_OK;
}

static berth_status read_arch(reader *in) {
    return read_text(in, "arch", &in->demands->arch);
}

static berth_status read_cpu(reader *in) {
    const berth_yaml *node = value(in, "cpu");
    if (node == NULL) {
        return BERTH_OK;
    }
    berth_str *items = NULL;
    size_t count = 0;
    BERTH_TRY(berth_yaml_get_list(node, "", in->arena, &items, &count));
    const char **cpu = BERTH_ARENA_ARRAY(in->arena, const char *, count);
    if (cpu == NULL) {
        return berth_arena_exhausted(in->arena, "a manifest");
    }
    for (size_t i = 0; i < count; ++i) {
        BERTH_TRY(read_name(in, berth_yaml_at(node, i), NAME_LETTERS, &cpu[i]));
    }
    in->demands->cpu = cpu;
    in->demands->cpu_count = count;
    return BERTH_OK;
}

static berth_status read_variant(reader *in) {
    const berth_yaml *score = value(in, "score");
    BERTH_TRY(read_text(in, "variant_of", &in->out->variant_of));
    if (score == NULL) {
        return BERTH_OK;
    }
    if (in->out->variant_of == NULL) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, score,
                               "means nothing without variant_of, add it or remove this");
    }
    return berth_yaml_get_i64(score, "", &in->out->score);
}

static bool is_known(const berth_candidate *candidate, const char *group, const char *name) {
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        if (strcmp(candidate->entries[i].group, group) == 0 &&
            strcmp(candidate->entries[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static berth_status read_group(reader *in, size_t group, const berth_yaml *names) {
    if (berth_yaml_kind_of(names) != BERTH_YAML_SEQUENCE) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, names,
                               "needed is a list of names, such as [acme]");
    }
    for (size_t i = 0; i < berth_yaml_size(names); ++i) {
        const char *name = NULL;
        BERTH_TRY(read_name(in, berth_yaml_at(names, i), NAME_LETTERS, &name));
        if (is_known(in->out, groups[group], name)) {
            return berth_yaml_fail(BERTH_INVALID_ARGUMENT, berth_yaml_at(names, i),
                                   "'%s' stands there twice", name);
        }
        const bool is_served = group < SERVED_GROUPS;
        in->out->entries[in->out->entry_count++] = (berth_entry){
            .group = groups[group],
            .name = name,
            .state = is_served ? BERTH_PLUGIN_FOUND : BERTH_PLUGIN_INELIGIBLE,
            .reason = is_served ? "" : "this host does not serve the entry point's group yet",
        };
    }
    return BERTH_OK;
}

static size_t count_names(const berth_yaml *mapping) {
    size_t count = 0;
    for (size_t i = 0; i < berth_yaml_size(mapping); ++i) {
        count += berth_yaml_size(berth_yaml_at(mapping, i));
    }
    return count;
}

static berth_status read_entries(reader *in) {
    const berth_yaml *node = value(in, "entry_points");
    if (node == NULL) {
        return missing(in, "entry_points", "entry_points: {berth.platform_plugins: [acme]}");
    }
    in->out->entries = BERTH_ARENA_ARRAY(in->arena, berth_entry, count_names(node));
    if (in->out->entries == NULL) {
        return berth_arena_exhausted(in->arena, "entry points");
    }
    for (size_t i = 0; i < BERTH_COUNT(groups); ++i) {
        const berth_yaml *names = berth_yaml_member(node, berth_str_from(groups[i]));
        if (names != NULL) {
            BERTH_TRY(read_group(in, i, names));
        }
    }
    BERTH_TRY(berth_yaml_check_keys(node, groups, BERTH_COUNT(groups)));
    if (in->out->entry_count == 0) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node, "names no entry point");
    }
    return BERTH_OK;
}

// The directory of the manifest as an absolute path.
static const char *absolute_dir(const reader *in) {
    const char *dir = berth_arena_copy(in->arena, berth_path_dir(in->path));
    char resolved[PATH_MAX];
    if (dir == NULL || dir[0] == '/' || realpath(dir, resolved) == NULL) {
        return dir;
    }
    return berth_arena_strdup(in->arena, resolved);
}

static berth_status read_library(reader *in) {
    const berth_yaml *node = value(in, "library");
    const char *name = NULL;
    if (node == NULL) {
        return missing(in, "library", "library: libacme.so");
    }
    BERTH_TRY(copy_text(in, node, &name));
    const char *dir = absolute_dir(in);
    in->out->library = dir == NULL ? NULL : berth_path_join(in->arena, dir, name);
    if (in->out->library == NULL) {
        return berth_arena_exhausted(in->arena, "a library's path");
    }
    struct stat found;
    if (stat(in->out->library, &found) != 0) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node,
                               "there is no file %s, put the library there or correct the name",
                               in->out->library);
    }
    if (!S_ISREG(found.st_mode)) {
        return berth_yaml_fail(BERTH_INVALID_ARGUMENT, node, "%s is not a regular file",
                               in->out->library);
    }
    return BERTH_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

// The first failure is the one to report: a wrong format explains unknown keys, those the rest.
static const step_fn steps[] = {
    check_format,    check_keys,   read_id,      read_version, read_vendor,
    read_abi,        read_arch,    read_cpu,     read_variant, read_importance,
    read_activation, read_entries, read_library,
};

static berth_status read_tree(reader *in) {
    berth_status first = BERTH_OK;
    berth_status_report report;
    for (size_t i = 0; i < BERTH_COUNT(steps); ++i) {
        const berth_status status = steps[i](in);
        if (status != BERTH_OK && first == BERTH_OK) {
            first = status;
            berth_status_take(&report);
        }
    }
    return first == BERTH_OK ? BERTH_OK : berth_status_restore(&report);
}

berth_status berth_manifest_read(const char *path, const berth_str *text, berth_arena *arena,
                                 berth_candidate *out, berth_demands *out_demands) {
    *out = (berth_candidate){
        .id = "",
        .version = "",
        .vendor = "",
        .manifest = berth_arena_strdup(arena, path),
        .source = "",
        .reason = "",
    };
    *out_demands = (berth_demands){0};
    if (out->manifest == NULL) {
        return berth_arena_exhausted(arena, "a manifest");
    }
    berth_yaml *root = NULL;
    BERTH_TRY(text == NULL ? berth_yaml_load(path, NULL, &root)
                           : berth_yaml_parse(*text, path, NULL, &root));
    reader in = {
        .root = root,
        .path = out->manifest,
        .arena = arena,
        .out = out,
        .demands = out_demands,
    };
    const berth_status status =
        berth_yaml_kind_of(root) == BERTH_YAML_MAPPING ? read_tree(&in) : check_keys(&in);
    berth_yaml_destroy(root);
    return status;
}

berth_status berth_manifest_load(const char *path, berth_arena *arena, berth_candidate *out) {
    berth_demands demands;
    return berth_manifest_read(path, NULL, arena, out, &demands);
}
