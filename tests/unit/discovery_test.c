// SPDX-License-Identifier: Apache-2.0
// discovery: where plugins are looked for, in which order, and the state of each before its library
// is opened.
#include "discovery/discovery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "discovery/search.h"
#include "support/sandbox.h"
#include "support/test.h"

// A machine of its own: the directories of a system below a sandbox.
typedef struct fixture {
    sandbox box;
    berth_arena *arena;
    berth_config config;
    berth_surroundings around;
    char home[600];
    char system[600];
    char executable[600];
    berth_candidates found;
} fixture;

static const char *const builtin_ids[] = {"platform-cpu"};

static void open_fixture(fixture *in) {
    memset(in, 0, sizeof(*in));
    sandbox_make(&in->box);
    CHECK_OK(berth_arena_create(4096, 4 << 20, &in->arena));
    CHECK_OK(berth_config_init(&in->config, in->arena));
    (void)snprintf(in->home, sizeof(in->home), "%s/home", in->box.dir);
    (void)snprintf(in->system, sizeof(in->system), "%s/etc/berth/plugins", in->box.dir);
    (void)snprintf(in->executable, sizeof(in->executable), "%s/usr/bin", in->box.dir);
    in->around = (berth_surroundings){
        .executable_dir = in->executable,
        .home = in->home,
        .system_dir = in->system,
        .builtin_ids = builtin_ids,
        .builtin_count = BERTH_COUNT(builtin_ids),
    };
}

static void close_fixture(fixture *in) {
    berth_arena_destroy(in->arena);
    sandbox_remove(&in->box);
}

// Puts a plugin with one platform entry of the same name into a directory; `more` are lines.
static const char *put(const fixture *in, const char *dir, const char *id, const char *more) {
    char name[256];
    char text[1024];
    (void)snprintf(name, sizeof(name), "%s/lib%s.so", dir, id);
    (void)sandbox_write(&in->box, name, "a library");
    (void)snprintf(name, sizeof(name), "%s/%s.plugin.yaml", dir, id);
    (void)snprintf(text, sizeof(text),
                   "berth: 1\nid: %s\nversion: 1.0.0\nlibrary: lib%s.so\n%s"
                   "entry_points: {berth.platform_plugins: [%s]}\n",
                   id, id, more, id);
    return sandbox_write(&in->box, name, text);
}

static const char *below(const fixture *in, const char *name) {
    return berth_arena_printf(in->arena, "%s/%s", in->box.dir, name);
}

static void name_dir(fixture *in, const char *dir) {
    CHECK_OK(berth_options_set(&in->config.options, "plugin-dir", dir,
                               (berth_option_source){.origin = BERTH_ORIGIN_COMMAND_LINE}));
}

static void name_file(fixture *in, const char *file) {
    CHECK_OK(berth_options_set(&in->config.options, "plugin", file,
                               (berth_option_source){.origin = BERTH_ORIGIN_COMMAND_LINE}));
}

static berth_status look(fixture *in) {
    return berth_discovery_scan(&in->config, &in->around, in->arena, &in->found);
}

// "id state, id state"
static const char *summary(const fixture *in) {
    berth_text text;
    berth_text_init(&text, 4096);
    for (size_t i = 0; i < in->found.count; ++i) {
        berth_text_add_format(&text, "%s%s %s", i == 0 ? "" : ", ", in->found.items[i].id,
                              berth_plugin_state_name(in->found.items[i].state));
    }
    const char *copy = berth_arena_copy(in->arena, berth_text_str(&text));
    berth_text_deinit(&text);
    return copy;
}

// ---- where --------------------------------------------------------------------------------------

TEST(discovery_searches_in_the_documented_order) {
    fixture in;
    open_fixture(&in);
    put(&in, "named-b", "b-named", "");
    put(&in, "named-a", "a-named", "");
    put(&in, "path", "from-path", "");
    put(&in, "home/.local/share/berth/plugins", "from-user", "");
    put(&in, "etc/berth/plugins", "from-system", "");
    put(&in, "usr/lib/berth/plugins", "from-prefix", "");
    put(&in, "usr/bin/plugins", "z-beside", "");
    put(&in, "usr/bin/plugins", "a-beside", "");
    name_dir(&in, below(&in, "named-b"));
    name_dir(&in, below(&in, "named-a"));
    in.config.plugin_path = below(&in, "path");
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "b-named found, a-named found, from-path found, from-user found, "
                            "from-system found, from-prefix found, a-beside found, z-beside found");
    CHECK_STR(in.found.items[0].source, "--plugin-dir");
    CHECK_STR(in.found.items[2].source, "BERTH_PLUGIN_PATH");
    CHECK_STR(in.found.items[3].source, below(&in, "home/.local/share/berth/plugins"));
    CHECK_STR(in.found.items[4].source, in.system);
    CHECK_UINT(in.found.warning_count, 0);
    close_fixture(&in);
}

TEST(discovery_data_home_takes_the_place_of_home) {
    fixture in;
    open_fixture(&in);
    put(&in, "home/.local/share/berth/plugins", "from-home", "");
    put(&in, "data/berth/plugins", "from-data", "");
    in.around.data_home = below(&in, "data");
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "from-data found");
    in.around.data_home = "data";
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "");
    CHECK_CONTAINS(in.found.warnings[0], "XDG_DATA_HOME: 'data' is ignored");
    close_fixture(&in);
}

TEST(discovery_plugin_dirs_replaces_everything_but_named_directories) {
    fixture in;
    open_fixture(&in);
    put(&in, "named", "named", "");
    put(&in, "only", "only", "");
    put(&in, "path", "from-path", "");
    put(&in, "etc/berth/plugins", "from-system", "");
    put(&in, "usr/bin/plugins", "beside", "");
    name_dir(&in, below(&in, "named"));
    in.config.plugin_search = below(&in, "only");
    in.config.plugin_path = below(&in, "path");
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "named found, only found");
    CHECK_UINT(in.found.warning_count, 1);
    CHECK_CONTAINS(in.found.warnings[0], "BERTH_PLUGIN_PATH is ignored");
    in.config.plugin_search = "";
    in.config.plugin_path = NULL;
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "named found");
    CHECK_UINT(in.found.warning_count, 0);
    close_fixture(&in);
}

TEST(discovery_never_searches_a_relative_or_empty_element) {
    fixture in;
    open_fixture(&in);
    put(&in, "a", "a", "");
    put(&in, "b", "b", "");
    in.config.plugin_path = berth_arena_printf(in.arena, "%s/a::plugins:.:%s/missing:%s/b",
                                               in.box.dir, in.box.dir, in.box.dir);
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "a found, b found");
    CHECK_UINT(in.found.warning_count, 3);
    CHECK_STR(in.found.warnings[0],
              "BERTH_PLUGIN_PATH: the element '' is ignored, it is no absolute path");
    CHECK_CONTAINS(in.found.warnings[1], "'plugins'");
    CHECK_CONTAINS(in.found.warnings[2], "'.'");
    close_fixture(&in);
}

TEST(discovery_ignores_environment_and_user_with_more_rights_than_the_user) {
    fixture in;
    open_fixture(&in);
    put(&in, "path", "from-path", "");
    put(&in, "home/.local/share/berth/plugins", "from-user", "");
    put(&in, "etc/berth/plugins", "from-system", "");
    in.config.plugin_search = below(&in, "path");
    in.around.is_secure = true;
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "from-system found");
    CHECK_CONTAINS(in.found.warnings[0], "more rights than its user");
    close_fixture(&in);
}

TEST(discovery_named_directory_that_is_missing_is_an_error) {
    fixture in;
    open_fixture(&in);
    name_dir(&in, "/nonexistent/plugins");
    CHECK_STATUS(look(&in), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "--plugin-dir: the plugin directory /nonexistent/plugins"
                                           " cannot be used: No such file or directory");
    close_fixture(&in);
    open_fixture(&in);
    name_dir(&in, sandbox_write(&in.box, "file", ""));
    CHECK_STATUS(look(&in), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "is a file, a directory is needed");
    close_fixture(&in);
}

TEST(discovery_named_directory_may_be_relative_and_is_resolved) {
    fixture in;
    open_fixture(&in);
    put(&in, "named", "named", "");
    name_dir(&in, strstr(below(&in, "named"), TEST_BUILD));
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "named found");
    CHECK_STR(in.found.items[0].library, below(&in, "named/libnamed.so"));
    close_fixture(&in);
}

TEST(discovery_sees_a_directory_or_file_once_under_whatever_name) {
    fixture in;
    open_fixture(&in);
    const char *file = berth_arena_strdup(in.arena, put(&in, "usr/bin/plugins", "one", ""));
    CHECK_INT(symlink("usr/bin/plugins", sandbox_path(&in.box, "link")), 0);
    name_dir(&in, below(&in, "link"));
    name_file(&in, file);
    in.config.plugin_path = below(&in, "link");
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "one found");
    CHECK_STR(in.found.items[0].source, "--plugin");
    close_fixture(&in);
}

TEST(discovery_takes_only_files_that_end_like_a_manifest) {
    fixture in;
    open_fixture(&in);
    put(&in, "etc/berth/plugins", "acme", "");
    (void)sandbox_write(&in.box, "etc/berth/plugins/acme.yaml", "berth: 1\n");
    (void)sandbox_write(&in.box, "etc/berth/plugins/.plugin.yaml", "berth: 1\n");
    (void)sandbox_write(&in.box, "etc/berth/plugins/.hidden.plugin.yaml", "berth: 1\n");
    (void)sandbox_write(&in.box, "etc/berth/plugins/acme.plugin.yaml~", "berth: 1\n");
    (void)sandbox_write(&in.box, "etc/berth/plugins/planted.so", "\177ELF");
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "acme found");
    close_fixture(&in);
}

TEST(discovery_takes_a_file_with_or_without_a_manifest) {
    fixture in;
    open_fixture(&in);
    name_file(&in, berth_arena_strdup(in.arena, put(&in, "x", "acme", "")));
    name_file(&in, berth_arena_strdup(in.arena, sandbox_write(&in.box, "bare.so", "\177ELF bare")));
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "acme found,  found");
    CHECK_NULL(in.found.items[1].manifest);
    CHECK_STR(in.found.items[1].library, below(&in, "bare.so"));
    CHECK_UINT(in.found.items[1].entry_count, 0);
    name_file(&in, "/nonexistent.so");
    CHECK_STATUS(look(&in), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "--plugin: /nonexistent.so");
    close_fixture(&in);
    open_fixture(&in);
    name_file(&in, in.box.dir);
    CHECK_STATUS(look(&in), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "--plugin-dir");
    close_fixture(&in);
}

TEST(discovery_builtin_is_a_listed_id_in_the_own_directory) {
    fixture in;
    open_fixture(&in);
    put(&in, "usr/bin/plugins", "platform-cpu", "");
    put(&in, "usr/bin/plugins", "platform-dummy", "");
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "platform-cpu found, platform-dummy found");
    CHECK(in.found.items[0].is_builtin);
    CHECK(!in.found.items[1].is_builtin);
    // Named by the user it is still the own directory.
    name_dir(&in, below(&in, "usr/bin/plugins"));
    CHECK_OK(look(&in));
    CHECK(in.found.items[0].is_builtin);
    close_fixture(&in);
    open_fixture(&in);
    put(&in, "usr/lib/berth/plugins", "platform-cpu", "");
    CHECK_OK(look(&in));
    CHECK(in.found.items[0].is_builtin);
    close_fixture(&in);
    open_fixture(&in);
    put(&in, "etc/berth/plugins", "platform-cpu", "");
    CHECK_OK(look(&in));
    CHECK(!in.found.items[0].is_builtin);
    close_fixture(&in);
}

// ---- states -------------------------------------------------------------------------------------

TEST(discovery_refuses_the_second_plugin_of_an_id_and_names_both) {
    fixture in;
    open_fixture(&in);
    put(&in, "home/.local/share/berth/plugins", "acme", "");
    put(&in, "etc/berth/plugins", "acme", "");
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "acme found, acme refused");
    CHECK_CONTAINS(in.found.items[1].reason, below(&in, "home/.local/share/berth/plugins"));
    CHECK_CONTAINS(in.found.items[1].reason, in.system);
    CHECK_INT(in.found.items[1].entries[0].state, BERTH_PLUGIN_REFUSED);
    CHECK_INT(in.found.items[0].entries[0].state, BERTH_PLUGIN_FOUND);
    close_fixture(&in);
}

TEST(discovery_refuses_a_bad_manifest_and_goes_on) {
    fixture in;
    open_fixture(&in);
    put(&in, "etc/berth/plugins", "bad", "vendro: x\n");
    (void)sandbox_write(&in.box, "etc/berth/plugins/broken.plugin.yaml", "berth: [\n");
    CHECK_INT(symlink("nowhere", sandbox_path(&in.box, "etc/berth/plugins/gone.plugin.yaml")), 0);
    put(&in, "etc/berth/plugins", "good", "");
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "bad refused,  refused,  refused, good found");
    CHECK_CONTAINS(in.found.items[0].reason,
                   "bad.plugin.yaml:5:1: vendro: unknown key; did you mean 'vendor'?");
    CHECK_CONTAINS(in.found.items[1].reason, "broken.plugin.yaml:2:1: ");
    CHECK_CONTAINS(in.found.items[2].reason, "gone.plugin.yaml");
    close_fixture(&in);
}

typedef struct judgement {
    const char *name;
    const char *lines;
    berth_plugin_state state;
    const char *reason; // part of it
} judgement;

static const judgement judgements[] = {
    {"abi that is spoken",                  "abi: '1.0'\n",        BERTH_PLUGIN_FOUND,      ""},
    {"abi range that overlaps",             "abi: '1.0-1.9'\n",    BERTH_PLUGIN_FOUND,      ""},
    {"abi from the future",                 "abi: '2.1-2.3'\n",    BERTH_PLUGIN_REFUSED,
     "built for plugin ABI 2.1-2.3, this host speaks 1.0-"                                    },
    {"abi from the future says what to do", "abi: '9.0'\n",        BERTH_PLUGIN_REFUSED,
     "install a newer berth, or an older build of the plugin"                                 },
    {"other architecture",                  "arch: pdp11\n",       BERTH_PLUGIN_INELIGIBLE,
     "built for pdp11, this machine is "                                                      },
    {"processor feature that nothing has",  "cpu: [frobnicate]\n", BERTH_PLUGIN_INELIGIBLE,
     "needs the processor feature 'frobnicate', which is absent here"                         },
    {"no demand",                           "cpu: []\n",           BERTH_PLUGIN_FOUND,      ""},
};

static void check_judgement(void **state) {
    const judgement *row = *state;
    fixture in;
    open_fixture(&in);
    put(&in, "etc/berth/plugins", "acme", row->lines);
    CHECK_OK(look(&in));
    CHECK_STR(berth_plugin_state_name(in.found.items[0].state),
              berth_plugin_state_name(row->state));
    CHECK_CONTAINS(in.found.items[0].reason, row->reason);
    CHECK_INT(in.found.items[0].entries[0].state, row->state);
    close_fixture(&in);
}

TEST_CASES(discovery_judges) {
    for (size_t i = 0; i < BERTH_COUNT(judgements); ++i) {
        test_add(cases, judgements[i].name, check_judgement, (void *)(uintptr_t)&judgements[i]);
    }
}

TEST(discovery_asks_the_machine_itself) {
    fixture in;
    open_fixture(&in);
    struct utsname name;
    CHECK_INT(uname(&name), 0);
    char lines[256];
    (void)snprintf(lines, sizeof(lines), "arch: %s\n", name.machine);
    put(&in, "etc/berth/plugins", "acme", lines);
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "acme found");
    // A feature is a whole word of the list, and the list is the machine's.
    berth_machine machine = {0};
    const char *reason = NULL;
    CHECK_OK(berth_demands_judge(&(berth_demands){.cpu = (const char *[]){"x"}, .cpu_count = 1},
                                 &machine, in.arena, &reason));
    CHECK(reason != NULL);
    CHECK(strlen(machine.flags) > 2);
    machine.flags = " avx avx512f ";
    CHECK_OK(
        berth_demands_judge(&(berth_demands){.cpu = (const char *[]){"avx512"}, .cpu_count = 1},
                            &machine, in.arena, &reason));
    CHECK(reason != NULL);
    CHECK_OK(berth_demands_judge(
        &(berth_demands){
            .cpu = (const char *[]){"avx512f", "avx"},
                .cpu_count = 2
    },
        &machine, in.arena, &reason));
    CHECK_NULL(reason);
    close_fixture(&in);
}

TEST(discovery_passes_over_a_plugin_whose_groups_are_not_served) {
    fixture in;
    open_fixture(&in);
    (void)sandbox_write(&in.box, "etc/berth/plugins/lib.so", "");
    (void)sandbox_write(&in.box, "etc/berth/plugins/log.plugin.yaml",
                        "berth: 1\nid: log\nversion: 1\nlibrary: lib.so\n"
                        "entry_points: {berth.stat_logger_plugins: [log]}\n");
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "log ineligible");
    CHECK_CONTAINS(in.found.items[0].reason, "serves none of the groups");
    close_fixture(&in);
}

// ---- the filter: every row of vLLM's table ------------------------------------------------------

typedef struct filter_row {
    const char *name;
    const char *filter; // NULL: unset
    bool is_a;          // whether the entries pass
    bool is_b;
    const char *warns; // NULL: no warning
} filter_row;

// Endpoint plugins, which vLLM loads only when they are named, have no group that is served yet.
static const filter_row filter_rows[] = {
    {"unset loads everything",      NULL,    true,  true,  NULL                                             },
    {"empty loads nothing",         "",      false, false, NULL                                             },
    {"one name",                    "a",     true,  false, NULL                                             },
    {"two names",                   "a,b",   true,  true,  NULL                                             },
 // Differs from vLLM, where " b" is not b: blanks are trimmed.
    {"two names and a blank",       "a, b",  true,  true,  NULL                                             },
    {"blanks alone are empty",      " ",     false, false, NULL                                             },
    {"a tab and a trailing comma",  "\tb ,", false, true,  NULL                                             },
    {"names are exact",             "A,bb",  false, false, "BERTH_PLUGINS names 'A', but no plugin has that"},
 // Differs from vLLM, where a name that matches nothing is silent.
    {"a name that matches nothing", "a,c",   true,  false, "BERTH_PLUGINS names 'c'"                        },
};

static void check_filter(void **state) {
    const filter_row *row = *state;
    CHECK(berth_filter_accepts(row->filter, "a") == row->is_a);
    CHECK(berth_filter_accepts(row->filter, "b") == row->is_b);
    fixture in;
    open_fixture(&in);
    put(&in, "etc/berth/plugins", "a", "");
    put(&in, "etc/berth/plugins", "b", "");
    put(&in, "usr/bin/plugins", "platform-cpu", "");
    in.config.plugins = row->filter;
    CHECK_OK(look(&in));
    const bool passes[] = {row->is_a, row->is_b, true}; // a built-in is never filtered
    for (size_t i = 0; i < BERTH_COUNT(passes); ++i) {
        const berth_plugin_state wanted = passes[i] ? BERTH_PLUGIN_FOUND : BERTH_PLUGIN_FILTERED;
        CHECK_INT(in.found.items[i].state, wanted);
        CHECK_INT(in.found.items[i].entries[0].state, wanted);
    }
    CHECK((in.found.warning_count > 0) == (row->warns != NULL));
    if (row->warns != NULL) {
        CHECK_CONTAINS(in.found.warnings[0], row->warns);
    }
    close_fixture(&in);
}

TEST_CASES(discovery_filters) {
    for (size_t i = 0; i < BERTH_COUNT(filter_rows); ++i) {
        test_add(cases, filter_rows[i].name, check_filter, (void *)(uintptr_t)&filter_rows[i]);
    }
}

TEST(discovery_filter_leaves_a_plugin_with_some_of_its_entries) {
    fixture in;
    open_fixture(&in);
    (void)sandbox_write(&in.box, "etc/berth/plugins/lib.so", "");
    (void)sandbox_write(&in.box, "etc/berth/plugins/two.plugin.yaml",
                        "berth: 1\nid: two\nversion: 1\nlibrary: lib.so\n"
                        "entry_points: {berth.platform_plugins: [p], berth.general_plugins: [g]}");
    in.config.plugins = "g, platform-cpu";
    put(&in, "usr/bin/plugins", "platform-cpu", "");
    CHECK_OK(look(&in));
    CHECK_STR(summary(&in), "two found, platform-cpu found");
    CHECK_INT(in.found.items[0].entries[0].state, BERTH_PLUGIN_FILTERED);
    CHECK_STR(in.found.items[0].entries[0].reason, "not named in BERTH_PLUGINS");
    CHECK_INT(in.found.items[0].entries[1].state, BERTH_PLUGIN_FOUND);
    CHECK_UINT(in.found.warning_count, 0); // a built-in's name is no unknown name
    close_fixture(&in);
}

// ---- the run ------------------------------------------------------------------------------------

TEST(discovery_runs_on_this_machine) {
    fixture in;
    open_fixture(&in);
    put(&in, "only", "acme", "");
    in.config.plugin_search = below(&in, "only");
    CHECK_OK(berth_discovery_run(&in.config, in.arena, &in.found));
    CHECK_STR(summary(&in), "acme found");
    in.config.plugin_search = NULL;
    CHECK_OK(berth_discovery_run(&in.config, in.arena, &in.found));
    close_fixture(&in);
}

// The budget is 1 ms for a release; ten times that holds under a sanitizer and a busy machine.
TEST(discovery_scans_16_manifests_in_time) {
    fixture in;
    open_fixture(&in);
    for (int i = 0; i < 16; ++i) {
        char id[32];
        (void)snprintf(id, sizeof(id), "acme-%d", i);
        put(&in, "etc/berth/plugins", id,
            "vendor: Acme Silicon\nabi: '1.0-1.3'\nimportance: optional\nactivation: auto\n");
    }
    uint64_t best = UINT64_MAX;
    for (int turn = 0; turn < 20; ++turn) {
        berth_arena_reset(in.arena);
        CHECK_OK(berth_config_init(&in.config, in.arena));
        const uint64_t start = berth_clock_ns();
        CHECK_OK(look(&in));
        const uint64_t took = berth_clock_ns() - start;
        best = took < best ? took : best;
        CHECK_UINT(in.found.count, 16);
    }
    printf("    16 manifests in %.3f ms\n", (double)best / 1e6);
    CHECK(best < UINT64_C(10000000));
    close_fixture(&in);
}
