// SPDX-License-Identifier: Apache-2.0
// base/yaml: the tree, typed values, the place in every failure, limits and hostile texts.
#include "base/yaml.h"

#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "support/alloc.h"
#include "support/test.h"

#define SUITE "../shared/data/conformance/yaml/src"

static const char manifest[] = "berth: 1                # manifest format\n"
                               "id: acme\n"
                               "version: 1.4.0\n"
                               "abi: \"1.0-1.3\"\n"
                               "cpu: [avx2, fma]\n"
                               "score: 2.5\n"
                               "signed: yes\n"
                               "empty:\n"
                               "none: ~\n"
                               "entry_points:\n"
                               "  berth.platform_plugins: [acme]\n"
                               "  berth.general_plugins:\n"
                               "    - acme-models\n"
                               "    - 'true'\n";

static berth_yaml *parse(const char *text) {
    berth_yaml *root = NULL;
    CHECK_OK(berth_yaml_parse(berth_str_from(text), "a.yaml", NULL, &root));
    return root;
}

TEST(yaml_values_are_reached_by_path) {
    berth_yaml *root = parse(manifest);
    berth_str str = {0};
    int64_t integer = 0;
    double real = 0;
    bool flag = false;
    CHECK_OK(berth_yaml_get_i64(root, "berth", &integer));
    CHECK_INT(integer, 1);
    CHECK_OK(berth_yaml_get_str(root, "version", &str));
    CHECK_STR(str.data, "1.4.0");
    CHECK_OK(berth_yaml_get_str(root, "abi", &str));
    CHECK_STR(str.data, "1.0-1.3");
    CHECK(berth_yaml_is_quoted(berth_yaml_find(root, "abi")));
    CHECK_OK(berth_yaml_get_str(root, "cpu.1", &str));
    CHECK_STR(str.data, "fma");
    CHECK_OK(berth_yaml_get_f64(root, "score", &real));
    CHECK_NEAR(real, 2.5, 0);
    CHECK_OK(berth_yaml_get_bool(root, "signed", &flag));
    CHECK(flag);
    const berth_yaml *entries = berth_yaml_find(root, "entry_points");
    const berth_yaml *general = berth_yaml_member(entries, BERTH_STR("berth.general_plugins"));
    CHECK_UINT(berth_yaml_size(general), 2);
    CHECK(berth_str_equal_cstr(berth_yaml_key_at(entries, 0), "berth.platform_plugins"));
    CHECK_OK(berth_yaml_get_str(general, "0", &str));
    CHECK_STR(str.data, "acme-models");
    CHECK_NULL(berth_yaml_find(root, "cpu.2"));
    CHECK_NULL(berth_yaml_find(root, "id.x"));
    CHECK_NULL(berth_yaml_find(root, "nothing"));
    CHECK_PTR(berth_yaml_find(root, ""), root);
    CHECK(berth_yaml_is_null(berth_yaml_find(root, "empty")));
    CHECK(berth_yaml_is_null(berth_yaml_find(root, "none")));
    CHECK(berth_str_equal_cstr(berth_yaml_scalar(root), ""));
    berth_yaml_destroy(root);
    berth_yaml_destroy(NULL);
}

TEST(yaml_nodes_know_their_place) {
    berth_yaml *root = parse(manifest);
    CHECK_UINT(berth_yaml_line(berth_yaml_find(root, "id")), 2);
    CHECK_UINT(berth_yaml_column(berth_yaml_find(root, "id")), 1);
    CHECK_UINT(berth_yaml_line(berth_yaml_find(root, "cpu.1")), 5);
    CHECK_UINT(berth_yaml_column(berth_yaml_find(root, "cpu.1")), 13);
    CHECK_STR(berth_yaml_file(berth_yaml_find(root, "cpu.1")), "a.yaml");
    berth_yaml_destroy(root);
}

TEST(yaml_lists_are_arrays_of_text) {
    berth_yaml *root = parse("l: [a, 'b c', 3]\nnone: []\ndeep: [[a]]\nx: 1\n");
    berth_arena *arena = NULL;
    CHECK_OK(berth_arena_create(4096, 1 << 16, &arena));
    berth_str *items = NULL;
    size_t count = 0;
    CHECK_OK(berth_yaml_get_list(root, "l", arena, &items, &count));
    CHECK_UINT(count, 3);
    CHECK_STR(items[1].data, "b c");
    CHECK_STATUS(berth_yaml_get_list(root, "x", arena, &items, &count), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "a.yaml:4:1: x: is '1', needed is a list");
    CHECK_STATUS(berth_yaml_get_list(root, "deep", arena, &items, &count), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "a.yaml:3:8: deep.0: is a list, needed is a text");
    CHECK_UINT(count, 3);
    CHECK_OK(berth_yaml_get_list(root, "none", arena, &items, &count));
    CHECK_UINT(count, 0);
    berth_arena_destroy(arena);
    berth_yaml_destroy(root);
}

TEST(yaml_failures_name_file_line_column_and_key) {
    berth_yaml *root = parse(manifest);
    berth_str str = {0};
    int64_t integer = 5;
    double real = 5;
    bool flag = false;
    CHECK_STATUS(berth_yaml_get_i64(root, "id", &integer), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "a.yaml:2:1: id: is 'acme', needed is a whole number");
    CHECK_STATUS(berth_yaml_get_f64(root, "abi", &real), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "abi: is the text '1.0-1.3', needed is a number");
    CHECK_STATUS(berth_yaml_get_bool(root, "berth", &flag), BERTH_INVALID_ARGUMENT);
    const berth_yaml *quoted = berth_yaml_member(berth_yaml_find(root, "entry_points"),
                                                 BERTH_STR("berth.general_plugins"));
    CHECK_STATUS(berth_yaml_get_bool(quoted, "1", &flag), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(),
                   "a.yaml:14:7: entry_points.berth.general_plugins.1: is the text 'true'");
    CHECK_STATUS(berth_yaml_get_str(root, "cpu", &str), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_yaml_get_str(root, "empty", &str), BERTH_NOT_FOUND);
    CHECK_STR(berth_status_message(), "a.yaml:8:1: empty: has no value, needed is a text");
    CHECK_STATUS(berth_yaml_get_str(root, "library", &str), BERTH_NOT_FOUND);
    CHECK_STR(berth_status_message(), "a.yaml:1:1: 'library' is missing, needed is a text");
    CHECK_STATUS(berth_yaml_fail(BERTH_UNSUPPORTED, quoted, "no %s", "such group"),
                 BERTH_UNSUPPORTED);
    CHECK_STR(berth_status_message(),
              "a.yaml:12:3: entry_points.berth.general_plugins: no such group");
    CHECK_INT(integer, 5);
    berth_yaml_destroy(root);
}

TEST(yaml_unknown_keys_are_refused_with_the_nearest) {
    static const char *const keys[] = {"id", "library", "abi"};
    berth_yaml *root = parse("id: a\nx-note: anything\nabi: 1\n");
    CHECK_OK(berth_yaml_check_keys(root, keys, BERTH_COUNT(keys)));
    CHECK_STATUS(berth_yaml_check_keys(berth_yaml_find(root, "id"), keys, BERTH_COUNT(keys)),
                 BERTH_INVALID_ARGUMENT);
    berth_yaml_destroy(root);
    root = parse("id: a\nlibary: b\n");
    CHECK_STATUS(berth_yaml_check_keys(root, keys, BERTH_COUNT(keys)), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "a.yaml:2:1: libary: unknown key; did you mean 'library'?");
    berth_yaml_destroy(root);
    root = parse("zzzzzz: a\n");
    CHECK_STATUS(berth_yaml_check_keys(root, keys, BERTH_COUNT(keys)), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "a.yaml:1:1: zzzzzz: unknown key");
    berth_yaml_destroy(root);
}

TEST(yaml_without_a_document_is_an_empty_mapping) {
    static const char *const texts[] = {"", "# only a comment\n", "\n\n", "---\n...\n"};
    for (size_t i = 0; i < 3; ++i) {
        berth_yaml *root = parse(texts[i]);
        CHECK_INT(berth_yaml_kind_of(root), BERTH_YAML_MAPPING);
        CHECK_UINT(berth_yaml_size(root), 0);
        CHECK_STR(berth_yaml_file(root), "a.yaml");
        berth_yaml_destroy(root);
    }
    berth_yaml *root = parse(texts[3]);
    CHECK(berth_yaml_is_null(root));
    berth_yaml_destroy(root);
}

static void check_refused(const char *text, berth_status status, const char *part) {
    berth_yaml *root = NULL;
    CHECK_STATUS(berth_yaml_parse(berth_str_from(text), "a.yaml", NULL, &root), status);
    CHECK_CONTAINS(berth_status_message(), part);
    CHECK_NULL(root);
}

TEST(yaml_refuses_what_a_manifest_does_not_need) {
    check_refused("a: &x 1\n", BERTH_CORRUPT, "a.yaml:1:4: anchors are not allowed");
    check_refused("a: &x [1]\n", BERTH_CORRUPT, "a.yaml:1:4: anchors are not allowed");
    check_refused("a: *x\n", BERTH_CORRUPT, "a.yaml:1:4: aliases are not allowed");
    check_refused("*x : a\n", BERTH_CORRUPT, "a.yaml:1:1: aliases are not allowed");
    check_refused("a: !!str 1\n", BERTH_CORRUPT, "a.yaml:1:4: tags are not allowed");
    check_refused("%TAG ! tag:x,2000:\n---\na: 1\n", BERTH_CORRUPT, "%TAG is not allowed");
    check_refused("a: 1\nb: 2\na: 3\n", BERTH_CORRUPT,
                  "a.yaml:3:1: a: the key is there twice, first in line 1");
    check_refused("? [a]\n: 1\n", BERTH_CORRUPT, "a.yaml:1:3: a key must be a text");
    check_refused("a: 1\n---\nb: 1\n", BERTH_CORRUPT, "a.yaml:2:1: a second document");
    check_refused("a: \"x\\0y\"\n", BERTH_CORRUPT, "a.yaml:1:4: a NUL character");
}

TEST(yaml_refuses_what_is_not_yaml) {
    check_refused("a: [1\nb: 2\n", BERTH_CORRUPT, "a.yaml:2:");
    check_refused("a: 'x\n", BERTH_CORRUPT, "not valid YAML");
    check_refused("\tb: 1\n", BERTH_CORRUPT, "a.yaml:1:1: not valid YAML");
    check_refused("a: \xff\n", BERTH_CORRUPT, "not valid YAML");
    check_refused("\xff\xfe"
                  "a",
                  BERTH_CORRUPT, "not valid YAML");
    check_refused("a: 1\n b: 2\n", BERTH_CORRUPT, "a.yaml:2:");
}

TEST(yaml_keeps_its_limits) {
    static char text[1 << 17];
    memset(text, '[', 17);
    check_refused(text, BERTH_OUT_OF_MEMORY, "a.yaml:1:17: nested deeper than the limit of 16");
    memset(text, '[', 60000);
    check_refused(text, BERTH_OUT_OF_MEMORY, "nested deeper");
    memset(text, ' ', sizeof(text) - 1);
    check_refused(text, BERTH_OUT_OF_MEMORY, "a.yaml: has 131071 bytes, the limit is 65536");
    size_t used = 0;
    for (int i = 0; i < 1001; ++i) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "- x\n");
    }
    check_refused(text, BERTH_OUT_OF_MEMORY, "a.yaml:1000:3: more than the limit of 1000 values");
    berth_yaml *root = NULL;
    const berth_yaml_limits more = {.nodes = 1002};
    CHECK_OK(berth_yaml_parse((berth_str){.data = text, .size = used}, "a.yaml", &more, &root));
    CHECK_UINT(berth_yaml_size(root), 1001);
    berth_yaml_destroy(root);
    CHECK_STATUS(berth_yaml_load("build", NULL, &root), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_yaml_load("build/none.yaml", NULL, &root), BERTH_NOT_FOUND);
}

TEST(yaml_survives_every_failed_allocation) {
    static const char head[] = {'a', ':', ' ', '[', 'b', ']', '\n', 'd', ':', ' '};
    for (uint64_t n = 1;; ++n) {
        berth_yaml *root = NULL;
        berth_memory_fail_after(n);
        const berth_yaml_limits limits = {.nodes = 100000};
        static char text[20000];
        memset(text, 'x', sizeof(text));
        memcpy(text, head, sizeof(head));
        const berth_status status = berth_yaml_parse(
            (berth_str){.data = text, .size = sizeof(text)}, "a.yaml", &limits, &root);
        if (berth_memory_fail_after(0) > 0) {
            CHECK_OK(status);
            berth_yaml_destroy(root);
            return;
        }
        CHECK_STATUS(status, BERTH_OUT_OF_MEMORY);
        CHECK_NULL(root);
    }
}

TEST(yaml_survives_failed_allocations_of_its_parser) {
    if (!test_alloc_fail_from(0)) {
        SKIP("this flavour cannot fail allocations of libraries");
    }
    for (uint64_t n = 1;; ++n) {
        berth_yaml *root = NULL;
        test_alloc_fail_from(n);
        const berth_status status =
            berth_yaml_parse(BERTH_STR("a: [b, 'c']\nd: {e: f}\n"), "a.yaml", NULL, &root);
        const bool has_failed = test_alloc_has_failed();
        test_alloc_fail_from(0);
        if (!has_failed) {
            CHECK_OK(status);
            berth_yaml_destroy(root);
            return;
        }
        CHECK_STATUS(status, BERTH_OUT_OF_MEMORY);
    }
}

// The suite shows characters that are hard to see: "␣" a blank, "———»" a tab, "↵" nothing, "∎" no
// newline at the end, "←" a carriage return, "⇔" a byte order mark.
static void add_shown(berth_text *out, berth_str shown) {
    static const struct {
        const char *from;
        const char *to;
    } marks[] = {
        {"\xe2\x90\xa3", " "           },
        {"\xe2\x80\x94", ""            },
        {"\xc2\xbb",     "\t"          },
        {"\xe2\x86\xb5", ""            },
        {"\xe2\x86\x90", "\r"          },
        {"\xe2\x87\x94", "\xef\xbb\xbf"},
    };
    while (shown.size > 0) {
        size_t taken = 0;
        for (size_t i = 0; i < BERTH_COUNT(marks) && taken == 0; ++i) {
            if (berth_str_starts_with(shown, berth_str_from(marks[i].from))) {
                berth_text_add_cstr(out, marks[i].to);
                taken = strlen(marks[i].from);
            }
        }
        if (berth_str_starts_with(shown, BERTH_STR("\xe2\x88\x8e\n"))) {
            taken = 4;
        } else if (taken == 0) {
            berth_text_add_char(out, shown.data[0]);
            taken = 1;
        }
        shown = berth_str_slice(shown, taken, shown.size);
    }
}

static void add_escaped(berth_text *out, berth_str text) {
    static const char letters[] = "\\\n\t\r\b";
    for (size_t i = 0; i < text.size; ++i) {
        const char *letter = strchr(letters, text.data[i]);
        if (letter == NULL) {
            berth_text_add_char(out, text.data[i]);
        } else {
            berth_text_add_char(out, '\\');
            berth_text_add_char(out, "\\ntrb"[letter - letters]);
        }
    }
}

// Prints a tree as the suite does, without indentation and styles: "+MAP", "=VAL text", "-MAP".
static void add_events(berth_text *out, const berth_yaml *node) {
    if (berth_yaml_kind_of(node) == BERTH_YAML_SCALAR) {
        berth_text_add_cstr(out, "=VAL ");
        add_escaped(out, berth_yaml_scalar(node));
        berth_text_add_char(out, '\n');
        return;
    }
    const char *kind = berth_yaml_kind_of(node) == BERTH_YAML_MAPPING ? "MAP" : "SEQ";
    berth_text_add_format(out, "+%s\n", kind);
    for (size_t i = 0; i < berth_yaml_size(node); ++i) {
        if (kind[0] == 'M') {
            berth_text_add_cstr(out, "=VAL ");
            add_escaped(out, berth_yaml_key_at(node, i));
            berth_text_add_char(out, '\n');
        }
        add_events(out, berth_yaml_at(node, i));
    }
    berth_text_add_format(out, "-%s\n", kind);
}

// The suite's tree in the same form.
static void add_expected(berth_text *out, berth_str tree) {
    berth_text whole;
    berth_text_init(&whole, 1 << 16);
    add_shown(&whole, tree);
    berth_str rest = berth_text_str(&whole);
    for (berth_str line; berth_str_split_first(&rest, '\n', &line);) {
        while (line.size > 0 && line.data[0] == ' ') {
            line = berth_str_slice(line, 1, line.size);
        }
        if (berth_str_starts_with(line, BERTH_STR("=VAL "))) {
            berth_text_add_cstr(out, "=VAL ");
            berth_text_add(out, berth_str_slice(line, 6, line.size));
            berth_text_add_char(out, '\n');
        } else if (line.size > 3 && strchr("MS", line.data[1]) != NULL && line.data[2] != 'T') {
            berth_text_add(out, berth_str_slice(line, 0, 4));
            berth_text_add_char(out, '\n');
        }
    }
    berth_text_deinit(&whole);
}

static bool has_tree(const berth_yaml *root, berth_str tree) {
    berth_text actual;
    berth_text expected;
    berth_text_init(&actual, 1 << 16);
    berth_text_init(&expected, 1 << 16);
    add_events(&actual, root);
    add_expected(&expected, tree);
    const bool is_same = expected.size == 0
                             ? berth_yaml_size(root) == 0
                             : berth_str_equal(berth_text_str(&actual), berth_text_str(&expected));
    berth_text_deinit(&actual);
    berth_text_deinit(&expected);
    return is_same;
}

// Where libyaml, which speaks YAML 1.1, reads another tree or accepts what 1.2 refuses: "ID.entry".
static const char *const deviations[] = {
    "652Z.0", "9C9N.0", "9JBA.0", "CVW2.0", "DK95.1", "G5U8.0", "HM87.1", "L24T.1",
    "MUS6.0", "QB6E.0", "S98Z.0", "SU5Z.0", "X4QW.0", "Y79Y.3", "YJV2.0",
};

static bool is_deviation(const char *name) {
    for (size_t i = 0; i < BERTH_COUNT(deviations); ++i) {
        if (strcmp(name, deviations[i]) == 0) {
            return true;
        }
    }
    return false;
}

// Returns whether the text became a tree; a tree that differs from the suite's must be a known one.
static bool check_entry(const char *name, const berth_yaml *entry) {
    berth_str shown = {0};
    berth_str tree = {0};
    CHECK_OK(berth_yaml_get_str(entry, "yaml", &shown));
    berth_text text;
    berth_text_init(&text, 1 << 16);
    add_shown(&text, shown);
    berth_yaml *root = NULL;
    const berth_status status = berth_yaml_parse(berth_text_str(&text), "case", NULL, &root);
    berth_text_deinit(&text);
    if (status != BERTH_OK) {
        CHECK_STATUS(status, BERTH_CORRUPT);
        CHECK_CONTAINS(berth_status_message(), "case:");
        return false;
    }
    bool is_right = berth_yaml_find(entry, "fail") == NULL;
    if (is_right && berth_yaml_get_str(entry, "tree", &tree) == BERTH_OK) {
        is_right = has_tree(root, tree);
    }
    berth_yaml_destroy(root);
    CHECK_STR(is_right ? "" : name, is_deviation(name) ? name : "");
    return true;
}

TEST(yaml_agrees_with_the_conformance_suite_on_every_tree) {
    if (!berth_path_is_dir(SUITE)) {
        SKIP(SUITE " is not here");
    }
    berth_arena *arena = NULL;
    berth_dir_listing listing = {0};
    size_t trees = 0;
    CHECK_OK(berth_arena_create(1 << 16, 1 << 24, &arena));
    CHECK_OK(berth_dir_list(SUITE, arena, &listing));
    for (size_t i = 0; i < listing.count; ++i) {
        berth_yaml *root = NULL;
        CHECK_OK(berth_yaml_load(berth_path_join(arena, SUITE, listing.names[i]), NULL, &root));
        for (size_t j = 0; j < berth_yaml_size(root); ++j) {
            char name[32];
            snprintf(name, sizeof(name), "%.4s.%zu", listing.names[i], j);
            trees += check_entry(name, berth_yaml_at(root, j));
        }
        berth_yaml_destroy(root);
    }
    CHECK(trees > 150);
    berth_arena_destroy(arena);
}
