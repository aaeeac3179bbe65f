// SPDX-License-Identifier: Apache-2.0
// cuBLASLt: opened when a plan first asks for it, never linked. For every shape of weights the
// algorithms that it proposes are timed once per bucket of rows, and the fastest are kept in the
// host's cache, from which a later start takes them; a step only looks its bucket up.
#include <cuda/product/choices.h>
#include <cuda/product/product.h>

#include <cublasLt.h>

#include <algorithm>
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>

#define PROPOSALS    32
#define BEYOND_CACHE ((size_t)128 << 20) // bytes of weights

// The functions that are used, by their names in the library.
#define FUNCTIONS(F)                                                                               \
    F(cublasLtCreate)                                                                              \
    F(cublasLtDestroy)                                                                             \
    F(cublasLtGetVersion)                                                                          \
    F(cublasLtMatmul)                                                                              \
    F(cublasLtMatmulAlgoCheck)                                                                     \
    F(cublasLtMatmulAlgoGetHeuristic)                                                              \
    F(cublasLtMatmulDescCreate)                                                                    \
    F(cublasLtMatmulDescDestroy)                                                                   \
    F(cublasLtMatmulDescSetAttribute)                                                              \
    F(cublasLtMatmulPreferenceCreate)                                                              \
    F(cublasLtMatmulPreferenceDestroy)                                                             \
    F(cublasLtMatmulPreferenceSetAttribute)                                                        \
    F(cublasLtMatrixLayoutInit_internal)

struct functions {
#define MEMBER(name) decltype(&::name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof cuda_choice{}.algorithm,
              "cuBLASLt's own size");

struct cuda_lt {
    struct products *all;
    cuda_lt *next;
    cuda_product shape;
    cublasLtMatmulDesc_t description;
    cuda_choice buckets[CUDA_CHOICES_MAX];
    int count;
};

// What the platform keeps: the library, a handle, the shapes.
struct products {
    const berth_host *host;
    void *library;
    functions call;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    cuda_lt *shapes;
};

// ---- opening ------------------------------------------------------------------------------------

static void close_products(berth_gpu *gpu) {
    products *all = static_cast<products *>(gpu->products);
    for (cuda_lt *shape = all->shapes; shape;) {
        cuda_lt *next = shape->next;
        (void)all->call.cublasLtMatmulDescDestroy(shape->description);
        all->host->free(all->host, shape);
        shape = next;
    }
    if (all->preference) {
        (void)all->call.cublasLtMatmulPreferenceDestroy(all->preference);
    }
    if (all->handle) {
        (void)all->call.cublasLtDestroy(all->handle);
    }
    all->host->free(all->host, all); // the library stays: it cannot be relied on to leave
    gpu->products = nullptr;
}

static berth_status find_functions(const berth_host *host, products *all) {
#define FIND(name)                                                                                 \
    all->call.name = reinterpret_cast<decltype(&::name)>(dlsym(all->library, #name));              \
    if (!all->call.name) {                                                                         \
        return BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "cuBLASLt has no %s", #name);            \
    }
    FUNCTIONS(FIND)
#undef FIND
    return BERTH_OK;
}

static berth_status open_library(berth_gpu *gpu) {
    const berth_host *host = gpu->host;
    char name[64];
    if (gpu->products) {
        return BERTH_OK;
    }
    (void)snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "%s", dlerror());
    }
    products *all = static_cast<products *>(host->alloc(host, sizeof(products), 0));
    if (!all) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for cuBLASLt");
    }
    all->host = host;
    all->library = library;
    const berth_status status = find_functions(host, all);
    if (status != BERTH_OK) {
        host->free(host, all);
        return status;
    }
    gpu->products = all;
    gpu->release_products = close_products;
    return BERTH_OK;
}

berth_status cuda_lt_check(const berth_host *host, const berth_device *device) {
    (void)host;
    return open_library(static_cast<berth_gpu *>(device->self));
}

static berth_status failed(const berth_host *host, const char *call, cublasStatus_t status) {
    return BERTH_PLUGIN_FAIL(host, BERTH_UNAVAILABLE, "%s: cuBLAS status %d", call, (int)status);
}

#define TRY_LT(host, call, ...)                                                                    \
    do {                                                                                           \
        const cublasStatus_t status_ = (call)(__VA_ARGS__);                                        \
        if (status_ != CUBLAS_STATUS_SUCCESS) {                                                    \
            return failed((host), #call, status_);                                                 \
        }                                                                                          \
    } while (0)

// A handle belongs to the device that is current.
static berth_status open_handle(products *all) {
    const size_t workspace = CUDA_LT_WORKSPACE;
    if (all->handle) {
        return BERTH_OK;
    }
    TRY_LT(all->host, all->call.cublasLtMatmulPreferenceCreate, &all->preference);
    TRY_LT(all->host, all->call.cublasLtMatmulPreferenceSetAttribute, all->preference,
           CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    TRY_LT(all->host, all->call.cublasLtCreate, &all->handle);
    return BERTH_OK;
}

// ---- one product --------------------------------------------------------------------------------

static cudaDataType_t type_of(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_F32         ? CUDA_R_32F
           : dtype == BERTH_DTYPE_BF16      ? CUDA_R_16BF
           : dtype == BERTH_DTYPE_F16       ? CUDA_R_16F
           : dtype == BERTH_DTYPE_F8_E4M3FN ? CUDA_R_8F_E4M3
           : dtype == BERTH_DTYPE_I8        ? CUDA_R_8I
                                            : CUDA_R_32I;
}

// Whether the library scales.
static bool has_scales(const cuda_product &p) {
    return p.codes == BERTH_DTYPE_F8_E4M3FN && p.dtype != BERTH_DTYPE_F32;
}

// The type of x and weight.
static berth_dtype operand_of(const cuda_product &p) {
    return p.codes == BERTH_DTYPE_NONE ? p.dtype : p.codes;
}

// cuBLAS counts in columns: yᵀ [outputs, rows] = weight [depth, outputs]ᵀ · xᵀ [depth, rows].
struct layouts {
    cublasLtMatrixLayoutOpaque_t weight;
    cublasLtMatrixLayoutOpaque_t x;
    cublasLtMatrixLayoutOpaque_t y;
};

static berth_status lay_out(const products *all, const cuda_product &p, layouts *out) {
    const cudaDataType_t type = type_of(operand_of(p));
    const auto init = all->call.cublasLtMatrixLayoutInit_internal;
    const uint64_t rows = static_cast<uint64_t>(p.rows);
    const uint64_t outputs = static_cast<uint64_t>(p.outputs);
    const uint64_t depth = static_cast<uint64_t>(p.depth);
    TRY_LT(all->host, init, &out->weight, sizeof out->weight, type, depth, outputs, p.depth);
    TRY_LT(all->host, init, &out->x, sizeof out->x, type, depth, rows, p.x_gap);
    TRY_LT(all->host, init, &out->y, sizeof out->y, type_of(p.dtype), outputs, rows, p.y_gap);
    return BERTH_OK;
}

static int propose(const cuda_lt *lt, layouts *with, cublasLtMatmulHeuristicResult_t *results,
                   int wanted) {
    int found = 0;
    const products *all = lt->all;
    const cublasStatus_t status = all->call.cublasLtMatmulAlgoGetHeuristic(
        all->handle, lt->description, &with->weight, &with->x, &with->y, &with->y, all->preference,
        wanted, results, &found);
    return status == CUBLAS_STATUS_SUCCESS ? found : 0;
}

static cublasStatus_t multiply(const cuda_lt *lt, layouts *with, const cuda_product &p,
                               const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                               cudaStream_t stream) {
    const float one = 1;
    const float zero = 0;
    const int32_t whole_one = 1;
    const int32_t whole_zero = 0;
    const bool is_whole = p.codes == BERTH_DTYPE_I8;
    const void *alpha = is_whole ? static_cast<const void *>(&whole_one) : &one;
    const void *beta = is_whole ? static_cast<const void *>(&whole_zero) : &zero;
    return lt->all->call.cublasLtMatmul(lt->all->handle, lt->description, alpha, p.weight,
                                        &with->weight, p.x, &with->x, beta, p.y, &with->y, p.y,
                                        &with->y, algorithm, workspace, CUDA_LT_WORKSPACE, stream);
}

// What a description knows by its address.
static berth_status point(const cuda_lt *lt, const cuda_product &p) {
    const products *all = lt->all;
    const auto set = all->call.cublasLtMatmulDescSetAttribute;
    if (p.bias) {
        TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias,
               sizeof p.bias);
    }
    if (has_scales(p)) {
        TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p.scales,
               sizeof p.scales);
        TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p.x_scales,
               sizeof p.x_scales);
    }
    return BERTH_OK;
}

static int bucket_of(const cuda_lt *lt, int rows) {
    int at = 0;
    while (at < lt->count - 1 && lt->buckets[at].rows < rows) {
        ++at;
    }
    return at;
}

static const cublasLtMatmulAlgo_t *algorithm_of(const cuda_choice &choice) {
    return reinterpret_cast<const cublasLtMatmulAlgo_t *>(choice.algorithm);
}

float cuda_lt_milliseconds(const cuda_lt *lt, int rows) {
    return lt->count > 0 ? lt->buckets[bucket_of(lt, rows)].milliseconds : -1;
}

berth_status cuda_lt_run(const gpu_op *op, const cuda_lt *lt, const cuda_product &product,
                         void *workspace) {
    const products *all = lt->all;
    layouts with;
    berth_status ready = lay_out(all, product, &with);
    ready = ready == BERTH_OK ? point(lt, product) : ready;
    if (ready != BERTH_OK) {
        return ready;
    }
    const int at = bucket_of(lt, product.rows);
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (lt->count > 0) {
        status = multiply(lt, &with, product, algorithm_of(lt->buckets[at]), workspace, op->stream);
    }
    // Why: an algorithm may not take every number of rows of its bucket.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
        cublasLtMatmulHeuristicResult_t result;
        if (propose(lt, &with, &result, 1) > 0) {
            status = multiply(lt, &with, product, &result.algo, workspace, op->stream);
        }
    }
    return status == CUBLAS_STATUS_SUCCESS ? BERTH_OK : failed(op->host, "cublasLtMatmul", status);
}

// ---- choosing -----------------------------------------------------------------------------------

// Memory and events for timing one shape.
struct trial {
    void *x;
    char *weight; // several, so that none is in the cache when its turn comes
    size_t weight_bytes;
    size_t weight_count;
    void *y;
    void *workspace;
    cudaStream_t stream;
    cudaEvent_t begin;
    cudaEvent_t end;
};

// The bits that a pattern leaves are random. Why not one number everywhere: products of it take so
// little power that clocks stay higher than they do in a step, and another algorithm is the
// fastest.
struct pattern {
    uint32_t free;
    uint32_t set;
};

// Numbers of both signs that are neither tiny nor huge: of bf16 from 2^-7 to 2, of f16 and e4m3
// from 1 to 2; as scales, which are f32, codes are from 2^-15 to 1.
static pattern pattern_of(berth_dtype dtype) {
    const uint64_t bits = BERTH_DTYPE_BITS(dtype);
    return bits == 8    ? pattern{0x87878787u, 0x38383838u}
           : bits == 16 ? pattern{0x83ff83ffu, 0x3c003c00u}
                        : pattern{0x83ffffffu, 0x3c000000u};
}

static __global__ void fill_kernel(uint32_t *words, size_t count, pattern numbers) {
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
         i += size_t{gridDim.x} * blockDim.x) {
        uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
        words[i] = (static_cast<uint32_t>(x >> 32) & numbers.free) | numbers.set;
    }
}

static bool fill(void *memory, size_t bytes, berth_dtype dtype) {
    fill_kernel<<<1024, 256>>>(static_cast<uint32_t *>(memory), bytes / 4, pattern_of(dtype));
    return cudaDeviceSynchronize() == cudaSuccess;
}

static bool open_trial(const cuda_product &shape, int max_rows, trial *out) {
    const size_t bytes = BERTH_DTYPE_BITS(operand_of(shape)) / 8;
    const size_t x = static_cast<size_t>(max_rows) * static_cast<size_t>(shape.depth) * bytes;
    const size_t y = static_cast<size_t>(max_rows) * static_cast<size_t>(shape.outputs) *
                     BERTH_DTYPE_BITS(shape.dtype) / 8;
    const size_t weight =
        static_cast<size_t>(shape.outputs) * static_cast<size_t>(shape.depth) * bytes;
    void *weights = nullptr;
    *out = trial{};
    out->weight_bytes = (weight + 255) / 256 * 256;
    out->weight_count = 1 + BEYOND_CACHE / weight;
    const bool is_there =
        cudaMalloc(&out->x, x) == cudaSuccess &&
        cudaMalloc(&weights, out->weight_count * out->weight_bytes) == cudaSuccess &&
        cudaMalloc(&out->y, y) == cudaSuccess &&
        cudaMalloc(&out->workspace, CUDA_LT_WORKSPACE) == cudaSuccess &&
        cudaEventCreate(&out->begin) == cudaSuccess && cudaEventCreate(&out->end) == cudaSuccess;
    out->weight = static_cast<char *>(weights);
    return is_there && fill(out->x, x, operand_of(shape)) &&
           fill(weights, out->weight_count * out->weight_bytes, operand_of(shape));
}

static void close_trial(trial *self) {
    (void)cudaFree(self->x);
    (void)cudaFree(self->weight);
    (void)cudaFree(self->y);
    (void)cudaFree(self->workspace);
    if (self->begin) {
        (void)cudaEventDestroy(self->begin);
    }
    if (self->end) {
        (void)cudaEventDestroy(self->end);
    }
    (void)cudaGetLastError(); // a trial that has no room is no failure of what comes next
}

// What there is to choose from for so many rows.
struct proposed {
    cuda_product product;
    layouts with;
    cublasLtMatmulHeuristicResult_t results[PROPOSALS];
    int count;
};

// Milliseconds of one of `runs` of proposal `number`; negative when it cannot run.
static float time_one(const cuda_lt *lt, proposed *from, const trial &room, int number,
                      size_t runs) {
    float milliseconds = -1;
    cuda_product p = from->product;
    const cublasLtMatmulAlgo_t *algorithm = &from->results[number].algo;
    if (multiply(lt, &from->with, p, algorithm, room.workspace, room.stream) !=
        CUBLAS_STATUS_SUCCESS) {
        return milliseconds;
    }
    (void)cudaEventRecord(room.begin, room.stream);
    for (size_t run = 0; run < runs; ++run) {
        p.weight = room.weight + (run + 1) % room.weight_count * room.weight_bytes;
        (void)multiply(lt, &from->with, p, algorithm, room.workspace, room.stream);
    }
    (void)cudaEventRecord(room.end, room.stream);
    if (cudaEventSynchronize(room.end) != cudaSuccess ||
        cudaEventElapsedTime(&milliseconds, room.begin, room.end) != cudaSuccess) {
        return -1;
    }
    return milliseconds / static_cast<float>(runs);
}

// A proposal and its milliseconds.
struct candidate {
    int number;
    float time;
};

static bool is_faster(const candidate &a, const candidate &b) {
    return a.time < b.time;
}

// The fastest: all of them briefly, then the first ones again in turns, each at its best. Why:
// within a few percent of each other they change places from one run to the next, as clocks fall
// where work is hard. Products of few rows are over so soon that they need more runs.
static candidate fastest(const cuda_lt *lt, proposed *from, const trial &room) {
    constexpr int TURNS = 4;
    constexpr int FINALISTS = 6;
    constexpr float NEAR = 1.06f;
    const bool is_short = from->product.rows <= 1024;
    candidate all[PROPOSALS];
    int count = 0;
    for (int i = 0; i < from->count; ++i) {
        const float time = time_one(lt, from, room, i, is_short ? 6 : 2);
        all[count] = candidate{i, time};
        count += time >= 0;
    }
    if (count == 0) {
        return candidate{0, -1};
    }
    std::sort(all, all + count, is_faster);
    int last = 1;
    while (last < count && last < FINALISTS && all[last].time <= all[0].time * NEAR) {
        ++last;
    }
    for (int turn = 0; turn < (is_short ? TURNS : TURNS / 2) && last > 1; ++turn) {
        for (int i = 0; i < last; ++i) {
            const float time = time_one(lt, from, room, all[i].number, is_short ? 12 : 2);
            if (time >= 0) {
                all[i].time = turn == 0 ? time : std::min(all[i].time, time);
            }
        }
    }
    return *std::min_element(all, all + last, is_faster);
}

// The fastest for `rows`; without room to time them cuBLASLt's first proposal.
static void choose(cuda_lt *lt, int rows, const trial *room) {
    proposed from;
    cuda_product p = lt->shape;
    p.rows = rows;
    p.x = room ? room->x : nullptr;
    p.weight = room ? room->weight : nullptr;
    p.y = room ? room->y : nullptr;
    // Any numbers of the type will do; x and weight have more bytes than a scale for each row.
    p.bias = room && p.bias ? room->weight : p.bias;
    p.scales = room ? reinterpret_cast<const float *>(room->weight) : nullptr;
    p.x_scales = room ? static_cast<const float *>(room->x) : nullptr;
    from.product = p;
    if (lay_out(lt->all, p, &from.with) != BERTH_OK || point(lt, p) != BERTH_OK) {
        return;
    }
    from.count = propose(lt, &from.with, from.results, PROPOSALS);
    if (from.count == 0) {
        return;
    }
    const candidate best = room ? fastest(lt, &from, *room) : candidate{0, -1};
    cuda_choice *chosen = &lt->buckets[lt->count++];
    chosen->rows = rows;
    chosen->milliseconds = best.time;
    memcpy(chosen->algorithm, &from.results[best.number].algo, sizeof chosen->algorithm);
}

// Rows 16, 24, 32, 48, 64, 96, …, until a step cannot have more.
static void choose_all(const gpu_op *op, cuda_lt *lt, int max_rows) {
    trial room;
    const bool has_room = open_trial(lt->shape, max_rows, &room);
    room.stream = op->stream;
    int rows = 16;
    for (; rows < max_rows && lt->count < CUDA_CHOICES_MAX - 1;
         rows += (rows & (rows - 1)) == 0 ? rows / 2 : rows / 3) {
        choose(lt, rows, has_room ? &room : nullptr);
    }
    choose(lt, max_rows, has_room ? &room : nullptr);
    close_trial(&room);
}

// ---- keeping ------------------------------------------------------------------------------------

// Where the choices of a shape are kept, and what they rest on.
struct label {
    char name[128];
    char key[512];
};

static const char *text_of(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_F32         ? "f32"
           : dtype == BERTH_DTYPE_BF16      ? "bf16"
           : dtype == BERTH_DTYPE_F16       ? "f16"
           : dtype == BERTH_DTYPE_F8_E4M3FN ? "e4m3"
           : dtype == BERTH_DTYPE_I8        ? "i8"
                                            : "i32";
}

// Why the device is in the name, too: two kinds of them in one machine, or in machines that share a
// home, would take each other's place.
static void print_label(const gpu_op *op, const cuda_lt *lt, label *out) {
    constexpr int WAY = 2; // in which choices are made here; another one has another number
    const cuda_product &p = lt->shape;
    int driver = 0;
    cudaDeviceProp device = {};
    (void)cudaDriverGetVersion(&driver);
    (void)cudaGetDeviceProperties(&device, static_cast<int>(op->device));
    (void)snprintf(out->key, sizeof out->key,
                   "products %d\n%s, %d.%d, %d multiprocessors\ncuBLASLt %zu\nCUDA %d", WAY,
                   device.name, device.major, device.minor, device.multiProcessorCount,
                   lt->all->call.cublasLtGetVersion(), driver);
    for (char *at = device.name; *at != '\0'; ++at) {
        *at = isalnum(static_cast<unsigned char>(*at)) ? *at : '_';
    }
    (void)snprintf(out->name, sizeof out->name, "product-%s-%s-%dx%d%s-%d-%.48s", text_of(p.dtype),
                   text_of(operand_of(p)), p.outputs, p.depth, p.bias ? "-bias" : "", p.rows,
                   device.name);
}

// What cuBLASLt says of an algorithm of the shape's, in the workspace that there will be.
static cublasStatus_t ask(const cuda_lt *lt, const cuda_choice &choice) {
    const products *all = lt->all;
    layouts with;
    cublasLtMatmulHeuristicResult_t result = {};
    cuda_product p = lt->shape;
    p.rows = choice.rows;
    // That there are scales is looked at, what they are is not.
    p.scales = reinterpret_cast<const float *>(lt);
    p.x_scales = p.scales;
    if (lay_out(all, p, &with) != BERTH_OK || point(lt, p) != BERTH_OK) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const cublasStatus_t status =
        all->call.cublasLtMatmulAlgoCheck(all->handle, lt->description, &with.weight, &with.x,
                                          &with.y, &with.y, algorithm_of(choice), &result);
    return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize > CUDA_LT_WORKSPACE
               ? CUBLAS_STATUS_NOT_SUPPORTED
               : status;
}

static cublasStatus_t ask_all(const cuda_lt *lt) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < lt->count && status == CUBLAS_STATUS_SUCCESS; ++i) {
        status = ask(lt, lt->buckets[i]);
    }
    return status;
}

// Whether an earlier start has left choices that can be used; they are the shape's then.
static bool take_kept(const gpu_op *op, cuda_lt *lt, const label &kept) {
    const berth_host *host = op->host;
    void *bytes = nullptr;
    uint64_t size = 0;
    if (!BERTH_HAS(host, cache_read) ||
        host->cache_read(host, kept.name, kept.key, &bytes, &size) != BERTH_OK) {
        return false;
    }
    lt->count = cuda_choices_take(bytes, size, lt->shape.rows, lt->buckets);
    host->free(host, bytes);
    const cublasStatus_t status = ask_all(lt);
    if (lt->count > 0 && status == CUBLAS_STATUS_SUCCESS) {
        BERTH_PLUGIN_LOG(host, BERTH_LOG_DEBUG, "cuda", "%s: %d choices of an earlier start",
                         kept.name, lt->count);
        return true;
    }
    BERTH_PLUGIN_LOG(host, BERTH_LOG_WARN, "cuda", "%s: what was kept is ignored: %s (status %d)",
                     kept.name,
                     lt->count > 0 ? "cuBLASLt takes no such algorithm" : "it is no such list",
                     static_cast<int>(status));
    lt->count = 0;
    return false;
}

// What was not timed is not worth keeping.
static void keep(const gpu_op *op, const cuda_lt *lt, const label &as) {
    const berth_host *host = op->host;
    cuda_choice read_back[CUDA_CHOICES_MAX];
    const uint64_t size = static_cast<uint64_t>(lt->count) * sizeof(cuda_choice);
    if (BERTH_HAS(host, cache_write) &&
        cuda_choices_take(lt->buckets, size, lt->shape.rows, read_back) > 0) {
        (void)host->cache_write(host, as.name, as.key, lt->buckets, size);
    }
}

// ---- one shape ----------------------------------------------------------------------------------

// Why no fast sums: over 14336 products they were wrong by 5 % of the largest result, and the time
// that they save is a tenth.
static berth_status describe_scales(const products *all, const cuda_lt *lt) {
    const auto set = all->call.cublasLtMatmulDescSetAttribute;
    const int32_t by_vector = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &by_vector,
           sizeof by_vector);
    TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &by_vector,
           sizeof by_vector);
    return BERTH_OK;
}

static berth_status describe(const products *all, cuda_lt *lt) {
    const cublasOperation_t turned = CUBLAS_OP_T;
    const cublasLtEpilogue_t with_bias = CUBLASLT_EPILOGUE_BIAS;
    const auto set = all->call.cublasLtMatmulDescSetAttribute;
    const bool is_whole = lt->shape.codes == BERTH_DTYPE_I8;
    TRY_LT(all->host, all->call.cublasLtMatmulDescCreate, &lt->description,
           is_whole ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F, is_whole ? CUDA_R_32I : CUDA_R_32F);
    TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned);
    if (lt->shape.bias) {
        TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_EPILOGUE, &with_bias,
               sizeof with_bias);
        TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &lt->shape.bias,
               sizeof lt->shape.bias);
    }
    return has_scales(lt->shape) ? describe_scales(all, lt) : BERTH_OK;
}

static bool is_same(const cuda_product &a, const cuda_product &b) {
    return a.outputs == b.outputs && a.depth == b.depth && a.dtype == b.dtype &&
           a.codes == b.codes && !a.bias == !b.bias && a.rows == b.rows;
}

berth_status cuda_lt_open(const gpu_op *op, const cuda_product &shape, int max_rows,
                          const cuda_lt **out) {
    products *all = static_cast<products *>(op->gpu->products);
    const berth_status status = open_handle(all);
    if (status != BERTH_OK) {
        return status;
    }
    cuda_product wanted = shape;
    wanted.rows = max_rows;
    wanted.x_gap = shape.depth;
    wanted.y_gap = shape.outputs;
    for (const cuda_lt *one = all->shapes; one; one = one->next) {
        if (is_same(one->shape, wanted)) {
            *out = one;
            return BERTH_OK;
        }
    }
    cuda_lt *lt = static_cast<cuda_lt *>(op->host->alloc(op->host, sizeof(cuda_lt), 0));
    if (!lt) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_OUT_OF_MEMORY, "no memory for a product");
    }
    lt->all = all;
    lt->shape = wanted;
    const berth_status described = describe(all, lt);
    if (described != BERTH_OK) {
        op->host->free(op->host, lt);
        return described;
    }
    label kept;
    print_label(op, lt, &kept);
    if (!take_kept(op, lt, kept)) {
        choose_all(op, lt, max_rows);
        BERTH_PLUGIN_LOG(op->host, BERTH_LOG_DEBUG, "cuda", "%s: %d choices timed", kept.name,
                         lt->count);
        keep(op, lt, kept);
    }
    lt->next = all->shapes;
    all->shapes = lt;
    *out = lt;
    return BERTH_OK;
}
