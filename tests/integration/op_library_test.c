// SPDX-License-Identifier: Apache-2.0
// The op library of platform-dummy from the outside: used where it loads; where it is missing or
// broken the model says the same, status 0, and the operator reads why; opened only by who needs
// it.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <berth/op_library.h>

#include "base/array.h"
#include "base/file.h"
#include "support/program.h"
#include "support/sandbox.h"
#include "support/test.h"

#define LLAMA   "tests/data/models/llama"
#define BUILT   TEST_BUILD "/plugins/"
#define PLUGIN  "libberth-platform-dummy.so"
#define LIBRARY "libberth-platform-dummy-fused.so"

// ---- a folder with the dummy alone --------------------------------------------------------------

typedef struct folder {
    sandbox box;
    char search[PATH_MAX + 32]; // the variable that makes it the only one
} folder;

static void write_file(const sandbox *box, const char *name, const void *data, size_t bytes) {
    FILE *file = fopen(sandbox_path(box, name), "wb");
    CHECK(file != NULL);
    CHECK_UINT(fwrite(data, 1, bytes, file), bytes);
    CHECK_INT(fclose(file), 0);
}

// A file of the build, to be freed.
static char *take(const char *name, size_t *out_bytes) {
    char path[PATH_MAX];
    struct stat info;
    (void)snprintf(path, sizeof path, BUILT "%s", name);
    CHECK_INT(stat(path, &info), 0);
    *out_bytes = (size_t)info.st_size;
    char *data = malloc(*out_bytes + 1);
    FILE *file = fopen(path, "rb");
    CHECK(data != NULL && file != NULL);
    CHECK_UINT(fread(data, 1, *out_bytes, file), *out_bytes);
    CHECK_INT(fclose(file), 0);
    return data;
}

static void copy(const folder *in, const char *from, const char *to) {
    size_t bytes = 0;
    char *data = take(from, &bytes);
    write_file(&in->box, to, data, bytes);
    free(data);
}

static void open_folder(folder *in) {
    sandbox_make(&in->box);
    (void)snprintf(in->search, sizeof in->search, "BERTH_PLUGIN_DIRS=%s", in->box.dir);
    copy(in, "dummy.plugin.yaml", "dummy.plugin.yaml");
    copy(in, PLUGIN, PLUGIN);
}

#define ON_DUMMY "--platform", "dummy"
#define EXPLAIN(p, in, ...)                                                                        \
    PROGRAM_MUST((p), PROGRAM_ENV((in)->search), BERTH, "ops", "explain", "--json", "--model",     \
                 LLAMA, ON_DUMMY, "--allow-fallback", __VA_ARGS__)
#define LISTED(p, in, ...)                                                                         \
    PROGRAM_MUST((p), PROGRAM_ENV((in)->search), BERTH, __VA_ARGS__, ON_DUMMY)

static const char *text_at(const berth_json *node, const char *path) {
    berth_str text = {0};
    CHECK_OK(berth_json_get_str(node, path, &text));
    return text.data;
}

// The first sixteen tokens.
static void generate(program *p, const folder *in) {
    PROGRAM_MUST(p, PROGRAM_ENV(in->search), BERTH, "run", "--model", LLAMA, "--prompt",
                 "ROMEO:", "-n", "16", ON_DUMMY, "--allow-fallback");
}

// ---- where it loads -----------------------------------------------------------------------------

TEST(op_library_runs_what_it_has_a_form_of) {
    folder in;
    program p;
    open_folder(&in);
    copy(&in, LIBRARY, LIBRARY);
    EXPLAIN(&p, &in, "rms_norm");
    CHECK_STR(p.err, "");
    berth_json *root = program_json(&p);
    const berth_json *sites = NULL;
    CHECK_OK(berth_json_get_array(root, "sites", &sites));
    CHECK(berth_json_size(sites) > 2);
    for (size_t i = 0; i < berth_json_size(sites); ++i) {
        const berth_json *site = berth_json_at(sites, i);
        CHECK_STR(text_at(site, "implementation"), "dummy_rms_norm");
        CHECK_STR(text_at(site, "library"), LIBRARY);
        CHECK_STR(text_at(site, "reason"), "override for device type dummy, from " LIBRARY);
        CHECK_STR(text_at(site, "runner_up"),
                  "dummy_rms_norm of dummy: its form in the op library comes first");
        CHECK_INT(berth_json_kind_of(berth_json_find(site, "degraded")), BERTH_JSON_NULL);
    }
    berth_json_destroy(root);
    CHECK(strstr(p.out, "is never used") == NULL);
    LISTED(&p, &in, "plugins", "list", "--json");
    root = program_json(&p);
    CHECK_STR(text_at(root, "0.op_libraries.0.file"), LIBRARY);
    CHECK_STR(text_at(root, "0.op_libraries.0.state"), "loaded");
    CHECK_STR(text_at(root, "0.op_libraries.0.reason"), "");
    berth_json_destroy(root);
    sandbox_remove(&in.box);
}

// A golden vector with a bias, which only the form in the library has: the norm of {1, 1} is
// itself.
static const char *write_vector(const sandbox *box) {
    static const char *const header =
        "{\"x\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
        "\"y\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[16,24]}}";
    static const float numbers[] = {1, 1, 1, 4, 2, 5};
    char file[512];
    const uint64_t bytes = strlen(header);
    memcpy(file, &bytes, sizeof bytes);
    memcpy(file + sizeof bytes, header, bytes);
    memcpy(file + sizeof bytes + bytes, numbers, sizeof numbers);
    sandbox_write(box, "rms_norm.json",
                  "{\"op\": \"rms_norm\", \"class\": \"RMSNorm\", \"cases\": [{\"name\": \"it\", "
                  "\"attributes\": {\"eps\": 0.0}, \"inputs\": {\"x\": \"x\", \"bias\": \"b\"}, "
                  "\"outputs\": {\"y\": \"y\"}, \"compare\": {\"mode\": \"exact\"}}]}");
    write_file(box, "rms_norm.safetensors", file, sizeof bytes + bytes + sizeof numbers);
    return box->dir;
}

TEST(op_library_runs_what_the_plugin_itself_cannot) {
    folder in;
    program p;
    sandbox golden;
    sandbox_make(&golden);
    open_folder(&in);
    for (int is_there = 0; is_there < 2; ++is_there) {
        PROGRAM_MUST(&p, PROGRAM_ENV(in.search), BERTH, "ops", "check", "--golden",
                     is_there ? golden.dir : write_vector(&golden), ON_DUMMY, "--allow-fallback",
                     "--json");
        berth_json *root = program_json(&p);
        CHECK_STR(text_at(root, "0.ran"), is_there ? "dummy_rms_norm" : "native (bounced)");
        berth_json_destroy(root);
        copy(&in, LIBRARY, LIBRARY);
    }
    sandbox_remove(&golden);
    sandbox_remove(&in.box);
}

// ---- where it does not --------------------------------------------------------------------------

// The library as the build made it, changed in place; its new size.
typedef size_t (*spoil_fn)(char *data, size_t bytes);

static size_t find(const char *data, size_t bytes, const void *what, size_t length) {
    for (size_t i = 0; i + length <= bytes; ++i) {
        if (memcmp(data + i, what, length) == 0) {
            return i;
        }
    }
    CHECK(false);
    return 0;
}

// The table that it exports, by its size and the range behind that.
static uint64_t *head_of(char *data, size_t bytes) {
    const uint64_t head[] = {sizeof(berth_op_library), BERTH_ABI(1, 0), BERTH_ABI_CURRENT};
    return (uint64_t *)(void *)(data + find(data, bytes, head, sizeof head));
}

static size_t spoil_abi(char *data, size_t bytes) {
    uint64_t *head = head_of(data, bytes);
    head[1] = BERTH_ABI(7, 1);
    head[2] = BERTH_ABI(9, 0);
    return bytes;
}

static size_t spoil_size(char *data, size_t bytes) {
    head_of(data, bytes)[0] = 3 * sizeof(uint64_t);
    return bytes;
}

static size_t spoil_version(char *data, size_t bytes) {
    memcpy(data + find(data, bytes, "0.1.0", sizeof "0.1.0"), "0.0.9", sizeof "0.0.9");
    return bytes;
}

static size_t spoil_form(char *data, size_t bytes) {
    memcpy(data + find(data, bytes, "dummy_rms_norm", sizeof "dummy_rms_norm"), "dummy_rms_porm",
           sizeof "dummy_rms_norm");
    return bytes;
}

static size_t spoil_symbol(char *data, size_t bytes) {
    data[find(data, bytes, "berth_op_library_v1", sizeof "berth_op_library_v1")] = 'c';
    return bytes;
}

static size_t spoil_elf(char *data, size_t bytes) {
    data[0] = 'B';
    return bytes;
}

static size_t spoil_end(char *data, size_t bytes) {
    (void)data, (void)bytes;
    return 100;
}

static size_t spoil_all(char *data, size_t bytes) {
    (void)data, (void)bytes;
    return 0;
}

typedef struct spoiled {
    const char *name;
    spoil_fn spoil; // NULL: the file is not there
    const char *text;
} spoiled;

static const spoiled spoils[] = {
    {"not there",        NULL,          "cannot load the library: /"                          },
    {"empty",            spoil_all,     "cannot load the library: /"                          },
    {"cut off",          spoil_end,     "cannot load the library: /"                          },
    {"no library",       spoil_elf,     "invalid ELF header"                                  },
    {"without symbol",   spoil_symbol,
     LIBRARY " does not export berth_op_library_v1; it is no op library, or was built without"},
    {"of a later ABI",   spoil_abi,
     "the library speaks ABI 7.1 to 9.0, this host 1.0 to 1.1; install a newer berth"         },
    {"too small",        spoil_size,
     "berth_op_library: its size of 24 bytes ends before the required slot 'id'"              },
    {"of another build", spoil_version,
     "it belongs to plugin 'dummy' 0.0.9, and this is 'dummy' 0.1.0"                          },
    {"without a form",   spoil_form,
     "the library has no 'dummy_rms_norm' of op 'rms_norm', which the plugin says it has"     },
};

static void check_degraded(const folder *in, const char *text) {
    program p;
    EXPLAIN(&p, in, "rms_norm");
    CHECK_CONTAINS(p.err, "plugin 'dummy' goes without its op library " LIBRARY ": ");
    CHECK(strchr(p.err, '\n') == strrchr(p.err, '\n')); // once, however many sites
    berth_json *root = program_json(&p);
    CHECK_STR(text_at(root, "sites.0.implementation"), "dummy_rms_norm");
    CHECK_STR(text_at(root, "sites.0.how"), "override");
    CHECK_STR(text_at(root, "sites.0.reason"), "override for device type dummy");
    CHECK_CONTAINS(text_at(root, "sites.0.runner_up"), "dummy_rms_norm of dummy: " LIBRARY ": ");
    CHECK_CONTAINS(text_at(root, "sites.0.degraded"), LIBRARY ": ");
    CHECK_CONTAINS(text_at(root, "sites.0.degraded"), text);
    CHECK_CONTAINS(text_at(root, "sites.2.degraded"), text);
    CHECK_CONTAINS(p.out, "sites go without op library " LIBRARY " of plugin dummy: ");
    berth_json_destroy(root);
    LISTED(&p, in, "plugins", "list", "--json");
    root = program_json(&p);
    CHECK_STR(text_at(root, "0.state"), "selected");
    CHECK_STR(text_at(root, "0.op_libraries.0.state"), "failed");
    CHECK_CONTAINS(text_at(root, "0.op_libraries.0.reason"), text);
    berth_json_destroy(root);
    LISTED(&p, in, "plugins", "list");
    CHECK_CONTAINS(p.out, "degraded: op library " LIBRARY ": ");
    LISTED(&p, in, "plugins", "inspect", "dummy");
    CHECK_CONTAINS(p.out, "op library  " LIBRARY ": failed: ");
}

static void check_spoiled(void **state) {
    const spoiled *row = *state;
    folder in;
    program whole;
    program without;
    open_folder(&in);
    copy(&in, LIBRARY, LIBRARY);
    generate(&whole, &in);
    CHECK_STR(whole.err, "");
    CHECK_INT(unlink(sandbox_path(&in.box, LIBRARY)), 0);
    if (row->spoil) {
        size_t bytes = 0;
        char *data = take(LIBRARY, &bytes);
        write_file(&in.box, LIBRARY, data, row->spoil(data, bytes));
        free(data);
    }
    generate(&without, &in);
    CHECK_STR(without.out, whole.out);
    CHECK_CONTAINS(without.err, row->text);
    check_degraded(&in, row->text);
    sandbox_remove(&in.box);
}

TEST_CASES(op_library_is_done_without_when_it_is) {
    for (size_t i = 0; i < BERTH_COUNT(spoils); ++i) {
        test_add(cases, spoils[i].name, check_spoiled, (void *)&spoils[i]);
    }
}

// ---- lazy ---------------------------------------------------------------------------------------

TEST(op_library_is_opened_only_by_who_needs_it) {
    folder in;
    program p;
    open_folder(&in); // without it, so that opening would show
    EXPLAIN(&p, &in, "rms_norm", "--custom-ops", "all,-rms_norm");
    CHECK_STR(p.err, "");
    berth_json *root = program_json(&p);
    CHECK_STR(text_at(root, "sites.0.implementation"), "native");
    CHECK_INT(berth_json_kind_of(
                  berth_json_find(berth_json_at(berth_json_find(root, "sites"), 0), "degraded")),
              BERTH_JSON_NULL);
    berth_json_destroy(root);
    PROGRAM_MUST(&p, PROGRAM_ENV(in.search), BERTH, "run", "--model", LLAMA, "--prompt",
                 "ROMEO:", "-n", "1", "--allow-fallback");
    CHECK_STR(p.err, "");
    LISTED(&p, &in, "plugins", "list", "--static", "--json");
    CHECK(strstr(p.out, LIBRARY) == NULL);
    LISTED(&p, &in, "ops", "list", "--json");
    CHECK_STR(p.err, "");
    CHECK_CONTAINS(p.out, LIBRARY);
    sandbox_remove(&in.box);
}
