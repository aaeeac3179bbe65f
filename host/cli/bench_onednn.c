// SPDX-License-Identifier: Apache-2.0
// Input: shapes. Output: seconds that oneDNN takes. Written against the documented C interface of
// releases 2 and 3, without its headers: what differs between them (descriptions are structs in 2,
// handles in 3) is kept in buffers that are large enough for either.
#include "cli/bench_onednn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/stream.h"
#include "cli/bench_report.h"

#define CALLS             4
#define SETTLE_NS         10000000
#define NS_PER_S          1e9
#define SETS_MAX          64
#define SETS_SHARE        4 // of the memory: as much of it the sets of a task take
#define DESCRIPTION_BYTES 8192

// Numbers of the interface.
enum {
    ENGINE_CPU = 1,
    STREAM_DEFAULT = 1,
    TYPE_BF16 = 2,
    TYPE_F32 = 3,
    TYPE_S32 = 4,
    TYPE_S8 = 5,
    TYPE_U8 = 6,
    TAG_ANY = 1,
    TAG_AB = 3,
    PROPAGATION_INFERENCE = 96,
    ALGORITHM_CONVOLUTION = 3,
    QUERY_SOURCE_MD = 129,
    QUERY_WEIGHTS_MD = 131,
    QUERY_DESTINATION_MD = 133,
    ARGUMENT_SOURCE = 1,
    ARGUMENT_DESTINATION = 17,
    ARGUMENT_WEIGHTS = 33,
};

typedef struct argument {
    int number;
    void *memory;
} argument;

typedef struct version {
    int major;
    int minor;
    int patch;
} version;

// A memory description: the struct of release 2, or the handle of release 3.
typedef union description {
    _Alignas(16) char bytes[DESCRIPTION_BYTES];
    void *handle;
} description;

typedef struct functions {
    const version *(*version)(void);
    int (*engine_create)(void **out, int kind, size_t index);
    int (*engine_destroy)(void *engine);
    int (*stream_create)(void **out, void *engine, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream);
    int (*primitive_create)(void **out, const void *primitive_description);
    int (*primitive_execute)(const void *primitive, void *stream, int count, const argument *list);
    int (*primitive_destroy)(void *primitive);
    int (*primitive_desc_destroy)(void *primitive_description);
    const void *(*query_md)(const void *primitive_description, int what, int index);
    size_t (*memory_desc_get_size)(const void *description);
    int (*memory_create)(void **out, const void *description, void *engine, void *handle);
    int (*memory_get_data_handle)(const void *memory, void **out);
    int (*memory_destroy)(void *memory);
    // Release 2.
    int (*memory_desc_init)(void *out, int ndim, const int64_t *dims, int type, int tag);
    int (*matmul_desc_init)(void *out, const void *x, const void *weights, const void *bias,
                            const void *y);
    int (*convolution_desc_init)(void *out, int propagation, int algorithm, const void *x,
                                 const void *weights, const void *bias, const void *y,
                                 const int64_t *strides, const int64_t *dilation,
                                 const int64_t *before, const int64_t *behind);
    int (*primitive_desc_create)(void **out, const void *operation, const void *attributes,
                                 void *engine, const void *hint);
    // Release 3.
    int (*memory_desc_create)(void **out, int ndim, const int64_t *dims, int type, int tag);
    int (*memory_desc_destroy)(void *description);
    int (*matmul_create)(void **out, void *engine, const void *x, const void *weights,
                         const void *bias, const void *y, const void *attributes);
    int (*convolution_create)(void **out, void *engine, int propagation, int algorithm,
                              const void *x, const void *weights, const void *bias, const void *y,
                              const int64_t *strides, const int64_t *dilation,
                              const int64_t *before, const int64_t *behind, const void *attributes);
} functions;

struct berth_onednn {
    void *library;
    functions call;
    bool has_handles; // release 3
    int64_t threads;
    void *engine;
    void *stream;
    berth_arena *arena; // borrowed
    char version[32];
};

struct berth_onednn_task {
    berth_onednn *of;
    void *primitive;
    // Sets of operands, of which every call takes the next.
    void *x[SETS_MAX];
    void *weights[SETS_MAX];
    void *y[SETS_MAX];
    size_t set_count;
    size_t next;
};

// ---- the library --------------------------------------------------------------------------------

typedef struct symbol_row {
    const char *name;
    size_t offset; // in functions
    int release;   // 0: both
} symbol_row;

#define SYMBOL(release, name, member)                                                              \
    { "dnnl_" name, offsetof(functions, member), release }

static const symbol_row symbols[] = {
    SYMBOL(0, "version", version),
    SYMBOL(0, "engine_create", engine_create),
    SYMBOL(0, "engine_destroy", engine_destroy),
    SYMBOL(0, "stream_create", stream_create),
    SYMBOL(0, "stream_destroy", stream_destroy),
    SYMBOL(0, "stream_wait", stream_wait),
    SYMBOL(0, "primitive_create", primitive_create),
    SYMBOL(0, "primitive_execute", primitive_execute),
    SYMBOL(0, "primitive_destroy", primitive_destroy),
    SYMBOL(0, "primitive_desc_destroy", primitive_desc_destroy),
    SYMBOL(0, "primitive_desc_query_md", query_md),
    SYMBOL(0, "memory_desc_get_size", memory_desc_get_size),
    SYMBOL(0, "memory_create", memory_create),
    SYMBOL(0, "memory_get_data_handle", memory_get_data_handle),
    SYMBOL(0, "memory_destroy", memory_destroy),
    SYMBOL(2, "memory_desc_init_by_tag", memory_desc_init),
    SYMBOL(2, "matmul_desc_init", matmul_desc_init),
    SYMBOL(2, "dilated_convolution_forward_desc_init", convolution_desc_init),
    SYMBOL(2, "primitive_desc_create", primitive_desc_create),
    SYMBOL(3, "memory_desc_create_with_tag", memory_desc_create),
    SYMBOL(3, "memory_desc_destroy", memory_desc_destroy),
    SYMBOL(3, "matmul_primitive_desc_create", matmul_create),
    SYMBOL(3, "convolution_forward_primitive_desc_create", convolution_create),
};

static berth_status find_symbols(berth_onednn *self, int release) {
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; ++i) {
        if (symbols[i].release != 0 && symbols[i].release != release) {
            continue;
        }
        void *found = dlsym(self->library, symbols[i].name);
        if (!found) {
            return BERTH_FAIL(NOT_FOUND, "oneDNN: release %d without %s", release, symbols[i].name);
        }
        memcpy((char *)&self->call + symbols[i].offset, &found, sizeof found);
    }
    self->has_handles = release == 3;
    return BERTH_OK;
}

// Why never closed: threads of its OpenMP runtime would return to code that is gone.
static berth_status open_library(berth_onednn *self) {
    static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2"};
    for (int i = 0; i < 2; ++i) {
        self->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (self->library) {
            return find_symbols(self, 3 - i);
        }
    }
    return BERTH_FAIL(NOT_FOUND, "libdnnl.so.3 and libdnnl.so.2 are not there; install oneDNN");
}

static berth_status check(int status, const char *what) {
    return status == 0 ? BERTH_OK : BERTH_FAIL(INTERNAL, "oneDNN: %s: status %d", what, status);
}

static berth_status start(berth_onednn *self) {
    void (*set_threads)(int) = NULL;
    const void *found = dlsym(self->library, "omp_set_num_threads"); // of what it was linked with
    if (!found) {
        return BERTH_FAIL(NOT_FOUND, "oneDNN without OpenMP: its threads cannot be set");
    }
    memcpy(&set_threads, &found, sizeof found);
    set_threads((int)self->threads);
    const version *release = self->call.version();
    (void)snprintf(self->version, sizeof self->version, "oneDNN %d.%d.%d", release->major,
                   release->minor, release->patch);
    BERTH_TRY(check(self->call.engine_create(&self->engine, ENGINE_CPU, 0), "engine"));
    return check(self->call.stream_create(&self->stream, self->engine, STREAM_DEFAULT), "stream");
}

berth_status berth_onednn_open(berth_arena *arena, int64_t threads, berth_onednn **out_onednn) {
    berth_onednn *self = BERTH_ARENA_NEW(arena, berth_onednn);
    if (!self) {
        return berth_arena_exhausted(arena, "oneDNN");
    }
    self->arena = arena;
    self->threads = threads;
    berth_status status = open_library(self);
    if (status == BERTH_OK) {
        status = start(self);
    }
    if (status != BERTH_OK) {
        berth_onednn_close(self);
        return status;
    }
    *out_onednn = self;
    return BERTH_OK;
}

const char *berth_onednn_version(const berth_onednn *onednn) {
    return onednn->version;
}

void berth_onednn_close(berth_onednn *onednn) {
    if (onednn && onednn->stream) {
        (void)onednn->call.stream_destroy(onednn->stream);
    }
    if (onednn && onednn->engine) {
        (void)onednn->call.engine_destroy(onednn->engine);
    }
}

void berth_onednn_settle(const berth_onednn *onednn) {
    if (onednn && onednn->threads > 1) {
        (void)nanosleep(&(struct timespec){.tv_nsec = SETTLE_NS}, NULL);
    }
}

// ---- descriptions -------------------------------------------------------------------------------

// The matrices or images of a task, in the order x, weights, y, and how they are planned.
typedef struct recipe {
    int rank;
    int64_t dims[3][BERTH_ONEDNN_RANK];
    int tags[3];
    int types[3];
    const berth_onednn_image *image; // NULL: a product of matrices
    description descriptions[3];
} recipe;

static berth_status describe(const berth_onednn *self, recipe *of, int which) {
    description *out = &of->descriptions[which];
    const int64_t *dims = of->dims[which];
    const int tag = of->tags[which];
    const int type = of->types[which];
    return check(self->has_handles
                     ? self->call.memory_desc_create(&out->handle, of->rank, dims, type, tag)
                     : self->call.memory_desc_init(out->bytes, of->rank, dims, type, tag),
                 "a description");
}

// What functions that take a description want.
static const void *pointer_to(const berth_onednn *self, const description *of) {
    return self->has_handles ? of->handle : of->bytes;
}

static void forget(const berth_onednn *self, const description *of) {
    if (self->has_handles && of->handle) {
        (void)self->call.memory_desc_destroy(of->handle);
    }
}

// Status of the library: a task that it does not have is no failure here.
static int plan_now(const berth_onednn *self, const recipe *of, void **out) {
    const functions *call = &self->call;
    const berth_onednn_image *image = of->image;
    const void *x = pointer_to(self, &of->descriptions[0]);
    const void *weights = pointer_to(self, &of->descriptions[1]);
    const void *y = pointer_to(self, &of->descriptions[2]);
    return image
               ? call->convolution_create(out, self->engine, PROPAGATION_INFERENCE,
                                          ALGORITHM_CONVOLUTION, x, weights, NULL, y, image->stride,
                                          image->dilation, image->padding, image->padding, NULL)
               : call->matmul_create(out, self->engine, x, weights, NULL, y, NULL);
}

static int plan_first(const berth_onednn *self, const recipe *of, void **out) {
    const functions *call = &self->call;
    const berth_onednn_image *image = of->image;
    const void *x = pointer_to(self, &of->descriptions[0]);
    const void *weights = pointer_to(self, &of->descriptions[1]);
    const void *y = pointer_to(self, &of->descriptions[2]);
    description operation;
    const int status = image ? call->convolution_desc_init(operation.bytes, PROPAGATION_INFERENCE,
                                                           ALGORITHM_CONVOLUTION, x, weights, NULL,
                                                           y, image->stride, image->dilation,
                                                           image->padding, image->padding)
                             : call->matmul_desc_init(operation.bytes, x, weights, NULL, y);
    return status ? status
                  : call->primitive_desc_create(out, operation.bytes, NULL, self->engine, NULL);
}

// ---- tasks --------------------------------------------------------------------------------------

static size_t rounded_size(const berth_onednn *self, const void *described) {
    const size_t grain = BERTH_STREAM_GRAIN;
    return (self->call.memory_desc_get_size(described) + grain - 1) / grain * grain;
}

// Memory of oneDNN's own, with numbers in it.
static berth_status create_memory(const berth_onednn *self, const void *described, void **out) {
    void *const own = (void *)(size_t)-1;
    void *data = NULL;
    BERTH_TRY(check(self->call.memory_create(out, described, self->engine, own), "memory"));
    BERTH_TRY(check(self->call.memory_get_data_handle(*out, &data), "memory"));
    berth_stream_fill(data, self->call.memory_desc_get_size(described));
    return BERTH_OK;
}

// Weights and x lie in `memory`; y has memory of its own, since others want small numbers in this.
static berth_status create_sets(berth_onednn_task *self, const void *planned, char *memory,
                                size_t bytes) {
    const functions *call = &self->of->call;
    const void *x = call->query_md(planned, QUERY_SOURCE_MD, 0);
    const void *weights = call->query_md(planned, QUERY_WEIGHTS_MD, 0);
    const void *y = call->query_md(planned, QUERY_DESTINATION_MD, 0);
    const size_t of_weights = rounded_size(self->of, weights);
    const size_t read = of_weights + rounded_size(self->of, x);
    const size_t each = read + rounded_size(self->of, y);
    const size_t wanted = bytes / SETS_SHARE / each + 2;
    if (of_weights == 0 || read > bytes) {
        return BERTH_FAIL(OUT_OF_MEMORY, "oneDNN: operands of %zu bytes, there is room for %zu",
                          read, bytes);
    }
    for (size_t i = 0; i < SETS_MAX && i < wanted && i < bytes / read; ++i) {
        char *at = memory + i * read;
        void *engine = self->of->engine;
        BERTH_TRY(check(call->memory_create(&self->weights[i], weights, engine, at), "weights"));
        BERTH_TRY(check(call->memory_create(&self->x[i], x, engine, at + of_weights), "x"));
        BERTH_TRY(create_memory(self->of, y, &self->y[i]));
        self->set_count = i + 1;
    }
    return BERTH_OK;
}

static berth_status create_parts(berth_onednn_task *self, const void *planned, char *memory,
                                 size_t bytes) {
    BERTH_TRY(check(self->of->call.primitive_create(&self->primitive, planned), "a primitive"));
    return create_sets(self, planned, memory, bytes);
}

static berth_status create_all(berth_onednn_task *self, recipe *of, char *memory, size_t bytes) {
    const berth_onednn *library = self->of;
    void *planned = NULL;
    berth_status status = BERTH_OK;
    for (int i = 0; i < 3 && status == BERTH_OK; ++i) {
        status = describe(library, of, i);
    }
    const bool is_there =
        status == BERTH_OK && (library->has_handles ? plan_now(library, of, &planned)
                                                    : plan_first(library, of, &planned)) == 0;
    if (is_there) {
        status = create_parts(self, planned, memory, bytes);
        (void)library->call.primitive_desc_destroy(planned);
    }
    for (int i = 0; i < 3; ++i) {
        forget(library, &of->descriptions[i]);
    }
    return status;
}

static berth_status create(berth_onednn *onednn, recipe *of, char *memory, size_t bytes,
                           berth_onednn_task **out_task) {
    berth_onednn_task *self = BERTH_ARENA_NEW(onednn->arena, berth_onednn_task);
    if (!self) {
        return berth_arena_exhausted(onednn->arena, "a task of oneDNN");
    }
    self->of = onednn;
    const berth_status status = create_all(self, of, memory, bytes);
    *out_task = status == BERTH_OK && self->primitive ? self : NULL;
    if (!*out_task) {
        berth_onednn_task_destroy(self);
    }
    return status;
}

// Of x, the weights and y.
static const int types[][3] = {
    [BERTH_ONEDNN_F32] = {TYPE_F32,  TYPE_F32,  TYPE_F32 },
    [BERTH_ONEDNN_BF16] = {TYPE_BF16, TYPE_BF16, TYPE_BF16},
    [BERTH_ONEDNN_S8] = {TYPE_S8,   TYPE_S8,   TYPE_S32 },
    [BERTH_ONEDNN_U8] = {TYPE_U8,   TYPE_S8,   TYPE_S32 },
};

berth_status berth_onednn_multiply(berth_onednn *onednn, const berth_onednn_shape *shape,
                                   char *memory, size_t bytes, berth_onednn_task **out_task) {
    recipe of = {
        .rank = 2,
        .dims = {{shape->rows, shape->in}, {shape->in, shape->out}, {shape->rows, shape->out}},
        .tags = {TAG_AB,                   TAG_ANY,                 TAG_AB                   },
    };
    memcpy(of.types, types[shape->type], sizeof of.types);
    return create(onednn, &of, memory, bytes, out_task);
}

berth_status berth_onednn_convolve(berth_onednn *onednn, const berth_onednn_image *image,
                                   char *memory, size_t bytes, berth_onednn_task **out_task) {
    recipe of = {
        .rank = image->rank,
        .tags = {TAG_ANY, TAG_ANY, TAG_ANY},
        .image = image,
    };
    memcpy(of.types, types[image->type], sizeof of.types);
    memcpy(of.dims[0], image->x, sizeof image->x);
    memcpy(of.dims[1], image->weights, sizeof image->weights);
    memcpy(of.dims[2], image->y, sizeof image->y);
    return create(onednn, &of, memory, bytes, out_task);
}

static berth_status run(berth_onednn_task *task) {
    const functions *call = &task->of->call;
    const size_t set = task->next++ % task->set_count;
    const argument arguments[] = {
        {ARGUMENT_SOURCE,      task->x[set]      },
        {ARGUMENT_WEIGHTS,     task->weights[set]},
        {ARGUMENT_DESTINATION, task->y[set]      },
    };
    return check(call->primitive_execute(task->primitive, task->of->stream, 3, arguments),
                 "a task");
}

static berth_status time_calls(berth_onednn_task *task, int64_t calls, double *out_seconds) {
    const uint64_t start = berth_clock_ns();
    for (int64_t i = 0; i < calls; ++i) {
        BERTH_TRY(run(task));
    }
    BERTH_TRY(check(task->of->call.stream_wait(task->of->stream), "a task"));
    *out_seconds = (double)(berth_clock_ns() - start) / NS_PER_S;
    return BERTH_OK;
}

berth_status berth_onednn_task_time(berth_onednn_task *task, int64_t calls, double *out_seconds) {
    double samples[CALLS];
    for (int i = 0; i < CALLS; ++i) {
        BERTH_TRY(time_calls(task, calls, &samples[i]));
    }
    *out_seconds = berth_bench_quantile(samples + 1, CALLS - 1, 0.5);
    return BERTH_OK;
}

void berth_onednn_task_destroy(berth_onednn_task *task) {
    if (!task) {
        return;
    }
    const functions *call = &task->of->call;
    for (size_t i = 0; i < SETS_MAX; ++i) {
        void *const memories[] = {task->x[i], task->weights[i], task->y[i]};
        for (size_t k = 0; k < sizeof memories / sizeof memories[0]; ++k) {
            (void)(memories[k] ? call->memory_destroy(memories[k]) : 0);
        }
    }
    (void)(task->primitive ? call->primitive_destroy(task->primitive) : 0);
}
