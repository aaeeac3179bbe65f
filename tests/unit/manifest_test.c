// SPDX-License-Identifier: Apache-2.0
// discovery/manifest: what a manifest may say, and the one line for everything it may not.
#include "discovery/discovery.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <berth/plugin.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "discovery/search.h"
#include "support/sandbox.h"
#include "support/test.h"

#define HEAD   "berth: 1\nid: acme\nversion: 1.4.0\nlibrary: lib.so\n"
#define TAIL   "entry_points: {berth.platform_plugins: [acme]}\n"
#define GROUPS "entry_points:\n"

typedef struct fixture {
    sandbox box;
    berth_arena *arena;
    berth_candidate candidate;
    berth_demands demands;
} fixture;

static void open_fixture(fixture *in) {
    memset(in, 0, sizeof(*in));
    sandbox_make(&in->box);
    (void)sandbox_write(&in->box, "lib.so", "not opened here");
    CHECK_OK(berth_arena_create(4096, 1 << 20, &in->arena));
}

static void close_fixture(fixture *in) {
    berth_arena_destroy(in->arena);
    sandbox_remove(&in->box);
}

static berth_status read_text(fixture *in, const char *text) {
    return berth_manifest_read(sandbox_write(&in->box, "a.plugin.yaml", text), NULL, in->arena,
                               &in->candidate, &in->demands);
}

TEST(manifest_gives_everything_it_says) {
    fixture in;
    open_fixture(&in);
    CHECK_OK(read_text(&in, HEAD "vendor: Acme Silicon\nabi: '1.0-1.3'\narch: x86_64\n"
                                 "cpu: [avx2, sse4.2]\nimportance: quiet\nactivation: named\n"
                                 "variant_of: acme-base\nscore: -20\nx-runtime: {jit: yes}\n"
                                 "entry_points:\n  berth.platform_plugins: [acme]\n"
                                 "  berth.general_plugins: [acme-models, Acme.Ops_2]\n"));
    const berth_candidate *out = &in.candidate;
    CHECK_STR(out->id, "acme");
    CHECK_STR(out->version, "1.4.0");
    CHECK_STR(out->vendor, "Acme Silicon");
    CHECK_STR(out->manifest, sandbox_path(&in.box, "a.plugin.yaml"));
    CHECK_STR(out->library, sandbox_path(&in.box, "lib.so"));
    CHECK_UINT(out->abi_min, BERTH_ABI(1, 0));
    CHECK_UINT(out->abi_max, BERTH_ABI(1, 3));
    CHECK_STR(in.demands.arch, "x86_64");
    CHECK_UINT(in.demands.cpu_count, 2);
    CHECK_STR(in.demands.cpu[1], "sse4.2");
    CHECK_INT(out->importance, BERTH_IMPORTANCE_QUIET);
    CHECK(out->is_named);
    CHECK_STR(out->variant_of, "acme-base");
    CHECK_INT(out->score, -20);
    CHECK_UINT(out->entry_count, 3);
    CHECK_STR(out->entries[0].group, BERTH_GROUP_PLATFORM);
    CHECK_STR(out->entries[2].group, BERTH_GROUP_GENERAL);
    CHECK_STR(out->entries[2].name, "Acme.Ops_2");
    CHECK_INT(out->entries[2].state, BERTH_PLUGIN_FOUND);
    close_fixture(&in);
}

TEST(manifest_has_defaults_for_what_it_leaves_out) {
    fixture in;
    open_fixture(&in);
    CHECK_OK(read_text(&in, HEAD TAIL));
    CHECK_STR(in.candidate.vendor, "");
    CHECK_UINT(in.candidate.abi_max, 0);
    CHECK_INT(in.candidate.importance, BERTH_IMPORTANCE_OPTIONAL);
    CHECK(!in.candidate.is_named);
    CHECK_NULL(in.candidate.variant_of);
    CHECK_INT(in.candidate.score, 0);
    CHECK_NULL(in.demands.arch);
    CHECK_UINT(in.demands.cpu_count, 0);
    CHECK_OK(read_text(&in, HEAD "abi: 1.2\n" TAIL));
    CHECK_UINT(in.candidate.abi_min, BERTH_ABI(1, 2));
    CHECK_UINT(in.candidate.abi_max, BERTH_ABI(1, 2));
    close_fixture(&in);
}

TEST(manifest_is_read_beside_a_relative_path) {
    fixture in;
    open_fixture(&in);
    (void)sandbox_write(&in.box, "a.plugin.yaml", HEAD TAIL);
    const char *relative = strstr(sandbox_path(&in.box, "a.plugin.yaml"), TEST_BUILD);
    CHECK(relative != NULL);
    CHECK_OK(berth_manifest_load(relative, in.arena, &in.candidate));
    CHECK_STR(in.candidate.library, sandbox_path(&in.box, "lib.so"));
    close_fixture(&in);
}

TEST(manifest_knows_groups_that_are_not_served) {
    fixture in;
    open_fixture(&in);
    CHECK_OK(read_text(&in, HEAD GROUPS "  berth.stat_logger_plugins: [log]\n"
                                        "  berth.general_plugins: [ops]\n"));
    CHECK_UINT(in.candidate.entry_count, 2);
    CHECK_STR(in.candidate.entries[0].name, "ops");
    CHECK_INT(in.candidate.entries[0].state, BERTH_PLUGIN_FOUND);
    CHECK_INT(in.candidate.entries[1].state, BERTH_PLUGIN_INELIGIBLE);
    CHECK_CONTAINS(in.candidate.entries[1].reason, "does not serve");
    close_fixture(&in);
}

TEST(manifest_that_is_refused_is_still_known_as_a_platform) {
    fixture in;
    open_fixture(&in);
    CHECK_STATUS(read_text(&in, HEAD "scor: 1\nimportance: required\nactivation: named\n" TAIL),
                 BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "a.plugin.yaml:5:1: scor: unknown key; did you mean "
                                           "'score'?");
    CHECK_STR(in.candidate.id, "acme");
    CHECK_INT(in.candidate.importance, BERTH_IMPORTANCE_REQUIRED);
    CHECK(in.candidate.is_named);
    CHECK_UINT(in.candidate.entry_count, 1);
    CHECK_STR(in.candidate.entries[0].name, "acme");
    close_fixture(&in);
}

TEST(manifest_template_is_a_manifest) {
    fixture in;
    open_fixture(&in);
    char *text = NULL;
    size_t size = 0;
    CHECK_OK(berth_file_read("configs/manifest-template.plugin.yaml", 65536, &text, &size));
    (void)sandbox_write(&in.box, "libberth-acme.so", "");
    CHECK_OK(read_text(&in, text));
    CHECK_STR(in.candidate.id, "acme");
    CHECK_UINT(in.candidate.entry_count, 2);
    berth_free(text);
    close_fixture(&in);
}

// ---- refusals -----------------------------------------------------------------------------------

typedef struct refusal {
    const char *name;
    const char *text;
    berth_status status;
    const char *says;
} refusal;

static const refusal refusals[] = {
    {"a key with a typo",              HEAD "importanc: quiet\n" TAIL,                               BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:5:1: importanc: unknown key; did you mean 'importance'?"                                                                                                                          },
    {"a key far from all",             HEAD "zzz: 1\n" TAIL,                                         BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:5:1: zzz: unknown key"                                                                                                                                                            },
    {"a newer format",                 "berth: 2\nnew: 1\n" TAIL,                                    BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:1:1: berth: this host reads manifest format 1 only, not 2"                                                                                                                        },
    {"a format that is no number",     "berth: one\n" TAIL,                                          BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:1:1: berth: "                                                                                                                                                                     },
    {"no format",                      "id: acme\nversion: 1.0.0\nlibrary: lib.so\n" TAIL,           BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:1:1: required key 'berth' is missing, add for instance berth: 1"                                                                                                                  },
    {"no id",                          "berth: 1\nversion: 1\nlibrary: lib.so\n" TAIL,               BERTH_INVALID_ARGUMENT,
     "required key 'id' is missing"                                                                                                                                                                   },
    {"no version",                     "berth: 1\nid: a\nlibrary: lib.so\n" TAIL,                    BERTH_INVALID_ARGUMENT,
     "required key 'version' is missing"                                                                                                                                                              },
    {"no library",                     "berth: 1\nid: a\nversion: 1\n" TAIL,                         BERTH_INVALID_ARGUMENT,
     "required key 'library' is missing"                                                                                                                                                              },
    {"no entry points",                HEAD,                                                         BERTH_INVALID_ARGUMENT, "required key 'entry_points' is missing"                                 },
    {"a required key without a value", "berth: 1\nid:\nversion: 1\nlibrary: lib.so\n" TAIL,
     BERTH_INVALID_ARGUMENT,                                                                                                 "required key 'id' is missing"                                           },
    {"an empty document",              "",                                                           BERTH_INVALID_ARGUMENT, "required key 'berth' is missing"                                        },
    {"a list",                         "- 1\n",                                                      BERTH_INVALID_ARGUMENT, "a.plugin.yaml:1:1: "                                                    },
    {"an id with capitals",            "berth: 1\nid: Acme\nversion: 1\nlibrary: lib.so\n" TAIL,
     BERTH_INVALID_ARGUMENT,                                                                                                 "a.plugin.yaml:2:1: id: 'Acme' has the character 'A', use a-z, 0-9 and -"},
    {"an id with a slash",             "berth: 1\nid: a/b\nversion: 1\nlibrary: lib.so\n" TAIL,
     BERTH_INVALID_ARGUMENT,                                                                                                 "id: 'a/b' has the character '/'"                                        },
    {"an id that is a list",           "berth: 1\nid: [a]\nversion: 1\nlibrary: lib.so\n" TAIL,
     BERTH_INVALID_ARGUMENT,                                                                                                 "a.plugin.yaml:2:1: id: is a list"                                       },
    {"an id beyond 64 bytes",
     "berth: 1\nid: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
     "version: 1\nlibrary: lib.so\n" TAIL,
     BERTH_INVALID_ARGUMENT,                                                                                                 "id: is longer than 64 bytes"                                            },
    {"an empty version",               "berth: 1\nid: a\nversion: ''\nlibrary: lib.so\n" TAIL,
     BERTH_INVALID_ARGUMENT,                                                                                                 "a.plugin.yaml:3:1: version: is empty"                                   },
    {"a tab in a path",                "berth: 1\nid: a\nversion: 1\nlibrary: \"lib\\t.so\"\n" TAIL,
     BERTH_INVALID_ARGUMENT,                                                                                                 "a.plugin.yaml:4:1: library: has a control character"                    },
    {"a library that is not there",    "berth: 1\nid: a\nversion: 1\nlibrary: gone.so\n" TAIL,
     BERTH_INVALID_ARGUMENT,                                                                                                 "/gone.so, put the library there or correct the name"                    },
    {"a library that is a directory",  "berth: 1\nid: a\nversion: 1\nlibrary: .\n" TAIL,
     BERTH_INVALID_ARGUMENT,                                                                                                 "is not a regular file"                                                  },
    {"an abi without a minor",         HEAD "abi: 1\n" TAIL,                                         BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:5:1: abi: '1' is no ABI range, write \"1.0\" or \"1.0-1.3\""                                                                                                                      },
    {"an abi backwards",               HEAD "abi: 1.3-1.0\n" TAIL,                                   BERTH_INVALID_ARGUMENT, "is no ABI range"                                                        },
    {"an abi of major 0",              HEAD "abi: 0.1-1.0\n" TAIL,                                   BERTH_INVALID_ARGUMENT, "is no ABI range"                                                        },
    {"an abi beyond numbers",          HEAD "abi: 1.99999999999999999999\n" TAIL,                    BERTH_INVALID_ARGUMENT,
     "is no ABI range"                                                                                                                                                                                },
    {"an abi with a tail",             HEAD "abi: 1.0-1.1-1.2\n" TAIL,                               BERTH_INVALID_ARGUMENT,
     "is no ABI range"                                                                                                                                                                                },
    {"an unknown importance",          HEAD "importance: optinal\n" TAIL,                            BERTH_INVALID_ARGUMENT,
     "importance: there is no 'optinal', the choices are optional, required, quiet; did you mean "
     "'optional'?"                                                                                                                                                                                    },
    {"an unknown activation",          HEAD "activation: always\n" TAIL,                             BERTH_INVALID_ARGUMENT,
     "activation: there is no 'always', the choices are auto, named"                                                                                                                                  },
    {"an arch that is a list",         HEAD "arch: [x86_64]\n" TAIL,                                 BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:5:1: arch: is a list"                                                                                                                                                             },
    {"a cpu that is no list",          HEAD "cpu: avx2\n" TAIL,                                      BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:5:1: cpu: is"                                                                                                                                                                     },
    {"a cpu feature with a blank",     HEAD "cpu: ['a b']\n" TAIL,                                   BERTH_INVALID_ARGUMENT,
     "cpu.0: 'a b' has the character ' '"                                                                                                                                                             },
    {"a score without variant_of",     HEAD "score: 3\n" TAIL,                                       BERTH_INVALID_ARGUMENT,
     "score: means nothing without variant_of"                                                                                                                                                        },
    {"a score that is no number",      HEAD "variant_of: a\nscore: high\n" TAIL,                     BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:6:1: score: "                                                                                                                                                                     },
    {"an unknown group",               HEAD GROUPS "  berth.platform_plugin: [acme]\n",              BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:6:3: entry_points.berth.platform_plugin: unknown key; did you mean "
     "'berth.platform_plugins'?"                                                                                                                                                                      },
    {"a group that is no list",        HEAD GROUPS "  berth.platform_plugins: acme\n",
     BERTH_INVALID_ARGUMENT,                                                                                                 "needed is a list of names"                                              },
    {"a name twice",                   HEAD GROUPS "  berth.general_plugins: [a, b, a]\n",           BERTH_INVALID_ARGUMENT,
     "'a' stands there twice"                                                                                                                                                                         },
    {"a name with a comma",            HEAD GROUPS "  berth.general_plugins: ['a,b']\n",
     BERTH_INVALID_ARGUMENT,                                                                                                 "has the character ','"                                                  },
    {"no names",                       HEAD "entry_points: {berth.general_plugins: []}\n",           BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:5:1: entry_points: names no entry point"                                                                                                                                          },
    {"entry points that are a list",   HEAD "entry_points: [acme]\n",                                BERTH_INVALID_ARGUMENT,
     "a.plugin.yaml:5:1: entry_points: is a list"                                                                                                                                                     },
    {"a key twice",                    HEAD "id: b\n" TAIL,                                          BERTH_CORRUPT,          "a.plugin.yaml:5:1: "                                                    },
    {"an alias",                       "berth: 1\nid: &a acme\nversion: *a\n",                       BERTH_CORRUPT,          "a.plugin.yaml:2:5: "                                                    },
    {"a tag",                          "berth: !!int 1\n",                                           BERTH_CORRUPT,          "a.plugin.yaml:1:8: "                                                    },
    {"two documents",                  HEAD TAIL "---\na: 1\n",                                      BERTH_CORRUPT,          "a.plugin.yaml:6:1: "                                                    },
    {"broken syntax",                  "berth: [1\n",                                                BERTH_CORRUPT,          "a.plugin.yaml:2:1: "                                                    },
    {"17 levels",                      "x-deep: [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]\n",              BERTH_OUT_OF_MEMORY,
     "a.plugin.yaml:1:"                                                                                                                                                                               },
};

static void check_refusal(void **state) {
    const refusal *row = *state;
    fixture in;
    open_fixture(&in);
    CHECK_STATUS(read_text(&in, row->text), row->status);
    CHECK_CONTAINS(berth_status_message(), row->says);
    close_fixture(&in);
}

TEST_CASES(manifest_refuses) {
    for (size_t i = 0; i < BERTH_COUNT(refusals); ++i) {
        test_add(cases, refusals[i].name, check_refusal, (void *)(uintptr_t)&refusals[i]);
    }
}

// `count` times " piece" between head and tail, too large for the stack of a test.
static char *repeat(const char *head, const char *piece, size_t count, const char *tail) {
    char *text = malloc(strlen(head) + strlen(piece) * count + strlen(tail) + 1);
    CHECK(text != NULL);
    char *at = text + sprintf(text, "%s", head);
    for (size_t i = 0; i < count; ++i) {
        at += sprintf(at, "%s", piece);
    }
    (void)sprintf(at, "%s", tail);
    return text;
}

TEST(manifest_refuses_more_than_64_kib_and_1000_nodes) {
    fixture in;
    open_fixture(&in);
    char *large = repeat("x-note: '", "0123456789abcdef", 4096, "'\n");
    CHECK_STATUS(read_text(&in, large), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "the limit is 65536");
    free(large);
    char *many = repeat("x-list: [", "1, ", 1000, "1]\n");
    CHECK_STATUS(read_text(&in, many), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "more than the limit of 1000 values");
    free(many);
    close_fixture(&in);
}

TEST(manifest_that_is_missing_or_no_file_is_said_so) {
    fixture in;
    open_fixture(&in);
    CHECK_STATUS(berth_manifest_load("/nonexistent.plugin.yaml", in.arena, &in.candidate),
                 BERTH_NOT_FOUND);
    CHECK_STATUS(berth_manifest_load(in.box.dir, in.arena, &in.candidate), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), in.box.dir);
    const char *fifo = sandbox_path(&in.box, "fifo");
    CHECK_INT(mkfifo(fifo, 0600), 0);
    CHECK_STATUS(berth_manifest_load(fifo, in.arena, &in.candidate), BERTH_INVALID_ARGUMENT);
    close_fixture(&in);
}

TEST(manifest_survives_every_failing_allocation) {
    fixture in;
    open_fixture(&in);
    const char *path = sandbox_write(&in.box, "a.plugin.yaml", HEAD "cpu: [fma]\n" TAIL);
    for (uint64_t n = 1;; ++n) {
        berth_arena *arena = NULL;
        CHECK_OK(berth_arena_create(256, 1 << 20, &arena));
        (void)berth_memory_fail_after(n);
        const berth_status status =
            berth_manifest_read(path, NULL, arena, &in.candidate, &in.demands);
        const bool was_reached = berth_memory_fail_after(0) == 0;
        berth_arena_destroy(arena);
        if (!was_reached) {
            CHECK_OK(status);
            CHECK(n > 3);
            break;
        }
        CHECK_STATUS(status, BERTH_OUT_OF_MEMORY);
    }
    close_fixture(&in);
}

// What a fuzzer found or starts from: only that there is an answer, and a text when it is no.
TEST(manifest_answers_the_whole_corpus) {
    DIR *dir = opendir("tests/fuzz/manifest");
    CHECK(dir != NULL);
    size_t count = 0;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[512];
        berth_arena *arena = NULL;
        berth_candidate candidate;
        (void)snprintf(path, sizeof(path), "tests/fuzz/manifest/%s", entry->d_name);
        if (entry->d_name[0] == '.') {
            continue;
        }
        CHECK_OK(berth_arena_create(4096, 1 << 20, &arena));
        berth_status_clear();
        const berth_status status = berth_manifest_load(path, arena, &candidate);
        CHECK((status == BERTH_OK) == (berth_status_message()[0] == '\0'));
        berth_arena_destroy(arena);
        ++count;
    }
    closedir(dir);
    CHECK(count >= 8);
}
