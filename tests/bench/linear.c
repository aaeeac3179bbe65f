// SPDX-License-Identifier: Apache-2.0
// linear of platform-cpu beside its ceilings, all in one run: the memory's read figure and oneDNN
// at the same shapes. Opens the platform's library as a host does, with the smallest host there can
// be.
//
//   linear LIBRARY THREADS [ROWS …]
//
// Every case goes round copies of its weight of 512 MiB together, as the weights of a model do;
// ours and oneDNN's calls take turns, the medians are printed.
#include <berth/plugin.h>

#include <dlfcn.h>
#include <dnnl.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROTATED ((size_t)512 << 20)
#define READ    ((size_t)1 << 30)
#define SAMPLES 15

static int64_t threads;

// Why processor time on one thread: on a shared machine the clock counts the others, too.
static double now(void) {
    struct timespec time;
    (void)clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare(const void *a, const void *b) {
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(double *samples, int count) {
    qsort(samples, (size_t)count, sizeof *samples, compare);
    return samples[getenv("BEST") ? 1 : count / 2];
}

static void die(const char *what) {
    (void)fprintf(stderr, "linear: %s\n", what);
    exit(1);
}

// ---- the smallest host --------------------------------------------------------------------------

static const berth_platform *platform;
static void *platform_self;
static const berth_op_impl *linear;

static void *host_alloc(const berth_host *host, uint64_t bytes, uint64_t alignment) {
    (void)host;
    void *memory = aligned_alloc(alignment > 64 ? alignment : 64, (bytes + 63) / 64 * 64);
    memset(memory, 0, bytes);
    return memory;
}

static void host_free(const berth_host *host, void *memory) {
    (void)host;
    free(memory);
}

static berth_status get_i64(const berth_config *config, const char *key, int64_t *out) {
    (void)config;
    (void)key;
    *out = threads;
    return BERTH_OK;
}

static berth_status add_platform(berth_registrar *registrar, const berth_platform *added,
                                 void *self) {
    (void)registrar;
    platform = added;
    platform_self = self;
    return BERTH_OK;
}

static berth_status add_op_impl(berth_registrar *registrar, const berth_op_impl *impl,
                                uint64_t flags) {
    (void)registrar;
    (void)flags;
    if (strcmp(impl->op, "linear") == 0) {
        linear = impl;
    }
    return BERTH_OK;
}

static void fail(const berth_host *host, berth_status code, const char *text, uint64_t length) {
    (void)host;
    (void)fprintf(stderr, "status %d: %.*s\n", (int)code, (int)length, text);
}

static const berth_host host = {
    .size = sizeof(berth_host),
    .fail = fail,
    .alloc = host_alloc,
    .free = host_free,
    .config_get_i64 = get_i64,
};

static void open_platform(const char *path) {
    berth_registrar registrar = {
        .size = sizeof registrar,
        .add_platform = add_platform,
        .add_op_impl = add_op_impl,
    };
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const berth_plugin *plugin = library ? dlsym(library, "berth_plugin_v1") : NULL;
    if (!plugin) {
        die(dlerror());
    }
    if (plugin->entry_points[0]->register_plugin(&host, &registrar) != BERTH_OK ||
        platform->register_ops(platform_self, NULL, &registrar) != BERTH_OK ||
        platform->device->open(platform_self, 0) != BERTH_OK) {
        die("the platform does not open");
    }
}

static void *device_memory(uint64_t bytes) {
    void *base = NULL;
    if (platform->device->allocate(platform_self, 0, bytes, &base) != BERTH_OK) {
        die("no memory");
    }
    return base;
}

// ---- reading ------------------------------------------------------------------------------------

typedef float floats __attribute__((vector_size(64)));

typedef struct reader {
    const char *from;
    size_t bytes;
    size_t ahead; // 0: plain
    pthread_barrier_t *start;
    float sum;
} reader;

__attribute__((target("avx512f"), noinline)) static float read_lines(const reader *self) {
    floats sums[4] = {{0}};
    const size_t ahead = self->ahead;
    for (size_t i = 0; i < self->bytes; i += 256) {
        for (size_t line = 0; line < 4; ++line) {
            if (ahead) {
                __builtin_prefetch(self->from + i + 64 * line + ahead, 0, 3);
            }
            sums[line] += *(const floats *)(const void *)(self->from + i + 64 * line);
        }
    }
    const floats sum = sums[0] + sums[1] + sums[2] + sums[3];
    return sum[0] + sum[7];
}

static void *read_part(void *context) {
    reader *self = context;
    (void)pthread_barrier_wait(self->start);
    self->sum = read_lines(self);
    (void)pthread_barrier_wait(self->start);
    return NULL;
}

static double read_once(const char *from, size_t ahead) {
    pthread_t handles[256];
    reader parts[256];
    pthread_barrier_t barrier;
    (void)pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    for (int64_t i = 0; i < threads; ++i) {
        const size_t share = READ / (size_t)threads / 256 * 256;
        parts[i] = (reader){from + (size_t)i * share, share, ahead, &barrier, 0};
        (void)pthread_create(&handles[i], NULL, read_part, &parts[i]);
    }
    (void)pthread_barrier_wait(&barrier);
    const double start = now();
    (void)pthread_barrier_wait(&barrier);
    const double seconds = now() - start;
    for (int64_t i = 0; i < threads; ++i) {
        (void)pthread_join(handles[i], NULL);
    }
    (void)pthread_barrier_destroy(&barrier);
    return (double)READ / seconds;
}

static double read_figure(const char *memory) {
    static const size_t aheads[] = {0, 512, 1024, 4096};
    double best = 0;
    for (int run = 0; run < 5; ++run) {
        for (size_t i = 0; i < sizeof aheads / sizeof aheads[0]; ++i) {
            const double figure = read_once(memory, aheads[i]);
            best = figure > best ? figure : best;
        }
    }
    return best;
}

static char *filled(char *memory, size_t bytes) {
    memset(memory, 0, bytes);
    return memory;
}

// ---- oneDNN -------------------------------------------------------------------------------------

typedef struct product {
    dnnl_primitive_t primitive;
    dnnl_memory_t x, y;
    dnnl_memory_t weights[64];
} product;

static void check(dnnl_status_t status) {
    if (status != dnnl_success) {
        die("oneDNN");
    }
}

static dnnl_memory_desc_t matrix(int64_t rows, int64_t columns, dnnl_data_type_t type,
                                 dnnl_format_tag_t tag) {
    dnnl_memory_desc_t description;
    check(dnnl_memory_desc_init_by_tag(&description, 2, (dnnl_dims_t){rows, columns}, type, tag));
    return description;
}

static void product_init(product *self, dnnl_engine_t engine, const int64_t *sizes,
                         dnnl_data_type_t type, char *memory) {
    const dnnl_memory_desc_t x = matrix(sizes[0], sizes[2], type, dnnl_ab);
    const dnnl_memory_desc_t any = matrix(sizes[2], sizes[1], type, dnnl_format_tag_any);
    const dnnl_memory_desc_t y = matrix(sizes[0], sizes[1], type, dnnl_ab);
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t description;
    check(dnnl_matmul_desc_init(&matmul, &x, &any, NULL, &y));
    check(dnnl_primitive_desc_create(&description, &matmul, NULL, engine, NULL));
    check(dnnl_primitive_create(&self->primitive, description));
    const dnnl_memory_desc_t *weight =
        dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0);
    const size_t bytes = (dnnl_memory_desc_get_size(weight) + 63) / 64 * 64;
    const size_t copies = ROTATED / bytes < 1 ? 1 : ROTATED / bytes > 64 ? 64 : ROTATED / bytes;
    for (size_t i = 0; i < 64; ++i) {
        check(dnnl_memory_create(&self->weights[i], weight, engine, memory + i % copies * bytes));
    }
    check(dnnl_memory_create(&self->x, &x, engine, DNNL_MEMORY_ALLOCATE));
    check(dnnl_memory_create(&self->y, &y, engine, DNNL_MEMORY_ALLOCATE));
    (void)dnnl_primitive_desc_destroy(description);
}

static double product_run(const product *self, dnnl_stream_t stream, int turn) {
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC,     self->x                 },
        {DNNL_ARG_WEIGHTS, self->weights[turn % 64]},
        {DNNL_ARG_DST,     self->y                 },
    };
    const double start = now();
    check(dnnl_primitive_execute(self->primitive, stream, 3, arguments));
    check(dnnl_stream_wait(stream));
    return now() - start;
}

// ---- ours ---------------------------------------------------------------------------------------

typedef struct ours {
    berth_value_type x_type, weight_type, y_type;
    const berth_value_type *inputs[3];
    const berth_value_type *outputs[1];
    berth_op_site site;
    void *self;
    berth_tensor x, y, weight, workspace;
    int64_t shapes[3][2], strides[3][2];
    size_t weight_bytes, copies;
    char *memory;
} ours;

static berth_tensor tensor_of(int64_t *shape, int64_t *strides, berth_dtype dtype, int64_t rows,
                              int64_t columns) {
    shape[0] = rows;
    shape[1] = columns;
    strides[0] = columns;
    strides[1] = 1;
    return (berth_tensor){
        .size = sizeof(berth_tensor),
        .ndim = 2,
        .dtype = dtype,
        .shape = shape,
        .strides = strides,
    };
}

static berth_value_type type_of(berth_dtype dtype, int64_t rows, int64_t columns) {
    return (berth_value_type){
        .dtype = dtype,
        .ndim = 2,
        .dims = {BERTH_DIM_CONST(rows), BERTH_DIM_CONST(columns)},
    };
}

static void ours_init(ours *self, const int64_t *sizes, berth_dtype x, char *memory) {
    *self = (ours){.memory = memory};
    self->x_type = type_of(x, sizes[0], sizes[2]);
    self->weight_type = type_of(BERTH_DTYPE_BF16, sizes[1], sizes[2]);
    self->y_type = type_of(x, sizes[0], sizes[1]);
    self->inputs[0] = &self->x_type;
    self->inputs[1] = &self->weight_type;
    self->outputs[0] = &self->y_type;
    self->site = (berth_op_site){
        .size = sizeof(berth_op_site),
        .host = &host,
        .inputs = self->inputs,
        .input_count = 3,
        .outputs = self->outputs,
        .output_count = 1,
        .parameter_mask = 2,
    };
    const berth_device device = {.size = sizeof device, .self = platform_self};
    if (linear->create(&self->site, &device, &self->self) != BERTH_OK) {
        die("create");
    }
    self->weight_bytes = linear->packed_bytes(&self->site, 1);
    self->copies = ROTATED / self->weight_bytes < 1 ? 1 : ROTATED / self->weight_bytes;
    self->x = tensor_of(self->shapes[0], self->strides[0], x, sizes[0], sizes[2]);
    self->weight =
        tensor_of(self->shapes[1], self->strides[1], BERTH_DTYPE_BF16, sizes[1], sizes[2]);
    self->y = tensor_of(self->shapes[2], self->strides[2], x, sizes[0], sizes[1]);
    self->x.data = device_memory((uint64_t)(sizes[0] * sizes[2] * 4));
    self->y.data = device_memory((uint64_t)(sizes[0] * sizes[1] * 4));
    self->workspace.data = device_memory(linear->workspace(self->self, (uint64_t)sizes[0]));
}

static double ours_run(ours *self, int turn) {
    const berth_tensor *inputs[] = {&self->x, &self->weight, NULL};
    berth_tensor *outputs[] = {&self->y};
    const berth_op_args args = {
        .size = sizeof args,
        .inputs = inputs,
        .outputs = outputs,
        .workspace = &self->workspace,
    };
    self->weight.data = self->memory + (size_t)turn % self->copies * self->weight_bytes;
    const double start = now();
    if (linear->forward(self->self, &args) != BERTH_OK) {
        die("forward");
    }
    return now() - start;
}

static void ours_deinit(ours *self) {
    linear->destroy(self->self);
    platform->device->release(platform_self, 0, self->x.data);
    platform->device->release(platform_self, 0, self->y.data);
    platform->device->release(platform_self, 0, self->workspace.data);
}

// ---- cases --------------------------------------------------------------------------------------

static void product_deinit(product *self) {
    (void)dnnl_primitive_destroy(self->primitive);
    (void)dnnl_memory_destroy(self->x);
    (void)dnnl_memory_destroy(self->y);
    for (size_t i = 0; i < 64; ++i) {
        (void)dnnl_memory_destroy(self->weights[i]);
    }
}

// Why: after a call oneDNN's threads look for work for some milliseconds, on the cores of ours. The
// call that follows is not counted, it wakes the threads.
static void settle(void) {
    if (threads > 1) {
        (void)usleep(10000);
    }
}

// Seconds of ours with f32 and bf16 x, of oneDNN in f32 and bf16.
static void time_case(const int64_t *sizes, char *memory, char *other, double seconds[4]) {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    ours mine[2];
    product theirs[2];
    double samples[4][SAMPLES];
    omp_set_num_threads((int)threads);
    check(dnnl_engine_create(&engine, dnnl_cpu, 0));
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    ours_init(&mine[0], sizes, BERTH_DTYPE_F32, memory);
    ours_init(&mine[1], sizes, BERTH_DTYPE_BF16, memory);
    product_init(&theirs[0], engine, sizes, dnnl_f32, other);
    product_init(&theirs[1], engine, sizes, dnnl_bf16, other);
    for (int turn = 0; turn < SAMPLES; ++turn) {
        for (int i = 0; i < 4; ++i) {
            settle();
            for (int again = 0; again < 2; ++again) {
                const int copy = 2 * turn + again;
                samples[i][turn] = i < 2 ? ours_run(&mine[i], copy + i * (int)(mine[i].copies / 2))
                                         : product_run(&theirs[i - 2], stream, copy);
            }
        }
    }
    for (int i = 0; i < 4; ++i) {
        seconds[i] = median(samples[i], SAMPLES);
    }
    for (int i = 0; i < 2; ++i) {
        ours_deinit(&mine[i]);
        product_deinit(&theirs[i]);
    }
    (void)dnnl_stream_destroy(stream);
    (void)dnnl_engine_destroy(engine);
}

// TinyLlama: out, in, how often.
static const int64_t shapes[][3] = {
    {2560,  2048, 22},
    {2048,  2048, 22},
    {11264, 2048, 22},
    {2048,  5632, 22},
    {32000, 2048, 1 },
};

static void bench_rows(int64_t rows, char *memory, char *other, double read) {
    double total[4] = {0};
    double bound = 0;
    double bytes = 0;
    double flops = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
        if (getenv("SHAPE") && strtoul(getenv("SHAPE"), NULL, 10) != i) {
            continue;
        }
        const int64_t sizes[] = {rows, shapes[i][0], shapes[i][1]};
        const double times = (double)shapes[i][2];
        double seconds[4];
        time_case(sizes, memory, other, seconds);
        const double weight = (double)(sizes[1] * sizes[2]);
        for (int j = 0; j < 4; ++j) {
            total[j] += times * seconds[j];
        }
        bound += times * (seconds[2] < seconds[3] ? seconds[2] : seconds[3]);
        bytes += times * 2 * weight;
        flops += times * 2 * weight * (double)rows;
        (void)printf("rows %lld out %lld in %lld: ours f32 %.1f GB/s %.0f GFLOP/s, bf16 %.1f GB/s "
                     "%.0f GFLOP/s; oneDNN f32 %.0f, bf16 %.0f GFLOP/s\n",
                     (long long)rows, (long long)sizes[1], (long long)sizes[2],
                     2e-9 * weight / seconds[0], 2e-9 * weight * (double)rows / seconds[0],
                     2e-9 * weight / seconds[1], 2e-9 * weight * (double)rows / seconds[1],
                     2e-9 * weight * (double)rows / seconds[2],
                     2e-9 * weight * (double)rows / seconds[3]);
    }
    (void)printf("rows %lld model: ours f32 %.1f ms = %.2f of read = %.2f of oneDNN; bf16 %.1f ms "
                 "= %.2f of read = %.2f of oneDNN (%.0f GFLOP/s); oneDNN f32 %.1f ms, bf16 %.1f "
                 "ms, the faster of each shape %.1f ms\n",
                 (long long)rows, 1e3 * total[0], bytes / total[0] / read, bound / total[0],
                 1e3 * total[1], bytes / total[1] / read, bound / total[1], 1e-9 * flops / total[1],
                 1e3 * total[2], 1e3 * total[3], 1e3 * bound);
    (void)fflush(stdout);
}

int main(int count, char **words) {
    if (count < 4) {
        die("linear LIBRARY THREADS ROWS ...");
    }
    threads = strtol(words[2], NULL, 10);
    open_platform(words[1]);
    char *memory = filled(device_memory(READ), READ);
    char *other = filled(device_memory(READ), READ);
    char *small =
        filled(mmap(NULL, READ, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), READ);
    double read = read_figure(memory);
    (void)printf("threads %lld: read %.1f GB/s, in small pages %.1f GB/s\n", (long long)threads,
                 1e-9 * read, 1e-9 * read_figure(small));
    (void)munmap(small, READ);
    for (int i = 3; i < count; ++i) {
        bench_rows(strtol(words[i], NULL, 10), memory, other, read);
    }
    const double again = read_figure(memory);
    (void)printf("read again %.1f GB/s\n", 1e-9 * again);
    platform->device->close(platform_self, 0);
    return 0;
}
