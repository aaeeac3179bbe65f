// SPDX-License-Identifier: Apache-2.0
// Golden vectors (tests/data/golden/ops) through the native references and, where they take them,
// through the kernels of platform-cpu.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "support/op_case.h"
#include "support/test.h"

#define FOLDER "tests/data/golden/ops/"

extern const berth_op *const berth_native_ops[]; // ends with NULL

// Which op a file is about, and what the op calls that file's tensors.
typedef struct golden_name {
    const char *ours;
    const char *theirs;
} golden_name;

typedef struct golden_kind {
    const char *file;
    const char *op;
    golden_name inputs[BERTH_MAX_INPUTS]; // operands whose names differ
    const char *outputs[2];
} golden_kind;

static const golden_kind kinds[] = {
    {.file = "rms_norm",                 .op = "rms_norm",         .outputs = {"y", "residual_out"}},
    {.file = "silu_and_mul",             .op = "silu_and_mul",     .outputs = {"y"}                },
    {.file = "rotary_embedding",         .op = "rotary_embedding", .outputs = {"query", "key"}     },
    {.file = "linear",                   .op = "linear",           .outputs = {"y"}                },
    {.file = "paged_attention",          .op = "paged_attention",  .outputs = {"y"}                },
    {.file = "varlen_attention",         .op = "paged_attention",  .outputs = {"y"}                },
    {
     .file = "vocab_parallel_embedding",
     .op = "embedding",
     .inputs = {{"token_ids", "input_"}},
     .outputs = {"output_parallel"},
     },
};

// An open pair of files.
typedef struct golden_file {
    const golden_kind *kind;
    berth_json *cases;
    berth_json *header;
    berth_file_map map;
    size_t data; // offset of the first tensor
} golden_file;

typedef struct golden_case {
    const golden_file *file;
    const berth_json *json;
    struct golden_case *next; // all cases, so that they are reachable whatever the filter takes
} golden_case;

static golden_case *golden_cases;

// ---- files --------------------------------------------------------------------------------------

static void must(berth_status status) {
    if (status != BERTH_OK) {
        (void)fprintf(stderr, "%s\n", berth_status_message());
        abort();
    }
}

static void open_golden(const golden_kind *kind, golden_file *out) {
    char path[128];
    uint64_t header_bytes = 0;
    out->kind = kind;
    (void)snprintf(path, sizeof path, FOLDER "%s.json", kind->file);
    must(berth_json_load(path, NULL, &out->cases));
    (void)snprintf(path, sizeof path, FOLDER "%s.safetensors", kind->file);
    must(berth_file_map_open(path, &out->map));
    memcpy(&header_bytes, out->map.data, sizeof header_bytes);
    out->data = sizeof header_bytes + header_bytes;
    const berth_str text = {(const char *)out->map.data + sizeof header_bytes, header_bytes};
    must(berth_json_parse(text, path, NULL, &out->header));
}

// The entry of a tensor that the case names in `group`; NULL when it names none.
static const berth_json *entry_of(const golden_case *at, const char *group, const char *name) {
    berth_str key;
    const berth_json *names = berth_json_find(at->json, group);
    const berth_json *found = names == NULL ? NULL : berth_json_find(names, name);
    if (found == NULL) {
        return NULL;
    }
    must(berth_json_get_str(found, "", &key));
    return berth_json_member(at->file->header, key);
}

static berth_dtype dtype_of(const berth_json *entry) {
    berth_str name;
    must(berth_json_get_str(entry, "dtype", &name));
    return strncmp(name.data, "F32", name.size) == 0    ? BERTH_DTYPE_F32
           : strncmp(name.data, "F16", name.size) == 0  ? BERTH_DTYPE_F16
           : strncmp(name.data, "BF16", name.size) == 0 ? BERTH_DTYPE_BF16
           : strncmp(name.data, "I32", name.size) == 0  ? BERTH_DTYPE_I32
           : strncmp(name.data, "I64", name.size) == 0  ? BERTH_DTYPE_I64
                                                        : BERTH_DTYPE_NONE;
}

// The tensor of an entry; a last dimension of heads · `head_size` becomes two (0: it does not).
static void load(const golden_case *at, const berth_json *entry, int64_t head_size,
                 op_tensor *out) {
    int64_t begin = 0;
    op_shape shape = {.dtype = dtype_of(entry)};
    const berth_json *dims = berth_json_find(entry, "shape");
    for (size_t i = 0; i < berth_json_size(dims); ++i) {
        int64_t extent = 0;
        must(berth_json_get_i64(berth_json_at(dims, i), "", &extent));
        shape.dims[shape.ndim++] = BERTH_DIM_CONST(extent);
    }
    if (head_size > 0 && shape.ndim == 2) {
        shape.dims[shape.ndim++] = BERTH_DIM_CONST(head_size);
        shape.dims[1].b /= head_size;
    }
    op_tensor_make(out, &shape, NULL);
    must(berth_json_get_i64(entry, "data_offsets.0", &begin));
    memcpy(out->tensor.data, at->file->map.data + at->file->data + (size_t)begin, out->bytes);
}

// ---- cases --------------------------------------------------------------------------------------

static void load_if_there(const golden_case *at, const char *name, op_tensor *out) {
    const berth_json *entry = entry_of(at, "inputs", name);
    if (entry != NULL) {
        load(at, entry, 0, out);
    }
}

// The file of the vocabulary layer has the loaded weight among what the layer makes.
static const berth_json *input_entry(const golden_case *at, const char *ours) {
    const golden_kind *kind = at->file->kind;
    const char *theirs = ours;
    for (size_t i = 0; i < BERTH_MAX_INPUTS && kind->inputs[i].ours != NULL; ++i) {
        if (strcmp(kind->inputs[i].ours, ours) == 0) {
            theirs = kind->inputs[i].theirs;
        }
    }
    const berth_json *entry = entry_of(at, "inputs", theirs);
    return entry == NULL && strcmp(ours, "weight") == 0 ? entry_of(at, "outputs", ours) : entry;
}

// Where a case has an attribute of the op: the rope's in an object of their own.
static const char *path_of(const berth_json *given, const char *name, char path[64]) {
    const bool is_base = strcmp(name, "base") == 0;
    (void)snprintf(path, 64, "rope_parameters.%s", is_base ? "rope_theta" : name);
    return berth_json_has(given, path) ? path : name;
}

static void set_attributes(const golden_case *at, op_case *out) {
    const berth_json *given = berth_json_find(at->json, "attributes");
    for (uint64_t i = 0; i < out->op->attribute_count; ++i) {
        char room[64];
        const char *name = out->op->attributes[i]->name;
        const char *path = path_of(given, name, room);
        if (!berth_json_has(given, path)) {
            continue;
        }
        berth_attribute *attribute = op_case_attribute(out, name);
        bool truth = false;
        berth_str text = {0};
        if (attribute->kind == BERTH_ATTRIBUTE_BOOL) {
            must(berth_json_get_bool(given, path, &truth));
            attribute->i64 = truth;
        } else if (attribute->kind == BERTH_ATTRIBUTE_STR) {
            must(berth_json_get_str(given, path, &text));
            attribute->str = text.data;
        } else {
            must(berth_json_get_f64(given, path, &attribute->f64));
            attribute->i64 = (int64_t)attribute->f64;
        }
    }
}

static void build(const golden_case *at, op_case *out) {
    const berth_op *const *op = berth_native_ops;
    int64_t head_size = 0;
    while (strcmp((*op)->name, at->file->kind->op) != 0) {
        ++op;
    }
    op_case_init(out, *op);
    set_attributes(at, out);
    if (strcmp((*op)->name, "rotary_embedding") == 0) {
        must(berth_json_get_i64(at->json, "attributes.head_size", &head_size));
    }
    for (uint64_t i = 0; i < (*op)->input_count; ++i) {
        const char *name = (*op)->inputs[i]->name;
        const berth_json *entry = input_entry(at, name);
        if (entry != NULL) {
            load(at, entry, head_size, &out->inputs[i]);
            out->inputs[i].is_parameter = strcmp(name, "weight") == 0;
        }
    }
    for (uint64_t i = 0; i < (*op)->state_count; ++i) {
        load_if_there(at, (*op)->states[i]->name, &out->states[i]);
    }
    load_if_there(at, "query_start_loc", &out->query_start_loc);
    load_if_there(at, "seq_lens", &out->seq_lens);
    load_if_there(at, "block_table", &out->block_table);
}

// Every output by the rule of its case.
static void compare(const golden_case *at, const op_results *got) {
    for (size_t i = 0; i < got->count; ++i) {
        double atol = 0;
        double rtol = 0;
        op_tensor wanted = {0};
        char rule[64];
        const char *name = at->file->kind->outputs[i];
        const berth_json *entry = entry_of(at, "outputs", name);
        (void)snprintf(rule, sizeof rule, "compare.outputs.%s", name);
        const berth_json *compared = berth_json_find(at->json, rule);
        compared = compared == NULL ? berth_json_find(at->json, "compare") : compared;
        load(at, entry != NULL ? entry : entry_of(at, "outputs", "y"), 0, &wanted);
        must(berth_json_f64_or(compared, "atol", 0, &atol)); // "exact" has neither
        must(berth_json_f64_or(compared, "rtol", 0, &rtol));
        op_tensor_compare(&got->outputs[i], &wanted, atol, rtol);
        op_tensor_free(&wanted);
    }
}

// By the reference and by the kernel that takes it; false when none does.
static bool run_both(const golden_case *at, const op_case *self) {
    op_results got;
    const berth_op_impl *impl = op_kernel_find(self->op->name);
    op_case_reference(self, &got);
    compare(at, &got);
    op_results_free(&got);
    if (impl == NULL || op_case_supports(self, impl) != BERTH_OK) {
        return false;
    }
    op_case_run(self, impl, &got);
    compare(at, &got);
    op_results_free(&got);
    return true;
}

static void run_golden(void **state) {
    const golden_case *at = *state;
    op_case self;
    build(at, &self);
    const bool is_f32 = self.inputs[0].type.dtype == BERTH_DTYPE_F32 ||
                        self.inputs[1].type.dtype == BERTH_DTYPE_F32;
    CHECK(run_both(at, &self) || !is_f32 || !op_kernels_are_built());
    const berth_json *cache = entry_of(at, "outputs", "cos_sin_cache");
    if (cache != NULL) { // the same rotation by the stored cosines and sines
        load(at, cache, 0, op_case_operand(&self, "cos_sin_cache"));
        CHECK(run_both(at, &self) || !is_f32 || !op_kernels_are_built());
    }
    op_case_free(&self);
}

TEST_CASES(golden) {
    static golden_file files[sizeof kinds / sizeof kinds[0]]; // open until the process ends
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) {
        open_golden(&kinds[i], &files[i]);
        const berth_json *list = berth_json_find(files[i].cases, "cases");
        for (size_t j = 0; j < berth_json_size(list); ++j) {
            char name[160];
            berth_str case_name;
            golden_case *kept = malloc(sizeof *kept);
            if (kept == NULL) {
                abort();
            }
            *kept = (golden_case){
                .file = &files[i],
                .json = berth_json_at(list, j),
                .next = golden_cases,
            };
            golden_cases = kept;
            must(berth_json_get_str(kept->json, "name", &case_name));
            (void)snprintf(name, sizeof name, "%s %.*s", kinds[i].file, (int)case_name.size,
                           case_name.data);
            test_add(cases, name, run_golden, kept);
        }
    }
}
