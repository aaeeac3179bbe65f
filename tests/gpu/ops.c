// SPDX-License-Identifier: Apache-2.0
// ops [TEXT]: every kernel of a platform on every case of tests/ops/<op>.txt that it takes, its
// operands on the device between guards, against the native reference; those whose name, "<op>
// <case> by <kernel>", contains the text. OPS_PLATFORM: cuda unless given; its library lies in the
// folder $TEST_PLUGINS, else in this build's. Run in the root of the repository, where nothing is
// built.
//
// OPS_LIST=FILE: only the cases of the file, lines "<op> <case>", # begins a comment; a kernel that
// takes none of them fails. OPS_WITHOUT: names of kernels that are left out. OPS_GUARDS=0: nothing
// around the operands, so that compute-sanitizer sees who leaves them. OPS_PRINT=1: only prints
// what is taken, with the bytes of the operands.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <berth/plugin.h>

#include "base/array.h"
#include "base/file.h"
#include "support/op_case.h"
#include "support/test.h"

#define GUARD       256 // what GPU platforms align to
#define MAX_KERNELS 256

extern const berth_op *const berth_native_ops[]; // ends with NULL

// ---- the device ---------------------------------------------------------------------------------

static const berth_platform *platform;
static berth_device device = {.size = sizeof device};
static op_place place = {.device = &device, .guard = GUARD};
static const berth_op_impl *kernels[MAX_KERNELS + 1]; // ends with NULL
static size_t kernel_count;

static berth_status add_platform(berth_registrar *registrar, const berth_platform *given,
                                 void *self) {
    (void)registrar;
    platform = given;
    device.platform = given->name;
    device.device_type = given->device_type;
    device.self = self;
    return BERTH_OK;
}

static berth_status add_op_impl(berth_registrar *registrar, const berth_op_impl *impl,
                                uint64_t flags) {
    (void)registrar;
    (void)flags;
    if (kernel_count == MAX_KERNELS) {
        return BERTH_OUT_OF_MEMORY;
    }
    kernels[kernel_count++] = impl;
    return BERTH_OK;
}

static void close_device(void) {
    platform->device->close(device.self, device.index);
    platform->destroy(device.self);
}

static const berth_plugin *open_plugin(void) {
    char path[1024];
    const char *folder = getenv("TEST_PLUGINS");
    const char *name = getenv("OPS_PLATFORM");
    (void)snprintf(path, sizeof path, "%s/libberth-platform-%s.so",
                   folder != NULL ? folder : TEST_BUILD "/plugins", name != NULL ? name : "cuda");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const berth_plugin *plugin = library == NULL ? NULL : dlsym(library, "berth_plugin_v1");
    if (plugin == NULL) {
        (void)fprintf(stderr, "ops: %s\n", dlerror());
        exit(1);
    }
    return plugin;
}

// Ends the process where there is none: no test of this program can do without.
static void open_device(void) {
    berth_registrar registrar = {
        .size = sizeof registrar,
        .add_platform = add_platform,
        .add_op_impl = add_op_impl,
    };
    if (open_plugin()->entry_points[0]->register_plugin(op_host(), &registrar) != BERTH_OK ||
        platform->register_ops(device.self, NULL, &registrar) != BERTH_OK ||
        platform->device->open(device.self, device.index) != BERTH_OK) {
        (void)fprintf(stderr, "ops: %s\n", op_host_text());
        exit(1);
    }
    const char *guards = getenv("OPS_GUARDS");
    place.guard = guards != NULL && strcmp(guards, "0") == 0 ? 0 : GUARD;
    place.api = platform->device;
    (void)atexit(close_device);
}

// ---- a case -------------------------------------------------------------------------------------

// The lines live as long as the executable.
typedef struct kept_line {
    op_line line;
    const berth_op_impl *impl;
} kept_line;

// A step that writes nothing never comes to a kernel, and what a step without rows makes of them
// all nobody reads.
static bool has_work(const op_case *self, const op_results *wanted) {
    bool has = false;
    for (size_t i = 0; i < wanted->count; ++i) {
        has = has || op_tensor_count(&wanted->outputs[i]) > 0;
    }
    return has && op_tensor_count(&self->inputs[0]) > 0;
}

// Whether the plan would pass the kernel over: the case uses what came after the kernel was
// written.
static bool is_passed_over(const op_case *self, const berth_op_impl *impl) {
    const berth_op *op = self->op;
    bool is = false;
    for (uint64_t i = 0; i < op->input_count; ++i) {
        is =
            is || (op->inputs[i]->since > impl->revision && op_tensor_is_present(&self->inputs[i]));
    }
    for (uint64_t i = 0; i < op->attribute_count; ++i) {
        const berth_op_attribute *declared = op->attributes[i];
        const berth_attribute *given = &self->attributes[i];
        const berth_attribute *usual = declared->default_value;
        const bool is_usual = given->kind == BERTH_ATTRIBUTE_NONE ||
                              (usual != NULL && given->i64 == usual->i64 &&
                               given->f64 == usual->f64 && given->count == usual->count);
        is = is || (declared->since > impl->revision && !is_usual);
    }
    return is;
}

static bool takes(const op_case *self, const berth_op_impl *impl) {
    return !is_passed_over(self, impl) && op_case_supports_on(self, impl, &device) == BERTH_OK;
}

static void compare(const op_case *self, op_results *got, const op_results *wanted) {
    op_results_compare(got, wanted, self->atol, self->rtol);
    op_results_free(got);
}

static void run_case(void **state) {
    const kept_line *kept = *state;
    op_case at_hand;
    op_results wanted;
    op_results got;
    op_line_build(&kept->line, &at_hand);
    if (!takes(&at_hand, kept->impl)) {
        const bool is_older = is_passed_over(&at_hand, kept->impl);
        op_case_free(&at_hand);
        SKIP(is_older ? "it uses what is younger than the kernel" : op_host_text());
    }
    op_case_reference(&at_hand, &wanted);
    if (has_work(&at_hand, &wanted)) {
        op_case_run_at(&at_hand, kept->impl, &place, &got);
        compare(&at_hand, &got, &wanted);
    }
    if (has_work(&at_hand, &wanted) && (kept->impl->flags & BERTH_IMPL_IN_PLACE) != 0) {
        op_case_run_in_place_at(&at_hand, kept->impl, &place, &got);
        compare(&at_hand, &got, &wanted);
    }
    op_results_free(&wanted);
    op_case_free(&at_hand);
}

static void print_case(void **state) {
    const kept_line *kept = *state;
    op_case at_hand;
    size_t bytes = 0;
    op_line_build(&kept->line, &at_hand);
    for (size_t i = 0; i < BERTH_MAX_INPUTS; ++i) {
        bytes += at_hand.inputs[i].bytes;
    }
    for (size_t i = 0; i < OP_MAX_STATES; ++i) {
        bytes += at_hand.states[i].bytes;
    }
    if (takes(&at_hand, kept->impl)) {
        print_message("takes %s %s %s %zu\n", kept->line.op->name, kept->line.name,
                      kept->impl->name, bytes);
    }
    op_case_free(&at_hand);
}

// ---- the list of tests --------------------------------------------------------------------------

static char *list; // OPS_LIST's lines between two newlines, or NULL

static void read_list(void) {
    const char *path = getenv("OPS_LIST");
    char *text = NULL;
    size_t size = 0;
    if (path == NULL) {
        return;
    }
    if (berth_file_read(path, 1 << 20, &text, &size) != BERTH_OK ||
        asprintf(&list, "\n%s\n", text) < 0) {
        (void)fprintf(stderr, "ops: %s cannot be read\n", path);
        exit(1);
    }
}

static bool is_listed(const op_line *line) {
    char text[160];
    (void)snprintf(text, sizeof text, "\n%s %s\n", line->op->name, line->name);
    return list == NULL || strstr(list, text) != NULL;
}

static bool is_left_out(const berth_op_impl *impl) {
    const char *names = getenv("OPS_WITHOUT");
    const size_t length = strlen(impl->name);
    for (const char *at = names; at != NULL && (at = strstr(at, impl->name)) != NULL;
         at += length) {
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) {
            return true;
        }
    }
    return false;
}

static void add_line(const op_line *line, void *context) {
    if (line->kind == OP_LINE_REFUSE || !is_listed(line)) {
        return;
    }
    for (const berth_op_impl *const *impl = kernels; *impl != NULL; ++impl) {
        char name[200];
        const bool is_wanted = strcmp((*impl)->op, line->op->name) == 0 && !is_left_out(*impl);
        kept_line *kept = is_wanted ? malloc(sizeof *kept) : NULL;
        if (kept != NULL) {
            *kept = (kept_line){.line = *line, .impl = *impl};
            (void)snprintf(name, sizeof name, "%s %s by %s", line->op->name, line->name,
                           (*impl)->name);
            test_add(context, name, getenv("OPS_PRINT") ? print_case : run_case, kept);
        }
    }
}

TEST_CASES(device) {
    open_device();
    read_list();
    for (const berth_op *const *op = berth_native_ops; *op != NULL; ++op) {
        char path[128];
        (void)snprintf(path, sizeof path, "tests/ops/%s.txt", (*op)->name);
        op_lines_read(*op, path, add_line, cases);
    }
}

// ---- that nothing is left out -------------------------------------------------------------------

typedef struct search {
    const berth_op_impl *impl;
    size_t found;
} search;

static void count_line(const op_line *line, void *context) {
    search *self = context;
    op_case at_hand;
    if (line->kind == OP_LINE_REFUSE || !is_listed(line)) {
        return;
    }
    op_line_build(line, &at_hand);
    self->found += takes(&at_hand, self->impl);
    op_case_free(&at_hand);
}

TEST(every_kernel_has_a_case) {
    size_t missing = 0;
    for (const berth_op_impl *const *impl = kernels; *impl != NULL; ++impl) {
        const berth_op *const *op = berth_native_ops;
        search self = {.impl = *impl};
        char path[128];
        while (*op != NULL && strcmp((*op)->name, (*impl)->op) != 0) {
            ++op;
        }
        CHECK(*op != NULL);
        (void)snprintf(path, sizeof path, "tests/ops/%s.txt", (*op)->name);
        op_lines_read(*op, path, count_line, &self);
        if (self.found == 0) {
            print_error("%s: no case\n", (*impl)->name);
            ++missing;
        }
    }
    CHECK_UINT(missing, 0);
}
