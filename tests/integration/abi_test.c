// SPDX-License-Identifier: Apache-2.0
// Plugins built for every ABI released so far (tests/abi/README.md) run on this host: the model of
// model-dummy on the device of platform-dummy says what the reference says.
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "support/dummy_model.h"
#include "support/program.h"
#include "support/test.h"

#define ABI_DIR "tests/abi"

// The plugins of one release, where the search finds nothing else.
static void check_plugin_list(const char *search) {
    program p;
    size_t found = 0;
    PROGRAM_MUST(&p, PROGRAM_ENV(search), BERTH, "plugins", "list", "--json", "--platform",
                 "dummy");
    berth_json *root = program_json(&p);
    for (size_t i = 0; i < berth_json_size(root); ++i) {
        const berth_json *plugin = berth_json_at(root, i);
        berth_str id = {0};
        berth_str state = {0};
        CHECK_OK(berth_json_get_str(plugin, "id", &id));
        CHECK_OK(berth_json_get_str(plugin, "state", &state));
        CHECK_STR(state.data, strcmp(id.data, "dummy") == 0 ? "selected" : "active");
        found += berth_str_ends_with(id, BERTH_STR("dummy"));
    }
    CHECK_UINT(found, 2);
    berth_json_destroy(root);
}

static void check_release(void **test_state) {
    const char *release = *test_state;
    char search[PATH_MAX + 32] = "BERTH_PLUGIN_DIRS=";
    char path[PATH_MAX];
    struct utsname machine;
    sandbox box;
    program p;
    CHECK_INT(uname(&machine), 0);
    if (strcmp(machine.machine, "x86_64") != 0) {
        SKIP("the plugins of tests/abi are for x86-64");
    }
    (void)snprintf(path, sizeof(path), ABI_DIR "/%s", release);
    CHECK(realpath(path, search + strlen(search)) != NULL);
    PROGRAM_MUST(&p, NULL, "sh", "-c", "cd \"$0\" && sha256sum --check --quiet SHA256SUMS", path);
    check_plugin_list(search);
    sandbox_make(&box);
    PROGRAM_MUST(&p, PROGRAM_ENV(search), BERTH, "eval", "--model", dummy_model_write(&box),
                 "--golden", LLAMA_GOLDEN, "--platform", "dummy", "--allow-fallback");
    CHECK_CONTAINS(p.out, "passed");
    CHECK_STR(p.err, "");
    sandbox_remove(&box);
}

TEST_CASES(plugins_of_every_released_abi_run_a_model) {
    static struct dirent **names; // static: the cases borrow from it until the end
    const int count = scandir(ABI_DIR, &names, NULL, alphasort);
    for (int i = 0; i < count; ++i) {
        const char *name = names[i]->d_name;
        if (name[0] >= '0' && name[0] <= '9') {
            test_add(cases, name, check_release, names[i]->d_name);
        }
    }
}

TEST(there_is_a_released_abi) {
    CHECK_INT(access(ABI_DIR "/1.0/SHA256SUMS", F_OK), 0);
}
